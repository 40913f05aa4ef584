//! Images that servers may ask for: the newest ones of a detector, or those of a file.

use konkordia_core::experiment::Metadata;
use konkordia_core::results::ImageResults;
use konkordia_engine::plane::SharedPlanes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An image of the ring.
#[derive(Clone)]
pub struct RingImage {
    /// The image with its start, and its pixels for all who ask for it.
    pub planes: Arc<SharedPlanes>,
    /// The run that it is of, which need not be the newest; `None` until the detector has numbered it.
    pub run: Option<u64>,
    /// What is known of the run, with what only the configuration says; `None` if its start says all.
    pub facts: Option<Arc<Metadata>>,
}

impl RingImage {
    /// What is known of its run.
    pub fn facts(&self) -> &Metadata {
        self.facts.as_deref().unwrap_or(&self.planes.start().facts)
    }
}

/// The last images of a detector, newest last. Bounded in images and bytes.
pub trait ImageRing: Send + Sync {
    /// The image with this number; without a number, one that was the newest with pixels at some time since `asked`,
    /// when the caller began to ask ([`konkordia_engine::output_queue::PreviewBuffer::look`]).
    fn get(&self, number: Option<u64>, asked: Instant) -> Option<RingImage>;
    /// Bytes of the newest image with pixels: as it is packed, and unpacked. Cheap: copies no pixels.
    fn newest_bytes(&self) -> Option<(u64, u64)>;
    /// Frees unpacked pixels if nobody has asked for them for so long.
    fn forget_pixels(&self, unasked_for: Duration);
    /// What was computed from the pixels of the newest image, if there is one. Cheap: copies no pixels.
    fn newest_results(&self) -> Option<ImageResults>;
    /// Numbers of the images of the newest series, oldest first, and its run.
    fn numbers(&self) -> (Vec<u64>, Option<u64>);
    /// Why the images of a run that has no results of analysis have none, in words.
    fn no_analysis(&self) -> &str {
        "the images of the run are not analysed: its configuration has no [analysis]"
    }
    /// Time since this image was added; `None` if the image is not there or its time is not known.
    fn age(&self, number: u64) -> Option<Duration> {
        let _ = number;
        None
    }
}
