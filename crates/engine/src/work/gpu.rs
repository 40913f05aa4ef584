//! The worker of a GPU. Its thread gives frames to the device in batches, and leaves what comes back in the ring. The
//! device takes the words of frames from the ring, or the thread brings them into the order of the image for it. What
//! the device cannot do (frames that are not complete, frames of other storage cells), and everything after it has
//! failed, is done by the processor on the same thread: no image of a run with a GPU depends on another one, so who
//! made its strips makes no difference.

use super::batch::BATCH_FRAMES;
use super::fill::gather_words;
use super::recipes::Recipes;
use super::steps::Step;
use super::strips::{self, StripWorker};
use super::worker::Worker;
use crate::gpu_tally::GpuTally;
use konkordia_core::plan::{Compression, GpuPlan, Negative};
use konkordia_core::selection::FrameUse;
use konkordia_gpu::device::{Cause, DeviceError};
use konkordia_gpu::layout::NO_SOURCE;
use konkordia_gpu::pipeline::{Batch, Calibration, LaunchBy, Outcome, Output, Spec};
use konkordia_gpu::pipelines::{AnyPipeline, ArmPipelines, Part};
use konkordia_kernels::chunk::HEADER_BYTES;
use konkordia_kernels::constants::{CellConstants, ConstantPlanes, PixelConstants};
use konkordia_memory::ring::{self, RawFrames};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A batch that takes longer has failed. The ring holds what comes meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);

/// What to do where there is no GPU for a run.
const WITHOUT: &str = "remove [processing] workers: the processor makes the same images";

/// Why there is no GPU for a run, and what to do.
pub(crate) struct Refused {
    pub why: String,
    pub fix: String,
}

impl Refused {
    fn new(why: &str) -> Self {
        Self { why: why.into(), fix: WITHOUT.into() }
    }
}

impl From<DeviceError> for Refused {
    fn from(error: DeviceError) -> Self {
        let why = format!("{} ({}): {}", error.what, error.place, error.why);
        Self { why, fix: format!("{}; or {WITHOUT}", error.advice) }
    }
}

/// Arms a pipeline for each worker that has strips. `frames` is where the device may take words from by itself.
pub(super) fn arm(
    gpu: &dyn ArmPipelines,
    recipes: &Recipes,
    strips_of: &[Vec<usize>],
    frames: Option<&RawFrames>,
) -> Result<Vec<Option<Box<dyn AnyPipeline>>>, Refused> {
    recipes.plan.check_gpu().map_err(Refused::new)?;
    let PixelConstants::Jungfrau(calibration) = &recipes.constants else { return Err(Refused::new("a GPU needs pedestals")) };
    if calibration.sets.len() > 1 {
        return Err(Refused::new("the calibration has several storage cells, and a GPU has the constants of one"));
    }
    let has_strips = |strips: &&Vec<usize>| !strips.is_empty();
    let parts: Vec<Part> = strips_of.iter().filter(has_strips).map(|s| part(recipes, calibration, s, frames)).collect();
    let mut armed = gpu.arm(&parts)?.into_iter();
    Ok(strips_of.iter().map(|strips| if strips.is_empty() { None } else { armed.next() }).collect())
}

/// What the pipeline of these strips does: an image of one row, which is made of them.
fn part(recipes: &Recipes, calibration: &CellConstants, strips: &[usize], frames: Option<&RawFrames>) -> Part {
    let (plan, set) = (&recipes.plan, &calibration.sets[0]);
    let ranges: Vec<Range<usize>> = strips.iter().map(|strip| recipes.pixels_of(*strip)).collect();
    let pixels: usize = ranges.iter().map(Range::len).sum();
    let spec = Spec {
        rows: 1,
        columns: pixels as u32,
        frames: GpuPlan::BATCH_FRAMES as u32,
        pixel: plan.pixel,
        high_gain: calibration.high_gain,
        above: None,
        output: if makes_chunks(recipes) && pixels >= 8 { Output::Chunks } else { Output::Pixels },
        stats_of: Some((plan.blocks_per_strip() * plan.block_pixels()) as u32),
        launch: LaunchBy::Plain,
        patience: PATIENCE,
        first: 0,
    };
    assert_eq!(spec.credits(), GpuPlan::BATCHES, "the plan counts the memory of so many");
    Part {
        spec,
        calibration: constants(recipes, strips, set, &ranges),
        usable: vec![1; pixels],
        received: frames.map(|frames| (frames.clone(), sources(recipes, strips, frames.tile_stride()))),
    }
}

