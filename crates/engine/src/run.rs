//! A run from arm to idle: checks the parts, makes the ring, starts the threads, finds the end, closes the ledger.

use crate::affinity::settle;
use crate::contain::{Panic, contain};
use crate::control::Control;
use crate::copy::Copied;
use crate::deliver::{Delivery, Reports};
use crate::far_ahead_packets::FarAheadPackets;
use crate::first::FirstPackets;
pub use crate::gpu_tally::GpuReport;
use crate::hand_over::{HandOver, SeriesAnalysis};
use crate::image_pool::ImagePool;
use crate::output_queue::{OutputQueueSpec, OutputQueues};
use crate::plan_check::{check_constants, check_processing};
use crate::receive::{Receiver, Sorter};
use crate::results::numbers_of_strip;
pub use crate::work::{FrameConverter, FrameTiles, WorkerKind};
use crate::work::{Means, Recipes, Refused};
use crate::{commit, copy, setup, strips, work};
use konkordia_core::IMAGES_MAX;
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::array::Element;
use konkordia_core::assembler::{AssemblerSpec, TileAssembler};
use konkordia_core::image::CommittedImage;
use konkordia_core::latency::Meter;
use konkordia_core::ledger::{RunLedger, StreamLedger};
use konkordia_core::plan::{FirstFrame, GpuPlan, Plan, STRIPS_MAX};
use konkordia_core::ports::ServiceLevel;
use konkordia_core::ports::{FrameSink, Sink, SinkError, Source};
use konkordia_core::sender::{SenderFilter, Senders};
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart};
use konkordia_core::setup::{Finding, Seen};
pub use konkordia_kernels::constants::{CELLS, CellConstants, ConstantPlanes, PixelConstants};
use konkordia_kernels::isa::Isa;
use konkordia_kernels::unpack::Bits;
pub use konkordia_memory::cursor::Wakeups;
use konkordia_memory::ring::{Monitor, Ring, RingSpec, SnapshotSpec, TileWriter};
use konkordia_wire::formats::PacketFormat;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Everything that a run is made of.
pub struct RunParts {
    /// The plan.
    pub plan: Arc<Plan>,
    /// One source per stream, in stream order.
    pub sources: Vec<Box<dyn Source>>,
    /// Constants that fit the plan's recipe.
    pub constants: PixelConstants,
    /// At least one sink, mostly the file. The caller closes them when the run has ended.
    pub sinks: Vec<Box<dyn Sink>>,
    /// Who else gets the images.
    pub consumers: Consumers,
    /// Sinks of raw frames, mostly none.
    pub frame_sinks: Vec<Box<dyn FrameSink>>,
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// What makes the strips of images.
    pub workers: WorkerKind,
}

/// Who gets the images of a run beside its sinks.
#[derive(Default)]
pub struct Consumers {
    /// Their output queues, and the preview buffer. They get the start of the run when it begins; the caller ends it
    /// for them.
    pub output_queues: Arc<OutputQueues>,
    /// Describes the run. Size, type and number of the images come from the plan.
    pub start: SeriesStart,
    /// Looks at the images before anybody gets them; the plan says what its results are.
    pub analysis: Option<SeriesAnalysis>,
    /// True: the run waits for no consumer any more.
    pub give_up: Arc<AtomicBool>,
}

/// Why a run cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The parts do not fit the plan; the check of the configuration should have refused it before.
    #[error("the plan of the run is not consistent: {0}")]
    Plan(String),
    /// No memory for the ring.
    #[error("the ring of {slots} images needs {bytes} bytes: {source}\n  fix: set a smaller [run] buffer_mib")]
    Memory {
        /// Slots of the ring.
        slots: u64,
        /// Memory of the whole run.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The GPU that makes images cannot be used.
    #[error("{why}\n  fix: {fix}")]
    Gpu {
        /// What was tried, where, and why it failed.
        why: String,
        /// What to do.
        fix: String,
    },
}

/// Why a run failed.
#[derive(Debug)]
pub enum RunFailure {
    /// A source failed, that of this stream.
    Source(usize, io::Error),
    /// A sink failed.
    Sink(SinkError),
    /// The system could not start one of the threads.
    NoThread(io::Error),
    /// A thread of the run panicked, which is a mistake in the program. The ledger holds what is known and need not
    /// balance.
    Panicked(Panic),
}

