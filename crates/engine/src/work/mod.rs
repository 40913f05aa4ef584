//! A worker: turns the raw tiles of frames into packed strips of images, block by block while the block is in L1.
//!
//! A worker keeps its strips for the whole run and processes all their frames in order. So tracked pedestals and sums
//! of frames are the same for any number of workers.

mod batch;
mod common_mode;
mod fill;
mod recipes;

use crate::control::Control;
use crate::results::numbers_of_strip;
use batch::BATCH_FRAMES;
use fill::{Filler, Followed, Frame};
use konkordia_core::geometry::Share;
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Recipe, TrackedFrames};
use konkordia_core::selection::{FrameSeen, FrameUse, ImageFrames, Selector};
use konkordia_core::share::{share, share_start};
use konkordia_kernels::codec::Packer;
use konkordia_kernels::constants::{CELLS, PixelConstants};
use konkordia_kernels::convert::OutputPixel;
use konkordia_kernels::finish::{Accumulator, Signed, accumulate, narrow, negatives};
use konkordia_kernels::fused::FusedScratch;
use konkordia_kernels::stats::{self, Measured, PixelStats};
use konkordia_memory::ring;
use konkordia_wire::formats::PacketFormat;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use recipes::Recipes;

/// Works until the end of the run.
pub(crate) fn run(control: &Control, recipes: &Recipes, worker: ring::Worker) {
    match recipes.plan.pixel {
        PixelType::Int16 => Work::<i16>::new(recipes, &worker).run(control, worker),
        PixelType::Int32 => Work::<i32>::new(recipes, &worker).run(control, worker),
        PixelType::Uint16 => Work::<u16>::new(recipes, &worker).run(control, worker),
        PixelType::Uint32 => Work::<u32>::new(recipes, &worker).run(control, worker),
        PixelType::Float32 => Work::<f32>::new(recipes, &worker).run(control, worker),
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

/// What becomes of one frame of a batch.
#[derive(Clone, Copy)]
struct Step {
    frame: Frame,
    becomes: FrameUse,
    /// For the last frame of an image: the image is to be packed.
    packs: bool,
}

struct Work<'a, P: Summed> {
    recipes: &'a Recipes,
    filler: Filler<'a>,
    packing: Packing,
    selector: Selector,
    image: ImageFrames,
    images_end: u64,
    steps: Vec<Step>,
    /// Tracked pedestals, for each set of constants and own strip; empty without tracking.
    pedestals: Vec<Vec<Vec<f32>>>,
    /// Sums of frames, for each own strip; empty where every image is converted in one go.
    sums: Vec<Vec<P::Sum>>,
    /// One block of a frame that is added to a sum.
    addend: Vec<P::Sum>,
}

impl<'a, P: Summed> Work<'a, P> {
    fn new(recipes: &'a Recipes, worker: &ring::Worker) -> Self {
        let plan = &recipes.plan;
        let processing = &plan.processing;
        let needs_sums = plan.has_sums();
        let mut pedestals = Vec::new();
        if let (PixelConstants::Jungfrau(calibration), Some(_)) = (&recipes.constants, processing.tracking) {
            let strips = |set: usize| {
                let plane = &calibration.sets[set].pedestal[0];
                worker.strips().map(|strip| plane[recipes.pixels_of(strip)].to_vec()).collect()
            };
            pedestals = (0..calibration.sets.len()).map(strips).collect();
        }
        let zeros = |strip| vec![P::Sum::default(); recipes.pixels_of(strip).len()];
        Self {
            recipes,
            filler: Filler::new(recipes),
            packing: Packing::new(recipes),
            selector: Selector::new(processing.selection),
            image: ImageFrames::default(),
            images_end: 0,
            steps: Vec::with_capacity(BATCH_FRAMES as usize),
            pedestals,
            sums: if needs_sums { worker.strips().map(zeros).collect() } else { Vec::new() },
            addend: if needs_sums { vec![P::Sum::default(); recipes.gather.block_pixels()] } else { Vec::new() },
        }
    }

    fn run(mut self, control: &Control, mut worker: ring::Worker) {
        const WAIT: Duration = Duration::from_millis(20);
        while !control.has_failed() && worker.next() < control.end.load(Ordering::Acquire) {
            let ready = worker.wait(BATCH_FRAMES, WAIT);
            self.select(&mut worker, ready);
            if self.steps.is_empty() {
                if ready > 0 {
                    worker.wait_for_room(WAIT);
                }
                continue;
            }
            for (own, strip) in worker.strips().enumerate() {
                for step in 0..self.steps.len() {
                    self.take(&mut worker, own, strip, self.steps[step]);
                }
            }
            worker.finish(self.steps.len() as u64, self.images_end);
        }
    }

    /// Decides what becomes of the next frames, up to the first whose image finds no room.
    fn select(&mut self, worker: &mut ring::Worker, ready: u64) {
        self.steps.clear();
        let plan = &self.recipes.plan;
        let flags_field = PacketFormat::of(plan.geometry.format().kind).description().flags;
        let (first, expected) = (worker.next(), plan.packets_per_image() as u32);
        for number in first..first + ready {
            let records = (0..plan.streams()).filter_map(|tile| worker.tile(number, tile)).map(|(record, _)| record);
            let FrameSeen { placed, flags } = FrameSeen::of(records, flags_field);
            let mut selector = self.selector;
            let becomes = selector.next(flags);
            let mut packs = false;
            if let FrameUse::Keep { image, first, last } = becomes {
                if last && !worker.has_room(image) {
                    return;
                }
                self.image.add(first, ImageStatus::of(placed, expected, MissingPolicy::Keep));
                packs = last && self.image.status(plan.missing).has_pixels();
                self.images_end = if last { image + 1 } else { self.images_end };
            }
            self.selector = selector;
            let set = flags.and_then(|word| self.set_of(word));
            self.steps.push(Step { frame: Frame { number, set, is_present: placed > 0 }, becomes, packs });
        }
    }

    /// The set of constants of a frame, by its storage cell (docs/protocols.md 1.4: bits 8 to 11 of DAQ info, the word
    /// of flags of a JUNGFRAU).
    fn set_of(&self, daq_info: u32) -> Option<usize> {
        match &self.recipes.constants {
            PixelConstants::Jungfrau(calibration) => calibration.set_of_cell[(daq_info >> 8) as usize % CELLS],
            _ => None,
        }
    }

    /// Does one frame of one strip.
    fn take(&mut self, worker: &mut ring::Worker, own: usize, strip: usize, step: Step) {
        let tracking = self.recipes.plan.processing.tracking;
        let moves = |is_dark: bool| tracking.is_some_and(|t| is_dark || t.frames == TrackedFrames::All);
        match step.becomes {
            FrameUse::Skip if step.frame.is_present && moves(false) => self.track(worker, own, strip, step.frame),
            FrameUse::Dark if step.frame.is_present && moves(true) => self.track(worker, own, strip, step.frame),
            FrameUse::Skip | FrameUse::Dark => {}
            FrameUse::Keep { image, first, last } => {
                if !self.sums.is_empty() {
                    self.add(worker, own, strip, (step.frame, first, moves(false)));
                    if step.packs {
                        self.pack_sum(worker, own, strip, image);
                    }
                } else if step.packs {
                    self.convert_and_pack(worker, own, strip, (step.frame, image, moves(false)));
                } else if step.frame.is_present && moves(false) {
                    self.track(worker, own, strip, step.frame);
                }
                if last {
                    self.snapshot(worker, own, strip, step.frame, image);
                }
            }
        }
    }

    fn track(&mut self, worker: &ring::Worker, own: usize, strip: usize, frame: Frame) {
        let Some(set) = frame.set else { return };
        let start = self.recipes.pixels_of(strip).start;
        for block in self.recipes.blocks_of(strip) {
            let at = block * self.recipes.gather.block_pixels() - start;
            let pedestal = &mut self.pedestals[set][own][at..at + self.recipes.gather.block_length(block)];
            self.filler.track(worker, frame, block, pedestal);
        }
    }

    /// Copies the tracked pedestals after this image for the sinks: those of its last frame's set, or of the first set
    /// if that frame has none.
    fn snapshot(&mut self, worker: &mut ring::Worker, own: usize, strip: usize, frame: Frame, image: u64) {
        if let (Some(planes), Some(out)) = (self.pedestals.get(frame.set.unwrap_or(0)), worker.snapshot(image, strip)) {
            out.copy_from_slice(&planes[own]);
        }
    }

    fn convert_and_pack(&mut self, worker: &mut ring::Worker, own: usize, strip: usize, what: (Frame, u64, bool)) {
        let (frame, image, moves) = what;
        let (recipes, filler, packing) = (self.recipes, &mut self.filler, &mut self.packing);
        let mut tracked = frame.set.and_then(|set| self.pedestals.get_mut(set)).map(|strips| &mut strips[own]);
        let start = recipes.pixels_of(strip).start;
        let mut stats = PixelStats::default();
        worker.pack(image, strip, |worker, out| {
            packing.pack::<P>(recipes, strip, out, |block, pixels| {
                let at = block * recipes.gather.block_pixels() - start;
                let followed = tracked.as_mut().map(|t| Followed { pedestal: &mut t[at..at + pixels.len()], moves });
                filler.fill(worker, frame, block, followed, pixels);
                if recipes.plan.recipe != Recipe::Raw {
                    share_out(recipes.gather.shares(block), image, pixels);
                    negatives(recipes.plan.processing.negative, pixels);
                    stats::add(recipes.isa, pixels, &mut stats);
                }
            })
        });
        self.note(worker, strip, image, &stats);
    }

    /// Leaves the statistics of a strip for the results of its image.
    fn note(&self, worker: &mut ring::Worker, strip: usize, image: u64, stats: &PixelStats<P::Wide>) {
        worker.set_numbers(image, strip, &stats.bits()[..numbers_of_strip(&self.recipes.plan)]);
    }

    /// Adds a frame to the sum of its image.
    fn add(&mut self, worker: &ring::Worker, own: usize, strip: usize, (frame, first, moves): (Frame, bool, bool)) {
        let (recipes, filler) = (self.recipes, &mut self.filler);
        let mut tracked = frame.set.and_then(|set| self.pedestals.get_mut(set)).map(|strips| &mut strips[own]);
        let start = recipes.pixels_of(strip).start;
        for block in recipes.blocks_of(strip) {
            let at = block * recipes.gather.block_pixels() - start;
            let length = recipes.gather.block_length(block);
            let followed = tracked.as_mut().map(|t| Followed { pedestal: &mut t[at..at + length], moves });
            let sum = &mut self.sums[own][at..at + length];
            if first {
                filler.fill(worker, frame, block, followed, sum);
            } else {
                let addend = &mut self.addend[..length];
                filler.fill(worker, frame, block, followed, addend);
                accumulate(sum, addend);
            }
        }
    }

    fn pack_sum(&mut self, worker: &mut ring::Worker, own: usize, strip: usize, image: u64) {
        let (recipes, packing, sums) = (self.recipes, &mut self.packing, &mut self.sums[own]);
        let start = recipes.pixels_of(strip).start;
        let mut stats = PixelStats::default();
        worker.pack(image, strip, |_, out| {
            packing.pack::<P>(recipes, strip, out, |block, pixels| {
                let at = block * recipes.gather.block_pixels() - start;
                let sum = &mut sums[at..at + pixels.len()];
                share_out(recipes.gather.shares(block), image, sum);
                negatives(recipes.plan.processing.negative, sum);
                P::narrow(sum, pixels);
                stats::add(recipes.isa, pixels, &mut stats);
            })
        });
        self.note(worker, strip, image, &stats);
    }
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
        let other = !matches!(plan.compression, Compression::None | Compression::Bslz4);
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
