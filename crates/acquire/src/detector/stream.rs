//! A detector that sends whole images. Its sockets stay open for the life of the service. Series follow each other;
//! they are begun by the sender, or after an arm. The stream path reports the progress of a series, and the file thread
//! reports when its files are closed.

use super::actor::{self, Driver, Outbox, Prepare};
use super::base::Base;
use super::driven::Driven;
use super::expected::differences;
use super::file_names::{Namer, main_file};
use super::status::{Machine, Shared, StatusMessage};
use super::stream_parts::{
    ArmParameters, SeriesLive, check_file, check_folder, default_parameters, look_of, parameters, spec, sum_up, totals_between,
    upstreams,
};
use super::{FILE, Handle};
use crate::analysis::live;
use crate::control_driver::Expected;
use crate::control_order::of_stream;
use crate::events::EventLog;
use crate::fanout::{Fanout, NumberedRun, Ring};
use crate::handle::{ArmRequest, FileEntry, FileTotals, Severity};
use crate::hooks::About;
use crate::paths::Place;
use crate::shapes::RunMask;
use crate::spool::{CurrentRun, Spool, SpooledSink};
use arc_swap::ArcSwap;
use konkordia_config::recipe::Recipe;
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_config::settings::ServiceSettings;
use konkordia_config::stream::StreamConfig;
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::image::CommittedImage;
use konkordia_core::latency::Meter;
use konkordia_core::ports::ServiceLevel;
use konkordia_core::ports::SinkError;
use konkordia_core::series::{Ended, SeriesEnd, SeriesStart};
use konkordia_core::state::{Event, State};
use konkordia_engine::deliver::{self, Reports};
use konkordia_engine::output_queue::{OutputQueue, OutputQueueSpec, OutputQueues};
use konkordia_engine::series::{ArmOrder, Notice, Series, SeriesControl, SeriesSpec, Upstream};
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{FileSink, SeriesTarget, SharedState, facts_of_series};
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Images that may wait for the file, in addition to the limit in bytes.
const FILE_QUEUE_IMAGES: usize = 4096;

/// What threads report.
pub enum Report {
    /// From the stream path.
    Notice(Notice),
    /// From the file thread.
    File(FileReport),
}

/// What the file thread reports, one series after the other.
pub enum FileReport {
    /// The series is written to this master file.
    Opened(String),
    /// The sink failed.
    Failed(SinkError),
    /// The files are closed. The text says why images do not fit them, if some do not.
    Closed(InFile, Option<String>),
}

/// The contents of a closed file.
#[derive(Clone, Copy)]
pub struct InFile {
    /// Images with pixels.
    images: u64,
    /// Images that arrived, were to be written, and are not in the file.
    unwritten: u64,
    /// All positions.
    positions: u64,
    /// Positions that are on the disk.
    durable: Option<u64>,
    /// Bytes of the images as they are packed.
    bytes: u64,
    /// Bytes of their pixels.
    unpacked_bytes: u64,
}

/// A series that has not ended, or whose files are not closed.
struct Open {
    run: u64,
    file: Option<String>,
    end: Option<Arc<SeriesEnd>>,
    error: Option<SinkError>,
    /// `None` while it is being written.
    in_file: Option<InFile>,
    has_data: bool,
    waited_for: Option<String>,
    /// What its first message says otherwise than the driver has asked for.
    differs: Option<String>,
    /// How long its images took.
    meter: Meter,
    /// What became of them at their analysis.
    analysis: AnalysisCounts,
}

/// The parts of a stream path that is not open yet.
struct Path(SeriesSpec, Vec<Upstream>);

impl Path {
    fn of(base: &Base, config: &StreamConfig, parameters: &Arc<Mutex<ArmParameters>>) -> Result<Self, Failure> {
        let (mut spec, upstreams) = (spec(config, base.fanout.began)?, upstreams(config)?);
        if let Some(options) = &config.analysis {
            // What is wrong in it is said now, and not when the first series begins.
            Recipe::load(&options.recipe)?;
        }
        let (parameters, shapes) = (Arc::clone(parameters), Arc::clone(&base.machine.shared.shapes));
        let given = move || parameters.lock().unwrap_or_else(PoisonError::into_inner).metadata.clone();
        let (options, metadata) = (config.analysis.clone(), config.image_metadata.clone());
        let sum_frames = config.transform.sum_frames.unwrap_or(1);
        spec.analysis = Some(live::OfSeries { options, metadata, sum_frames, given: Box::new(given), shapes }.factory());
        let listens: Vec<String> = upstreams.iter().map(|upstream| upstream.source.name()).collect();
        base.machine.publish(|status| status.listens = listens);
        Ok(Self(spec, upstreams))
    }

