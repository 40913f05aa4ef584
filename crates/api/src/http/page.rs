//! The pages for people: the bundle of `web/`, which is part of this binary. It has no secrets, so it needs no token;
//! what it shows comes over the live connection and the interface, which ask for one.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::sync::OnceLock;

/// Only scripts, styles and data of this service; no other page may have it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; \
frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// A file of the bundle.
struct File {
    media_type: &'static str,
    bytes: &'static [u8],
    /// Packed when somebody asks for it for the first time.
    gzip: OnceLock<Vec<u8>>,
}

macro_rules! bundled {
    ($name:literal, $media_type:literal) => {
        File { media_type: $media_type, bytes: include_bytes!(concat!("../../../../web/dist/", $name)), gzip: OnceLock::new() }
    };
}

static PAGE: File = bundled!("index.html", "text/html; charset=utf-8");
static SCRIPT: File = bundled!("konkordia.js", "text/javascript; charset=utf-8");
static STYLE: File = bundled!("konkordia.css", "text/css; charset=utf-8");
static ICON: File = bundled!("icon.svg", "image/svg+xml");

impl File {
    fn answer(&'static self, headers: &HeaderMap) -> Response {
        let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let takes_gzip = accepted.split(',').any(|coding| coding.trim() == "gzip" || coding.trim().starts_with("gzip;q=1"));
        let bytes = if takes_gzip { self.gzip.get_or_init(|| packed(self.bytes)).as_slice() } else { self.bytes };
        let mut response = bytes.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if takes_gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("memory takes every byte")
}

/// The pages for people, in a browser. What stands behind a `?` is for their script.
#[utoipa::path(get, path = "/", tag = "state", responses((status = 200, description = "A page with scripts", body = String, content_type = "text/html")))]
pub async fn page(headers: HeaderMap) -> Response {
    PAGE.answer(&headers)
}

/// The script of the pages.
pub async fn script(headers: HeaderMap) -> Response {
    SCRIPT.answer(&headers)
}

/// Their style.
pub async fn style(headers: HeaderMap) -> Response {
    STYLE.answer(&headers)
}

/// Their icon.
pub async fn icon(headers: HeaderMap) -> Response {
    ICON.answer(&headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_small_enough_for_a_slow_line() {
        let bytes: usize = [&PAGE, &SCRIPT, &STYLE, &ICON].map(|file| packed(file.bytes).len()).iter().sum();
        assert!(bytes <= 300_000, "{bytes} bytes packed");
    }
}
