//! `konkordia bench pipeline`: simulator, loopback, conversion, compression and file, all on this machine. The loopback
//! interface stands in for the network: the result says what the program can do, not what a network card can do.

use super::args::{BenchCompression, BenchPipelineArgs, BenchRunArgs};
use super::frames::in_folder;
use super::module_files::{calibration_of, raw_frames};
use super::output::Output;
use super::threads::{self, Watch};
use crate::console;
use crate::run::loopback::transfer;
use crate::simulate::detector::{jungfrau, packetiser};
use crate::simulate::feed::{Feed, SYNTHETIC_IMAGES};
use crate::simulate::send::Sent;
use crate::simulate::setup::{Beam, RunText, write_files};
use konkordia_acquire::machine;
use konkordia_acquire::run::arm::{self, Ports, Prepared};
use konkordia_acquire::run::exit_of;
use konkordia_acquire::run::report::Report;
use konkordia_config::Config;
use konkordia_core::analysis_counts::AnalysisTally;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::latency::{self, Stage, StageLatency};
use konkordia_core::text;
use konkordia_engine::control::Control;
use konkordia_engine::run::{RunOutcome, Wakeups};
use konkordia_sim::packet::DetectorKind;
use konkordia_sim::scene::SceneModel;
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The search begins here and doubles until data are lost.
const RATE_FIRST_HZ: f64 = 250.0;
/// The search ends when the bounds are this close to each other.
const RATE_CLOSE: f64 = 1.04;
/// A sender that reaches less than this fraction of the rate is the limit itself.
pub const SENDER_REACHES: f64 = 0.97;

/// One attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    rate_hz: f64,
    /// Images per second that were sent, at the first rate.
    pub sent_hz: f64,
    /// For how long.
    pub sent_seconds: f64,
    /// Images that were sent.
    pub images: u64,
    /// Images that are complete in the file.
    pub complete: u64,
    missing: u64,
    kernel_dropped: u64,
    no_slot: u64,
    late: u64,
    foreign: u64,
    received_gigabytes_per_second: f64,
    bits_per_pixel: Option<f64>,
    /// What became of the images at their analysis; `None`: none is asked for.
    analysis: Option<AnalysisTally>,
    latency: Vec<StageLatency>,
    slots_used_max: u64,
    slots: u64,
    /// Resident memory after about a second, and at the end of the run.
    memory_bytes: (u64, u64),
    receive_buffer_bytes: usize,
    /// Processor time by role ([`Watch::to_json`]).
    threads: Vec<Value>,
    /// How often each thread woke up.
    wakeups: Vec<(String, Wakeups)>,
}

impl Attempt {
    /// Is every image complete in the file?
    pub fn lossless(&self) -> bool {
        self.complete == self.images
    }

    /// Was every image analysed, if that was asked for?
    fn all_analysed(&self) -> bool {
        self.analysis.as_ref().is_none_or(|tally| tally.analysed == self.images)
    }

    /// What became of it, in words.
    fn verdict(&self) -> &'static str {
        match (self.lossless(), self.all_analysed(), self.reached()) {
            (false, ..) => "lost data",
            (true, false, _) => "not all analysed",
            (true, true, false) => "sender at its limit",
            (true, true, true) => "loss-free",
        }
    }

    /// Was the sender as fast as it was asked to be?
    pub fn reached(&self) -> bool {
        self.sent_hz >= self.rate_hz * SENDER_REACHES
    }

    /// 99 per cent of the images took no longer from their first packet until they were committed.
    fn committed_p99_ms(&self) -> Option<f64> {
        let committed = self.latency.iter().find(|latency| latency.stage == Stage::Committed)?;
        Some(committed.p99_ns as f64 / 1e6)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let of_thread = |(thread, wakeups): &(String, Wakeups)| {
            let Wakeups { with_work, without_work } = wakeups;
            json!({ "thread": thread, "with_work": with_work, "without_work": without_work })
        };
        json!({
            "rate_hz": self.rate_hz, "sent_hz": self.sent_hz, "images": self.images, "complete": self.complete,
            "packets_missing": self.missing, "kernel_dropped": self.kernel_dropped, "no_slot": self.no_slot, "late": self.late,
            "foreign": self.foreign, "lossless": self.lossless(),
            "gigabytes_per_second": self.received_gigabytes_per_second, "bits_per_pixel": self.bits_per_pixel,
            "latency": latency::by_name(&self.latency), "slots": self.slots, "slots_used_max": self.slots_used_max,
            "resident_bytes_early": self.memory_bytes.0, "resident_bytes_end": self.memory_bytes.1,
            "receive_buffer_bytes": self.receive_buffer_bytes,
            "analysis": self.analysis.as_ref().map(|tally| Map::from_iter(tally.rows().map(|(name, n)| (name.into(), n.into())))),
            "threads": self.threads,
            "wakeups": self.wakeups.iter().map(of_thread).collect::<Vec<_>>(),
        })
    }

    /// Processors that the threads kept busy, by role; empty if the attempt was too short.
    fn busy(&self) -> String {
        let part =
            |row: &Value| format!("{} {:.2}", row["role"].as_str().unwrap_or_default(), row["cores"].as_f64().unwrap_or(0.0));
        let parts: Vec<String> = self.threads.iter().map(part).collect();
        if parts.is_empty() { String::new() } else { format!("\nprocessors kept busy: {}", parts.join(", ")) }
    }

    fn row(&self) -> Vec<String> {
        vec![
            format!("{:.0}", self.rate_hz),
            format!("{:.0}", self.sent_hz),
            format!("{:.2}", self.received_gigabytes_per_second),
            text::count(self.images),
            text::count(self.complete),
            text::count(self.kernel_dropped),
            text::count(self.no_slot),
            text::count(self.late),
            format!("{} of {}", self.slots_used_max, self.slots),
            self.committed_p99_ms().map_or("-".into(), |ms| format!("{ms:.2} ms")),
            self.bits_per_pixel.map_or("-".into(), |b| format!("{b:.2}")),
            text::bytes(self.memory_bytes.1),
            self.analysis.as_ref().map_or("-".into(), |tally| text::count(tally.analysed)),
            self.verdict().into(),
        ]
    }
}

