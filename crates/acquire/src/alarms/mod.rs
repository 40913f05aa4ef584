//! Alarms: what endangers the measurement or the detector, said at once, with what to do, and ended when it is over.

mod tally;
mod tell;
pub mod watch;

use crate::events::EventLog;
use crate::handle::{AlarmStatus, Severity};
use konkordia_config::alarms::AlarmSettings;
use konkordia_core::failure::Failure;
use konkordia_engine::output_queue::ImageObserver;
use konkordia_sinks::clock;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tally::ResultsTally;
use tell::Teller;
use watch::{Alarm, Change, Measured, Watch};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// The alarms of a detector, as servers see them.
#[derive(Clone, Default)]
pub struct AlarmBoard(Arc<Mutex<Vec<AlarmStatus>>>);

/// Watches a detector. Owned by its actor.
pub struct Alarms {
    watch: Watch,
    tally: Arc<ResultsTally>,
    teller: Option<Teller>,
    board: AlarmBoard,
    began: Instant,
    looked: Option<Instant>,
}

/// A change to be reported.
pub struct News {
    /// How bad it is.
    pub severity: Severity,
    /// In words.
    pub message: String,
    /// For programs.
    pub data: Value,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AlarmBoard {
    /// All alarms that are on, raised or not.
    pub fn list(&self) -> Vec<AlarmStatus> {
        lock(&self.0).clone()
    }
}

impl Alarms {
    /// Watches what [`Self::observer`] sees.
    ///
    /// # Errors
    /// The address of the ZeroMQ messages cannot be used.
    pub fn new(settings: &AlarmSettings, detector: &str, events: &EventLog, board: AlarmBoard) -> Result<Self, Failure> {
        let tally = Arc::<ResultsTally>::default();
        let is_on = Alarm::ALL.into_iter().filter(|alarm| alarm.is_on(settings));
        *lock(&board.0) = is_on.map(|alarm| AlarmStatus { name: alarm.name().into(), ..AlarmStatus::default() }).collect();
        let teller = Teller::open(settings, detector, events)?;
        let watch = Watch::new(settings.clone());
        Ok(Self { watch, tally, teller, board, began: Instant::now(), looked: None })
    }

    /// Who must see the images.
    pub fn observer(&self) -> Arc<dyn ImageObserver> {
        Arc::clone(&self.tally) as _
    }

    /// True while an alarm has not ended, so that somebody must go on looking.
    pub fn is_alarmed(&self) -> bool {
        self.watch.is_alarmed()
    }

    /// Looks, if it is time; `measure` says what is measured. Returns what has changed.
    pub fn look(&mut self, now: Instant, measure: impl FnOnce() -> Measured) -> Vec<News> {
        if self.looked.is_some_and(|at| now.duration_since(at) < INTERVAL) {
            return Vec::new();
        }
        self.looked = Some(now);
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let measured = Measured { tally: self.tally.take(), unix_s, ..measure() };
        let changes = self.watch.look(now.duration_since(self.began), measured);
        changes.into_iter().map(|change| self.report(&change, measured.run)).collect()
    }

    fn report(&self, Change { alarm, message }: &Change, run: u64) -> News {
        let is_raised = message.is_some();
        let status = AlarmStatus {
            name: alarm.name().into(),
            raised: is_raised,
            message: message.clone(),
            hint: is_raised.then(|| alarm.fix().into()),
            since: Some(clock::now()),
        };
        if let Some(own) = lock(&self.board.0).iter_mut().find(|own| own.name == status.name) {
            own.clone_from(&status);
        }
        let data = json!({ "run": run, "alarm": status });
        if let Some(teller) = &self.teller {
            teller.tell(&status, run);
        }
        let (severity, message) = match message {
            Some(message) => (Severity::Error, format!("alarm {}: {message}; {}", alarm.name(), alarm.fix())),
            None => (Severity::Info, format!("alarm {} has ended", alarm.name())),
        };
        News { severity, message, data }
    }
}

#[cfg(test)]
mod tests;
