//! Encoders of messages to other programs, one file per protocol. An encoder serves one consumer; pixels are shared
//! with the image wherever the protocol has parts of its own for them.

mod dectris_v2;
mod pixels;
mod sls_json;
mod stins;

use konkordia_core::array::Element;
use konkordia_core::ports::MessageEncoder;

/// The protocol of messages to consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outgoing {
    /// STINS, the streams of MAX IV.
    Stins,
    /// DECTRIS Stream V2 (CBOR).
    DectrisV2,
    /// JSON of the SLS receivers, version 5.
    SlsJson,
}

impl Outgoing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stins, Self::DectrisV2, Self::SlsJson];

    /// Name in configurations and reports, the same as for incoming messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stins => "stins",
            Self::DectrisV2 => "stream2",
            Self::SlsJson => "sls",
        }
    }

    /// Why the protocol cannot carry images of this type, and the types that it can carry; `None` if it can.
    pub const fn refuses(self, element: Element) -> Option<(&'static str, &'static str)> {
        let is_float = matches!(element, Element::Float32 | Element::Float64);
        let is_wide = matches!(element, Element::Int64 | Element::Uint64);
        match self {
            Self::SlsJson if is_float || is_wide => {
                Some(("the SLS stream has whole numbers of 8, 16 and 32 bits", "\"int16\", \"int32\", \"uint16\" or \"uint32\""))
            }
            Self::DectrisV2 if is_float || is_wide => {
                Some(("images of Stream V2 are whole numbers of 8, 16 and 32 bits", "\"uint16\" or \"uint32\""))
            }
            _ => None,
        }
    }

    /// The protocol of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}

/// An encoder of this protocol.
pub fn encoder(protocol: Outgoing) -> Box<dyn MessageEncoder> {
    match protocol {
        Outgoing::Stins => Box::new(stins::Stins::default()),
        Outgoing::DectrisV2 => Box::new(dectris_v2::DectrisV2::default()),
        Outgoing::SlsJson => Box::new(sls_json::SlsJson::default()),
    }
}
