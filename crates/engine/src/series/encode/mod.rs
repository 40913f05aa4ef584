//! Encoders of messages to other programs, one file per protocol. An encoder serves one consumer; pixels are shared
//! with the image wherever the protocol has parts of its own for them.

mod dectris_v2;
mod pixels;
mod sls_json;
mod stins;

pub use pixels::Unpacker;

use konkordia_core::array::Element;
use konkordia_core::ports::MessageEncoder;
use konkordia_core::series::Protocol;

/// An encoder of this protocol; `None` if it is none of [`Protocol::OUTGOING`].
pub fn encoder(protocol: Protocol) -> Option<Box<dyn MessageEncoder>> {
    match protocol {
        Protocol::Stins => Some(Box::new(stins::Stins::default())),
        Protocol::DectrisV2 => Some(Box::new(dectris_v2::DectrisV2::default())),
        Protocol::SlsJson => Some(Box::new(sls_json::SlsJson::default())),
        Protocol::DectrisV1 | Protocol::Files => None,
    }
}

/// Why the protocol cannot carry images of this type, and the types that it can carry; `None` if it can.
pub const fn refuses(protocol: Protocol, element: Element) -> Option<(&'static str, &'static str)> {
    let is_float = matches!(element, Element::Float32 | Element::Float64);
    let is_wide = matches!(element, Element::Int64 | Element::Uint64);
    match protocol {
        Protocol::SlsJson if is_float || is_wide => {
            Some(("the SLS stream has whole numbers of 8, 16 and 32 bits", "\"int16\", \"int32\", \"uint16\" or \"uint32\""))
        }
        Protocol::DectrisV2 if is_float || is_wide => {
            Some(("images of Stream V2 are whole numbers of 8, 16 and 32 bits", "\"uint16\" or \"uint32\""))
        }
        _ => None,
    }
}
