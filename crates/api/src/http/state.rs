//! What all requests share: the fleet, the tokens, the limits.

use super::files::cache::Cache;
use super::live::hub::Hub;
use super::problem::Problem;
use super::settings::{Settings, wrong_settings};
use crate::adapters::Adapters;
use crate::security::audit::AuditLog;
use crate::security::origin::Origins;
use crate::security::rate::RateLimit;
use crate::security::tokens::Tokens;
use crate::security::{Identity, Role};
use arc_swap::ArcSwap;
use axum::http::{HeaderMap, header};
use konkordia_acquire::handle::{Detector, DetectorStatus, Fleet, Severity, Subscription, ThreadWatch};
use konkordia_core::failure::Failure;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// Commands that may wait for their detectors at once, and as many again that end something, so that a `cancel` never
/// waits behind an `arm`.
pub const COMMANDS_MAX: usize = 12;
/// Looks at the disk and the machine at once.
pub const LOOKS_MAX: usize = 2;
/// Images that are decoded at once.
pub const DECODERS_MAX: usize = 4;
/// Calibrations that are looked at at once: reading takes the disk, and libhdf5 does one thing at a time.
pub const CALIBRATIONS_MAX: usize = 1;
/// Longest that a `wait` or `wait_s` waits.
pub const WAIT_S_MAX: f64 = 600.0;

/// Shared by all requests.
pub struct Shared {
    /// The detectors.
    pub fleet: Arc<Fleet>,
    /// As configured.
    pub settings: Settings,
    /// `None` = no tokens are needed.
    pub tokens: Option<ArcSwap<Tokens>>,
    /// What gives other systems access.
    pub adapters: Arc<Adapters>,
    /// The host names and web pages that are accepted.
    pub origins: Origins,
    /// Requests by address, of senders with a role.
    pub rate: Mutex<RateLimit>,
    /// Requests by address, of all others.
    pub rate_of_unknown: Mutex<RateLimit>,
    /// Where commands are recorded.
    pub audit: Option<AuditLog>,
    /// True if the last line for the audit log could not be written.
    pub audit_failed: std::sync::atomic::AtomicBool,
    /// Permits for commands that begin something.
    pub commands: Arc<Semaphore>,
    /// Permits for commands that end something.
    pub endings: Arc<Semaphore>,
    /// Permits for looks at the disk and the machine.
    pub looks: Arc<Semaphore>,
    /// What the threads of this process do.
    pub threads: Arc<ThreadWatch>,
    /// Permits for decoding.
    pub decoders: Arc<Semaphore>,
    /// Permits for looking at calibrations.
    pub calibrations: Arc<Semaphore>,
    /// Memory of answers with images, in MiB.
    pub image_mib: Arc<Semaphore>,
    /// True when the server is about to end.
    pub stopping: watch::Sender<bool>,
    /// Answers by class of status: 1xx to 5xx.
    pub answered: [AtomicU64; 5],
    /// What the live connections share, for each detector.
    pub live: Vec<Arc<Hub>>,
    /// Finished files that were asked for last.
    pub files: Cache,
    /// When the service began.
    pub began: Instant,
}

/// Waits for an event or a change of a status.
pub async fn changed(events: &mut Subscription) {
    std::future::poll_fn(|context| events.poll_changed(context)).await;
}

