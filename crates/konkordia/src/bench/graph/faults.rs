//! Processes of an inner stage that are killed or stopped while a graph runs.

use super::runs::{self, Folder};
use crate::bench::peer::failed;
use konkordia_core::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Processes of the stage.
const WORKERS: u64 = 4;
/// How long a process is stopped.
const STOPPED: Duration = Duration::from_millis(600);
/// Between two faults all processes work.
const BETWEEN: Duration = Duration::from_millis(300);
/// Between two looks whether a process works again.
const LOOK: Duration = Duration::from_millis(5);
/// A process that does not work again after so long has ended with the run.
const PATIENCE: Duration = Duration::from_secs(10);

/// What happens to a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; it is started again.
    Kill,
    /// SIGSTOP, and SIGCONT after [`STOPPED`].
    Stop,
}

/// What was found.
pub struct Found {
    fault: Fault,
    times: u64,
    images: u64,
    done: u64,
    doubled: u64,
    sent_again: u64,
    recoveries: u64,
    recovery_ms_mean: f64,
    recovery_ms_max: u64,
    /// Of the time of all processes, the part in which one was away.
    away: f64,
    /// Images per second, of those without faults.
    of_rate: f64,
}

impl Fault {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Stop => "stopped",
        }
    }
}

fn signal(pid: u64, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        _ = kill_process(pid, signal);
    }
}

/// Runs a graph without faults for `clean_s`, then one with so many.
///
/// # Errors
/// A graph cannot be started, or has failed.
pub fn measure(folder: &Folder, fault: Fault, times: u64, (work_ms, clean_s): (f64, f64)) -> Result<Found, Failure> {
    let per_second = WORKERS as f64 * 1e3 / work_ms;
    let clean = runs::waiting(folder, WORKERS, (per_second * clean_s) as u64, work_ms)?.per_second();
    // Enough images that the run does not end before the faults.
    let images = (per_second * times as f64 * (BETWEEN + STOPPED).as_secs_f64() * 1.2) as u64 + 200;
    let mut child = folder.start(&runs::waiting_graph(WORKERS, images, work_ms))?;
    let taken = |member: &str| folder.state(member)["input"]["taken"].as_u64().unwrap_or(0);
    let (mut away, mut done, mut random) = (Duration::ZERO, 0, 12_345_u64);
    while done < times && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(BETWEEN);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let member = format!("work-{}", (random >> 33) % WORKERS);
        let (Some(pid), true) = (folder.state(&member)["pid"].as_u64(), taken("to-0") > 0) else { continue };
        let began = Instant::now();
        match fault {
            Fault::Kill => {
                signal(pid, Signal::KILL);
                let is_back = || folder.state(&member)["pid"].as_u64() != Some(pid) && taken(&member) > 0;
                while !is_back() && began.elapsed() < PATIENCE {
                    std::thread::sleep(LOOK);
                }
            }
            Fault::Stop => {
                signal(pid, Signal::STOP);
                std::thread::sleep(STOPPED);
                signal(pid, Signal::CONT);
            }
        }
        away += began.elapsed();
        done += 1;
    }
    let ended_early = !matches!(child.try_wait(), Ok(None));
    let counted = runs::finish(child)?;
    if ended_early && done < times {
        return Err(failed("the run of the bench ended before all faults", &std::io::Error::other("it was too short")));
    }
    let number = |name: &str| counted.first[name].as_u64().unwrap_or(0);
    let recoveries = number("recoveries");
    Ok(Found {
        fault,
        times: done,
        images,
        done: counted.done,
        doubled: counted.doubled,
        sent_again: number("sent_again"),
        recoveries,
        recovery_ms_mean: number("recovery_ms_sum") as f64 / recoveries as f64,
        recovery_ms_max: number("recovery_ms_max"),
        away: away.as_secs_f64() / (WORKERS as f64 * counted.seconds),
        of_rate: counted.per_second() / clean,
    })
}

/// Of the columns of [`Found::to_row`].
pub const HEAD: [&str; 9] = [
    "4 processes",
    "times",
    "images",
    "lost",
    "taken twice",
    "sent again",
    "others have its images after",
    "away",
    "of the rate",
];

impl Found {
    /// Nothing is lost.
    pub fn verified(&self) -> bool {
        self.done == self.images
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "fault": self.fault.name(), "times": self.times, "images": self.images, "lost": self.images - self.done.min(self.images),
            "taken_twice": self.done.saturating_sub(self.images), "came_again": self.doubled, "sent_again": self.sent_again,
            "recoveries": self.recoveries, "recovery_ms_mean": self.recovery_ms_mean, "recovery_ms_max": self.recovery_ms_max,
            "away": self.away, "of_rate": self.of_rate, "of_rate_at_least": 1.0 - self.away, "verified": self.verified(),
        })
    }

    /// For people.
    pub fn to_row(&self) -> Vec<String> {
        vec![
            self.fault.name().to_owned(),
            self.times.to_string(),
            self.images.to_string(),
            (self.images - self.done.min(self.images)).to_string(),
            self.done.saturating_sub(self.images).to_string(),
            self.sent_again.to_string(),
            format!("{:.0} ms, at most {} ms", self.recovery_ms_mean, self.recovery_ms_max),
            format!("{:.1} %", 100.0 * self.away),
            format!("{:.1} %", 100.0 * self.of_rate),
        ]
    }
}
