// Frames with constants, and what the CPU makes of them.

use konkordia_core::frame_header::FrameHeader;
use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_core::plan::Compression;
use konkordia_gpu::device::Number;
use konkordia_gpu::pipeline::{Above, Batch, Calibration, LaunchBy, Outcome, Output, Received, Spec, Tables};
use konkordia_kernels::convert::{jungfrau, saturate_high_gain};
use konkordia_kernels::stats::{self, PixelStats};
use konkordia_kernels::{Constants, ElementSize, Isa, above, codec};
use konkordia_memory::ring::{RawFrames, Ring, RingSpec};
use std::time::Duration;

pub struct Numbers(pub u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD1B5_4A32_D192_ED03) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Valid `int16` pixels end here.
const HIGH: i16 = i16::VALID_MAX;

/// Pixels of a strip with statistics.
const STRIP: u32 = 256;

/// Photons above which a pixel counts.
const LEVEL: i16 = 4;

pub struct Scene {
    pub rows: u32,
    pub columns: u32,
    pub frames: Vec<Vec<u16>>,
    pub images: Vec<Vec<i16>>,
    pub chunks: Vec<Vec<u8>>,
    pub counts: Vec<u32>,
    calibration: Calibration<'static>,
    usable: Vec<u8>,
    pub ring: Ring,
    received: RawFrames,
    source: Vec<u32>,
}

/// Tiles of a frame in the ring.
const TILES: usize = 2;

/// The frames in a ring, as the receivers of two tiles place them. The pixels of the image are those of both tiles in
/// turn, from the last ones to the first ones.
fn receive(frames: &[Vec<u16>]) -> (Ring, RawFrames, Vec<u32>) {
    let pixels = frames[0].len().div_ceil(TILES);
    let spec = RingSpec {
        slots: frames.len().max(2) as u64,
        packed_slots: 1,
        tiles: TILES,
        tile_bytes: 2 * pixels,
        sections: 1,
        payload_bytes: 2 * pixels,
        strip_bytes_max: vec![64],
        strip_numbers: 0,
        shares: vec![1],
        frame_readers: 0,
        snapshot: None,
        reserved_pages: false,
    };
    let mut ring = Ring::new(spec).unwrap();
    for (tile, receiver) in ring.receivers.iter_mut().enumerate() {
        for (n, words) in (0..).zip(frames) {
            let mut sent: Vec<u16> = words.iter().skip(tile).step_by(TILES).copied().collect();
            sent.resize(pixels, 0x1234);
            sent.reverse();
            assert!(receiver.claim(n));
            receiver.open(n, FrameHeader::default());
            receiver.place(n, 0, bytemuck::cast_slice(&sent));
        }
        receiver.seal_below(frames.len() as u64);
    }
    let received = ring.workers[0].raw_frames();
    let stride = received.tile_stride() / 2;
    let source = (0..frames[0].len()).map(|at| (at % TILES * stride + pixels - 1 - at / TILES) as u32).collect();
    (ring, received, source)
}

impl Scene {
    /// Frames of which some have many pixels above the level, and some none.
    pub fn new(rows: u32, columns: u32, frames: usize, seed: u64) -> Self {
        let (pixels, mut numbers) = ((rows * columns) as usize, Numbers::new(seed));
        let mut plane =
            |low: f32, step: f32| -> Vec<f32> { (0..pixels).map(|_| low + step * numbers.below(100) as f32).collect() };
        let pedestal = [plane(2000.0, 1.0), plane(14000.0, 1.0), plane(13000.0, 1.0)].concat();
        let mut factor = [plane(0.01, 0.0001), plane(-0.2, 0.001), plane(-2.0, 0.01)].concat();
        (0..pixels).step_by(17).for_each(|at| factor[at] = f32::NAN);
        let usable: Vec<u8> = (0..pixels).map(|at| u8::from(at % 11 != 3)).collect();
        let word = |numbers: &mut Numbers, brightness: u64| match numbers.below(40) {
            0 => [0xFFFF, 0xC000, 0x4000, 0x8123, 0x3FFF][numbers.below(5) as usize],
            1 => numbers.below(1 << 16) as u16,
            _ => 2000 + numbers.below(100 + 200 * brightness) as u16,
        };
        let frames: Vec<Vec<u16>> =
            (0..frames).map(|n| (0..pixels).map(|_| word(&mut numbers, n as u64 % 4)).collect()).collect();
        let planes = |all: &'_ [f32]| [all[..pixels].to_vec(), all[pixels..2 * pixels].to_vec(), all[2 * pixels..].to_vec()];
        let (p, f) = (planes(&pedestal), planes(&factor));
        let constants = Constants { pedestal: [&p[0], &p[1], &p[2]], factor: [&f[0], &f[1], &f[2]] };
        let image = |words: &Vec<u16>| {
            let mut out = vec![0i16; pixels];
            jungfrau::<i16>(Isa::Scalar, words, &constants, &mut out);
            saturate_high_gain(words, &mut out);
            out
        };
        let images: Vec<Vec<i16>> = frames.iter().map(image).collect();
        let chunk = |image: &Vec<i16>| {
            codec::compress(Compression::BSLZ4, Isa::Scalar, ElementSize::Two, bytemuck::cast_slice(image), 1 << 17)
        };
        let bools: Vec<bool> = usable.iter().map(|byte| *byte != 0).collect();
        let count = |image: &Vec<i16>| above::count(Isa::Scalar, image, &bools, LEVEL, HIGH) as u32;
        let (chunks, counts) = (images.iter().map(chunk).collect(), images.iter().map(count).collect());
        let (ring, received, source) = receive(&frames);
        let calibration = Calibration::Float { pedestal: pedestal.into(), factor: factor.into() };
        Self { rows, columns, frames, images, chunks, counts, calibration, usable, ring, received, source }
    }