impl RunFailure {
    /// Short name for reports and files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Source(..) => "source error",
            Self::Sink(_) => "sink error",
            Self::NoThread(_) => "no thread left",
            Self::Panicked(_) => "program error",
        }
    }
}

impl std::fmt::Display for RunFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(stream, error) => write!(f, "stream {stream}: {error}"),
            Self::Sink(error) => error.fmt(f),
            Self::NoThread(error) => write!(f, "the system could not start a thread for the run: {error}"),
            Self::Panicked(panic) => panic.fmt(f),
        }
    }
}

/// The result of a run.
pub struct RunOutcome {
    /// The ledger; check [`RunLedger::imbalances`].
    pub ledger: RunLedger,
    /// How it ended.
    pub ended: Ended,
    /// Why it failed, if it did.
    pub failure: Option<RunFailure>,
    /// Images that were committed: the length of the file.
    pub images: u64,
    /// Number of the first frame, if a packet came.
    pub first_frame: Option<u64>,
    /// Time from the first packet to the last one that was placed or found the ring full, as seen every 10 ms.
    pub receive_time: Duration,
    /// Time in which committed images could not go on because the sinks held all buffers of the pool.
    pub pool_waited: Duration,
    /// What each stream has seen of its packets.
    pub seen: Vec<Seen>,
    /// Where that contradicts the plan.
    pub findings: Vec<Finding>,
    /// How long its images took; files and consumers may still add to it.
    pub meter: Meter,
    /// What became of its images at their analysis.
    pub analysis: AnalysisCounts,
    /// What a GPU did, in a run with one.
    pub gpu: Option<GpuReport>,
    /// How often each thread behind the receivers woke up, by the name of the thread.
    pub wakeups: Vec<(String, Wakeups)>,
    /// The sinks, to be closed with the ledger.
    pub sinks: Vec<Box<dyn Sink>>,
    /// The sinks of raw frames.
    pub frame_sinks: Vec<Box<dyn FrameSink>>,
}

impl RunOutcome {
    /// How it ended, for reports and files: a failure has a name of its own.
    pub fn ended_name(&self) -> &'static str {
        self.failure.as_ref().map_or(self.ended.name(), RunFailure::name)
    }

    /// True if a thread of the run panicked; the ledger need not balance then.
    pub fn has_panicked(&self) -> bool {
        matches!(self.failure, Some(RunFailure::Panicked(_)))
    }

    /// True when every expected image is complete, nothing was dropped anywhere, and the detector is the one that was
    /// configured.
    pub fn is_complete(&self) -> bool {
        self.ledger.is_complete() && !self.findings.iter().any(|finding| finding.is_wrong)
    }

    /// True when the run is complete and no stream threw away as many duplicate and late packets as its part of an
    /// image has. So many could be another image, of a detector that restarted its frame count.
    pub fn is_success(&self) -> bool {
        self.is_complete() && !self.ledger.may_lack_an_image()
    }
}

/// A run that has everything it needs and waits for nothing but packets.
pub struct Armed {
    parts: RunParts,
    ring: Ring,
    pool: ImagePool,
    control: Arc<Control>,
    recipes: Arc<Recipes>,
    /// What each worker works with.
    means: Vec<Means>,
}

