//! The parts of a UDP run: its configuration from the parameters of a command, its sockets from arm to
//! cancel, the preparation with everything that can fail, and the end with its files.

use super::open_file::OpenFile;
use super::status::{Live, Look, StatusMessage, image_totals, not_complete, totals_of};
use crate::fanout::Fanout;
use crate::handle::{ArmRequest, FileEntry, FileTotals, ModulePackets, Severity};
use crate::paths::Place;
use crate::readiness::{self, Demand};
use crate::run::arm::{Additions, Append, Ports, Prepared, prepare_with};
use crate::run::opened::{ClosingLedger, Opened};
use crate::run::raw_copy::RawCopy;
use crate::run::report::Report;
use crate::run::{angles, exit_of};
use crate::shapes::Drawing;
use crate::spool::Spool;
use konkordia_calibration::guard::Note;
use konkordia_config::service::DetectorConfig;
use konkordia_config::settings::WriterTakes;
use konkordia_config::writers::WriterSettings;
use konkordia_config::{Config, overrides};
use konkordia_core::array::Element;
use konkordia_core::experiment::Experiment;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ledger::{ImageLedger, RunLedger, StreamLedger};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Plan;
use konkordia_core::ports::Source;
use konkordia_core::protocol::Protocol;
use konkordia_core::sender::Sender;
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart};
use konkordia_core::setup::Finding;
use konkordia_core::text;
use konkordia_engine::contain::Panic;
use konkordia_engine::control::Control;
use konkordia_engine::run::{Consumers, GpuReport, RunOutcome, Wakeups, end_of_run};
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::whole::Whole;
use konkordia_sinks::hdf5::{FileReport, LedgerRecord, Metadata, RunFiles, master_path};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Total of packets from other senders. They are also counted as foreign, so the name must not look like that of a
/// verdict (`packets_VERDICT`).
const FROM_OTHER_SENDERS: &str = "from_strangers_packets";
/// Most batches that are thrown away before a run begins.
const DRAIN_BATCHES_MAX: usize = 100_000;

/// A source between arm and cancel: it throws away packets from before the run was armed, and delivers nothing after a
/// cancel.
struct ArmedSource {
    inner: Box<dyn Source>,
    common: Arc<ArmedSources>,
    is_drained: bool,
}

/// What the sources of a run share with its actor.
#[derive(Debug, Default)]
pub struct ArmedSources {
    early: Mutex<Early>,
    drained: Condvar,
    /// True: no packets are taken any more.
    pub is_cancelled: Arc<AtomicBool>,
}

/// Packets that came before the run was armed.
#[derive(Debug, Default)]
struct Early {
    /// Sockets that have thrown these packets away, or have failed.
    sockets_drained: usize,
    packets: u64,
}

impl ArmedSources {
    /// Waits until all sockets are drained, at most 0.5 s: a detector may send faster than packets can be thrown away.
    /// Returns the number of early packets so far.
    pub fn wait_until_drained(&self, streams: usize) -> u64 {
        const LONGEST: Duration = Duration::from_millis(500);
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let drained = self.drained.wait_timeout_while(early, LONGEST, |early| early.sockets_drained < streams);
        drained.unwrap_or_else(PoisonError::into_inner).0.packets
    }

    fn note_drained(&self, packets: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.sockets_drained += 1;
        early.packets += packets;
        self.drained.notify_all();
    }
}

