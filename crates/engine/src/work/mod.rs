//! Workers: turn the raw tiles of sealed frames into packed strips of images.
//!
//! A worker keeps its strips for the whole run and processes all their frames in order. So tracked pedestals and sums
//! of frames are the same for any number of workers. What computes is chosen at arm ([`WorkerKind`]): every kind gets
//! the same frames with the same decisions, and gives the same bytes.

mod batch;
mod common_mode;
mod fill;
mod frame;
mod place;
mod recipes;
mod scalar;
mod steps;
mod strips;
mod worker;

use crate::control::Control;
use batch::{BATCH_FRAMES, GATHER_MAX, GATHER_MIN, GATHERED_FRAMES};
use konkordia_core::plan::Plan;
use konkordia_kernels::isa::Isa;
use konkordia_memory::ring;
use scalar::ScalarWorker;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use steps::Schedule;
use worker::Worker;

pub use frame::{FrameConverter, FrameTiles};
pub(crate) use recipes::Recipes;

/// The kinds of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerKind {
    /// The threads `work-<n>` do the frames themselves, with the instruction set of the run.
    #[default]
    Strips,
    /// The reference: one thread, which is given a copy of each frame, with scalar kernels. For tests; a
    /// configuration cannot ask for it.
    Scalar,
}

impl WorkerKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Strips, Self::Scalar];

    /// Threads `work-<n>` of a run.
    pub(crate) fn count(self, plan: &Plan) -> usize {
        match self {
            Self::Strips => plan.workers,
            Self::Scalar => 1,
        }
    }

    /// Instruction set of the kernels, where `isa` is that of the run.
    pub(crate) fn isa(self, isa: Isa) -> Isa {
        match self {
            Self::Strips => isa,
            Self::Scalar => Isa::Scalar,
        }
    }

    /// Makes one that does these strips.
    fn make(self, recipes: &Arc<Recipes>, strips: Vec<usize>) -> Box<dyn Worker<ring::Worker> + '_> {
        match self {
            Self::Strips => strips::worker(recipes, strips),
            Self::Scalar => Box::new(ScalarWorker::new(recipes, strips)),
        }
    }
}

/// Works until the end of the run.
pub(crate) fn run(control: &Control, recipes: &Arc<Recipes>, kind: WorkerKind, mut ring: ring::Worker) {
    const WAIT: Duration = Duration::from_millis(20);
    // A file is read as fast as frames are worked on: whoever waits for it would only be late.
    let gathers = !recipes.plan.lossless_source;
    let mut worker = kind.make(recipes, ring.strips().collect());
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
