//! The status keys, from the newest snapshot of the detector.

use super::data;
use super::keys::{self, Answer};
use super::refuse::{check, no_path};
use super::shared::{Place, Shared, Simplon};
use crate::http::machine::look;
use crate::http::problem::Problem;
use axum::Json;
use axum::extract::{Path, State};
use konkordia_acquire::handle::{DetectorState, DetectorStatus, time_now};
use serde_json::{Value, json};
use std::sync::Arc;

/// What `keys` lists, by subsystem. As in a real unit, `error` of detector and stream is there and not listed.
const LISTED: [(&str, &[&str]); 4] = [
    ("detector", &["state", "time"]),
    ("stream", &["dropped", "state"]),
    ("monitor", &["error", "state"]),
    ("filewriter", &["buffer_free", "error", "files", "state"]),
];
const DETECTOR_STATES: [&str; 4] = ["idle", "ready", "acquire", "error"];
const PART_STATES: [&str; 4] = ["disabled", "ready", "acquire", "error"];

/// A status key, or the list of them.
pub async fn status(State(simplon): Shared, Path((subsystem, version, name)): Place) -> Result<Json<Value>, Problem> {
    check(&subsystem, &version)?;
    if name == "keys" {
        let listed = LISTED.iter().find(|(part, _)| *part == subsystem).map_or(&[][..], |(_, all)| all);
        return Ok(Json(json!(listed)));
    }
    let unknown = || no_path(&format!("{subsystem}/api/{version}/status/{name}"));
    let status = simplon.port.detector.status();
    let found = match (subsystem.as_str(), name.as_str()) {
        ("detector", "state") => Answer::read_only("string", detector_state(&status)).of(&DETECTOR_STATES),
        ("detector", "time") => Answer::read_only("datetime", time_now()),
        ("detector" | "stream" | "monitor" | "filewriter", "error") => Answer::read_only("string[]", errors(&subsystem, &status)),
        ("stream", "state") => Answer::read_only("string", simplon.stream_state(&status)).of(&PART_STATES),
        ("stream", "dropped") => Answer::read_only("uint", simplon.images_not_streamed()),
        // The newest image replaces the oldest one: nothing overflows.
        ("monitor", "state") => Answer::read_only("string", "normal").of(&["normal"]),
        ("filewriter", "state") => Answer::read_only("string", simplon.files_state(&status)).of(&PART_STATES),
        ("filewriter", "files") => Answer::read_only("string[]", json!(data::names(&simplon).await?)),
        ("filewriter", "buffer_free") => simplon.free_space().await?,
        _ => return Err(unknown()),
    };
    Ok(Json(found.into_json()))
}

/// As clients know it. The last images are still being written in the state acquire, because no arm is possible yet.
fn detector_state(status: &DetectorStatus) -> &'static str {
    match status.state {
        DetectorState::Idle => "idle",
        DetectorState::Armed => "ready",
        DetectorState::Receiving | DetectorState::Draining => "acquire",
        DetectorState::Error => "error",
    }
}

fn errors(subsystem: &str, status: &DetectorStatus) -> Value {
    let is_of_detector = matches!(subsystem, "detector" | "filewriter") && status.state == DetectorState::Error;
    if !is_of_detector {
        return json!([]);
    }
    let hint = status.hint.as_ref().map(|hint| format!(". What to do: {hint}")).unwrap_or_default();
    json!([format!("{}{hint}", status.message)])
}

impl Simplon {
    fn stream_state(&self, status: &DetectorStatus) -> &'static str {
        let is_sent = !keys::dectris_streams(&self.port.detector.configuration()).is_empty();
        if is_sent { part_state(status) } else { "disabled" }
    }

    fn files_state(&self, status: &DetectorStatus) -> &'static str {
        let mode = self.parameters().word("filewriter", "mode", &*self.port.detector);
        if mode == "enabled" { part_state(status) } else { "disabled" }
    }

    /// Images that consumers of a DECTRIS stream did not get.
    fn images_not_streamed(&self) -> u64 {
        let configuration = self.port.detector.configuration();
        let names = keys::dectris_streams(&configuration);
        let all = self.port.detector.statistics().consumers;
        all.iter().filter(|consumer| names.contains(&consumer.name.as_str())).map(|consumer| consumer.skipped).sum()
    }

    async fn free_space(self: &Arc<Self>) -> Result<Answer, Problem> {
        let detector = Arc::clone(&self.port.detector);
        let free = look(&self.port.shared, move || detector.free_bytes()).await?;
        Ok(Answer { unit: "kB", ..Answer::read_only("uint", free.map_or(Value::Null, |bytes| json!(bytes / 1000))) })
    }
}

fn part_state(status: &DetectorStatus) -> &'static str {
    match status.state {
        DetectorState::Idle | DetectorState::Armed => "ready",
        DetectorState::Receiving | DetectorState::Draining => "acquire",
        DetectorState::Error => "error",
    }
}
