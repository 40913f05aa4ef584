//! The commands to a detector.

use super::audit::AuditBody;
use super::extract::{Body, NoQuery, Nothing, Query};
use super::machine::look;
use super::problem::Problem;
use super::state::Shared;
use super::status::{Detectors, seconds};
use crate::security::Identity;
use axum::extract::{ConnectInfo, FromRequestParts, State};
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use konkordia_acquire::handle::{ArmRequest, Command, Detector, DetectorStatus, DryRun, PedestalRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Far longer than any command takes; after this time the detector is stuck.
const COMMAND_LONGEST: Duration = Duration::from_secs(150);

/// For which detector, and how long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CommandQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Seconds (0 to 600) to wait after the command until the detector is neither armed nor running. The answer is then
    /// the state at that time.
    #[param(minimum = 0, maximum = 600, example = 0)]
    wait_s: Option<f64>,
}

/// As [`CommandQuery`], and whether it is only asked.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ArmQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Seconds (0 to 600) to wait after the command until the detector is neither armed nor running. The answer is then
    /// the state at that time.
    #[param(minimum = 0, maximum = 600, example = 0)]
    wait_s: Option<f64>,
    /// True: arms nothing, and says what is wrong with the request and what its run needs. The role view is enough.
    #[param(example = false)]
    dry_run: Option<bool>,
}

/// The answer to an arm.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum ArmAnswer {
    /// With `dry_run`: whether it would be accepted, and what its run needs.
    Asked(Box<DryRun>),
    /// The state after the command.
    Armed(Box<DetectorStatus>),
}

/// Prepares a run; answers when everything is ready, or says why it is not.
#[utoipa::path(post, path = "/api/v1/arm", tag = "commands", params(ArmQuery),
    request_body(content = ArmRequest, example = json!({"images": 1000, "prefix": "lyso/run03", "metadata": {"energy_kev": 12.4}})),
    responses((status = 200, description = "Armed, or the state after the wait, or what is wrong and what the run needs", body = ArmAnswer)))]
pub async fn arm(
    State(shared): State<Arc<Shared>>,
    by: By,
    Query(query): Query<ArmQuery>,
    Body(request): Body<ArmRequest>,
) -> Result<(Extension<AuditBody>, Json<ArmAnswer>), Response> {
    let ArmQuery { detector, wait_s, dry_run } = query;
    let summary = summary(&request);
    if dry_run == Some(true) {
        let audit = Extension(AuditBody { detector: detector.clone(), request: summary });
        let asked = ask(&shared, detector.as_deref(), wait_s, request).await;
        return asked.map(|asked| (audit, Json(ArmAnswer::Asked(Box::new(asked))))).map_err(IntoResponse::into_response);
    }
    let query = CommandQuery { detector, wait_s };
    let (audit, Json(status)) = carry_out(State(shared), by, Query(query), Command::Arm(Box::new(request)), summary).await?;
    Ok((audit, Json(ArmAnswer::Armed(Box::new(status)))))
}

async fn ask(shared: &Shared, detector: Option<&str>, wait_s: Option<f64>, request: ArmRequest) -> Result<DryRun, Problem> {
    if wait_s.is_some() {
        let hint = "leave wait_s or dry_run out";
        return Err(Problem::new("bad_query", "wait_s: nothing is armed, so there is nothing to wait for", hint));
    }
    let detector = shared.detector(detector)?;
    look(shared, move || detector.dry_run(&request)).await
}

/// Who sends a command: the name of the token; where none is needed, `local` with the address, and the verb if it was
/// sent by the command line.
pub struct By(String);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let identity = parts.extensions.get::<Identity>();
        let name = identity.map_or("local", Identity::name);
        if name != "local" {
            return Ok(Self(name.into()));
        }
        let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip().to_canonical());
        let program = parts.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).and_then(verb_of);
        let address = address.map_or(String::new(), |address| format!(" {address}"));
        Ok(Self(format!("local{address}{}", program.map_or(String::new(), |verb| format!(" ({verb})")))))
    }
}

