//! The cost of the steps besides conversion: pedestals that follow the drift, sums of frames, arithmetic in integers.
//! Each is compared with the fused kernel alone, strip by strip as in the engine's workers. Also pedestals from dark
//! frames, compared with plain sums in double precision.

use super::harness::{Row, measure};
use super::{KernelRow, STRIP_PIXELS};
use konkordia_kernels::bitshuffle::ElementSize;
use konkordia_kernels::chunk::bslz4_bound;
use konkordia_kernels::convert::{self, Constants, FixedConstants, Tracker, jungfrau_fixed, jungfrau_tracking};
use konkordia_kernels::finish;
use konkordia_kernels::fused::{FusedScratch, block_pixels};
use konkordia_kernels::isa::Isa;
use konkordia_kernels::pedestal::{FIRST_FRAMES, PedestalAccumulator};
use konkordia_kernels::stats::{self, ImageStats, PixelStats};
use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

/// Gate and window of the tracked pedestals.
const GATE_ADU: f32 = 40.0;
const WEIGHT: f32 = 0.01;
/// Dark frames of one sample.
const DARK_FRAMES: usize = 8;

/// Runs the rows for about `budget`.
///
/// # Errors
/// As [`super::run`].
pub fn run(frames: &[Vec<u16>], constants: &Constants<'_>, budget: Duration) -> Result<Vec<KernelRow>, String> {
    super::check(frames, constants)?;
    let (fixed, darks) = (FixedConstants::quantise(constants), darks(constants));
    let mut rows = Vec::new();
    for &isa in Isa::available().iter().filter(|isa| **isa != Isa::Scalar || Isa::detect() == Isa::Scalar) {
        let plain = rows.len();
        let works = [
            ("plain: fused, strip by strip", Work::Plain),
            ("fused, pedestals tracked", Work::Track { pedestal: constants.pedestal[0].to_vec() }),
            ("fused, all frames summed", Work::Sum),
            ("fused, results of every image", Work::Results(PixelStats::default())),
            ("fused, integers as in logic", Work::Fixed(&fixed)),
        ];
        for (name, work) in works {
            let verified = Strips::new(isa, frames, *constants).verify(&work);
            let first = rows.len();
            rows.push(Strips::new(isa, frames, *constants).row(name, plain, first, verified, work));
        }
    }
    rows.extend(dark_rows(rows.len(), &darks));
    Ok(measure(rows, budget))
}

/// What happens to a strip of every frame.
#[derive(Clone)]
enum Work<'a> {
    Plain,
    Track { pedestal: Vec<f32> },
    Sum,
    Results(PixelStats<i64>),
    Fixed(&'a FixedConstants),
}

/// Frames to be done strip by strip, and the buffers of a worker.
struct Strips<'a> {
    isa: Isa,
    frames: &'a [Vec<u16>],
    constants: Constants<'a>,
    gate: Vec<f32>,
    scratch: FusedScratch,
    sum: Vec<i32>,
    one: Vec<i32>,
    out: Vec<u8>,
}

impl<'a> Strips<'a> {
    fn new(isa: Isa, frames: &'a [Vec<u16>], constants: Constants<'a>) -> Self {
        let pixels = frames[0].len();
        Self {
            isa,
            frames,
            constants,
            gate: vec![GATE_ADU; pixels],
            scratch: FusedScratch::new(),
            sum: vec![0; pixels.min(STRIP_PIXELS)],
            one: vec![0; block_pixels::<i16>()],
            out: vec![0; bslz4_bound(pixels.min(STRIP_PIXELS), ElementSize::Two)],
        }
    }

    fn strips(&self) -> Vec<Range<usize>> {
        let pixels = self.frames[0].len();
        let strip = STRIP_PIXELS.min(pixels);
        (0..pixels / strip).map(|s| s * strip..(s + 1) * strip).collect()
    }