/// Checks the parts against the plan, maps and touches the ring, compiles the gather list.
///
/// # Errors
/// The parts do not fit together, or there is not enough memory.
pub fn arm(mut parts: RunParts) -> Result<Armed, ArmError> {
    check(&parts).map_err(ArmError::Plan)?;
    let plan = Arc::clone(&parts.plan);
    let format = *plan.geometry.format();
    let gather = plan.geometry.gather(plan.block_pixels());
    let packed_bytes_max = |blocks: Range<usize>| blocks.map(|b| plan.packed_block_bytes_max(gather.block_length(b))).sum();
    let snapshot = plan.processing.tracking.filter(|t| t.snapshot_images > 0).map(|t| SnapshotSpec {
        every_images: t.snapshot_images,
        slots: plan.snapshot_slots(),
        strip_pixels: plan.strips().map(|blocks| gather.pixels_of(blocks).len()).collect(),
    });
    let too_much = |source| ArmError::Memory { slots: plan.slots, bytes: plan.memory().iter().map(|m| m.bytes).sum(), source };
    let pool = ImagePool::new(&plan).map_err(|error| too_much(io::Error::other(error)))?;
    let shares = parts.workers.shares(&plan);
    let threads = thread_names(shares.len(), parts.frame_sinks.len());
    let mut ring = Ring::new(RingSpec {
        slots: plan.slots,
        packed_slots: plan.strip_slots(),
        frame_readers: parts.frame_sinks.len(),
        snapshot,
        tiles: plan.streams(),
        tile_bytes: format.tile_bytes() as usize,
        sections: format.sections as usize,
        payload_bytes: format.payload_bytes as usize,
        strip_bytes_max: plan.strips().map(packed_bytes_max).collect(),
        strip_numbers: numbers_of_strip(&plan),
        reserved_pages: plan.affinity.reserved_pages,
        shares,
    })
    .map_err(too_much)?;
    for (source, writer) in parts.sources.iter_mut().zip(&mut ring.receivers) {
        if source.filling().is_some() {
            if !plan.fills_slots {
                return Err(ArmError::Plan("a source fills slots, and the plan counts no spare tiles".into()));
            }
            writer.reserve_spare();
        }
    }
    let first_frame = match plan.first_frame {
        FirstFrame::Auto => None,
        FirstFrame::Number(n) => Some(n),
    };
    let mut control = Control::new(plan.streams(), parts.sinks.len(), first_frame, threads);
    if !plan.lossless_source {
        control.measure(plan.slots, plan.strip_slots());
    }
    control.analysis = parts.consumers.analysis.as_ref().map_or_else(AnalysisCounts::default, SeriesAnalysis::counts);
    let constants = std::mem::replace(&mut parts.constants, PixelConstants::None);
    let bits = if format.kind.counts_photons() { Bits::new(format.bits) } else { None };
    let recipes = Arc::new(Recipes::new(plan, gather, constants, parts.workers.isa(parts.isa), bits));
    let means = parts.workers.means(&recipes, &ring.workers).map_err(|Refused { why, fix }| ArmError::Gpu { why, fix })?;
    control.gpu = means.iter().find_map(|means| means.tally()).cloned();
    Ok(Armed { parts, ring, pool, control: Arc::new(control), recipes, means })
}

/// The names of the threads that the ring wakes, in the order of [`Monitor::wakeups`].
fn thread_names(workers: usize, frame_sinks: usize) -> Vec<String> {
    let numbered = |name: &'static str, count: usize| (0..count).map(move |n| format!("{name}-{n}"));
    numbered("work", workers).chain(["commit", "join"].map(String::from)).chain(numbered("raw", frame_sinks)).collect()
}

fn check(parts: &RunParts) -> Result<(), String> {
    let plan = &parts.plan;
    let pixels = plan.geometry.pixels();
    let expect = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_string()) };
    expect(parts.sources.len() == plan.streams(), "one source per stream")?;
    expect(!parts.sinks.is_empty(), "at least one sink")?;
    expect(plan.workers > 0 && plan.workers <= 1024, "1 to 1024 workers")?;
    let has_gpu = matches!(parts.workers, WorkerKind::Gpu(_));
    expect(has_gpu == plan.gpu.is_some(), "a GPU is in the plan and in the parts")?;
    let fits = |gpu: GpuPlan| (1..=plan.workers).contains(&gpu.workers) && (1..=100).contains(&gpu.share_percent);
    expect(plan.gpu.is_none_or(fits), "a GPU has some of the workers, and 1 to 100 percent of the strips")?;
    expect(plan.slots >= 4, "the ring of frames must have at least 4 slots")?;
    expect((1..=plan.slots / 2).contains(&plan.window_images), "window_images must be 1 to half of the slots")?;
    expect(plan.slots <= 1 << 20 && (1..=1 << 20).contains(&plan.packed_slots), "at most 2^20 slots")?;
    check_processing(plan)?;
    expect(plan.frames.is_none_or(|n| n <= IMAGES_MAX), "at most 2^48 images")?;
    let analysis = parts.consumers.analysis.as_ref();
    let (kinds, queue_images) = analysis.map_or((&[][..], 0), |analysis| (&analysis.kinds, analysis.queue_images as u64));
    expect(plan.analysis.kinds == kinds && plan.analysis.queue_images == queue_images, "the analysis is that of the plan")?;
    let blocks = pixels.div_ceil(plan.block_pixels());
    expect(blocks.div_ceil(plan.blocks_per_strip()) <= STRIPS_MAX, "too many strips")?;
    check_constants(plan, &parts.constants)
}

