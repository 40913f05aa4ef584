//! The part of DECTRIS' SIMPLON interface (versions 1.6.0 and 1.8.0) that its clients fastcs-eiger, ADEiger and Lima
//! use, for one detector. What a client sets are the parameters of its next arm; states, images and files are those of
//! the detector. docs/simplon.md says what each key does.

mod commands;
mod config;
mod data;
mod keys;
mod monitor;
mod parameters;
mod refuse;
mod shared;
mod status;

use crate::adapters::port::{Form, Port};
use crate::http::audit::only_reads;
use crate::http::guard;
use crate::http::problem::{self, Problem, ProblemBody};
use crate::security::{Identity, Role};
use axum::extract::{Path, Request};
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use refuse::{VERSIONS, check, no_path};
use serde_json::{Value, json};
use shared::Simplon;
use std::sync::{Arc, Mutex};

/// This adapter.
pub static FORM: Form = Form { name: "simplon", routes, reads: &[], problem: in_words };

fn routes(port: Arc<Port>) -> Router {
    let simplon = Simplon { port, parameters: Mutex::default(), armed: Mutex::default(), shown: Mutex::default() };
    Router::new()
        .route("/{subsystem}/api/version", get(version))
        .route("/{subsystem}/api/{version}/config/{*key}", get(config::configured).put(config::configure))
        .route("/{subsystem}/api/{version}/status/{*key}", get(status::status))
        .route("/{subsystem}/api/{version}/command/keys", get(commands::list))
        .route("/{subsystem}/api/{version}/command/{*key}", put(commands::command))
        .route("/{subsystem}/api/{version}/images/{*key}", get(monitor::image))
        .route("/data/{*file}", get(data::read).delete(data::remove))
        .fallback(unknown)
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(from_fn(authorize))
        .with_state(Arc::new(simplon))
}

/// Reading needs the role view, everything else operate.
async fn authorize(request: Request, next: Next) -> Response {
    let needed = if only_reads(request.method()) { Role::View } else { Role::Operate };
    match guard::may(request.extensions().get::<Identity>(), needed) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Plain text, which is what the clients of a DECTRIS unit show.
fn in_words(problem: &ProblemBody) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let hint = problem.hint.as_ref().map(|hint| format!(". What to do: {hint}")).unwrap_or_default();
    (status, format!("{}{hint}", problem.detail)).into_response()
}

async fn version(Path(subsystem): Path<String>) -> Result<Json<Value>, Problem> {
    check(&subsystem, VERSIONS[1])?;
    Ok(Json(json!({ "value": VERSIONS[1], "value_type": "string", "access_mode": "r" })))
}

async fn unknown(uri: Uri) -> Problem {
    no_path(uri.path())
}
