//! The worker of the processor: makes packed strips of the raw tiles of frames, block by block while the block is in
//! L1.

use super::batch::BATCH_FRAMES;
use super::fill::{Filler, Followed, Frame};
use super::place::{Place, Tiles};
use super::recipes::Recipes;
use super::steps::Step;
use super::worker::Worker;
use crate::results::numbers_of_strip;
use konkordia_core::geometry::Share;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Recipe, TrackedFrames};
use konkordia_core::selection::FrameUse;
use konkordia_core::share::{share, share_start};
use konkordia_kernels::codec::Packer;
use konkordia_kernels::constants::PixelConstants;
use konkordia_kernels::convert::OutputPixel;
use konkordia_kernels::finish::{Accumulator, Signed, accumulate, narrow, negatives};
use konkordia_kernels::fused::FusedScratch;
use konkordia_kernels::stats::{self, Measured, PixelStats};

/// A worker that also packs strips whose pixels were made elsewhere.
pub(crate) trait StripWorker<S>: Worker<S> {
    /// Packs a strip of an image, the `own`th of the worker, from its converted pixels, and notes its numbers.
    fn pack(&mut self, place: &mut S, own: usize, image: u64, pixels: &[u8]);
}

/// A worker for the pixel type of the run that makes these strips.
pub(crate) fn worker<'a, S: Place + 'a>(recipes: &'a Recipes, strips: Vec<usize>) -> Box<dyn StripWorker<S> + 'a> {
    match recipes.plan.pixel {
        PixelType::Int16 => Box::new(Work::<i16>::new(recipes, strips)),
        PixelType::Int32 => Box::new(Work::<i32>::new(recipes, strips)),
        PixelType::Uint16 => Box::new(Work::<u16>::new(recipes, strips)),
        PixelType::Uint32 => Box::new(Work::<u32>::new(recipes, strips)),
        PixelType::Float32 => Box::new(Work::<f32>::new(recipes, strips)),
        other => unreachable!("no run converts to {other}: the configuration names the types that can be asked for"),
    }
}

/// A pixel type with the type in which its frames are added.
trait Summed: OutputPixel + Signed + Measured {
    /// Signed, so that counts below zero are added too before an unsigned type cuts them off.
    type Sum: OutputPixel + Accumulator + Signed;
    fn narrow(sum: &[Self::Sum], out: &mut [Self]);
}

macro_rules! summed {
    ($($t:ty)*) => { $(impl Summed for $t {
        type Sum = i32;
        fn narrow(sum: &[i32], out: &mut [Self]) {
            narrow(sum, out);
        }
    })* };
}
summed!(i16 i32 u16 u32);

impl Summed for f32 {
    type Sum = f32;
    fn narrow(sum: &[f32], out: &mut [Self]) {
        out.copy_from_slice(sum);
    }
}

struct Work<'a, P: Summed> {
    recipes: &'a Recipes,
    strips: Vec<usize>,
    filler: Filler<'a>,
    packing: Packing,
    /// Tracked pedestals, for each set of constants and own strip; empty without tracking.
    pedestals: Vec<Vec<Vec<f32>>>,
    /// Sums of frames, for each own strip; empty where every image is converted in one go.
    sums: Vec<Vec<P::Sum>>,
    /// One block of a frame that is added to a sum.
    addend: Vec<P::Sum>,
}

impl<S: Place, P: Summed> Worker<S> for Work<'_, P> {
    /// Does one strip of all frames before it goes on to the next strip.
    fn work(&mut self, place: &mut S, steps: &[Step]) {
        debug_assert!(steps.len() as u64 <= BATCH_FRAMES, "what is remembered of frames is for a batch");
        for own in 0..self.strips.len() {
            for step in steps {
                self.take(place, own, self.strips[own], *step);
            }
        }
    }
}

impl<S: Place, P: Summed> StripWorker<S> for Work<'_, P> {
    fn pack(&mut self, place: &mut S, own: usize, image: u64, pixels: &[u8]) {
        let (recipes, packing, strip) = (self.recipes, &mut self.packing, self.strips[own]);
        let (start, made) = (recipes.pixels_of(strip).start, bytemuck::cast_slice::<u8, P>(pixels));
        let mut stats = PixelStats::default();
        place.pack(image, strip, |_, out| {
            packing.pack::<P>(recipes, strip, out, |block, pixels| {
                let at = block * recipes.gather.block_pixels() - start;
                pixels.copy_from_slice(&made[at..at + pixels.len()]);
                finish(recipes, block, image, pixels);
                stats::add(recipes.isa, pixels, &mut stats);
            })
        });
        self.note(place, strip, image, &stats);
    }
}

