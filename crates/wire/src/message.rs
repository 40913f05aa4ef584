//! The meaning of a message, whatever protocol it came in, and what every decoder is made of. Pixels are shared with
//! the message, except where the protocol packs them in a way that no part downstream knows.

use crate::stream::{Bounds, Pixels, Refusal};
use bytes::Bytes;
use konkordia_core::array::Array;
use konkordia_core::image::{Channel, ImageTimes};
use konkordia_core::ports::{Message, PixelUnpacker};
use konkordia_core::series::SeriesStart;
use std::sync::Arc;

/// The series that a message says it belongs to; 0 where the protocol does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeriesKey(pub u64);

/// An image, or the part of one that an upstream brings.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagePart {
    /// Its series.
    pub series: SeriesKey,
    /// Number of the image in the series, from 0.
    pub number: u64,
    /// The pixels by channel.
    pub channels: Vec<Channel>,
    /// False if the sender wants it passed on, but not stored.
    pub store: bool,
    /// The sender says that something of it is missing.
    pub is_partial: bool,
    /// When it was exposed.
    pub times: Option<ImageTimes>,
    /// What else the sender says of it, as the JSON object that came; empty if nothing.
    pub header_json: Bytes,
    /// Where the protocol has no start (SLS receivers, files): what is known of the series. Every image carries it,
    /// because any of them may come first.
    pub start: Option<Arc<SeriesStart>>,
}

/// The meaning of a message.
#[derive(Clone, Debug)]
pub enum Event {
    /// A series begins.
    Start(SeriesKey, Box<SeriesStart>),
    /// An image, or a part of one. Where the protocol has no start, the first one begins a series, see
    /// [`ImagePart::start`].
    Part(Box<ImagePart>),
    /// A series has ended on this upstream.
    End(SeriesKey),
    /// Part of the protocol, but of no interest here (calibration and metadata of Jungfraujoch); counts as control.
    Other,
}

/// A decoded message.
#[derive(Clone, Debug)]
pub struct Read {
    /// Number of the message, counted over the life of the sender, where there is one (STINS). The start of a series
    /// sets its first number, and older messages are foreign. The series is whole when all numbers from its start to
    /// its end have come.
    pub message_number: Option<u64>,
    /// Its meaning.
    pub event: Event,
}

/// The decoder of one upstream. Checks everything that a message announces against bounds before it allocates anything
/// for it.
pub trait MessageDecoder: Send {
    /// What `message` means.
    ///
    /// # Errors
    /// It cannot be read; in words for people.
    fn read(&mut self, message: &Message) -> Result<Read, Refusal>;
}

/// What a decoder is made with.
pub struct DecoderSetup {
    /// Limits of its messages.
    pub bounds: Bounds,
    /// What its upstream does differently.
    pub options: DecoderOptions,
    /// Unpacks pixels for protocols that pack them in a way that no part downstream knows.
    pub unpacker: Box<dyn PixelUnpacker>,
}

/// Peculiarities of the messages of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoderOptions {
    /// STINS: the upstream brings one of so many pieces of every image, and its messages may describe the whole image;
    /// 0 or 1 = it brings whole images.
    pub pieces: u64,
    /// STINS: the pixels are a whole CBF file.
    pub pixels_are_cbf: bool,
    /// DECTRIS streams: a series is described by what the receiver of MAX IV reports, under its names, and the turn
    /// that a header asks for is made.
    pub is_maxiv: bool,
}

/// The parts of a message as slices.
pub(crate) fn slices(message: &Message) -> Vec<&[u8]> {
    message.parts.iter().map(|part| &part[..]).collect()
}

/// An event of a protocol that does not number its messages.
pub(crate) fn unnumbered(event: Event) -> Read {
    Read { message_number: None, event }
}

/// The array of pixels that lie in `part`, without copying them.
pub(crate) fn shared(part: &Bytes, pixels: &Pixels) -> Array {
    Array {
        shape: pixels.shape(),
        element: pixels.element(),
        packing: pixels.packing(),
        pieces: vec![part.slice_ref(pixels.data())],
    }
}