impl ArmedSource {
    /// Throws away what is in the socket.
    fn drain(&mut self) -> io::Result<()> {
        self.is_drained = true;
        let (mut early, mut result) = (0, Ok(()));
        for _ in 0..DRAIN_BATCHES_MAX {
            match self.inner.receive(Duration::ZERO, &mut |_, _| ()) {
                Ok(0) => break,
                Ok(count) => early += count as u64,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.common.note_drained(early);
        result
    }
}

impl Source for ArmedSource {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        if !self.is_drained {
            self.drain()?;
        }
        if self.common.is_cancelled.load(Ordering::Relaxed) {
            // The run ends within a timeout or two; until then this thread must not spin.
            std::thread::sleep(timeout);
            return Ok(0);
        }
        self.inner.receive(timeout, take)
    }

    fn dropped(&mut self) -> u64 {
        self.inner.dropped()
    }
}

/// The counters of a UDP run in progress.
pub struct UdpLive {
    control: Arc<Control>,
    plan: Arc<Plan>,
    files: RunFiles,
    raw_copy: Option<RawCopy>,
    writes: bool,
    streams_per_module: usize,
}

impl Live for UdpLive {
    fn modules(&self) -> Vec<ModulePackets> {
        let by_stream = self.control.by_stream();
        let one = |(module, streams): (usize, &[(StreamLedger, u64)])| {
            let sum = |count: fn(&StreamLedger) -> u64| streams.iter().map(|(ledger, _)| count(ledger)).sum();
            ModulePackets {
                module,
                received_packets: sum(|ledger| ledger.received),
                lost_packets: streams.iter().map(|(_, lost)| lost).sum(),
                kernel_dropped_packets: sum(|ledger| ledger.kernel_dropped),
                no_slot_packets: sum(|ledger| ledger.no_slot),
                late_packets: sum(|ledger| ledger.late),
            }
        };
        by_stream.chunks(self.streams_per_module).enumerate().map(one).collect()
    }

