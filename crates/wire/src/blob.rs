//! Bytes that can be read from any place: a message in memory, a file on a disk. Views of formats whose parts lie far
//! apart (pages of a TIFF file) read through it, so that nothing else of a file must be in memory.

use std::borrow::Cow;

/// Bytes that can be read from any place.
pub trait Blob {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// `bytes` bytes from `at` on.
    ///
    /// # Errors
    /// They lie beyond the end, or cannot be read; in words for people.
    fn read(&self, at: u64, bytes: usize) -> Result<Cow<'_, [u8]>, String>;
}

impl Blob for [u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Cow<'_, [u8]>, String> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let there = start.checked_add(bytes).and_then(|end| self.get(start..end));
        there.map(Cow::Borrowed).ok_or_else(|| beyond(at, bytes as u64, self.len() as u64))
    }
}

/// What to say of bytes that lie beyond the end.
pub fn beyond(at: u64, bytes: u64, all: u64) -> String {
    format!("it ends after {all} bytes, but {bytes} bytes are to follow byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_beyond_the_end_is_read() {
        let blob: &[u8] = &[1, 2, 3];
        assert_eq!((blob.read(1, 2).unwrap(), blob.read(3, 0).unwrap()), (vec![2, 3].into(), vec![].into()));
        for (at, bytes) in [(1, 3), (4, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert!(blob.read(at, bytes).unwrap_err().contains("ends after 3 bytes"), "{at} {bytes}");
        }
    }
}
