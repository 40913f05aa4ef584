//! A detector that sends packets. A run is armed, runs and is closed in threads of its own, which report to the actor.
//!
//! A run starts clean. Its sockets are new, and packets that arrived before it was armed are thrown away. A run that
//! begins with whatever frame comes first does not begin with one of the last frames of the previous run
//! ([`Control::expect_stragglers`]).

use super::Handle;
use super::actor::{self, Driver, Outbox, Prepare};
use super::base::Base;
use super::driven::Driven;
use super::open_file::OpenFile;
use super::status::{Live, Machine, Shared, StatusMessage};
use super::udp_dark::{Dark, DarkEnd};
use super::udp_parts::{
    ArmParameters, ArmedSources, Closing, Finished, Ready, Reason, broken_off, discard, finish, parameters, ready,
};
use crate::control_order::of_packets;
use crate::events::EventLog;
use crate::fanout::{Fanout, NumberedRun, Ring};
use crate::handle::{ArmRequest, FileEntry, PedestalRequest, Severity};
use crate::hooks::About;
use crate::paths::Place;
use crate::run::arm::Prepared;
use crate::run::report;
use crate::run::report::stream_name;
use crate::run::setup::SetupReporter;
use konkordia_calibration::guard::Note;
use konkordia_config::Config;
use konkordia_config::archive_copy::ArchiveCopy;
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_config::settings::ServiceSettings;
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{FirstFrame, Plan};
use konkordia_core::setup::Finding;
use konkordia_core::state::{Event, State};
use konkordia_engine::contain::contain;
use konkordia_engine::control::Control;
use konkordia_engine::run::GpuReport;
use konkordia_repack::archive_copy;
use konkordia_sinks::hdf5::RunFiles;
use konkordia_sinks::hdf5::whole::Whole;
use konkordia_sources::backend::Receiving;
use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often the packets of a run are compared with its set-up.
const SETUP_INTERVAL: Duration = Duration::from_millis(200);

/// What the thread of a run reports.
pub enum Report {
    /// No further data are taken in this run.
    DataEnded(u64),
    /// Its files are closed.
    Closed(u64, Box<Finished>),
    /// The outcome of taking dark frames.
    Dark(u64, Box<DarkEnd>),
    /// The file that stayed open behind its runs is closed.
    FileClosed,
}

/// The run that is armed or in progress.
struct Current {
    run: u64,
    control: Arc<Control>,
    sources: Arc<ArmedSources>,
    armed: Instant,
    /// When the time limit for the first packet began.
    clock: Option<Instant>,
    start_timeout_ns: u64,
    reason: Arc<Mutex<Reason>>,
    images: Option<u64>,
    packets_per_image: u64,
    file: Option<String>,
    /// Where the streams arrive.
    names: Vec<String>,
    /// Used to report a wrong set-up.
    config: Config,
    plan: Arc<Plan>,
    setup_reporter: SetupReporter,
    /// What was reported of its GPU last.
    gpu_reported: Option<String>,
    looked: Instant,
}

impl Current {
    /// Reports findings about a wrong set-up that were not reported yet.
    fn report_setup(&mut self, machine: &mut Machine, findings: &[Finding]) {
        for finding in self.setup_reporter.news(&self.config, &self.names, findings) {
            let data = json!({ "run": self.run, "finding": finding.to_json() });
            let message = format!("wrong set-up: {}", finding.what);
            machine.report("setup", Severity::Warning, message.clone(), data);
            machine.set_message(StatusMessage { message, severity: Severity::Warning, hint: Some(finding.fix) });
        }
    }

    /// Reports once that its GPU cannot read the ring, and that it was given up.
    fn report_gpu(&mut self, machine: &mut Machine, gpu: Option<&GpuReport>) {
        let Some(warning) = gpu.and_then(GpuReport::warning).filter(|w| self.gpu_reported.as_ref() != Some(w)) else { return };
        let message = format!("run {}: {warning}", self.run);
        machine.remark(Severity::Warning, message, json!({ "run": self.run, "gpu": gpu.map(|gpu| &gpu.name) }));
        self.gpu_reported = Some(warning);
    }
}

/// The driver of UDP detectors.
pub struct Udp {
    outbox: Outbox<Self>,
    current: Option<Current>,
    /// The pedestal run in progress.
    dark: Option<Dark>,
    /// Last frames of the previous run.
    stragglers: Option<Range<u64>>,
    /// The file that stays open behind its runs, while no run adds to it.
    open_file: Option<OpenFile>,
    /// Closes such a file.
    closer: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    events: EventLog,
}

