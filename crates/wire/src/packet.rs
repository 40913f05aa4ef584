//! What the receiver needs to know of a packet, whatever its format, and what a format has to provide for it.
//!
//! Facts relied on: a tile is one or more sections of equal length ([`TileFormat::sections`]). The bytes of a section
//! are divided into payloads of one size ([`TileFormat::payload_bytes`]), of which only the last may be shorter. So the
//! number of a packet says which bytes of the tile it brings ([`TileFormat::bytes_of`]), and the arrival bitmap shows
//! which bytes came.

use konkordia_core::frame_header::{FrameColumn, FrameHeader};
use konkordia_core::ledger::Malformed;
use konkordia_core::pages::PagePlace;
use konkordia_core::setup::{HeaderFields, Port};
use konkordia_core::tile::{DetectorKind, TileFormat};

/// A packet of a tile. Only decoders make one, after their checks: the packet lies in the tile, and its payload has the
/// length that this packet of the tile has.
#[derive(Clone, Copy, Debug)]
pub struct TilePacket<'a> {
    pub(crate) datagram: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) frame_number: u64,
    pub(crate) number: u32,
    pub(crate) packet: u16,
    pub(crate) port: Port,
    pub(crate) brings_header: bool,
    pub(crate) is_last: bool,
    pub(crate) is_apart: bool,
    pub(crate) place: Option<PagePlace>,
}

impl<'a> TilePacket<'a> {
    /// Number of the frame; of its page if the packet says no more ([`Self::place`]).
    #[inline]
    pub fn frame_number(&self) -> u64 {
        self.frame_number
    }

    /// Where it stands among the pages of its sender, if it says only the page of its frame, and not the frame.
    #[inline]
    pub fn place(&self) -> Option<PagePlace> {
        self.place
    }

    /// The packet with the frame that its place means.
    #[inline]
    pub fn of_frame(self, frame_number: u64) -> Self {
        Self { frame_number, ..self }
    }

    /// Index of the packet in the tile, below the number of its packets.
    #[inline]
    pub fn packet(&self) -> u16 {
        self.packet
    }

    /// Number of the packet as it says it.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The part of the detector from which the packet says that it comes; all zero in formats that do not say it.
    #[inline]
    pub fn port(&self) -> Port {
        self.port
    }

    /// All bytes; without the payload if that lies apart.
    #[inline]
    pub fn datagram(&self) -> &'a [u8] {
        self.datagram
    }

    /// True if the payload lies apart, where the source has written it ([`Decoder::decode_head`]).
    #[inline]
    pub fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Its part of the bytes of the tile; empty if it lies apart.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// True if this packet brings the header of the frame and most packets of the tile do not have it. The tile then
    /// gets its header when this packet is placed; where all packets have it, with the first one.
    #[inline]
    pub fn brings_header(&self) -> bool {
        self.brings_header
    }

    /// True if the packet is the last one of its tile.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.is_last
    }
}

/// What a datagram says of itself although it is no packet of the tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Number of the frame.
    pub frame_number: u64,
    /// The part of the detector.
    pub port: Port,
    /// What identifies the detector.
    pub fields: HeaderFields,
}

/// What must be known of a format apart from its packets.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// The detectors that send it: the type of the detector in the configuration chooses the format. Empty if it
    /// carries the frames of any detector.
    pub kinds: &'static [DetectorKind],
    /// Bytes of a datagram beside its payload.
    pub overhead_bytes: u32,
    /// The version that is understood, in formats that have versions; else 0.
    pub version: u8,
    /// The columns that it brings to the file.
    pub columns: &'static [FrameColumn],
    /// The field of a header that holds flags of the detector, by which frames can be selected.
    pub flags: Option<usize>,
    /// A datagram is a head of `overhead_bytes`, which says everything of the packet, and then the payload. Sources can
    /// then write the payload where it belongs ([`Decoder::decode_head`]).
    pub has_head: bool,
}

/// A format of packets. `crates/wire/src/formats.rs` lists all of them.
///
/// The functions are called for each datagram, on the thread that receives: they neither allocate nor wait, and they
/// read only the datagram.
pub trait Decoder {
    /// The format.
    const DESCRIPTION: Description;

    /// Checks `datagram` against the tile of the stream that it came from ([`TileFormat::of_tile`]).
    ///
    /// # Errors
    /// The first check that fails.
    fn decode<'a>(datagram: &'a [u8], tile: &TileFormat) -> Result<TilePacket<'a>, Malformed>;

    /// As [`Self::decode`], with the same answer, for a datagram whose payload of `payload_bytes` lies apart. Formats
    /// without a head ([`Description::has_head`]) are never asked.
    ///
    /// # Errors
    /// As of [`Self::decode`].
    fn decode_head<'a>(head: &'a [u8], payload_bytes: usize, tile: &TileFormat) -> Result<TilePacket<'a>, Malformed> {
        let _ = (head, payload_bytes, tile);
        Err(Malformed::Length)
    }

    /// What a datagram says that [`Self::decode`] has refused; `None` if it is too short to say anything.
    fn claims(datagram: &[u8]) -> Option<Claims>;

    /// The header of the frame of a packet, as far as this packet says it.
    fn header(packet: &TilePacket<'_>) -> FrameHeader;

    /// The number that the format has for this kind of detector; 0 in formats that have none.
    fn detector_type(_kind: DetectorKind) -> u8 {
        0
    }
}

/// The bytes of one field; its range is inside `bytes`, whose length was checked.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], range: std::ops::Range<usize>) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[range]);
    field
}
