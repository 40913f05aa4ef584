//! SHA-256 of files, with the CRC-32 of ranges of them in the same pass.

use crate::sums::Chunk;
use konkordia_core::failure::{Exit, Failure};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Called with the bytes that were read, for a display of progress.
pub type Show<'a> = &'a mut dyn FnMut(u64);

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

/// What was asked to end ends so.
pub fn interrupted() -> Failure {
    let fix = "give the same command again: it goes on from there";
    Failure::new(Exit::Interrupted, "stopped", "Ctrl-C or SIGTERM; finished files are kept", fix)
}

/// The sum as 64 digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 and size of some bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Reads a file once: its SHA-256, its size, and the CRC-32 of each of `ranges`, in their order. A range beyond the end
/// has the sum of what is there of it. Each byte also goes to `copy`, if there is one.
///
/// # Errors
/// The file cannot be read or the copy not written; `stop`.
pub fn of_file(
    path: &Path,
    ranges: &[Chunk],
    mut copy: Option<(&Path, &mut File)>,
    stop: &AtomicBool,
    show: Show<'_>,
) -> Result<(String, u64, Vec<u32>), Failure> {
    let failed = |error| Failure::io("cannot read", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|n| ranges[*n].offset);
    let (mut hashers, mut first) = (vec![crc32fast::Hasher::new(); ranges.len()], 0);
    let (mut sha, mut at, mut block) = (Sha256::new(), 0u64, vec![0; BLOCK]);
    loop {
        if stop.load(Ordering::Acquire) {
            return Err(interrupted());
        }
        let count = file.read(&mut block).map_err(failed)?;
        if count == 0 {
            break;
        }
        let bytes = &block[..count];
        sha.update(bytes);
        if let Some((name, copy)) = &mut copy {
            copy.write_all(bytes).map_err(|error| Failure::io("cannot write", name, &error))?;
        }
        let end = at + count as u64;
        while order.get(first).is_some_and(|n| ranges[*n].end() <= at) {
            first += 1;
        }
        for n in order[first..].iter().take_while(|n| ranges[**n].offset < end) {
            let range = &ranges[*n];
            let (from, to) = (range.offset.max(at), range.end().min(end));
            if from < to {
                hashers[*n].update(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
        at = end;
        show(count as u64);
    }
    Ok((hex(&sha.finalize()), at, hashers.into_iter().map(crc32fast::Hasher::finalize).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_ranges_are_those_of_their_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..3 * BLOCK + 77).map(|n| ((n * n) >> 3) as u8).collect();
        std::fs::write(&path, &bytes).expect("it is written");
        let range = |offset: usize, bytes: usize| Chunk {
            dataset: "d".into(),
            image: "0".into(),
            offset: offset as u64,
            bytes: bytes as u64,
            crc32: 0,
        };
        // Not in order, one over several blocks, one of nothing, one beyond the end, one over the end.
        let places = [(BLOCK + 5, 9), (3, BLOCK * 2), (0, 3), (7, 0), (4 * BLOCK, 10), (3 * BLOCK, 1000)];
        let ranges = places.map(|(offset, length)| range(offset, length));
        let (sha, size, sums) = of_file(&path, &ranges, None, &AtomicBool::new(false), &mut |_| ()).expect("it is read");
        assert_eq!((sha, size), (of_bytes(&bytes), bytes.len() as u64));
        for ((offset, length), sum) in places.into_iter().zip(sums) {
            let part = &bytes[offset.min(bytes.len())..(offset + length).min(bytes.len())];
            assert_eq!(sum, crc32fast::hash(part), "{offset} {length}");
        }
        assert_eq!(of_bytes(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let stopped = of_file(&path, &[], None, &AtomicBool::new(true), &mut |_| ()).unwrap_err();
        assert_eq!(stopped.exit, Exit::Interrupted);
    }
}
