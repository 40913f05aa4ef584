//! The plan of a run: computed at arm, immutable after. Every bound of the data path stands here, with the sum of its memory.

use crate::geometry::{ImageGeometry, Segment};
use crate::ledger::MissingPolicy;
use crate::pixel::PixelType;
use crate::ports::TileRecord;

/// Number of the first frame of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstFrame {
    /// The frame of the first packet that arrives, on whichever stream.
    Auto,
    /// This frame number; earlier frames are foreign.
    Number(u64),
}

/// What happens to a pixel on its way from the wire to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// JUNGFRAU words to photons.
    JungfrauPhotons,
    /// EIGER counts, widened to the output type.
    Counts,
    /// Words as they came (JUNGFRAU: gain and ADC in 16 bit).
    Raw,
}

/// How the chunks of the output image are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Plain pixels.
    None,
    /// Bitshuffle and LZ4 in blocks of 8 KiB (HDF5 filter 32008).
    Bslz4,
}

impl Compression {
    /// Name as the configuration spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bslz4 => "bslz4",
        }
    }
}

/// No run has more images: two years at 4 MHz. Image numbers stay far from where arithmetic with them could overflow.
pub const IMAGES_MAX: u64 = 1 << 48;

/// Images of which the ring remembers whether they have a slot, at least: more than the sockets' buffers can put one stream behind another.
pub const CLAIMS_MIN: u64 = 1 << 16;

/// Everything that the data path needs to know, and every bound it has.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The output image and where each tile lies; its format is that of every tile. One stream per tile.
    pub geometry: ImageGeometry,
    /// What happens to the pixels.
    pub recipe: Recipe,
    /// Type of the output pixels.
    pub pixel: PixelType,
    /// How chunks are packed.
    pub compression: Compression,
    /// Images to take, at most [`IMAGES_MAX`]; `None` = until told to stop.
    pub images: Option<u64>,
    /// Number of the first frame.
    pub first_frame: FirstFrame,
    /// What to do with partial images.
    pub missing: MissingPolicy,
    /// Images in the ring.
    pub slots: u64,
    /// Images that a stream may be ahead of its oldest open tile, at most half of the slots.
    pub window_images: u64,
    /// Time after which a known image seals although packets are missing.
    pub deadline_ns: u64,
    /// The run ends when no packet of an open tile comes for this long, be it placed or refused because the ring is full; before the first
    /// such packet see `start_timeout_ns`.
    pub stall_timeout_ns: u64,
    /// The run ends when no packet comes for this long after arm; `u64::MAX` = wait for ever.
    pub start_timeout_ns: u64,
    /// Worker threads.
    pub workers: usize,
    /// Processors of the receiver threads, in turn; empty = leave them to the scheduler.
    pub pin_receivers: Vec<usize>,
    /// Processors of the workers, in turn; empty = leave them to the scheduler.
    pub pin_workers: Vec<usize>,
}

/// One item of the memory sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryItem {
    /// What it is for.
    pub what: &'static str,
    /// How much.
    pub bytes: u64,
}

impl Plan {
    /// Streams of the run, one per tile.
    pub fn streams(&self) -> usize {
        self.geometry.placements().len()
    }

    /// Packets of a complete image.
    pub fn packets_per_image(&self) -> u64 {
        u64::from(self.geometry.format().packets()) * self.streams() as u64
    }

    /// Pixels of one compression block: 8 KiB whatever the type (protocols 5.1).
    pub fn block_pixels(&self) -> usize {
        8192 / self.pixel.bytes()
    }

    /// Bytes of one uncompressed output image.
    pub fn image_bytes(&self) -> usize {
        self.geometry.pixels() * self.pixel.bytes()
    }

    /// Bytes of one packed block at worst: 4-byte length and LZ4's bound (n + n / 255 + 16); plain pixels without compression.
    pub fn packed_block_bytes_max(&self, pixels: usize) -> usize {
        let bytes = pixels * self.pixel.bytes();
        match self.compression {
            Compression::None => bytes,
            Compression::Bslz4 => bytes + bytes / 255 + 16 + 4,
        }
    }

