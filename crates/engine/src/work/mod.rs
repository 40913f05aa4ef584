//! Workers: turn the raw tiles of sealed frames into packed strips of images.
//!
//! A worker keeps its strips for the whole run and processes all their frames in order. So tracked pedestals and sums
//! of frames are the same for any number of workers. What computes is chosen at arm ([`WorkerKind`]): every kind gets
//! the same frames with the same decisions, and gives the same bytes.

mod batch;
mod common_mode;
mod fill;
mod frame;
mod gpu;
mod place;
mod recipes;
mod scalar;
mod steps;
mod strips;
mod worker;

use crate::control::Control;
use crate::gpu_tally::GpuTally;
use batch::{BATCH_FRAMES, GATHER_MAX, GATHER_MIN, GATHERED_FRAMES};
use gpu::GpuWorker;
use konkordia_core::plan::Plan;
use konkordia_gpu::pipelines::{AnyPipeline, ArmPipelines, Gpu};
use konkordia_kernels::isa::Isa;
use konkordia_memory::ring;
use scalar::ScalarWorker;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use steps::Schedule;
use worker::Worker;

pub use frame::{FrameConverter, FrameTiles};
pub(crate) use gpu::Refused;
pub(crate) use recipes::Recipes;

/// The kinds of workers.
#[derive(Clone, Debug, Default)]
pub enum WorkerKind {
    /// The threads `work-<n>` do the frames themselves, with the instruction set of the run.
    #[default]
    Strips,
    /// The reference: one thread, which is given a copy of each frame, with scalar kernels. For tests; a
    /// configuration cannot ask for it.
    Scalar,
    /// A GPU makes the part of the strips that the plan says; the other threads are as `Strips`.
    Gpu(Arc<dyn ArmPipelines>),
}

/// What a thread `work-<n>` works with.
pub(crate) enum Means {
    /// Itself.
    Processor,
    /// Another thread, with the scalar kernels.
    OtherThread,
    /// A GPU; none if no strips are left for this thread.
    Gpu(Option<Box<dyn AnyPipeline>>, Arc<GpuTally>),
}

impl WorkerKind {
    /// What the plan asks for: the processor, or a GPU of NVIDIA by its number.
    pub fn of(plan: &Plan) -> Self {
        plan.gpu.map_or(Self::Strips, |gpu| Self::Gpu(Arc::new(Gpu(gpu.ordinal))))
    }

    /// Instruction set of the kernels, where `isa` is that of the run.
    pub(crate) fn isa(&self, isa: Isa) -> Isa {
        match self {
            Self::Strips | Self::Gpu(_) => isa,
            Self::Scalar => Isa::Scalar,
        }
    }

    /// The share of the strips of each thread `work-<n>`.
    pub(crate) fn shares(&self, plan: &Plan) -> Vec<u32> {
        match (self, plan.gpu) {
            (Self::Gpu(_), Some(gpu)) => gpu.shares(plan.workers),
            (Self::Scalar, _) => vec![1],
            _ => vec![1; plan.workers],
        }
    }

    /// What each thread works with. A GPU is opened, and takes all its memory.
    ///
    /// # Errors
    /// There is no such GPU, or it cannot do this run.
    pub(crate) fn means(&self, recipes: &Recipes, workers: &[ring::Worker]) -> Result<Vec<Means>, Refused> {
        match (self, recipes.plan.gpu) {
            (Self::Gpu(gpu), Some(plan)) => {
                let strips: Vec<_> = workers[..plan.workers].iter().map(|worker| worker.strips().collect()).collect();
                let frames = workers.first().filter(|_| plan.reads_ring).map(ring::Worker::raw_frames);
                let pipelines = gpu::arm(&**gpu, recipes, &strips, frames.as_ref())?;
                let tally = Arc::new(GpuTally::new(&pipelines));
                let mut means: Vec<_> = pipelines.into_iter().map(|pipeline| Means::Gpu(pipeline, Arc::clone(&tally))).collect();
                means.extend(workers[plan.workers..].iter().map(|_| Means::Processor));
                Ok(means)
            }
            (Self::Scalar, _) => Ok(vec![Means::OtherThread]),
            _ => Ok(workers.iter().map(|_| Means::Processor).collect()),
        }
    }
}

impl Means {
    /// Makes the worker that does these strips.
    fn worker(self, recipes: &Arc<Recipes>, strips: Vec<usize>) -> Box<dyn Worker<ring::Worker> + '_> {
        match self {
            Self::Processor => strips::worker(recipes, strips),
            Self::OtherThread => Box::new(ScalarWorker::new(recipes, strips)),
            Self::Gpu(pipeline, tally) => Box::new(GpuWorker::new(recipes, strips, pipeline, tally)),
        }
    }

    /// What counts the strips of a GPU.
    pub fn tally(&self) -> Option<&Arc<GpuTally>> {
        if let Self::Gpu(_, tally) = self { Some(tally) } else { None }
    }
}

/// Works until the end of the run.
pub(crate) fn run(control: &Control, recipes: &Arc<Recipes>, means: Means, mut ring: ring::Worker) {
    const WAIT: Duration = Duration::from_millis(20);
    // A file is read as fast as frames are worked on: whoever waits for it would only be late.
    let gathers = !recipes.plan.lossless_source;
    let mut worker = means.worker(recipes, ring.strips().collect());
    let mut schedule = Schedule::new(recipes);
    let mut images_end = 0;
    let mut worked = Duration::ZERO;
    while !control.has_failed() && ring.next() < control.end.load(Ordering::Acquire) {
        let mut ready = ring.wait(BATCH_FRAMES, WAIT);
        if gathers && worked >= GATHER_MIN && (1..GATHERED_FRAMES).contains(&ready) {
            std::thread::sleep(worked.min(GATHER_MAX));
            ready = ring.wait(BATCH_FRAMES, WAIT);
        }
        let began = Instant::now();
        schedule.select(&mut ring, ready);
        if schedule.steps.is_empty() {
            if ready > 0 {
                ring.wait_for_room(WAIT);
            }
            continue;
        }
        worker.work(&mut ring, &schedule.steps);
        if let Some(latencies) = control.latencies() {
            let now_ns = control.now_ns();
            (images_end..schedule.images_end).for_each(|image| latencies.note_converted(image, now_ns));
            images_end = schedule.images_end;
        }
        // Those who wait for the end of a gap must not wait for the workers too.
        let has_packets = schedule.steps.iter().any(|step| step.frame.is_present);
        worked = if has_packets { began.elapsed() } else { Duration::ZERO };
        ring.finish(schedule.steps.len() as u64, schedule.images_end);
    }
}
