//! What stands between a connection and the handlers, in the order in which a request meets it: who it is, its size, the rate, the audit log, the name it was
//! sent to, the page it comes from, the role.

use super::audit::only_reads;
use super::problem::Problem;
use super::rooms::Seat;
use super::state::Shared;
use crate::serve::security::{Identity, Role};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Paths that programs which watch the service ask for without name or token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Counts the answer, and adds the headers that all answers have.
pub async fn count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let class = usize::from(response.status().as_u16() / 100).clamp(1, 5) - 1;
    shared.answered[class].fetch_add(1, Ordering::Relaxed);
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Refuses headers that are larger than is said. The buffer that they were read into may be larger.
pub async fn headers(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    // As on the line: ": " and the end of the line.
    let fields: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let limit = shared.settings.limits.header_bytes;
    if fields + path <= limit {
        return next.run(request).await;
    }
    let detail = format!("the path and the headers have {} bytes, at most {limit} are taken", fields + path);
    Problem::new("large_headers", detail, "send fewer or shorter headers; a browser may have too many cookies").into_response()
}

/// Refuses an address that sends too many requests. Those with a token are counted apart, so that nobody without one uses up what they may send.
pub async fn rate(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(address): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let is_known = request.extensions().get::<Identity>().is_some_and(|identity| identity.role().is_some());
    let rate = if is_known { &shared.rate } else { &shared.rate_of_strangers };
    let taken = rate.lock().unwrap_or_else(PoisonError::into_inner).take(address.ip(), Instant::now());
    match taken {
        Ok(()) => next.run(request).await,
        Err(seconds) => {
            let limit = shared.settings.limits.requests_per_s;
            let detail = format!("this address sent more than {limit} requests per second");
            let hint = "send fewer: GET /api/v1/events and /api/v1/wait tell of changes without asking again and again";
            Problem::new("too_many", detail, hint).retry_after(seconds.max(1)).into_response()
        }
    }
}

/// Finds out who it is; the connection of somebody who is known keeps its place.
pub async fn identify(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let identity = shared.identify(request.headers());
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    if let Some(seat) = &seat {
        seat.asks(identity.role().is_some());
        // One with a body is whole when that has come, see `extract::Body`.
        seat.is_working.store(only_reads(request.method()), Ordering::Relaxed);
    }
    request.extensions_mut().insert(identity);
    let response = next.run(request).await;
    if let Some(seat) = &seat {
        seat.is_working.store(false, Ordering::Relaxed);
    }
    response
}

/// Refuses requests that were sent to a name of somebody else, and changes that a page of somebody else asks for.
pub async fn pages(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match check_pages(&shared, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check_pages(shared: &Shared, request: &Request) -> Result<(), Problem> {
    if OPEN.contains(&request.uri().path()) {
        return Ok(());
    }
    let text = |name| request.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let named = request.uri().authority().map(|authority| authority.as_str()).or(text(header::HOST)).unwrap_or_default();
    if !shared.origins.is_ours(named) {
        let hint = "use an address or localhost; with tokens ([service] tokens) any name will do";
        return Err(Problem::new("bad_host", format!("the request was sent to {named:?}"), hint));
    }
    if only_reads(request.method()) {
        return Ok(());
    }
    let is_other_site = request.headers().get("sec-fetch-site").is_some_and(|site| site == "cross-site" || site == "same-site");
    let origin = text(header::ORIGIN);
    let is_known = origin.is_some_and(|origin| shared.origins.may_change(origin, named));
    if (origin.is_some() || is_other_site) && !is_known {
        let detail = format!("the request comes from the web page {}", origin.unwrap_or("of another site"));
        return Err(Problem::new(
            "foreign_page",
            detail,
            "list its origin in the configuration ([service] cors_origins), if it is yours",
        ));
    }
    Ok(())
}

/// Lets a request pass that may do as much as `needed`.
async fn authorize(needed: Role, request: Request, next: Next) -> Response {
    match may(request.extensions().get::<Identity>(), needed) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// [`authorize`] for those who look.
pub async fn view(request: Request, next: Next) -> Response {
    authorize(Role::View, request, next).await
}

/// [`authorize`] for those who command.
pub async fn operate(request: Request, next: Next) -> Response {
    authorize(Role::Operate, request, next).await
}

/// Whether somebody may do as much as `needed`.
///
/// # Errors
/// Why not.
pub fn may(identity: Option<&Identity>, needed: Role) -> Result<(), Problem> {
    let hint = "send the header `Authorization: Bearer TOKEN`; `konkordia token create` makes tokens";
    match identity {
        Some(Identity::Known { role, .. }) if *role >= needed => Ok(()),
        Some(Identity::Known { name, role }) => {
            let detail = format!("the token of '{name}' is for '{role}', this needs '{needed}'");
            Err(Problem::new("not_allowed", detail, "use a token with that role"))
        }
        Some(Identity::BadToken) => Err(Problem::new("bad_token", "the token is none of this service", hint)),
        Some(Identity::Anonymous) | None => Err(Problem::new("no_token", format!("this needs a token for '{needed}'"), hint)),
    }
}

/// Answers that layers of others made (a limit, a time that is over) become problems too.
pub async fn only_problems(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let is_ours = response.extensions().get::<super::problem::ProblemCode>().is_some();
    if is_ours || !(response.status().is_client_error() || response.status().is_server_error()) {
        return response;
    }
    match response.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new("too_large", "the body is larger than this service takes", "send less").into_response()
        }
        StatusCode::REQUEST_TIMEOUT => Problem::new("slow_body", "the request took too long", "send it again").into_response(),
        StatusCode::SERVICE_UNAVAILABLE => Problem::new("busy", "too much to do", "try again").retry_after(1).into_response(),
        other => Problem::bug(format!("an answer without words, status {}", other.as_u16())).into_response(),
    }
}
