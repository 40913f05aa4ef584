//! The detector as its driver drives it: what was armed is stopped again, whatever ends the run.

use crate::control_driver::{Action, Answer, ControlDriver, Order, Then};
use crate::events::EventLog;
use crate::handle::Severity;
use crate::hooks::About;
use konkordia_config::service::DetectorConfig;
use konkordia_core::failure::Failure;
use konkordia_core::series::Ended;
use serde_json::json;
use std::sync::Arc;

/// The driver of a detector, and where its failures are reported if nobody waits for its answer.
#[derive(Clone)]
pub struct Driven {
    /// The driver.
    pub control: Arc<ControlDriver>,
    /// The events of the service.
    pub events: EventLog,
}

/// What the driver was told about a run.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Images, times, addresses.
    pub order: Order,
    /// The run.
    pub about: About,
}

/// A detector that is armed by its driver, or may be.
pub struct Armed {
    /// What was ordered.
    pub told: Told,
    /// The command that ends the run, if one does.
    pub ending: Option<Ended>,
}

impl Driven {
    /// The driver of a detector, if it has one.
    ///
    /// # Errors
    /// The machine has no threads left.
    pub fn open(config: &DetectorConfig, events: &EventLog) -> Result<Option<Self>, Failure> {
        let control = ControlDriver::open(&config.name, &config.hooks)?;
        Ok(control.map(|control| Self { control, events: events.clone() }))
    }

    /// Calls the driver and waits for its answer.
    ///
    /// # Errors
    /// It failed.
    pub fn call(&self, action: Action, told: &Told) -> Result<Answer, Failure> {
        self.control.call(action, told.order.clone(), told.about.clone())
    }

    /// Arms the detector, and stops it again if that fails half-way.
    ///
    /// # Errors
    /// It failed.
    pub fn arm(&self, told: &Told) -> Result<Answer, Failure> {
        self.call(Action::Arm, told).inspect_err(|_| self.stop(told, Ended::Failed.name()))
    }

    /// Ends the measurement, and says why. Nobody waits for it; a failure is reported as an event.
    pub fn stop(&self, told: &Told, ended: &str) {
        if matches!(ended, "stalled" | "no data") {
            self.ask_why(told, ended);
        }
        let mut order = told.order.clone();
        order.insert("ended".into(), ended.into());
        let then = self.reported(told, |_, _, _| ());
        self.control.send(Action::Stop, order, told.about.clone(), then);
    }

    /// After too few data: how the detector is, before it is stopped.
    fn ask_why(&self, told: &Told, ended: &str) {
        let ended = ended.to_string();
        let then = self.reported(told, move |events, about, answer| {
            let Some(status) = &answer.status else { return };
            let message = format!("run {} has ended ({ended}); the detector says: {status}", about.run);
            events.add(Some(&about.detector), "setup", Severity::Warning, message, json!({ "run": about.run, "status": status }));
        });
        self.control.send(Action::Status, told.order.clone(), told.about.clone(), then);
    }

    /// Reports warnings and failures, and calls `use_it` with an answer.
    fn reported(&self, told: &Told, use_it: impl FnOnce(&EventLog, &About, &Answer) + Send + 'static) -> Then {
        let (events, about) = (self.events.clone(), told.about.clone());
        Box::new(move |result| match result {
            Ok(answer) => {
                remark_warnings(&events, &about, &answer);
                use_it(&events, &about, &answer);
            }
            Err(failure) => {
                let data = json!({ "run": about.run, "why": failure.why, "fix": failure.fix });
                events.remark(Some(&about.detector), Severity::Warning, failure.detail(), data);
            }
        })
    }
}

/// Reports the warnings of an answer as events.
pub fn remark_warnings(events: &EventLog, about: &About, answer: &Answer) {
    for warning in &answer.warnings {
        events.remark(Some(&about.detector), Severity::Warning, warning.clone(), json!({ "run": about.run }));
    }
}