/// `konkordia bench pipeline`
pub fn command(args: &BenchPipelineArgs) -> Result<Exit, Failure> {
    in_folder(args.run.dir.as_deref(), |folder| measure(args, folder))
}

fn measure(args: &BenchPipelineArgs, folder: &Path) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "pipeline")?;
    if !args.output.json {
        console::to_stdout(&format!(
            "{}\nfiles in {}; network: loopback (software stand-in), sender on the same processors",
            machine::line(),
            folder.display()
        ));
    }
    let mut exit = Exit::Complete;
    let mut results = Vec::new();
    for &modules in &args.modules {
        let mut bench = Bench::new(&args.run, folder, modules)?;
        bench.deletes |= args.delete_finished;
        let attempts = match args.rate {
            Some(rate) => vec![bench.attempt(rate, args.seconds, None, &mut |_| ())?],
            None => bench.search(args.seconds)?,
        };
        let best = attempts.iter().filter(|a| a.lossless() && a.all_analysed()).max_by(|a, b| a.sent_hz.total_cmp(&b.sent_hz));
        if args.rate.is_some() && best.is_none() {
            exit = Exit::Incomplete;
        }
        if !args.output.json {
            let head = [
                "rate",
                "sent",
                "GB/s",
                "images",
                "complete",
                "kernel_dropped",
                "no_slot",
                "late",
                "ring",
                "committed p99",
                "bit/pixel",
                "memory",
                "analysed",
                "",
            ];
            let rows: Vec<_> =
                std::iter::once(head.map(str::to_string).to_vec()).chain(attempts.iter().map(Attempt::row)).collect();
            let verdict = best.map_or("no loss-free rate found".into(), |b| {
                format!("highest loss-free rate: {:.0} Hz, {:.2} GB/s", b.sent_hz, b.received_gigabytes_per_second)
            });
            let busy = best.map(Attempt::busy).unwrap_or_default();
            console::to_stdout(&format!("\n{modules} module(s)\n{}\n{verdict}{busy}", text::table(&rows)));
        }
        results.push(json!({
            "modules": modules, "attempts": attempts.iter().map(Attempt::to_json).collect::<Vec<_>>(),
            "best_hz": best.map(|b| b.sent_hz), "best_gigabytes_per_second": best.map(|b| b.received_gigabytes_per_second),
        }));
    }
    let compression = if args.run.compression == BenchCompression::None { "none" } else { "bslz4" };
    // People have seen the tables of each number of modules.
    output.print(
        json!({ "machine": machine::facts(), "network": "loopback", "folder": folder, "compression": compression, "results": results }),
        "",
    );
    Ok(exit)
}

/// A simulated detector of `modules` modules and all that is needed to receive it.
pub struct Bench<'a> {
    args: &'a BenchRunArgs,
    folder: &'a Path,
    modules: u32,
    energy_kev: f64,
    /// What is sent.
    pub feed: Feed,
    /// Data files are deleted as soon as they are complete.
    pub deletes: bool,
}

