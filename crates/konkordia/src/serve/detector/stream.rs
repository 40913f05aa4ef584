//! A detector that sends whole images. Its sockets are there for the life of the service; series follow each other, begun by the sender or after
//! each arm. The way of messages tells how a series goes, the thread of the file tells when its files are closed.

use super::actor::{self, Base, Driver, Outbox, Preparation};
use super::file_sink::{FileSink, main_file};
use super::status::{Machine, Say, Shared};
use super::stream_parts::{
    Namer, SeriesLive, Wish, check_folder, default_wish, latencies, look_of, place, spec, sum_up, totals_between, upstreams, wish,
};
use super::{FILE, Handle};
use crate::config::service::{DetectorConfig, DetectorKindConfig};
use crate::config::stream::StreamConfig;
use crate::failure::{Exit, Failure, reason};
use crate::serve::events::EventLog;
use crate::serve::fanout::consumer::{self, Reports};
use crate::serve::fanout::{Fanout, Ring};
use crate::serve::handle::{ArmRequest, FileEntry, Severity};
use crate::serve::hooks::About;
use crate::serve::paths::Place;
use crate::serve::settings::ServiceSettings;
use arc_swap::ArcSwap;
use konkordia_core::ports::SinkError;
use konkordia_core::series::{SeriesEnd, SeriesEnded, SeriesImage, SeriesStart};
use konkordia_core::state::{Event, State};
use konkordia_engine::latency::Histogram;
use konkordia_engine::outlet::{OnFull, Outlet, OutletReader, OutletSpec, Outlets, Service};
use konkordia_engine::series::{ArmOrder, Notice, Series, SeriesControl, SeriesSpec, Upstream};
use konkordia_sinks::hdf5::SharedState;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Images that may wait for the file, beside the bound in bytes.
const FILE_QUEUE_IMAGES: usize = 4096;

/// What threads report.
pub enum Report {
    /// From the way of messages.
    Notice(Notice),
    /// From the thread of the file.
    File(FileReport),
}

/// What the thread of the file reports, of one series after the other.
pub enum FileReport {
    /// The series has this master.
    Opened(String),
    /// The sink failed.
    Failed(SinkError),
    /// The files are closed, and why an image does not fit them.
    Closed(InFile, Option<String>),
}

/// What a closed file has.
#[derive(Clone, Copy)]
pub struct InFile {
    /// Images with pixels.
    images: u64,
    /// Images that came, were to be written, and are not there.
    unwritten: u64,
    /// All positions.
    positions: u64,
    /// Those on the disk.
    durable: Option<u64>,
}

/// A series of which not everything is over.
struct Open {
    run: u64,
    file: Option<String>,
    end: Option<Arc<SeriesEnd>>,
    error: Option<SinkError>,
    /// `None` while it is being written.
    in_file: Option<InFile>,
    has_data: bool,
    waited_for: Option<String>,
}

/// The parts of a path of messages, made and not yet opened.
struct Path(SeriesSpec, Vec<Upstream>);

impl Path {
    fn of(base: &Base, config: &StreamConfig) -> Result<Self, Failure> {
        let (spec, upstreams) = (spec(config, base.fanout.began)?, upstreams(config)?);
        let listens: Vec<String> = upstreams.iter().map(|upstream| upstream.source.name()).collect();
        base.machine.publish(|status| status.listens = listens);
        Ok(Self(spec, upstreams))
    }

    /// Opens it and passes its notices on.
    fn open(self, base: &Base, outlets: &Arc<Outlets>, outbox: &Outbox<Stream>) -> Result<Series, Failure> {
        let fail = |why: String| cannot_open(base, why);
        let series = konkordia_engine::series::open(self.0, self.1, Arc::clone(outlets)).map_err(|error| fail(error.0))?;
        let (notices, tell) = (series.notices().clone(), outbox.clone());
        // It ends with the program: whoever may still look at the control keeps the channel open.
        let pass = move || while notices.recv().is_ok_and(|notice| tell.report(Report::Notice(notice))) {};
        let passes = Builder::new().name("notices".into()).stack_size(128 << 10).spawn(pass);
        passes.map_err(|error| fail(reason(&error)))?;
        Ok(series)
    }
}

