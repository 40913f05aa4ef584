//! The plan of a run: computed at arm, immutable afterwards. It holds every bound of the data path, with the sum of its
//! memory.

use crate::IMAGES_MAX;
use crate::affinity::Affinity;
use crate::assembler::JUMP_IMAGES_LIMIT;
pub use crate::compression::{BlockSize, Compression, DecodeOther, ErrorBound, OtherFilter, OtherFilters, WrongCodec};
use crate::far_ahead::FarAhead;
use crate::first_packets::Opening;
use crate::geometry::ImageGeometry;
use crate::image::TileRecord;
use crate::ledger::MissingPolicy;
use crate::pixel::PixelType;
pub use crate::process::{Arithmetic, CommonMode, Negative, Processing, TrackedFrames, Tracking};
use crate::results::{self, PIXEL_RESULTS, RESULT_NUMBERS_MAX, ResultKind, pixel_results};
use crate::setup::SetupRules;
use std::ops::Range;

/// Number of the first frame of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstFrame {
    /// The first frame of which several packets arrive, on whichever stream ([`crate::first_packets`]).
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

/// The ring remembers for at least this many images whether they have a slot: more than one stream can fall behind
/// another through the buffers of the sockets.
pub const CLAIMS_MIN: u64 = 1 << 16;

/// Images that may be passed over at once, for each slot of the ring of strips: 16 slots, the usual number, give
/// [`JUMP_IMAGES_LIMIT`].
const GAP_IMAGES_PER_STRIP_SLOT: u64 = 1 << 16;

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
    /// What happens to frames and pixels besides the recipe.
    pub processing: Processing,
    /// Frames to take, at most [`crate::IMAGES_MAX`]; `None` = until a stop, or until the selection has all its
    /// images.
    pub frames: Option<u64>,
    /// Number of the first frame.
    pub first_frame: FirstFrame,
    /// What to do with partial images.
    pub missing: MissingPolicy,
    /// Frames in the ring of raw tiles.
    pub slots: u64,
    /// Packed images: those whose strips are being packed, and those that wait for the sinks.
    pub packed_slots: u64,
    /// The sources can wait (files): receivers wait for a free slot instead of refusing, and each stream's frames come
    /// in order.
    pub lossless_source: bool,
    /// The sources may write payloads to their places in the ring themselves (files, sockets). Each stream then has a
    /// spare tile, for payloads that lie in a wrong place.
    pub fills_slots: bool,
    /// What images are analysed for.
    pub analysis: AnalysisPlan,
    /// Frames that a stream may be ahead of its oldest open tile, at most half of the slots.
    pub window_images: u64,
    /// Time after which a known image seals although packets are missing.
    pub deadline_ns: u64,
    /// The run ends when no packet of an open tile comes for this long, whether it is placed or refused because the
    /// ring is full. Before the first such packet `start_timeout_ns` applies.
    pub stall_timeout_ns: u64,
    /// The run ends when no packet comes for this long after arm; `u64::MAX` = wait for ever.
    pub start_timeout_ns: u64,
    /// Worker threads, those that wait for a GPU included.
    pub workers: usize,
    /// What a GPU does.
    pub gpu: Option<GpuPlan>,
    /// Where receivers and workers run, and where memory is.
    pub affinity: Affinity,
    /// What packets are compared with, to find a wrong set-up.
    pub setup: SetupRules,
}

/// What the run must know of the analysis of its images; by default there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnalysisPlan {
    /// Its results, which follow those of the pixels.
    pub kinds: Vec<ResultKind>,
    /// Images that may wait for it or be in work.
    pub queue_images: u64,
    /// Memory of all its threads.
    pub memory_bytes: u64,
}

impl AnalysisPlan {
    /// Images that may be held back until they are analysed: behind the first so many may be done already.
    pub fn held_images(&self) -> u64 {
        2 * self.queue_images
    }
}