impl<'a, P: Summed> Work<'a, P> {
    fn new(recipes: &'a Recipes, strips: Vec<usize>) -> Self {
        let plan = &recipes.plan;
        let needs_sums = plan.has_sums();
        let mut pedestals = Vec::new();
        if let (PixelConstants::Jungfrau(calibration), Some(_)) = (&recipes.constants, plan.processing.tracking) {
            let of_strips = |set: usize| {
                let plane = &calibration.sets[set].pedestal[0];
                strips.iter().map(|strip| plane[recipes.pixels_of(*strip)].to_vec()).collect()
            };
            pedestals = (0..calibration.sets.len()).map(of_strips).collect();
        }
        let zeros = |strip: &usize| vec![P::Sum::default(); recipes.pixels_of(*strip).len()];
        Self {
            recipes,
            filler: Filler::new(recipes),
            packing: Packing::new(recipes),
            pedestals,
            sums: if needs_sums { strips.iter().map(zeros).collect() } else { Vec::new() },
            addend: if needs_sums { vec![P::Sum::default(); recipes.gather.block_pixels()] } else { Vec::new() },
            strips,
        }
    }

    /// Does one frame of one strip.
    fn take(&mut self, place: &mut impl Place, own: usize, strip: usize, step: Step) {
        let tracking = self.recipes.plan.processing.tracking;
        let moves = |is_dark: bool| tracking.is_some_and(|t| is_dark || t.frames == TrackedFrames::All);
        match step.becomes {
            FrameUse::Skip if step.frame.is_present && moves(false) => self.track(place, own, strip, step.frame),
            FrameUse::Dark if step.frame.is_present && moves(true) => self.track(place, own, strip, step.frame),
            FrameUse::Skip | FrameUse::Dark => {}
            FrameUse::Keep { image, first, last } => {
                if !self.sums.is_empty() {
                    self.add(place, own, strip, (step.frame, first, moves(false)));
                    if step.packs {
                        self.pack_sum(place, own, strip, image);
                    }
                } else if step.packs {
                    self.convert_and_pack(place, own, strip, (step.frame, image, moves(false)));
                } else if step.frame.is_present && moves(false) {
                    self.track(place, own, strip, step.frame);
                }
                if last {
                    self.snapshot(place, own, strip, step.frame, image);
                }
            }
        }
    }

    fn track(&mut self, tiles: &impl Tiles, own: usize, strip: usize, frame: Frame) {
        let Some(set) = frame.set else { return };
        let start = self.recipes.pixels_of(strip).start;
        for block in self.recipes.blocks_of(strip) {
            let at = block * self.recipes.gather.block_pixels() - start;
            let pedestal = &mut self.pedestals[set][own][at..at + self.recipes.gather.block_length(block)];
            self.filler.track(tiles, frame, block, pedestal);
        }
    }

    /// Copies the tracked pedestals after this image for the sinks: those of its last frame's set, or of the first set
    /// if that frame has none.
    fn snapshot(&mut self, place: &mut impl Place, own: usize, strip: usize, frame: Frame, image: u64) {
        if let (Some(planes), Some(out)) = (self.pedestals.get(frame.set.unwrap_or(0)), place.snapshot(image, strip)) {
            out.copy_from_slice(&planes[own]);
        }
    }

    fn convert_and_pack(&mut self, place: &mut impl Place, own: usize, strip: usize, what: (Frame, u64, bool)) {
        let (frame, image, moves) = what;
        let (recipes, filler, packing) = (self.recipes, &mut self.filler, &mut self.packing);
        let mut tracked = frame.set.and_then(|set| self.pedestals.get_mut(set)).map(|strips| &mut strips[own]);
        let start = recipes.pixels_of(strip).start;
        let mut stats = PixelStats::default();
        place.pack(image, strip, |tiles, out| {
            packing.pack::<P>(recipes, strip, out, |block, pixels| {
                let at = block * recipes.gather.block_pixels() - start;
                let followed = tracked.as_mut().map(|t| Followed { pedestal: &mut t[at..at + pixels.len()], moves });
                filler.fill(tiles, frame, block, followed, pixels);
                if recipes.plan.recipe != Recipe::Raw {
                    finish(recipes, block, image, pixels);
                    stats::add(recipes.isa, pixels, &mut stats);
                }
            })
        });
        self.note(place, strip, image, &stats);
    }

    /// Leaves the statistics of a strip for the results of its image.
    fn note(&self, place: &mut impl Place, strip: usize, image: u64, stats: &PixelStats<P::Wide>) {
        place.set_numbers(image, strip, &stats.bits()[..numbers_of_strip(&self.recipes.plan)]);
    }