/// The verb in the name of our own client: `konkordia arm`.
fn verb_of(agent: &str) -> Option<&str> {
    let is_verb = |verb: &str| !verb.is_empty() && verb.len() <= 20 && verb.bytes().all(|byte| byte.is_ascii_lowercase());
    agent.strip_prefix("konkordia ").filter(|verb| is_verb(verb)).map(|_| agent)
}

/// Arms if nothing is armed, and starts the time limit for the first data.
#[utoipa::path(post, path = "/api/v1/start", tag = "commands", params(CommandQuery),
    request_body(content = ArmRequest, example = json!({"images": 1000, "prefix": "lyso/run03"})),
    responses((status = 200, description = "The state after the command", body = DetectorStatus)))]
pub async fn start(shared: State<Arc<Shared>>, by: By, query: Query<CommandQuery>, Body(request): Body<ArmRequest>) -> Answer {
    let summary = summary(&request);
    carry_out(shared, by, query, Command::Start(Box::new(request)), summary).await
}

/// Makes the detector expose, by running the configured program (`[control] on_trigger`).
#[utoipa::path(post, path = "/api/v1/trigger", tag = "commands", params(CommandQuery), request_body(content = Nothing, example = json!({})),
    responses((status = 200, description = "The state after the command", body = DetectorStatus)))]
pub async fn trigger(shared: State<Arc<Shared>>, by: By, query: Query<CommandQuery>, Body(Nothing {}): Body<Nothing>) -> Answer {
    carry_out(shared, by, query, Command::Trigger, Value::Null).await
}

/// Takes dark frames and makes a calibration file of them, or renews the pedestals of an existing one. Answers when
/// this has begun, or after the wait; an event `pedestal` has the table of modules.
#[utoipa::path(post, path = "/api/v1/pedestal", tag = "commands", params(CommandQuery),
    request_body(content = PedestalRequest, example = json!({"stage": "all", "frames": 400})),
    responses((status = 200, description = "Begun, or the state after the wait", body = DetectorStatus)))]
pub async fn pedestal(
    shared: State<Arc<Shared>>,
    by: By,
    query: Query<CommandQuery>,
    Body(request): Body<PedestalRequest>,
) -> Answer {
    let summary = json!(request);
    carry_out(shared, by, query, Command::Pedestal(Box::new(request)), summary).await
}

/// Ends the run; images that have arrived are kept.
#[utoipa::path(post, path = "/api/v1/stop", tag = "commands", params(CommandQuery), request_body(content = Nothing, example = json!({})),
    responses((status = 200, description = "The state after the command", body = DetectorStatus)))]
pub async fn stop(shared: State<Arc<Shared>>, by: By, query: Query<CommandQuery>, Body(Nothing {}): Body<Nothing>) -> Answer {
    carry_out(shared, by, query, Command::Stop, Value::Null).await
}

/// Ends the run at once, closes its files, and clears an error. Allowed in every state and any number of times.
#[utoipa::path(post, path = "/api/v1/cancel", tag = "commands", params(CommandQuery), request_body(content = Nothing, example = json!({})),
    responses((status = 200, description = "The state after the command", body = DetectorStatus)))]
pub async fn cancel(shared: State<Arc<Shared>>, by: By, query: Query<CommandQuery>, Body(Nothing {}): Body<Nothing>) -> Answer {
    carry_out(shared, by, query, Command::Cancel, Value::Null).await
}

/// Closes the file that stays open behind its runs (`append`). Nothing happens if there is none.
#[utoipa::path(post, path = "/api/v1/close", tag = "commands", params(CommandQuery), request_body(content = Nothing, example = json!({})),
    responses((status = 200, description = "The state after the command", body = DetectorStatus)))]
