//! Each detector has one thread, the actor, which owns its state machine and its parts. The actor waits for commands
//! and for reports of the threads that work for it, and never does anything long itself. Read [`status`] first, then
//! [`actor`], then [`udp`] and [`stream`].

pub mod actor;
mod file_names;
pub mod status;
pub mod stream;
mod stream_parts;
pub mod udp;
mod udp_dark;
mod udp_parts;

use super::handle::{
    Command, Detector, DetectorStatistics, DetectorStatus, FileEntry, HitRate, ImageRing, Refusal, RefusalCode, Reply, ResultPlot,
};
use crossbeam_channel::{Sender, bounded};
use serde_json::Value;
use status::Shared;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// An actor wakes up this often while something is in progress; otherwise it sleeps.
pub const TICK: Duration = Duration::from_millis(50);
/// Stack of the threads that control detectors.
pub const STACK_BYTES: usize = 256 << 10;

/// Name of the output queue of the file.
const FILE: &str = "file";

/// A request to an actor.
pub enum Request {
    /// A command, and where the answer goes.
    Command(Command, Sender<Reply>),
    /// End the run, then the thread.
    Shutdown,
}

/// Puts a request into the inbox of an actor; false if the actor has ended.
pub type SendRequest = Box<dyn Fn(Request) -> bool + Send + Sync>;

/// Access to a detector from other threads.
pub struct Handle {
    shared: Arc<Shared>,
    /// Puts a request into the inbox of the actor; false if the actor has ended.
    send: SendRequest,
    ring: Arc<dyn ImageRing>,
    /// Longest time that an answer may take.
    patience: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    /// For an actor that takes requests through `send`.
    pub fn new(
        shared: Arc<Shared>,
        send: SendRequest,
        ring: Arc<dyn ImageRing>,
        patience: Duration,
        thread: JoinHandle<()>,
    ) -> Self {
        Self { shared, send, ring, patience, thread: Mutex::new(Some(thread)) }
    }

    /// Asks the actor to end its run and itself.
    pub fn shut_down(&self) {
        let _ = (self.send)(Request::Shutdown);
    }

    /// Waits until the actor has ended, and stops its spool: what is in there stays.
    pub fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The actor contains its own panics.
            let _ = thread.join();
        }
        if let Some(spool) = self.shared.spool() {
            spool.stop();
        }
    }
}

impl Detector for Handle {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn status(&self) -> Arc<DetectorStatus> {
        Arc::new(self.shared.status())
    }

    fn statistics(&self) -> DetectorStatistics {
        self.shared.statistics()
    }

    fn hit_rate(&self) -> HitRate {
        self.shared.hits.read(&self.shared.name)
    }

    fn results(&self, result: Option<&str>) -> Option<ResultPlot> {
        self.shared.result_history.read(&self.shared.name, result)
    }

    fn configuration(&self) -> Value {
        self.shared.configuration.clone()
    }

    fn command(&self, command: Command) -> Reply {
        let (sender, receiver) = bounded(1);
        let gone = |why: &str| Refusal {
            code: RefusalCode::Busy,
            what: "there is no answer to the command".into(),
            why: why.into(),
            fix: "try again; if that does not help, restart the service".into(),
            state: Some(self.shared.status().state),
        };
        if !(self.send)(Request::Command(command, sender)) {
            return Err(gone("the service is going down"));
        }
        receiver.recv_timeout(self.patience).unwrap_or_else(|_| Err(gone("the detector did not answer in time")))
    }

    fn images(&self) -> Arc<dyn ImageRing> {
        Arc::clone(&self.ring)
    }

    fn files(&self) -> Vec<FileEntry> {
        self.shared.files()
    }
}