/// Starts the actor of a detector.
///
/// # Errors
/// A consumer's address cannot be used, or the machine has no threads left.
pub fn open(config: Arc<DetectorConfig>, settings: Arc<ServiceSettings>, events: EventLog) -> Result<Handle, Failure> {
    let fanout = Arc::new(Fanout::open(&config, &settings, &events)?);
    let shared = Arc::new(Shared::new(&config, "udp", Arc::clone(&fanout)));
    Shared::open_spool(&shared, &config, &events)?;
    shared.shapes.report(&events);
    let ring = Ring::new(Arc::clone(&fanout.preview), Box::new(|start| Some(NumberedRun { run: start.series, facts: None })));
    let checks = (Arc::clone(&config), Arc::clone(&settings));
    let machine = Machine::new(Arc::clone(&shared), events);
    let driven = Driven::open(&config, &machine.events)?;
    let base = Base { machine, config, settings, fanout, driven, runs: 0 };
    let (send, thread) = actor::spawn(base, |base, outbox| Ok(Udp::new(base, outbox)))?;
    Ok(Handle::new(shared, send, Arc::new(ring), checks, thread))
}

impl Driver for Udp {
    type Ready = Ready;
    type Report = Report;

    fn prepare(&self, base: &Base, request: &ArmRequest) -> Result<Prepare<Ready>, Failure> {
        let (run, fanout, spool) = (base.runs + 1, Arc::clone(&base.fanout), base.machine.shared.spool().cloned());
        let drawing = base.machine.shared.shapes.drawing();
        let DetectorKindConfig::Udp(own) = &base.config.kind else {
            return Err(Failure::new(Exit::Bug, "a stream has no run over UDP", "", "please report this"));
        };
        let place = Place::of(&base.config, &own.directory, base.settings.data_root.as_ref());
        let parameters = parameters(&base.config, (&place, own), (run, self.open_file.as_ref()), request)?;
        let about =
            About { detector: base.config.name.clone(), run, images: parameters.config.images, file: parameters.master() };
        let order = of_packets(&parameters.config);
        let (events, detector) = (base.machine.events.clone(), base.config.name.clone());
        let note = move || -> Note {
            let (events, detector) = (events.clone(), detector.clone());
            Box::new(move |note| events.remark(Some(&detector), Severity::Warning, note.into(), json!({ "run": run })))
        };
        let work = Box::new(move || ready(parameters, &fanout, spool.as_ref(), &drawing, run, &note));
        Ok(Prepare { about, order, work })
    }

    fn discard(ready: Ready) {
        discard(ready);
    }

    fn launch(&mut self, base: &mut Base, ready: Ready) -> Result<(), Failure> {
        let Ready { prepared, parameters, sources, live } = ready;
        let Prepared { armed, opened, plan, mask, notes, .. } = prepared;
        let run = base.runs + 1;
        let control = armed.control();
        if let (Some(frames), FirstFrame::Auto) = (self.stragglers.clone(), plan.first_frame) {
            control.expect_stragglers(frames, plan.packets_per_image());
        }
        let reason = Arc::new(Mutex::new(Reason::default()));
        let current = Current {
            run,
            control: Arc::clone(&control),
            sources,
            armed: Instant::now(),
            clock: None,
            start_timeout_ns: parameters.start_timeout_ns,
            reason: Arc::clone(&reason),
            images: plan.images(),
            packets_per_image: plan.packets_per_image(),
            file: parameters.master(),
            names: opened.addresses.iter().map(stream_name).collect(),
            config: parameters.config.clone(),
            plan: Arc::clone(&plan),
            setup_reporter: SetupReporter::default(),
            gpu_reported: None,
            looked: Instant::now(),
        };
        let stray = crate::machine::datagrams_to_closed_ports();
        let through = through(&parameters.config, &opened.receiving, &plan);
        let (open_file, is_appended) = self.take_file(base, &parameters, &opened.files);
        let (config, writes, detector) = (parameters.config, parameters.write, base.config.name.clone());
        let mut closing = Closing { detector, config, opened, run, writes, stray, open_file };
        let (outbox, output_queues) = (self.outbox.clone(), Arc::clone(&base.fanout.output_queues));
        let (events, detector) = (base.machine.events.clone(), base.config.name.clone());
        let of_actor = Arc::clone(&live);
        let work = move || {
            let to_its_end = || {
                let outcome = armed.run();
                outbox.report(Report::DataEnded(run));
                let reason = reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
                finish(&mut closing, &outcome, control.progress().images_seen, &reason)
            };
            // A panic while closing must not affect the other detectors. What it leaves behind can be repaired.
            let finished = contain(to_its_end).unwrap_or_else(|panic| broken_off(&closing, live.look(), &panic));
            output_queues.end(&finished.end);
            let master = finished.file.as_ref().map(|file| PathBuf::from(&file.master));
            if let Some(whole) = &finished.whole {
                report_of_whole(whole, &detector, &events);
            }
            outbox.report(Report::Closed(run, Box::new(finished)));
            // The copy is made of the files where they belong. What stays in a spool gets none.
            let is_there = || closing.opened.spooled.as_ref().is_none_or(|run| run.wait_till_moved());
            if let (Some(archive_copy), Some(master)) = (&closing.config.archive_copy, master)
                && is_there()
            {
                let made = contain(|| archive_copy::make(archive_copy, closing.config.overwrite, &master, &mut |_| ()));
                let made = made.unwrap_or_else(|panic| Err((&panic).into()));
                let (severity, message, data) = report_of_copy(run, archive_copy, made);
                events.add(Some(&detector), "travel", severity, message, data);
            }
        };
        let spawned = Builder::new().name(format!("run-{}", base.config.name)).spawn(work);
        spawned.map_err(|e| {
            Failure::new(Exit::Io, "cannot start a thread for the run", konkordia_core::failure::reason(&e), "end other programs")
        })?;
        base.runs = run;
        let early = current.sources.wait_until_drained(current.names.len());
        base.machine.shared.begin(of_actor);
        base.machine.shared.shapes.begin(mask);
        announce(base, &current, &notes, (early, is_appended), &through);
        self.current = Some(current);
        Ok(())
    }

