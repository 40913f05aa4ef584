//! Decoders of messages, one file per protocol. Pixels are shared with the message, except where the protocol packs
//! them in a way that no part downstream knows.

mod byte_order;
mod dectris_v1;
mod dectris_v2;
mod facts;
mod files;
mod gaps;
mod maxiv;
mod names;
mod sls_json;
mod stins;

pub(crate) use facts::KEV_ANGSTROM;

use super::Protocol;
use super::event::{Decoder, Event, Read};
use bytes::Bytes;
use konkordia_core::ports::Message;
use konkordia_core::series::Array;
use konkordia_wire::stream::{Bounds, Packing, Pixels, Refusal};

/// Peculiarities of the messages of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoderOptions {
    /// STINS: the upstream brings one of so many pieces of every image, and its messages may describe the whole image;
    /// 0 or 1 = it brings whole images.
    pub pieces: u64,
    /// STINS: the pixels are a whole CBF file.
    pub pixels_are_cbf: bool,
    /// Columns that are missing between chips of 256 columns; they are inserted as *masked* pixels. 0 = images stay as
    /// they are.
    pub chip_gap_px: u32,
    /// DECTRIS streams: a series is described by what the receiver of MAX IV reports, under its names, and the turn
    /// that a header asks for is made.
    pub is_maxiv: bool,
}

/// A decoder of messages of `protocol` for one upstream. It remembers nothing of a series, except in protocols that do
/// not say where one begins.
pub fn decoder(protocol: Protocol, bounds: Bounds) -> Box<dyn Decoder> {
    decoder_with(protocol, bounds, DecoderOptions::default())
}

/// As [`decoder`], with `options`.
pub fn decoder_with(protocol: Protocol, bounds: Bounds, options: DecoderOptions) -> Box<dyn Decoder> {
    let inner = plain(protocol, bounds, options);
    if options.chip_gap_px == 0 { inner } else { Box::new(gaps::Gaps::new(inner, options.chip_gap_px, bounds)) }
}

fn plain(protocol: Protocol, bounds: Bounds, options: DecoderOptions) -> Box<dyn Decoder> {
    match protocol {
        Protocol::Stins => Box::new(stins::Stins::new(bounds, options)),
        Protocol::DectrisV1 => Box::new(dectris_v1::DectrisV1::new(bounds, options.is_maxiv)),
        Protocol::DectrisV2 => Box::new(dectris_v2::DectrisV2::new(bounds, options.is_maxiv)),
        Protocol::SlsJson => Box::new(sls_json::SlsJson::new(bounds)),
        Protocol::Files => Box::new(files::Files::new(bounds)),
    }
}

fn slices(message: &Message) -> Vec<&[u8]> {
    message.parts.iter().map(|part| &part[..]).collect()
}

/// An event of a protocol that does not number its messages.
fn unnumbered(event: Event) -> Read {
    Read { message_number: None, event }
}

/// The array of pixels that lie in `part`, without copying them.
fn shared(part: &Bytes, pixels: &Pixels) -> Array {
    Array {
        shape: pixels.shape(),
        element: pixels.element(),
        packing: pixels.packing(),
        pieces: vec![part.slice_ref(pixels.data())],
    }
}

/// Gives a refusal this part number.
fn of_part(part: usize) -> impl Fn(Refusal) -> Refusal {
    move |refusal| Refusal { part, ..refusal }
}

/// The warning about a table that cannot be used: the series goes on without it.
fn table_warning(kind: &str, why: &str) -> String {
    format!("the header's table '{kind}' is not used, and the series goes on without it: {why}")
}

/// A table of a detector, or why it cannot be used: its type, shape or packing is wrong.
fn table(part: &Bytes, pixels: &Pixels, wanted: konkordia_core::array::Element) -> Result<Array, String> {
    let (is, dimensions) = (pixels.element(), pixels.shape());
    if is != wanted || dimensions.dimensions().len() != 2 || pixels.packing() == Packing::Lz4Block {
        let (is, shape) = (is.name(), dimensions.dimensions());
        return Err(format!(
            "a table of {is} with shape {shape:?} was received where a two-dimensional table of {} is expected",
            wanted.name()
        ));
    }
    Ok(shared(part, pixels))
}