    /// A row that begins at strip `first`. No two rows do the same strip in one round: the second would find its words
    /// and constants in the cache.
    fn row(mut self, name: &'static str, plain: usize, first: usize, verified: bool, mut work: Work<'a>) -> Row<'a> {
        let strips = self.strips();
        let (isa, raw_bytes) = (self.isa, 2.0 * (strips[0].len() * self.frames.len()) as f64);
        let work = Box::new(move |round: usize| {
            black_box(self.go(strips[(first + round) % strips.len()].clone(), &mut work));
        });
        Row { name, isa, plain, raw_bytes, bits_per_pixel: None, verified, every: 1, work }
    }

    /// Does a strip of all frames; the last packed strip lies in `out`, and its length is returned.
    fn go(&mut self, strip: Range<usize>, work: &mut Work<'_>) -> usize {
        if let Work::Sum = work {
            return self.sum(strip);
        }
        (0..self.frames.len()).map(|frame| self.image(frame, strip.clone(), work)).last().unwrap_or(0)
    }

    fn image(&mut self, frame: usize, strip: Range<usize>, work: &mut Work<'_>) -> usize {
        let mut at = 0;
        for block in blocks(strip) {
            let raw = &self.frames[frame][block.clone()];
            let constants = self.constants.slice(block.start, block.len());
            let pixels = &mut self.scratch.pixels_mut::<i16>()[..block.len()];
            match work {
                Work::Track { pedestal } => {
                    let (pedestal, gate) = (&mut pedestal[block.clone()], &self.gate[block.clone()]);
                    jungfrau_tracking(self.isa, raw, &constants, &mut Tracker { pedestal, gate, weight: WEIGHT }, pixels);
                }
                Work::Fixed(fixed) => jungfrau_fixed(raw, &fixed.view().slice(block.start, block.len()), pixels),
                Work::Results(stats) => {
                    convert::jungfrau(self.isa, raw, &constants, pixels);
                    stats::add(self.isa, pixels, stats);
                }
                _ => convert::jungfrau(self.isa, raw, &constants, pixels),
            }
            at += self.scratch.pack_block::<i16>(self.isa, block.len(), &mut self.out[at..]);
        }
        at
    }

    /// Adds frame by frame to the sums of the strip, as in the engine.
    fn sum(&mut self, strip: Range<usize>) -> usize {
        let start = strip.start;
        let own = |block: &Range<usize>| block.start - start..block.end - start;
        for (index, frame) in self.frames.iter().enumerate() {
            for block in blocks(strip.clone()) {
                let constants = self.constants.slice(block.start, block.len());
                let (sum, one) = (&mut self.sum[own(&block)], &mut self.one[..block.len()]);
                if index == 0 {
                    convert::jungfrau(self.isa, &frame[block], &constants, sum);
                } else {
                    convert::jungfrau(self.isa, &frame[block], &constants, one);
                    finish::accumulate(sum, one);
                }
            }
        }
        let mut at = 0;
        for block in blocks(strip) {
            finish::narrow(&self.sum[own(&block)], &mut self.scratch.pixels_mut::<i16>()[..block.len()]);
            at += self.scratch.pack_block::<i16>(self.isa, block.len(), &mut self.out[at..]);
        }
        at
    }

    /// Is the last image of every strip, packed, what the reference gives?
    fn verify(mut self, work: &Work<'_>) -> bool {
        let (image, pedestal) = self.reference(work);
        let mut work = work.clone();
        let mut good = true;
        for strip in self.strips() {
            let length = self.go(strip.clone(), &mut work);
            let mut expected = Vec::new();
            let mut room = vec![0; bslz4_bound(strip.len(), ElementSize::Two)];
            for block in blocks(strip) {
                let bytes = bytemuck::cast_slice(&image[block]);
                let written = self.scratch.pack_bytes(Isa::Scalar, ElementSize::Two, bytes, &mut room);
                expected.extend_from_slice(&room[..written]);
            }
            good &= self.out[..length] == expected;
        }
        if let Work::Results(stats) = &work {
            good &= *stats == self.naive_results();
        }
        if let Work::Track { pedestal: ours } = work {
            // What lies beyond the last whole strip was not done.
            let done = self.strips().last().map_or(0, |strip| strip.end);
            good &= ours[..done].iter().zip(&pedestal[..done]).all(|(a, b)| a.to_bits() == b.to_bits());
        }
        good
    }

    /// The results of all frames together, by the statistics for reports.
    fn naive_results(&self) -> PixelStats<i64> {
        let done = self.strips().last().map_or(0, |strip| strip.end);
        let mut image = vec![0i16; self.frames[0].len()];
        let mut all = PixelStats::default();
        for raw in self.frames {
            convert::jungfrau(Isa::Scalar, raw, &self.constants, &mut image);
            let ImageStats { valid, missing, saturated, min, max, sum, .. } = stats::image(&image[..done]);
            if let Some((min, max)) = min.zip(max) {
                let [min, max, sum] = [min, max, sum].map(|number| number as i64);
                all.merge(&PixelStats { valid, missing: 0, saturated: 0, min, max, sum });
            }
            (all.missing, all.saturated) = (all.missing + missing, all.saturated + saturated);
        }
        all
    }

    /// The last image and pedestals, whole frames by the scalar reference.
    fn reference(&self, work: &Work<'_>) -> (Vec<i16>, Vec<f32>) {
        let mut image = vec![0i16; self.frames[0].len()];
        let mut tracked = self.constants.pedestal[0].to_vec();
        let last = self.frames.last().expect("there is a frame");
        match work {
            Work::Plain | Work::Results(_) => convert::jungfrau(Isa::Scalar, last, &self.constants, &mut image),
            Work::Fixed(fixed) => jungfrau_fixed(last, &fixed.view(), &mut image),
            Work::Track { .. } => {
                for raw in self.frames {
                    let mut tracker = Tracker { pedestal: &mut tracked, gate: &self.gate, weight: WEIGHT };
                    jungfrau_tracking(Isa::Scalar, raw, &self.constants, &mut tracker, &mut image);
                }
            }
            Work::Sum => {
                let mut sum = vec![0i32; image.len()];
                let mut one = sum.clone();
                for raw in self.frames {
                    convert::jungfrau(Isa::Scalar, raw, &self.constants, &mut one);
                    finish::accumulate(&mut sum, &one);
                }
                finish::narrow(&sum, &mut image);
            }
        }
        (image, tracked)
    }
}