    fn begin_clock(&mut self) {
        if let Some(current) = &mut self.current {
            current.clock.get_or_insert_with(Instant::now);
        }
    }

    fn stop(&mut self) {
        if let Some(current) = &self.current {
            current.control.stop();
        }
        if let Some(dark) = &self.dark {
            dark.stop();
        }
    }

    fn cancel(&mut self) {
        if let Some(current) = &self.current {
            current.reason.lock().unwrap_or_else(PoisonError::into_inner).cancelled = true;
            current.sources.is_cancelled.store(true, Ordering::Release);
            current.control.stop();
        }
        if let Some(dark) = &self.dark {
            dark.stop();
        }
    }

    fn pedestal(&mut self, base: &mut Base, request: &PedestalRequest) -> Result<(), Failure> {
        let outbox = self.outbox.clone();
        let report = move |run, end| {
            outbox.report(Report::Dark(run, Box::new(end)));
        };
        self.dark = Some(Dark::begin(base, request, report)?);
        Ok(())
    }

    fn report(&mut self, base: &mut Base, report: Report) {
        match report {
            Report::DataEnded(run) if self.current.as_ref().is_some_and(|current| current.run == run) => {
                self.note_data(base);
                let status_message = StatusMessage::info(format!("run {run}: no more data; closing its files"));
                base.machine.apply(Event::EndOfData, Some(status_message));
            }
            Report::DataEnded(_) => {}
            Report::Closed(run, finished) => self.closed(base, run, *finished),
            Report::Dark(run, end) => {
                if let Some(dark) = self.dark.take_if(|dark| dark.run() == run) {
                    // The detector may go on sending, so no frame counts as a late one of the previous run.
                    self.stragglers = None;
                    dark.end(base, *end);
                }
            }
            Report::FileClosed => {
                // It has nothing left to do.
                self.closer.take().into_iter().for_each(|closer| drop(closer.join()));
                self.publish_open_file(base);
            }
        }
    }

    fn tick(&mut self, base: &mut Base, now: Instant) {
        self.note_data(base);
        self.look_at_setup(base, now);
        if let Some(dark) = &self.dark {
            dark.tick(base);
        }
        let Some(current) = &self.current else { return };
        base.machine.shared.sample();
        if base.machine.state() != State::Armed {
            return;
        }
        let waited = |since: Instant| now.duration_since(since);
        let too_long = current.clock.filter(|clock| waited(*clock).as_nanos() > u128::from(current.start_timeout_ns));
        let why = match (too_long, base.settings.armed_timeout) {
            (Some(clock), _) => format!("no packet came within {:.1} s after the start", waited(clock).as_secs_f64()),
            (None, Some(longest)) if current.clock.is_none() && waited(current.armed) > longest => {
                format!("no packet came within {:.1} s after it was armed", waited(current.armed).as_secs_f64())
            }
            _ => return,
        };
        current.reason.lock().unwrap_or_else(PoisonError::into_inner).waited_for.get_or_insert(why);
        current.control.give_up();
    }

