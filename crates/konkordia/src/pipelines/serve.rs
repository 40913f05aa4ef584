//! `konkordia pipelines serve`: the pipelines over HTTP.
//!
//! `GET /pipelines`, `POST /pipelines/NAME/up {"replicas": 20}`, `POST /pipelines/NAME/down {"when_idle": true}`,
//! `GET /healthz`. A refusal is a problem (RFC 9457) as in the interface of the service.

use super::args::ServeArgs;
use super::cluster::{Cluster, Scale};
use super::idle::{Idle, LOOK};
use crate::console;
use crate::log::{self, LogFormat, LogLevel};
use crate::run::signals;
use crate::serve::client::http::Client;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use konkordia_api::security::tokens::Tokens;
use konkordia_api::security::{Identity, Role};
use konkordia_core::failure::{Exit, Failure, reason};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a request.
const BODY_BYTES_MAX: usize = 4096;
/// Requests that wait for the API server at once.
const BLOCKING_MAX: usize = 8;

struct Shared {
    cluster: Cluster,
    tokens: Option<Tokens>,
    /// Pipelines that are stopped when the detectors are idle. At most all of them.
    when_idle: Mutex<BTreeSet<String>>,
    /// All pipelines are, always.
    always: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Up {
    replicas: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Down {
    replicas: u32,
    when_idle: bool,
}

/// `konkordia pipelines serve`
///
/// # Errors
/// The cluster, the tokens or the address cannot be used.
pub fn command(args: &ServeArgs) -> Result<Exit, Failure> {
    let mut signals = signals::watched()?;
    log::start(LogLevel::Info, LogFormat::Text);
    let tokens = args.tokens.as_deref().map(Tokens::load).transpose()?;
    if tokens.is_none() && !args.listen.ip().is_loopback() {
        let what = format!("other hosts could stop the pipelines through {}", args.listen);
        let fix = "give --tokens FILE (`konkordia token create NAME --role operate --file FILE`), or listen on 127.0.0.1";
        return Err(Failure::new(Exit::Usage, what, "there are no tokens", fix));
    }
    let cluster = Cluster::new(&args.cluster)?;
    let idle = Idle::new(Client::new(&args.target)?);
    let shared = Arc::new(Shared { cluster, tokens, when_idle: Mutex::default(), always: args.down_when_idle });
    let io = |error: std::io::Error| {
        let what = format!("cannot listen on {}", args.listen);
        Failure::new(Exit::Io, what, reason(&error), "give another address with --listen")
    };
    let listener = std::net::TcpListener::bind(args.listen).map_err(io)?;
    listener.set_nonblocking(true).map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).max_blocking_threads(BLOCKING_MAX).enable_all().build().map_err(io)?;
    let app = router(Arc::clone(&shared));
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, app).await
    });
    let idle_s = args.idle_s;
    let watcher = std::thread::Builder::new().name("idle".into()).spawn(move || watch(&shared, idle, idle_s));
    watcher.map_err(io)?;
    console::to_stdout(&format!("ready: http://{address}"));
    let _ = signals::ending(&mut signals, "the options are read at the start: start it again to change something").next();
    Ok(Exit::Complete)
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { Json(json!({ "status": "ok" })) }))
        .route("/pipelines", get(list))
        .route("/pipelines/{name}/up", post(up))
        .route("/pipelines/{name}/down", post(down))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "not_found", "there is no such path", "GET /pipelines") })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

async fn list(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Some(refusal) = shared.refuses(&headers, Role::View) {
        return refusal;
    }
    answer(move || shared.cluster.scales().map(|scales| json!({ "pipelines": scales }))).await
}

async fn up(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Json<Up>, JsonRejection>,
) -> Response {
    if let Some(refusal) = shared.refuses(&headers, Role::Operate) {
        return refusal;
    }
    let Json(Up { replicas }) = match body {
        Ok(body) => body,
        Err(rejection) => return bad_body(&rejection, "{\"replicas\": 20}"),
    };
    answer(move || {
        shared.when_idle.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
        shared.set(&name, replicas)
    })
    .await
}