    fn look(&self) -> Look {
        let p = self.control.progress();
        let [lost, complete, partial, discarded, _] = p.images_by_status;
        let written = if self.writes { p.images_written } else { 0 };
        let expected = p.images_committed;
        let mut images = ImageLedger { expected, complete, partial, lost, discarded, ..ImageLedger::default() };
        images.veto(self.control.analysis().read().map_or(0, |tally| tally.vetoed));
        let (ledger, mut totals) = account(&p.packets, p.packets_of_others, &images);
        totals.extend(wakeup_totals(&self.control.wakeups()));
        totals.extend(gpu_totals(self.control.gpu().as_ref()));
        let fill = |used: u64, of: u64| (used as f64 / of.max(1) as f64).min(1.0);
        Look {
            expected: self.plan.images(),
            committed: p.images_committed,
            written,
            // Known only at the end: a sink that fails ends the run, and the ledger says what it did not take.
            unwritten: 0,
            durable: self.files.shared().durable_end(),
            raw_durable: self.raw_copy.as_ref().map(RawCopy::durable_end),
            moves: None,
            lost,
            partial,
            not_taken: 0,
            not_received: 0,
            ledger,
            queues: [
                ("ring".to_string(), fill(p.slots_used, self.plan.slots)),
                ("packed_ring".to_string(), fill(p.images_waiting, self.plan.packed_slots)),
            ]
            .into(),
            meter: self.control.meter(),
            counters: vec![
                ("received_packets_hz", p.packets.received),
                ("received_bytes_per_s", p.packets.received_bytes),
                ("received_hz", p.images_seen),
                ("committed_hz", p.images_committed),
                ("written_hz", written),
                ("written_bytes_per_s", if self.writes { self.files.shared().bytes() } else { 0 }),
            ],
            totals,
        }
        .with_analysis(self.control.analysis())
    }
}

/// The configuration of one run.
pub struct ArmParameters {
    /// The configuration to run. Its own start time-out is off, because the actor keeps that time.
    pub config: Config,
    /// Time from start to the first packet, ns; `u64::MAX` = no limit.
    pub start_timeout_ns: u64,
    /// Files are written.
    pub write: bool,
    /// The prefix that the command gave.
    pub asked: Option<String>,
    /// The file stays open behind the run.
    pub append: Option<Append>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl ArmParameters {
    /// The master file, if files are written.
    pub fn master(&self) -> Option<String> {
        self.write.then(|| master_path(&self.config.directory, &self.config.prefix).display().to_string())
    }
}

/// The configuration of this run, from the parameters of a command. `open` is the file that is still open.
pub fn parameters(
    base: &DetectorConfig,
    (place, own): (&Place, &Config),
    (run, open): (u64, Option<&OpenFile>),
    request: &ArmRequest,
) -> Result<ArmParameters, Failure> {
    let mut config = own.clone();
    match request.images {
        None => {}
        Some(0) => config.images = None,
        Some(n) if n <= 1 << 40 => config.images = Some(n),
        Some(n) => {
            let what = format!("a run cannot have {n} images");
            return Err(Failure::new(Exit::Configuration, what, "at most 2^40 are possible", "give fewer, or 0 = until stopped"));
        }
    }
    let metadata: Metadata = overrides::metadata(&request.metadata)?;
    config.metadata = metadata.over(config.metadata);
    config.given.clone_from(&request.metadata);
    let write = request.write.unwrap_or(base.write);
    let append = request.append.then(|| append((own, base.writers()), write, open, request)).transpose()?;
    if let Some((directory, prefix, given)) = open.filter(|_| append.is_some()).map(OpenFile::place) {
        (config.directory, config.prefix) = (directory, prefix);
        config.metadata = overrides::metadata(&given)?.over(own.metadata.clone());
        config.given = given;
    } else if write || !base.writers().is_empty() {
        let target = match &request.prefix {
            Some(name) => place.target(name)?,
            None => place.numbered(&own.prefix, run, own.overwrite)?.1,
        };
        if let Some(archive_copy) = config.archive_copy.as_mut() {
            archive_copy.prefix = format!("{}_travel", target.prefix);
        }
        (config.directory, config.prefix) = (target.directory, target.prefix);
    }
    if !write {
        (config.archive_copy, config.keep_raw) = (None, false);
    }
    let notes = refuse_types(base, config.pixel)?;
    let start_timeout_ns = std::mem::replace(&mut config.start_timeout_ns, u64::MAX);
    Ok(ArmParameters { config, start_timeout_ns, write, asked: request.prefix.clone(), append, notes })
}

/// Appends a run to the file that is open, or to the one that its own run opens.
fn append(
    (own, writers): (&Config, &[WriterSettings]),
    write: bool,
    open: Option<&OpenFile>,
    request: &ArmRequest,
) -> Result<Append, Failure> {
    let what = "the file of a run cannot stay open for the next one";
    let refuse = |why: &str, fix: &str| Err(Failure::new(Exit::Configuration, what, why, fix));
    if !write {
        return refuse("no file is written", "leave out `write` = false, or `append`");
    }
    if own.keep_raw || own.archive_copy.is_some() || own.spool.is_some() {
        let why = "raw frames, an archive copy and a spool belong to one run each";
        return refuse(why, "remove keep_raw, [archive_copy] and the spool from the configuration, or arm without `append`");
    }
    if let Some(writer) = writers.iter().find(|writer| writer.takes == WriterTakes::Raw) {
        let why = format!("the writer '{}' takes raw frames, which belong to one run each", writer.name);
        return refuse(&why, "arm without `append`, or remove this [[writer]]");
    }
    open.map_or_else(|| Ok(Append::default()), |open| open.append(request.prefix.as_ref(), &request.metadata))
}

/// Refuses pixel types that a consumer's protocol cannot carry. Returns notes about types that the usual clients of a
/// protocol do not know.
fn refuse_types(base: &DetectorConfig, pixel: PixelType) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    for consumer in &base.consumers {
        let protocol = consumer.protocol;
        if let Some(carried) = protocol.refuses(Element::from(pixel)) {
            let what = format!("dtype = \"{pixel}\" cannot be sent to the consumer '{}' ({})", consumer.name, protocol.name());
            let fix = format!("set dtype = {} in [processing], or protocol = \"stins\" for this consumer", carried.dtypes);
            return Err(Failure::new(Exit::Configuration, what, carried.why, fix));
        }
        if protocol == Protocol::DectrisV2 && !pixel.is_unsigned() {
            notes.push(format!(
                "the consumer '{}' gets {pixel} in Stream V2, but the detectors of this protocol send only unsigned pixels: if its program cannot read signed ones, set dtype = \"uint16\" or \"uint32\"",
                consumer.name
            ));
        }
    }
    Ok(notes)
}

/// A run that is ready.
pub struct Ready {
    /// The run and its files.
    pub prepared: Prepared,
    /// The configuration that it was prepared with.
    pub parameters: ArmParameters,
    /// Its sockets.
    pub sources: Arc<ArmedSources>,
    /// Its counters.
    pub live: Arc<UdpLive>,
}

/// Does everything that can fail before the first packet. On an error nothing is left behind.
///
/// `note` gets remarks on the images while the run goes on.
pub fn ready(
    parameters: ArmParameters,
    fanout: &Fanout,
    spool: Option<&Arc<Spool>>,
    drawing: &Drawing,
    run: u64,
    note: &dyn Fn() -> Note,
) -> Result<Ready, Failure> {
    let config = &parameters.config;
    let disk = |plan: &Plan| {
        let demand = Demand::of(config, plan);
        let notes = match &config.spool {
            None => readiness::disk(&config.directory, &demand)?,
            Some(spool) => readiness::spooled(&config.directory, spool, &demand)?,
        };
        if let Some(archive_copy) = &config.archive_copy {
            konkordia_repack::archive_copy::check(archive_copy, config.overwrite)?;
        }
        Ok(notes)
    };
    let sources = Arc::new(ArmedSources::default());
    let consumers = || Consumers {
        output_queues: Arc::clone(&fanout.output_queues),
        start: series_start(&parameters, run),
        analysis: None,
        give_up: Arc::clone(&sources.is_cancelled),
    };
    let wrap = |inner| -> Box<dyn Source> { Box::new(ArmedSource { inner, common: Arc::clone(&sources), is_drained: false }) };
    let additions = Additions {
        write: parameters.write,
        spool,
        drawing: Some(drawing),
        append: parameters.append.as_ref(),
        disk: parameters.write.then_some(&disk as _),
        note,
        has_writers: fanout.has_writers(),
        raw_writers: fanout.raw_writers(),
        consumers: &consumers,
        wrap: &wrap,
        sink: None,
    };
    let mut prepared = prepare_with(config, Ports::Configured, &additions)?;
    prepared.notes.splice(0..0, parameters.notes.iter().cloned());
    let (control, plan) = (prepared.armed.control(), Arc::clone(&prepared.plan));
    let (files, raw_copy) = (prepared.opened.files.clone(), prepared.opened.raw_copy.clone());
    let streams_per_module = (plan.streams() / (config.modules as usize).max(1)).max(1);
    let live = UdpLive { control, plan: Arc::clone(&plan), files, raw_copy, writes: parameters.write, streams_per_module };
    Ok(Ready { prepared, parameters, sources, live: Arc::new(live) })
}

fn series_start(parameters: &ArmParameters, run: u64) -> SeriesStart {
    let config = &parameters.config;
    let m = &config.metadata;
    let facts = Metadata {
        start_time: Some(clock::now()),
        experiment: Experiment {
            goniometer: angles::in_steps_of(m.experiment.goniometer, angles::step(&config.options.processing.selection)),
            ..m.experiment.clone()
        },
        ..m.clone()
    };
    SeriesStart {
        series: run,
        unique_id: format!("{}-{run}-{}", config.prefix, clock::now()),
        filename: parameters.master(),
        facts,
        store: true,
        ..SeriesStart::default()
    }
}

/// A run that is over, with its files closed or not.
pub struct Finished {
    /// The final counters.
    pub look: Look,
    /// How it ended.
    pub ended: &'static str,
    /// In words.
    pub status_message: StatusMessage,
    /// The detector is in error.
    pub failed: bool,
    /// The closed files of this run, or of several runs.
    pub file: Option<FileEntry>,
    /// Of a part of the image: the master of the whole image, or why there is none.
    pub whole: Option<Result<Whole, String>>,
    /// What was wrong with the set-up.
    pub findings: Vec<Finding>,
    /// What should be known of the analysis of its images.
    pub analysis: Option<String>,
    /// What a GPU did.
    pub gpu: Option<GpuReport>,
    /// Frames that the run had, by their numbers.
    pub frames: Option<std::ops::Range<u64>>,
    /// The file of the run, if it stays open.
    pub open_file: Option<OpenFile>,
    /// For consumers.
    pub end: Arc<SeriesEnd>,
}

/// Why a run ended, where the engine cannot know.
#[derive(Clone, Debug, Default)]
pub struct Reason {
    /// It was cancelled.
    pub cancelled: bool,
    /// Why it ended without data, in words.
    pub waited_for: Option<String>,
}

/// What is needed to end a run.
pub struct Closing {
    /// Name of the detector.
    pub detector: String,
    /// Configuration of the run.
    pub config: Config,
    /// Its files and streams.
    pub opened: Opened,
    /// Number of the run.
    pub run: u64,
    /// Files are written.
    pub writes: bool,
    /// The system's count of datagrams to closed ports when the run began.
    pub stray: Option<u64>,
    /// The file that is to stay open behind the run.
    pub open_file: Option<OpenFile>,
}

impl Closing {
    /// The entry in the list of files, of the closed ones of this run.
    fn entry(&self, file: &FileReport, has_failed: bool, is_complete: bool, ended: &str) -> FileEntry {
        let (images_expected, unpacked_bytes) = (self.config.images, self.opened.files.shared().unpacked_bytes());
        let totals = FileTotals { images: file.images, images_expected, bytes: file.chunk_bytes, unpacked_bytes };
        let writing = FileEntry::writing(&self.detector, self.run, &file.master.display().to_string());
        writing.closed(has_failed, is_complete, totals, ended)
    }
}

/// Closes the files and sums up.
pub fn finish(closing: &mut Closing, outcome: &RunOutcome, images_seen: u64, reason: &Reason) -> Finished {
    let is_cancelled = reason.cancelled && outcome.ended == Ended::Stopped;
    let ended = if is_cancelled { Ended::Cancelled.name() } else { outcome.ended_name() };
    let ClosingLedger { names, mut record, host } = closing.opened.closing_ledger(&closing.config, outcome);
    if reason.cancelled {
        record.ended = ended.into();
    }
    closing.opened.tell_writers(&record, outcome);
    let (_, mut failure) = exit_of(outcome, closing.config.images.is_some(), false);
    let mut open_file = closing.open_file.take();
    if let Some(open) = &mut open_file {
        open.add(record.clone(), outcome, closing.config.images);
    }
    let is_nothing = reason.cancelled && outcome.images == 0 && open_file.as_ref().is_none_or(|open| open.runs() == 1);
    let stays_open = open_file.is_some() && !reason.cancelled && failure.is_none() && closing.opened.files.pause().is_ok();
    let spooled = closing.opened.spooled.as_ref();
    let closed = match &open_file {
        Some(_) if stays_open => None,
        Some(open) if !is_nothing => open.finish(),
        _ if is_nothing => closing.opened.files.finish(&record),
        _ => closing.opened.finish(&record),
    };
    let file = closed.transpose();
    // A raw copy without frames removes its files when it is dropped unfinished.
    let copy = closing.opened.raw_copy.as_ref().filter(|_| !is_nothing);
    let raw = copy.and_then(RawCopy::finish).transpose();
    let file = file.map_err(|error| failure.get_or_insert_with(|| error.into()).clone()).unwrap_or_default();
    if let Err(error) = raw {
        failure.get_or_insert(error);
    }
    let report = Report::new(&closing.config, &names, outcome, file);
    let report = report.with_receiving(&closing.opened.receiving).with_host(host).with_stray(closing.stray, outcome);
    let mut kept = report.file().map(|file| match &open_file {
        Some(open) => open.entry(&closing.detector, Some(file), failure.is_some()),
        None => closing.entry(file, failure.is_some(), failure.is_none() && outcome.is_complete() && outcome.images > 0, ended),
    });
    if is_nothing && failure.is_none() {
        report.file().into_iter().for_each(remove);
        kept = None;
    }
    if let Some(run) = spooled.filter(|_| is_nothing) {
        if failure.is_none() { run.abandon() } else { run.leave() }
    }
    let (first, mut look, end) = (outcome.first_frame, last_look(outcome), end_of_run(outcome));
    look.durable = closing.opened.files.shared().durable_end();
    look.moves = spooled.map(|run| run.durable());
    look.raw_durable = closing.opened.raw_copy.as_ref().map(RawCopy::durable_end);
    if !closing.writes {
        look.written = 0;
    }
    Finished {
        look,
        ended,
        status_message: sum_up(closing.run, outcome, ended, &report, failure.as_ref(), reason),
        failed: failure.is_some(),
        whole: report.file().filter(|_| !is_nothing).and_then(|file| file.whole.clone()),
        file: kept,
        open_file: open_file.filter(|_| stays_open),
        findings: outcome.findings.clone(),
        analysis: outcome.analysis.warning(),
        gpu: outcome.gpu.clone(),
        frames: first.map(|first| first..first + images_seen),
        end: Arc::new(if is_cancelled { SeriesEnd { ended: Ended::Cancelled, ..end } } else { end }),
    }
}

/// The end of a run whose closing panicked. Its files stay as after a crash and can be repaired.
pub fn broken_off(closing: &Closing, mut look: Look, panic: &Panic) -> Finished {
    let ended = Ended::Failed;
    if let Some(file) = &closing.opened.run_file {
        // It has no ledger.
        let _ = file.ledger.set(String::new());
    }
    if let Some(far) = &closing.opened.raw_far {
        far.finish(&LedgerRecord::default(), 0, |_| String::new());
    }
    let images = ImageLedger { expected: look.committed, lost: look.lost, partial: look.partial, ..ImageLedger::default() };
    let ledger = SeriesLedger { images, ..SeriesLedger::default() };
    let master = master_path(&closing.config.directory, &closing.config.prefix);
    look.totals.push(("runs_program_error".into(), 1));
    Finished {
        whole: None,
        ended: "program error",
        status_message: StatusMessage::failure(&panic.into()),
        failed: true,
        file: closing.writes.then(|| {
            let totals = FileTotals { images: look.written, ..FileTotals::default() };
            FileEntry::writing(&closing.detector, closing.run, &master.display().to_string()).closed(
                true,
                false,
                totals,
                "program error",
            )
        }),
        open_file: None,
        findings: Vec::new(),
        analysis: None,
        gpu: None,
        frames: None,
        end: Arc::new(SeriesEnd { ended, reason: panic.to_string(), ledger }),
        look,
    }
}

/// Removes the files of a run that ended before anything arrived, so that its name is free again.
fn remove(file: &FileReport) {
    for path in std::iter::once(&file.master).chain(&file.data_files) {
        let _ = std::fs::remove_file(path);
    }
    let prefix = file.master.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix("_master.h5"));
    if let (Some(folder), Some(prefix)) = (file.master.parent(), prefix) {
        let _ = std::fs::remove_file(folder.join(konkordia_sinks::hdf5::pedestal_file_name(prefix)));
    }
}