impl<'a> Bench<'a> {
    /// Makes the images; the files of the runs lie in `folder`.
    ///
    /// # Errors
    /// If frames or calibration cannot be read or written.
    pub fn new(args: &'a BenchRunArgs, folder: &'a Path, modules: u32) -> Result<Self, Failure> {
        let down = SceneModel::for_modules(modules as usize).modules_down;
        let packetiser = packetiser(DetectorKind::Jungfrau { interfaces: 1 }, modules, down, 1, 0.0)?;
        console::to_stderr(&format!("preparing the images of {modules} module(s) ..."));
        let calibration = folder.join("calibration");
        let (feed, energy_kev) = match &args.calibration {
            Some(own) if !args.raw.is_empty() => {
                write_files(&calibration, &calibration_of(own, modules)?)?;
                let frames = raw_frames(&args.raw)?;
                // The modules show different frames, as those of a detector do.
                let tiles = |n: u64| (0..modules as usize).map(|m| frames[(n as usize + m) % frames.len()].clone()).collect();
                (Feed::build(packetiser, frames.len() as u64, tiles), args.energy_kev)
            }
            _ => {
                let detector = jungfrau(modules)?;
                write_files(&calibration, &detector.calibration_files(true))?;
                (Feed::synthetic_jungfrau(&detector, packetiser, SYNTHETIC_IMAGES), detector.model().scene.energy_kev)
            }
        };
        // Files in memory must not accumulate; files on a disk are deleted only if that is asked for.
        Ok(Self { args, folder, modules, energy_kev, feed, deletes: args.dir.is_none() })
    }

    /// Attempts up to the highest rate without loss, see [`search`].
    ///
    /// # Errors
    /// As [`Bench::attempt`].
    pub fn search(&mut self, seconds: f64) -> Result<Vec<Attempt>, Failure> {
        let is_good = |attempt: &Attempt| attempt.lossless() && attempt.all_analysed() && attempt.reached();
        search(is_good, &mut |rate| self.attempt(rate, seconds, None, &mut |_| ()))
    }

