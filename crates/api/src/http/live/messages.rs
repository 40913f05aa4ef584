//! The messages of the live connection, as docs/live.md describes them.

use crate::http::problem::Problem;
use crate::http::stacks::StackRequest;
use crate::security::Role;
use konkordia_acquire::handle::{DetectorStatistics, DetectorStatus, ServiceEvent};
use konkordia_picture::frame::Region;
use serde::{Deserialize, Serialize};

/// What a client says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum FromClient {
    Hello { token: Option<String> },
    Watch { detector: Option<String>, frames: Option<FrameRequest> },
    Ack { sequence: u64 },
}

/// Which frames a client wants.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrameRequest {
    pub image: Which,
    pub file: Option<String>,
    pub stack: Option<StackRequest>,
    pub channel: Option<String>,
    pub region: Option<[u32; 4]>,
    pub pixels_max: usize,
    pub hz_max: f64,
}

impl Default for FrameRequest {
    fn default() -> Self {
        Self { image: Which::default(), file: None, stack: None, channel: None, region: None, pixels_max: 1 << 20, hz_max: 10.0 }
    }
}

impl FrameRequest {
    /// What is wrong with it, in words.
    pub fn mistake(&self) -> Option<String> {
        if !(4096..=4 << 20).contains(&self.pixels_max) {
            return Some(format!("pixels_max: {} is not between 4096 and 4194304", self.pixels_max));
        }
        if !(0.1..=60.0).contains(&self.hz_max) {
            return Some(format!("hz_max: {} is not between 0.1 and 60", self.hz_max));
        }
        if let Some(mistake) = self.stack.as_ref().and_then(StackRequest::mistake) {
            return Some(format!("stack: {mistake}"));
        }
        if self.file.is_some() && self.image == Which::Named(Name::Hit) {
            return Some("image: \"hit\" is for the newest images, and not for those of a file".into());
        }
        let empty = self.region.filter(|[_, _, columns, rows]| *columns == 0 || *rows == 0);
        empty.map(|region| format!("region: {region:?} has no pixels"))
    }

    /// The part that is visible.
    pub fn region(&self) -> Region {
        let [column, row, columns, rows] = self.region.unwrap_or([0, 0, u32::MAX, u32::MAX]).map(|number| number as usize);
        Region { column, row, columns, rows }
    }
}

/// An image.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Which {
    Named(Name),
    Number(u64),
}

impl Default for Which {
    fn default() -> Self {
        Self::Named(Name::Latest)
    }
}

/// An image that is named by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    Latest,
    Hit,
}

/// What the service says in text.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToClient<'a> {
    Welcome { version: &'a str, name: &'a str, role: Role },
    Status { detectors: Vec<&'a DetectorStatus> },
    Statistics { statistics: &'a DetectorStatistics, images: Option<[u64; 2]>, run: u64 },
    Event { event: &'a ServiceEvent },
    Missed { events: Option<u64> },
    NoImage { image: Option<u64>, detail: &'a str, hint: &'a str },
    Problem { code: &'a str, detail: &'a str, hint: &'a str },
}

impl<'a> ToClient<'a> {
    pub fn problem(problem: &'a Problem) -> Self {
        let body = problem.body();
        Self::Problem { code: &body.code, detail: &body.detail, hint: body.hint.as_deref().unwrap_or_default() }
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
