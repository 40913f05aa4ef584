//! A running stream path: checks the parts, starts the threads and ends them.

use super::control::SeriesControl;
use super::notice::{Command, Notice};
use super::pull::{Puller, Upstream};
use super::rules::Rules;
use super::rules::membership::SenderQuirks;
use super::rules::spec::RulesSpec;
use super::sort::{Sorter, WorkerPool};
use super::spec::{Join, SeriesSpec};
use super::sum::Summer;
use super::work::{self, Worker};
use crate::contain::contain;
use crate::hand_over::HandOver;
use crate::output_queue::OutputQueues;
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::geometry::MAX_IMAGE_PIXELS;
use konkordia_core::order::{PARTS_MAX, WINDOW_IMAGES_MAX};
use konkordia_core::plan::Compression;
use konkordia_core::selection::SUM_FRAMES_MAX;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Batches that may wait for the sort thread, per upstream; their messages count in the budget.
const BATCHES: usize = 4;
/// Images at each worker or waiting for it.
const IMAGES_PER_WORKER: usize = 4;

/// The parts do not fit together; in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the series of this detector cannot be received: {0}")]
pub struct OpenError(pub String);

/// A running stream path: threads that take series, one after the other, until [`SeriesControl::shutdown`]. Dropping it
/// shuts it down and waits for its threads.
pub struct Series {
    control: Arc<SeriesControl>,
    notices: crossbeam_channel::Receiver<Notice>,
    threads: Vec<JoinHandle<()>>,
}

impl Series {
    /// Controls the series and reports their progress.
    pub fn control(&self) -> Arc<SeriesControl> {
        Arc::clone(&self.control)
    }

    /// Notices in order. The queue is bounded: while it is full, new notices are lost, and
    /// [`super::Progress::notices_lost`] counts them.
    pub fn notices(&self) -> &crossbeam_channel::Receiver<Notice> {
        &self.notices
    }

    /// Number of its threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.control.shutdown();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts the threads: one per upstream, one that puts images in order, and the workers if there is something for them
/// to do.
///
/// # Errors
/// The parts do not fit together, or a thread cannot be started.
pub fn open(spec: SeriesSpec, upstreams: Vec<Upstream>, output_queues: Arc<OutputQueues>) -> Result<Series, OpenError> {
    check(&spec, upstreams.len()).map_err(OpenError)?;
    let names = upstreams.iter().map(|upstream| upstream.source.name()).collect();
    let (control, commands, notices) = SeriesControl::new(names, spec.budget_bytes, spec.clock_began);
    // From here on dropping it ends the threads that were started.
    let mut series = Series { control: Arc::clone(&control), notices, threads: Vec::new() };
    let spec = Arc::new(spec);
    start(&mut series, &spec, upstreams, output_queues, commands).map_err(|error| {
        OpenError(format!("the system cannot start a thread: {error}\n  fix: end other programs, or raise the limit (ulimit -u)"))
    })?;
    Ok(series)
}

fn start(
    series: &mut Series,
    spec: &Arc<SeriesSpec>,
    upstreams: Vec<Upstream>,
    output_queues: Arc<OutputQueues>,
    commands: crossbeam_channel::Receiver<Command>,
) -> io::Result<()> {
    let control = Arc::clone(&series.control);
    let quirks = SenderQuirks {
        upstreams: upstreams.len(),
        is_modular: spec.join.is_modular(),
        is_sequenced: upstreams.len() > 1 && spec.protocol.has_message_numbers() && spec.join == Join::Balanced,
        has_start: spec.protocol.has_start(),
        has_end: spec.protocol.has_end(),
    };
    let images_max = work::is_needed(spec).then(|| spec.workers.max(1) * IMAGES_PER_WORKER);
    let worker_pool = images_max.map(|images_max| start_workers(series, spec, images_max)).transpose()?;
    let summer = (spec.sum_frames > 1).then(|| Summer::new(spec.sum_frames, spec.compression.unwrap_or(Compression::None)));
    let cancelling = Arc::clone(&control);
    let give_up = Arc::new(move || cancelling.is_cancelling());
    let sorter = Sorter {
        rules: Rules::new(RulesSpec::of(spec, images_max), quirks),
        control: Arc::clone(&control),
        hand_over: HandOver::new(output_queues, give_up),
        worker_pool,
        transform: spec.transform.as_ref().map(|make| make()),
        analysis: spec.analysis.clone(),
        counts: AnalysisCounts::default(),
        summer,
        last_received_ns: 0,
        is_announced: false,
        committed: (0, 0),
    };
    let (sender, inbox) = crossbeam_channel::bounded(BATCHES * quirks.upstreams);
    let sort = move || {
        let mut sorter = sorter;
        if let Err(panic) = contain(|| sorter.run(&inbox, &commands)) {
            sorter.give_up(&panic);
        }
    };
    series.threads.push(spawn("sort".into(), sort)?);
    for (upstream, parts) in upstreams.into_iter().enumerate() {
        let (control, inbox) = (Arc::clone(&control), sender.clone());
        let pull = move || {
            let control = &*control;
            Puller { upstream, parts, control, inbox, received: 0, accepted: 0, bounded_bytes: 0, crowded: (0, None) }.run();
        };
        series.threads.push(spawn(format!("pull-{upstream}"), pull)?);
    }
    Ok(())
}

fn start_workers(series: &mut Series, spec: &Arc<SeriesSpec>, images_max: usize) -> io::Result<WorkerPool> {
    let workers = spec.workers.max(1);
    let (jobs, jobs_of_workers) = crossbeam_channel::bounded(images_max);
    // Twice as many: an image that was thrown away while a worker had it still comes back, beside those that came after
    // it.
    let (done_of_workers, done) = crossbeam_channel::bounded(2 * images_max);
    for n in 0..workers {
        let (spec, jobs, done) = (Arc::clone(spec), jobs_of_workers.clone(), done_of_workers.clone());
        series.threads.push(spawn(format!("series-work-{n}"), move || Worker::new(&spec).run(&jobs, &done))?);
    }
    Ok(WorkerPool { jobs, done })
}

pub(super) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(body)
}

fn check(spec: &SeriesSpec, upstreams: usize) -> Result<(), String> {
    let expect = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_string()) };
    expect((1..=PARTS_MAX as usize).contains(&upstreams), "it needs 1 to 64 upstreams")?;
    expect((1..=WINDOW_IMAGES_MAX).contains(&spec.window_images), "the window is 1 to 2^20 images")?;
    expect(spec.budget_bytes > 0, "no memory is given to messages in flight")?;
    expect(spec.workers <= 1024, "at most 1024 workers are possible")?;
    expect((1..=SUM_FRAMES_MAX).contains(&spec.sum_frames), "1 to 1000 images make a sum")?;
    expect(
        !spec.join.is_modular() || spec.window_images * upstreams as u64 <= WINDOW_IMAGES_MAX,
        "upstreams times the images of the window are at most 2^20",
    )?;
    let Join::PerModule { placements, rows, columns } = &spec.join else { return Ok(()) };
    expect(placements.len() == upstreams, "each upstream needs one place in the image")?;
    let pixels = u64::from(*rows) * u64::from(*columns);
    expect((1..=MAX_IMAGE_PIXELS).contains(&pixels), "the image has 1 to 2^26 pixels")?;
    expect(placements.iter().all(|p| p.row < *rows && p.column < *columns), "a part lies outside of the image")
}