    /// Opens the path, and passes its notices on to the actor.
    fn open(self, base: &Base, output_queues: &Arc<OutputQueues>, outbox: &Outbox<Stream>) -> Result<Series, Failure> {
        let fail = |why: String| cannot_open(base, why);
        let series = konkordia_engine::series::open(self.0, self.1, Arc::clone(output_queues)).map_err(|error| fail(error.0))?;
        let (notices, outbox) = (series.notices().clone(), outbox.clone());
        // This thread ends with the program only: everybody who holds the control keeps the channel open.
        let pass = move || while notices.recv().is_ok_and(|notice| outbox.report(Report::Notice(notice))) {};
        let passes = Builder::new().name("notices".into()).stack_size(128 << 10).spawn(pass);
        passes.map_err(|error| fail(reason(&error)))?;
        Ok(series)
    }
}

fn cannot_open(base: &Base, why: String) -> Failure {
    let what = format!("the detector '{}' cannot be opened", base.config.name);
    Failure::new(Exit::Configuration, what, why, "correct its configuration")
}

/// The driver of stream detectors.
pub struct Stream {
    outbox: Outbox<Self>,
    config: Arc<StreamConfig>,
    place: Place,
    series: Option<Series>,
    /// The control of the open stream path. After a panic has ended a path, the new path puts its own here.
    control: Arc<ArcSwap<SeriesControl>>,
    files: Arc<SharedState>,
    output_queue: Arc<OutputQueue>,
    output_queues: Arc<OutputQueues>,
    /// Arm parameters of the next series, shared with the file sink.
    parameters: Arc<Mutex<ArmParameters>>,
    /// Open series, oldest first. There are several only while files of older ones are being closed.
    open: VecDeque<Open>,
    /// Reports of the file thread about series whose start the stream path has not reported yet: the file thread may be
    /// faster.
    file_reports: VecDeque<FileReport>,
    /// When it was armed, and when the time limit for the first data began.
    armed: Option<(Instant, Option<Instant>)>,
    /// The first message of the series that followed the arm.
    header: Option<Arc<SeriesStart>>,
    /// What it must say.
    expected: Option<Expected>,
    waited_for: Option<String>,
    file_thread: Option<JoinHandle<()>>,
}

/// Reports to the actor what the file sink does.
struct FileReports {
    outbox: Outbox<Stream>,
    files: Arc<SharedState>,
}

impl Reports for FileReports {
    fn failed(&mut self, error: &SinkError, _: u64) {
        self.outbox.report(Report::File(FileReport::Failed(error.clone())));
    }

    fn missed(&mut self, image: &CommittedImage) {
        if image.store {
            self.files.pass();
        }
    }

    fn ended(&mut self, end: &Arc<SeriesEnd>, _: u64) {
        let files = &self.files;
        // Images that do not fit the file are not a failure of the file, but they are missing in it.
        let why = files.names().last_error.filter(|_| files.refused() > 0);
        let is_wanted = files.names().main.is_some() || files.unwritten() > 0;
        let unwritten = if is_wanted { end.ledger.images.to_be_written().saturating_sub(files.images()) } else { 0 };
        let (images, positions, durable) = (files.images(), files.positions(), files.durable_end());
        // Now, because the next series counts from 0 again.
        let (bytes, unpacked_bytes) = (files.bytes(), files.unpacked_bytes());
        let in_file = InFile { images, unwritten, positions, durable, bytes, unpacked_bytes };
        self.outbox.report(Report::File(FileReport::Closed(in_file, why)));
    }

    fn patience(&self) -> Duration {
        // Files are open only during a series.
        Duration::from_secs(3600)
    }
}

