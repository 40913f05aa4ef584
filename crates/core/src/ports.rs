//! The interfaces between the rules and the world: sources of datagrams and messages, and sinks of images.

use crate::assembler::PacketBitmap;
use crate::ledger::ImageStatus;
use crate::sender::Sender;
use crate::series::{SeriesEnd, SeriesImage, SeriesStart};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

pub use crate::frame_header::FrameHeader;

/// Lends the datagrams of one stream; never looks into them.
pub trait Source: Send {
    /// Passes every available datagram to `take`, with its sender ([`Sender::NONE`] if there is no network), and
    /// returns their number. If there is none, it waits until one comes, at most `timeout`, and returns 0 even if one
    /// came: 0 means that the source was empty at some time after the call began. A source that was read until it was
    /// empty must soon return 0, even if the next datagram follows immediately.
    ///
    /// # Errors
    /// The socket or file failed permanently; an interrupted or empty wait is not an error.
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> std::io::Result<usize>;

    /// Datagrams that were dropped before this source saw them (for example by the kernel), since it was opened.
    fn dropped(&mut self) -> u64;
}

/// A message of one or more parts, with the memory that holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The parts in order, at least one.
    pub parts: Vec<Bytes>,
}

impl Message {
    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

/// Hands over messages with their memory; never looks into them. One source per upstream.
pub trait MessageSource: Send {
    /// Appends messages that are there to `into`, at most `messages_max`. If there is none, waits until one comes, at
    /// most `timeout`.
    ///
    /// # Errors
    /// The socket or folder failed permanently; an interrupted or empty wait is not an error.
    fn receive(&mut self, timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> std::io::Result<()>;

    /// Called from time to time while no message is taken because there is no room, so that the source can keep senders
    /// from filling its own memory.
    fn watch(&mut self) {}

    /// If senders were disconnected since the last call: why, as a text for the user.
    fn disconnected(&mut self) -> Option<String> {
        None
    }

    /// Gives the source the size of a message, so that the messages waiting inside it stay below `queue_bytes`.
    fn bound(&mut self, message_bytes: u64, queue_bytes: u64) {
        let _ = (message_bytes, queue_bytes);
    }

    /// The oldest `messages` messages that were handed over, and neither accepted nor refused yet, were read and taken.
    /// A folder may now remove their files.
    fn accepted(&mut self, messages: usize) {
        let _ = messages;
    }

    /// The oldest `messages` messages that were handed over, and neither accepted nor refused yet, could not be used. A
    /// folder keeps their files.
    fn refused(&mut self, messages: usize) {
        let _ = messages;
    }

    /// Connections that were closed since the source was opened because there were too many. Called from time to time,
    /// also while no message is taken; the source then checks its connections.
    fn connections_refused(&mut self) -> u64 {
        0
    }

    /// True if no message can come any more, as with a file that was read to its end.
    fn is_finished(&self) -> bool {
        false
    }

    /// The address at which it listens or to which it connects, for display, with the port that the kernel chose.
    fn name(&self) -> String;
}

/// What is known of one tile of a committed image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileRecord {
    /// Header of the first packet placed; all zero if none was.
    pub header: FrameHeader,
    /// Packets that were placed.
    pub bitmap: PacketBitmap,
    /// Number of packets placed.
    pub packets: u16,
    /// When the first of them was taken from its source, ns since the run was armed; 0 if none was, or if the time is
    /// unknown.
    pub received_ns: u64,
}

impl TileRecord {
    /// When the first packet of all these tiles was taken.
    pub fn first_received_ns(tiles: &[Self]) -> Option<u64> {
        tiles.iter().map(|tile| tile.received_ns).filter(|ns| *ns > 0).min()
    }
}

/// What the committer decided about an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHead {
    /// Its state.
    pub status: ImageStatus,
    /// Position in the run of its first frame, from 0. Without a selection of frames this is also the position of the
    /// image.
    pub first_frame: u64,
    /// Frames that were added.
    pub frames: u32,
    /// Frames of which every packet was placed.
    pub frames_complete: u32,
}

impl Default for ImageHead {
    fn default() -> Self {
        Self { status: ImageStatus::Lost, first_frame: 0, frames: 0, frames_complete: 0 }
    }
}

/// An image in its final state, lent to the sinks in image order. Every image of the run comes once, lost ones too.
#[derive(Clone, Copy, Debug)]
pub struct CommittedImage<'a> {
    /// Position in the file, from 0.
    pub image: u64,
    /// Its state and its frames.
    pub head: ImageHead,
    /// One record per tile. Of a sum of frames: the header of the first frame of which a packet came, and the packets
    /// that came in every frame.
    pub tiles: &'a [TileRecord],
    /// The packed strips in order. The bytes before, between and after them in the chunk come from the codec
    /// (`kernels::codec::Framing`). Empty when the image is lost or discarded.
    pub strips: &'a [&'a [u8]],
    /// The tracked pedestals of G0 in ADU after this image, in output order, strip by strip; empty for most images.
    pub pedestals: &'a [&'a [f32]],
}

/// Takes the raw words of every frame as they lie in the ring, before anything is done to them. Runs in a thread of its
/// own; while it holds a frame, the slot of that frame is not free.
pub trait FrameSink: Send {
    /// Takes one tile of a frame: its record and its bytes, of which only those of packets in the bitmap are valid.
    /// Frames come in order.
    ///
    /// # Errors
    /// The tile could not be taken; the run ends in Error with everything before intact.
    fn write(&mut self, frame: u64, tile: usize, record: &TileRecord, bytes: &[u8]) -> Result<(), SinkError>;
}

/// Takes committed images. Runs in a thread of its own; while it holds an image, the slot of that image is not free.
pub trait Sink: Send {
    /// Takes one image.
    ///
    /// # Errors
    /// The image could not be taken (disk full, for example); the run ends in Error with everything before intact.
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError>;

    /// Called at least every 100 ms, also while no image comes: flush what must be flushed.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError>;
}

/// Takes series. Runs in a thread of its own behind a bounded queue.
pub trait SeriesSink: Send {
    /// A series begins.
    ///
    /// # Errors
    /// The series cannot be taken; its images and its end do not come then.
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError>;

    /// One position of the series; every one comes, in order, those of lost images too.
    ///
    /// # Errors
    /// The image could not be taken (disk full, for example). Further images of the series do not come, but its end
    /// does.
    fn image(&mut self, image: &Arc<SeriesImage>) -> Result<(), SinkError>;

    /// The series has ended; the sink brings everything into its final state.
    ///
    /// # Errors
    /// That was not possible.
    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError>;

    /// Called at least every 100 ms, also while nothing comes.
    ///
    /// # Errors
    /// As [`SeriesSink::image`].
    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError>;
}

/// A sink failed: what happened, where, why and what to do, ready to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}\n  why: {why}\n  fix: {fix}")]
pub struct SinkError {
    /// What happened and where.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do next.
    pub fix: String,
}
