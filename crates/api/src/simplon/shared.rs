//! What the requests of all clients share.

use super::keys;
use super::parameters::Parameters;
use crate::adapters::port::Port;
use crate::http::audit::AuditBody;
use axum::Extension;
use axum::extract::{Path, State};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the requests of all clients share.
pub struct Simplon {
    /// The detector and the service.
    pub port: Arc<Port>,
    /// What clients have set.
    pub parameters: Mutex<Parameters>,
    /// The run that they armed last.
    pub armed: Mutex<ArmedRun>,
    /// Run and number of the image that `images/next` gave last.
    pub shown: Mutex<Option<(u64, u64)>>,
}

/// As handlers get it.
pub type Shared = State<Arc<Simplon>>;
/// Subsystem, version, key.
pub type Place = Path<(String, String, String)>;

/// The run that a client armed last.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArmedRun {
    /// Its number.
    pub run: u64,
    /// Images of each trigger.
    pub images_per_trigger: u64,
    /// Triggers that it takes.
    pub triggers: u64,
    /// Triggers that were sent so far.
    pub sent: u64,
}

impl Simplon {
    /// What clients have set.
    pub fn parameters(&self) -> MutexGuard<'_, Parameters> {
        self.parameters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of the keys of a configuration that have a value.
    pub fn list(&self, subsystem: &str) -> Vec<&'static str> {
        let (parameters, detector) = (self.parameters(), &*self.port.detector);
        let all = keys::KEYS.iter().filter(|key| key.subsystem == subsystem && key.is_listed());
        all.filter(|key| parameters.read(key, detector).is_some()).map(|key| key.name).collect()
    }

    /// For the audit log.
    pub fn audit(&self, request: Value) -> Extension<AuditBody> {
        let detector = Some(self.port.detector.name().to_string());
        Extension(AuditBody { detector, request })
    }
}