/// Starts the actor of a detector. When this returns, its sockets are open.
///
/// # Errors
/// An address cannot be used, a file of the transformation cannot be read, or the machine has no threads left.
pub fn open(config: Arc<DetectorConfig>, settings: Arc<ServiceSettings>, events: EventLog) -> Result<Handle, Failure> {
    let fanout = Arc::new(Fanout::open(&config, &settings, &events)?);
    let shared = Arc::new(Shared::new(&config, "stream", Arc::clone(&fanout)));
    Shared::open_spool(&shared, &config, &events)?;
    shared.shapes.report(&events);
    let checks = (Arc::clone(&config), Arc::clone(&settings));
    let machine = Machine::new(Arc::clone(&shared), events);
    let driven = Driven::open(&config, &machine.events)?;
    let base = Base { machine, config, settings, fanout: Arc::clone(&fanout), driven, runs: 0 };
    let (send, thread) = actor::spawn(base, |base, outbox| {
        let stream = Stream::open(base, outbox)?;
        let control = Arc::clone(&stream.control);
        base.machine.shared.count_between(move || totals_between(&control.load()));
        Ok(stream)
    })?;
    let runs = Arc::clone(&fanout.series_runs);
    let ring = Ring::new(Arc::clone(&fanout.preview), Box::new(move |start| runs.run_of(start)));
    Ok(Handle::new(shared, send, Arc::new(ring), checks, thread))
}

impl Stream {
    fn open(base: &Base, outbox: Outbox<Self>) -> Result<Self, Failure> {
        let DetectorKindConfig::Stream(config) = &base.config.kind else {
            return Err(Failure::new(Exit::Bug, "this detector sends packets, not a stream", "", "please report this"));
        };
        let config: Arc<StreamConfig> = Arc::new((**config).clone());
        let place = Place::of(&base.config, &config.directory, base.settings.data_root.as_ref());
        let fail = |why: String| cannot_open(base, why);
        // The file sink is ready before the first message.
        let parameters = Arc::new(Mutex::new(default_parameters(&base.config, &config)));
        let path = Path::of(base, &config, &parameters)?;
        let usual = default_parameters(&base.config, &config);
        let mut namer = Namer {
            place: place.clone(),
            config: Arc::clone(&config),
            parameters: Arc::clone(&parameters),
            usual,
            spent: 0,
            series: 0,
        };
        let (reports, current, spool) = (outbox.clone(), CurrentRun::default(), base.machine.shared.spool().cloned());
        let chosen = current.clone();
        let inner = FileSink::of_series(Box::new(move |start| {
            let target = namer.target(start)?.filter(|_| start.store);
            if let Some(target) = &target {
                reports.report(Report::File(FileReport::Opened(target.main_file().display().to_string())));
            }
            match (target, &spool) {
                (Some(target), Some(spool)) => Ok(Some(in_spool(target, spool, &chosen)?)),
                (target, _) => Ok(target),
            }
        }));
        let files = inner.shared();
        let file = SpooledSink { inner, current, closes: true };
        let output_queues = &base.fanout.output_queues;
        let service = ServiceLevel::Reliable;
        let spec_of_file = OutputQueueSpec {
            name: FILE.into(),
            service,
            queue_images: FILE_QUEUE_IMAGES,
            queue_bytes: config.budget_bytes,
            borrows: false,
        };
        let reader = output_queues.add(spec_of_file);
        let output_queue = output_queues.list().into_iter().find(|output_queue| output_queue.spec().name == FILE);
        let output_queue = output_queue.ok_or_else(|| fail("its file has no queue".into()))?;
        let began = base.fanout.began;
        let reports = FileReports { outbox: outbox.clone(), files: Arc::clone(&files) };
        let sink = deliver::spawn(FILE, reader, file, reports, move || began.elapsed().as_nanos() as u64);
        let sink = sink.map_err(|error| fail(reason(&error)))?;
        let series = path.open(base, output_queues, &outbox)?;
        let control = Arc::new(ArcSwap::new(series.control()));
        Ok(Self {
            outbox,
            config,
            place,
            series: Some(series),
            control,
            files,
            output_queue,
            output_queues: Arc::clone(output_queues),
            parameters,
            open: VecDeque::new(),
            file_reports: VecDeque::new(),
            armed: None,
            header: None,
            expected: None,
            waited_for: None,
            file_thread: Some(sink),
        })
    }

