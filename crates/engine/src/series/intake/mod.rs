//! Messages in: what each protocol's messages mean, one file per protocol. Pixels are shared with the message, except where the protocol packs them in
//! a way that nobody downstream knows.

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
use super::event::{Event, Intake, Read};
use bytes::Bytes;
use konkordia_core::ports::Message;
use konkordia_core::series::Array;
use konkordia_wire::stream::{Bounds, Packing, Pixels, Refusal};

/// What is peculiar to the messages of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntakeOptions {
    /// STINS: the upstream brings one of so many pieces of every image, and may describe the whole image; 0 or 1 = it brings all of it.
    pub pieces: u64,
    /// STINS: the pixels are a whole CBF file.
    pub pixels_are_cbf: bool,
    /// Pixels that are missing between chips of 256 columns; they are put in between as *masked*. 0 = images come as they are.
    pub chip_gap_px: u32,
    /// Of DECTRIS's streams: what is told of a series is what the receiver of MAX IV tells, in its words, and the turn that a header asks for is made.
    pub is_maxiv: bool,
}

/// A reader of messages of `protocol` for one upstream. It remembers nothing but the series of protocols that do not say where one begins.
pub fn intake(protocol: Protocol, bounds: Bounds) -> Box<dyn Intake> {
    intake_with(protocol, bounds, IntakeOptions::default())
}

/// As [`intake`], for an upstream with peculiarities.
pub fn intake_with(protocol: Protocol, bounds: Bounds, options: IntakeOptions) -> Box<dyn Intake> {
    let inner = plain(protocol, bounds, options);
    if options.chip_gap_px == 0 { inner } else { Box::new(gaps::Gaps::new(inner, options.chip_gap_px, bounds)) }
}

fn plain(protocol: Protocol, bounds: Bounds, options: IntakeOptions) -> Box<dyn Intake> {
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

/// The same refusal as of another part.
fn of_part(part: usize) -> impl Fn(Refusal) -> Refusal {
    move |refusal| Refusal { part, ..refusal }
}

/// What is told of a table that cannot be used: the series goes on without.
fn table_warning(kind: &str, why: &str) -> String {
    format!("the header's table '{kind}' is not used, and the series goes on without it: {why}")
}

/// A table of a detector, or why it is none: it is not what tables of its kind are.
fn table(part: &Bytes, pixels: &Pixels, wanted: konkordia_core::array::Element) -> Result<Array, String> {
    let (is, dimensions) = (pixels.element(), pixels.shape());
    if is != wanted || dimensions.dimensions().len() != 2 || pixels.packing() == Packing::Lz4Block {
        let (is, shape) = (is.name(), dimensions.dimensions());
        return Err(format!(
            "a table of {is} with shape {shape:?} came where rows and columns of {} are expected",
            wanted.name()
        ));
    }
    Ok(shared(part, pixels))
}
