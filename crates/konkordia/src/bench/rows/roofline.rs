//! A roofline of the conversion (Williams et al. 2009): the peak of each instruction set, and each variant of the
//! kernel with its bytes and operations per pixel.
//!
//! The bytes are those that the kernel asks for, wherever they come from: word 2, pixel 2, and of `f32` constants 8
//! (pedestal and factor of G0), 24 (of all stages), or with tracking 16 (factor, gate, pedestal read and written). The
//! operations are a subtraction and a multiplication per pixel, and two more with tracking. The fused kernel transposes
//! and compresses blocks in the first-level cache; that adds instructions, but neither bytes nor operations.

use super::STRIP_PIXELS;
use super::harness::{Row, seconds};
use crate::bench::spread::{Spread, median};
use konkordia_kernels::ElementSize;
use konkordia_kernels::chains;
use konkordia_kernels::chunk::bslz4_bound;
use konkordia_kernels::convert::{self, Constants, Tracker, jungfrau_tracking};
use konkordia_kernels::fused::{FusedScratch, block_pixels};
use konkordia_kernels::isa::Isa;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Parts of the time that count as repeats.
pub const REPEATS: usize = 5;
/// Gate and window of the tracked pedestals.
const GATE_ADU: f32 = 40.0;
const WEIGHT: f32 = 0.01;

/// A variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// All three stages' constants are read for every pixel.
    AllBranches,
    /// A vector without gain bits reads only the constants of G0.
    FastPath,
    /// As `FastPath`, and the pedestals follow the drift.
    Tracking,
    /// As `FastPath`, then bitshuffle and LZ4.
    Fused,
}

impl Variant {
    /// Bytes per pixel that the kernel reads and writes.
    pub const fn bytes_per_pixel(self) -> f64 {
        match self {
            Self::AllBranches => 28.0,
            Self::FastPath | Self::Fused => 12.0,
            Self::Tracking => 20.0,
        }
    }

    /// Floating point operations per pixel.
    pub const fn flops_per_pixel(self) -> f64 {
        match self {
            Self::AllBranches | Self::FastPath | Self::Fused => 2.0,
            Self::Tracking => 4.0,
        }
    }
}

/// A measured variant.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What was measured.
    pub variant: Variant,
    /// With which instruction set.
    pub isa: Isa,
    /// The same strip of all frames, then the next; otherwise frame by frame.
    pub by_strip: bool,
    /// 10^9 pixels per second on one core.
    pub gpixels_per_s: Spread,
    /// Was the output equal to the reference?
    pub verified: bool,
}

impl Point {
    /// Bytes of the constants that are used again before others are: those of a strip or of a frame of so many pixels.
    pub fn constants_bytes(&self, frame_pixels: usize) -> usize {
        let pixels = if self.by_strip { STRIP_PIXELS.min(frame_pixels) } else { frame_pixels };
        // Without the word and the pixel.
        pixels * (self.variant.bytes_per_pixel() as usize - 4)
    }

    /// GB/s of words, constants and pixels together.
    pub fn gb_per_s(&self) -> f64 {
        self.gpixels_per_s.median * self.variant.bytes_per_pixel()
    }

    /// Gflop/s.
    pub fn gflop_per_s(&self) -> f64 {
        self.gpixels_per_s.median * self.variant.flops_per_pixel()
    }
}

/// Gflop/s of independent multiplications and additions in registers on one core; each repeat is the best of many runs.
pub fn peak_gflop_per_s(isa: Isa, budget: Duration) -> Spread {
    const ROUNDS: usize = 20_000;
    let best = || {
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        while best.is_infinite() || start.elapsed() < budget / REPEATS as u32 {
            let start = Instant::now();
            let (sum, flops) = chains::run(isa, black_box(ROUNDS));
            black_box(sum);
            best = best.min(start.elapsed().as_secs_f64() / (ROUNDS * flops) as f64);
        }
        1.0 / best / 1e9
    };
    Spread::of((0..REPEATS).map(|_| best()))
}

/// Measures all variants for about `budget`.
///
/// # Errors
/// As [`super::run`].
pub fn points(frames: &[Vec<u16>], constants: &Constants<'_>, budget: Duration) -> Result<Vec<Point>, String> {
    super::check(frames, constants)?;
    let mut what = Vec::new();
    for &isa in Isa::available() {
        for variant in [Variant::AllBranches, Variant::FastPath, Variant::Tracking, Variant::Fused] {
            // The reference looks at the gain of every word; there is no other scalar way.
            if isa != Isa::Scalar || variant != Variant::FastPath {
                what.extend([true, false].map(|by_strip| (variant, isa, by_strip)));
            }
        }
    }
    let row = |(variant, isa, by_strip): &(Variant, Isa, bool)| Job::new(*variant, *isa, frames, *constants).row(*by_strip);
    let mut rows: Vec<Row<'_>> = what.iter().map(row).collect();
    let samples = seconds(&mut rows, budget);
    let mut points = Vec::new();
    for (((variant, isa, by_strip), row), samples) in what.into_iter().zip(rows).zip(samples) {
        let parts = samples.chunks(samples.len().div_ceil(REPEATS).max(1));
        let rates = parts.map(|part| row.raw_bytes / 2.0 / median(&mut part.to_vec()) / 1e9);
        points.push(Point { variant, isa, by_strip, gpixels_per_s: Spread::of(rates), verified: row.verified });
    }
    Ok(points)
}