    fn next_parameters(&self) -> ArmParameters {
        self.parameters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_parameters(&self, parameters: ArmParameters) {
        *self.parameters.lock().unwrap_or_else(PoisonError::into_inner) = parameters;
    }

    /// The newest series that has not ended.
    fn current(&mut self) -> Option<&mut Open> {
        self.open.iter_mut().rev().find(|open| open.end.is_none())
    }

    fn notice(&mut self, base: &mut Base, notice: Notice) {
        match notice {
            Notice::Started(start) => self.started(base, &start),
            Notice::First { .. } => {
                let Some(open) = self.current() else { return };
                open.has_data = true;
                // An error of its file is more important.
                let status_message =
                    open.error.is_none().then(|| StatusMessage::info(format!("run {} is being received", open.run)));
                base.machine.apply(Event::Data, status_message);
            }
            Notice::Draining { reason } => {
                base.machine.set_message(StatusMessage::info(format!(
                    "run {}: no more data ({reason}); waiting for messages on their way",
                    base.runs
                )));
            }
            Notice::Ended(end) => self.ended(base, &end),
            Notice::SourceFailed { source, why, .. } => {
                let message = format!("the source {source} has failed: {why}");
                base.machine.remark(Severity::Error, message.clone(), json!({ "source": source }));
                let hint = Some("check the network or the folder, then restart the service".to_string());
                base.machine.apply(Event::Fault, Some(StatusMessage { message, severity: Severity::Error, hint }));
            }
            Notice::Broken { why } => self.open_anew(base, &why),
            Notice::Crowded { source, refused } => {
                let message = format!("{source}: {refused} connections were closed, because there were more than the limit");
                let why = "every connection takes a file descriptor, and files and HTTP need some";
                let fix = "find out who connects (`ss -tn`): a port scanner, or a sender that never closes its sockets?";
                let data = json!({ "source": source, "refused": refused, "why": why, "fix": fix });
                base.machine.remark(Severity::Warning, message, data);
            }
            Notice::Refused { upstream, why } => {
                let message = format!("messages of upstream {upstream} are refused: {why}");
                base.machine.remark(Severity::Warning, message, json!({}));
            }
        }
    }

    /// After a panic has ended the stream path: opens a new path, with sockets of its own.
    fn open_anew(&mut self, base: &mut Base, why: &str) {
        // The old sockets close first.
        drop(self.series.take());
        let path =
            Path::of(base, &self.config, &self.parameters).and_then(|path| path.open(base, &self.output_queues, &self.outbox));
        let hint = match &path {
            Ok(_) => {
                "arm again; messages that were on their way are lost; please report this text with the configuration".to_string()
            }
            Err(failure) => format!("restart the service: {}: {}", failure.what, failure.why),
        };
        if let Ok(series) = path {
            self.control.store(series.control());
            self.series = Some(series);
        }
        if self.armed.take().is_some() {
            // No series will follow this arm.
            base.machine.shared.end(Default::default());
            base.machine.publish(|status| status.ended = Some(Ended::Failed.name().into()));
            self.set_parameters(default_parameters(&base.config, &self.config));
        }
        let data = json!({ "run": base.runs, "why": why, "fix": hint });
        base.machine.remark(Severity::Error, why.to_string(), data);
        let status_message = StatusMessage { message: why.to_string(), severity: Severity::Error, hint: Some(hint) };
        base.machine.apply(Event::Fault, Some(status_message));
    }

    fn started(&mut self, base: &mut Base, start: &Arc<SeriesStart>) {
        if self.armed.take().is_none() {
            base.runs += 1;
            base.machine.release();
        } else {
            self.header = Some(Arc::clone(start));
        }
        let (run, parameters) = (base.runs, self.next_parameters());
        let facts = Some(Arc::new(facts_of_series(&parameters.metadata, start)));
        base.fanout.series_runs.enter(start, NumberedRun { run, facts });
        base.machine.shared.shapes.begin(RunMask::of_series(start));
        let machine = &mut base.machine;
        let meter = start.meter.clone();
        self.open.push_back(Open {
            run,
            file: None,
            end: None,
            error: None,
            in_file: None,
            has_data: false,
            waited_for: None,
            differs: None,
            meter: meter.clone(),
            analysis: start.analysis.clone(),
        });
        let live = SeriesLive {
            control: self.control.load_full(),
            files: Arc::clone(&self.files),
            meter,
            analysis: start.analysis.clone(),
            output_queue: Arc::clone(&self.output_queue),
            write: parameters.write && start.store,
        };
        let message = format!("run {run} has begun (series {})", start.series);
        for warning in &start.warnings {
            machine.remark(Severity::Warning, warning.clone(), json!({ "run": run }));
        }
        let data = json!({ "run": run, "series": start.series, "unique_id": start.unique_id, "filename": start.filename });
        machine.report("run_started", Severity::Info, message.clone(), data);
        let shared = Arc::clone(&machine.shared);
        machine.apply_with(Event::SeriesStart, Some(StatusMessage::info(message)), |status| {
            shared.begin(Arc::new(live));
            (status.run, status.file, status.ended) = (run, None, None);
        });
        self.take_file_reports(base);
    }

    /// Assigns the reports of the file thread to the series that they are about.
    fn take_file_reports(&mut self, base: &mut Base) {
        while let Some(open) = self.open.iter_mut().find(|open| open.in_file.is_none()) {
            match self.file_reports.pop_front() {
                None => break,
                Some(FileReport::Opened(file)) => {
                    open.file = Some(file.clone());
                    Self::opened(base, open.run, &file);
                }
                Some(FileReport::Failed(error)) => {
                    // A file that could not be created is not listed under its name, which may be that of another run.
                    if self.files.images() == 0 && open.file.take().is_some() {
                        base.machine.shared.forget_file(open.run);
                        base.machine.publish(|status| status.file = None);
                    }
                    let data = json!({ "run": open.run, "why": error.why, "fix": error.fix });
                    base.machine.remark(Severity::Error, error.what.clone(), data);
                    // Consumers still get the images; the status says at once that they are not written.
                    let message = format!("run {}: {}: {}", open.run, error.what, error.why);
                    base.machine.set_message(StatusMessage { message, severity: Severity::Error, hint: Some(error.fix.clone()) });
                    open.error.get_or_insert(error);
                }
                Some(FileReport::Closed(in_file, why)) => {
                    open.in_file = Some(in_file);
                    if let (Some(why), None) = (why, &open.error) {
                        let message = format!("run {}: images are not in its file: {why}", open.run);
                        let data = json!({ "run": open.run, "images": in_file.unwritten, "why": why });
                        base.machine.remark(Severity::Warning, message, data);
                    }
                }
            }
        }
        self.close_what_is_over(base);
    }

    /// The file sink has chosen a name for the series of this run.
    fn opened(base: &mut Base, run: u64, file: &str) {
        base.machine.shared.enter_file(FileEntry::writing(&base.config.name, run, file));
        if base.runs == run {
            base.machine.publish(|status| status.file = Some(file.into()));
        }
    }

    fn ended(&mut self, base: &mut Base, end: &Arc<SeriesEnd>) {
        let mut look = look_of(end);
        (look.written, look.durable, look.unwritten) = (self.files.images(), self.files.durable_end(), self.files.unwritten());
        look.moves = self.files.durable().filter(|_| base.machine.shared.spool().is_some());
        let waited_for = self.waited_for.take();
        match self.open.iter_mut().find(|open| open.end.is_none()) {
            Some(open) => {
                (open.end, open.waited_for) = (Some(Arc::clone(end)), waited_for);
                look.meter = open.meter.clone();
                look = look.with_analysis(&open.analysis);
                let status_message = StatusMessage::info(format!("run {}: no more data; closing its files", open.run));
                base.machine.apply(Event::EndOfData, Some(status_message));
                base.machine.shared.end(look);
                self.close_what_is_over(base);
            }
            None => {
                // An arm that no series followed.
                self.armed = None;
                base.machine.shared.end(look);
                base.machine.apply(Event::EndOfData, None);
                let (status_message, _) = sum_up(base.runs, end, waited_for.as_deref(), None, (0, 0));
                base.machine.publish(|status| status.ended = Some(end.ended.name().into()));
                base.machine.report(
                    "run_ended",
                    status_message.severity,
                    status_message.message.clone(),
                    json!({ "run": base.runs, "ended": end.ended.name() }),
                );
                base.machine.apply(Event::Closed, Some(status_message));
                self.set_parameters(default_parameters(&base.config, &self.config));
            }
        }
    }

    /// Completes the series that have ended and whose files are closed.
    fn close_what_is_over(&mut self, base: &mut Base) {
        while self.open.front().is_some_and(|open| open.end.is_some() && open.in_file.is_some()) {
            let Some(open) = self.open.pop_front() else { return };
            let (Some(end), Some(in_file)) = (&open.end, open.in_file) else { return };
            let written = (in_file.images, in_file.unwritten);
            let (mut status_message, failed) = sum_up(open.run, end, open.waited_for.as_deref(), open.error.as_ref(), written);
            if let Some(differs) = &open.differs {
                status_message.warn(&format!("the detector announced something else than it was asked for: {differs}"));
            }
            let machine = &mut base.machine;
            machine.shared.add("images_unwritten", in_file.unwritten);
            let ended = end.ended.name();
            let entry = open.file.as_ref().map(|file| {
                let images = &end.ledger.images;
                let is_complete = images.is_success() && images.expected > 0 && in_file.unwritten == 0;
                let writing = FileEntry::writing(&base.config.name, open.run, file);
                let InFile { positions, bytes, unpacked_bytes, .. } = in_file;
                let images_expected = Some(images.expected);
                writing.closed(
                    failed,
                    is_complete,
                    FileTotals { images: positions, images_expected, bytes, unpacked_bytes },
                    ended,
                )
            });
            if let (None, Some(error)) = (&entry, &open.error) {
                let problem = format!("{}: {}", error.what, error.why);
                machine.shared.enter_file(FileEntry::not_made(&base.config.name, open.run, problem, ended));
            }
            let mut look = look_of(end).with_analysis(&open.analysis);
            if let Some(warning) = open.analysis.warning() {
                machine.remark(Severity::Warning, format!("run {}: {warning}", open.run), json!({ "run": open.run }));
            }
            look.file_has(in_file.images, in_file.unwritten, in_file.durable);
            machine.report_end(open.run, ended, entry, &look.ledger, &status_message);
            if matches!(end.ended, Ended::Stopped | Ended::Cancelled) {
                base.run_on_stop(About {
                    detector: base.config.name.clone(),
                    run: open.run,
                    images: None,
                    file: open.file.clone(),
                });
            }
            // If another series has begun already, the end of this one is only reported as an event.
            if self.open.is_empty() {
                base.machine.shared.amend(|look| look.file_has(in_file.images, in_file.unwritten, in_file.durable));
                base.machine.close(ended, failed, status_message, None);
                self.set_parameters(default_parameters(&base.config, &self.config));
            }
        }
    }
}

/// Has the files of a series written in the spool.
fn in_spool(target: SeriesTarget, spool: &Spool, current: &CurrentRun) -> Result<SeriesTarget, Failure> {
    let mut spec = match target {
        SeriesTarget::Files(spec) => spec,
        // The configuration has refused a spool for the layout of MAX IV.
        other @ SeriesTarget::Append(_) => return Ok(other),
    };
    let run = spool.begin(&spec.file, None)?;
    run.directory().clone_into(&mut spec.file.directory);
    if let ToDisk::Beside(interval) = spec.to_disk {
        spec.to_disk = ToDisk::InSpool(interval);
    }
    current.put(Some(run));
    Ok(SeriesTarget::Files(spec))
}

impl Driver for Stream {
    type Ready = ArmParameters;
    type Report = Report;
    const LISTENS_FIRST: bool = true;