    /// The configuration of a run of so many images, with further tables.
    ///
    /// # Errors
    /// If the options do not make a configuration.
    pub fn config(&self, images: u64, more: &str) -> Result<Config, Failure> {
        let args = self.args;
        let compression = if args.compression == BenchCompression::None { "none" } else { "bslz4" };
        let workers = args.workers.map_or(String::new(), |n| format!("[processing]\nworkers = {n}\n"));
        let analysis = args.analysis.as_ref().map_or(Ok(String::new()), |recipe| self.analysis_text(recipe))?;
        let text = RunText {
            modules: self.modules,
            interfaces: 1,
            beam: self.beam(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 50010)),
            calibration: Path::new("calibration"),
            directory: Path::new("."),
            prefix: "bench",
            run: format!("images = {images}\nstall_timeout_s = 1\nbuffer_mib = {}\n", args.buffer_mib),
            more: workers + &analysis + more,
        }
        .text()
        .replace("[source]\n", &format!("[source]\nreceive_buffer_mib = {}\n", args.receive_buffer_mib))
        .replace("[output]\n", &format!("[output]\ncompression = \"{compression}\"\n"));
        Config::parse(&text, &self.folder.join("bench.toml")).map_err(|d| {
            Failure::new(Exit::Usage, "this cannot be measured", d.to_string(), "correct the option that it comes from")
        })
    }

    /// Where the detector is. Only the analysis needs to know; modules are taken as if they had no gaps.
    fn beam(&self) -> Beam {
        let scene = SceneModel::for_modules(self.modules as usize);
        let place = self.args.analysis.is_some().then_some((scene.distance_mm, scene.beam_px));
        Beam { energy_kev: self.energy_kev, distance_mm: place.map(|place| place.0), center_px: place.map(|place| place.1) }
    }

    /// The table of the analysis.
    fn analysis_text(&self, recipe: &Path) -> Result<String, Failure> {
        let recipe = recipe.canonicalize().map_err(|error| Failure::io("cannot read", recipe, &error))?;
        let workers = self.args.analysis_workers.map_or(String::new(), |n| format!("workers = {n}\n"));
        Ok(format!("[analysis]\nrecipe = {:?}\n{workers}", recipe.display().to_string()))
    }

    /// Sends frames into a prepared run, so many at each of these rates in Hz, and closes its files, which are then
    /// deleted.
    ///
    /// # Errors
    /// If the run fails, or its packets cannot be sent.
    pub fn carry_out(
        &mut self,
        config: &Config,
        prepared: Prepared,
        rates: &[(f64, u64)],
        watch: &mut (dyn FnMut(&Control) + Send),
    ) -> Result<(RunOutcome, Vec<Sent>, Report), Failure> {
        let opened = prepared.opened.clone();
        let (outcome, sent) = transfer(prepared, &mut self.feed, rates, watch)?;
        if let (_, Some(failure)) = exit_of(&outcome, false, false) {
            return Err(failure);
        }
        let report = opened.close(config, &outcome)?;
        delete_data_files(self.folder, Which::All);
        Ok((outcome, sent, report))
    }

    /// One run at this rate, and then, if asked for, at another one for so many seconds; `look` is called about every
    /// 0.2 s.
    ///
    /// # Errors
    /// If the run cannot be armed, or fails.
    pub fn attempt(
        &mut self,
        rate_hz: f64,
        seconds: f64,
        then: Option<(f64, f64)>,
        look: &mut (dyn FnMut(&Control) + Send),
    ) -> Result<Attempt, Failure> {
        let phases = std::iter::once((rate_hz, seconds)).chain(then);
        let rates: Vec<(f64, u64)> = phases.map(|(hz, seconds)| (hz, ((hz * seconds) as u64).max(10))).collect();
        let images = rates.iter().map(|(_, images)| images).sum();
        let config = self.config(images, "")?;
        let (folder, deletes) = (self.folder, self.deletes);
        let prepared = arm::prepare(&config, Ports::Free, console::note)?;
        let (slots, receive_buffer_bytes) = (prepared.plan.slots, prepared.receive_buffer_bytes);
        let (mut slots_used_max, mut memory_bytes, mut looks) = (0, (0, 0), 0u32);
        let (mut of_threads, begun) = (Watch::default(), Instant::now());
        let mut watch = |control: &Control| {
            let progress = control.progress();
            of_threads.look(begun.elapsed(), progress.images_committed, threads::now());
            slots_used_max = slots_used_max.max(progress.slots_used);
            looks += 1;
            look(control);
            if deletes {
                delete_data_files(folder, Which::Finished);
            }
            // After about a second all memory that is used from the start has been touched.
            memory_bytes.1 = resident_bytes();
            if looks <= 5 {
                memory_bytes.0 = memory_bytes.1;
            }
        };
        let (outcome, sent, report) = self.carry_out(&config, prepared, &rates, &mut watch)?;
        let (ledger, total) = (&outcome.ledger, outcome.ledger.total());
        let attempt = Attempt {
            rate_hz,
            sent_hz: sent[0].images as f64 / sent[0].seconds.max(1e-9),
            sent_seconds: sent[0].seconds,
            images,
            complete: ledger.images.complete.min(ledger.written),
            missing: ledger.frames.packets_missing,
            kernel_dropped: total.kernel_dropped,
            no_slot: total.no_slot,
            late: total.late,
            foreign: total.foreign,
            received_gigabytes_per_second: report.gigabytes_per_second(),
            bits_per_pixel: report.bits_per_pixel(),
            analysis: outcome.analysis.read(),
            latency: outcome.meter.read(),
            slots_used_max,
            slots,
            memory_bytes,
            receive_buffer_bytes,
            threads: of_threads.to_json(),
            wakeups: outcome.wakeups,
        };
        console::to_stderr(&format!("  {rate_hz:.0} Hz: {}", attempt.row().last().cloned().unwrap_or_default()));
        Ok(attempt)
    }
}

/// Doubles the rate until an attempt is not good (data are lost, or the sender is at its limit), then halves the
/// interval.
///
/// # Errors
/// That of the first attempt that fails.
pub fn search<A>(is_good: impl Fn(&A) -> bool, attempt: &mut dyn FnMut(f64) -> Result<A, Failure>) -> Result<Vec<A>, Failure> {
    let mut attempts = Vec::new();
    let (mut good, mut bad, mut rate) = (0.0, f64::INFINITY, RATE_FIRST_HZ);
    while bad / f64::max(good, 1.0) > RATE_CLOSE && rate > 1.0 {
        let attempt = attempt(rate)?;
        if is_good(&attempt) {
            good = rate;
        } else {
            bad = rate;
        }
        attempts.push(attempt);
        rate = if bad.is_infinite() {
            good * 2.0
        } else if good == 0.0 {
            bad / 2.0
        } else {
            (good * bad).sqrt()
        };
    }
    Ok(attempts)
}

/// What to delete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Data files that the writer has finished.
    Finished,
    /// All files of the run.
    All,
}

/// Deletes files of the run in the folder of the bench. Files that cannot be deleted now are removed with the folder.
fn delete_data_files(folder: &Path, which: Which) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_file()).collect();
    if which == Which::Finished {
        files.retain(|p| {
            p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("bench_data_") && n.ends_with(".h5"))
        });
        files.sort();
        // The last one is being written.
        files.pop();
    }
    for file in files {
        let _ = std::fs::remove_file(file);
    }
}

/// Resident memory of this process.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().split(' ').next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}
