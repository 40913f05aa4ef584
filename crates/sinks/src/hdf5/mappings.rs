//! Checks the mappings of virtual data sets in the bytes of a file before libhdf5 opens one. libhdf5 1.14.6 decodes
//! them before it compares their checksum, and writes beyond one of its arrays if a rank is damaged
//! (`H5S__hyper_deserialize`), so that the whole program ends.
//!
//! The mappings are an object of a global heap. Heap: "GCOL", version 1, 3 zeros, u64 size of the whole heap in bytes;
//! then objects: u16 index, u16 references, u32 zero, u64 bytes, data padded to 8. Mappings: version 0, u64 count, for
//! each two names that end in a zero byte and two selections; at the end u32 checksum (lookup3 of Bob Jenkins) of
//! everything before. All little endian.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes searched at a time.
const BLOCK: usize = 4 << 20;
const SIGNATURE: &[u8] = b"GCOL\x01\0\0\0";
const HEAP_HEADER: usize = 16;
const OBJECT_HEADER: usize = 16;
/// Version, count, checksum.
const MAPPINGS_BYTES_MIN: usize = 1 + 8 + 4;

/// Numbers of mappings found in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mappings {
    pub(super) whole: usize,
    pub(super) damaged: usize,
}

impl Mappings {
    /// Searches a file.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut found = Self::default();
        let mut block = vec![0; BLOCK + SIGNATURE.len() - 1];
        for at in (0..length).step_by(BLOCK) {
            let bytes = (length - at).min(block.len() as u64) as usize;
            file.read_exact_at(&mut block[..bytes], at)?;
            let begins = block[..bytes].windows(SIGNATURE.len()).enumerate().filter(|(_, window)| *window == SIGNATURE);
            for begin in begins.map(|(begin, _)| at + begin as u64) {
                found.heap(&file, begin, length)?;
            }
        }
        Ok(found)
    }

    /// Checks the objects of the heap that begins at `begin`.
    fn heap(&mut self, file: &File, begin: u64, length: u64) -> io::Result<()> {
        let mut header = [0; HEAP_HEADER];
        if file.read_exact_at(&mut header, begin).is_err() {
            return Ok(());
        }
        // A heap whose stated size goes beyond the file is damaged: the part that is there is checked.
        let bytes = number(&header[8..]).min(length - begin);
        let mut heap = vec![0; usize::try_from(bytes).unwrap_or(0)];
        file.read_exact_at(&mut heap, begin)?;
        let mut rest = heap.get(HEAP_HEADER..).unwrap_or_default();
        while let Some((header, data)) = rest.split_at_checked(OBJECT_HEADER) {
            let bytes = usize::try_from(number(&header[8..])).unwrap_or(usize::MAX);
            // Object 0 is the free space.
            if header[..2] == [0, 0] {
                break;
            }
            let Some(object) = data.get(..bytes) else { break };
            self.object(object);
            rest = data.get(bytes.next_multiple_of(8)..).unwrap_or_default();
        }
        Ok(())
    }

    fn object(&mut self, object: &[u8]) {
        if object.len() < MAPPINGS_BYTES_MIN || object[0] != 0 {
            return;
        }
        let (body, sum) = object.split_at(object.len() - 4);
        if lookup3(body).to_le_bytes() == sum {
            self.whole += 1;
        } else if begins_with_names(&object[9..]) {
            self.damaged += 1;
        }
    }
}

/// Whether the mappings of a master that has a virtual data set can be decoded.
pub(super) fn are_whole(master: &Path) -> bool {
    Mappings::of(master).is_ok_and(|found| found.whole > 0 && found.damaged == 0)
}

/// True if the bytes begin with the name of a file and the name of a data set.
fn begins_with_names(bytes: &[u8]) -> bool {
    let mut names = bytes.split_inclusive(|byte| *byte == 0);
    let is_name = |name: &[u8]| name.len() > 1 && name.ends_with(b"\0") && std::str::from_utf8(name).is_ok();
    names.next().is_some_and(is_name) && names.next().is_some_and(is_name)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The checksum that HDF5 uses for its metadata: `hashlittle` of lookup3.c (Bob Jenkins, public domain) with initial
/// value 0.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    let [mut a, mut b, mut c] = [0xDEAD_BEEF_u32.wrapping_add(bytes.len() as u32); 3];
    let add = |part: &[u8], state: [u32; 3]| {
        let word = |at: usize| part.iter().skip(at).take(4).rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        [0, 1, 2].map(|n| state[n].wrapping_add(word(4 * n)))
    };
    let mut rest = bytes;
    while let Some((part, behind)) = rest.split_at_checked(12).filter(|(_, behind)| !behind.is_empty()) {
        [a, b, c] = add(part, [a, b, c]);
        for turn in [4, 6, 8, 16, 19, 4] {
            a = a.wrapping_sub(c) ^ c.rotate_left(turn);
            c = c.wrapping_add(b);
            [a, b, c] = [b, c, a];
        }
        rest = behind;
    }
    if rest.is_empty() {
        return c;
    }
    [a, b, c] = add(rest, [a, b, c]);
    for turn in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn));
        [a, b, c] = [b, c, a];
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup3_gives_the_numbers_of_its_author() {
        assert_eq!(lookup3(b""), 0xDEAD_BEEF);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