    fn prepare(&self, base: &Base, request: &ArmRequest) -> Result<Prepare<ArmParameters>, Failure> {
        let parameters = parameters(&base.config, &self.config, &self.place, request)?;
        let file = parameters.target.as_ref().map(|target| main_file(&self.config, target));
        let about = About {
            detector: base.config.name.clone(),
            run: base.runs + 1,
            images: parameters.images,
            file: file.as_ref().map(|file| file.display().to_string()),
        };
        let order = of_stream(&self.config, parameters.images, &parameters.metadata, &request.metadata);
        let config = Arc::clone(&self.config);
        let check = move || {
            if parameters.write {
                check_folder(parameters.target.as_ref().map_or(&config.directory, |target| &target.directory))?;
            }
            file.as_deref().map_or(Ok(()), |file| check_file(&config, file)).map(|()| parameters)
        };
        Ok(Prepare { about, order, work: Box::new(check) })
    }

    fn discard(_: ArmParameters) {}

    fn launch(&mut self, base: &mut Base, parameters: ArmParameters) -> Result<(), Failure> {
        base.runs += 1;
        let order = ArmOrder { images: parameters.images, filename: None, discard: !parameters.write };
        let images = parameters
            .images
            .map_or("as many images as the sender announces".into(), |n| format!("{} images", konkordia_core::text::count(n)));
        let images_requested = parameters.images;
        self.set_parameters(ArmParameters { arm: base.runs, ..parameters });
        self.armed = Some((Instant::now(), None));
        (self.header, self.expected) = (None, None);
        self.control.load().arm(order);
        let run = base.runs;
        base.machine.shared.expect(images_requested);
        for note in konkordia_config::xds::stream_notes(&self.config) {
            base.machine.remark(Severity::Warning, note, json!({ "run": run }));
        }
        let status_message = StatusMessage::info(format!("armed for {images}"));
        base.machine
            .apply_with(Event::Arm, Some(status_message), |status| (status.run, status.file, status.ended) = (run, None, None));
        Ok(())
    }

