//! `konkordia bench soak`: a long run of the pipeline at a fraction of its highest rate without loss. Loss, memory and
//! latency are looked at over and over, and at the end there is a verdict: was anything lost, and does memory grow?

use super::args::BenchSoakArgs;
use super::frames::in_folder;
use super::output::Output;
use super::pipeline::{Attempt, Bench, resident_bytes};
use super::spread::Spread;
use crate::console::{self, Progress};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::latency::{Stage, StageLatency};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::text;
use konkordia_engine::control::Control;
use konkordia_engine::latency::Counts;
use konkordia_picture::{Axis, Series};
use serde_json::{Value, json};

/// Samples of a run, evenly spread; a short one has fewer.
const SAMPLES: f64 = 120.0;
/// Of so many samples, people see one.
const SHOWN_EVERY: usize = 10;
/// Rate and duration of a quick run.
const QUICK_HZ: f64 = 50.0;
const QUICK_SECONDS: f64 = 3.0;
/// Duration of the time after the load has fallen.
const THEN_SECONDS: f64 = 10.0;
/// Growth of memory is judged for runs from this duration on, without the first fifth, in which buffers are touched for
/// the first time.
const JUDGED_FROM_SECONDS: f64 = 60.0;
const LEFT_OUT: f64 = 0.2;
/// Memory is flat if it grows by no more than this, of its median or in bytes, in the judged part of the run.
const FLAT_PART: f64 = 0.02;
const FLAT_BYTES: f64 = 8.0 * 1048576.0;

/// `konkordia bench soak`
pub fn command(args: &BenchSoakArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    let output = Output::open(&args.output, "soak")?;
    in_folder(args.run.dir.as_deref(), |folder| {
        let mut bench = Bench::new(&args.run, folder, args.modules)?;
        // A long run would fill every disk.
        bench.deletes = true;
        let seconds = if args.quick { QUICK_SECONDS } else { args.minutes * 60.0 };
        let highest_hz = match (args.rate, args.quick) {
            (None, false) => Some(highest(&bench.search(args.seconds)?)?),
            _ => None,
        };
        let rate_hz = args.rate.unwrap_or_else(|| highest_hz.map_or(QUICK_HZ, |highest| highest * args.fraction));
        console::to_stderr(&format!("{:.1} minutes at {rate_hz:.0} Hz ...", seconds / 60.0));
        let mut series = TimeSeries::new(seconds / SAMPLES, Progress::new(args.output.json));
        let then = args.then.map(|hz| (hz, THEN_SECONDS));
        let attempt = bench.attempt(rate_hz, seconds, then, &mut |control| series.look(control))?;
        series.progress.end();
        let recovery = args.then.map(|rate_hz| Recovery::of(rate_hz, attempt.sent_seconds, &series.losses));
        let soak = Soak { rate_hz, highest_hz, seconds, samples: series.samples, attempt, recovery };
        if let Some(png) = &args.png {
            draw(&soak.samples).write(png)?;
        }
        output.print(soak.to_json(args), &soak.to_text());
        Ok(if soak.is_good() { Exit::Complete } else { Exit::Incomplete })
    })
}

/// The highest rate of a search at which nothing was lost.
fn highest(attempts: &[Attempt]) -> Result<f64, Failure> {
    let good = attempts.iter().filter(|attempt| attempt.lossless()).map(|attempt| attempt.sent_hz).max_by(f64::total_cmp);
    good.ok_or_else(|| {
        let fix = "look at `konkordia bench pipeline`; end other programs, or give more --workers";
        Failure::new(Exit::Incomplete, "there is no rate without loss", "images were lost at every rate", fix)
    })
}

/// The run at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Since the run was armed.
    seconds: f64,
    resident_bytes: u64,
    /// Images so far: committed, and those of them that are not complete.
    committed: u64,
    lost: u64,
    slots_used: u64,
    /// Of the images since the sample before: from their first packet until they were committed, and until they were
    /// written.
    committed_latency: Option<StageLatency>,
    written_latency: Option<StageLatency>,
}

/// Samples at regular times.
struct TimeSeries {
    every_seconds: f64,
    counts: Counts,
    samples: Vec<Sample>,
    /// When it was seen, at one of all looks, that more images had been lost, and how many so far.
    losses: Vec<(f64, u64)>,
    progress: Progress,
}

impl TimeSeries {
    fn new(every_seconds: f64, progress: Progress) -> Self {
        Self { every_seconds, counts: Counts::default(), samples: Vec::new(), losses: Vec::new(), progress }
    }

    fn look(&mut self, control: &Control) {
        let seconds = control.now_ns() as f64 / 1e9;
        let now = control.progress();
        let lost = now.images_by_status.iter().sum::<u64>() - now.images_by_status[ImageStatus::Complete as usize];
        if lost > self.losses.last().map_or(0, |(_, before)| *before) {
            self.losses.push((seconds, lost));
        }
        if seconds < self.every_seconds * (self.samples.len() + 1) as f64 {
            return;
        }
        let latencies = control.latencies_since(&mut self.counts);
        let of = |stage| latencies.iter().find(|latency| latency.stage == stage).copied();
        let sample = Sample {
            seconds,
            resident_bytes: resident_bytes(),
            committed: now.images_committed,
            lost,
            slots_used: now.slots_used,
            committed_latency: of(Stage::Committed),
            written_latency: of(Stage::Written),
        };
        self.progress.update(|| sample.line().join("  "));
        self.samples.push(sample);
    }
}

