//! Reads requests strictly: unknown parameters and fields, wrong types and unexpected media types are refused, and the
//! answer says where the mistake is.

use super::connection_slots::Seat;
use super::problem::Problem;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query as AxumQuery, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use utoipa::{IntoParams, ToSchema};

/// Longest query string, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// Query parameters.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if parts.uri.query().is_some_and(|query| query.len() > VALUE_BYTES_MAX) {
            return Err(Problem::new("bad_query", format!("the query has more than {VALUE_BYTES_MAX} bytes"), ""));
        }
        let query = AxumQuery::<T>::try_from_uri(&parts.uri);
        query.map(|AxumQuery(query)| Self(query)).map_err(|rejection| {
            let text = rejection.body_text();
            let why = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            Problem::new("bad_query", why, "GET /api/v1/openapi.json lists the parameters of each path")
        })
    }
}

/// For paths without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

/// Which detector.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DetectorQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    pub detector: Option<String>,
}

/// A text in the path.
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::new("bad_path", rejection.body_text(), ""))
    }
}

/// For commands that take no arguments: no body, or an empty object.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A JSON body; without a body, the default.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let seat = request.extensions().get::<Arc<Seat>>().cloned();
        let type_problem = check_type(request.headers());
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| unreadable(&rejection))?;
        if let Some(seat) = seat {
            seat.is_working.store(true, Ordering::Relaxed);
        }
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        type_problem?;
        let whole = "the body must be one JSON object";
        // Lists would be taken too, as the members in their order.
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return Err(Problem::new("bad_body", "the body is a list", whole));
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            let hint = if error.is_data() { "the schema is in GET /api/v1/openapi.json" } else { whole };
            Problem::new("bad_body", error.to_string(), hint)
        })
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let found = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let kind = found.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail =
        found.map_or_else(|| "there is a body, but no Content-Type".into(), |kind| format!("the Content-Type is {kind:?}"));
    Err(Problem::new("media_type", detail, "send Content-Type: application/json"))
}

fn unreadable(rejection: &BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(
            "too_large",
            "the body is larger than this service takes",
            "send less; docs/security.md names the limit",
        );
    }
    Problem::new("slow_body", "the body did not arrive completely in time", "send it again")
}