    fn expect(&mut self, expected: Expected) {
        self.expected = Some(expected);
    }

    fn differences(&mut self) -> Option<Vec<String>> {
        let expected = self.expected.take_if(|_| self.header.is_some())?;
        let differences = differences(&expected, self.header.take()?.as_ref());
        if differences.is_empty() {
            return None;
        }
        if let Some(open) = self.current() {
            open.differs = Some(differences.join("; "));
        }
        Some(differences)
    }

    fn begin_clock(&mut self) {
        if let Some((_, clock)) = &mut self.armed
            && clock.is_none()
        {
            *clock = Some(Instant::now());
            self.control.load().start_clock();
            let seconds = self.config.start_timeout_ns as f64 / 1e9;
            self.waited_for =
                (self.config.start_timeout_ns != u64::MAX).then(|| format!("nothing came within {seconds:.1} s after the start"));
        }
    }

    fn stop(&mut self) {
        self.control.load().stop();
    }

    fn cancel(&mut self) {
        self.control.load().cancel();
    }

    fn leave(&mut self) {
        self.control.load().leave();
    }

    fn report(&mut self, base: &mut Base, report: Report) {
        match report {
            Report::Notice(notice) => self.notice(base, notice),
            Report::File(report) => {
                self.file_reports.push_back(report);
                self.take_file_reports(base);
            }
        }
    }

    fn tick(&mut self, base: &mut Base, now: Instant) {
        base.machine.shared.sample();
        let Some((armed, None)) = self.armed else { return };
        let Some(longest) = base.settings.armed_timeout.filter(|longest| now.duration_since(armed) > *longest) else { return };
        if base.machine.state() == State::Armed && self.waited_for.is_none() {
            self.waited_for = Some(format!("nothing came within {:.1} s after it was armed", longest.as_secs_f64()));
            self.control.load().stop();
        }
    }

    fn is_busy(&self) -> bool {
        self.armed.is_some() || !self.open.is_empty()
    }

    fn about(&self, base: &Base) -> About {
        let parameters = self.next_parameters();
        let file = parameters.target.map(|target| main_file(&self.config, &target).display().to_string());
        About { detector: base.config.name.clone(), run: base.runs, images: parameters.images, file }
    }

    fn end(&mut self) {
        // The path first hands out the images that it has, then the file thread writes them.
        drop(self.series.take());
        self.output_queues.remove(FILE);
        if let Some(thread) = self.file_thread.take() {
            let _ = thread.join();
        }
    }
}