impl Sample {
    const HEAD: [&'static str; 7] =
        ["seconds", "images", "not complete", "memory", "ring", "committed after, p50, p99 ms", "written after, p50, p99 ms"];

    fn line(&self) -> Vec<String> {
        let in_ms = |latency: StageLatency| format!("{:.2}, {:.2}", latency.p50_ns as f64 / 1e6, latency.p99_ns as f64 / 1e6);
        let of = |latency: Option<StageLatency>| latency.map_or("-".into(), in_ms);
        vec![
            format!("{:.0}", self.seconds),
            text::count(self.committed),
            text::count(self.lost),
            text::bytes(self.resident_bytes),
            self.slots_used.to_string(),
            of(self.committed_latency),
            of(self.written_latency),
        ]
    }

    fn to_json(self) -> Value {
        let of = |latency: Option<StageLatency>| {
            latency.map(|latency| {
                json!({
                    "p50_ns": latency.p50_ns, "p99_ns": latency.p99_ns, "p999_ns": latency.p999_ns, "max_ns": latency.max_ns,
                })
            })
        };
        json!({
            "seconds": self.seconds, "resident_bytes": self.resident_bytes, "committed": self.committed, "not_complete": self.lost,
            "slots_used": self.slots_used, "committed_latency": of(self.committed_latency), "written_latency": of(self.written_latency),
        })
    }
}

/// Bytes of memory that a run gains in the part of it that is judged, by a straight line through its samples, and the
/// bytes that it may gain; `None` if there are fewer than two samples.
fn growth(samples: &[Sample]) -> Option<(f64, f64)> {
    let from = samples.last()?.seconds * LEFT_OUT;
    let points: Vec<(f64, f64)> =
        samples.iter().filter(|s| s.seconds >= from).map(|s| (s.seconds, s.resident_bytes as f64)).collect();
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (above, below) =
        points.iter().fold((0.0, 0.0), |(above, below), p| (above + (p.0 - x) * (p.1 - y), below + (p.0 - x).powi(2)));
    let duration = points.last()?.0 - points.first()?.0;
    let allowed = (Spread::of(points.iter().map(|p| p.1)).median * FLAT_PART).max(FLAT_BYTES);
    (below > 0.0).then(|| (above / below * duration, allowed))
}

/// What happened after the load had fallen.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recovery {
    rate_hz: f64,
    /// Seconds until the last look at which more images had been lost.
    seconds: f64,
    /// Images that were seen to be lost only then.
    images_lost: u64,
}

impl Recovery {
    /// From the losses by time, if the load fell after so many seconds.
    fn of(rate_hz: f64, fell_seconds: f64, losses: &[(f64, u64)]) -> Self {
        let before = losses.iter().take_while(|(seconds, _)| *seconds <= fell_seconds).last().map_or(0, |(_, lost)| *lost);
        let (seconds, lost) = losses.last().copied().unwrap_or_default();
        Self { rate_hz, seconds: (seconds - fell_seconds).max(0.0), images_lost: lost - before }
    }

    fn to_text(self) -> String {
        let Self { rate_hz, seconds, images_lost } = self;
        format!(
            "\nafter the load had fallen to {rate_hz:.0} Hz: images were seen to be lost for another {seconds:.1} s (looked at \
             every 0.2 s), {} images",
            text::count(images_lost)
        )
    }
}

/// A run and its verdict.
struct Soak {
    rate_hz: f64,
    highest_hz: Option<f64>,
    /// Planned.
    seconds: f64,
    samples: Vec<Sample>,
    attempt: Attempt,
    recovery: Option<Recovery>,
}

impl Soak {
    /// Does memory stay as it is? `None` if the run was too short to know.
    fn is_flat(&self) -> Option<bool> {
        let is_long = self.samples.last().is_some_and(|last| last.seconds >= JUDGED_FROM_SECONDS);
        growth(&self.samples).filter(|_| is_long).map(|(growth, allowed)| growth <= allowed)
    }

    fn is_good(&self) -> bool {
        self.attempt.lossless() && self.is_flat() != Some(false)
    }

    fn to_json(&self, args: &BenchSoakArgs) -> Value {
        let growth = growth(&self.samples);
        json!({
            "bench": "soak", "machine": machine::facts(), "network": "loopback", "modules": args.modules, "seconds": self.seconds,
            "rate_hz": self.rate_hz, "highest_loss_free_hz": self.highest_hz, "run": self.attempt.to_json(),
            "recovery": self.recovery.map(|recovery| json!({
                "rate_hz": recovery.rate_hz, "seconds": recovery.seconds, "images_lost": recovery.images_lost,
            })),
            "samples": self.samples.iter().map(|sample| sample.to_json()).collect::<Vec<_>>(),
            "growth_bytes": growth.map(|(growth, _)| growth), "growth_bytes_allowed": growth.map(|(_, allowed)| allowed),
            "loss_free": self.attempt.lossless(), "memory_is_flat": self.is_flat(), "verified": self.is_good(),
        })
    }