/// A GPU makes strips of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPlan {
    /// Its number, counted from 0.
    pub ordinal: u32,
    /// Threads that give frames to it. The other workers are threads of the processor.
    pub workers: usize,
    /// Its part of the strips of an image, in percent; all of them without other workers.
    pub share_percent: u32,
    /// It takes the words of frames from the ring by itself, where the platform permits it.
    pub reads_ring: bool,
}

impl GpuPlan {
    /// Threads that give frames to a GPU: while the strips of one come back, those of the second are worked on, and
    /// those of the third are on their way there.
    pub const WORKERS: usize = 3;
    /// Frames that go to it together.
    pub const BATCH_FRAMES: usize = 2;
    /// Batches of each thread that may be on their way.
    pub const BATCHES: usize = 4;

    /// Whether a GPU can do this: its images depend on one frame each.
    ///
    /// # Errors
    /// What it cannot do.
    pub fn check(recipe: Recipe, pixel: PixelType, processing: &Processing) -> Result<(), &'static str> {
        let expect = |ok: bool, what: &'static str| if ok { Ok(()) } else { Err(what) };
        expect(recipe == Recipe::JungfrauPhotons, "a GPU converts words of a JUNGFRAU to photons, and nothing else")?;
        expect(processing.tracking.is_none(), "a GPU does not follow the drift of pedestals ([tracking])")?;
        expect(processing.common_mode == CommonMode::None, "a GPU corrects no common_mode")?;
        expect(!processing.has_sums(pixel), "a GPU adds no frames, and no offset to unsigned pixels")
    }

    /// The share of the strips of each of so many workers.
    pub fn shares(&self, workers: usize) -> Vec<u32> {
        let (own, others) = (self.workers as u32, (workers - self.workers) as u32);
        let share =
            |n: usize| if n < self.workers { self.share_percent * others.max(1) } else { (100 - self.share_percent) * own };
        (0..workers).map(share).collect()
    }
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

    /// Images that the file is to have, if that is known.
    pub fn images(&self) -> Option<u64> {
        let selection = &self.processing.selection;
        selection.images_max.or(if selection.is_plain() { self.frames } else { None })
    }

    /// The results of every image: those of its pixels, then those of its analysis. Raw words are not values, so they
    /// have none.
    ///
    /// # Panics
    /// If there are more than [`RESULT_NUMBERS_MAX`] numbers.
    pub fn result_kinds(&self) -> Vec<ResultKind> {
        let of_pixels = if self.has_pixel_results() { &pixel_results(self.pixel)[..] } else { &[] };
        let kinds: Vec<_> = of_pixels.iter().chain(&self.analysis.kinds).copied().collect();
        assert!(results::numbers(&kinds) <= RESULT_NUMBERS_MAX);
        kinds
    }

    /// Whether the first results are those of [`pixel_results`].
    pub fn has_pixel_results(&self) -> bool {
        self.recipe != Recipe::Raw
    }

    /// Packets of a complete frame.
    pub fn packets_per_image(&self) -> u64 {
        u64::from(self.geometry.format().packets()) * self.streams() as u64
    }

    /// Pixels of one compression block: 8 or 64 KiB whatever the type.
    pub fn block_pixels(&self) -> usize {
        self.compression.block_bytes() / self.pixel.bytes()
    }

    /// Bytes of one uncompressed output image.
    pub fn image_bytes(&self) -> usize {
        self.geometry.pixels() * self.pixel.bytes()
    }

    /// Bytes of one packed block at worst: 4-byte length and the library's bound for `bslz4`, `bszstd` and `lz4`; the
    /// block's part of the strip's bound for `zstd` and `gzip`; plain pixels without compression.
    pub fn packed_block_bytes_max(&self, pixels: usize) -> usize {
        let bytes = pixels * self.pixel.bytes();
        match self.compression {
            Compression::None => bytes,
            Compression::Bslz4 { .. } | Compression::Lz4 { .. } => bytes + bytes / 255 + 16 + 4,
            // Zstd: n + n / 256 + at most 64. Deflate: 5 bytes for each 65535, its flushes, and the checksum of the
            // strip.
            Compression::Bszstd { .. } | Compression::Zstd { .. } | Compression::Gzip { .. } => bytes + bytes / 256 + 128,
            Compression::Sz3 { .. } | Compression::Other(_) => {
                unreachable!("no run packs so: the configuration does not offer it")
            }
        }
    }

    /// Blocks of one strip, the unit of work: about 128 KiB of output, and at most [`STRIPS_MAX`] strips in an image.
    pub fn blocks_per_strip(&self) -> usize {
        let about = 131_072 / self.compression.block_bytes();
        about.max(self.geometry.pixels().div_ceil(self.block_pixels()).div_ceil(STRIPS_MAX))
    }

    /// Blocks of the strips, in order; only the last may have fewer.
    pub fn strips(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (per_strip, blocks) = (self.blocks_per_strip(), self.geometry.pixels().div_ceil(self.block_pixels()));
        (0..blocks).step_by(per_strip).map(move |first| first..(first + per_strip).min(blocks))
    }

    /// Images that a stream whose socket is empty may be behind the others: half of the ring, so that a stream that
    /// sends nothing leaves the other half to the workers and sinks.
    pub fn behind_images_max(&self) -> u64 {
        (self.slots / 2).max(1)
    }

    /// Frames of a gap that may wait for the committer. Each of them takes a step of every thread, and a stop waits for
    /// all of them. Where the ring of strips is small, the threads wait for each other more often.
    pub fn gap_part_images(&self) -> u64 {
        JUMP_IMAGES_LIMIT.min(GAP_IMAGES_PER_STRIP_SLOT * self.strip_slots())
    }

    /// Frames that may be passed over at once. Files are passed over part by part, up to the end of their plan.
    pub fn gap_images_max(&self) -> u64 {
        if self.lossless_source && self.frames.is_some() { IMAGES_MAX } else { self.gap_part_images() }
    }

    /// True if images are added up in planes of their own before they are packed.
    pub fn has_sums(&self) -> bool {
        self.processing.has_sums(self.pixel)
    }

    /// Bytes of one packed image at worst, without the framing of its chunk.
    pub fn packed_bytes_max(&self) -> usize {
        self.geometry.pixels().div_ceil(self.block_pixels()) * self.packed_block_bytes_max(self.block_pixels())
    }

    /// Images in the ring of strips, where workers pack them. They leave it as soon as they are committed and joined.
    pub fn strip_slots(&self) -> u64 {
        (self.packed_slots / 4).clamp(1, 16)
    }

    /// Images that sinks and the analysis can hold at once.
    pub fn pool_images(&self) -> u64 {
        self.packed_slots.saturating_sub(self.strip_slots()).max(1) + self.analysis.held_images()
    }

    fn snapshots_among(&self, images: u64) -> u64 {
        let every_images = self.processing.tracking.map_or(0, |t| t.snapshot_images);
        images.checked_div(every_images).map_or(0, |count| count + 2)
    }

    /// Snapshots of the pedestals that can be in the ring of strips at once; 0 if there are none.
    pub fn snapshot_slots(&self) -> u64 {
        self.snapshots_among(self.strip_slots())
    }

    /// Snapshots of the pedestals that sinks can hold at once; 0 if there are none.
    pub fn pool_snapshots(&self) -> u64 {
        self.snapshots_among(self.pool_images())
    }

    /// The memory of the run by purpose; nothing else grows with time. Not included: the buffers of the sockets, which
    /// belong to the kernel, and what sinks keep. Calibration and pedestals are counted for one storage cell; each
    /// further one takes as much again.
    pub fn memory(&self) -> Vec<MemoryItem> {
        let pixels = self.geometry.pixels() as u64;
        let raw = u64::from(self.geometry.format().tile_bytes()) * self.streams() as u64;
        // Each strip starts on a cache line, and has its part of the results.
        let packed = self.packed_bytes_max() as u64 + (64 + 8 * PIXEL_RESULTS as u64) * STRIPS_MAX as u64;
        let packed_slots = self.strip_slots() + self.pool_images();
        let records = (size_of::<TileRecord>() as u64 + 8) * self.streams() as u64 + 4 * STRIPS_MAX as u64;
        let constants = match self.recipe {
            Recipe::JungfrauPhotons => pixels * 24,
            Recipe::Counts => pixels,
            Recipe::Raw => 0,
        };
        let scratch = match self.compression {
            Compression::None | Compression::BSLZ4 => 1 << 15,
            _ => 2 * (self.blocks_per_strip() * self.compression.block_bytes()) as u64 + self.encoder_bytes(),
        };
        let items = vec![
            MemoryItem { what: "ring, raw tiles", bytes: raw * self.slots },
            MemoryItem { what: "ring, packed images", bytes: packed * packed_slots },
            // Frames and images both have records.
            MemoryItem { what: "ring, records of the tiles", bytes: records * (self.slots + packed_slots) },
            MemoryItem { what: "claims of slots", bytes: 8 * CLAIMS_MIN.max(2 * self.slots) },
            MemoryItem { what: "calibration constants and mask", bytes: constants + pixels * 4 },
            MemoryItem {
                what: "fixed-point constants",
                bytes: if self.processing.arithmetic == Arithmetic::Fixed { pixels * 14 } else { 0 },
            },
            MemoryItem { what: "tracked pedestals, their gates and snapshots", bytes: self.tracking_bytes() },
            MemoryItem { what: "sums of frames", bytes: if self.has_sums() { pixels * 4 } else { 0 } },
            MemoryItem { what: "gather list", bytes: self.geometry.gather_bytes_max(self.block_pixels()) },
            MemoryItem { what: "receive buffers of the program", bytes: self.streams() as u64 * RECEIVE_BUFFER_BYTES },
            MemoryItem { what: "packets that are held back", bytes: self.held_bytes() },
            MemoryItem { what: "spare tiles", bytes: if self.fills_slots { raw } else { 0 } },
            MemoryItem { what: "workers, blocks and compressors", bytes: scratch * self.workers as u64 },
            MemoryItem { what: "pinned memory for a GPU", bytes: self.gpu_bytes() },
            MemoryItem { what: "analysis of images", bytes: self.analysis.memory_bytes },
        ];
        items.into_iter().filter(|item| item.bytes > 0).collect()
    }

    /// Most bytes of pinned memory: constants, and for each batch words, what comes back of them, and its results.
    fn gpu_bytes(&self) -> u64 {
        let Some(gpu) = self.gpu else { return 0 };
        let (all, block_pixels) = (self.strips().count(), self.block_pixels());
        // Shares are whole strips, of each worker.
        let strips = all.min((all * gpu.share_percent as usize).div_ceil(100) + gpu.workers);
        let blocks = strips * self.blocks_per_strip();
        let pixels = self.geometry.pixels().min(blocks * block_pixels);
        // A GPU keeps more room for a block, up to 16 bytes.
        let packed = blocks * (self.packed_block_bytes_max(block_pixels) + 16);
        let back = packed.max(pixels * self.pixel.bytes()) + strips * 8 * PIXEL_RESULTS;
        (24 * pixels + GpuPlan::BATCHES * GpuPlan::BATCH_FRAMES * (2 * pixels + back) + gpu.workers * 4096) as u64
    }

    /// Whether a GPU can make strips of this run.
    ///
    /// # Errors
    /// As [`GpuPlan::check`].
    pub fn check_gpu(&self) -> Result<(), &'static str> {
        GpuPlan::check(self.recipe, self.pixel, &self.processing)
    }

    /// Bytes of the packets that all streams hold back, at their beginning and when they seem to jump.
    fn held_bytes(&self) -> u64 {
        let format = self.geometry.format();
        let held = (Opening::packets_max(format.packets()) + FarAhead::packets_max(format.packets())) as u64;
        if self.lossless_source { 0 } else { self.streams() as u64 * held * u64::from(format.datagram_bytes()) }
    }

    /// Bytes of tracking and common mode. Common mode keeps pedestals and gates in the order of the tiles, and for each
    /// worker the offsets of 8 frames: 32 bytes per line of 256 pixels. In partial readout there are as many lines as
    /// in full readout.
    fn tracking_bytes(&self) -> u64 {
        let pixels = self.geometry.pixels() as u64;
        let tracked = if self.processing.tracking.is_some() {
            pixels * (8 + 4 * (self.snapshot_slots() + self.pool_snapshots()))
        } else {
            0
        };
        let whole = u64::from(self.geometry.format().whole().pixels()) * self.streams() as u64;
        let common_mode = if self.processing.common_mode == CommonMode::None {
            0
        } else {
            pixels * 12 + whole.max(pixels) / 8 * self.workers as u64
        };
        tracked + common_mode
    }

    /// Upper bound for the state of one compressor with strips of 256 KiB; a test of the kernels checks the Zstd
    /// encoder against it.
    fn encoder_bytes(&self) -> u64 {
        match self.compression {
            Compression::Bszstd { level, .. } | Compression::Zstd { level } => {
                if level < 5 {
                    2 << 20
                } else {
                    16 << 20
                }
            }
            _ => 1 << 19,
        }
    }
}

