//! Where a worker finds the tiles of sealed frames, and where it leaves strips: the ring, or a copy of a frame that is
//! worked on elsewhere.

use konkordia_core::image::TileRecord;
use konkordia_memory::ring;

/// The tiles of sealed frames.
pub(crate) trait Tiles {
    /// A tile's record and raw bytes, or `None` if no packet of it was placed. Bytes of packets that did not arrive
    /// mean nothing: look at the bitmap first.
    fn tile(&self, frame: u64, tile: usize) -> Option<(&TileRecord, &[u8])>;
}

/// Tiles, and places for the strips that are made of them.
pub(crate) trait Place: Tiles {
    /// Lets `pack` fill a strip of an image; it returns the bytes of the packed strip. There is room for the strip at
    /// its worst.
    fn pack(&mut self, image: u64, strip: usize, pack: impl FnOnce(&Self, &mut [u8]) -> usize);

    /// Notes the numbers that go with a strip, as many as the run has.
    fn set_numbers(&mut self, image: u64, strip: usize, numbers: &[u64]);

    /// Where the tracked pedestals of a strip are to be written; `None` for most images.
    fn snapshot(&mut self, image: u64, strip: usize) -> Option<&mut [f32]>;
}

impl Tiles for ring::Worker {
    #[inline]
    fn tile(&self, frame: u64, tile: usize) -> Option<(&TileRecord, &[u8])> {
        Self::tile(self, frame, tile)
    }
}

impl Place for ring::Worker {
    #[inline]
    fn pack(&mut self, image: u64, strip: usize, pack: impl FnOnce(&Self, &mut [u8]) -> usize) {
        Self::pack(self, image, strip, pack);
    }

    fn set_numbers(&mut self, image: u64, strip: usize, numbers: &[u64]) {
        Self::set_numbers(self, image, strip, numbers);
    }

    fn snapshot(&mut self, image: u64, strip: usize) -> Option<&mut [f32]> {
        Self::snapshot(self, image, strip)
    }
}