/// The constants of the pixels of these strips. Those of gaps are masked, whatever the calibration says.
fn constants(recipes: &Recipes, strips: &[usize], set: &ConstantPlanes, ranges: &[Range<usize>]) -> Calibration<'static> {
    fn taken<T: Copy>(plane: &[T], ranges: &[Range<usize>]) -> Vec<T> {
        ranges.iter().flat_map(|range| plane[range.clone()].iter().copied()).collect()
    }
    if let Some(fixed) = recipes.fixed.first() {
        let mut factor = fixed.factor.each_ref().map(|plane| taken(plane, ranges));
        fill_gaps(recipes, strips, &mut factor, 0);
        return Calibration::Fixed {
            pedestal_g0: taken(&fixed.pedestal_g0, ranges).into(),
            pedestal_g1: taken(&fixed.pedestal_g1, ranges).into(),
            pedestal_g2: taken(&fixed.pedestal_g2, ranges).into(),
            factor: factor.concat().into(),
            shift: fixed.shift,
        };
    }
    let mut pedestal = set.pedestal.each_ref().map(|plane| taken(plane, ranges));
    fill_gaps(recipes, strips, &mut pedestal, f32::NAN);
    let factor = set.factor.each_ref().map(|plane| taken(plane, ranges));
    Calibration::Float { pedestal: pedestal.concat().into(), factor: factor.concat().into() }
}

/// How many words behind the beginning of its frame in the ring the word of each pixel is.
fn sources(recipes: &Recipes, strips: &[usize], tile_stride: usize) -> Vec<u32> {
    let leading_bytes = recipes.plan.geometry.format().leading_bytes as usize;
    let mut sources = Vec::new();
    for block in strips.iter().flat_map(|strip| recipes.blocks_of(*strip)) {
        let at = sources.len();
        sources.resize(at + recipes.gather.block_length(block), NO_SOURCE);
        for segment in recipes.gather.segments(block) {
            let Some(tile) = segment.tile else { continue };
            let first = (usize::from(tile) * tile_stride + leading_bytes) / 2;
            for (source, pixel) in sources[at..][segment.in_block()].iter_mut().zip(segment.tile_pixels()) {
                *source = u32::try_from(first + pixel).expect("frames of 8 GiB at most");
            }
        }
    }
    sources
}

/// True if the device packs strips too. Otherwise pixels come back: those of split pixels are shared, negative ones are
/// treated, and strips are packed by the processor.
fn makes_chunks(recipes: &Recipes) -> bool {
    let (plan, gather) = (&recipes.plan, &recipes.gather);
    let has_shares = (0..gather.blocks()).any(|block| !gather.shares(block).is_empty());
    plan.compression == Compression::BSLZ4 && plan.processing.negative == Negative::Keep && !has_shares
}

/// Puts a value into the planes where an image has gaps.
fn fill_gaps<T: Copy>(recipes: &Recipes, strips: &[usize], planes: &mut [Vec<T>; 3], value: T) {
    let mut at = 0;
    for block in strips.iter().flat_map(|strip| recipes.blocks_of(*strip)) {
        for segment in recipes.gather.segments(block).iter().filter(|segment| segment.tile.is_none()) {
            let gap = segment.in_block();
            planes.iter_mut().for_each(|plane| plane[at + gap.start..at + gap.end].fill(value));
        }
        at += recipes.gather.block_length(block);
    }
}

/// See the module.
pub(super) struct GpuWorker<'a> {
    recipes: &'a Recipes,
    strips: Vec<usize>,
    /// None when the device has failed, and without strips.
    pipeline: Option<Box<dyn AnyPipeline>>,
    tally: Arc<GpuTally>,
    processor: Box<dyn StripWorker<ring::Worker> + 'a>,
    /// Batches that were submitted.
    batches: u64,
    /// Places among the steps of those that the device takes, and how many of them are done.
    taken: Vec<usize>,
    done: usize,
}

impl<'a> GpuWorker<'a> {
    /// For these strips, with the pipeline of this thread.
    pub fn new(recipes: &'a Recipes, strips: Vec<usize>, pipeline: Option<Box<dyn AnyPipeline>>, tally: Arc<GpuTally>) -> Self {
        let processor = strips::worker(recipes, strips.clone());
        let taken = Vec::with_capacity(BATCH_FRAMES as usize);
        let mut new = Self { recipes, strips, pipeline, tally, processor, batches: 0, taken, done: 0 };
        if let Some(Err(error)) = new.pipeline.as_mut().map(|pipeline| pipeline.attach()) {
            new.give_up(&error);
        }
        new
    }

    fn give_up(&mut self, error: &DeviceError) {
        self.tally.fail(error.to_string());
        self.pipeline = None;
    }

    /// Submits all frames of `self.taken` and waits until they are done.
    fn run(&mut self, ring: &mut ring::Worker, steps: &[Step]) -> Result<(), DeviceError> {
        let Self { recipes, strips, pipeline, processor, batches, taken, done, .. } = self;
        let Some(pipeline) = pipeline else { return Ok(()) };
        let mut submitted = 0;
        while *done < taken.len() {
            if let Some(next) = taken[submitted..].chunks(GpuPlan::BATCH_FRAMES).next() {
                let (takes_words, frames) = (pipeline.takes_words(), next.iter().map(|at| steps[*at].frame.number));
                let mut fill = |given: &mut [u8]| {
                    let frames = frames.clone();
                    if takes_words { fill_begins(ring, frames, given) } else { fill_words(recipes, strips, ring, frames, given) }
                };
                if pipeline.submit(*batches, next.len() as u32, &mut fill) {
                    submitted += next.len();
                    *batches += 1;
                    continue;
                }
            }
            let mut wrong = None;
            let has_moved = pipeline.poll(&mut |batch| {
                for n in 0..batch.frames {
                    let step = &steps[taken[*done]];
                    let is_left = wrong.is_none() && leave(recipes, strips, (ring, step), (batch, n), &mut **processor);
                    if is_left { *done += 1 } else { wrong = Some(step.frame.number) }
                }
            })?;
            if let Some(frame) = wrong {
                let why = format!("what came back of frame {frame} are no blocks of this image");
                return Err(DeviceError::new(Cause::Operation, "taking strips from the device", pipeline.device_name(), why));
            }
            if !has_moved {
                pipeline.pause();
            }
        }
        Ok(())
    }
}