struct Job<'a> {
    variant: Variant,
    isa: Isa,
    frames: &'a [Vec<u16>],
    constants: Constants<'a>,
    pedestal: Vec<f32>,
    gate: Vec<f32>,
    /// Pixels go to a block that stays in the first-level cache, as in the fused kernel.
    out: Vec<i16>,
    scratch: FusedScratch,
    packed: Vec<u8>,
}

impl<'a> Job<'a> {
    fn new(variant: Variant, isa: Isa, frames: &'a [Vec<u16>], constants: Constants<'a>) -> Self {
        let gate = vec![GATE_ADU; frames[0].len()];
        Self {
            variant,
            isa,
            frames,
            constants,
            pedestal: constants.pedestal[0].to_vec(),
            gate,
            out: vec![0; block_pixels::<i16>()],
            scratch: FusedScratch::new(),
            packed: vec![0; bslz4_bound(block_pixels::<i16>(), ElementSize::Two)],
        }
    }

    fn row(mut self, by_strip: bool) -> Row<'a> {
        let verified = self.verify();
        let (isa, pixels) = (self.isa, self.frames[0].len());
        let strip = STRIP_PIXELS.min(pixels);
        let done = if by_strip { strip * self.frames.len() } else { pixels };
        let every = if isa == Isa::Scalar { 8 } else { 1 };
        let work = Box::new(move |round: usize| {
            if by_strip {
                let first = round % (pixels / strip) * strip;
                (0..self.frames.len()).for_each(|frame| self.convert(frame, first..first + strip, |_, _| ()));
            } else {
                self.convert(round % self.frames.len(), 0..pixels, |_, _| ());
            }
        });
        Row { name: "conversion", isa, plain: 0, raw_bytes: 2.0 * done as f64, bits_per_pixel: None, verified, every, work }
    }

    /// Converts some pixels of a frame block by block and passes what was made of each block to `see`.
    fn convert(&mut self, frame: usize, pixels: Range<usize>, mut see: impl FnMut(Range<usize>, &[u8])) {
        for first in pixels.clone().step_by(block_pixels::<i16>()) {
            let count = block_pixels::<i16>().min(pixels.end - first);
            let raw = &self.frames[frame][first..first + count];
            let constants = self.constants.slice(first, count);
            let out = &mut self.out[..count];
            match self.variant {
                Variant::AllBranches => convert::jungfrau_all_branches(self.isa, raw, &constants, out),
                Variant::FastPath => convert::jungfrau(self.isa, raw, &constants, out),
                Variant::Tracking => {
                    let (pedestal, gate) = (&mut self.pedestal[first..first + count], &self.gate[first..first + count]);
                    jungfrau_tracking(self.isa, raw, &constants, &mut Tracker { pedestal, gate, weight: WEIGHT }, out);
                }
                Variant::Fused => {
                    let length = self.scratch.convert_and_pack_block::<i16>(self.isa, raw, &constants, &mut self.packed);
                    see(first..first + count, black_box(&self.packed[..length]));
                    continue;
                }
            }
            see(first..first + count, bytemuck::cast_slice(black_box(&*out)));
        }
    }

    /// Are all frames those of the scalar reference?
    fn verify(&mut self) -> bool {
        let mut good = true;
        let mut pedestal = self.pedestal.clone();
        let gate = self.gate.clone();
        let (is_packed, mut scratch, mut room) = (self.variant == Variant::Fused, FusedScratch::new(), self.packed.clone());
        for (frame, raw) in self.frames.iter().enumerate() {
            let mut expected = vec![0i16; raw.len()];
            if self.variant == Variant::Tracking {
                let mut tracker = Tracker { pedestal: &mut pedestal, gate: &gate, weight: WEIGHT };
                jungfrau_tracking(Isa::Scalar, raw, &self.constants, &mut tracker, &mut expected);
            } else {
                convert::jungfrau(Isa::Scalar, raw, &self.constants, &mut expected);
            }
            self.convert(frame, 0..raw.len(), |pixels, made| {
                let pixels: &[u8] = bytemuck::cast_slice(&expected[pixels]);
                good &= if is_packed {
                    let length = scratch.pack_bytes(Isa::Scalar, ElementSize::Two, pixels, &mut room);
                    *made == room[..length]
                } else {
                    made == pixels
                };
            });
        }
        good && (self.variant != Variant::Tracking
            || self.pedestal.iter().zip(&pedestal).all(|(a, b)| a.to_bits() == b.to_bits()))
    }
}
