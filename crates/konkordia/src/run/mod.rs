//! `konkordia receive`: one run from arm to idle.

pub mod loopback;
pub mod signals;

use crate::cli::ReceiveArgs;
use crate::console;
use crate::repack_verb;
use konkordia_acquire::fanout::of_run::RunWriters;
use konkordia_acquire::handle::Severity;
use konkordia_acquire::paths::{MissingFolders, Place};
use konkordia_acquire::run::arm::{self, Ports, Prepared, WritersOfRun};
use konkordia_acquire::run::exit_of;
use konkordia_acquire::run::opened::Opened;
use konkordia_acquire::run::raw_copy::RawCopy;
use konkordia_acquire::run::report::{self, Report};
use konkordia_acquire::run::setup::SetupReporter;
use konkordia_acquire::spool::{Spool, SpoolRun};
use konkordia_acquire::stopper::Stopper;
use konkordia_config::{self, Config, plan};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Plan;
use konkordia_core::setup::Finding;
use konkordia_core::text;
use konkordia_engine::control::Control;
use konkordia_repack::archive_copy;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `konkordia receive CONFIG`
pub fn command(args: &ReceiveArgs) -> Result<Exit, Failure> {
    let mut config = konkordia_config::load(&args.config)?;
    apply(args, &mut config)?;
    // From here on a signal ends the run. It no longer ends the program while files are being created.
    let stopper = signals::stopper()?;
    if let Some(archive_copy) = &config.archive_copy {
        archive_copy::check(archive_copy, config.overwrite)?;
    }
    let mut writers = RunWriters::open(&config)?;
    let prepared = {
        let consumers = || writers.as_ref().map(RunWriters::consumers).unwrap_or_default();
        let of_run = writers.as_ref().map(|writers| WritersOfRun {
            consumers: &consumers,
            has_writers: writers.has_writers(),
            raw_writers: writers.raw_writers(),
        });
        arm::prepare_for(&config, Ports::Configured, console::note, of_run.as_ref())?
    };
    announce(args, &config, &prepared);
    let Prepared { armed, opened, plan, .. } = prepared;
    stopper.follow(armed.control());
    let control = armed.control();
    let names: Vec<String> = opened.addresses.iter().map(report::stream_name).collect();
    let mut live = Live {
        config: &config,
        names: &names,
        plan: &plan,
        opened: &opened,
        json: args.json,
        setup_reporter: SetupReporter::default(),
        writers: writers.as_mut(),
    };
    let stray = konkordia_acquire::machine::datagrams_to_closed_ports();
    let outcome = with_progress(&control, &mut live, args, || armed.run());
    if args.json {
        live.report(&outcome.findings);
    }
    let (exit, failure) = exit_of(&outcome, plan.images().is_some(), stopper.is_stopped());
    let report = opened.close(&config, &outcome).map(|report| report.with_stray(stray, &outcome));
    let moved = opened.spooled.as_ref().filter(|_| report.is_ok()).map_or(Ok(()), |run| drain(run, &opened, &stopper, args));
    let report = report.map(|report| report.with_spool(opened.spooled.as_ref().map(|run| run.report())));
    let is_far_whole = writers.as_mut().is_none_or(|writers| wait_for(writers, &stopper, args));
    let exit = if exit == Exit::Complete && !is_far_whole { Exit::Incomplete } else { exit };
    match &report {
        Ok(report) if args.json => console::json(&report.to_json(exit), true),
        Ok(report) => console::to_stdout(&report.to_text()),
        Err(_) => {}
    }
    let master = report.as_ref().ok().and_then(Report::master).filter(|_| moved.is_ok());
    if let (Some(archive_copy), Some(master)) = (&config.archive_copy, master) {
        repack_verb::archive_copy(archive_copy, config.overwrite, master, args.quiet, args.json);
    }
    // The failure that ended the run is reported first. A failure to close the file is then only its consequence.
    match (failure, report) {
        (Some(failure), _) | (None, Err(failure)) => Err(failure),
        (None, Ok(_)) => moved.map(|()| exit),
    }
}

