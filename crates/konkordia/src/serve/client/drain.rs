//! `konkordia drain`: no further run begins, and those in progress are waited for. The last thing before a service is
//! replaced.

use super::args::{DrainArgs, TargetArgs};
use super::http::Client;
use super::list::Detectors;
use super::show;
use crate::console;
use konkordia_acquire::handle::{DetectorState, DetectorStatus};
use konkordia_core::failure::{Exit, Failure};
use serde_json::json;
use std::time::{Duration, Instant};

/// Time between two looks at the runs.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time without an answer of the service: it may be busy, or just be starting.
const SILENCE: Duration = Duration::from_secs(30);

/// `konkordia drain`
///
/// # Errors
/// The service cannot be reached or refuses, or runs last longer than the time limit.
pub fn drain(args: &DrainArgs) -> Result<Exit, Failure> {
    let target = TargetArgs { detector: None, ..args.target.clone() };
    let client = Client::new(&target)?;
    let begun = Instant::now();
    let mut detectors = client.post::<Detectors>("drain", &json!({}))?.detectors;
    let mut answered = Instant::now();
    let mut progress = console::Progress::new(target.json);
    while !args.no_wait && detectors.iter().any(is_at_work) {
        if args.timeout.is_some_and(|longest| begun.elapsed().as_secs_f64() >= longest) {
            progress.end();
            return Err(too_long(&detectors));
        }
        progress.update(|| detectors.iter().filter(|status| is_at_work(status)).map(show::line).collect::<Vec<_>>().join("; "));
        std::thread::sleep(LOOK);
        match client.get_within::<Detectors>("detectors", &[], Duration::from_secs(10)) {
            Ok(list) => (detectors, answered) = (list.detectors, Instant::now()),
            Err(failure) if answered.elapsed() > SILENCE => return Err(failure),
            Err(_) => {}
        }
    }
    progress.end();
    if target.json {
        console::json(&json!(detectors), false);
    } else {
        detectors.iter().for_each(|status| console::to_stdout(&show::line(status)));
    }
    Ok(Exit::Complete)
}

/// True if a run is armed or in progress, or its files are being closed.
fn is_at_work(status: &DetectorStatus) -> bool {
    !matches!(status.state, DetectorState::Idle | DetectorState::Error)
}

fn too_long(detectors: &[DetectorStatus]) -> Failure {
    let busy: Vec<String> = detectors.iter().filter(|status| is_at_work(status)).map(show::line).collect();
    let fix = "wait for longer (--timeout), or end the runs with `konkordia stop`; what has arrived is kept";
    Failure::new(Exit::Timeout, "runs are still in progress; no further one begins", busy.join("\n"), fix)
}