impl Armed {
    /// Stops and watches the run.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Takes images until the planned number, a stop, a time-out or an error. Blocks; returns when every thread has
    /// ended. A panic on one of them ends the run as [`RunFailure::Panicked`].
    pub fn run(self) -> RunOutcome {
        let Self { parts, ring, pool, control, recipes, means } = self;
        let plan = &*parts.plan;
        let (control, recipes) = (&*control, &recipes);
        let Consumers { output_queues, start, analysis, give_up } = parts.consumers;
        let start = start_of(plan, SeriesStart { meter: control.meter(), ..start });
        let give_up = Arc::new(move || give_up.load(Ordering::Acquire));
        std::thread::scope(|scope| {
            let mut threads = RunThreads { scope, control, broken: None };
            let mut receivers = Vec::new();
            for (stream, (source, writer)) in parts.sources.into_iter().zip(ring.receivers).enumerate() {
                let sorter = sorter(control, plan, stream, writer);
                let receiver = Receiver { source, sorter, drops_read_ns: 0, result: Ok(()) };
                receivers.push(threads.spawn(format!("rx-{stream}"), receiver, move |receiver| {
                    settle(&plan.affinity, &plan.affinity.receivers, stream);
                    receiver.run();
                }));
            }
            let mut workers = Vec::new();
            for (n, (worker, means)) in ring.workers.into_iter().zip(means).enumerate() {
                workers.push(threads.spawn(format!("work-{n}"), (), move |()| {
                    settle(&plan.affinity, &plan.affinity.workers, n);
                    work::run(control, recipes, means, worker);
                }));
            }
            let committer = ring.committer;
            let commit = threads.spawn("commit".into(), RunLedger::default(), move |ledger| {
                commit::run(control, plan, committer, ledger);
            });
            let (mut sinks, mut names) = (Vec::new(), Vec::new());
            for (n, sink) in parts.sinks.into_iter().enumerate() {
                let name = if n == 0 { FILE.to_owned() } else { format!("sink-{n}") };
                let reader = output_queues.add(queue_of_sink(&name, plan));
                let at_sink = AtSink { control, sink: n, written: 0, unwritten: 0, error: None, panic: None };
                let deliver = move |delivery: &mut Delivery<_, _>| delivery.run(reader, || control.now_ns());
                sinks.push(threads.spawn(format!("out-{name}"), Delivery::new(sink, at_sink), deliver));
                names.push(name);
            }
            let reader = ring.image_reader;
            let mut hand_over = HandOver::new(Arc::clone(&output_queues), give_up);
            let join = move |()| {
                hand_over.start(&Arc::new(start), analysis);
                strips::run(control, plan, reader, pool, &mut hand_over);
                hand_over.finish();
            };
            let joiner = threads.spawn("join".into(), (), |()| join(()));
            let mut copiers = Vec::new();
            for (n, (sink, reader)) in parts.frame_sinks.into_iter().zip(ring.frame_readers).enumerate() {
                let copy = move |copied: &mut Copied| copy::run(control, plan, reader, copied);
                copiers.push(threads.spawn(format!("raw-{n}"), Copied { sink, error: None }, copy));
            }
            let (ended, receive_time) = threads.supervise(plan, &ring.monitor);
            let streams = threads.join(receivers);
            threads.join(workers);
            let ledger = threads.join(vec![commit]).pop().unwrap_or_default();
            threads.join(vec![joiner]);
            for name in &names {
                output_queues.remove(name);
            }
            let (deliveries, copied) = (threads.join(sinks), threads.join(copiers));
            control.watch(&ring.monitor);
            if let Some(preview) = output_queues.preview() {
                preview.keep_copies();
            }
            if let Some(panic) = deliveries.iter().find_map(|delivery| delivery.reports.panic.clone()) {
                threads.fail(RunFailure::Panicked(panic));
            }
            let broken = threads.broken;
            close(control, plan, Closing { ended, broken, receive_time, streams, ledger, deliveries, copied })
        })
    }
}