/// Removes the files of a prepared run that is not wanted any more.
pub fn discard(ready: Ready) {
    let Prepared { armed, opened, .. } = ready.prepared;
    // The sockets close first, because the next arm may need them.
    drop(armed);
    if ready.parameters.append.is_some_and(|append| append.behind.is_some()) {
        return;
    }
    let record = LedgerRecord { ended: "cancelled".into(), ..LedgerRecord::default() };
    if let Some(Ok(file)) = opened.files.finish(&record) {
        remove(&file);
    }
    if let Some(run) = &opened.spooled {
        run.abandon();
    }
}

/// Packets and images by state, as rows of the ledger and as additions to the totals of the detector.
fn account(packets: &StreamLedger, from_other_senders: u64, images: &ImageLedger) -> (BTreeMap<String, u64>, Vec<(String, u64)>) {
    let rows = packets.rows();
    let own = |(n, v): &(&str, u64)| ((*n).to_string(), *v);
    let strangers = |name: &str| [(name.to_string(), from_other_senders)];
    let ledger = rows.iter().map(own).chain(strangers("from_strangers")).chain(image_totals(images));
    let totals = totals_of("packets", &rows).chain(strangers(FROM_OTHER_SENDERS)).chain(image_totals(images));
    (ledger.collect(), totals.collect())
}

