//! The size of a ring.

use crate::images::SnapshotSpec;

/// Size of a ring; all bounds come from the plan.
#[derive(Clone, Debug)]
pub struct RingSpec {
    /// Frames that the ring holds.
    pub slots: u64,
    /// Images whose strips the ring holds.
    pub packed_slots: u64,
    /// Tiles of a frame.
    pub tiles: usize,
    /// Bytes of a raw tile.
    pub tile_bytes: usize,
    /// Sections of a tile: equal parts of its bytes, each divided into packets on its own.
    pub sections: usize,
    /// Payload bytes of every packet but the last of a section, which has the rest of the section.
    pub payload_bytes: usize,
    /// Most bytes of each packed strip.
    pub strip_bytes_max: Vec<usize>,
    /// Numbers that a worker gives with each packed strip, beside its bytes.
    pub strip_numbers: usize,
    /// Worker threads; strip `s` belongs to worker `s % workers`.
    pub workers: usize,
    /// Threads that take raw frames.
    pub frame_readers: usize,
    /// Snapshots of the pedestals.
    pub snapshot: Option<SnapshotSpec>,
    /// The raw tiles lie in reserved huge pages, if there are enough.
    pub reserved_pages: bool,
}

impl RingSpec {
    /// Bytes and packets of each section.
    pub(crate) fn section(&self) -> (usize, usize) {
        assert!(self.sections > 0 && self.tile_bytes.is_multiple_of(self.sections), "sections are equal parts");
        let bytes = self.tile_bytes / self.sections;
        (bytes, bytes.div_ceil(self.payload_bytes))
    }

    /// Bytes from tile to tile, on cache lines of their own, and of all tiles. `None` if any size or offset of the ring
    /// does not fit into the address space: the pointers made from them rely on it.
    pub(crate) fn layout(&self) -> Option<(usize, usize)> {
        let slots = usize::try_from(self.slots).ok().filter(|n| *n < 1 << 32)?;
        let tile_stride = self.tile_bytes.checked_next_multiple_of(64)?;
        let bytes = tile_stride.checked_mul(self.tiles)?.checked_mul(slots)?;
        (bytes < isize::MAX as usize - 4096).then_some((tile_stride, bytes))
    }
}
