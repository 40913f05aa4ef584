//! What is going on: states, statistics, configuration, files, version.

use super::extract::{DetectorQuery, NoQuery, Query};
use super::problem::Problem;
use super::state::{Shared, WAIT_S_MAX};
use crate::adapters::AdapterStatus;
use axum::Json;
use axum::extract::State;
use konkordia_acquire::handle::{DetectorState, DetectorStatistics, DetectorStatus, FileEntry, HitRate, ResultPlot};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// State of one detector.
#[utoipa::path(get, path = "/api/v1/status", tag = "state", params(DetectorQuery), responses((status = 200, description = "Its newest state", body = DetectorStatus, example = json!({
    "detector": "eiger", "kind": "stream", "state": "running", "draining": false, "message": "30512 of 50000 images", "severity": "info", "hint": null,
    "run": 3, "progress": 0.61, "images_expected": 50000, "images_committed": 30512, "images_written": 30498, "images_unwritten": 0, "images_durable": 28000, "raw_frames_durable": null, "spool": null, "images_lost": 0, "images_partial": 0,
    "images_not_taken": 0, "images_not_received": 0,
    "file": "/data/run03_master.h5", "ended": null, "state_age_s": 15.2, "listens": ["tcp://10.0.0.2:31001"]
}))))]
pub async fn status(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<DetectorQuery>,
) -> Result<Json<DetectorStatus>, Problem> {
    Ok(Json((*shared.detector(query.detector.as_deref())?.status()).clone()))
}

/// States of all detectors.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Detectors {
    /// In the order of the configuration.
    pub detectors: Vec<DetectorStatus>,
}

/// All detectors with their states.
#[utoipa::path(get, path = "/api/v1/detectors", tag = "state", responses((status = 200, description = "In the order of the configuration", body = Detectors)))]
pub async fn detectors(State(shared): State<Arc<Shared>>, Query(NoQuery {}): Query<NoQuery>) -> Json<Detectors> {
    Json(Detectors { detectors: shared.fleet.detectors.iter().map(|detector| (*detector.status()).clone()).collect() })
}

/// The configuration in force, without secrets.
#[utoipa::path(get, path = "/api/v1/configuration", tag = "state", params(DetectorQuery),
    responses((status = 200, description = "docs/configuration.md explains each key", body = Object, example = json!({"detector": {"model": "stream"}, "output": {"prefix": "run"}}))))]
pub async fn configuration(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<DetectorQuery>,
) -> Result<Json<Value>, Problem> {
    Ok(Json(shared.detector(query.detector.as_deref())?.configuration()))
}

/// Current rates and counters.
#[utoipa::path(get, path = "/api/v1/statistics", tag = "state", params(DetectorQuery), responses((status = 200, description = "Maps from names to numbers; docs/api.md lists the names", body = DetectorStatistics, example = json!({
    "detector": "eiger", "ledger": {"received": 30514, "placed": 30512, "images_complete": 30512, "images_lost": 0}, "rates": {"received_messages_hz": 2000.0},
    "queues": {"in_flight": 0.07}, "latency": {"written_p99_us": 5100.0},
    "consumers": [{"name": "preview", "address": "tcp://10.0.0.2:9999", "service": "latest", "connected": true, "delivered": 812, "skipped": 29700, "lag_images": 0}],
    "totals": {"images_complete": 130512}
}))))]
pub async fn statistics(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<DetectorQuery>,
) -> Result<Json<DetectorStatistics>, Problem> {
    Ok(Json(shared.detector(query.detector.as_deref())?.statistics()))
}

/// Hits of the newest run over time and over the raster.
#[utoipa::path(get, path = "/api/v1/hit_rate", tag = "state", params(DetectorQuery), responses((status = 200, description = "Counts of analysed images and hits, for plots", body = HitRate, example = json!({
    "detector": "jungfrau", "series": 3, "bin_s": 1.0, "analysed": [500, 498, 500], "hits": [21, 35, 30],
    "raster": {"row": [0, 0], "column": [0, 1], "analysed": [750, 748], "hits": [80, 6], "not_counted": 0}
}))))]
pub async fn hit_rate(State(shared): State<Arc<Shared>>, Query(query): Query<DetectorQuery>) -> Result<Json<HitRate>, Problem> {
    Ok(Json(shared.detector(query.detector.as_deref())?.hit_rate()))
}

/// Which result.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ResultsQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Name of the result; without one, the answer has only the names.
    #[param(example = "spots")]
    result: Option<String>,
}

/// A result of all images of the newest run against their number, for plots.
#[utoipa::path(get, path = "/api/v1/results", tag = "state", params(ResultsQuery), responses((status = 200, description = "Mean, lowest and highest number of each bin", body = ResultPlot, example = json!({
    "detector": "jungfrau", "series": 3, "results": [{"name": "spots", "unit": "", "meaning": "Bragg spots that were found"}], "result": "spots", "bin_images": 2,
    "first_image": [0, 2], "images": [2, 2], "without": [0, 1], "mean": [41.5, 12.0], "lowest": [40.0, 12.0], "highest": [43.0, 12.0], "time_s": [0.0, 0.002]
}))))]
pub async fn results(State(shared): State<Arc<Shared>>, Query(query): Query<ResultsQuery>) -> Result<Json<ResultPlot>, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    let plot = detector.results(query.result.as_deref());
    let unknown = || {
        let name = query.result.as_deref().unwrap_or_default();
        Problem::new(
            "no_result",
            format!("images of this run have no result {name:?}"),
            "without `result` the answer has the names",
        )
    };
    plot.map(Json).ok_or_else(unknown)
}