async fn down(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Json<Down>, JsonRejection>,
) -> Response {
    if let Some(refusal) = shared.refuses(&headers, Role::Operate) {
        return refusal;
    }
    let Json(Down { replicas, when_idle }) = match body {
        Ok(body) => body,
        Err(rejection) => return bad_body(&rejection, "{\"when_idle\": true}"),
    };
    answer(move || {
        if !when_idle {
            return shared.set(&name, replicas);
        }
        let scale = shared.cluster.scale(&name)?;
        shared.when_idle.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Ok(json!({ "pipeline": scale.pipeline, "wanted": scale.wanted, "pods": scale.pods, "when_idle": true }))
    })
    .await
}

impl Shared {
    fn set(&self, name: &str, replicas: u32) -> Result<serde_json::Value, Failure> {
        let scale = self.cluster.set(name, replicas)?;
        tracing::info!("pipeline '{name}': {replicas} wanted");
        Ok(json!(scale))
    }

    /// The answer to somebody who may not do this.
    fn refuses(&self, headers: &HeaderMap, needed: Role) -> Option<Response> {
        let tokens = self.tokens.as_ref()?;
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let identity =
            given.and_then(|value| value.strip_prefix("Bearer ")).map_or(Identity::Anonymous, |token| tokens.identify(token));
        match identity.role() {
            Some(role) if role >= needed => None,
            Some(role) => {
                let what = format!("the role {} does not allow this", role.name());
                Some(problem(StatusCode::FORBIDDEN, "forbidden", &what, "use a token with the role operate"))
            }
            None => {
                Some(problem(StatusCode::UNAUTHORIZED, "unauthorized", "a token is needed", "send Authorization: Bearer TOKEN"))
            }
        }
    }

    /// Stops what is to be stopped when the detectors are idle. What cannot be stopped now is tried again.
    fn stop_idle(&self) -> Result<usize, Failure> {
        let named = self.when_idle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut stopped = 0;
        for name in self.cluster.pipelines().iter().filter(|name| self.always || named.contains(*name)) {
            let Scale { wanted, .. } = self.cluster.scale(name)?;
            if wanted > 0 {
                self.cluster.set(name, 0)?;
                tracing::info!("pipeline '{name}' is stopped: the detectors are idle");
                stopped += 1;
            }
            self.when_idle.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        }
        Ok(stopped)
    }
}

/// Looks at the service for ever; says once what is wrong.
fn watch(shared: &Shared, mut idle: Idle, idle_s: f64) {
    let mut said = String::new();
    loop {
        std::thread::sleep(LOOK);
        let is_needed = shared.always || !shared.when_idle.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !is_needed {
            idle.restart();
            continue;
        }
        let stopped = match idle.look() {
            Ok(Some(since)) if since.as_secs_f64() >= idle_s => shared.stop_idle().map(|_| idle.restart()),
            Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        };
        let now = stopped.err().map_or(String::new(), |failure| failure.to_string());
        if !now.is_empty() && now != said {
            tracing::warn!("no pipeline is stopped for the time being: {now}");
        }
        said = now;
    }
}

/// Runs what waits for the API server in a thread of its own.
async fn answer(work: impl FnOnce() -> Result<serde_json::Value, Failure> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(failure)) => {
            let (status, code) = match failure.exit {
                Exit::Usage if failure.what.contains("cannot run") => (StatusCode::UNPROCESSABLE_ENTITY, "too_many"),
                Exit::Usage => (StatusCode::NOT_FOUND, "unknown_pipeline"),
                Exit::Configuration => (StatusCode::FORBIDDEN, "no_rights_in_cluster"),
                Exit::State => (StatusCode::CONFLICT, "wrong_state"),
                Exit::Unreachable => (StatusCode::SERVICE_UNAVAILABLE, "cluster_away"),
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
            };
            problem(status, code, &format!("{}: {}", failure.what, failure.why), &failure.fix)
        }
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "bug", "this request failed", "please report this"),
    }
}

fn bad_body(rejection: &JsonRejection, example: &str) -> Response {
    problem(rejection.status(), "bad_body", &rejection.body_text(), &format!("send JSON such as {example}"))
}

fn problem(status: StatusCode, code: &str, detail: &str, hint: &str) -> Response {
    let body =
        json!({ "status": status.as_u16(), "title": status.canonical_reason(), "code": code, "detail": detail, "hint": hint });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
