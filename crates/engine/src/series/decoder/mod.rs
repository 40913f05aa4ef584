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
mod options;
mod parts;
mod sls_json;
mod stins;
mod tables;

pub(crate) use facts::KEV_ANGSTROM;
pub use options::DecoderOptions;

use super::event::Decoder;
use konkordia_core::series::Protocol;
use konkordia_wire::stream::Bounds;

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