fn cannot_open(base: &Base, why: String) -> Failure {
    let what = format!("the detector '{}' cannot be opened", base.config.name);
    Failure::new(Exit::Configuration, what, why, "correct its configuration")
}

/// What is particular to streams.
pub struct Stream {
    outbox: Outbox<Self>,
    config: Arc<StreamConfig>,
    place: Place,
    series: Option<Series>,
    /// Of the series path that is open now; a new one after a mistake in the program has ended the last.
    control: Arc<ArcSwap<SeriesControl>>,
    files: Arc<SharedState>,
    written_latency: Arc<Histogram>,
    outlet: Arc<Outlet>,
    outlets: Arc<Outlets>,
    /// Of the series that begins next, shared with the file sink.
    wish: Arc<Mutex<Wish>>,
    /// Series in their order; several only while files of older ones are being closed.
    open: VecDeque<Open>,
    /// Reports of the file about series of which nobody has told yet: its thread may be faster.
    file_reports: VecDeque<FileReport>,
    /// Since when it is armed, and when the clock began.
    armed: Option<(Instant, Option<Instant>)>,
    waited_for: Option<String>,
    file_thread: Option<JoinHandle<()>>,
}

/// Tells the actor what the file sink does.
struct FileReports {
    outbox: Outbox<Stream>,
    files: Arc<SharedState>,
    latency: Arc<Histogram>,
    clock_began: Instant,
    /// Images in the file of this series, as of the last one.
    images: u64,
}

impl Reports for FileReports {
    fn failed(&mut self, error: &SinkError, _: u64) {
        self.outbox.report(Report::File(FileReport::Failed(error.clone())));
    }

    fn taken(&mut self, image: &SeriesImage) {
        // A sink without a file takes images as well.
        let images = self.files.images();
        if images > std::mem::replace(&mut self.images, images) {
            self.latency.count((self.clock_began.elapsed().as_nanos() as u64).saturating_sub(image.received_ns));
        }
    }

    fn passed(&mut self, image: &SeriesImage) {
        if image.store {
            self.files.pass();
        }
    }

    fn ended(&mut self, end: &Arc<SeriesEnd>, _: u64) {
        let files = &self.files;
        self.images = 0;
        // Images that do not fit the file are no failure of it, and not in it either.
        let why = files.names().last_error.filter(|_| files.refused() > 0);
        let is_wanted = files.names().main.is_some() || files.unwritten() > 0;
        let unwritten = if is_wanted { end.ledger.to_be_written().saturating_sub(files.images()) } else { 0 };
        let (images, positions, durable) = (files.images(), files.positions(), files.durable_end());
        self.outbox.report(Report::File(FileReport::Closed(InFile { images, unwritten, positions, durable }, why)));
    }

    fn looked(&mut self, _: &OutletReader) {}

    fn patience(&self) -> Duration {
        // Files exist only in a series.
        Duration::from_secs(3600)
    }
}

/// Starts the actor of a detector; when this returns its sockets are there.
///
/// # Errors
/// An address cannot be used, a file of the transformation cannot be read, or the machine has no threads left.
pub fn open(config: Arc<DetectorConfig>, settings: Arc<ServiceSettings>, events: EventLog) -> Result<Handle, Failure> {
    let fanout = Arc::new(Fanout::open(&config, &settings, &events)?);
    let shared = Arc::new(Shared::new(&config, "stream", Arc::clone(&fanout)));
    let patience = actor::patience(&settings, &config);
    let machine = Machine::new(Arc::clone(&shared), events);
    let base = Base { machine, config, settings, fanout: Arc::clone(&fanout), runs: 0 };
    let (send, thread) = actor::spawn(base, |base, outbox| {
        let stream = Stream::open(base, outbox)?;
        let control = Arc::clone(&stream.control);
        base.machine.shared.count_between(move || totals_between(&control.load()));
        Ok(stream)
    })?;
    let began = fanout.began;
    let age = move |image: &SeriesImage| Some(began.elapsed().saturating_sub(Duration::from_nanos(image.received_ns)));
    let ring = Ring::new(Arc::clone(&fanout.tap), Box::new(age));
    Ok(Handle::new(shared, send, Arc::new(ring), patience, thread))
}

