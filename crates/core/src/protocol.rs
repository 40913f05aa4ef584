//! The protocols of messages, one entry for each: names, what a series consists of, and what consumers can get in it.
//! `konkordia_wire::protocols` has the decoder and the encoder of each.

use crate::array::{Element, Packing};

/// What is known of a protocol before any message comes.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolFacts {
    /// Name in reports, and of a consumer's protocol in configurations.
    pub name: &'static str,
    /// Name under `[source]` in configurations.
    pub source_name: &'static str,
    /// True if a series begins with a message of its own; otherwise it begins with its first image.
    pub has_start: bool,
    /// True if a series ends with a message of its own.
    pub has_end: bool,
    /// True if messages are numbered over the life of their sender.
    pub has_message_numbers: bool,
    /// What consumers can get in it; `None` if no message of it is sent.
    pub outgoing: Option<Carried>,
}

/// What the messages of a protocol can carry to consumers.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// Types of pixels. `mono12p` is sent as uint16 where it is not among them.
    pub elements: &'static [Element],
    /// Why it cannot carry others, as a text for the user.
    pub why: &'static str,
    /// The values of `dtype` in `[processing]` that it can carry, as a text for the user.
    pub dtypes: &'static str,
    /// How pixels may be packed. They are unpacked where they are packed otherwise.
    pub packings: &'static [Packing],
}

/// Whole numbers of 8, 16 and 32 bits.
const WHOLE_TO_32_BITS: &[Element] =
    &[Element::Uint8, Element::Uint16, Element::Uint32, Element::Int8, Element::Int16, Element::Int32];