pub async fn close(shared: State<Arc<Shared>>, by: By, query: Query<CommandQuery>, Body(Nothing {}): Body<Nothing>) -> Answer {
    carry_out(shared, by, query, Command::Close, Value::Null).await
}

/// Begins no further run of any detector, whoever asks for one. What is armed or in progress goes on; GET
/// /api/v1/detectors shows when that has ended. Only a new start of the service undoes it.
#[utoipa::path(post, path = "/api/v1/drain", tag = "commands", request_body(content = Nothing, example = json!({})),
    responses((status = 200, description = "All detectors, in the order of the configuration", body = Detectors)))]
pub async fn drain(
    State(shared): State<Arc<Shared>>,
    By(by): By,
    Query(NoQuery {}): Query<NoQuery>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<(Extension<AuditBody>, Json<Detectors>), Response> {
    let audit = Extension(AuditBody { detector: None, request: Value::Null });
    let mut detectors = Vec::new();
    for detector in &shared.fleet.detectors {
        match order(&shared, Arc::clone(detector), Command::Drain, by.clone()).await {
            Ok(status) => detectors.push(status),
            Err(problem) => return Err((audit, problem).into_response()),
        }
    }
    Ok((audit, Json(Detectors { detectors })))
}

type Answer = Result<(Extension<AuditBody>, Json<DetectorStatus>), Response>;

/// What the audit log keeps of a request: of the metadata only the names.
pub fn summary(request: &ArmRequest) -> Value {
    let names: Vec<&String> = request.metadata.keys().collect();
    json!({"images": request.images, "prefix": request.prefix, "write": request.write, "metadata": names, "append": request.append})
}

async fn carry_out(
    State(shared): State<Arc<Shared>>,
    By(by): By,
    Query(query): Query<CommandQuery>,
    command: Command,
    summary: Value,
) -> Answer {
    let audit = Extension(AuditBody { detector: query.detector.clone(), request: summary });
    let answer = command_and_wait(&shared, query, (command, by)).await;
    match answer {
        Ok(status) => Ok((audit, Json(status))),
        Err(problem) => Err((audit, problem).into_response()),
    }
}

async fn command_and_wait(
    shared: &Shared,
    query: CommandQuery,
    (command, by): (Command, String),
) -> Result<DetectorStatus, Problem> {
    let wait = query.wait_s.map(|wait| seconds("wait_s", wait)).transpose()?;
    let detector = shared.detector(query.detector.as_deref())?;
    let status = order(shared, Arc::clone(&detector), command, by).await?;
    match wait {
        Some(longest) => Ok((*shared.wait_idle(&*detector, status.run, longest).await.0).clone()),
        None => Ok(status),
    }
}

/// Gives a command of `by` to a detector, and returns the state after it.
///
/// # Errors
/// It was refused, or too many others wait.
pub async fn order(
    shared: &Shared,
    detector: Arc<dyn Detector>,
    command: Command,
    by: String,
) -> Result<DetectorStatus, Problem> {
    let ends = matches!(command, Command::Stop | Command::Cancel | Command::Close | Command::Drain);
    let places = if ends { &shared.endings } else { &shared.commands };
    let place = Arc::clone(places).try_acquire_owned().map_err(|_| {
        Problem::new("busy", "too many commands are waiting for their detectors", "try again when they are done").retry_after(1)
    })?;
    let running = tokio::task::spawn_blocking(move || {
        let reply = detector.command(command, &by);
        drop(place);
        reply
    });
    let reply = tokio::time::timeout(COMMAND_LONGEST, running).await.map_err(|_| {
        let detail = format!("the detector has not answered within {} s", COMMAND_LONGEST.as_secs());
        Problem::new("busy", detail, "look at GET /api/v1/status and the log; `cancel` may help").retry_after(10)
    })?;
    Ok(reply.map_err(|_| Problem::bug("the service made a mistake with this command"))??)
}