/// The wake-ups of each thread of a run as additions to the totals of a detector: all, and those that found nothing.
fn wakeup_totals(threads: &[(String, Wakeups)]) -> impl Iterator<Item = (String, u64)> {
    threads.iter().flat_map(|(thread, Wakeups { with_work, without_work })| {
        [(format!("wakeups_{thread}"), with_work + without_work), (format!("idle_wakeups_{thread}"), *without_work)]
    })
}

/// What a GPU did, and whether it was given up.
fn gpu_totals(gpu: Option<&GpuReport>) -> impl Iterator<Item = (String, u64)> {
    let counts = |gpu: &GpuReport| {
        let given_up = u64::from(gpu.failure.is_some());
        [("gpu_strips", gpu.strips), ("gpu_strips_by_processor", gpu.strips_by_processor), ("gpu_given_up", given_up)]
    };
    gpu.map(counts).into_iter().flatten().map(|(name, count)| (name.to_string(), count))
}

fn last_look(outcome: &RunOutcome) -> Look {
    let RunLedger { images, written, unwritten, .. } = &outcome.ledger;
    let from_other_senders = outcome.seen.iter().map(|seen| seen.other_senders.packets()).sum();
    let (mut ledger, mut totals) = account(&outcome.ledger.total(), from_other_senders, images);
    ledger.extend(outcome.ledger.rows().iter().map(|(n, v)| {
        let name = if n.starts_with("packets") || n.starts_with("frames") { (*n).to_string() } else { format!("images_{n}") };
        (name, *v)
    }));
    totals.extend(wakeup_totals(&outcome.wakeups));
    totals.extend(gpu_totals(outcome.gpu.as_ref()));
    totals.push(("images_unwritten".into(), *unwritten));
    totals.push((format!("runs_{}", outcome.ended_name().replace(' ', "_")), 1));
    Look { written: *written, unwritten: *unwritten, ledger, totals, meter: outcome.meter.clone(), ..Look::of(images) }
        .with_analysis(&outcome.analysis)
}

