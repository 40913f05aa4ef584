//! What gives other systems access in their own form (`[adapters.NAME]`): how each of them is ([`Adapters`]), and
//! servers for them on addresses of their own ([`port`]). Programs are started by `konkordia serve`, which reports
//! here.

pub mod aside;
pub mod port;

use crate::security::tokens::Tokens;
use crate::security::{Identity, Role};
use konkordia_acquire::handle::{EventLog, Severity, time_now};
use konkordia_config::settings::AdapterRole;
use konkordia_core::failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use utoipa::ToSchema;

impl From<AdapterRole> for Role {
    fn from(role: AdapterRole) -> Self {
        match role {
            AdapterRole::View => Self::View,
            AdapterRole::Operate => Self::Operate,
        }
    }
}

/// What kind of adapter it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterKind {
    /// A server that is part of the service.
    Server,
    /// A program that the service starts.
    Program,
}

/// State of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterState {
    /// It runs.
    Running,
    /// It has ended, and will be started again.
    Waiting,
}

/// How an adapter ended the last time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdapterFailure {
    /// ISO 8601 with offset.
    pub time: String,
    /// How it ended, and the last lines that it wrote to stderr.
    #[schema(example = "it ended with exit status: 1 and said: OSError: Address already in use")]
    pub reason: String,
}

/// One adapter (`[adapters.NAME]` in the configuration).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdapterStatus {
    /// Its name in the configuration; `streaming-receiver` for that of `service.compat`.
    #[schema(example = "epics")]
    pub name: String,
    /// `server` or `program`.
    pub kind: AdapterKind,
    /// The detector that it shows; null for a program without one.
    pub detector: Option<String>,
    /// What it may do: `view` or `operate`.
    pub role: Role,
    /// Where a server listens.
    pub address: Option<String>,
    /// Process id of a program that runs.
    pub pid: Option<u32>,
    /// State.
    pub state: AdapterState,
    /// Since when it is in this state; ISO 8601 with offset.
    pub since: String,
    /// How often it was started again.
    pub restarts: u64,
    /// How it ended the last time; null if it never has.
    pub last_failure: Option<AdapterFailure>,
}

/// The adapters of a service, with the tokens that were made for them. Tokens are kept in memory only.
pub struct Adapters {
    events: EventLog,
    all: Mutex<Vec<AdapterStatus>>,
    tokens: Mutex<Tokens>,
}

impl Adapters {
    /// None yet; their events go to `events`.
    pub fn new(events: EventLog) -> Self {
        Self { events, all: Mutex::default(), tokens: Mutex::default() }
    }

    /// How they are, in the order of the configuration.
    pub fn status(&self) -> Vec<AdapterStatus> {
        self.lock().clone()
    }

    /// Adds one that is being started.
    pub fn add(&self, name: &str, kind: AdapterKind, detector: Option<&str>, role: Role, address: Option<String>) {
        self.lock().push(AdapterStatus {
            name: name.into(),
            kind,
            detector: detector.map(str::to_owned),
            role,
            address,
            pid: None,
            state: AdapterState::Waiting,
            since: time_now(),
            restarts: 0,
            last_failure: None,
        });
    }

    /// It runs. `pid` is that of a program.
    pub fn started(&self, name: &str, pid: Option<u32>) {
        let detector = self.change(name, |one| {
            one.restarts += u64::from(one.last_failure.is_some());
            (one.state, one.pid, one.since) = (AdapterState::Running, pid, time_now());
        });
        let process = pid.map_or(String::new(), |pid| format!(" as process {pid}"));
        let message = format!("adapter '{name}' runs{process}");
        let data = json!({ "name": name, "state": AdapterState::Running, "pid": pid });
        self.events.add(detector.as_deref(), "adapter", Severity::Info, message, data);
    }

