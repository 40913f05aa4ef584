//! The HTTP interface of the MAX IV streaming-receiver, so that its Tango device, viewer and scripts go on working: `/status`,
//! `/received_frames`, `/downsample` and, if asked for, `/last_frame` (protocols 4).

use super::pickle;
use crate::serve::handle::{Detector, DetectorState, Severity};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Largest factor that makes sense: a pixel is left of any image.
const DOWNSAMPLE_MAX: u32 = 65_536;

struct Shared {
    detector: Arc<dyn Detector>,
    downsample: AtomicU32,
    /// `/last_frame` hands out a pickle, which is code to whoever loads it: only on request.
    with_last_frame: bool,
}

/// The endpoints for one detector.
pub fn router(detector: Arc<dyn Detector>, with_last_frame: bool) -> Router {
    let shared = Arc::new(Shared { detector, downsample: AtomicU32::new(1), with_last_frame });
    Router::new()
        .route("/status", get(status))
        .route("/received_frames", get(received_frames))
        .route("/downsample", get(downsample).post(set_downsample))
        .route("/last_frame", get(last_frame))
        .with_state(shared)
}

/// Armed is idle to the peer: its running begins with the header of a series.
async fn status(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let status = shared.detector.status();
    Json(match status.state {
        DetectorState::Idle | DetectorState::Armed => json!({"state": "idle"}),
        // A file that cannot be written is an error at once, although images still go on to the consumers.
        DetectorState::Running if status.severity == Severity::Error => json!({"state": "error", "error": status.message}),
        DetectorState::Running => json!({"state": "running"}),
        DetectorState::Error => json!({"state": "error", "error": status.message}),
    })
}

async fn received_frames(State(shared): State<Arc<Shared>>) -> Json<Value> {
    // Gaps are no frames.
    let status = shared.detector.status();
    Json(json!({"value": status.images_committed.saturating_sub(status.images_lost)}))
}

async fn downsample(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({"value": shared.downsample.load(Ordering::Relaxed)}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Factor {
    value: u32,
}

async fn set_downsample(State(shared): State<Arc<Shared>>, factor: Result<Query<Factor>, QueryRejection>) -> Response {
    match factor {
        Ok(Query(Factor { value })) if (1..=DOWNSAMPLE_MAX).contains(&value) => {
            shared.downsample.store(value, Ordering::Relaxed);
            Json(json!({"value": value})).into_response()
        }
        _ => {
            let detail = format!("give ?value=N, a whole number from 1 to {DOWNSAMPLE_MAX}");
            (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"detail": detail}))).into_response()
        }
    }
}

async fn last_frame(State(shared): State<Arc<Shared>>) -> Response {
    if !shared.with_last_frame {
        let detail = "off, because a pickle runs code where it is loaded; /api/v1/images/latest has the same image as npy, TIFF, PNG or CBOR. \
                      To have it all the same: compat_pickle = true in [service], or --last-frame-pickle";
        return (StatusCode::NOT_FOUND, Json(json!({"detail": detail}))).into_response();
    }
    let Some((_, image)) = shared.detector.images().get(None) else {
        return (StatusCode::NOT_FOUND, Json(json!({"detail": "no image has come yet"}))).into_response();
    };
    let factor = shared.downsample.load(Ordering::Relaxed) as usize;
    let made = tokio::task::spawn_blocking(move || pickle::last_frame(&image, factor)).await;
    match made {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, "image/pickle")], body).into_response(),
        Ok(Err(why)) => (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({"detail": why}))).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({"detail": "the image could not be made"}))).into_response(),
    }
}