impl Stream {
    fn open(base: &Base, outbox: Outbox<Self>) -> Result<Self, Failure> {
        let DetectorKindConfig::Stream(config) = &base.config.kind else {
            return Err(Failure::new(Exit::Bug, "packets are no stream", "", "please report this"));
        };
        let config: Arc<StreamConfig> = Arc::new((**config).clone());
        let place = place(&base.config, &config, base.settings.data_root.as_ref());
        let fail = |why: String| cannot_open(base, why);
        let path = Path::of(base, &config)?;
        // The file is there before the first message.
        let wish = Arc::new(Mutex::new(default_wish(&base.config, &config)));
        let usual = default_wish(&base.config, &config);
        let namer =
            Namer { place: place.clone(), config: Arc::clone(&config), wish: Arc::clone(&wish), usual, spent: 0, series: 0 };
        let tell = outbox.clone();
        let opens = move |file: std::path::PathBuf| {
            tell.report(Report::File(FileReport::Opened(file.display().to_string())));
        };
        let file = FileSink::new(namer, opens);
        let files = file.shared();
        let outlets = &base.fanout.outlets;
        let service = Service::Reliable { on_full: OnFull::Wait };
        let spec_of_file =
            OutletSpec { name: FILE.into(), service, queue_images: FILE_QUEUE_IMAGES, queue_bytes: config.budget_bytes };
        let reader = outlets.add(spec_of_file);
        let outlet = outlets.list().into_iter().find(|outlet| outlet.spec().name == FILE);
        let outlet = outlet.ok_or_else(|| fail("its file has no queue".into()))?;
        let began = base.fanout.began;
        let written_latency = Arc::new(Histogram::default());
        let reports = FileReports {
            outbox: outbox.clone(),
            files: Arc::clone(&files),
            latency: Arc::clone(&written_latency),
            clock_began: began,
            images: 0,
        };
        let sink = consumer::spawn(FILE, reader, file, reports, move || began.elapsed().as_nanos() as u64);
        let sink = sink.map_err(|error| fail(reason(&error)))?;
        let series = path.open(base, outlets, &outbox)?;
        let control = Arc::new(ArcSwap::new(series.control()));
        Ok(Self {
            outbox,
            config,
            place,
            series: Some(series),
            control,
            files,
            written_latency,
            outlet,
            outlets: Arc::clone(outlets),
            wish,
            open: VecDeque::new(),
            file_reports: VecDeque::new(),
            armed: None,
            waited_for: None,
            file_thread: Some(sink),
        })
    }

    fn wished(&self) -> Wish {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn latencies(&self) -> BTreeMap<String, f64> {
        latencies(&self.control.load().progress().latency, &self.written_latency)
    }

    fn set_wish(&self, wish: Wish) {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner) = wish;
    }

    /// The series whose images come now, or came last.
    fn current(&mut self) -> Option<&mut Open> {
        self.open.iter_mut().rev().find(|open| open.end.is_none())
    }

