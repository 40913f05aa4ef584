//! The commands of SIMPLON as commands to our detector. A run of Konkordia begins with its data: `trigger` runs the
//! program for that, if there is one (`[control] on_trigger`), and otherwise starts the time limit for the first data.

use super::keys;
use super::refuse::{check, no_path, sent, wrong};
use super::shared::{ArmedRun, Place, Shared, Simplon};
use crate::http::commands::{order, summary};
use crate::http::problem::Problem;
use crate::http::state::changed;
use crate::security::Identity;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use konkordia_acquire::handle::{Command, DetectorState, DetectorStatus};
use serde_json::{Value, json};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Commands by subsystem. `restart` and `clear` are there to say why they are refused.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("detector", &["abort", "arm", "cancel", "disarm", "initialize", "status_update", "trigger"]),
    ("stream", &["initialize"]),
    ("monitor", &["clear", "initialize"]),
    ("filewriter", &["clear", "initialize"]),
    ("system", &["restart"]),
];
/// Time for the files of a run to be closed before a command that ends it answers. The state says when that is later.
const CLOSING: Duration = Duration::from_secs(5);
/// Longer than the exposures of a trigger should take, until its answer says that they are not done.
const LATE_S: f64 = 60.0;
/// The same where the time of an image is not known.
const UNKNOWN_S: f64 = 600.0;
/// How often the number of images is looked at.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The commands of a subsystem.
pub async fn list(Path((subsystem, version)): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    check(&subsystem, &version)?;
    Ok(Json(json!(of(&subsystem))))
}

fn of(subsystem: &str) -> &'static [&'static str] {
    COMMANDS.iter().find(|(name, _)| *name == subsystem).map_or(&[], |(_, all)| all)
}

/// Carries out a command.
pub async fn command(
    State(simplon): Shared,
    Path((subsystem, version, name)): Place,
    Extension(identity): Extension<Identity>,
    body: Bytes,
) -> Result<Response, Response> {
    understood(&subsystem, &version, &name, &body).map_err(Problem::into_response)?;
    let by = identity.name();
    let (done, request) = match (subsystem.as_str(), name.as_str()) {
        ("detector", "arm") => simplon.arm(by).await,
        ("detector", name) => (simplon.drive(name, by).await.map(|()| json!([])), Value::Null),
        (part, name) => (simplon.of_other_parts(part, name).map(|()| json!([])), Value::Null),
    };
    let audit = simplon.audit(request);
    done.map(|body| (audit.clone(), Json(body)).into_response()).map_err(|problem| (audit, problem).into_response())
}

fn understood(subsystem: &str, version: &str, name: &str, body: &[u8]) -> Result<(), Problem> {
    check(subsystem, version)?;
    if !of(subsystem).contains(&name) {
        return Err(no_path(&format!("{subsystem}/api/{version}/command/{name}")));
    }
    let Some(value) = sent(body)? else { return Ok(()) };
    let hint = "send no body; an exposure time for each trigger (trigger_mode inte) is not possible with this detector";
    Err(wrong(format!("{name} takes no value here, and {value} was sent"), hint))
}