/// Waits until the writers on other hosts have closed their files; false if one has not all of the run. A Ctrl-C after
/// the end of the run ends the wait.
fn wait_for(writers: &mut RunWriters, stopper: &Stopper, args: &ReceiveArgs) -> bool {
    let was_stopped = stopper.is_stopped();
    let mut progress = console::Progress::new(args.quiet || args.json);
    writers.end();
    while !writers.is_over() {
        progress.update(|| "the run has ended; images go to the writer on another host".into());
        say_news(writers, args.json, args.quiet);
        if stopper.is_stopped() && !was_stopped {
            writers.give_up();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    progress.end();
    say_news(writers, args.json, args.quiet);
    !writers.has_failed()
}

/// What has happened at the writers.
fn say_news(writers: &mut RunWriters, as_json: bool, is_quiet: bool) {
    for event in writers.news() {
        if as_json {
            let line = json!({ "event": event.event, "severity": event.severity, "message": event.message, "data": event.data });
            console::json(&line, true);
        } else if matches!(event.severity, Severity::Warning | Severity::Error) {
            console::note(&event.message);
        } else if !is_quiet {
            console::to_stderr(&event.message);
        }
    }
}

/// Waits until the files of the run have moved out of the spool. A Ctrl-C after the end of the run ends the wait.
fn drain(run: &SpoolRun, opened: &Opened, stopper: &Stopper, args: &ReceiveArgs) -> Result<(), Failure> {
    let was_stopped = stopper.is_stopped();
    let mut progress = console::Progress::new(args.quiet || args.json);
    let done = loop {
        progress.update(|| format!("the run has ended; {}", opened.spool.as_ref().map_or(String::new(), |spool| words(spool))));
        match run.wait(Duration::from_millis(200)) {
            Ok(true) => break Ok(()),
            Ok(false) if stopper.is_stopped() && !was_stopped => break Err(run.left("it was stopped while they moved")),
            Ok(false) => {}
            Err(failure) => break Err(failure),
        }
    };
    progress.end();
    done
}

/// How full a spool is, for a line of progress.
fn words(spool: &Spool) -> String {
    let status = spool.status();
    let rate = status.drain_bytes_per_s.map_or(String::new(), |rate| format!(", {}/s out", text::bytes(rate as u64)));
    let (used, limit, files) = (text::bytes(status.used_bytes), text::bytes(status.limit_bytes), status.files_waiting);
    format!("spool {used} of {limit}, {files} file(s) to move{rate}")
}

/// Applies the options of the command line, which override the configuration.
fn apply(args: &ReceiveArgs, config: &mut Config) -> Result<(), Failure> {
    if let Some(images) = args.images {
        config.images = (images > 0).then_some(images);
    }
    let suffix = config.part.map(|part| part.suffix()).unwrap_or_default();
    let Some(name) = &args.prefix else {
        config.prefix.push_str(&suffix);
        return Ok(());
    };
    let (root, base) = (config.directory.clone(), config.directory.clone());
    let place = Place { root, base, missing_folders: MissingFolders::Refuse, suffix };
    let target = place.target(name)?;
    if let Some(archive_copy) = &mut config.archive_copy {
        archive_copy.prefix = format!("{}_travel", target.prefix);
    }
    (config.directory, config.prefix) = (target.directory, target.prefix);
    Ok(())
}

/// Prints the plan, the notes and `armed`.
fn announce(args: &ReceiveArgs, config: &Config, prepared: &Prepared) {
    let Prepared { plan: run_plan, notes, opened: Opened { receiving, .. }, .. } = prepared;
    if !args.quiet {
        console::to_stderr(&plan::describe(config, run_plan));
        console::to_stderr(&format!("  {:<12} {}", "receive", receiving.line()));
    }
    for note in notes {
        console::note(note);
    }
    if args.json {
        let event = json!({
            "event": "armed", "plan": plan::to_json(config, run_plan), "notes": notes,
            "receive_buffer_bytes": prepared.receive_buffer_bytes,
            "receive": { "backend": receiving.backend.name(), "why": receiving.why },
        });
        console::json(&event, true);
    } else {
        let images = run_plan.images().map_or("images until stopped".into(), |n| format!("{} images", text::count(n)));
        console::to_stdout(&format!("armed: {}, {images}", config.listens_at()));
    }
}

/// Runs `work` while another thread shows its progress.
fn with_progress<T>(control: &Arc<Control>, live: &mut Live<'_>, args: &ReceiveArgs, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let planned = live.plan.images();
            let mut progress = console::Progress::new(args.quiet || args.json);
            let mut events = Instant::now();
            let mut rate = Rate::new();
            while !done.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(100));
                progress.update(|| {
                    let line = rate.line(control, planned, live.opened.files.shared().durable_end());
                    live.opened.spool.as_ref().map_or(line.clone(), |spool| format!("{line}, {}", words(spool)))
                });
                live.report(&konkordia_engine::setup::findings(live.plan, control));
                if let Some(writers) = &mut live.writers {
                    say_news(writers, args.json, args.quiet);
                }
                if args.json && events.elapsed() > Duration::from_secs(1) {
                    events = Instant::now();
                    let p = control.progress();
                    let event = json!({
                        "event": "progress", "images_seen": p.images_seen, "images_committed": p.images_committed,
                        "images_written": p.images_written, "images_durable": live.opened.files.shared().durable_end(),
                        "raw_frames_durable": live.opened.raw_copy.as_ref().map(RawCopy::durable_end),
                        "packets_received": p.packets.received, "packets_placed": p.packets.placed,
                        "kernel_dropped": p.packets.kernel_dropped, "slots_used": p.slots_used, "images_waiting": p.images_waiting,
                        "spool": live.opened.spool.as_ref().map(|spool| spool.status()),
                    });
                    console::json(&event, true);
                }
            }
            progress.end();
        });
        let result = work();
        done.store(true, Ordering::Release);
        result
    })
}

