//! The HTTP interface of the MAX IV streaming-receiver, so that its Tango device, viewer and scripts go on working:
//! `/status`, `/received_frames`, `/downsample`, `/docs` and, if configured, `/last_frame`.

use super::{docs, pickle};
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use konkordia_acquire::handle::{Detector, DetectorState, Severity};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// Largest factor that makes sense: one pixel is left of any image.
const DOWNSAMPLE_MAX: i64 = 65_536;
const PATHS: [&str; 7] = ["/status", "/received_frames", "/downsample", "/last_frame", "/docs", "/redoc", "/openapi.json"];

struct Shared {
    detector: Arc<dyn Detector>,
    downsample: AtomicI64,
    /// `/last_frame` returns a pickle, which may run code in whoever loads it: only on request.
    with_last_frame: bool,
}

/// The endpoints for one detector.
pub fn router(detector: Arc<dyn Detector>, with_last_frame: bool) -> Router {
    let shared = Arc::new(Shared { detector, downsample: AtomicI64::new(1), with_last_frame });
    Router::new()
        .route("/status", get(status))
        .route("/received_frames", get(received_frames))
        .route("/downsample", get(downsample).post(set_downsample))
        .route("/last_frame", get(last_frame))
        .route("/docs", get(docs::page))
        .route("/redoc", get(docs::page))
        .route("/openapi.json", get(docs::openapi))
        .fallback(elsewhere)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

/// Armed is reported as idle: the MAX IV receiver calls itself running only from the header of a series on.
async fn status(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let status = shared.detector.status();
    Json(match status.state {
        DetectorState::Idle | DetectorState::Armed => json!({"state": "idle"}),
        DetectorState::Error => json!({"state": "error", "error": status.message}),
        // A file that cannot be written is an error at once, although images still go on to the consumers.
        _ if status.severity == Severity::Error => json!({"state": "error", "error": status.message}),
        DetectorState::Receiving | DetectorState::Draining => json!({"state": "running"}),
    })
}

async fn received_frames(State(shared): State<Arc<Shared>>) -> Json<Value> {
    // Lost images are not received frames.
    let status = shared.detector.status();
    Json(json!({"value": status.images_committed.saturating_sub(status.images_lost)}))
}

async fn downsample(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({"value": shared.downsample.load(Ordering::Relaxed)}))
}

/// Takes any whole number, as the MAX IV receiver does; below 2 images stay as they are. Other parameters are ignored.
async fn set_downsample(State(shared): State<Arc<Shared>>, Query(all): Query<BTreeMap<String, String>>) -> Response {
    let refuse = |kind: &str, why: &str, input: Option<&String>| {
        let detail = json!([{ "type": kind, "loc": ["query", "value"], "msg": why, "input": input }]);
        (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "detail": detail }))).into_response()
    };
    let Some(text) = all.get("value") else { return refuse("missing", "Field required", None) };
    match text.trim().parse::<i64>() {
        Ok(value) => {
            shared.downsample.store(value, Ordering::Relaxed);
            Json(json!({ "value": value })).into_response()
        }
        Err(_) => refuse("int_parsing", "Input should be a valid integer, unable to parse string as an integer", Some(text)),
    }
}

/// Redirects a path with a slash too many at its end, as the MAX IV receiver does.
async fn elsewhere(uri: Uri) -> Response {
    let path = uri.path().trim_end_matches('/');
    if path != uri.path() && PATHS.contains(&path) {
        let location = uri.query().map_or(path.to_string(), |query| format!("{path}?{query}"));
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response();
    }
    (StatusCode::NOT_FOUND, Json(json!({ "detail": "Not Found" }))).into_response()
}

async fn wrong_method() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, Json(json!({ "detail": "Method Not Allowed" }))).into_response()
}

async fn last_frame(State(shared): State<Arc<Shared>>) -> Response {
    if !shared.with_last_frame {
        let detail = "off, because a pickle runs code where it is loaded; /api/v1/images/latest has the same image as npy, TIFF, PNG or CBOR. \
                      To have it all the same: compat_pickle = true in [service], or --last-frame-pickle";
        return (StatusCode::NOT_FOUND, Json(json!({"detail": detail}))).into_response();
    }
    let newest = shared.detector.images().get(None, Instant::now());
    let factor = shared.downsample.load(Ordering::Relaxed).clamp(1, DOWNSAMPLE_MAX) as usize;
    let make = move || match newest {
        Some(newest) => pickle::last_frame(&newest.planes, factor),
        None => pickle::before_the_first(),
    };
    let made = tokio::task::spawn_blocking(make).await;
    match made {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "image/pickle")], body).into_response(),
        Ok(Err(why)) => (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({"detail": why}))).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({"detail": "the image could not be made"}))).into_response(),
    }
}
