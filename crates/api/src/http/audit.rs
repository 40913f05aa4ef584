//! Records every request that could change something, whoever sent it and whatever the outcome.

use super::problem::{Problem, ProblemCode};
use super::state::Shared;
use crate::security::Identity;
use crate::security::audit::Record;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::Severity;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What a handler passes to the audit log, through the extensions of its response.
#[derive(Clone, Debug)]
pub struct AuditBody {
    /// Detector that was named.
    pub detector: Option<String>,
    /// What was asked for, without secrets.
    pub request: Value,
}

/// True for a request that only asks what an arm would need; what the handler reads from its query is then the same,
/// or an error.
pub fn is_dry_run(path: &str, query: Option<&str>) -> bool {
    path == "/api/v1/arm" && query.is_some_and(|query| query.split('&').any(|pair| pair == "dry_run=true"))
}

/// Mark of a request that changes nothing although its method could, left in its extensions.
#[derive(Clone, Copy, Debug)]
pub struct OnlyReads;

/// True for methods that change nothing.
pub fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Carries out a request that could change something, even if its sender disconnects meanwhile, and records it.
pub async fn record(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(address): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let is_marked = request.extensions().get::<OnlyReads>().is_some();
    if is_marked || only_reads(request.method()) || is_dry_run(request.uri().path(), request.uri().query()) {
        return next.run(request).await;
    }
    let (method, path) = (request.method().to_string(), request.uri().path().to_string());
    let identity = request.extensions().get::<Identity>().cloned().unwrap_or(Identity::Anonymous);
    let work = tokio::spawn(async move {
        let response = next.run(request).await;
        let body = response.extensions().get::<AuditBody>().cloned();
        let (detector, request) = body.map_or((None, Value::Null), |body| (body.detector, body.request));
        let record = Record {
            time: Record::now(),
            who: identity.name().into(),
            role: identity.role().map(|role| role.name()),
            address: address.ip().to_canonical().to_string(),
            method,
            path: Record::path(&path),
            detector: detector.map(|name| Record::path(&name)),
            status: response.status().as_u16(),
            code: response.extensions().get::<ProblemCode>().map(|code| code.0.clone()),
            request: Record::request(request),
            unrecorded: 0,
        };
        keep(&shared, record, &identity).await;
        response
    });
    work.await.unwrap_or_else(|_| Problem::bug("the service made a mistake with this request").into_response())
}

async fn keep(shared: &Arc<Shared>, mut record: Record, identity: &Identity) {
    // Requests without a token are no events, because they could push all others out of the history. The audit log has
    // them all the same.
    if identity.role().is_some() {
        report(shared, &record);
    }
    let Some(log) = shared.audit.clone() else { return };
    if identity.role().is_none() {
        let Some(unrecorded) = log.admit_unknown(Instant::now()) else { return };
        record.unrecorded = unrecorded;
    }
    let written = tokio::task::spawn_blocking(move || log.write(&record).map_err(|error| (error, log))).await;
    match written {
        Ok(Ok(())) => shared.audit_failed.store(false, Ordering::Relaxed),
        Ok(Err((error, log))) => {
            // Reported once, not with every command.
            if !shared.audit_failed.swap(true, Ordering::Relaxed) {
                let why = konkordia_core::failure::reason(&error);
                shared.warn(format!("the audit log {} cannot be written: {why}", log.path().display()));
            }
        }
        Err(_) => shared.warn("the audit log could not be written".into()),
    }
}

fn report(shared: &Shared, record: &Record) {
    let verb = record.path.rsplit('/').next().unwrap_or_default();
    let (severity, end) = match &record.code {
        None => (Severity::Info, "done".to_string()),
        Some(code) => (Severity::Warning, format!("refused ({code})")),
    };
    let message = format!("{verb} by {} from {}: {end}", record.who, record.address);
    let data = json!({
        "who": record.who, "role": record.role, "address": record.address, "method": record.method, "path": record.path,
        "status": record.status, "code": record.code, "request": record.request,
    });
    let only = shared.fleet.detectors.first().filter(|_| shared.fleet.detectors.len() == 1).map(|detector| detector.name());
    shared.fleet.events.add(record.detector.as_deref().or(only), "command", severity, message, data);
}
