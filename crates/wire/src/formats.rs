//! The packet formats that can be received, one line for each. A run chooses one when it is armed. For each datagram
//! there is one call that the processor predicts: a branch on the format, and then the decoder itself, in line.

use crate::excalibur::Excalibur;
use crate::packet::{Claims, Decoder, Description, TilePacket};
use crate::roce_frames::RoceFrames;
use crate::sls_udp::SlsUdp;
use crate::xfel_train::XfelTrain;
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::ledger::Malformed;
use konkordia_core::tile::{DetectorKind, TileFormat};

macro_rules! packet_formats {
    ($($decoder:ident: $what:literal),+ $(,)?) => {
        /// A packet format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PacketFormat {
            $(#[doc = $what] $decoder,)+
        }

        impl PacketFormat {
            /// All formats.
            pub const ALL: &[Self] = &[$(Self::$decoder),+];

            /// What is known of the format.
            pub const fn description(self) -> Description {
                match self {
                    $(Self::$decoder => <$decoder as Decoder>::DESCRIPTION,)+
                }
            }

            /// As [`Decoder::decode`].
            ///
            /// # Errors
            /// The first check that fails.
            #[inline]
            pub fn decode<'a>(self, datagram: &'a [u8], tile: &TileFormat) -> Result<TilePacket<'a>, Malformed> {
                match self {
                    $(Self::$decoder => $decoder::decode(datagram, tile),)+
                }
            }

            /// As [`Decoder::decode_head`].
            ///
            /// # Errors
            /// The first check that fails.
            #[inline]
            pub fn decode_head<'a>(
                self,
                head: &'a [u8],
                payload_bytes: usize,
                tile: &TileFormat,
            ) -> Result<TilePacket<'a>, Malformed> {
                match self {
                    $(Self::$decoder => $decoder::decode_head(head, payload_bytes, tile),)+
                }
            }

            /// As [`Decoder::claims`].
            pub fn claims(self, datagram: &[u8]) -> Option<Claims> {
                match self {
                    $(Self::$decoder => $decoder::claims(datagram),)+
                }
            }

            /// As [`Decoder::header`].
            pub fn header(self, packet: &TilePacket<'_>) -> FrameHeader {
                match self {
                    $(Self::$decoder => $decoder::header(packet),)+
                }
            }

            /// As [`Decoder::detector_type`].
            pub fn detector_type(self, kind: DetectorKind) -> u8 {
                match self {
                    $(Self::$decoder => $decoder::detector_type(kind),)+
                }
            }
        }
    };
}

packet_formats! {
    SlsUdp: "Packets of SLS detectors (`sls_udp.rs`).",
    XfelTrain: "Trains of European XFEL (`xfel_train.rs`).",
    Excalibur: "Packets of EXCALIBUR (`excalibur.rs`).",
    RoceFrames: "Frames written by RoCEv2 (`roce_frames.rs`).",
}

impl PacketFormat {
    /// The format in which tiles of this form come.
    pub fn of(tile: &TileFormat) -> Self {
        if tile.remote.is_some() { Self::RoceFrames } else { Self::of_kind(tile.kind) }
    }

    /// The format that a detector sends.
    ///
    /// # Panics
    /// Never: a test shows that each kind of detector has one.
    fn of_kind(kind: DetectorKind) -> Self {
        let sends = |format: &&Self| format.description().kinds.contains(&kind);
        *Self::ALL.iter().find(sends).expect("each kind of detector has a format")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::frame_header::{ColumnValue, FIELDS_MAX};

    #[test]
    fn each_kind_of_detector_has_one_format() {
        for kind in DetectorKind::ALL {
            let formats = PacketFormat::ALL.iter().filter(|format| format.description().kinds.contains(&kind)).count();
            assert_eq!(formats, 1, "{}", kind.name());
            assert!(PacketFormat::of_kind(kind).description().kinds.contains(&kind));
        }
    }

    #[test]
    fn columns_have_distinct_names_and_fields_that_exist() {
        for format in PacketFormat::ALL {
            let Description { columns, flags, .. } = format.description();
            for (n, column) in columns.iter().enumerate() {
                assert!(columns[..n].iter().all(|other| other.name != column.name && other.value != column.value));
                assert!(!matches!(column.value, ColumnValue::Field(field) if field >= FIELDS_MAX), "{}", column.name);
                assert!(!column.meaning.is_empty() && !column.meaning.contains('\n'), "{}", column.name);
            }
            assert!(flags.is_none_or(|field| field < FIELDS_MAX));
        }
    }
}