/// Name of the output queue of the first sink.
const FILE: &str = "file";

/// The start of the run, for consumers.
fn start_of(plan: &Plan, start: SeriesStart) -> SeriesStart {
    let size = [u64::from(plan.geometry.rows()), u64::from(plan.geometry.columns())];
    let element = Some(Element::from(plan.pixel));
    let results = plan.result_kinds();
    SeriesStart { images_planned: plan.images(), image_size: Some(size), element, results, ..start }
}

/// The queue of a sink holds all images of the pool, so that the run waits for the pool only.
fn queue_of_sink(name: &str, plan: &Plan) -> OutputQueueSpec {
    OutputQueueSpec {
        name: name.into(),
        service: ServiceLevel::Reliable,
        queue_images: plan.pool_images() as usize + 1,
        queue_bytes: u64::MAX,
        borrows: true,
    }
}

/// Gets the reports on one sink of a run.
struct AtSink<'a> {
    control: &'a Control,
    sink: usize,
    /// Images with pixels that it took.
    written: u64,
    /// Images with pixels that came after it had failed.
    unwritten: u64,
    error: Option<SinkError>,
    panic: Option<Panic>,
}

impl Reports for AtSink<'_> {
    /// The run ends, with everything before intact.
    fn failed(&mut self, error: &SinkError, _: u64) {
        self.error.get_or_insert_with(|| error.clone());
        self.control.stop();
    }

    fn panicked(&mut self, panic: &Panic, _: u64) {
        self.panic.get_or_insert_with(|| panic.clone());
        self.control.fail();
    }

    fn ended(&mut self, _: &Arc<SeriesEnd>, _: u64) {}

    fn taken(&mut self, _: &CommittedImage) {
        self.written += 1;
    }

    fn missed(&mut self, _: &CommittedImage) {
        self.unwritten += 1;
    }

    fn passed(&mut self, image: &CommittedImage) {
        self.control.note_taken(self.sink, image.number + 1);
    }
}

/// The threads of a run. The state given to a thread outlives it, also when it panics: the ledger so far, or the sink
/// that must still be closed.
struct RunThreads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    control: &'scope Control,
    /// Why the run has failed.
    broken: Option<RunFailure>,
}

/// A thread that returns the state given to it; `None` = it could not be started.
type Member<'scope, S> = Option<ScopedJoinHandle<'scope, (S, Option<Panic>)>>;

impl<'scope> RunThreads<'scope, '_> {
    fn spawn<S: Send + 'scope>(
        &mut self,
        name: String,
        mut state: S,
        work: impl FnOnce(&mut S) + Send + 'scope,
    ) -> Member<'scope, S> {
        let control = self.control;
        let work = move || {
            let panic = contain(|| work(&mut state)).err();
            if panic.is_some() {
                control.fail();
            }
            (state, panic)
        };
        Builder::new().name(name).spawn_scoped(self.scope, work).map_err(|error| self.fail(RunFailure::NoThread(error))).ok()
    }

    /// Records why the run failed; the first cause counts.
    fn fail(&mut self, why: RunFailure) {
        self.control.fail();
        self.broken.get_or_insert(why);
    }

    fn join<S>(&mut self, threads: Vec<Member<'scope, S>>) -> Vec<S> {
        let mut states = Vec::new();
        for thread in threads.into_iter().flatten() {
            // Panics in the thread are contained, so this does not fail.
            let Ok((state, panic)) = thread.join() else { continue };
            states.push(state);
            if let Some(panic) = panic {
                self.fail(RunFailure::Panicked(panic));
            }
        }
        states
    }

    fn supervise(&mut self, plan: &Plan, monitor: &Monitor) -> (Ended, Duration) {
        contain(|| supervise(self.control, plan, monitor)).unwrap_or_else(|panic| {
            self.fail(RunFailure::Panicked(panic));
            (Ended::Stopped, Duration::ZERO)
        })
    }
}