    /// Blocks of one strip, the unit of work: about 128 KiB of output, and at most [`STRIPS_MAX`] strips in an image.
    pub fn blocks_per_strip(&self) -> usize {
        16.max(self.geometry.pixels().div_ceil(self.block_pixels()).div_ceil(STRIPS_MAX))
    }

    /// Images that a stream whose socket is empty may be behind the others: half of the ring, so that a dead stream leaves the other half
    /// to the workers and sinks.
    pub fn behind_images_max(&self) -> u64 {
        (self.slots / 2).max(1)
    }

    /// The memory of the run by purpose; nothing else grows with time. Not here: the buffers of the sockets, which are the kernel's, and what
    /// sinks keep.
    pub fn memory(&self) -> Vec<MemoryItem> {
        let pixels = self.geometry.pixels() as u64;
        let raw = u64::from(self.geometry.format().tile_bytes()) * self.streams() as u64;
        let blocks = self.geometry.pixels().div_ceil(self.block_pixels()) as u64;
        // Each strip starts on a cache line.
        let packed = blocks * self.packed_block_bytes_max(self.block_pixels()) as u64 + 64 * STRIPS_MAX as u64;
        let records = (size_of::<TileRecord>() as u64 + 8) * self.streams() as u64 + 4 * STRIPS_MAX as u64;
        let constants = match self.recipe {
            Recipe::JungfrauPhotons => pixels * 24,
            Recipe::Counts => pixels,
            Recipe::Raw => 0,
        };
        // At worst a row of a tile and the gap beside it, cut again by blocks and packets.
        let segments = blocks + pixels / u64::from(self.geometry.format().columns) * 3;
        vec![
            MemoryItem { what: "ring, raw tiles", bytes: raw * self.slots },
            MemoryItem { what: "ring, packed images", bytes: packed * self.slots },
            MemoryItem { what: "ring, records of the tiles", bytes: records * self.slots },
            MemoryItem { what: "claims of slots", bytes: 8 * CLAIMS_MIN.max(2 * self.slots) },
            MemoryItem { what: "calibration constants and mask", bytes: constants + pixels * 4 },
            MemoryItem { what: "gather list", bytes: segments * size_of::<Segment>() as u64 },
            MemoryItem { what: "receive buffers of the program", bytes: self.streams() as u64 * RECEIVE_BUFFER_BYTES },
            MemoryItem { what: "writer, one packed image", bytes: packed + 12 },
        ]
    }
}

/// Most strips of an image.
pub const STRIPS_MAX: usize = 256;

/// Memory of one stream's receive batch: 32 buffers of 64 KiB (one `recvmmsg` call with GRO).
pub const RECEIVE_BUFFER_BYTES: u64 = 32 * 65536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Placement;
    use crate::tile::TileFormat;

    #[test]
    fn the_memory_sum_grows_with_the_slots_and_covers_the_gather_list() {
        for bits in [4, 12, 16, 32] {
            let place = |t: u32| Placement { row: 1 + t / 2 * 263, column: 3 + t % 2 * 519, flip_rows: t & 1 == 1 };
            let geometry = ImageGeometry::new(TileFormat::eiger(bits).unwrap(), (0..4).map(place).collect(), None).unwrap();
            let plan = |slots| Plan {
                geometry: geometry.clone(),
                recipe: Recipe::Counts,
                pixel: PixelType::Uint16,
                compression: Compression::Bslz4,
                images: None,
                first_frame: FirstFrame::Auto,
                missing: MissingPolicy::Keep,
                slots,
                window_images: 1,
                deadline_ns: 1,
                stall_timeout_ns: 1,
                start_timeout_ns: 1,
                workers: 1,
                pin_receivers: vec![],
                pin_workers: vec![],
            };
            let gather = geometry.gather(plan(2).block_pixels());
            let segments: usize = (0..gather.blocks()).map(|b| gather.segments(b).len()).sum();
            for (two, six) in plan(2).memory().into_iter().zip(plan(6).memory()) {
                assert_eq!(six.bytes, if two.what.starts_with("ring") { two.bytes * 3 } else { two.bytes }, "{}", two.what);
                assert!(two.what != "gather list" || two.bytes as usize >= segments * size_of::<Segment>(), "{bits} bit");
            }
        }
    }
}