macro_rules! protocols {
    ($($(#[doc = $doc:literal])+ $protocol:ident: $facts:expr;)+) => {
        /// The protocol of messages, from a detector or to a consumer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Protocol {
            $($(#[doc = $doc])+ $protocol,)+
        }

        impl Protocol {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$protocol),+];

            /// What is known of the protocol.
            pub const fn facts(self) -> ProtocolFacts {
                match self {
                    $(Self::$protocol => $facts,)+
                }
            }
        }
    };
}

protocols! {
    /// STINS, the streams of MAX IV.
    Stins: ProtocolFacts {
        name: "stins",
        source_name: "stins",
        has_start: true,
        has_end: true,
        has_message_numbers: true,
        outgoing: Some(Carried {
            elements: &Element::ALL,
            why: "",
            dtypes: "",
            packings: &[Packing::None, Packing::BitshuffleLz4],
        }),
    };
    /// DECTRIS Stream V1 (JSON).
    DectrisV1: ProtocolFacts {
        name: "stream1",
        source_name: "stream1",
        has_start: true,
        has_end: true,
        has_message_numbers: false,
        outgoing: None,
    };
    /// DECTRIS Stream V2 (CBOR).
    DectrisV2: ProtocolFacts {
        name: "stream2",
        source_name: "stream2",
        has_start: true,
        has_end: true,
        has_message_numbers: false,
        outgoing: Some(Carried {
            elements: WHOLE_TO_32_BITS,
            why: "images of Stream V2 are whole numbers of 8, 16 and 32 bits",
            dtypes: "\"uint16\" or \"uint32\"",
            packings: &[Packing::None, Packing::BitshuffleLz4, Packing::Lz4],
        }),
    };
    /// JSON of the SLS receivers.
    SlsJson: ProtocolFacts {
        name: "sls",
        source_name: "sls",
        has_start: false,
        has_end: true,
        has_message_numbers: false,
        outgoing: Some(Carried {
            elements: WHOLE_TO_32_BITS,
            why: "the SLS stream has whole numbers of 8, 16 and 32 bits",
            dtypes: "\"int16\", \"int32\", \"uint16\" or \"uint32\"",
            packings: &[Packing::None],
        }),
    };
    /// Files of a folder: the first part of a message is the name, the second the content.
    Files: ProtocolFacts {
        name: "files",
        source_name: "directory",
        has_start: false,
        has_end: false,
        has_message_numbers: false,
        outgoing: None,
    };
}

/// How many of them are sent to consumers.
const OUTGOING_COUNT: usize = {
    let (mut n, mut count) = (0, 0);
    while n < Protocol::ALL.len() {
        count += Protocol::ALL[n].facts().outgoing.is_some() as usize;
        n += 1;
    }
    count
};

impl Protocol {
    /// Those in which consumers can get images.
    pub const OUTGOING: [Self; OUTGOING_COUNT] = {
        let mut outgoing = [Self::ALL[0]; OUTGOING_COUNT];
        let (mut n, mut count) = (0, 0);
        while n < Self::ALL.len() {
            if Self::ALL[n].facts().outgoing.is_some() {
                outgoing[count] = Self::ALL[n];
                count += 1;
            }
            n += 1;
        }
        outgoing
    };

    /// The names of [`Self::OUTGOING`].
    pub const OUTGOING_NAMES: [&str; OUTGOING_COUNT] = {
        let mut names = [""; OUTGOING_COUNT];
        let mut n = 0;
        while n < OUTGOING_COUNT {
            names[n] = Self::OUTGOING[n].name();
            n += 1;
        }
        names
    };

    /// All names under `[source]`.
    pub const SOURCE_NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut n = 0;
        while n < names.len() {
            names[n] = Self::ALL[n].facts().source_name;
            n += 1;
        }
        names
    };

    /// Name in reports, and of a consumer's protocol in configurations.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The protocol of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protocol| protocol.name() == name)
    }

    /// The protocol of this name under `[source]`.
    pub fn of_source(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protocol| protocol.facts().source_name == name)
    }

    /// True if a series begins with a message of its own; otherwise it begins with its first image.
    pub const fn has_start(self) -> bool {
        self.facts().has_start
    }

    /// True if a series ends with a message of its own.
    pub const fn has_end(self) -> bool {
        self.facts().has_end
    }

    /// True if messages are numbered over the life of their sender.
    pub const fn has_message_numbers(self) -> bool {
        self.facts().has_message_numbers
    }

    /// How pixels that are sent in it may be packed; empty if nothing is sent in it.
    pub const fn packings(self) -> &'static [Packing] {
        match self.facts().outgoing {
            Some(carried) => carried.packings,
            None => &[],
        }
    }

    /// What the protocol can carry, if it cannot carry images of this type; `None` if it can, or if nothing is sent in
    /// it.
    pub fn refuses(self, element: Element) -> Option<Carried> {
        self.facts().outgoing.filter(|carried| !carried.elements.contains(&element))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_protocols() {
        for &protocol in Protocol::ALL {
            assert_eq!(Protocol::from_name(protocol.name()), Some(protocol));
            assert_eq!(Protocol::of_source(protocol.facts().source_name), Some(protocol));
        }
        assert_eq!((Protocol::from_name("directory"), Protocol::of_source("files")), (None, None));
        assert_eq!(Protocol::SOURCE_NAMES, ["stins", "stream1", "stream2", "sls", "directory"]);
        assert_eq!(Protocol::OUTGOING_NAMES, ["stins", "stream2", "sls"]);
    }

    #[test]
    fn what_cannot_be_carried_has_a_reason() {
        for protocol in Protocol::OUTGOING {
            let carried = protocol.facts().outgoing.unwrap();
            // Pixels can always be unpacked.
            assert!(carried.packings.contains(&Packing::None), "{protocol:?}");
            let is_all = Element::ALL.iter().all(|element| carried.elements.contains(element));
            assert_eq!(carried.why.is_empty(), is_all, "{protocol:?}");
            assert_eq!(carried.dtypes.is_empty(), is_all, "{protocol:?}");
        }
        assert!(Protocol::SlsJson.refuses(Element::Float32).is_some() && Protocol::SlsJson.refuses(Element::Int32).is_none());
        assert!(Protocol::Stins.refuses(Element::Float64).is_none() && Protocol::DectrisV1.refuses(Element::Float64).is_none());
    }
}