/// Makes the sorter of a stream.
fn sorter<'a>(control: &'a Control, plan: &Plan, stream: usize, writer: TileWriter) -> Sorter<'a> {
    let format = plan.geometry.format().of_tile(stream);
    let first = FirstPackets::new(plan, &format);
    let spec = assembler_spec(plan);
    Sorter {
        control,
        stream,
        packets: PacketFormat::of(&format),
        format,
        writer,
        filled: None,
        newest: None,
        anchor: None,
        lossless: plan.lossless_source,
        assembler: TileAssembler::new(spec),
        ledger: StreamLedger::default(),
        is_strict: plan.setup.is_strict && !plan.lossless_source,
        seen: Seen::default(),
        is_opening: first.is_some(),
        first,
        filter: SenderFilter::new(if plan.lossless_source { Senders::Any } else { plan.setup.senders.clone() }),
        far_ahead_packets: FarAheadPackets::new(plan, &spec, &format),
        settling_images: plan.behind_images_max(),
        gap_part_images: plan.gap_part_images(),
    }
}

fn assembler_spec(plan: &Plan) -> AssemblerSpec {
    AssemblerSpec {
        packets: plan.geometry.format().packets() as u16,
        window_images: plan.window_images,
        gap_images_max: plan.gap_images_max(),
        jump_images_max: if plan.lossless_source { IMAGES_MAX } else { (plan.window_images / 2).max(1) },
        behind_images_max: plan.behind_images_max(),
        // A file that was read to its end has no more packets, so its open images need no deadline.
        deadline_ns: if plan.lossless_source { 0 } else { plan.deadline_ns },
        images: plan.frames.unwrap_or(IMAGES_MAX),
    }
}

/// Watches the run until it must end, ends the receivers, and waits until the sinks have taken all images. Returns why
/// the run ended and for how long packets came.
fn supervise(control: &Control, plan: &Plan, monitor: &Monitor) -> (Ended, Duration) {
    const GRAIN: Duration = Duration::from_millis(10);
    let armed = Instant::now();
    let (mut taken, mut first, mut last) = (0, None, armed);
    let has_enough = || plan.processing.selection.images_max.is_some_and(|n| monitor.published() >= n);
    let ended = loop {
        std::thread::sleep(GRAIN);
        control.watch(monitor);
        let progress = control.progress();
        // Packets that find the ring full show that a sink is slow, not that the detector has stopped.
        let judged = progress.packets.placed + progress.packets.no_slot;
        if judged > taken {
            taken = judged;
            last = Instant::now();
            first.get_or_insert(last);
        }
        if has_enough() || plan.frames.is_some_and(|n| monitor.received() >= n) {
            break Ended::Finished;
        }
        if control.is_stopping() || control.has_failed() {
            break Ended::Stopped;
        }
        if plan.lossless_source && control.all_quiet() {
            // Read again, because the last packets may have come since.
            break if control.progress().packets.placed > 0 { Ended::Finished } else { Ended::NoData };
        }
        match first {
            None if control.has_given_up() || armed.elapsed() > Duration::from_nanos(plan.start_timeout_ns) => {
                break Ended::NoData;
            }
            // A source that can wait is not stalled: it waits for the sinks.
            Some(_) if !plan.lossless_source && last.elapsed() > Duration::from_nanos(plan.stall_timeout_ns) => {
                break Ended::Stalled;
            }
            _ => {}
        }
    };
    // Datagrams that wait in the sockets are still taken, unless all images are there. Files are read until the frames
    // that were begun are complete.
    let patience = match plan.lossless_source {
        _ if has_enough() => Duration::ZERO,
        true => Duration::MAX,
        false => Duration::from_secs(1),
    };
    end_receiving(control, patience);
    // Writing the rest may take long; observers still see the progress.
    while control.taken_end() < control.images_end.load(Ordering::Acquire) && !control.has_failed() {
        control.watch(monitor);
        std::thread::sleep(Duration::from_millis(2));
    }
    control.watch(monitor);
    (ended, first.map_or(Duration::ZERO, |f| last.duration_since(f)))
}

