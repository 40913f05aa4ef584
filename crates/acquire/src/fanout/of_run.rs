//! The writers on other hosts of a run without a service.

use super::Fanout;
use crate::events::{EventLog, ServiceEvent};
use crate::handle::Severity;
use konkordia_config::Config;
use konkordia_core::failure::Failure;
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart};
use konkordia_engine::output_queue::{OutputQueues, PreviewBuffer};
use konkordia_engine::run::Consumers;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long a run waits for a writer without which it may not begin.
const REQUIRED_WAIT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// Sends the images of one run to its writers. Ask [`RunWriters::news`] often: it has what happens at them.
pub struct RunWriters {
    fanout: Fanout,
    events: EventLog,
    /// The newest event that was handed out.
    told: u64,
    has_failed: bool,
    give_up: Arc<AtomicBool>,
}

impl RunWriters {
    /// Starts a thread for each writer of the configuration; `None` if it names none.
    ///
    /// # Errors
    /// A link is not possible on this host, or a writer that is required does not listen.
    pub fn open(config: &Config) -> Result<Option<Self>, Failure> {
        if config.writers.is_empty() {
            return Ok(None);
        }
        let (events, preview) = (EventLog::new(), Arc::new(PreviewBuffer::new(0, 0)));
        let mut fanout = Fanout::without_consumers(preview, OutputQueues::new(None));
        for wanted in &config.writers {
            fanout.add_writer("run", wanted, &events)?;
        }
        let writers = Self { fanout, events, told: 0, has_failed: false, give_up: Arc::default() };
        let until = Instant::now() + REQUIRED_WAIT;
        loop {
            match writers.fanout.check_required() {
                Err(_) if Instant::now() < until => std::thread::sleep(LOOK),
                checked => return checked.map(|()| Some(writers)),
            }
        }
    }

    /// What a run needs to give its images to the writers.
    pub fn consumers(&self) -> Consumers {
        Consumers {
            output_queues: Arc::clone(&self.fanout.output_queues),
            start: SeriesStart { series: 1, store: true, ..SeriesStart::default() },
            analysis: None,
            give_up: Arc::clone(&self.give_up),
        }
    }

    /// The queues of writers of raw frames, if there are any.
    pub fn raw_writers(&self) -> Option<&Arc<OutputQueues>> {
        self.fanout.raw_writers()
    }

    /// True if some write the files of the images.
    pub fn has_writers(&self) -> bool {
        self.fanout.has_writers()
    }

    /// What has happened since the last call.
    pub fn news(&mut self) -> Vec<Arc<ServiceEvent>> {
        let news = self.events.after(self.told);
        self.told = news.last().map_or(self.told, |event| event.id);
        self.has_failed |= news.iter().any(|event| event.severity == Severity::Error);
        news
    }

    /// The run is over, and its ledger is known: the writers get what waits for them, and close their files.
    pub fn end(&self) {
        // Writers take from the ledger how it ended.
        let end = SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: SeriesLedger::default() };
        self.fanout.output_queues.end(&Arc::new(end));
        self.fanout.end();
    }

    /// After [`RunWriters::end`]: all writers are done, with success or without.
    pub fn is_over(&self) -> bool {
        self.fanout.is_over()
    }

    /// Nobody waits for writers any more.
    pub fn give_up(&self) {
        self.fanout.give_up();
    }

    /// True if the news so far say that a file on another host is not whole.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

impl Drop for RunWriters {
    fn drop(&mut self) {
        self.fanout.close();
    }
}