/// Files of one detector.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// Newest last; at most the last 1000 runs.
    pub files: Vec<FileEntry>,
}

/// Files of the last runs.
#[utoipa::path(get, path = "/api/v1/files", tag = "data", params(DetectorQuery), responses((status = 200, description = "Newest last", body = Files, example = json!({"files": [{
    "detector": "eiger", "run": 3, "master": "/data/run03_master.h5", "state": "writing", "images": 30498, "bytes": 61_000_000_000u64, "ended": null
}]}))))]
pub async fn files(State(shared): State<Arc<Shared>>, Query(query): Query<DetectorQuery>) -> Result<Json<Files>, Problem> {
    Ok(Json(Files { files: shared.detector(query.detector.as_deref())?.files() }))
}

/// Versions of the program and of the interface.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// `konkordia`.
    #[schema(example = "konkordia")]
    pub name: String,
    /// Version of the program.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// Version of this interface, as in its paths.
    #[schema(example = "v1")]
    pub api: String,
    /// Operating system.
    #[schema(example = "linux")]
    pub os: String,
    /// Architecture.
    #[schema(example = "x86_64")]
    pub arch: String,
    /// Instruction set of the kernels.
    #[schema(example = "avx2")]
    pub instruction_set: String,
    /// Seconds since the service began.
    pub uptime_s: f64,
}

/// Versions of the program and of the interface, and the time since the start.
#[utoipa::path(get, path = "/api/v1/version", tag = "state", responses((status = 200, description = "Of the program and of the interface", body = Version)))]
pub async fn version(State(shared): State<Arc<Shared>>, Query(NoQuery {}): Query<NoQuery>) -> Json<Version> {
    Json(Version {
        name: "konkordia".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        api: "v1".into(),
        os: std::env::consts::OS.into(),
        arch: std::env::consts::ARCH.into(),
        instruction_set: konkordia_kernels::isa::Isa::detect().name().into(),
        uptime_s: shared.began.elapsed().as_secs_f64(),
    })
}

/// What gives other systems access.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AdapterList {
    /// In the order of the configuration.
    pub adapters: Vec<AdapterStatus>,
}

/// The adapters (`[adapters.NAME]`) with their states: since when they run, how often they were restarted, and why.
#[utoipa::path(get, path = "/api/v1/adapters", tag = "state", responses((status = 200, description = "Servers first, then programs", body = AdapterList, example = json!({"adapters": [{
    "name": "epics", "kind": "program", "detector": "eiger", "role": "operate", "address": null, "pid": 4711, "state": "running",
    "since": "2026-11-28T05:44:19+01:00", "restarts": 0, "last_failure": null
}]}))))]
pub async fn adapters(State(shared): State<Arc<Shared>>, Query(NoQuery {}): Query<NoQuery>) -> Json<AdapterList> {
    Json(AdapterList { adapters: shared.adapters.status() })
}

/// How long to wait, and for which detector.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Longest time to wait, in seconds; at most 600.
    #[param(minimum = 0, maximum = 600, default = 60, example = 10)]
    timeout_s: Option<f64>,
}

/// The result of waiting.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Waited {
    /// True: the detector is neither armed nor running, or another run has begun. False: the time was over first, or
    /// the service is stopping.
    pub done: bool,
    /// Its state now.
    pub status: DetectorStatus,
}

/// Waits until a detector is neither armed nor running.
#[utoipa::path(get, path = "/api/v1/wait", tag = "commands", params(WaitQuery), responses((status = 200, description = "Its state, and whether the run has ended", body = Waited)))]
pub async fn wait(State(shared): State<Arc<Shared>>, Query(query): Query<WaitQuery>) -> Result<Json<Waited>, Problem> {
    let longest = seconds("timeout_s", query.timeout_s.unwrap_or(60.0))?;
    let detector = shared.detector(query.detector.as_deref())?;
    let run = detector.status().run;
    let (status, done) = shared.wait_idle(&*detector, run, longest).await;
    Ok(Json(Waited { done, status: (*status).clone() }))
}

/// Checks a time to wait from a request.
///
/// # Errors
/// If it is not from 0 to [`WAIT_S_MAX`].
pub fn seconds(parameter: &str, value: f64) -> Result<Duration, Problem> {
    if (0.0..=WAIT_S_MAX).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    let detail = format!("{parameter}: {value} is not between 0 and {WAIT_S_MAX}");
    Err(Problem::new("bad_query", detail, "to wait longer, ask GET /api/v1/wait again"))
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "monitoring", responses((status = 200, description = "The process is alive", body = Object, example = json!({"status": "ok"}))))]
pub async fn healthz(Query(NoQuery {}): Query<NoQuery>) -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// All detectors can work: none is in its error state, and the service is not ending.
#[utoipa::path(get, path = "/readyz", tag = "monitoring", responses((status = 200, description = "Ready", body = Object, example = json!({"status": "ready", "detectors": 2}))))]
pub async fn readyz(State(shared): State<Arc<Shared>>, Query(NoQuery {}): Query<NoQuery>) -> Result<Json<Value>, Problem> {
    if shared.is_stopping() {
        return Err(Problem::new("not_ready", "the service is ending", ""));
    }
    let all = shared.fleet.detectors.len();
    let failed = shared.fleet.detectors.iter().filter(|d| d.status().state == DetectorState::Error).count();
    if failed > 0 {
        let detail = format!("{failed} of {all} detectors cannot work");
        return Err(Problem::new("not_ready", detail, "GET /api/v1/detectors says which and why"));
    }
    Ok(Json(json!({"status": "ready", "detectors": all})))
}