    fn to_text(&self) -> String {
        let head = Sample::HEAD.map(str::to_string).to_vec();
        let shown = self.samples.iter().rev().step_by(SHOWN_EVERY).map(Sample::line).collect::<Vec<_>>();
        let table = text::table(&std::iter::once(head).chain(shown.into_iter().rev()).collect::<Vec<_>>());
        let highest =
            self.highest_hz.map_or(String::new(), |hz| format!(", {:.2} of the highest rate without loss", self.rate_hz / hz));
        let loss = if self.attempt.lossless() {
            format!("nothing was lost: {} images", text::count(self.attempt.images))
        } else {
            format!("LOST: {} of {} images are complete", text::count(self.attempt.complete), text::count(self.attempt.images))
        };
        let grown = growth(&self.samples).map_or("unknown".into(), |(growth, allowed)| {
            format!("{:.1} MiB (flat up to {:.1})", growth / 1048576.0, allowed / 1048576.0)
        });
        let memory = match self.is_flat() {
            Some(true) => "memory is flat",
            Some(false) => "memory GROWS",
            None => "the run was too short to judge its memory",
        };
        format!(
            "{}\nnetwork: loopback (software stand-in), sender on the same processors; {:.0} Hz{highest}\nlatencies: of the images \
             since the sample before, from the first packet on\n\n{table}\n\n{loss}{}\n{memory}; growth without the first fifth: {grown}",
            machine::line(),
            self.rate_hz,
            self.recovery.map_or(String::new(), Recovery::to_text)
        )
    }
}

/// Memory above, latency below.
fn draw(samples: &[Sample]) -> konkordia_picture::Picture {
    let x = Axis { label: "seconds", log: false };
    let line = |name: &'static str, unit: f64, value: fn(&Sample) -> Option<u64>| {
        let point = |sample: &Sample| Some((sample.seconds, value(sample)? as f64 / unit));
        Series { name, points: samples.iter().filter_map(point).collect(), line: true }
    };
    let memory = [line("resident", 1048576.0, |sample| Some(sample.resident_bytes))];
    let latency = [
        line("committed, p50", 1e6, |sample| Some(sample.committed_latency?.p50_ns)),
        line("committed, p99", 1e6, |sample| Some(sample.committed_latency?.p99_ns)),
        line("written, p99", 1e6, |sample| Some(sample.written_latency?.p99_ns)),
    ];
    konkordia_picture::stacked(&[
        konkordia_picture::chart("Memory of the process", &x, &Axis { label: "MiB", log: false }, &memory),
        konkordia_picture::chart("Latency from the first packet", &x, &Axis { label: "ms", log: true }, &latency),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(bytes: impl Fn(f64) -> f64) -> Vec<Sample> {
        let sample = |n: u32| Sample {
            seconds: f64::from(n),
            resident_bytes: bytes(f64::from(n)) as u64,
            committed: 0,
            lost: 0,
            slots_used: 0,
            committed_latency: None,
            written_latency: None,
        };
        (1..=100).map(sample).collect()
    }

    #[test]
    fn what_is_lost_after_the_load_has_fallen() {
        let losses = [(1.0, 5), (2.0, 50), (3.1, 60), (3.3, 61)];
        assert_eq!(Recovery::of(100.0, 2.9, &losses), Recovery { rate_hz: 100.0, seconds: 3.3 - 2.9, images_lost: 11 });
        assert_eq!(Recovery::of(100.0, 4.0, &losses), Recovery { rate_hz: 100.0, seconds: 0.0, images_lost: 0 });
        assert_eq!(Recovery::of(100.0, 4.0, &[]), Recovery { rate_hz: 100.0, seconds: 0.0, images_lost: 0 });
    }

    #[test]
    fn growth_is_that_of_a_line_without_the_beginning() {
        let mib = 1048576.0;
        // Fills its buffers in the first 10 s, then grows by 0.5 MiB each second.
        let (grown, allowed) = growth(&samples(|s| (500.0 + 50.0 * s.min(10.0) + 0.5 * s) * mib)).unwrap();
        assert!((grown / mib - 40.0).abs() < 0.1, "{}", grown / mib);
        assert!((allowed / mib - 1030.0 * FLAT_PART).abs() < 0.5 && grown > allowed, "{}", allowed / mib);
        let (flat, allowed) = growth(&samples(|s| (300.0 + (s * 0.7).sin()) * mib)).unwrap();
        assert!(flat.abs() < mib && allowed == FLAT_BYTES, "{flat} {allowed}");
        assert!(growth(&[]).is_none() && growth(&samples(|_| 1.0)[..1]).is_none());
    }
}
