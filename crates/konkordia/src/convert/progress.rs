//! Runs a conversion while another thread shows its progress.

use super::args::ConvertArgs;
use crate::console;
use konkordia_core::plan::Plan;
use konkordia_core::text;
use konkordia_engine::control::Control;
use konkordia_engine::run::{Armed, RunOutcome};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two updates.
const GRAIN: Duration = Duration::from_millis(50);

/// Runs to the end of the input; `kept` images were in the files before.
pub fn watch_run(armed: Armed, plan: &Plan, args: &ConvertArgs, kept: u64) -> RunOutcome {
    let control = armed.control();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut progress = console::Progress::new(args.quiet || args.json);
            let pace = Pace::new(plan, kept);
            let mut events = Instant::now();
            while !done.load(Ordering::Acquire) {
                std::thread::sleep(GRAIN);
                progress.update(|| pace.line(&control));
                if args.json && events.elapsed() > Duration::from_secs(1) {
                    events = Instant::now();
                    console::json(&pace.event(&control), true);
                }
            }
            progress.end();
        });
        let outcome = armed.run();
        done.store(true, Ordering::Release);
        outcome
    })
}

/// The rate and the remaining time.
struct Pace {
    frames: u64,
    kept: u64,
    started: Instant,
}

/// Width of the bar in characters.
const BAR: u64 = 30;

impl Pace {
    fn new(plan: &Plan, kept: u64) -> Self {
        Self { frames: plan.frames.unwrap_or(1).max(1), kept, started: Instant::now() }
    }

    /// Fraction of the frames that are done, and seconds that the rest will take.
    fn share(&self, control: &Control) -> (f64, Option<f64>) {
        let p = control.progress();
        // This is right also where a frame is not an image.
        let done = p.frames_committed.min(self.frames);
        let seconds = self.started.elapsed().as_secs_f64();
        let left = (done > 0).then(|| seconds * (self.frames - done) as f64 / done as f64);
        (done as f64 / self.frames as f64, left)
    }

    fn line(&self, control: &Control) -> String {
        let p = control.progress();
        let (share, left) = self.share(control);
        let filled = (share * BAR as f64) as u64;
        let bar: String = (0..BAR).map(|n| if n < filled { '#' } else { '.' }).collect();
        let seconds = self.started.elapsed().as_secs_f64().max(1e-3);
        let left = left.map_or("-".into(), clock);
        format!(
            "[{bar}] {:3.0} %  {} images, {:.0} Hz, {:.2} GB/s in, {left} left",
            share * 100.0,
            text::count(self.kept + p.images_written),
            p.images_written as f64 / seconds,
            p.packets.received_bytes as f64 / seconds / 1e9
        )
    }

    fn event(&self, control: &Control) -> serde_json::Value {
        let p = control.progress();
        let (share, left) = self.share(control);
        json!({
            "event": "progress", "share": share, "seconds_left": left, "images_written": self.kept + p.images_written,
            "images_seen": p.images_seen, "packets_placed": p.packets.placed, "bytes_read": p.packets.received_bytes,
            "seconds": self.started.elapsed().as_secs_f64(),
        })
    }
}

/// Minutes and seconds, with hours where there are some.
fn clock(seconds: f64) -> String {
    let s = seconds.ceil() as u64;
    let (hours, minutes, seconds) = (s / 3600, s / 60 % 60, s % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_readable() {
        assert_eq!([0.0, 59.2, 3599.0, 3601.0].map(super::clock), ["0:00", "1:00", "59:59", "1:00:01"]);
    }
}