fn sum_up(
    run: u64,
    outcome: &RunOutcome,
    ended: &str,
    report: &Report,
    failure: Option<&Failure>,
    reason: &Reason,
) -> StatusMessage {
    let wrong = outcome.ledger.imbalances();
    // After a panic the sums do not balance. The panic is what to report.
    if let (Some(wrong), false) = (wrong.first(), outcome.has_panicked()) {
        let hint = Some("please report this: it is a bug in konkordia".into());
        return StatusMessage {
            message: format!("run {run}: the ledger does not balance: {wrong}"),
            severity: Severity::Error,
            hint,
        };
    }
    if let Some(failure) = failure {
        return StatusMessage::failure(failure);
    }
    let i = &outcome.ledger.images;
    let wrong_setup = report.setup().iter().find(|finding| finding.is_wrong);
    let hint = wrong_setup.map(|finding| finding.fix.clone()).or_else(|| report.advice().first().cloned());
    let cause = wrong_setup.map_or(String::new(), |finding| format!("; wrong set-up: {}", finding.what));
    if outcome.images == 0 && reason.cancelled {
        return StatusMessage::info(format!("run {run} was cancelled before an image came"));
    }
    if outcome.images == 0 || i.complete + i.partial == 0 {
        let why = reason.waited_for.as_ref().map_or(String::new(), |why| format!(": {why}"));
        return StatusMessage {
            message: format!("run {run} has no image ({ended}){why}{cause}"),
            severity: Severity::Warning,
            hint,
        };
    }
    let severity = if outcome.is_success() && outcome.ended != Ended::Stalled { Severity::Success } else { Severity::Warning };
    let mut message =
        format!("run {run} has ended ({ended}): {} of {} images complete", text::count(i.complete), text::count(i.expected));
    message.push_str(&not_complete(i));
    let not_kept = outcome.ledger.packets_not_kept();
    if not_kept > 0 {
        message.push_str(&format!(", {} packets arrived twice or too late and were not used", text::count(not_kept)));
    }
    message.push_str(&cause);
    StatusMessage { message, severity, hint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn an_arm_waits_for_all_sockets_and_not_longer() {
        let sources = Arc::new(ArmedSources::default());
        let of_thread = Arc::clone(&sources);
        sources.note_drained(3);
        let thread = std::thread::spawn(move || of_thread.note_drained(4));
        // One wait is enough, unless the machine takes longer than the limit for the other thread.
        while sources.wait_until_drained(2) < 7 {}
        thread.join().unwrap();
        let begun = Instant::now();
        assert_eq!(sources.wait_until_drained(3), 7, "a socket that is never empty is not waited for for ever");
        assert!(begun.elapsed() >= Duration::from_millis(500));
    }
}
