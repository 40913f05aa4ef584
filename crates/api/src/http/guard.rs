//! The checks between a connection and the handlers, in the order in which a request meets them: who sends it, the size
//! of its headers, the rate, the audit log, the host name that it was sent to, the web page that it comes from, the
//! role.

use super::audit::{is_dry_run, only_reads};
use super::connection_slots::Seat;
use super::problem::Problem;
use super::state::Shared;
use crate::security::{Identity, Role};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Paths for monitoring programs: they need no token, and any host name will do.
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

/// Refuses headers above the limit. The buffer that they were read into may be larger than the limit.
pub async fn headers(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    // 4 bytes for ": " and the end of the line, as they were sent.
    let fields: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let limit = shared.settings.limits.header_bytes;
    if fields + path <= limit {
        return next.run(request).await;
    }
    let detail = format!("the path and the headers have {} bytes; at most {limit} are allowed", fields + path);
    Problem::new("large_headers", detail, "send fewer or shorter headers; a browser may have too many cookies").into_response()
}

/// Refuses an address that sends too many requests. Requests with a valid token are counted apart, so that nobody
/// without a token can use up their limit.
pub async fn rate(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(address): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let is_known = request.extensions().get::<Identity>().is_some_and(|identity| identity.role().is_some());
    let rate = if is_known { &shared.rate } else { &shared.rate_of_unknown };
    let taken = rate.lock().unwrap_or_else(PoisonError::into_inner).take(address.ip(), Instant::now());
    match taken {
        Ok(()) => next.run(request).await,
        Err(seconds) => {
            let limit = shared.settings.limits.requests_per_s;
            let detail = format!("this address sent more than {limit} requests per second");
            let hint = "send fewer: GET /api/v1/events and /api/v1/wait report changes, so you need not ask again and again";
            Problem::new("too_many", detail, hint).retry_after(seconds.max(1)).into_response()
        }
    }
}

/// Finds out who sends a request. A connection whose sender has a role keeps its place.
pub async fn identify(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let identity = shared.identify(request.headers());
    identified(identity, request, next).await
}

/// Goes on with a request of `identity`.
pub async fn identified(identity: Identity, mut request: Request, next: Next) -> Response {
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    if let Some(seat) = &seat {
        seat.asks(identity.role().is_some());
        // A request with a body is complete only when the body has arrived, see `extract::Body`.
        seat.is_working.store(only_reads(request.method()), Ordering::Relaxed);
    }
    request.extensions_mut().insert(identity);
    let response = next.run(request).await;
    if let Some(seat) = &seat {
        seat.is_working.store(false, Ordering::Relaxed);
    }
    response
}

/// Refuses requests that were sent to a host name that is not ours, and changes that come from a foreign web page.
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
        let hint = "use the IP address or localhost; with tokens ([service] tokens) the service answers to any host name";
        return Err(Problem::new("bad_host", format!("the request was sent to the host {named:?}"), hint));
    }
    if only_reads(request.method()) { Ok(()) } else { from_our_page(shared, request.headers(), named) }
}

/// Refuses what comes from a web page that may not change anything here; `named` is the host that it was sent to.
///
/// # Errors
/// It comes from such a page.
pub fn from_our_page(shared: &Shared, headers: &HeaderMap, named: &str) -> Result<(), Problem> {
    let is_other_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site" || site == "same-site");
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
    let is_known = origin.is_some_and(|origin| shared.origins.may_change(origin, named));
    if (origin.is_none() && !is_other_site) || is_known {
        return Ok(());
    }
    let detail = format!("the request comes from the web page {}", origin.unwrap_or("of another site"));
    Err(Problem::new("foreign_page", detail, "list its origin in the configuration ([service] cors_origins), if it is yours"))
}

/// Lets a request pass if its sender has at least the role `needed`.
async fn authorize(needed: Role, request: Request, next: Next) -> Response {
    match may(request.extensions().get::<Identity>(), needed) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// [`authorize`] for requests that only read.
pub async fn view(request: Request, next: Next) -> Response {
    authorize(Role::View, request, next).await
}

/// [`authorize`] for commands. Who only asks what an arm would need, looks.
pub async fn operate(request: Request, next: Next) -> Response {
    let asks = is_dry_run(request.uri().path(), request.uri().query());
    authorize(if asks { Role::View } else { Role::Operate }, request, next).await
}

/// Checks that a sender has at least the role `needed`.
///
/// # Errors
/// The sender has no valid token, or a weaker role.
pub fn may(identity: Option<&Identity>, needed: Role) -> Result<(), Problem> {
    let hint = "`konkordia token create` makes tokens; HTTP requests send them in the header `Authorization: Bearer TOKEN`";
    match identity {
        Some(Identity::Known { role, .. }) if *role >= needed => Ok(()),
        Some(Identity::Known { name, role }) => {
            let detail = format!("the token '{name}' has the role '{role}'; this request needs the role '{needed}'");
            Err(Problem::new("not_allowed", detail, "use a token with the role that is needed"))
        }
        Some(Identity::BadToken) => Err(Problem::new("bad_token", "the service does not know this token", hint)),
        Some(Identity::Anonymous) | None => {
            Err(Problem::new("no_token", format!("this request needs a token with the role '{needed}'"), hint))
        }
    }
}

/// Turns error answers of other layers (a limit, a time-out) into problems too.
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
        other => Problem::bug(format!("an error without a description, status {}", other.as_u16())).into_response(),
    }
}
