//! The port of an adapter that is part of the service. Its clients know no tokens of ours, so the port itself has a
//! role; a request with a token has the role of its token. Requests meet the same checks as those of the main server.

use super::aside::{self, AsideServer, Facts};
use super::identity_name;
use crate::http::audit::{self, OnlyReads, only_reads};
use crate::http::problem::{self, Problem, ProblemBody, ProblemCode};
use crate::http::state::Shared;
use crate::http::{Server, guard, openapi};
use crate::security::{Identity, Role};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::Detector;
use konkordia_config::settings::AdapterServer;
use konkordia_core::failure::Failure;
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyDeadlineLayer;

/// Longest problem; the texts in them are short.
const PROBLEM_BYTES_MAX: usize = 64 << 10;

/// An adapter that is part of the service.
pub struct Form {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Makes its paths. Handlers find who asks as `Extension<Identity>` and check it with `guard::may`.
    pub routes: fn(Arc<Port>) -> Router,
    /// Paths of requests that change nothing, although their method could. They are not recorded as commands.
    pub reads: &'static [&'static str],
    /// Says in its own form what was wrong with a request. Handlers and checks answer with a [`Problem`].
    pub problem: fn(&ProblemBody) -> Response,
}

/// What the handlers of an adapter share.
pub struct Port {
    /// That of the main server: fleet, permits, tokens.
    pub shared: Arc<Shared>,
    /// The detector that the adapter shows.
    pub detector: Arc<dyn Detector>,
    /// Images that the preview buffer of a detector holds.
    pub ring_images: usize,
    /// Name of the adapter.
    pub name: &'static str,
    /// What requests without a token may do.
    pub role: Role,
}

impl Port {
    /// Who sends a request with these headers.
    pub fn identify(&self, headers: &HeaderMap) -> Identity {
        if self.shared.tokens.is_some() && headers.contains_key(header::AUTHORIZATION) {
            return self.shared.identify(headers);
        }
        Identity::Known { name: identity_name(self.name), role: self.role }
    }
}

/// Opens the port of an adapter.
///
/// # Errors
/// The address is in use or not of this machine, or the machine has no threads left.
pub fn open(
    server: &Server,
    detector: Arc<dyn Detector>,
    form: &'static Form,
    settings: &AdapterServer,
    ring_images: usize,
) -> Result<AsideServer, Failure> {
    let (name, shared) = (form.name, Arc::clone(server.shared()));
    let port = Arc::new(Port { shared, detector, ring_images, name, role: settings.role.into() });
    let limits = port.shared.settings.limits;
    let facts = Facts { name, listen: settings.listen, detector: port.detector.name(), role: port.role, limits };
    let opened = aside::spawn(&facts, Arc::clone(&port.shared.adapters), guarded(form, &port))?;
    if port.role > Role::View && !opened.address().ip().is_loopback() {
        port.shared.warn(format!(
            "whoever reaches {} may start and stop runs of '{}', because clients of {name} send no tokens; let only the machines that need it reach this port, or set adapters.{name}.role = \"view\"",
            opened.address(),
            port.detector.name()
        ));
    }
    Ok(opened)
}

/// The layer that is named last meets a request first.
fn guarded(form: &'static Form, port: &Arc<Port>) -> Router {
    let (shared, by) = (&port.shared, Arc::clone(port));
    (form.routes)(Arc::clone(port))
        .layer(DefaultBodyLimit::max(shared.settings.limits.body_bytes))
        .layer(RequestBodyDeadlineLayer::new(openapi::REQUEST_BODY))
        .layer(from_fn(no_web_pages))
        .layer(from_fn_with_state(Arc::clone(shared), audit::record))
        .layer(from_fn_with_state(Arc::clone(shared), guard::rate))
        .layer(from_fn_with_state(Arc::clone(shared), guard::headers))
        .layer(from_fn(move |request, next| identify(form, Arc::clone(&by), request, next)))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(from_fn_with_state(Arc::clone(shared), guard::count))
        .layer(from_fn(move |request, next| in_its_form(form, request, next)))
}

/// Turns a problem into the form of the adapter.
async fn in_its_form(form: &'static Form, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.extensions().get::<ProblemCode>().is_none() {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let Ok(problem) = serde_json::from_slice(&body) else { return Response::from_parts(parts, body.into()) };
    let mut response = (form.problem)(&problem);
    for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE] {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

async fn identify(form: &'static Form, port: Arc<Port>, mut request: Request, next: Next) -> Response {
    if form.reads.contains(&request.uri().path()) {
        request.extensions_mut().insert(OnlyReads);
    }
    let identity = port.identify(request.headers());
    guard::identified(identity, request, next).await
}

/// Refuses changes that come from a web page: no page of ours uses such a port, and a foreign one could send what needs
/// no token.
async fn no_web_pages(request: Request, next: Next) -> Response {
    if only_reads(request.method()) || !request.headers().contains_key(header::ORIGIN) {
        return next.run(request).await;
    }
    Problem::new("foreign_page", "the request comes from a web page", "send commands from a program").into_response()
}
