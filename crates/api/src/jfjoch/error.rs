//! The error message of the broker.

use axum::Json;
use serde_json::{Value, json};

/// The error message of the broker.
pub fn error(text: &str, reason: &str) -> Json<Value> {
    Json(json!({ "msg": text, "reason": reason }))
}
