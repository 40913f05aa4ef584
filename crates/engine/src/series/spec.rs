//! The configuration of the stream path.

use super::transform::TransformFactory;
use crate::hand_over::SeriesAnalysis;
use konkordia_core::geometry::Placement;
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::plan::Compression;
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{Accept, Positions, SeriesStart};
use konkordia_wire::stream::Bounds;
use std::sync::Arc;
use std::time::Instant;

/// How several upstreams divide the images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Each carries some of the messages of one stream; one upstream alone is this too.
    Balanced,
    /// Each carries its part of every image: part n comes from upstream n.
    PerModule {
        /// Where the parts lie in the image, in the order of the upstreams.
        placements: Vec<Placement>,
        /// Rows of the image.
        rows: u32,
        /// Columns of the image.
        columns: u32,
    },
    /// Each carries one piece of every image: piece n, from upstream n, is the n-th along the first dimension. Pieces
    /// are joined without being unpacked. The starts of all upstreams become one: see [`super::merge::LISTS`].
    Pieces,
}

impl Join {
    /// True if an image has a part from every upstream.
    pub const fn is_modular(&self) -> bool {
        !matches!(self, Self::Balanced)
    }
}

/// Makes the analysis of the images of a series from its start, adds its results to those of the start, and says in the
/// start what cannot be done. `None`: images are not analysed.
pub type AnalysisFactory = Arc<dyn Fn(&mut SeriesStart) -> Option<SeriesAnalysis> + Send + Sync>;

/// Configuration of the stream path, with all of its bounds.
pub struct SeriesSpec {
    /// The protocol of the messages.
    pub protocol: Protocol,
    /// What a message may hold.
    pub bounds: Bounds,
    /// How the upstreams divide the images.
    pub join: Join,
    /// What decides where an image stands in its series.
    pub positions: Positions,
    /// What is done to images; `None` = nothing.
    pub transform: Option<TransformFactory>,
    /// Consecutive images that are added to make one, after the transformation, 1 to
    /// [`konkordia_core::selection::SUM_FRAMES_MAX`]; see [`super::sum_element`] for their type. The sort thread
    /// makes the sums; sinks and consumers see only sums.
    pub sum_frames: u32,
    /// Looks at the images that leave; `None` = nobody does.
    pub analysis: Option<AnalysisFactory>,
    /// How images leave. `None` = as they came (as bslz4 where a transformation has unpacked them); recombined images
    /// and sums leave unpacked.
    pub compression: Option<Compression>,
    /// Workers unpack every image, and one that cannot be unpacked is lost. If false, unchanged images are passed on as
    /// they came.
    pub check_pixels: bool,
    /// Images that may be ahead of the oldest one that is not whole, 1 to 2^20.
    pub window_images: u64,
    /// Longest time that an image waits for another one, or for its missing parts; also how long messages without a
    /// header wait for it.
    pub wait_ns: u64,
    /// Longest time that a series whose end is known waits for messages still on their way.
    pub drain_ns: u64,
    /// A series ends when no message of it comes for this long.
    pub stall_timeout_ns: u64,
    /// A series ends when no image comes for this long after [`super::SeriesControl::start_clock`]; `u64::MAX` = waits
    /// for ever.
    pub start_timeout_ns: u64,
    /// What to do with partial images.
    pub missing: MissingPolicy,
    /// Bytes of messages in flight, that is received and not yet committed, all upstreams together; each has an equal
    /// part.
    pub budget_bytes: u64,
    /// Threads that change, join and pack images; they are started only if there is something to do, then at least one.
    pub workers: usize,
    /// When a series may begin.
    pub accept: Accept,
    /// Images (sums) of a series that was not armed; `None` = as many as the sender announces.
    pub images: Option<u64>,
    /// The moment from which [`konkordia_core::image::CommittedImage::received_ns`] and
    /// [`super::SeriesControl::now_ns`] count.
    pub clock_began: Instant,
}

impl SeriesSpec {
    /// For one upstream, or several that share a stream: nothing is changed, every series is taken, the window has 1024
    /// images, 256 MiB may be in flight, missing images are waited for 2 s (1 s at the end of a series), a series ends
    /// after 60 s of silence, no limit before the first image.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            bounds: Bounds::default(),
            join: Join::Balanced,
            positions: Positions::Frames,
            transform: None,
            sum_frames: 1,
            analysis: None,
            compression: None,
            check_pixels: false,
            window_images: 1024,
            wait_ns: 2_000_000_000,
            drain_ns: 1_000_000_000,
            stall_timeout_ns: 60_000_000_000,
            start_timeout_ns: u64::MAX,
            missing: MissingPolicy::Keep,
            budget_bytes: 256 << 20,
            workers: 1,
            accept: Accept::Always,
            images: None,
            clock_began: Instant::now(),
        }
    }
}