    /// Adds a frame to the sum of its image.
    fn add(&mut self, tiles: &impl Tiles, own: usize, strip: usize, (frame, first, moves): (Frame, bool, bool)) {
        let (recipes, filler) = (self.recipes, &mut self.filler);
        let mut tracked = frame.set.and_then(|set| self.pedestals.get_mut(set)).map(|strips| &mut strips[own]);
        let start = recipes.pixels_of(strip).start;
        for block in recipes.blocks_of(strip) {
            let at = block * recipes.gather.block_pixels() - start;
            let length = recipes.gather.block_length(block);
            let followed = tracked.as_mut().map(|t| Followed { pedestal: &mut t[at..at + length], moves });
            let sum = &mut self.sums[own][at..at + length];
            if first {
                filler.fill(tiles, frame, block, followed, sum);
            } else {
                let addend = &mut self.addend[..length];
                filler.fill(tiles, frame, block, followed, addend);
                accumulate(sum, addend);
            }
        }
    }

    fn pack_sum(&mut self, place: &mut impl Place, own: usize, strip: usize, image: u64) {
        let (recipes, packing, sums) = (self.recipes, &mut self.packing, &mut self.sums[own]);
        let start = recipes.pixels_of(strip).start;
        let mut stats = PixelStats::default();
        place.pack(image, strip, |_, out| {
            packing.pack::<P>(recipes, strip, out, |block, pixels| {
                let at = block * recipes.gather.block_pixels() - start;
                let sum = &mut sums[at..at + pixels.len()];
                finish(recipes, block, image, sum);
                P::narrow(sum, pixels);
                stats::add(recipes.isa, pixels, &mut stats);
            })
        });
        self.note(place, strip, image, &stats);
    }
}

/// What follows the conversion of a block of an image: shares of split pixels, then counts below zero.
pub(crate) fn finish<Q: OutputPixel + Signed>(recipes: &Recipes, block: usize, image: u64, pixels: &mut [Q]) {
    share_out(recipes.gather.shares(block), image, pixels);
    negatives(recipes.plan.processing.negative, pixels);
}

/// Replaces the value of each split pixel by its share.
fn share_out<Q: OutputPixel>(shares: &[Share], image: u64, pixels: &mut [Q]) {
    for s in shares {
        let pixel = &mut pixels[s.block_offset as usize];
        *pixel = share(*pixel, s.part, s.parts, share_start(s.group, image));
    }
}

/// Packs strips for one worker.
struct Packing {
    scratch: FusedScratch,
    /// For everything but `none` and `bslz4`, which have paths of their own.
    packer: Option<Packer>,
}

impl Packing {
    fn new(recipes: &Recipes) -> Self {
        let plan = &recipes.plan;
        let blocks = if plan.compression.is_by_strip() { plan.blocks_per_strip() } else { 1 };
        let other = !matches!(plan.compression, Compression::None | Compression::BSLZ4);
        let packer = other.then(|| Packer::new(plan.compression, recipes.isa, blocks * plan.compression.block_bytes()));
        Self { scratch: FusedScratch::new(), packer }
    }

    /// Packs a strip whose blocks `fill` fills, in order; returns its length.
    fn pack<P: OutputPixel>(
        &mut self,
        recipes: &Recipes,
        strip: usize,
        out: &mut [u8],
        mut fill: impl FnMut(usize, &mut [P]),
    ) -> usize {
        let compression = recipes.plan.compression;
        let (mut at, mut filled) = (0, 0);
        for block in recipes.blocks_of(strip) {
            let length = recipes.gather.block_length(block);
            match (&mut self.packer, compression) {
                (None, Compression::None) => {
                    let bytes = length * size_of::<P>();
                    fill(block, bytemuck::cast_slice_mut(&mut out[at..at + bytes]));
                    at += bytes;
                }
                (None, _) => {
                    fill(block, &mut self.scratch.pixels_mut::<P>()[..length]);
                    at += self.scratch.pack_block::<P>(recipes.isa, length, &mut out[at..]);
                }
                (Some(packer), _) => {
                    fill(block, &mut packer.pixels_mut::<P>()[filled..filled + length]);
                    if compression.is_by_strip() {
                        filled += length;
                    } else {
                        at += packer.pack::<P>(length, &mut out[at..]);
                    }
                }
            }
        }
        match &mut self.packer {
            Some(packer) if compression.is_by_strip() => packer.pack::<P>(filled, out),
            _ => at,
        }
    }
}