    fn is_busy(&self) -> bool {
        self.current.is_some() || self.dark.is_some()
    }

    fn close_file(&mut self, base: &mut Base) {
        let Some(open) = self.open_file.take() else { return };
        let (shared, events, outbox) = (Arc::clone(&self.shared), self.events.clone(), self.outbox.clone());
        let close = move || {
            let _ = contain(|| close_and_report(&open, &shared, &events));
            outbox.report(Report::FileClosed);
        };
        // Without a thread the file is closed when it is dropped, as after a crash: `konkordia repair` completes it.
        self.closer = Builder::new().name("close-file".into()).spawn(close).ok();
        self.publish_open_file(base);
    }

    fn is_closing(&self) -> bool {
        self.closer.is_some()
    }

    fn end(&mut self) {
        if let Some(open) = self.open_file.take() {
            close_and_report(&open, &self.shared, &self.events);
        }
        if let Some(closer) = self.closer.take() {
            let _ = closer.join();
        }
    }

    fn about(&self, base: &Base) -> About {
        let current = self.current.as_ref();
        About {
            detector: base.config.name.clone(),
            run: base.runs,
            images: current.and_then(|current| current.images),
            file: current.and_then(|current| current.file.clone()),
        }
    }
}

/// Through what packets are received and where threads run, where that is not the usual.
fn through(config: &Config, receiving: &Receiving, plan: &Plan) -> String {
    let placed = plan.affinity.to_text().map_or(String::new(), |text| format!("; {text}"));
    let is_usual = receiving.backend == Backend::Socket && config.receive == Receive::Auto;
    if is_usual { placed } else { format!("; packets come through {}{placed}", receiving.line()) }
}

/// Publishes that a run is armed.
fn announce(base: &mut Base, current: &Current, notes: &[String], (early, is_appended): (u64, bool), through: &str) {
    let (run, machine) = (current.run, &mut base.machine);
    let listens = current.names.clone();
    machine
        .publish(|status| (status.run, status.file, status.ended, status.listens) = (run, current.file.clone(), None, listens));
    if let Some(file) = current.file.as_ref().filter(|_| !is_appended) {
        machine.shared.enter_file(FileEntry::writing(&base.config.name, run, file));
    }
    for note in notes {
        machine.remark(Severity::Warning, note.clone(), json!({ "run": run }));
    }
    if early > 0 {
        let message =
            format!("{early} packets that came before run {run} was armed were left out: is the detector still sending?");
        machine.remark(Severity::Warning, message, json!({ "run": run, "packets": early }));
    }
    let images = current.images.map_or("images until stopped".into(), |n| format!("{} images", konkordia_core::text::count(n)));
    machine.apply(Event::Arm, Some(StatusMessage::info(format!("armed for {images}{through}"))));
}

/// Says what became of the master of the whole image, of which this detector is a part.
fn report_of_whole(whole: &Result<Whole, String>, detector: &str, events: &EventLog) {
    let is_made = whole.as_ref().is_ok_and(|whole| whole.lacks().is_empty());
    let severity = if is_made { Severity::Info } else { Severity::Warning };
    let message = format!("the whole image: {}", report::whole_text(whole));
    events.add(Some(detector), "file", severity, message, report::whole_json(whole));
}

/// Closes a file that stayed open behind its runs.
fn close_and_report(open: &OpenFile, shared: &Shared, events: &EventLog) {
    let (report, failure) = match open.finish() {
        None => return,
        Some(Ok(report)) => (Some(report), None),
        Some(Err(error)) => (None, Some(Failure::from(error))),
    };
    if let Some(whole) = report.as_ref().and_then(|report| report.whole.as_ref()) {
        report_of_whole(whole, &shared.name, events);
    }
    let entry = open.entry(&shared.name, report.as_ref(), failure.is_some());
    shared.enter_closed(&entry);
    let name = Some(shared.name.as_str());
    match failure {
        None => events.add(name, "file", Severity::Info, format!("{} is closed", entry.master), json!(entry)),
        Some(failure) => {
            let data = json!({ "why": failure.why, "fix": failure.fix, "file": entry.master });
            events.add(name, "error", Severity::Error, failure.what, data)
        }
    };
}

impl Udp {
    fn new(base: &Base, outbox: Outbox<Self>) -> Self {
        let (shared, events) = (Arc::clone(&base.machine.shared), base.machine.events.clone());
        Self { outbox, current: None, dark: None, stragglers: None, open_file: None, closer: None, shared, events }
    }