    fn notice(&mut self, base: &mut Base, notice: Notice) {
        match notice {
            Notice::Started(start) => self.started(base, &start),
            Notice::First { .. } => {
                let Some(open) = self.current() else { return };
                open.has_data = true;
                // What is wrong with its file is of more interest.
                let say = open.error.is_none().then(|| Say::info(format!("run {} is being received", open.run)));
                let _ = base.machine.step(Event::Data, say);
            }
            Notice::Draining { reason } => {
                base.machine
                    .say(Say::info(format!("run {}: no more data ({reason}); waiting for what is on its way", base.runs)));
            }
            Notice::Ended(end) => self.ended(base, &end),
            Notice::SinkFailed { sink, error, .. } => {
                base.machine.tell(
                    "warning",
                    Severity::Error,
                    format!("{sink}: {}", error.what),
                    json!({ "why": error.why, "fix": error.fix }),
                );
            }
            Notice::SourceFailed { source, why, .. } => {
                let message = format!("the source {source} has failed: {why}");
                base.machine.tell("warning", Severity::Error, message.clone(), json!({ "source": source }));
                let hint = Some("look at the network or the folder, then restart the service".to_string());
                let _ = base.machine.step(Event::Fault, Some(Say { message, severity: Severity::Error, hint }));
            }
            Notice::Broken { why } => self.open_anew(base, &why),
            Notice::Crowded { source, refused } => {
                let message = format!("{source}: {refused} connections were closed, because more are there than it keeps");
                let why = "every connection takes a file descriptor, and files and HTTP need some";
                let fix = "find out who connects (`ss -tn`): a port scanner, or a sender that never closes its sockets?";
                let data = json!({ "source": source, "refused": refused, "why": why, "fix": fix });
                base.machine.tell("warning", Severity::Warning, message, data);
            }
            Notice::Refused { upstream, why } => {
                base.machine.tell(
                    "warning",
                    Severity::Warning,
                    format!("messages of upstream {upstream} are not taken: {why}"),
                    json!({}),
                );
            }
        }
    }

