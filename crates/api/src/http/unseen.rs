//! Waiting for images that somebody has not seen. While nobody waits, nothing is done here.

use super::problem::Problem;
use super::state::{Shared, changed};
use super::status::seconds;
use konkordia_acquire::handle::Detector;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What somebody has seen, and how long he waits for more.
#[derive(Debug)]
pub struct Seen {
    /// Number of the newest image seen; `None` = none of this run.
    after: Option<u64>,
    /// The run that it is of; `None` = the run of the images that are kept.
    run: Option<u64>,
    wait: Duration,
}

impl Seen {
    /// From a query; `None` if it asks for no wait.
    ///
    /// # Errors
    /// The time to wait is out of range, or comes alone.
    pub fn of(after: Option<u64>, run: Option<u64>, wait_s: Option<f64>) -> Result<Option<Self>, Problem> {
        let alone = || {
            let hint = "for example images/latest?format=npy&after=7&run=3&wait_s=10";
            Problem::new("bad_query", "wait_s: it is not said which images were seen (after, run)", hint)
        };
        match (after, run, wait_s) {
            (None, None, None) => Ok(None),
            (None, None, Some(_)) => Err(alone()),
            _ => Ok(Some(Self { after, run, wait: seconds("wait_s", wait_s.unwrap_or(0.0))? })),
        }
    }

    /// The oldest image that is kept and was not seen.
    fn unseen(&self, detector: &dyn Detector) -> Option<u64> {
        let (numbers, run) = detector.images().numbers();
        let is_other = self.run.is_some_and(|seen| seen != run.unwrap_or_else(|| detector.status().run));
        numbers.into_iter().find(|number| is_other || self.after.is_none_or(|after| *number > after))
    }

    /// True if the run whose images were seen is over. Its end, too, ends the wait.
    fn is_over(&self, detector: &dyn Detector) -> bool {
        let status = detector.status();
        status.has_ended(self.run.unwrap_or(status.run))
    }

    /// Waits for an image that was not seen, and gives the number of the oldest that is kept. `None`: there is none,
    /// and the time is over, or the run or the service has ended.
    pub async fn wait(self, shared: &Shared, detector: &Arc<dyn Detector>) -> Option<u64> {
        let until = Instant::now() + self.wait;
        let was_over = self.is_over(&**detector);
        let now = self.unseen(&**detector);
        if now.is_some() || self.wait.is_zero() {
            return now;
        }
        // Before the next look, so that no change is missed in between.
        let (mut stopping, mut events) = (shared.stopping.subscribe(), shared.fleet.events.subscribe());
        let mut newest = shared.hub(&**detector).subscribe(detector);
        loop {
            // Looked at before the images: those that came before the end are found.
            let ends = shared.is_stopping() || Instant::now() >= until || (!was_over && self.is_over(&**detector));
            let now = self.unseen(&**detector);
            if now.is_some() || ends {
                return now;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                ended = stopping.changed() => drop(ended),
                seen = newest.changed() => drop(seen),
                () = changed(&mut events) => {}
            }
        }
    }
}
