//! The way of messages: whole images from streams and folders, put in order, changed where asked, and given to sinks.
//! It knows no socket and no file: sources and sinks come as traits. Read [`event`] first, then [`open`].

mod belong;
mod budget;
mod control;
mod current;
mod deliver;
pub mod encode;
pub mod event;
mod gate;
mod images;
pub mod intake;
mod join;
mod lifecycle;
mod lineup;
pub mod merge;
mod moved;
mod pieces;
mod pull;
mod run;
mod sort;
mod sum;
pub mod transform;
mod work;

pub use control::{ArmOrder, Notice, Phase, Progress, SeriesControl, UpstreamProgress};
pub use deliver::{SinkThread, guarded, spawn_sink};
pub use moved::start_of_changed;
pub use run::open;
pub use sum::sum_element;

use event::Intake;
use konkordia_core::array::Packing;
use konkordia_core::geometry::{Orientation, Placement};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::ports::MessageSource;
use konkordia_core::series::{SeriesImage, SeriesStart};
use konkordia_wire::stream::Bounds;
use std::sync::Arc;
use std::time::Instant;

/// What the messages of a detector are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// STINS, the streams of MAX IV.
    Stins,
    /// DECTRIS Stream V1 (JSON).
    DectrisV1,
    /// DECTRIS Stream V2 (CBOR).
    DectrisV2,
    /// JSON of the SLS receivers.
    SlsJson,
    /// Files of a folder: the first part of a message is the name, the second the content.
    Files,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Stins, Self::DectrisV1, Self::DectrisV2, Self::SlsJson, Self::Files];

    /// Name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stins => "stins",
            Self::DectrisV1 => "stream1",
            Self::DectrisV2 => "stream2",
            Self::SlsJson => "sls",
            Self::Files => "files",
        }
    }

    /// The protocol of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// True if a message says that a series begins; else its first image does.
    pub const fn has_start(self) -> bool {
        !matches!(self, Self::SlsJson | Self::Files)
    }

    /// True if a message says that a series has ended.
    pub const fn has_end(self) -> bool {
        !matches!(self, Self::Files)
    }
}

/// What several upstreams are to each other.
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
    /// Each carries one piece of every image: piece n, from upstream n, is the n-th along the first dimension. They are not unpacked for that. What the
    /// upstreams say at the start becomes one: see [`merge::LISTS`].
    Pieces,
}

impl Join {
    /// True if an image has a part from every upstream.
    pub const fn is_modular(&self) -> bool {
        !matches!(self, Self::Balanced)
    }
}

/// What decides where an image stands in its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// The number that its sender gave it, from 0.
    Frames,
    /// Its message: the number of the message after that of the header or, where messages have none and one upstream is alone, its arrival. The
    /// number that the sender gave the image is a label, which may begin anywhere, go in steps, or repeat itself.
    Messages,
}

/// When a series may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Whenever the sender begins one.
    Always,
    /// Only after [`SeriesControl::arm`], one each time.
    WhenArmed,
}

/// Changes images; each worker has its own.
pub trait Transform: Send {
    /// The image after the change, turned as its series asks if that is to be done. Its parts are joined; its number, state and times are not looked at.
    ///
    /// # Errors
    /// The pixels cannot be read; in words for people. The image counts as malformed then.
    fn run(&mut self, image: SeriesImage, turn: Orientation) -> Result<SeriesImage, String>;

    /// Makes what the start of a series says of the sender's images true of the images after the change.
    fn start(&self, start: &mut SeriesStart);
}

/// Makes the [`Transform`] of each worker.
pub type TransformFactory = Box<dyn Fn() -> Box<dyn Transform> + Send + Sync>;

/// Everything that the way of messages needs to know, and every bound it has.
pub struct SeriesSpec {
    /// What messages are written in.
    pub protocol: Protocol,
    /// What a message may hold.
    pub bounds: Bounds,
    /// What the upstreams are to each other.
    pub join: Join,
    /// What decides where an image stands in its series.
    pub positions: Positions,
    /// What is done to images; `None` = nothing.
    pub transform: Option<TransformFactory>,
    /// Consecutive images that are added to make one, after the transformation, 1 to [`konkordia_core::selection::SUM_FRAMES_MAX`]; see
    /// [`sum_element`] for their type. Everybody behind the order sees sums only, on whose thread they are made.
    pub sum_frames: u32,
    /// How images leave; `None` = as they came (where a transformation has unpacked them, as bslz4), recombined ones and sums unpacked.
    pub packing_out: Option<Packing>,
    /// Images are unpacked by a worker and lost if they cannot be; otherwise those that nobody changes are passed on as they came.
    pub check_pixels: bool,
    /// Images that may be ahead of the oldest one that is not whole, 1 to 2^20.
    pub window_images: u64,
    /// Longest time that an image waits for another one, or for its missing parts; also how long messages without a header wait for it.
    pub wait_ns: u64,
    /// Longest time that a series whose end is known waits for what is still on its way.
    pub drain_ns: u64,
    /// A series ends when no message of it comes for this long.
    pub stall_timeout_ns: u64,
    /// A series ends when no image comes for this long after [`SeriesControl::start_clock`]; `u64::MAX` = waits for ever.
    pub start_timeout_ns: u64,
    /// What to do with partial images.
    pub missing: MissingPolicy,
    /// Bytes of messages between a source and the order, all upstreams together; each has its share.
    pub budget_bytes: u64,
    /// Threads that change, join and pack images; they are started only if there is something to do, then at least one.
    pub workers: usize,
    /// When a series may begin.
    pub accept: Accept,
    /// Images (sums) of a series that nobody has armed; `None` = as many as the sender announces.
    pub images: Option<u64>,
    /// The moment from which [`konkordia_core::series::SeriesImage::received_ns`] and [`SeriesControl::now_ns`] count.
    pub clock_began: Instant,
}

impl SeriesSpec {
    /// For one upstream or several that share a stream: nothing is changed, every series is taken, 1024 images of window, 256 MiB in flight,
    /// 2 s of patience within a series, 1 s at its end, 60 s of silence, no limit before the first image.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            bounds: Bounds::default(),
            join: Join::Balanced,
            positions: Positions::Frames,
            transform: None,
            sum_frames: 1,
            packing_out: None,
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

/// One source of messages and who reads them.
pub struct Upstream {
    /// Hands messages over.
    pub source: Box<dyn MessageSource>,
    /// Says what they mean.
    pub intake: Box<dyn Intake>,
}

/// The parts do not fit together; in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the series of this detector cannot be received: {0}")]
pub struct OpenError(pub String);

/// A running path: threads that take series, one after the other, until [`SeriesControl::shutdown`]. Dropping it shuts it down and waits for
/// its threads.
pub struct Series {
    control: Arc<SeriesControl>,
    notices: crossbeam_channel::Receiver<Notice>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Series {
    /// Drives the series and tells how they go.
    pub fn control(&self) -> Arc<SeriesControl> {
        Arc::clone(&self.control)
    }

    /// What happened, in order. Bounded: who never reads loses the newest ones, which [`Progress::notices_lost`] counts.
    pub fn notices(&self) -> &crossbeam_channel::Receiver<Notice> {
        &self.notices
    }

    /// Threads that run for it.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.control.shutdown();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