/// The blocks of a strip.
fn blocks(strip: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    strip.clone().step_by(block_pixels::<i16>()).map(move |first| first..(first + block_pixels::<i16>()).min(strip.end))
}

/// Frames as the detector gives them without light, around the pedestals of G0.
fn darks(constants: &Constants<'_>) -> Vec<Vec<u16>> {
    let noise = |seed: u64| {
        let mixed = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        ((mixed >> 40) & 15) as f32 + ((mixed >> 50) & 15) as f32 - 15.0
    };
    let pixels = constants.pedestal[0].len();
    let word = |frame: usize, pixel: usize| {
        let pedestal = constants.pedestal[0][pixel];
        let pedestal = if pedestal.is_nan() { 2000.0 } else { pedestal.clamp(100.0, 16000.0) };
        (pedestal + noise((frame * pixels + pixel) as u64)) as u16
    };
    (0..FIRST_FRAMES).map(|frame| (0..pixels).map(|pixel| word(frame, pixel)).collect()).collect()
}

fn dark_rows(plain: usize, darks: &[Vec<u16>]) -> [Row<'_>; 2] {
    let pixels = darks[0].len();
    let raw_bytes = 2.0 * (pixels * DARK_FRAMES) as f64;
    let batch = move |round: usize| (0..DARK_FRAMES).map(move |i| &darks[(round * DARK_FRAMES + i) % darks.len()]);
    let mut sums = vec![[0f64; 2]; pixels];
    let doubles = Box::new(move |round: usize| batch(round).for_each(|frame| add_doubles(&mut sums, frame)));
    let mut filled = PedestalAccumulator::new(pixels, 0);
    darks.iter().for_each(|frame| filled.add(frame));
    let ours = Box::new(move |round: usize| batch(round).for_each(|frame| filled.add(frame)));
    let row = |name, isa, verified, work| Row { name, isa, plain, raw_bytes, bits_per_pixel: None, verified, every: 1, work };
    [
        row("plain: dark frames, doubles", Isa::Scalar, true, doubles),
        row("dark frames, exact and gated", Isa::Scalar, verify_darks(darks), ours),
    ]
}

fn add_doubles(sums: &mut [[f64; 2]], frame: &[u16]) {
    for (sum, &word) in sums.iter_mut().zip(frame) {
        let adc = if word < 0x4000 { f64::from(word) } else { 0.0 };
        sum[0] += adc;
        sum[1] += adc * adc;
    }
}

/// Compares mean and noise of both ways where no word fell outside the gate.
fn verify_darks(darks: &[Vec<u16>]) -> bool {
    let (mut sums, mut ours) = (vec![[0f64; 2]; darks[0].len()], PedestalAccumulator::new(darks[0].len(), 0));
    for frame in darks {
        add_doubles(&mut sums, frame);
        ours.add(frame);
    }
    let (planes, n) = (ours.finish(), darks.len() as f64);
    let agrees = |i: usize| {
        let (mean, [sum, squares]) = (sums[i][0] / n, sums[i]);
        let noise = ((squares - sum * mean) / (n - 1.0)).max(0.0).sqrt();
        (f64::from(planes.mean_adu[i]) - mean).abs() < 1e-2 && (f64::from(planes.rms_adu[i]) - noise).abs() < 1e-2
    };
    let inside: Vec<usize> = (0..sums.len()).filter(|&i| planes.outside[i] == 0).collect();
    inside.len() > sums.len() / 2 && inside.into_iter().all(agrees)
}