impl Shared {
    /// Reads tokens, checks origins and the audit log.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn new(fleet: Arc<Fleet>, settings: Settings) -> Result<Self, Failure> {
        let tokens = settings.tokens.as_deref().map(Tokens::load).transpose()?;
        let origins = Origins::new(&settings.hosts, &settings.origins, tokens.is_some());
        let origins = origins.map_err(|why| wrong_settings(why, "correct [service] cors_origins"))?;
        let audit = settings.audit.as_deref().map(AuditLog::open).transpose()?;
        let limits = &settings.limits;
        Ok(Self {
            rate: Mutex::new(RateLimit::new(limits.requests_per_s, limits.requests_burst)),
            rate_of_unknown: Mutex::new(RateLimit::new(limits.requests_per_s, limits.requests_burst)),
            image_mib: Arc::new(Semaphore::new(limits.image_memory_mib as usize)),
            tokens: tokens.map(ArcSwap::from_pointee),
            adapters: Arc::new(Adapters::new(fleet.events.clone())),
            origins,
            audit,
            audit_failed: false.into(),
            commands: Arc::new(Semaphore::new(COMMANDS_MAX)),
            endings: Arc::new(Semaphore::new(COMMANDS_MAX)),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            threads: Arc::default(),
            decoders: Arc::new(Semaphore::new(DECODERS_MAX)),
            calibrations: Arc::new(Semaphore::new(CALIBRATIONS_MAX)),
            stopping: watch::channel(false).0,
            answered: Default::default(),
            live: Hub::of(&fleet),
            files: Cache::default(),
            began: Instant::now(),
            fleet,
            settings,
        })
    }

    /// Who sends a request with these headers.
    pub fn identify(&self, headers: &HeaderMap) -> Identity {
        let Some(value) = headers.get(header::AUTHORIZATION) else { return self.identity(None) };
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        // No token is empty.
        self.identity(Some(token.unwrap_or_default()))
    }

    /// Who has this token.
    pub fn identity(&self, token: Option<&str>) -> Identity {
        match (&self.tokens, token) {
            (None, _) => Identity::Known { name: "local".into(), role: Role::Configure },
            (Some(_), None) => Identity::Anonymous,
            (Some(tokens), Some(token)) => match tokens.load().identify(token) {
                Identity::BadToken => self.adapters.identify(token),
                known => known,
            },
        }
    }

    /// The detector with this name; without a name, the only detector.
    ///
    /// # Errors
    /// If there is none, or it is not said which.
    pub fn detector(&self, name: Option<&str>) -> Result<Arc<dyn Detector>, Problem> {
        self.fleet.find(name).map_err(Problem::from)
    }

    /// What the live connections to this detector share.
    pub fn hub(&self, detector: &dyn Detector) -> &Arc<Hub> {
        let place = self.fleet.detectors.iter().position(|other| other.name() == detector.name());
        &self.live[place.unwrap_or_default()]
    }

    /// True once the service or this server is stopping.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow() || self.fleet.is_stopping()
    }

    /// Waits until a detector is neither armed nor running, or has begun another run than `run`; else as
    /// [`Self::wait_for`].
    pub async fn wait_idle(&self, detector: &dyn Detector, run: u64, longest: Duration) -> (Arc<DetectorStatus>, bool) {
        self.wait_for(detector, longest, |status| status.has_ended(run)).await
    }

    /// Waits until `is_reached` is true of the status of a detector; at most `longest`. No thread is blocked meanwhile.
    /// Returns the newest state, and whether the wait was successful.
    pub async fn wait_for(
        &self,
        detector: &dyn Detector,
        longest: Duration,
        is_reached: impl Fn(&DetectorStatus) -> bool,
    ) -> (Arc<DetectorStatus>, bool) {
        let until = tokio::time::Instant::now() + longest;
        // Before the first look, so that no change is missed in between.
        let (mut stopping, mut events) = (self.stopping.subscribe(), self.fleet.events.subscribe());
        loop {
            let is_over = tokio::time::Instant::now() >= until;
            let status = detector.status();
            let done = is_reached(&status);
            if done || is_over || self.is_stopping() {
                return (status, done);
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                ended = stopping.changed() => drop(ended),
                () = changed(&mut events) => {}
            }
        }
    }

    /// Reports that something is wrong with the service itself.
    pub fn warn(&self, message: String) {
        self.report(Severity::Warning, message);
    }

    /// Adds an event about the service itself to the history.
    pub fn report(&self, severity: Severity, message: String) {
        self.fleet.events.remark(None, severity, message, serde_json::Value::Null);
    }
}
