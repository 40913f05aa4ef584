//! What requests of this interface may be, and how they are refused.

use crate::http::problem::Problem;
use serde_json::Value;

/// The versions that clients ask for. Their answers are the same.
pub const VERSIONS: [&str; 2] = ["1.6.0", "1.8.0"];
/// The parts of a DECTRIS unit.
const SUBSYSTEMS: [&str; 5] = ["detector", "stream", "monitor", "filewriter", "system"];

/// There is no such path.
pub fn no_path(path: &str) -> Problem {
    let shown: String = path.chars().take(200).collect();
    Problem::new("not_found", format!("unknown path: {:?}", shown.trim_start_matches('/')), "docs/simplon.md lists the keys")
}

/// What a client sent cannot be used.
pub fn wrong(detail: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem::new("bad_message", detail, hint)
}

/// Refuses subsystems and versions that are not there.
///
/// # Errors
/// There is none of this name.
pub fn check(subsystem: &str, version: &str) -> Result<(), Problem> {
    if !SUBSYSTEMS.contains(&subsystem) {
        return Err(no_path(&format!("{subsystem}/api")));
    }
    if VERSIONS.contains(&version) {
        return Ok(());
    }
    let detail = format!("unknown version {:?} of the API", version.chars().take(40).collect::<String>());
    Err(Problem::new("not_found", detail, format!("this server has the versions {}", VERSIONS.join(" and "))))
}

/// The value in a body; `None` without a body.
///
/// # Errors
/// The body is something else.
pub fn sent(body: &[u8]) -> Result<Option<Value>, Problem> {
    const FORM: &str = "send {\"value\": ...}";
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let parsed: Value = serde_json::from_slice(body).map_err(|error| wrong(format!("the body is not JSON: {error}"), FORM))?;
    match parsed {
        Value::Null => Ok(None),
        Value::Object(mut fields) if fields.len() == 1 && fields.contains_key("value") => Ok(fields.remove("value")),
        _ => Err(wrong("the body is not an object with the one field \"value\"", FORM)),
    }
}