impl Simplon {
    fn armed(&self) -> MutexGuard<'_, ArmedRun> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, command: Command, by: &str) -> Result<DetectorStatus, Problem> {
        order(&self.port.shared, Arc::clone(&self.port.detector), command, by.to_string()).await
    }

    /// Arms with the parameters that are set. The second part is for the audit log.
    async fn arm(&self, by: &str) -> (Result<Value, Problem>, Value) {
        let detector = &*self.port.detector;
        let run = detector.status().run + 1;
        let (request, (images_per_trigger, triggers)) = {
            let parameters = self.parameters();
            (parameters.request(detector, run), parameters.counts(detector))
        };
        let (asked, is_named) = (summary(&request), request.prefix.is_some());
        let armed = match self.send(Command::Arm(Box::new(request)), by).await {
            Ok(armed) => armed,
            Err(problem) => return (Err(problem), asked),
        };
        if armed.run != run && is_named {
            // Its name has the number of a run that began at the same moment.
            let _ = self.send(Command::Cancel, by).await;
            let detail = format!("run {run} of '{}' began at the same moment, and not by this command", detector.name());
            return (Err(Problem::new("busy", detail, "arm again").retry_after(1)), asked);
        }
        *self.armed() = ArmedRun { run: armed.run, images_per_trigger, triggers, sent: 0 };
        (Ok(json!({ "sequence id": armed.run })), asked)
    }

    /// Every command to the detector but arm.
    async fn drive(&self, name: &str, by: &str) -> Result<(), Problem> {
        match name {
            "initialize" => self.initialize(by).await,
            "trigger" => self.trigger(by).await,
            "disarm" | "cancel" => self.end(Command::Stop, by).await,
            "abort" => self.end(Command::Cancel, by).await,
            // Every status is the newest one anyway.
            _ => Ok(()),
        }
    }

    /// Clears an error. What clients have set is as configured again.
    async fn initialize(&self, by: &str) -> Result<(), Problem> {
        let status = self.port.detector.status();
        if status.state.has_run() {
            let detail = format!("cannot initialize '{}' while run {} is {}", status.detector, status.run, status.state.name());
            return Err(Problem::new("wrong_state", detail, "wait for its end, or send disarm or abort first"));
        }
        if status.state == DetectorState::Error {
            self.send(Command::Cancel, by).await?;
        }
        self.parameters().reset(None);
        Ok(())
    }

    /// Ends a run, and waits until its files are closed if that is soon.
    async fn end(&self, command: Command, by: &str) -> Result<(), Problem> {
        let status = self.send(command, by).await?;
        self.port.shared.wait_idle(&*self.port.detector, status.run, CLOSING).await;
        Ok(())
    }

    /// Makes the detector expose, and waits until the images of this trigger are there.
    async fn trigger(&self, by: &str) -> Result<(), Problem> {
        let detector = &*self.port.detector;
        let status = detector.status();
        let mode = self.parameters().word("detector", "trigger_mode", detector);
        if !status.state.has_run() {
            let detail = format!("cannot trigger '{}': it is not armed ({})", status.detector, status.message);
            return Err(Problem::new("wrong_state", detail, "send arm first"));
        }
        if mode != "ints" {
            let detail = format!("trigger_mode is {mode}: '{}' waits for triggers from outside", status.detector);
            return Err(Problem::new("wrong_state", detail, "set trigger_mode to \"ints\" before arm"));
        }
        let armed = self.count_trigger(&status)?;
        if let Err(problem) = self.begin(&status, by).await {
            let mut counted = self.armed();
            counted.sent -= u64::from(counted.run == armed.run && counted.sent > 0);
            return Err(problem);
        }
        self.exposed(armed).await
    }

    /// The run that is triggered, with this trigger. A run that another client armed takes one trigger for all images.
    fn count_trigger(&self, status: &DetectorStatus) -> Result<ArmedRun, Problem> {
        let mut armed = self.armed();
        if armed.run != status.run {
            let images_per_trigger = status.images_expected.unwrap_or(u64::MAX);
            *armed = ArmedRun { run: status.run, images_per_trigger, triggers: 1, sent: 0 };
        }
        if armed.sent >= armed.triggers {
            let detail = format!("run {} was triggered {} times, and ntrigger is {}", armed.run, armed.sent, armed.triggers);
            return Err(Problem::new("wrong_state", detail, "wait for its end, or send disarm; set ntrigger before arm"));
        }
        armed.sent += 1;
        Ok(*armed)
    }

    /// Runs the program that triggers the detector; without one, starts the time limit for the first data.
    async fn begin(&self, status: &DetectorStatus, by: &str) -> Result<(), Problem> {
        match self.send(Command::Trigger, by).await {
            Err(problem) if problem.body().code == "no_trigger" => {}
            done => return done.map(drop),
        }
        let begun = self.send(Command::Start(Box::default()), by).await?;
        if begun.run == status.run {
            return Ok(());
        }
        // The run has just ended, and a start without a run arms one.
        let is_ours = begun.operator.is_some_and(|operator| operator.action == "start" && operator.name == by);
        if is_ours {
            self.send(Command::Cancel, by).await?;
        }
        Err(Problem::new("wrong_state", format!("run {} has just ended", status.run), "arm again"))
    }

    /// Waits for the images of a trigger.
    async fn exposed(&self, armed: ArmedRun) -> Result<(), Problem> {
        let detector = &*self.port.detector;
        let wanted = armed.images_per_trigger.saturating_mul(armed.sent);
        let longest = self.longest_exposure(armed.images_per_trigger);
        let until = tokio::time::Instant::now() + longest;
        let mut events = self.port.shared.fleet.events.subscribe();
        loop {
            let status = detector.status();
            let is_this = status.run == armed.run;
            if is_this && status.images_committed >= wanted {
                return Ok(());
            }
            if status.has_ended(armed.run) {
                let detail = if is_this { status.message.clone() } else { format!("run {} has ended", armed.run) };
                let detail = format!("the exposures of trigger {} were not completed: {detail}", armed.sent);
                return Err(Problem::new("refused", detail, status.hint.clone().unwrap_or_else(|| "arm again".into())));
            }
            if tokio::time::Instant::now() >= until {
                let detail = format!(
                    "the exposures of trigger {} are not done after {:.0} s: {} of {wanted} images have come. The run goes on",
                    armed.sent,
                    longest.as_secs_f64(),
                    status.images_committed
                );
                return Err(Problem::new("busy", detail, "look whether the detector is exposing; disarm or abort end the run"));
            }
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_LOOKS) => {}
                () = changed(&mut events) => {}
            }
            if self.port.shared.is_stopping() {
                return Err(Problem::new("busy", "the service is going down", "arm again when it is back"));
            }
        }
    }

    fn longest_exposure(&self, images: u64) -> Duration {
        let detector = &*self.port.detector;
        let seconds = |name| {
            let answer = keys::find("detector", name).and_then(|key| self.parameters().read(key, detector))?;
            answer.value.as_f64()
        };
        let of_image = seconds("frame_time").or_else(|| seconds("count_time"));
        Duration::try_from_secs_f64(of_image.map_or(UNKNOWN_S, |s| s * images as f64 + LATE_S))
            .unwrap_or(Duration::from_secs(86_400))
            .min(Duration::from_secs(86_400))
    }

    /// Commands to the parts of a DECTRIS unit that are not the detector.
    fn of_other_parts(&self, part: &str, name: &str) -> Result<(), Problem> {
        match (part, name) {
            ("system", _) => {
                let hint = "restart it on its machine; initialize clears an error of the detector";
                Err(Problem::new("refused", "the service cannot be restarted from here", hint))
            }
            ("filewriter", "clear") => {
                let hint = "delete single files with DELETE /data/FILE";
                Err(Problem::new(
                    "refused",
                    "files are not deleted all at once, because they are the only copy of the data",
                    hint,
                ))
            }
            ("monitor", _) => {
                self.forget_images();
                if name == "initialize" {
                    self.parameters().reset(Some("monitor"));
                }
                Ok(())
            }
            (part, _) => {
                self.parameters().reset(Some(part));
                Ok(())
            }
        }
    }
}
