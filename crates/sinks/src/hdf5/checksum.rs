//! Checksums of images: one CRC-32 over the chunks of an image as they are stored, one after the other, in a per-image
//! column. A filter of HDF5 (Fletcher-32) would do the same for readers that use HDF5, but crystallography programs
//! read the stored chunks directly and know only one filter.

use crc32fast::Hasher;
use hdf5::File;

use super::bounded::ReadAll;
use super::paths::COLUMNS;

/// Name of the column: CRC-32 (IEEE 802.3, as zlib's) over the bytes of all chunks of the image; 0 where nothing is
/// stored.
pub const CHECKSUM: &str = "chunk_crc32";
/// Description of the column in the file.
pub(crate) const DESCRIPTION: &str = "CRC-32 (as zlib's) over the bytes of the chunks of the image as they are stored, 0 without";
/// Bytes of a checksum.
pub(crate) const BYTES: usize = 4;

/// The checksum over consecutive parts; 0 over nothing.
pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = Hasher::new();
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// The checksums of a file, one for each of `images`; `None` in files without them. The error says why those that are
/// there cannot be used.
pub(crate) fn stored(file: &File, images: u64) -> Result<Option<Vec<u32>>, String> {
    let Ok(columns) = file.group(COLUMNS) else { return Ok(None) };
    if !columns.link_exists(CHECKSUM) {
        return Ok(None);
    }
    let sums = columns.dataset(CHECKSUM).and_then(|sums| sums.read_all::<u32>()).map_err(|error| error.to_string())?;
    if sums.len() as u64 == images { Ok(Some(sums)) } else { Err(format!("{} of them for {images} images", sums.len())) }
}

/// Compares the stored bytes of an image with its checksum in the column [`CHECKSUM`].
///
/// # Errors
/// If they differ, in words.
pub fn compare(bytes: &[u8], written: u64) -> Result<(), String> {
    let found = of([bytes]);
    if u64::from(found) == written { Ok(()) } else { Err(differs(found, written as u32)) }
}

/// The text for a wrong checksum.
pub(crate) fn differs(found: u32, stored: u32) -> String {
    format!("its bytes are not those that were written (CRC-32 {found:08x}, written {stored:08x})")
}

/// Checksums of images whose chunks come one after the other, several for each image.
pub(crate) struct Running {
    /// Chunks of an image.
    pieces: u64,
    image: u64,
    hasher: Hasher,
}

impl Running {
    pub(crate) fn new(pieces: u64) -> Self {
        Self { pieces: pieces.max(1), image: 0, hasher: Hasher::new() }
    }

    /// Takes chunk `n`, empty if nothing is stored. With the last chunk of an image it returns that image and its
    /// checksum.
    pub(crate) fn pass(&mut self, n: u64, chunk: &[u8]) -> Option<(u64, u32)> {
        if n / self.pieces != self.image {
            (self.image, self.hasher) = (n / self.pieces, Hasher::new());
        }
        self.hasher.update(chunk);
        (n + 1).is_multiple_of(self.pieces).then(|| (self.image, std::mem::take(&mut self.hasher).finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_pieces_make_one_checksum() {
        assert_eq!(of([&b"123456789"[..]]), 0xCBF4_3926);
        assert_eq!(of([&b"1234"[..], b"", b"56789"]), 0xCBF4_3926);
        assert_eq!(of([]), 0);
        let mut running = Running::new(2);
        assert_eq!(running.pass(0, b"12345"), None);
        assert_eq!(running.pass(1, b"6789"), Some((0, 0xCBF4_3926)));
        assert_eq!((running.pass(2, b""), running.pass(3, b"")), (None, Some((1, 0))));
        // An image whose chunks are incomplete does not affect the next one.
        assert_eq!(running.pass(4, b"x"), None);
        assert_eq!((running.pass(6, b"12345"), running.pass(7, b"6789")), (None, Some((3, 0xCBF4_3926))));
    }
}
