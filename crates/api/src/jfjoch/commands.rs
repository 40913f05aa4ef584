//! What drives the detector.

use super::dataset::DatasetSettings;
use crate::adapters::port::Port;
use crate::http::audit::AuditBody;
use crate::http::commands::{order, summary};
use crate::http::extract::{Body, Query};
use crate::http::problem::Problem;
use crate::security::Identity;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::{Command, DetectorState, DetectorStatus, PedestalRequest, Severity};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait that the broker allows, and what it waits without being told.
const WAIT_S_MAX: u64 = 3600;
const WAIT_S_USUAL: u64 = 60;

type Answer = Result<(Extension<AuditBody>, StatusCode), Response>;

/// Gives a command and answers without a body.
async fn give(port: &Port, identity: &Identity, command: Command, request: Value) -> Answer {
    let detector = Arc::clone(&port.detector);
    let audit = Extension(AuditBody { detector: Some(detector.name().into()), request });
    match order(&port.shared, detector, command, identity.name().to_owned()).await {
        Ok(_) => Ok((audit, StatusCode::OK)),
        Err(problem) => Err((audit, problem).into_response()),
    }
}

/// `/start`: arms, and starts what `[control] on_start` starts. Answers when data may come.
pub async fn start(State(port): State<Arc<Port>>, Extension(identity): Extension<Identity>, Body(body): Body<Value>) -> Answer {
    let read = DatasetSettings::read(&body).and_then(|settings| settings.request(&port.detector.configuration()));
    let (request, not_kept) = read.map_err(IntoResponse::into_response)?;
    let summary = summary(&request);
    // Refused if somebody else has armed, because it has settings.
    let answer = give(&port, &identity, Command::Start(Box::new(request)), summary).await?;
    if !not_kept.is_empty() {
        let message = format!("jfjoch: not kept, as there is no place for it: {}", not_kept.join(", "));
        port.shared.fleet.events.remark(Some(port.detector.name()), Severity::Info, message, json!({ "fields": not_kept }));
    }
    Ok(answer)
}

/// `/initialize`: clears an error. Where nothing is wrong, nothing has to be done.
pub async fn initialize(State(port): State<Arc<Port>>, Extension(identity): Extension<Identity>) -> Answer {
    let state = port.detector.status().state;
    match state {
        DetectorState::Error => give(&port, &identity, Command::Cancel, Value::Null).await,
        state if state.has_run() => {
            let hint = "wait for its end, or cancel it first";
            Err(Problem::new("wrong_state", "a run is in progress", hint).into_response())
        }
        _ => Ok((Extension(AuditBody { detector: Some(port.detector.name().into()), request: Value::Null }), StatusCode::OK)),
    }
}

/// `/trigger`.
pub async fn trigger(State(port): State<Arc<Port>>, Extension(identity): Extension<Identity>) -> Answer {
    give(&port, &identity, Command::Trigger, Value::Null).await
}

/// `/pedestal`: answers when dark frames are being taken.
pub async fn pedestal(State(port): State<Arc<Port>>, Extension(identity): Extension<Identity>) -> Answer {
    let request = PedestalRequest::default();
    let summary = json!(request);
    give(&port, &identity, Command::Pedestal(Box::new(request)), summary).await
}

/// `/cancel`: ends a run and keeps what has arrived, as the broker does; ends the taking of dark frames. Nothing
/// happens in other states: the last images are written to the end, and an error stays until `/initialize`.
pub async fn cancel(State(port): State<Arc<Port>>, Extension(identity): Extension<Identity>) -> Answer {
    let status = port.detector.status();
    let command = match status.state {
        _ if status.dark_frames.is_some() => Command::Cancel,
        DetectorState::Armed | DetectorState::Receiving => Command::Stop,
        DetectorState::Idle | DetectorState::Draining | DetectorState::Error => {
            let audit = AuditBody { detector: Some(status.detector.clone()), request: Value::Null };
            return Ok((Extension(audit), StatusCode::OK));
        }
    };
    give(&port, &identity, command, Value::Null).await
}

/// How long to wait.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    timeout: Option<u64>,
}

impl WaitQuery {
    fn longest(&self) -> Result<Duration, Problem> {
        let seconds = self.timeout.unwrap_or(WAIT_S_USUAL);
        if seconds > WAIT_S_MAX {
            let detail = format!("timeout: {seconds} is not between 0 and {WAIT_S_MAX}");
            return Err(Problem::new("bad_query", detail, "to wait longer, ask again"));
        }
        Ok(Duration::from_secs(seconds))
    }
}

/// `/wait_till_done`: 200 when nothing is armed, in progress or being written.
pub async fn wait_till_done(State(port): State<Arc<Port>>, Query(query): Query<WaitQuery>) -> Result<Response, Problem> {
    let longest = query.longest()?;
    let run = port.detector.status().run;
    let waited = port.shared.wait_for(&*port.detector, longest, |status| status.has_ended(run)).await;
    Ok(outcome(waited, "done"))
}

/// `/wait_until_running`: 200 when data may come.
pub async fn wait_until_running(State(port): State<Arc<Port>>, Query(query): Query<WaitQuery>) -> Result<Response, Problem> {
    let runs =
        |status: &DetectorStatus| matches!(status.state, DetectorState::Armed | DetectorState::Receiving | DetectorState::Error);
    Ok(outcome(port.shared.wait_for(&*port.detector, query.longest()?, runs).await, "running"))
}

/// 500 in the error state, 504 when the time was over first.
fn outcome((status, reached): (Arc<DetectorStatus>, bool), what: &str) -> Response {
    let message = || super::state::message(&status);
    if status.state == DetectorState::Error {
        return (StatusCode::INTERNAL_SERVER_ERROR, super::error(&message(), "Other")).into_response();
    }
    if reached {
        return StatusCode::OK.into_response();
    }
    let state = super::state::word(&status);
    let text = format!("'{}' is not {what} yet: {state}, {}", status.detector, message());
    (StatusCode::GATEWAY_TIMEOUT, super::error(&text, "Other")).into_response()
}
