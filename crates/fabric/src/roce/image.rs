//! Memory images for tests and tools: the bytes of regions, into which what a responder says is copied.

use crate::regions::RegionId;
use crate::roce::pair::Copy;

/// The bytes of some regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryImages(Vec<(RegionId, Vec<u8>)>);

impl MemoryImages {
    /// Adds a region, with all its bytes `fill`.
    pub fn add(&mut self, region: RegionId, length_bytes: usize, fill: u8) {
        self.0.push((region, vec![fill; length_bytes]));
    }

    /// The bytes of a region that was added.
    ///
    /// # Panics
    /// It was not.
    pub fn of(&self, region: RegionId) -> &[u8] {
        &self.0.iter().find(|(id, _)| *id == region).expect("the region has an image").1
    }

    /// Makes a copy.
    ///
    /// # Panics
    /// Its bytes are not all inside of a region that was added: the responder has broken its promise.
    pub fn apply(&mut self, copy: &Copy<'_>) {
        let (_, bytes) = self.0.iter_mut().find(|(id, _)| *id == copy.place.region).expect("a region that was registered");
        let start = usize::try_from(copy.place.offset_bytes).expect("an offset inside of the region");
        bytes[start..start + copy.bytes.len()].copy_from_slice(copy.bytes);
    }
}
