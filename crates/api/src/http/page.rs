//! The page at `/`: the current states, and links.

use super::extract::{NoQuery, Query};
use super::guard::may;
use super::state::Shared;
use crate::security::{Identity, Role};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use konkordia_acquire::handle::{DetectorStatus, StateWord};
use std::fmt::Write;
use std::sync::Arc;

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Konkordia</title>\
<meta name=\"viewport\" content=\"width=device-width\"><style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse}td,th{padding:.2em .8em;border:1px solid #bbb;text-align:left}</style></head><body><h1>Konkordia</h1>\n";
const LINKS: &str = "<p><a href=\"/api/v1/detectors\">states</a>, <a href=\"/api/v1/logs\">log</a>, <a href=\"/api/v1/events\">events</a>, \
<a href=\"/metrics\">metrics</a>, <a href=\"/api/v1/version\">version</a>, <a href=\"/api/v1/openapi.json\">description of the interface (OpenAPI)</a></p>\n";
/// No scripts, nothing from other hosts, not inside a frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Page with the current states and links.
#[utoipa::path(get, path = "/", tag = "state", responses((status = 200, description = "A page for people", body = String, content_type = "text/html")))]
pub async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Response {
    let mut text = String::from(HEAD);
    if may(Some(&identity), Role::View).is_ok() {
        text.push_str(
            "<table><tr><th>detector</th><th>state</th><th>message</th><th>run</th><th>images</th><th>file</th><th></th></tr>\n",
        );
        for detector in &shared.fleet.detectors {
            row(&mut text, &detector.status());
        }
        text.push_str("</table>\n");
    } else {
        text.push_str("<p>This service needs a token: states are shown only to requests that send one.</p>\n");
    }
    let _ = writeln!(text, "{LINKS}<p>Version {}</p></body></html>", env!("CARGO_PKG_VERSION"));
    let mut response = Html(text).into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn row(text: &mut String, status: &DetectorStatus) {
    let state = StateWord::from(status.state).name();
    let expected = status.images_expected.map_or_else(|| "\u{2013}".into(), |images| images.to_string());
    let link: String = status.detector.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let _ = writeln!(
        text,
        "<tr><td>{}</td><td>{state}</td><td>{}</td><td>{}</td><td>{} of {expected}</td><td>{}</td><td><a href=\"/api/v1/images/latest?detector={link}\">newest image</a> \
         <a href=\"/api/v1/statistics?detector={link}\">statistics</a></td></tr>",
        escaped(&status.detector),
        escaped(&status.message),
        status.run,
        status.images_committed,
        escaped(status.file.as_deref().unwrap_or("\u{2013}")),
    );
}

/// Escapes a text for HTML, because texts may come from outside.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut all, c| {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            '\'' => all.push_str("&#39;"),
            c => all.push(c),
        }
        all
    })
}
