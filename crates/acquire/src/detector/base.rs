//! What the actor of every kind of detector has.

use super::STACK_BYTES;
use super::driven::Driven;
use super::status::Machine;
use crate::fanout::Fanout;
use crate::handle::Severity;
use crate::hooks::{self, About};
use konkordia_config::service::DetectorConfig;
use konkordia_config::settings::ServiceSettings;
use konkordia_engine::contain::contain;
use serde_json::json;
use std::sync::Arc;
use std::thread::Builder;

/// What every driver needs.
pub struct Base {
    /// The state machine, with the published status and the events.
    pub machine: Machine,
    /// The configuration.
    pub config: Arc<DetectorConfig>,
    /// The settings of the service.
    pub settings: Arc<ServiceSettings>,
    /// Preview buffer and consumers.
    pub fanout: Arc<Fanout>,
    /// What drives the detector itself.
    pub driven: Option<Driven>,
    /// Runs so far.
    pub runs: u64,
}

impl Base {
    /// Runs the program for the end of a run. If it fails, this is only reported as an event.
    pub fn run_on_stop(&self, about: About) {
        let hooks = &self.config.hooks;
        if hooks.on_stop.is_empty() {
            return;
        }
        let (program, timeout, events, name) =
            (hooks.on_stop.clone(), hooks.timeout, self.machine.events.clone(), self.config.name.clone());
        let work = move || {
            let result = contain(|| hooks::run("on_stop", &program, timeout, &about));
            if let Err(failure) = result.unwrap_or_else(|panic| Err((&panic).into())) {
                let data = json!({ "why": failure.why, "fix": failure.fix });
                events.remark(Some(&name), Severity::Warning, failure.what, data);
            }
        };
        let _ = Builder::new().name("hook".into()).stack_size(STACK_BYTES).spawn(work);
    }
}