/// Most strips of an image.
pub const STRIPS_MAX: usize = 256;

/// Memory of one stream's receive batch: 32 buffers of 64 KiB (one `recvmmsg` call with GRO), and for each of them the
/// heads of 64 datagrams with 64 bytes and a scatter list of 2 x 64 + 1 entries with 16 bytes.
pub const RECEIVE_BUFFER_BYTES: u64 = 32 * (65536 + 64 * 64 + 129 * 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{DoublePixels, Orientation, Placement, Quarter};
    use crate::tile::TileFormat;

    #[test]
    fn the_memory_sum_grows_with_the_slots_and_covers_the_gather_list() {
        for bits in [4, 12, 16, 32] {
            let orientation = |t| Orientation { flip_rows: t & 1 == 1, rotate: Quarter::ALL[t as usize] };
            let place = |t: u32| Placement { row: 1 + t / 2 * 513, column: 3 + t % 2 * 519, orientation: orientation(t) };
            let format = TileFormat::eiger(bits).unwrap();
            let geometry = ImageGeometry::new(format, (0..4).map(place).collect(), None, DoublePixels::Keep).unwrap();
            let plan = |slots| Plan {
                geometry: geometry.clone(),
                recipe: Recipe::Counts,
                pixel: PixelType::Uint16,
                compression: Compression::BSLZ4,
                processing: Processing::default(),
                frames: None,
                first_frame: FirstFrame::Auto,
                missing: MissingPolicy::Keep,
                slots,
                packed_slots: slots,
                lossless_source: false,
                analysis: AnalysisPlan::default(),
                fills_slots: false,
                window_images: 1,
                deadline_ns: 1,
                stall_timeout_ns: 1,
                start_timeout_ns: 1,
                workers: 1,
                gpu: None,
                affinity: Affinity::default(),
                setup: SetupRules::default(),
            };
            let gather = geometry.gather(plan(2).block_pixels());
            for (two, six) in plan(2).memory().into_iter().zip(plan(6).memory()) {
                assert_eq!(six.bytes, if two.what.starts_with("ring") { two.bytes * 3 } else { two.bytes }, "{}", two.what);
                assert!(two.what != "gather list" || two.bytes >= gather.bytes(), "{bits} bit");
            }
            let total = |plan: Plan| plan.memory().iter().map(|item| item.bytes).sum::<u64>();
            let spare_tiles = 4 * u64::from(format.tile_bytes());
            assert_eq!(total(Plan { fills_slots: true, ..plan(2) }), total(plan(2)) + spare_tiles, "{bits} bit");
        }
    }
}