    /// With `in_ring`, the device may take the words of frames from the ring.
    pub fn tables(&self, in_ring: bool) -> Tables<'_> {
        let received = in_ring.then_some(Received { frames: &self.received, source: &self.source });
        Tables { calibration: &self.calibration, usable: &self.usable, received }
    }

    pub fn spec(&self, launch: LaunchBy, output: Output, least: Option<u32>, frames: u32) -> Spec {
        let above = |least| Above { level: Number::I16(LEVEL), high: Number::I16(HIGH), least };
        Spec {
            rows: self.rows,
            columns: self.columns,
            frames,
            pixel: PixelType::Int16,
            high_gain: true,
            above: least.map(above),
            output,
            stats_of: Some(STRIP),
            launch,
            patience: Duration::from_millis(20),
            first: 0,
        }
    }

    /// Fills a batch: frame `n` of the run is frame `n % frames.len()` of the scene. A device that takes the words is
    /// told where they begin.
    pub fn fill(&self, takes_words: bool, first: u64, given: &mut [u8]) {
        if takes_words {
            let begins: &mut [u64] = bytemuck::cast_slice_mut(given);
            let begin = |n: u64| self.ring.workers[0].frame_start(n % self.frames.len() as u64) as u64 / 2;
            begins.iter_mut().zip(first..).for_each(|(to, n)| *to = begin(n));
        } else {
            self.fill_words(first, given);
        }
    }

    fn fill_words(&self, first: u64, words: &mut [u8]) {
        let pixels = self.images[0].len();
        for (n, words) in (first..).zip(words.chunks_exact_mut(2 * pixels)) {
            words.copy_from_slice(bytemuck::cast_slice(&self.frames[n as usize % self.frames.len()]));
        }
    }

    /// Is frame `at` of a batch what the CPU makes of frame `n` of the run? Says what came.
    pub fn check(&self, spec: &Spec, n: u64, (batch, at): (&Batch<'_>, u32), context: &str) -> Came {
        let n = n as usize % self.frames.len();
        let strips = self.images[n].chunks(STRIP as usize);
        assert_eq!(batch.stats(at).len(), strips.len(), "{context}: strips");
        for (found, strip) in batch.stats(at).zip(strips) {
            let mut stats = PixelStats::default();
            stats::add(Isa::Scalar, strip, &mut stats);
            assert_eq!(*found, stats.bits(), "{context}: statistics");
        }
        self.check_outcome(spec, n, &batch.outcome(at), context)
    }

    fn check_outcome(&self, spec: &Spec, n: usize, outcome: &Outcome<'_>, context: &str) -> Came {
        let (image, count) = (&self.images[n], self.counts[n]);
        let is_kept = spec.above.is_none_or(|above| count >= above.least);
        match *outcome {
            Outcome::Rejected => {
                assert!(!is_kept, "{context}: an image with {count} pixels was rejected");
                Came::Rejected
            }
            Outcome::Pixels(bytes) => {
                assert!(is_kept && bytes == bytemuck::cast_slice::<i16, u8>(image), "{context}: other pixels");
                Came::Kept(bytes.len())
            }
            Outcome::Chunk(bytes) => {
                assert!(is_kept && bytes == self.chunks[n], "{context}: another chunk");
                Came::Kept(bytes.len())
            }
            Outcome::Sparse { rows, columns, values } => {
                assert!(is_kept && *rows.last().expect("rows + 1") == count, "{context}: other counts");
                self.check_sparse(image, rows, columns, bytemuck::cast_slice(values), context);
                Came::Kept(columns.len() * 6)
            }
            Outcome::Overflow { found, room } => {
                assert!(is_kept && found == count && found > room, "{context}: no room for {found} in {room}");
                Came::Overflowed
            }
        }
    }

    fn check_sparse(&self, image: &[i16], rows: &[u32], columns: &[u32], values: &[i16], context: &str) {
        let width = self.columns as usize;
        for (row, places) in rows.windows(2).enumerate() {
            let is_found = |column: usize| {
                let at = row * width + column;
                image[at] > LEVEL && image[at] <= HIGH && self.usable[at] != 0
            };
            let expected: Vec<(u32, i16)> =
                (0..width).filter(|column| is_found(*column)).map(|c| (c as u32, image[row * width + c])).collect();
            let here = places[0] as usize..places[1] as usize;
            let found: Vec<(u32, i16)> = columns[here.clone()].iter().copied().zip(values[here].iter().copied()).collect();
            assert_eq!(found, expected, "{context}: row {row}");
        }
    }
}

/// What came of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    Rejected,
    Overflowed,
    /// With so many bytes.
    Kept(usize),
}