    /// A mistake in the program has ended the path of messages: a new one takes its place, with sockets of its own.
    fn open_anew(&mut self, base: &mut Base, why: &str) {
        // The old sockets go first.
        drop(self.series.take());
        let path = Path::of(base, &self.config).and_then(|path| path.open(base, &self.outlets, &self.outbox));
        let hint = match &path {
            Ok(_) => {
                "please report this text with the configuration; messages that were on their way are lost; arm again".to_string()
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
            base.machine.publish(|status| status.ended = Some(SeriesEnded::Failed.name().into()));
            self.set_wish(default_wish(&base.config, &self.config));
        }
        let data = json!({ "run": base.runs, "why": why, "fix": hint });
        base.machine.tell("warning", Severity::Error, why.to_string(), data);
        let say = Say { message: why.to_string(), severity: Severity::Error, hint: Some(hint) };
        let _ = base.machine.step(Event::Fault, Some(say));
    }

    fn started(&mut self, base: &mut Base, start: &Arc<SeriesStart>) {
        if self.armed.take().is_none() {
            base.runs += 1;
        }
        let (run, wish) = (base.runs, self.wished());
        let machine = &mut base.machine;
        self.open.push_back(Open { run, file: None, end: None, error: None, in_file: None, has_data: false, waited_for: None });
        let live = SeriesLive {
            control: self.control.load_full(),
            files: Arc::clone(&self.files),
            written_latency: Arc::clone(&self.written_latency),
            outlet: Arc::clone(&self.outlet),
            write: wish.write && start.store,
        };
        let message = format!("run {run} has begun (series {})", start.series);
        for warning in &start.warnings {
            machine.tell("warning", Severity::Warning, warning.clone(), json!({ "run": run }));
        }
        let data = json!({ "run": run, "series": start.series, "unique_id": start.unique_id, "filename": start.filename });
        machine.tell("run_started", Severity::Info, message.clone(), data);
        let shared = Arc::clone(&machine.shared);
        let _ = machine.step_with(Event::SeriesStart, Some(Say::info(message)), |status| {
            shared.begin(Arc::new(live));
            (status.run, status.file, status.ended) = (run, None, None);
        });
        self.take_file_reports(base);
    }

    /// Gives the reports of the file to the series that they are about.
    fn take_file_reports(&mut self, base: &mut Base) {
        while let Some(open) = self.open.iter_mut().find(|open| open.in_file.is_none()) {
            match self.file_reports.pop_front() {
                None => break,
                Some(FileReport::Opened(file)) => {
                    open.file = Some(file.clone());
                    Self::opened(base, open.run, &file);
                }
                Some(FileReport::Failed(error)) => {
                    // What could not be made is no file of ours.
                    if self.files.images() == 0 && open.file.take().is_some() {
                        base.machine.shared.forget_file(open.run);
                        base.machine.publish(|status| status.file = None);
                    }
                    let data = json!({ "run": open.run, "why": error.why, "fix": error.fix });
                    base.machine.tell("warning", Severity::Error, error.what.clone(), data);
                    // Images go on to the consumers; the status says at once that no file gets them.
                    let message = format!("run {}: {}: {}", open.run, error.what, error.why);
                    base.machine.say(Say { message, severity: Severity::Error, hint: Some(error.fix.clone()) });
                    open.error.get_or_insert(error);
                }
                Some(FileReport::Closed(in_file, why)) => {
                    open.in_file = Some(in_file);
                    if let (Some(why), None) = (why, &open.error) {
                        let message = format!("run {}: images are not in its file: {why}", open.run);
                        let data = json!({ "run": open.run, "images": in_file.unwritten, "why": why });
                        base.machine.tell("warning", Severity::Warning, message, data);
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
        look.latency = self.latencies();
        let waited_for = self.waited_for.take();
        match self.open.iter_mut().find(|open| open.end.is_none()) {
            Some(open) => {
                (open.end, open.waited_for) = (Some(Arc::clone(end)), waited_for);
                let say = Say::info(format!("run {}: all images are there; closing its files", open.run));
                let _ = base.machine.step(Event::EndOfData, Some(say));
                base.machine.shared.end(look);
                self.close_what_is_over(base);
            }
            None => {
                // An arm that no series followed.
                self.armed = None;
                base.machine.shared.end(look);
                let _ = base.machine.step(Event::EndOfData, None);
                let (say, _) = sum_up(base.runs, end, waited_for.as_deref(), None, (0, 0));
                base.machine.publish(|status| status.ended = Some(end.ended.name().into()));
                base.machine.tell(
                    "run_ended",
                    say.severity,
                    say.message.clone(),
                    json!({ "run": base.runs, "ended": end.ended.name() }),
                );
                let _ = base.machine.step(Event::Closed, Some(say));
                self.set_wish(default_wish(&base.config, &self.config));
            }
        }
    }

    /// Series that have ended and whose files are closed.
    fn close_what_is_over(&mut self, base: &mut Base) {
        while self.open.front().is_some_and(|open| open.end.is_some() && open.in_file.is_some()) {
            let Some(open) = self.open.pop_front() else { return };
            let (Some(end), Some(in_file)) = (&open.end, open.in_file) else { return };
            let written = (in_file.images, in_file.unwritten);
            let (say, failed) = sum_up(open.run, end, open.waited_for.as_deref(), open.error.as_ref(), written);
            let machine = &mut base.machine;
            machine.shared.add("images_unwritten", in_file.unwritten);
            let ended = end.ended.name();
            if let Some(file) = &open.file {
                let ledger = &end.ledger;
                let is_complete = !failed && ledger.is_success() && ledger.expected > 0 && in_file.unwritten == 0;
                let state = match (failed, is_complete) {
                    (true, _) => "failed",
                    (false, true) => "complete",
                    (false, false) => "incomplete",
                };
                let entry = FileEntry {
                    state: state.into(),
                    images: in_file.positions,
                    bytes: if self.open.is_empty() { self.files.bytes() } else { 0 },
                    ended: Some(ended.into()),
                    ..FileEntry::writing(&base.config.name, open.run, file)
                };
                machine.tell("file", Severity::Info, format!("{file} is closed"), json!(entry));
                machine.shared.enter_file(entry);
            }
            let mut look = look_of(end);
            look.file_has(in_file.images, in_file.unwritten, in_file.durable);
            let data = json!({ "run": open.run, "ended": ended, "ledger": look.ledger });
            machine.tell("run_ended", say.severity, say.message.clone(), data);
            if matches!(end.ended, SeriesEnded::Stopped | SeriesEnded::Cancelled) {
                base.run_on_stop(About {
                    detector: base.config.name.clone(),
                    run: open.run,
                    images: None,
                    file: open.file.clone(),
                });
            }
            // Another series may be on its way already; then this is only told.
            if self.open.is_empty() {
                let latency = self.latencies();
                base.machine.shared.amend(|look| {
                    look.file_has(in_file.images, in_file.unwritten, in_file.durable);
                    look.latency = latency;
                });
                base.machine.publish(|status| status.ended = Some(ended.into()));
                // Who cancels a run puts its failure aside as well; the message and the event keep it.
                let is_fault = failed && end.ended != SeriesEnded::Cancelled;
                let _ = base.machine.step(if is_fault { Event::Fault } else { Event::Closed }, Some(say));
                self.set_wish(default_wish(&base.config, &self.config));
            }
        }
    }
}

impl Driver for Stream {
    type Ready = Wish;
    type Report = Report;

    fn prepare(&self, base: &Base, request: &ArmRequest) -> Result<(About, Preparation<Wish>), Failure> {
        let wish = wish(&base.config, &self.config, &self.place, request)?;
        let file = wish.target.as_ref().map(|target| main_file(&self.config, target));
        let about = About {
            detector: base.config.name.clone(),
            run: base.runs + 1,
            images: wish.images,
            file: file.as_ref().map(|file| file.display().to_string()),
        };
        let directory = self.config.directory.clone();
        // A file of the MAX IV layout is continued.
        let refuses = self.config.append_dataset.is_none() && self.config.overwrite == konkordia_sinks::hdf5::Overwrite::Refuse;
        let check = move || {
            if wish.write {
                check_folder(wish.target.as_ref().map_or(&directory, |target| &target.directory))?;
            }
            match file.filter(|file| refuses && file.exists()) {
                None => Ok(wish),
                Some(file) => {
                    let fix = "choose another prefix, move the old files, or set output.overwrite = \"replace\"";
                    Err(Failure::new(Exit::Io, format!("cannot create: {}", file.display()), "the file exists", fix))
                }
            }
        };
        Ok((about, Box::new(check)))
    }

    fn discard(_: Wish) {}

    fn launch(&mut self, base: &mut Base, wish: Wish) -> Result<(), Failure> {
        base.runs += 1;
        let order = ArmOrder { images: wish.images, filename: None, discard: !wish.write };
        let images =
            wish.images.map_or("as many images as the sender announces".into(), |n| format!("{} images", crate::say::count(n)));
        let images_wished = wish.images;
        self.set_wish(Wish { arm: base.runs, ..wish });
        self.armed = Some((Instant::now(), None));
        self.control.load().arm(order);
        let run = base.runs;
        base.machine.shared.expect(images_wished);
        for note in crate::config::xds::stream_notes(&self.config) {
            base.machine.tell("warning", Severity::Warning, note, json!({ "run": run }));
        }
        let say = Say::info(format!("armed for {images}"));
        let _ =
            base.machine.step_with(Event::Arm, Some(say), |status| (status.run, status.file, status.ended) = (run, None, None));
        Ok(())
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
        let wish = self.wished();
        let file = wish.target.map(|target| main_file(&self.config, &target).display().to_string());
        About { detector: base.config.name.clone(), run: base.runs, images: wish.images, file }
    }

    fn end(&mut self) {
        // Its threads hand out what they have, then the file takes it.
        drop(self.series.take());
        self.outlets.remove(FILE);
        if let Some(thread) = self.file_thread.take() {
            let _ = thread.join();
        }
    }
}