    /// It has ended for `reason`, with the exit code `status` if it is a program that did not die of a signal, and is
    /// started again after `restart_after`.
    pub fn failed(&self, name: &str, reason: &str, status: Option<i32>, restart_after: Duration) {
        let detector = self.change(name, |one| {
            (one.state, one.pid, one.since) = (AdapterState::Waiting, None, time_now());
            one.last_failure = Some(AdapterFailure { time: one.since.clone(), reason: reason.into() });
        });
        let restart_s = restart_after.as_secs_f64();
        let message = format!("adapter '{name}': {reason}; it is started again in {restart_s:.0} s. Data taking goes on");
        let data = json!({
            "name": name, "state": AdapterState::Waiting, "status": status, "reason": reason, "restart_s": restart_s,
        });
        self.events.add(detector.as_deref(), "adapter", Severity::Warning, message, data);
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut AdapterStatus)) -> Option<String> {
        let mut all = self.lock();
        let one = all.iter_mut().find(|one| one.name == name)?;
        change(one);
        one.detector.clone()
    }

    /// A token with this role for an adapter. It is returned and kept nowhere but as its hash in memory.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn token(&self, name: &str, role: Role) -> Result<String, Failure> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).mint(&identity_name(name), role)
    }

    /// Whose token this is, among those of adapters.
    pub fn identify(&self, token: &str) -> Identity {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).identify(token)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AdapterStatus>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who sends the commands of an adapter, in the status, events and the audit log. No token of a file has this name,
/// because it has a space.
fn identity_name(name: &str) -> String {
    format!("adapter {name}")
}

/// How long to wait before something is started again: 1, 2, 4, ... 60 s. It begins anew after a minute of life.
#[derive(Debug, Default)]
pub struct BackOff {
    failures: u32,
}

impl BackOff {
    const LONGEST: Duration = Duration::from_secs(60);

    /// The next wait, for something that lived for `lived`.
    pub fn next(&mut self, lived: Duration) -> Duration {
        if lived >= Self::LONGEST {
            self.failures = 0;
        }
        let wait = Duration::from_secs(1 << self.failures.min(6)).min(Self::LONGEST);
        self.failures += 1;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_counted_and_reported() {
        let events = EventLog::new();
        let adapters = Adapters::new(events.clone());
        adapters.add("epics", AdapterKind::Program, Some("eiger"), Role::View, None);
        adapters.started("epics", Some(7));
        adapters.failed("epics", "it ended with exit status: 3", Some(3), Duration::from_secs(2));
        let waiting = &adapters.status()[0];
        assert_eq!((waiting.state, waiting.pid, waiting.restarts), (AdapterState::Waiting, None, 0));
        adapters.started("epics", Some(8));
        let running = &adapters.status()[0];
        assert_eq!((running.state, running.pid, running.restarts), (AdapterState::Running, Some(8), 1));
        assert_eq!(running.last_failure.as_ref().unwrap().reason, "it ended with exit status: 3");
        let all = events.after(0);
        let failed = &all[1];
        assert_eq!((&*failed.event, failed.detector.as_deref(), failed.severity), ("adapter", Some("eiger"), Severity::Warning));
        assert_eq!((&failed.data["status"], &failed.data["restart_s"]), (&json!(3), &json!(2.0)));
    }

    #[test]
    fn the_token_of_an_adapter_has_its_role_and_name() {
        let adapters = Adapters::new(EventLog::new());
        let token = adapters.token("epics", Role::View).unwrap();
        assert_eq!(adapters.identify(&token), Identity::Known { name: "adapter epics".into(), role: Role::View });
        assert_eq!(adapters.identify("konkordia_"), Identity::BadToken);
    }

    #[test]
    fn waits_double_up_to_a_minute_and_begin_anew_after_one() {
        let mut waits = BackOff::default();
        let short = Duration::from_secs(59);
        let all: Vec<u64> = (0..8).map(|_| waits.next(short).as_secs()).collect();
        assert_eq!(all, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(waits.next(Duration::from_secs(60)).as_secs(), 1);
        assert_eq!(waits.next(short).as_secs(), 2);
    }
}
