//! What a service manager hears of the service (`sd_notify(3)`): that it is ready, what it does, that it lives, and
//! that its end takes time because files are still written. Without `NOTIFY_SOCKET` nothing is said.

use konkordia_acquire::handle::{Detector, Fleet, StateWord};
use konkordia_api::http::Pulse;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::text;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Time between two messages, if no watchdog asks for a shorter one.
const PERIOD: Duration = Duration::from_secs(5);
/// How much longer the end may take from now on, whenever it was seen to make progress.
const EXTENSION: Duration = Duration::from_secs(30);

/// Tells the service manager until it is dropped.
pub struct Supervisor {
    stopping: Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Supervisor {
    /// Says that the service is ready, and goes on telling in a thread of its own. `None` if nobody listens.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(fleet: Arc<Fleet>, pulse: Pulse) -> Result<Option<Self>, Failure> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(None);
        }
        let watchdog = sd_notify::watchdog_enabled();
        // Three chances before the service manager gives up.
        let period = watchdog.map_or(PERIOD, |watchdog| PERIOD.min(watchdog / 3));
        let (stopping, stop) = channel();
        let telling = Telling { fleet, pulse, period, has_watchdog: watchdog.is_some() };
        telling.tell(&[NotifyState::Ready, NotifyState::Status(&telling.status())]);
        let thread = std::thread::Builder::new().name("supervisor".into()).stack_size(128 << 10);
        let thread = thread.spawn(move || telling.run(&stop)).map_err(|error| {
            let what = "cannot start the thread that talks to the service manager";
            Failure::new(Exit::Io, what, reason(&error), "end other programs")
        })?;
        Ok(Some(Self { stopping, thread: Some(thread) }))
    }

    /// Says that the service ends. From now on the end may take longer as long as images are written.
    pub fn stopping(&self) {
        // The thread lives as long as this value.
        let _ = self.stopping.send(());
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let (unused, _) = channel();
        self.stopping = unused;
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

struct Telling {
    fleet: Arc<Fleet>,
    pulse: Pulse,
    period: Duration,
    has_watchdog: bool,
}

impl Telling {
    fn run(&self, stop: &Receiver<()>) {
        loop {
            match stop.recv_timeout(self.period) {
                Err(RecvTimeoutError::Timeout) => self.alive(),
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(()) => break,
            }
        }
        let status = format!("ending runs and closing their files; {}", self.status());
        self.tell(&[NotifyState::Stopping, NotifyState::Status(&status)]);
        let mut written = self.images_written();
        while stop.recv_timeout(self.period) == Err(RecvTimeoutError::Timeout) {
            let now = self.images_written();
            let status = format!("ending runs and closing their files; {}", self.status());
            let mut said = vec![NotifyState::Status(&status)];
            if now != written {
                said.push(NotifyState::ExtendTimeoutUsec(EXTENSION.as_micros() as u32));
            }
            if self.has_watchdog {
                said.push(NotifyState::Watchdog);
            }
            self.tell(&said);
            written = now;
        }
    }

    /// Says that the service lives, if a request would be answered.
    fn alive(&self) {
        let status = self.status();
        if self.pulse.answers(self.period) {
            self.tell(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
        } else {
            tracing::error!(
                "requests are not answered: the watchdog of the service manager will end the service if this goes on"
            );
        }
    }

    /// The state of each detector in a line.
    fn status(&self) -> String {
        let line = |detector: &Arc<dyn Detector>| {
            let status = detector.status();
            let images = match status.images_committed {
                0 => String::new(),
                images => format!(", {} images", text::count(images)),
            };
            format!("{}: {}{images}", status.detector, StateWord::from(status.state).name())
        };
        self.fleet.detectors.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    fn images_written(&self) -> u64 {
        self.fleet.detectors.iter().map(|detector| detector.status().images_written).sum()
    }

    fn tell(&self, said: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(said) {
            tracing::warn!("the service manager cannot be told (NOTIFY_SOCKET): {error}");
        }
    }
}
