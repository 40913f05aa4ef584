//! Each detector has one thread, the actor, which owns its state machine and its parts. The actor waits for commands
//! and for reports of the threads that work for it, and never does anything long itself. Read [`status`] first, then
//! [`actor`], then [`udp`] and [`stream`].

pub mod actor;
pub mod base;
mod driven;
mod expected;
pub mod file_names;
mod open_file;
mod pending;
pub mod status;
pub mod stream;
pub mod stream_parts;
pub mod udp;
mod udp_dark;
pub mod udp_parts;

use super::dry_run::{self, Now, packed_bytes};
use super::handle::{
    ArmRequest, Command, Detector, DetectorStatistics, DetectorStatus, DryRun, FileEntry, HitRate, ImageRing, ModulePackets,
    Refusal, RefusalCode, Reply, ResultPlot, UsedCalibration,
};
use crate::shapes::ShapeBoard;
use crossbeam_channel::{Sender, bounded};
use konkordia_config::service::DetectorConfig;
use konkordia_config::settings::ServiceSettings;
use konkordia_core::experiment::Metadata;
use serde_json::Value;
use status::Shared;
use std::path::PathBuf;
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
    /// A command, who sent it, and where the answer goes.
    Command {
        /// What is to be done.
        command: Command,
        /// Who sent it.
        by: String,
        /// Where the answer goes.
        reply: Sender<Reply>,
    },
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
    config: Arc<DetectorConfig>,
    calibration: Option<Arc<UsedCalibration>>,
    settings: Arc<ServiceSettings>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    /// For an actor that takes requests through `send`.
    pub fn new(
        shared: Arc<Shared>,
        send: SendRequest,
        ring: Arc<dyn ImageRing>,
        (config, settings): (Arc<DetectorConfig>, Arc<ServiceSettings>),
        thread: JoinHandle<()>,
    ) -> Self {
        let calibration = UsedCalibration::new(&config).map(Arc::new);
        Self { shared, send, ring, config, calibration, settings, thread: Mutex::new(Some(thread)) }
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

    fn facts(&self) -> Metadata {
        self.config.metadata().clone()
    }

    fn calibration(&self) -> Option<Arc<UsedCalibration>> {
        self.calibration.clone()
    }

    fn command(&self, command: Command, by: &str) -> Reply {
        let (sender, receiver) = bounded(1);
        let gone = |why: &str| Refusal {
            code: RefusalCode::Busy,
            what: "there is no answer to the command".into(),
            why: why.into(),
            fix: "try again; if that does not help, restart the service".into(),
            state: Some(self.shared.status().state),
        };
        if !(self.send)(Request::Command { command, by: by.into(), reply: sender }) {
            return Err(gone("the service is going down"));
        }
        // Longest time that an answer to a command may take.
        let patience = self.settings.arm_timeout + 4 * self.config.hooks.timeout + Duration::from_secs(5);
        receiver.recv_timeout(patience).unwrap_or_else(|_| Err(gone("the detector did not answer in time")))
    }

    fn dry_run(&self, request: &ArmRequest) -> DryRun {
        let status = self.shared.status();
        let detector = Now {
            config: &self.config,
            data_root: self.settings.data_root.as_ref(),
            next_run: status.run + 1,
            open_file: status.open_file.as_ref().map(|open| open.file.as_str()),
            has_run: status.state.has_run(),
            packed_bytes: packed_bytes(&self.shared.files()),
            newest_bytes: self.ring.newest_bytes(),
        };
        dry_run::of(&detector, request)
    }

    fn modules(&self) -> Vec<ModulePackets> {
        self.shared.modules()
    }

    fn output_folder(&self) -> Option<PathBuf> {
        Some(self.config.directory().to_path_buf())
    }

    fn images(&self) -> Arc<dyn ImageRing> {
        Arc::clone(&self.ring)
    }

    fn files(&self) -> Vec<FileEntry> {
        self.shared.files()
    }

    fn shapes(&self) -> Arc<ShapeBoard> {
        Arc::clone(&self.shared.shapes)
    }
}
