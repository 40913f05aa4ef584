//! A frame as several clients share it, and its message.

use super::messages::FrameRequest;
use crate::http::problem::Problem;
use crate::http::stacks::StackRequest;
use axum::body::Bytes;
use konkordia_picture::frame::Region;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Pixels begin at a multiple of so many bytes.
const ALIGN: usize = 8;

/// What makes a frame: who wants the same shares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Run and number of the image; the run of a file is 0.
    pub image: (u64, u64),
    /// The image and how many before it are put together, and how.
    pub stack: Option<StackRequest>,
    /// Name or number of the channel.
    pub channel: Option<String>,
    /// The visible part.
    pub region: Region,
    /// Most values.
    pub pixels_max: usize,
}

/// A frame without what differs between those who get it.
#[derive(Debug)]
pub struct Made {
    /// Fields of the header.
    pub header: Map<String, Value>,
    /// The pixels, packed.
    pub pixels: Bytes,
    /// How long it took to make it.
    pub took: Duration,
}

/// A frame, or why there is none.
pub type Found = Result<Arc<Made>, Arc<Problem>>;

impl Wanted {
    /// What a client asks for of an image.
    pub fn new(request: &FrameRequest, image: (u64, u64)) -> Self {
        let (channel, region) = (request.channel.clone(), request.region());
        Self { image, stack: request.stack, channel, region, pixels_max: request.pixels_max }
    }
}

impl Made {
    /// The message for one client.
    pub fn message(&self, sequence: u64, skipped: u64, age_ms: Option<u64>) -> Bytes {
        let mut header = self.header.clone();
        header.insert("sequence".into(), sequence.into());
        header.insert("skipped".into(), skipped.into());
        header.insert("age_ms".into(), age_ms.into());
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(ALIGN), b' ');
        let mut message = Vec::with_capacity(ALIGN + text.len() + self.pixels.len());
        message.extend(b"KFR1");
        message.extend((text.len() as u32).to_le_bytes());
        message.extend(&text);
        message.extend(&self.pixels);
        message.into()
    }
}