impl Worker<ring::Worker> for GpuWorker<'_> {
    fn work(&mut self, ring: &mut ring::Worker, steps: &[Step]) {
        self.taken.clear();
        self.done = 0;
        if self.pipeline.is_some() {
            // The device has the constants of one storage cell.
            let is_taken = |(_, step): &(usize, &Step)| step.packs && step.is_complete && step.frame.set == Some(0);
            self.taken.extend(steps.iter().enumerate().filter(is_taken).map(|(at, _)| at));
            if let Err(error) = self.run(ring, steps) {
                self.give_up(&error);
            }
        }
        let (strips, mut done) = (self.strips.len() as u64, self.taken[..self.done].iter().peekable());
        self.tally.by_gpu(done.len() as u64 * strips);
        for (at, step) in steps.iter().enumerate() {
            if done.next_if_eq(&&at).is_none() {
                self.processor.work(ring, std::slice::from_ref(step));
                self.tally.by_processor(if step.packs { strips } else { 0 });
            }
        }
    }
}

/// Writes where frames begin in the ring, in words.
fn fill_begins(ring: &ring::Worker, frames: impl Iterator<Item = u64>, begins: &mut [u8]) {
    let begins: &mut [u64] = bytemuck::cast_slice_mut(begins);
    begins.iter_mut().zip(frames).for_each(|(begin, frame)| *begin = ring.frame_start(frame) as u64 / 2);
}

/// Writes the words of frames, in the order of the strips.
fn fill_words(recipes: &Recipes, strips: &[usize], ring: &ring::Worker, frames: impl Iterator<Item = u64>, words: &mut [u8]) {
    let mut rest: &mut [u16] = bytemuck::cast_slice_mut(words);
    for frame in frames {
        for block in strips.iter().flat_map(|strip| recipes.blocks_of(*strip)) {
            let (words, others) = std::mem::take(&mut rest).split_at_mut(recipes.gather.block_length(block));
            gather_words(recipes, ring, frame, block, words);
            rest = others;
        }
    }
}

/// Leaves the strips of frame `n` of a batch in the ring, with their numbers. False if they cannot be those of the
/// image.
fn leave(
    recipes: &Recipes,
    strips: &[usize],
    (ring, step): (&mut ring::Worker, &Step),
    (batch, n): (&Batch<'_>, u32),
    processor: &mut dyn StripWorker<ring::Worker>,
) -> bool {
    let FrameUse::Keep { image, .. } = step.becomes else { return false };
    match batch.outcome(n) {
        Outcome::Pixels(bytes) => {
            let mut at = 0;
            for (own, strip) in strips.iter().enumerate() {
                let end = at + recipes.pixels_of(*strip).len() * recipes.plan.pixel.bytes();
                processor.pack(ring, own, image, &bytes[at..end]);
                at = end;
            }
            true
        }
        Outcome::Chunk(bytes) => {
            let Some(mut rest) = bytes.get(HEADER_BYTES..) else { return false };
            for (strip, numbers) in strips.iter().zip(batch.stats(n)) {
                // Strips that were left before are made again by the processor.
                let Some(length) = strip_bytes(recipes, *strip, rest) else { return false };
                let (packed, others) = rest.split_at(length);
                ring.pack(image, *strip, |_, out| {
                    out[..length].copy_from_slice(packed);
                    length
                });
                ring.set_numbers(image, *strip, numbers);
                rest = others;
            }
            rest.is_empty()
        }
        _ => false,
    }
}

/// Bytes of a strip that begins here: each block has its length before it, as bytes of a number of 32 bits, highest
/// first. Pixels beyond the last eight of the image follow its last block.
fn strip_bytes(recipes: &Recipes, strip: usize, bytes: &[u8]) -> Option<usize> {
    let plan = &recipes.plan;
    let (mut at, mut most) = (0, 0);
    for block in recipes.blocks_of(strip) {
        let pixels = recipes.gather.block_length(block);
        if pixels >= 8 {
            let length = bytes.get(at..)?.first_chunk::<4>()?;
            at = at.checked_add(4 + u32::from_be_bytes(*length) as usize)?;
        }
        at += pixels % 8 * plan.pixel.bytes();
        most += plan.packed_block_bytes_max(pixels);
    }
    (at <= bytes.len().min(most)).then_some(at)
}
