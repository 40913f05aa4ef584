//! Memory of one owner, like the rings' own: zeroed, resident, and in huge pages where the kernel has them.

use crate::mapping::Mapping;
use std::io;
use std::ops::{Deref, DerefMut};

/// Zeroed bytes in huge pages, where the kernel has them. Packets that are placed all over a large store find their
/// place several times more quickly there than in pages of 4 KiB.
pub struct Pages {
    mapping: Mapping,
    bytes: usize,
}

impl Pages {
    /// Allocates and touches `bytes`.
    ///
    /// # Errors
    /// The kernel has no such memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(bytes)?, bytes })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Mapping::new` has mapped and zeroed at least so many bytes, and they are freed with `self`; nobody
        // else has a pointer to them.
        unsafe { std::slice::from_raw_parts(self.mapping.start(), self.bytes) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_bytes_as_were_asked_for() {
        for bytes in [0, 1, 4096, 4097, 3 << 20] {
            let mut pages = Pages::new(bytes).unwrap();
            assert!(pages.len() == bytes && pages.iter().all(|byte| *byte == 0));
            pages.fill(7);
            assert!(pages.iter().all(|byte| *byte == 7));
        }
        assert!(Pages::new(1 << 46).is_err());
    }
}
