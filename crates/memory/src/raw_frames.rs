//! The memory of the raw frames, for a device that reads it by itself.

use crate::mapping::Mapping;
use std::fmt;
use std::sync::Arc;

/// The memory in which the receivers place the tiles of frames. It lives as long as this does, also when the ring is
/// gone.
///
/// Nothing is read here. Who reads it by its address keeps to what a worker may read
/// ([`Worker::frame_start`](crate::ring::Worker::frame_start)).
#[derive(Clone)]
pub struct RawFrames {
    memory: Arc<Mapping>,
    tile_stride: usize,
}

impl RawFrames {
    pub(crate) fn new(memory: Arc<Mapping>, tile_stride: usize) -> Self {
        Self { memory, tile_stride }
    }

    /// Address of the first byte; a multiple of the size of a page.
    pub fn start(&self) -> *const u8 {
        self.memory.start()
    }

    /// How many bytes there are: whole pages.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Bytes from one tile of a frame to the next one.
    pub fn tile_stride(&self) -> usize {
        self.tile_stride
    }
}

impl fmt::Debug for RawFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawFrames of {} bytes", self.bytes())
    }
}
