//! The decoder and the encoder of each protocol of messages, one line for each. `konkordia_core::protocol` has their
//! names and what they can carry.

use crate::message::{DecoderSetup, MessageDecoder};
use crate::{dectris_v1, dectris_v2, files, sls_json, stins};
use konkordia_core::ports::{MessageEncoder, PixelUnpacker};
use konkordia_core::protocol::Protocol;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

macro_rules! protocols {
    (@encoder $unpacker:ident) => { None };
    (@encoder $unpacker:ident $encoder:ty) => { Some(Box::new(<$encoder>::new($unpacker))) };
    ($($protocol:ident: $decoder:ty $(, $encoder:ty)?;)+) => {
        /// A decoder of messages of `protocol` for one upstream. It remembers nothing of a series, except in protocols
        /// that do not say where one begins.
        pub fn decoder(protocol: Protocol, setup: DecoderSetup) -> Box<dyn MessageDecoder> {
            match protocol {
                $(Protocol::$protocol => Box::new(<$decoder>::new(setup)),)+
            }
        }

        /// An encoder of this protocol for one consumer; `None` if it is none of [`Protocol::OUTGOING`].
        pub fn encoder(protocol: Protocol, unpacker: Box<dyn PixelUnpacker>) -> Option<Box<dyn MessageEncoder>> {
            match protocol {
                $(Protocol::$protocol => protocols!(@encoder unpacker $($encoder)?),)+
            }
        }
    };
}

protocols! {
    Stins: stins::Decoder, stins::Encoder;
    DectrisV1: dectris_v1::Decoder;
    DectrisV2: dectris_v2::decode::Decoder, dectris_v2::encode::Encoder;
    SlsJson: sls_json::Decoder, sls_json::Encoder;
    Files: files::Decoder;
}

/// Bytes of a first part that is looked into to find its protocol.
const LOOKED_AT_MAX: usize = 1 << 20;

/// What tells the protocols that begin with JSON from each other.
#[derive(Deserialize)]
struct Marks<'a> {
    #[serde(borrow)]
    htype: Option<Cow<'a, str>>,
    jsonversion: Option<IgnoredAny>,
}

/// The protocol that a message seems to have, by the first bytes of CBOR or by keys of its JSON. Whether it is a
/// message of this protocol only the decoder says.
pub fn of_message(parts: &[&[u8]]) -> Option<Protocol> {
    let first = *parts.first()?;
    // The tag of self-described CBOR, or a map. No JSON object begins so.
    if first.starts_with(&[0xD9, 0xD9, 0xF7]) || first.first().is_some_and(|byte| byte >> 5 == 5) {
        return Some(Protocol::DectrisV2);
    }
    let marks: Marks = serde_json::from_slice(first.get(..LOOKED_AT_MAX.min(first.len()))?).ok()?;
    match marks.htype.as_deref() {
        Some("header" | "image" | "series_end") => Some(Protocol::Stins),
        Some(kind) if kind.starts_with('d') && kind.ends_with("-1.0") => Some(Protocol::DectrisV1),
        Some(_) => None,
        None => marks.jsonversion.map(|_| Protocol::SlsJson),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_tell_their_protocol() {
        for (first, protocol) in [
            (&br#"{"htype":"series_end","msg_number":1}"#[..], Some(Protocol::Stins)),
            (br#"{"header_detail":"none","htype":"dheader-1.0","series":1}"#, Some(Protocol::DectrisV1)),
            (br#"{"jsonversion":5,"bitmode":16}"#, Some(Protocol::SlsJson)),
            (&[0xD9, 0xD9, 0xF7, 0xA1], Some(Protocol::DectrisV2)),
            (&[0xA1, 0x64], Some(Protocol::DectrisV2)),
            (br#"{"htype":"other"}"#, None),
            (br#"{"htype":7}"#, None),
            (br#"{"a":1}"#, None),
            (b"[]", None),
            (b"", None),
        ] {
            assert_eq!(of_message(&[first]), protocol, "{:?}", String::from_utf8_lossy(first));
        }
        assert_eq!(of_message(&[]), None);
    }
}