/// Lets all streams drain, but not longer than `patience`, then halts them and sets the end.
fn end_receiving(control: &Control, patience: Duration) {
    let grain = || std::thread::sleep(Duration::from_millis(1));
    let started = Instant::now();
    while !control.all_quiet() && !control.has_failed() && started.elapsed() < patience {
        grain();
    }
    control.halt();
    while !control.all_halted() && !control.has_failed() {
        grain();
    }
    control.end.store(control.newest_end(), Ordering::Release);
}

struct Closing<'a> {
    ended: Ended,
    broken: Option<RunFailure>,
    receive_time: Duration,
    streams: Vec<Receiver<'a>>,
    /// Its streams are not entered yet.
    ledger: RunLedger,
    deliveries: Vec<Delivery<dyn Sink, AtSink<'a>>>,
    copied: Vec<Copied>,
}

/// Adds up the ledger. Planned images that did not come are counted separately: not taken after a stop, otherwise not
/// received.
fn close(control: &Control, plan: &Plan, closing: Closing<'_>) -> RunOutcome {
    let Closing { ended, broken, receive_time, streams, mut ledger, deliveries, copied } = closing;
    let passed = ledger.images.expected;
    ledger.written = deliveries.iter().map(|d| d.reports.written).min().unwrap_or(0);
    ledger.unwritten = deliveries.iter().map(|d| d.reports.unwritten).max().unwrap_or(0);
    ledger.images.veto(control.analysis.read().map_or(0, |tally| tally.vetoed));
    let is_broken = control.has_failed();
    if is_broken {
        // Committed images that no longer reached the sinks.
        ledger.unwritten = ledger.images.with_pixels().saturating_sub(ledger.written);
    }
    let (mut seen, mut errors) = (Vec::new(), Vec::new());
    for Receiver { sorter, result, .. } in streams {
        ledger.streams.push(sorter.ledger);
        seen.push(sorter.seen);
        if let Err(error) = result {
            errors.push(RunFailure::Source(sorter.stream, error));
        }
    }
    let mut frame_sinks = Vec::new();
    for copy in copied {
        frame_sinks.push(copy.sink);
        errors.extend(copy.error.map(RunFailure::Sink));
    }
    let mut sinks = Vec::new();
    for delivery in deliveries {
        sinks.push(delivery.sink);
        errors.extend(delivery.reports.error.map(RunFailure::Sink));
    }
    // If a thread failed, that caused all other errors.
    let failure = if is_broken { broken } else { errors.pop() };
    let ended = if failure.is_some() { Ended::Failed } else { ended };
    let has_enough = plan.processing.selection.images_max.is_some_and(|most| passed >= most);
    if !has_enough {
        let is_wanted = ended == Ended::Stopped;
        ledger.images.close(plan.images().unwrap_or(0), is_wanted);
        if !is_wanted {
            ledger.frames.absent = plan.frames.map_or(0, |planned| planned.saturating_sub(ledger.frames.passed));
        }
    }
    ledger.packets_per_image = plan.packets_per_image();
    RunOutcome {
        ledger,
        ended,
        failure,
        images: passed,
        first_frame: control.first_frame(),
        receive_time,
        pool_waited: Duration::from_nanos(control.pool_waited_ns.load(Ordering::Relaxed)),
        findings: setup::compare(plan, control, &seen, true),
        meter: control.meter(),
        gpu: control.gpu(),
        analysis: control.analysis.clone(),
        wakeups: control.wakeups(),
        seen,
        sinks,
        frame_sinks,
    }
}

/// The end of a run as consumers get it: its images. Its packets are not messages.
pub fn end_of_run(outcome: &RunOutcome) -> SeriesEnd {
    let ledger = SeriesLedger { images: outcome.ledger.images, ..SeriesLedger::default() };
    let reason = outcome.failure.as_ref().map_or(String::new(), RunFailure::to_string);
    SeriesEnd { ended: outcome.ended, reason, ledger }
}
