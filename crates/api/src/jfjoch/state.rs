//! States and statistics.

use crate::adapters::port::Port;
use crate::http::problem::Problem;
use axum::Json;
use axum::extract::State;
use konkordia_acquire::handle::{Detector, DetectorState, DetectorStatus};
use konkordia_core::results::analysis::BACKGROUND;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;

/// The state in the words of the broker. It has none for a detector that is not initialised, because ours always is.
pub fn word(status: &DetectorStatus) -> &'static str {
    let takes_pedestals = || status.operator.as_ref().is_some_and(|operator| operator.action == "pedestal");
    match status.state {
        DetectorState::Idle => "Idle",
        DetectorState::Error => "Error",
        _ if status.dark_frames.is_some() || takes_pedestals() => "Pedestal",
        // The broker measures from when it waits for the first trigger on.
        DetectorState::Armed | DetectorState::Receiving => "Measuring",
        DetectorState::Draining => "Busy",
    }
}

/// What people should know, and what to do.
pub fn message(status: &DetectorStatus) -> String {
    status.hint.as_ref().map_or(status.message.clone(), |hint| format!("{}; {hint}", status.message))
}

fn version_text() -> String {
    format!("konkordia {}", env!("CARGO_PKG_VERSION"))
}

fn status_of(status: &DetectorStatus) -> Value {
    let dark = status.dark_frames.as_ref().map(|stages| {
        let (frames, expected) = stages.iter().fold((0, 0), |(a, b), stage| (a + stage.frames, b + stage.expected));
        (frames as f64 / expected.max(1) as f64).min(1.0)
    });
    without_nulls(json!({
        "state": word(status), "progress": dark.or(status.progress.filter(|_| status.state.has_run())), "message": message(status),
        "message_severity": status.severity, "broker_version": version_text(),
    }))
}

/// Fields that are not known are left out.
pub fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, value| !value.is_null());
    }
    value
}

/// `/status`.
pub async fn status(State(port): State<Arc<Port>>) -> Json<Value> {
    Json(status_of(&port.detector.status()))
}

/// `/version`.
pub async fn version() -> String {
    version_text()
}

/// `/fpga_status`: no card with an FPGA takes part.
pub async fn fpga_status() -> Json<Value> {
    Json(json!([]))
}

/// `/config/detector`: what the configuration says of the times.
pub async fn detector_settings(State(port): State<Arc<Port>>) -> Result<Json<Value>, Problem> {
    let found = port.detector.images().get(None, Instant::now());
    let facts = found.as_ref().map(|found| found.facts());
    let us = |time_s: Option<f64>| time_s.map(|time_s| (time_s * 1e6).round() as u64);
    let Some(frame_time_us) = facts.and_then(|facts| us(facts.frame_time_s)) else {
        let detail = "the time from image to image is not known";
        let hint =
            "it is known with the first image if image_time_us of /start or detector.frame_time_us of the configuration says it";
        return Err(Problem::new("no_result", detail, hint));
    };
    let count_time_us = facts.and_then(|facts| us(facts.count_time_s));
    Ok(Json(without_nulls(json!({ "frame_time_us": frame_time_us, "count_time_us": count_time_us }))))
}

/// `/statistics`: the parts that there are.
pub async fn statistics(State(port): State<Arc<Port>>) -> Json<Value> {
    let status = port.detector.status();
    Json(without_nulls(json!({
        "broker": status_of(&status), "buffer": super::images::buffer_of(&port), "measurement": measurement(&*port.detector, &status),
    })))
}

/// `/statistics/data_collection`: of the newest run.
pub async fn data_collection(State(port): State<Arc<Port>>) -> Result<Json<Value>, Problem> {
    let found = measurement(&*port.detector, &port.detector.status());
    found.map(Json).ok_or_else(|| Problem::new("no_result", "there was no run yet", "POST /start begins one"))
}

fn measurement(detector: &dyn Detector, status: &DetectorStatus) -> Option<Value> {
    if status.run == 0 {
        return None;
    }
    let file = detector.files().into_iter().rev().find(|file| file.run == status.run);
    let ratio = file.as_ref().filter(|file| file.bytes > 0).map(|file| file.unpacked_bytes as f64 / file.bytes as f64);
    let prefix = status.file.as_ref().map(|file| file.strip_suffix("_master.h5").unwrap_or(file));
    let mut all = json!({
        "file_prefix": prefix, "run_number": status.run, "images_expected": status.images_expected,
        "images_collected": status.images_committed.saturating_sub(status.images_lost), "images_written": status.images_written,
        "compression_ratio": ratio.filter(|ratio| *ratio > 0.0),
        "cancelled": status.ended.as_ref().map(|ended| ended.starts_with("stopped") || ended.starts_with("cancelled")),
        "indexing_rate": indexing_rate(detector), "bkg_estimate": background(detector),
    });
    if let (Some(fields), Some(size)) = (all.as_object_mut(), newest_image(detector)) {
        fields.extend(size);
    }
    Some(without_nulls(all))
}

fn indexing_rate(detector: &dyn Detector) -> Option<f64> {
    let hits = detector.hit_rate();
    let (analysed, indexed) = (hits.analysed.iter().sum::<u64>(), hits.indexed.iter().sum::<u64>());
    (analysed > 0 && !hits.indexed.is_empty()).then(|| indexed as f64 / analysed as f64)
}

/// The mean of the background of all images.
fn background(detector: &dyn Detector) -> Option<f64> {
    let plot = detector.results(Some(BACKGROUND.name))?;
    let weighted = plot.mean.iter().zip(plot.images.iter().zip(&plot.without));
    let (sum, images) = weighted.fold((0.0, 0), |(sum, all), (mean, (images, without))| {
        let counted = images.saturating_sub(*without);
        mean.map_or((sum, all), |mean| (sum + mean * counted as f64, all + counted))
    });
    (images > 0).then(|| sum / images as f64)
}

fn newest_image(detector: &dyn Detector) -> Option<Map<String, Value>> {
    let found = detector.images().get(None, Instant::now())?;
    let array = &found.planes.image().channels.first()?.array;
    let [.., rows, columns] = array.shape.dimensions() else { return None };
    let mut size = Map::from_iter([("detector_width".into(), json!(columns)), ("detector_height".into(), json!(rows))]);
    let bytes = array.element.bits() / 8;
    // The broker knows pixels of 2 and 4 bytes only.
    if [2, 4].contains(&bytes) {
        size.insert("detector_pixel_depth".into(), json!(bytes));
    }
    Some(size)
}