/// Reports a wrong set-up while the run goes on. The report of the run holds all findings at its end; with `--json`
/// they are also written as events.
struct Live<'a> {
    config: &'a Config,
    names: &'a [String],
    plan: &'a Plan,
    opened: &'a Opened,
    json: bool,
    setup_reporter: SetupReporter,
    writers: Option<&'a mut RunWriters>,
}

impl Live<'_> {
    fn report(&mut self, findings: &[Finding]) {
        for finding in self.setup_reporter.news(self.config, self.names, findings) {
            if self.json {
                console::json(&json!({ "event": "setup", "finding": finding.to_json() }), true);
            } else {
                console::to_stderr(&format!("warning: wrong set-up: {}\n  fix: {}", finding.what, finding.fix));
            }
        }
    }
}

/// Rates since the previous line of the progress display.
struct Rate {
    at: Instant,
    images: u64,
    bytes: u64,
}

impl Rate {
    fn new() -> Self {
        Self { at: Instant::now(), images: 0, bytes: 0 }
    }

    fn line(&mut self, control: &Control, planned: Option<u64>, durable_end: Option<u64>) -> String {
        let p = control.progress();
        let seconds = self.at.elapsed().as_secs_f64().max(1e-3);
        let (hz, gigabytes) =
            ((p.images_written - self.images) as f64 / seconds, (p.packets.received_bytes - self.bytes) as f64 / seconds / 1e9);
        *self = Self { at: Instant::now(), images: p.images_written, bytes: p.packets.received_bytes };
        let of = planned.map_or(String::new(), |n| format!(" of {}", text::count(n)));
        let safe = durable_end.map_or(String::new(), |n| format!(" ({} safe on disk)", text::count(n)));
        format!(
            "{}{of} images written{safe}, {hz:.0} Hz, {gigabytes:.2} GB/s in, {} packets dropped by the kernel, {} frames and {} images buffered",
            text::count(p.images_written),
            text::count(p.packets.kernel_dropped),
            p.slots_used,
            p.images_waiting
        )
    }
}
