//! Images for people who look on: the newest one, or the next one that was not given yet, as TIFF.

use super::refuse::{check, no_path, wrong};
use super::shared::{Place, Shared, Simplon};
use crate::http::images::image_as;
use crate::http::problem::Problem;
use crate::http::render::Format;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How long a client waits for an image that is not there yet, if it does not say.
const TIMEOUT_MS: u64 = 500;
/// The longest that it may wait.
const TIMEOUT_MS_MAX: u64 = 60_000;
/// How often it is looked for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// `images/monitor` and `images/next`.
pub async fn image(
    State(simplon): Shared,
    Path((subsystem, version, which)): Place,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, Problem> {
    check(&subsystem, &version)?;
    let is_next = which == "next";
    if subsystem != "monitor" || !(is_next || which == "monitor") {
        return Err(no_path(&format!("{subsystem}/api/{version}/images/{which}")));
    }
    if simplon.parameters().word("monitor", "mode", &*simplon.port.detector) == "disabled" {
        return Err(Problem::new("no_image", "the monitor is disabled", "set monitor/config/mode to \"enabled\""));
    }
    let until = Instant::now() + timeout(&query)?;
    loop {
        if let Some(number) = simplon.image_to_give(is_next) {
            return tiff(&simplon, number).await;
        }
        if Instant::now() >= until || simplon.port.shared.is_stopping() {
            let text = if is_next { "there is no image that was not given yet" } else { "there is no image yet" };
            return Ok((StatusCode::REQUEST_TIMEOUT, text).into_response());
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn timeout(query: &BTreeMap<String, String>) -> Result<Duration, Problem> {
    let Some(text) = query.get("timeout") else { return Ok(Duration::from_millis(TIMEOUT_MS)) };
    let ms = text.parse().ok().filter(|ms| *ms <= TIMEOUT_MS_MAX);
    let hint = format!("give 0 to {TIMEOUT_MS_MAX} milliseconds");
    ms.map(Duration::from_millis).ok_or_else(|| wrong(format!("timeout: {text:?} is no number of milliseconds"), hint))
}

/// The same bytes as `GET /api/v1/images/NUMBER?format=tiff`, by the media type of DECTRIS.
async fn tiff(simplon: &Simplon, number: Option<u64>) -> Result<Response, Problem> {
    let mut response = image_as(&simplon.port.shared, simplon.port.detector.name(), number, Format::Tiff).await?;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/tiff"));
    Ok(response)
}

impl Simplon {
    /// From now on only images that come later are new.
    pub(super) fn forget_images(&self) {
        let ring = self.port.detector.images();
        let (numbers, run) = ring.numbers();
        let newest = numbers.last().map(|newest| (run.unwrap_or_default(), *newest));
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = newest;
    }

    /// The number of the image to give, if there is one; without a number the newest. The next image is the oldest one
    /// with pixels that is newer than the last one; who asks too rarely misses those that the ring has dropped.
    fn image_to_give(&self, is_next: bool) -> Option<Option<u64>> {
        let ring = self.port.detector.images();
        if !is_next {
            return ring.newest_bytes().map(|_| None);
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (numbers, run) = ring.numbers();
        let run = run.unwrap_or_default();
        let is_new = |number: &&u64| shown.is_none_or(|(of, last)| of != run || **number > last);
        let has_pixels = |number: &&u64| {
            ring.get(Some(**number), Instant::now()).is_some_and(|found| !found.planes.image().channels.is_empty())
        };
        let next = *numbers.iter().filter(is_new).find(has_pixels)?;
        *shown = Some((run, next));
        Some(Some(next))
    }
}