    /// The file that is to stay open behind the next run, and whether it is one that is open already.
    fn take_file(&mut self, base: &mut Base, parameters: &ArmParameters, files: &RunFiles) -> (Option<OpenFile>, bool) {
        let Some(append) = &parameters.append else {
            self.close_file(base);
            return (None, false);
        };
        let first = || OpenFile::new(&parameters.config, parameters.asked.clone(), base.runs + 1, files.clone());
        (Some(self.open_file.take().unwrap_or_else(first)), append.behind.is_some())
    }

    fn publish_open_file(&self, base: &mut Base) {
        let open_file = self.open_file.as_ref().map(OpenFile::status);
        base.machine.publish(|status| status.open_file = open_file);
    }

    /// If the first packet has arrived, publishes that.
    fn note_data(&mut self, base: &mut Base) {
        let Some(current) = &self.current else { return };
        if base.machine.state() == State::Armed && current.control.progress().packets.placed > 0 {
            let message = format!("run {} is being received", current.run);
            let data = json!({ "run": current.run, "file": current.file });
            base.machine.report("run_started", Severity::Info, message.clone(), data);
            base.machine.apply(Event::Data, Some(StatusMessage::info(message)));
        }
    }

    /// Reports a wrong set-up as soon as it is certain.
    fn look_at_setup(&mut self, base: &mut Base, now: Instant) {
        let Some(current) = self.current.as_mut().filter(|current| now.duration_since(current.looked) >= SETUP_INTERVAL) else {
            return;
        };
        current.looked = now;
        let findings = konkordia_engine::setup::findings(&current.plan, &current.control);
        current.report_setup(&mut base.machine, &findings);
        current.report_gpu(&mut base.machine, current.control.gpu().as_ref());
    }

    fn closed(&mut self, base: &mut Base, run: u64, finished: Finished) {
        let Some(mut current) = self.current.take_if(|current| current.run == run) else { return };
        let Finished { look, ended, status_message, failed, file: entry, open_file, findings, analysis, gpu, frames, .. } =
            finished;
        self.stragglers = frames.map(|frames| stragglers(frames, current.packets_per_image));
        let machine = &mut base.machine;
        current.report_setup(machine, &findings);
        current.report_gpu(machine, gpu.as_ref());
        if let Some(warning) = analysis {
            machine.remark(Severity::Warning, format!("run {run}: {warning}"), json!({ "run": run }));
        }
        if entry.is_none() && open_file.is_none() {
            machine.shared.forget_file(run);
        }
        self.open_file = open_file;
        machine.report_end(run, ended, entry, &look.ledger, &status_message);
        machine.shared.end(look);
        machine.close(ended, failed, status_message, self.open_file.as_ref().map(OpenFile::status));
        if matches!(ended, "stopped" | "cancelled") {
            let about = About { detector: base.config.name.clone(), run, images: current.images, file: current.file.clone() };
            base.run_on_stop(about);
        }
    }
}

/// Frames of a run of which packets may still arrive when the next run begins: the last ones. Its first frame is never
/// among them, because a detector that was reset begins with that number again.
fn stragglers(frames: Range<u64>, packets_per_image: u64) -> Range<u64> {
    let slack = (65_536 / packets_per_image.max(1)).clamp(16, 1024);
    frames.start.saturating_add(1).max(frames.end.saturating_sub(slack))..frames.end
}

/// The event about the archive copy of a run. A copy that could not be made changes nothing about the run.
fn report_of_copy(
    run: u64,
    archive_copy: &ArchiveCopy,
    made: Result<konkordia_repack::Outcome, Failure>,
) -> (Severity, String, Value) {
    match made {
        Ok(outcome) => {
            let compression = archive_copy::compression(archive_copy);
            let message = format!("run {run}: archive copy {}: {}", outcome.master.display(), outcome.totals.loss_text());
            let totals = outcome.totals.to_json(compression);
            (
                Severity::Success,
                message,
                json!({ "run": run, "master": outcome.master, "files": outcome.files, "totals": totals }),
            )
        }
        Err(failure) => {
            let message = format!("run {run}: its archive copy could not be made: {}; the run is not affected", failure.what);
            (Severity::Warning, message, json!({ "run": run, "why": failure.why, "fix": failure.fix }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frames_of_a_run_are_stragglers_of_the_next_but_never_its_first() {
        assert_eq!(stragglers(1..11, 128), 2..11);
        assert_eq!(stragglers(1..100_001, 128), 99_489..100_001);
        assert!(stragglers(7..8, 128).is_empty());
    }
}
