//! Errors as RFC 9457 problems: what, why, what to do, in JSON.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::{Refusal, RefusalCode, StateWord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of problems.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What was wrong with a request, or why it could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem, example = json!({
    "type": "urn:konkordia:problem:wrong_state", "title": "Wrong state for this command", "status": 409, "code": "wrong_state",
    "detail": "cannot arm 'eiger' while it is receiving: a run is in progress",
    "hint": "wait for its end, or stop or cancel it first", "state": "running"
}))]
pub struct ProblemBody {
    /// `urn:konkordia:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for all problems with this code.
    pub title: String,
    /// Status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What happened here, and why.
    pub detail: String,
    /// Code for programs; docs/api.md lists all codes.
    pub code: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// State of the detector, if the problem is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateWord>,
}

/// A problem on its way into a response.
#[derive(Clone, Debug)]
pub struct Problem {
    body: Box<ProblemBody>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

/// The code of a problem, left in the extensions of the response for the audit log.
#[derive(Clone, Debug)]
pub struct ProblemCode(pub String);

/// Code, status and title of every problem; docs/api.md has the same table.
pub const CODES: [(&str, StatusCode, &str); 36] = [
    ("bad_query", StatusCode::BAD_REQUEST, "Query parameters are wrong"),
    ("bad_path", StatusCode::BAD_REQUEST, "The path is wrong"),
    ("bad_message", StatusCode::BAD_REQUEST, "The message is wrong"),
    ("no_websocket", StatusCode::BAD_REQUEST, "This path is a WebSocket"),
    ("bad_host", StatusCode::MISDIRECTED_REQUEST, "Unknown host name"),
    ("which_detector", StatusCode::BAD_REQUEST, "No detector was named"),
    ("no_token", StatusCode::UNAUTHORIZED, "A token is needed"),
    ("bad_token", StatusCode::UNAUTHORIZED, "The token is not known"),
    ("not_allowed", StatusCode::FORBIDDEN, "This token may not do that"),
    ("foreign_page", StatusCode::FORBIDDEN, "Commands from this web page are refused"),
    ("not_found", StatusCode::NOT_FOUND, "There is no such path"),
    ("unknown_detector", StatusCode::NOT_FOUND, "There is no such detector"),
    ("no_image", StatusCode::NOT_FOUND, "There is no such image"),
    ("no_result", StatusCode::NOT_FOUND, "There is no such result"),
    ("no_file", StatusCode::NOT_FOUND, "There is no such file"),
    ("no_channel", StatusCode::NOT_FOUND, "There is no such channel"),
    ("no_calibration", StatusCode::NOT_FOUND, "There is no such calibration"),
    ("method", StatusCode::METHOD_NOT_ALLOWED, "This path does not allow this method"),
    ("slow_body", StatusCode::REQUEST_TIMEOUT, "The body took too long"),
    ("wrong_state", StatusCode::CONFLICT, "Wrong state for this command"),
    ("arm_failed", StatusCode::CONFLICT, "Arming failed"),
    ("no_trigger", StatusCode::CONFLICT, "No program for triggers is configured"),
    ("refused", StatusCode::CONFLICT, "Refused"),
    ("stale_shapes", StatusCode::CONFLICT, "Somebody else has changed the shapes"),
    ("unfinished_file", StatusCode::CONFLICT, "The file is still being written"),
    ("too_large", StatusCode::PAYLOAD_TOO_LARGE, "Too large"),
    ("media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "The Content-Type is not application/json"),
    ("bad_body", StatusCode::UNPROCESSABLE_ENTITY, "The body is wrong"),
    ("bad_request", StatusCode::UNPROCESSABLE_ENTITY, "The request cannot be carried out"),
    ("bad_image", StatusCode::UNPROCESSABLE_ENTITY, "The image cannot be converted to this format"),
    ("bad_file", StatusCode::UNPROCESSABLE_ENTITY, "The file cannot be read"),
    ("large_headers", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large"),
    ("too_many", StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
    ("bug", StatusCode::INTERNAL_SERVER_ERROR, "A bug in konkordia"),
    ("busy", StatusCode::SERVICE_UNAVAILABLE, "Busy"),
    ("not_ready", StatusCode::SERVICE_UNAVAILABLE, "Not ready for work"),
];

impl Problem {
    /// A problem with one of the codes above; an unknown code gets the status and title of `refused`.
    pub fn new(code: &str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        let known = CODES.iter().find(|(known, ..)| *known == code);
        let (_, status, title) =
            known.unwrap_or_else(|| CODES.iter().find(|(known, ..)| *known == "refused").expect("it is in the table"));
        let hint = hint.into();
        let body = ProblemBody {
            kind: format!("urn:konkordia:problem:{code}"),
            title: (*title).into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into(),
            hint: (!hint.is_empty()).then_some(hint),
            state: None,
        };
        Self { body: Box::new(body), headers: Vec::new() }
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.with(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// A mistake in konkordia itself.
    pub fn bug(detail: impl Into<String>) -> Self {
        Self::new("bug", detail, "please report it together with the request; the log of the service says more")
    }

    /// Pixels of an image that cannot be unpacked.
    pub fn bad_pixels(why: String) -> Self {
        Self::new("bad_image", format!("the pixels cannot be unpacked: {why}"), "ask for format=raw to look at the bytes")
    }

    /// Its body.
    pub fn body(&self) -> &ProblemBody {
        &self.body
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = if refusal.why.is_empty() { refusal.what } else { format!("{}: {}", refusal.what, refusal.why) };
        let mut problem = Self::new(refusal.code.name(), detail, refusal.fix);
        problem.body.state = refusal.state.map(StateWord::from);
        if refusal.code == RefusalCode::Busy { problem.retry_after(1) } else { problem }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let code = ProblemCode(self.body.code.clone());
        let mut response = (status, Json(*self.body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"konkordia\""));
        }
        response.extensions_mut().insert(code);
        response
    }
}

/// The answer for unknown paths.
pub async fn not_found(uri: axum::http::Uri) -> Problem {
    Problem::new("not_found", format!("there is no {}", uri.path()), "GET /api/v1/openapi.json lists all paths")
}

/// The answer for methods that a path does not have.
pub async fn wrong_method(method: axum::http::Method, uri: axum::http::Uri) -> Problem {
    let detail = format!("{method} is not allowed for {}", uri.path());
    Problem::new("method", detail, "the header Allow lists the allowed methods; GET /api/v1/openapi.json lists all paths")
}

/// The answer for a handler that panicked. It says nothing about the panic.
pub fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    Problem::bug("the service made a mistake with this request and dropped it").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_acquire::handle::DetectorState;

    #[test]
    fn refusals_become_problems_with_their_status() {
        let status_of = |code| match code {
            RefusalCode::WhichDetector => 400,
            RefusalCode::UnknownDetector => 404,
            RefusalCode::WrongState | RefusalCode::ArmFailed | RefusalCode::NoTrigger | RefusalCode::Refused => 409,
            RefusalCode::BadRequest => 422,
            RefusalCode::Busy => 503,
        };
        for code in RefusalCode::ALL {
            let (what, why, fix) = ("cannot arm".into(), "the disk is full".into(), "free some space".into());
            let problem = Problem::from(Refusal { code, what, why, fix, state: Some(DetectorState::Draining) });
            let body = problem.body();
            assert_eq!((body.status, body.code.as_str()), (status_of(code), code.name()));
            assert_eq!(body.detail, "cannot arm: the disk is full");
            assert_eq!((body.hint.as_deref(), body.state), (Some("free some space"), Some(StateWord::Running)));
            let response = problem.into_response();
            assert_eq!(response.status().as_u16(), status_of(code));
            assert_eq!(response.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), code == RefusalCode::Busy);
        }
        assert_eq!(Problem::new("novel", "", "").body().status, 409, "an unknown code is one of refused");
    }

    #[test]
    fn codes_are_unique() {
        for (index, (code, ..)) in CODES.iter().enumerate() {
            assert!(CODES[..index].iter().all(|(other, ..)| other != code), "{code}");
        }
    }
}
