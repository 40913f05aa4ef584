//! The keys of the configurations: reading and setting them.

use super::keys::{self, Source};
use super::parameters;
use super::refuse::{check, no_path, sent, wrong};
use super::shared::{Place, Shared, Simplon};
use crate::http::audit::AuditBody;
use crate::http::machine::look;
use crate::http::problem::Problem;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use konkordia_acquire::handle::ArmRequest;
use serde_json::{Value, json};
use std::sync::Arc;

/// A key of a configuration, or the list of them.
pub async fn configured(State(simplon): Shared, Path((subsystem, version, name)): Place) -> Result<Json<Value>, Problem> {
    check(&subsystem, &version)?;
    if name == "keys" {
        return Ok(Json(json!(simplon.list(&subsystem))));
    }
    let unknown = || no_path(&format!("{subsystem}/api/{version}/config/{name}"));
    let key = keys::find(&subsystem, &name).ok_or_else(unknown)?;
    simplon.parameters().read(key, &*simplon.port.detector).map(|answer| Json(answer.into_json())).ok_or_else(unknown)
}

/// Sets a key. Answers with the keys that have changed.
pub async fn configure(
    State(simplon): Shared,
    Path((subsystem, version, name)): Place,
    body: Bytes,
) -> Result<(Extension<AuditBody>, Json<Value>), Problem> {
    check(&subsystem, &version)?;
    let unknown = || no_path(&format!("{subsystem}/api/{version}/config/{name}"));
    let key = keys::find(&subsystem, &name).ok_or_else(unknown)?;
    let value = sent(&body)?.ok_or_else(|| wrong(format!("{name}: there is no value"), "send {\"value\": ...}"))?;
    if matches!(key.source, Source::NamePattern) {
        check_name(&simplon, &value).await?;
    }
    let known = simplon.parameters().read(key, &*simplon.port.detector).ok_or_else(unknown)?;
    let changed = simplon.parameters().set(key, &value, &known)?;
    Ok((simplon.audit(json!({ key.name: value })), Json(json!(changed))))
}

/// Refuses a start of file names that could never be one.
///
/// # Errors
/// Why, in our words.
async fn check_name(simplon: &Arc<Simplon>, value: &Value) -> Result<(), Problem> {
    let Some(pattern) = value.as_str().filter(|pattern| !pattern.is_empty()) else { return Ok(()) };
    let detector = Arc::clone(&simplon.port.detector);
    let prefix = pattern.replace(parameters::ID, &(detector.status().run + 1).to_string());
    let request = ArmRequest { images: Some(1), prefix: Some(prefix), write: Some(true), ..ArmRequest::default() };
    let asked = look(&simplon.port.shared, move || detector.dry_run(&request)).await?;
    // With a name that can be used the file is known. Whether it is there already is a question for the arm.
    let refused = asked.problems.into_iter().find(|problem| problem.field == "prefix");
    match refused.filter(|_| asked.needs.file.is_none()) {
        Some(problem) => Err(wrong(format!("name_pattern: {}", problem.detail), problem.hint)),
        None => Ok(()),
    }
}
