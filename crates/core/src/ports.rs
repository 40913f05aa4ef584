//! The interfaces between the rules and the world: sources of datagrams and messages, sinks of images, encoders of
//! messages.

use crate::array::{Element, PackedBits, Packing};
use crate::image::{CommittedImage, TileRecord};
use crate::sender::Sender;
use crate::series::{SeriesEnd, SeriesStart};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

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

    /// The source as one that writes payloads to their places itself, if it can. It is then read only in this way while
    /// the run goes on.
    fn filling(&mut self) -> Option<&mut dyn FillingSource> {
        None
    }
}

/// A source that can write the payloads of packets where they belong, so that nobody copies them: it reads files into
/// the memory of the frames, or tells a device to write there.
pub trait FillingSource {
    /// As [`Source::receive`], but payloads may already lie in the places that `places` lends.
    ///
    /// # Errors
    /// As of [`Source::receive`].
    fn receive_into(&mut self, timeout: Duration, places: &mut dyn TilePlaces) -> std::io::Result<usize>;
}

/// The places of the payloads of one stream, which the engine lends to the source of the stream for one call of
/// [`FillingSource::receive_into`].
///
/// What the source guesses need not be right. The header of a packet alone decides what becomes of it: a payload that
/// lies in a wrong place is moved, and the bytes of a place count only when the packet that belongs there is placed.
pub trait TilePlaces {
    /// Lends the places of the payloads of `packets` (their indices in the tile) of a frame, one behind the other.
    /// `None` if they are not free now; such packets go to [`TilePlaces::take`]. There is one loan at a time: the next
    /// one, and the end of the call, end it. Then only payloads that were reported are kept.
    ///
    /// A source that can wait (a file) must lend in the order of the frames; the engine waits until there is room.
    fn lend(&mut self, frame_number: u64, packets: Range<u16>) -> Option<&mut [u8]>;

    /// Lends the places of the packets that are expected next on this stream: those behind the newest packet that was
    /// placed, up to the end of its frame or to the next packet that is there already. It is a loan as of
    /// [`TilePlaces::lend`]. `None` also if nothing was placed yet, or if the payloads of a tile are not all of one
    /// size.
    fn lend_next(&mut self) -> Option<NextPlaces<'_>> {
        None
    }

    /// One packet: `payload_bytes` of payload are where the newest loan has the place of `packet`, and `head` is what
    /// comes before them in the datagram. The packet gets its verdict as if the datagram had come in one piece.
    ///
    /// # Panics
    /// If `packet` is not in the newest loan or was reported before, or if its place is smaller than the payload.
    fn filled(&mut self, packet: u16, head: &[u8], payload_bytes: usize, sender: Sender);

    /// One datagram in one piece, in memory of the source.
    fn take(&mut self, datagram: &[u8], sender: Sender);
}

/// The places of the packets that are expected next, for a source that knows nothing of packets.
pub struct NextPlaces<'a> {
    /// Their indices in the tile.
    pub packets: Range<u16>,
    /// Bytes of a datagram before its payload.
    pub head_bytes: usize,
    /// Bytes of each payload.
    pub payload_bytes: usize,
    /// One place behind the other.
    pub places: &'a mut [u8],
}

/// The parts of a message.
pub type Parts = Vec<Bytes>;

/// A message of one or more parts, with the memory that holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The parts in order, at least one.
    pub parts: Parts,
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

/// Level of service of a consumer: which images it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceLevel {
    /// Every image, in order. If it is too slow, everything waits for it as long as it is connected.
    Reliable,
    /// Every image, in order, while its queue has room. The images that it misses are counted.
    ReliableSkip,
    /// The newest image; older ones that it has not taken are dropped.
    Latest,
}

impl ServiceLevel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reliable, Self::ReliableSkip, Self::Latest];

    /// Name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reliable => "reliable",
            Self::ReliableSkip => "reliable-skip",
            Self::Latest => "latest",
        }
    }

    /// The level of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// Takes committed images, of runs and of series alike. Runs in a thread of its own behind a bounded queue. While it
/// holds an image, the memory of that image is in use.
pub trait Sink: Send {
    /// A run or series begins.
    ///
    /// # Errors
    /// It cannot be taken; its images and its end do not come then.
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        let _ = start;
        Ok(())
    }

    /// One position; every one comes, in order, those of lost images too.
    ///
    /// # Errors
    /// The image could not be taken (disk full, for example). Further images do not come, but the end does.
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError>;

    /// The run or series has ended; the sink brings everything into its final state. Sinks that are part of a run are
    /// closed by the caller of the run instead, with the ledger.
    ///
    /// # Errors
    /// That was not possible.
    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        let _ = end;
        Ok(())
    }

    /// Called at least every 100 ms, also while nothing comes: flush what must be flushed.
    ///
    /// # Errors
    /// As [`Sink::image`].
    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        let _ = now_ns;
        Ok(())
    }
}

/// Writes the messages of a protocol for one consumer. Each call gives the messages that are to be sent now, in order,
/// perhaps none.
pub trait MessageEncoder: Send {
    /// A series begins. If the start message needs facts that only the first image brings, it is sent with that image.
    ///
    /// # Errors
    /// The protocol cannot express it; in words for people. Images may be encoded all the same.
    fn start(&mut self, start: &SeriesStart) -> Result<Vec<Parts>, String>;

    /// An image. Nothing is sent for a position without pixels: no protocol has a message for it, and the image numbers
    /// show the gap.
    ///
    /// # Errors
    /// The protocol cannot express its pixels, or they cannot be unpacked; in words for people. Further images may be
    /// encoded.
    fn image(&mut self, image: &CommittedImage) -> Result<Vec<Parts>, String>;

    /// The series has ended.
    ///
    /// # Errors
    /// The protocol cannot express it; in words for people.
    fn end(&mut self, end: &SeriesEnd) -> Result<Vec<Parts>, String>;
}

/// Unpacks pixels for decoders and encoders of protocols that cannot carry them as they are packed. The engine gives
/// them its kernels in this form; it keeps memory for the next call.
pub trait PixelUnpacker: Send {
    /// Unpacks one piece of an array into `out`, which has as many bytes as the piece has unpacked.
    ///
    /// # Errors
    /// The bytes are not what they claim to be; in words for people.
    fn unpack(&mut self, packing: Packing, element: Element, packed: &[u8], out: &mut [u8]) -> Result<(), String>;

    /// Pixels that do not have whole bytes as those of the type [`PackedBits::unpacked`]; `out` has the bytes of as
    /// many pixels as `packed`.
    fn whole_bytes(&mut self, bits: PackedBits, packed: &[u8], out: &mut [u8]);

    /// The byte-offset form of CBF files as little-endian int32: `out` has four bytes for each pixel. Returns the bytes
    /// of `packed` that it read.
    ///
    /// # Errors
    /// The bytes end before the last pixel, or a pixel does not fit 32 bits; in words for people.
    fn byte_offset(&mut self, packed: &[u8], out: &mut [u8]) -> Result<usize, String>;
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
