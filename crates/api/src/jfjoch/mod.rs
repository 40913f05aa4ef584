//! The paths of the Jungfraujoch broker for one detector, so that its client drives this service. What the service does
//! not have is answered with a text that says so. Nothing is kept here: states, images and results are those of the
//! detector.

mod commands;
mod dataset;
mod error;
mod images;
mod plots;
mod state;

use self::error::error;
use crate::adapters::port::{Form, Port};
use crate::http::guard;
use crate::http::problem::{self, Problem, ProblemBody};
use axum::Router;
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::sync::Arc;

/// This adapter.
pub static FORM: Form =
    Form { name: "jfjoch", routes, reads: &["/wait_till_done", "/wait_until_running"], problem: in_its_words };

/// Paths of the broker that are not offered, and what to do instead.
const NOT_OFFERED: [(&str, &str); 33] = [
    ("/deactivate", "Konkordia does not switch a detector off; its own software does"),
    ("/config/azim_int", RECIPE),
    ("/config/bragg_integration", "Konkordia does not integrate spots"),
    ("/config/dark_mask", CALIBRATION),
    ("/config/file_writer", CONFIGURATION),
    ("/config/image_format", CONFIGURATION),
    ("/config/image_format/conversion", CONFIGURATION),
    ("/config/image_format/raw", CONFIGURATION),
    ("/config/indexing", CONFIGURATION),
    ("/config/instrument", CONFIGURATION),
    ("/config/internal_generator_image", SIMULATOR),
    ("/config/internal_generator_image.tiff", SIMULATOR),
    ("/config/mask.tiff", "/config/mask has the same mask as bytes"),
    ("/config/roi", RECIPE),
    ("/config/rugnux", RUGNUX),
    ("/config/rugnux/model", RUGNUX),
    ("/config/select_detector", "a port shows one detector: [adapters.jfjoch] detector in the configuration says which"),
    ("/config/spot_finding", RECIPE),
    ("/config/user_mask", MASK),
    ("/config/user_mask.tiff", MASK),
    ("/config/zeromq_metadata", STREAMS),
    ("/config/zeromq_preview", STREAMS),
    ("/detector/status", "Konkordia does not ask the boards of the detector; /status has the state of the data acquisition"),
    ("/image_buffer/clear", "the newest images replace the oldest ones"),
    ("/image_buffer/image.jpeg", "/image_buffer/image.tiff has the numbers, the service's /api/v1/images/latest a PNG"),
    ("/image_pusher/status", "the service's /api/v1/statistics has its consumers"),
    ("/live/events", "the service's /api/v1/events has its events"),
    ("/preview/pedestal.tiff", CALIBRATION),
    ("/preview/plot.bin", "/preview/plot has the same plots as JSON"),
    ("/rugnux/map.ccp4", RUGNUX),
    ("/rugnux/model.cif", RUGNUX),
    ("/rugnux/status", RUGNUX),
    ("/statistics/calibration", CALIBRATION),
];
const CONFIGURATION: &str = "the configuration file of the service says it, and is read when the service starts";
const RECIPE: &str = "the recipe of the analysis says it (docs/analysis.md)";
const CALIBRATION: &str = "the service's /api/v1/calibration and /api/v1/calibration/map have it";
const SIMULATOR: &str = "`konkordia simulate` sends images for tests";
const MASK: &str = "masks are drawn on the pages of the service, or sent to its /api/v1/shapes";
const STREAMS: &str = "[[stream]] in the configuration of the service has its consumers";
const RUGNUX: &str = "it is a part of the broker that Konkordia does not have";

fn routes(port: Arc<Port>) -> Router {
    let looking = Router::new()
        .route("/status", get(state::status))
        .route("/version", get(state::version))
        .route("/statistics", get(state::statistics))
        .route("/statistics/data_collection", get(state::data_collection))
        .route("/config/detector", get(state::detector_settings).put(not_offered))
        .route("/fpga_status", get(state::fpga_status))
        .route("/config/mask", get(images::mask))
        .route("/image_buffer/status", get(images::buffer))
        .route("/image_buffer/image.tiff", get(images::tiff))
        .route("/image_buffer/image.cbor", get(images::cbor))
        .route("/image_buffer/start.cbor", get(images::start))
        .route("/preview/plot", get(plots::plot))
        .route("/result/scan", get(plots::scan))
        .route("/xfel/pulse_id", get(plots::pulses))
        .route("/xfel/event_code", get(plots::event_codes))
        .route("/wait_till_done", post(commands::wait_till_done))
        .route("/wait_until_running", post(commands::wait_until_running))
        .route_layer(from_fn(guard::view));
    let operating = Router::new()
        .route("/initialize", post(commands::initialize))
        .route("/start", post(commands::start))
        .route("/trigger", post(commands::trigger))
        .route("/pedestal", post(commands::pedestal))
        .route("/cancel", post(commands::cancel))
        .route_layer(from_fn(guard::operate));
    looking.merge(operating).method_not_allowed_fallback(problem::wrong_method).fallback(not_offered).with_state(port)
}

/// The answer for paths of the broker that are not offered, and for all others.
async fn not_offered(method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let instead = match NOT_OFFERED.iter().find(|(known, _)| *known == path) {
        Some((_, instead)) => instead,
        None if path == "/config/detector" => CONFIGURATION,
        None => {
            return Problem::new("not_found", format!("there is no {path}"), "docs/jfjoch.md lists the paths").into_response();
        }
    };
    let text = format!("{method} {path} is not offered by Konkordia: {instead}");
    (StatusCode::NOT_IMPLEMENTED, error(&text, "Other")).into_response()
}

/// A problem as clients of the broker know errors: a text for a wrong request or a missing token, else the error
/// message.
fn in_its_words(problem: &ProblemBody) -> Response {
    let text = problem.hint.as_ref().map_or(problem.detail.clone(), |hint| format!("{}; {hint}", problem.detail));
    let status = match problem.code.as_str() {
        "bad_body" | "bad_request" | "bad_query" | "media_type" => StatusCode::BAD_REQUEST,
        // The broker has no status of its own for a command in the wrong state.
        "wrong_state" | "arm_failed" | "no_trigger" | "refused" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    if status.is_server_error() {
        let reason = if problem.code == "wrong_state" { "WrongDAQState" } else { "Other" };
        return (status, error(&text, reason)).into_response();
    }
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_the_status_that_clients_know() {
        for (code, status) in [
            ("bad_request", 400),
            ("bad_token", 401),
            ("not_allowed", 403),
            ("no_image", 404),
            ("wrong_state", 500),
            ("busy", 503),
        ] {
            let response = in_its_words(Problem::new(code, "what", "to do").body());
            assert_eq!(response.status().as_u16(), status, "{code}");
        }
    }

    #[test]
    fn what_is_not_offered_is_listed_once() {
        for (n, (path, instead)) in NOT_OFFERED.iter().enumerate() {
            assert!(NOT_OFFERED[..n].iter().all(|(other, _)| other != path) && !instead.is_empty(), "{path}");
        }
    }
}
