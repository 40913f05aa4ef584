//! A program as data: what is written in TOML, or made in Rust. Nothing here is checked; [`Program::compile`] does.

use super::problem::{Finder, Problem, Problems, line_of};
use konkordia_core::MAX_PACKETS_PER_TILE;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Frames that a store has room for.
pub const SLOTS_MAX: u32 = 4096;
/// Bytes of a frame: as many as an image of 64 Mpixel with 4 bytes each.
pub const SLOT_BYTES_MAX: u64 = 4 * konkordia_core::geometry::MAX_IMAGE_PIXELS;
/// Bytes of a store.
pub const STORE_BYTES_MAX: u64 = 1 << 40;
/// Bytes of a header.
pub const HEADER_BYTES_MAX: u32 = 256;
/// Tiles of a frame: as many as the slsReceiver has ports.
pub const TILES_MAX: usize = 1024;
/// Addresses that one header has: lines of a packet that do not adjoin in the image (EIGER has 16 at 4 bit).
pub const SEGMENTS_MAX: usize = 16;
/// Terms of an address.
pub const TERMS_MAX: usize = 8;
/// Patterns that take turns from packet to packet.
pub const PATTERNS_MAX: usize = MAX_PACKETS_PER_TILE;
/// Values that a header must have.
pub const REQUIRED_MAX: usize = 8;
/// Bytes of the text of a program.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Where the packets of a detector go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name, for people.
    pub name: String,
    /// Frames that the store has room for; a power of two. Frame n lies in slot n mod `slots`.
    pub slots: u32,
    /// Bytes from one slot to the next.
    pub slot_bytes: u64,
    /// Bytes of the store before slot 0.
    #[serde(default)]
    pub base_bytes: u64,
    /// Frames that a tile may be behind the newest frame of any tile before its missing packets are given up; at most
    /// `slots`.
    pub window_frames: u32,
    /// Type of a pixel, for the value of missing ones (`konkordia_core::pixel`): `uint8`, `uint16`, `uint32`, ...
    /// Without it, missing pixels are bytes of 0xFF, as in files of the slsReceiver.
    #[serde(default)]
    pub pixel: Option<String>,
    /// Layouts of headers, by name.
    pub headers: BTreeMap<String, Header>,
    /// Which bytes of a packet go where, by name.
    pub places: BTreeMap<String, Places>,
    /// The tiles of a frame: one for each {port, module}.
    pub tiles: Vec<Tile>,
}

/// The header of a packet, and how many packets a tile has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Bytes of the header.
    pub bytes: u32,
    /// Bytes behind the header; a datagram of another length is refused.
    pub payload_bytes: u32,
    /// Packets of a tile, 1 to 512.
    pub packets: u32,
    /// Number that the first packet has.
    #[serde(default)]
    pub first_packet: u32,
    /// Number of the frame. Numbers that wrap are continued, so a key of 48 bits is enough for ever.
    pub frame: Key,
    /// Number of the packet.
    pub packet: Key,
    /// Number of the module, where tiles are told apart by it.
    #[serde(default)]
    pub module: Option<Key>,
    /// Values that a packet must have, for example the version of its header.
    #[serde(default)]
    pub require: Vec<Require>,
}

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endian {
    /// The lowest byte first.
    #[default]
    Little,
    /// The highest byte first: network order.
    Big,
}

/// A number in the header: `(number & mask) >> shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// First byte in the header.
    pub offset: u32,
    /// Bytes, 1 to 8.
    pub bytes: u32,
    /// Order of the bytes.
    #[serde(default)]
    pub endian: Endian,
    /// Bits that count; `None` = all.
    #[serde(default)]
    pub mask: Option<u64>,
    /// Bits below the lowest one that counts.
    #[serde(default)]
    pub shift: u32,
}

/// A value that the header must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Require {
    /// First byte in the header.
    pub offset: u32,
    /// Bytes, 1 to 8.
    pub bytes: u32,
    /// Order of the bytes.
    #[serde(default)]
    pub endian: Endian,
    /// Bits that count; `None` = all.
    #[serde(default)]
    pub mask: Option<u64>,
    /// The bits that count must be these.
    pub value: u64,
}

impl Require {
    /// The number that is compared.
    pub(super) fn key(&self) -> Key {
        Key { offset: self.offset, bytes: self.bytes, endian: self.endian, mask: self.mask, shift: 0 }
    }
}

/// Which bytes of the packets of a tile go where. Bytes count from the place that the tile has in the slot, and may lie
/// before it (lines of an upper half module, which go upwards).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// The header of these packets.
    pub header: String,
    /// The address of packet p is the sum of them.
    #[serde(default)]
    pub terms: Vec<Term>,
    /// The segments of packet p are those of pattern p mod (number of patterns). One pattern as a rule; pixels that
    /// cross packets need more.
    pub patterns: Vec<Vec<Segment>>,
}

/// `(p div divide) x multiply`, or `((p div divide) mod modulo) x multiply`, for packet p from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// At least 1.
    #[serde(default = "one")]
    pub divide: u32,
    /// At least 1.
    #[serde(default)]
    pub modulo: Option<u32>,
    /// Bytes; may be below 0.
    pub multiply: i64,
}

const fn one() -> u32 {
    1
}

impl Term {
    /// Bytes that the term adds for packet `packet`; `None` if they overflow or the term divides by 0.
    pub(super) fn of(&self, packet: u32) -> Option<i64> {
        let turns = packet.checked_div(self.divide)?;
        let turns = if let Some(modulo) = self.modulo { turns.checked_rem(modulo)? } else { turns };
        i64::from(turns).checked_mul(self.multiply)
    }
}

/// Bytes of a packet that lie together in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// First byte in the payload.
    pub source: u32,
    /// First byte from the address of the packet on; may be below 0.
    pub destination: i64,
    /// Number of bytes.
    pub bytes: u32,
}

/// One tile of a frame: what one stream sends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// UDP port to which its packets go; `None` = every port that no other tile names.
    #[serde(default)]
    pub port: Option<u16>,
    /// Number of the module in its headers; `None` = any.
    #[serde(default)]
    pub module: Option<u64>,
    /// Where its packets go.
    pub places: String,
    /// Its place in the slot, in bytes.
    pub offset: u64,
}

impl Program {
    /// Reads a program. The form is right afterwards; whether its numbers are, [`Program::compile`] says.
    ///
    /// # Errors
    /// The text is no TOML, a key is missing, unknown or of the wrong type; with the line.
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        if text.len() > TEXT_BYTES_MAX {
            let what = format!("the text has {} bytes, at most {TEXT_BYTES_MAX} are read", text.len());
            let mut finder = Finder::new(None);
            finder.add(&[], what, "divide the detector into several programs");
            finder.finish()?;
        }
        toml::from_str(text).map_err(|error| {
            let what = error.message().lines().collect::<Vec<_>>().join(" ");
            let line = error.span().map(|span| line_of(text, span.start));
            let fix = "correct this line; docs/bridge.md lists the keys".to_string();
            Problems(vec![Problem { line, place: String::new(), what, fix }])
        })
    }
}
