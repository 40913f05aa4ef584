//! The checked interpreter: the address of each packet, from tables that were made before.

use super::program::{Endian, Term};
use konkordia_core::pixel::PixelType;
use konkordia_kernels::Isa;
use konkordia_kernels::placement::{Segment, place};

/// Why a datagram has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No tile has this port, or this number of a module at this port.
    Unknown,
    /// The datagram is not a header and a payload of the length that its tile has.
    Length,
    /// The header does not have a value that is required.
    Required,
    /// The tile has no packet of this number.
    PacketNumber,
}

/// Where a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the tile in the program.
    pub tile: u16,
    /// Packet of the tile, from 0.
    pub packet: u16,
    /// The number of the frame as the key gives it.
    pub frame: u64,
}

/// A number of the header, ready to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyKey {
    pub offset: usize,
    pub bytes: usize,
    pub endian: Endian,
    pub mask: u64,
    pub shift: u32,
}

impl ReadyKey {
    /// The number; 0 where the header is too short, which the length check excludes.
    #[inline]
    pub(super) fn read(&self, datagram: &[u8]) -> u64 {
        // As a rule 8 bytes can be read at once: the payload follows.
        let Some(bytes) = datagram.get(self.offset..).and_then(|rest| rest.first_chunk::<8>()) else {
            return self.read_short(datagram);
        };
        let number = match self.endian {
            Endian::Little => u64::from_le_bytes(*bytes),
            Endian::Big => u64::from_be_bytes(*bytes) >> (64 - 8 * self.bytes),
        };
        // The mask has no bits beyond the bytes of the key.
        (number & self.mask) >> self.shift
    }

    /// As [`Self::read`], at the end of a datagram.
    #[cold]
    fn read_short(&self, datagram: &[u8]) -> u64 {
        let Some(bytes) = datagram.get(self.offset..self.offset + self.bytes) else { return 0 };
        let from_highest = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = match self.endian {
            Endian::Little => bytes.iter().rev().fold(0, from_highest),
            Endian::Big => bytes.iter().fold(0, from_highest),
        };
        (number & self.mask) >> self.shift
    }

    /// Bits that the number has.
    pub(super) fn bits(&self) -> u32 {
        64 - (self.mask >> self.shift).leading_zeros()
    }
}

/// A header, ready to be read.
#[derive(Clone, Debug)]
pub(super) struct ReadyHeader {
    pub bytes: usize,
    pub datagram_bytes: usize,
    pub packets: u16,
    pub first_packet: u64,
    pub frame: ReadyKey,
    pub packet: ReadyKey,
    pub module: Option<ReadyKey>,
    pub require: Vec<(ReadyKey, u64)>,
}

/// Bytes of a datagram and where they go, from the place of the tile on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// First byte in the datagram.
    pub source: u32,
    pub bytes: u32,
    pub destination: i64,
}

/// The pieces of all packets, one after the other.
#[derive(Clone, Debug)]
pub(super) struct ReadyPlaces {
    /// First piece of each packet, and one past the last piece.
    pub starts: Vec<u32>,
    pub pieces: Vec<Piece>,
    /// Sum of the terms of each packet.
    pub origins: Vec<i64>,
    /// The terms themselves.
    pub terms: Vec<Term>,
}

/// A tile, ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyTile {
    pub port: Option<u16>,
    pub module: Option<u64>,
    pub header: usize,
    pub places: usize,
    pub offset: i64,
}

/// The tiles of one port.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyPort {
    pub port: Option<u16>,
    pub header: usize,
    /// Its tiles in [`AddressTable::by_module`].
    pub first: usize,
    pub count: usize,
    /// True if the header says which of them.
    pub by_module: bool,
}

/// What a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Bytes of a slot that packets write, each exactly once.
    pub written_bytes: u64,
    /// Bytes of a slot that no packet writes.
    pub gap_bytes: u64,
    /// Bytes of the payloads of a frame that go nowhere.
    pub unused_bytes: u64,
    /// Packets of a frame.
    pub packets: u64,
    /// Most addresses of one packet.
    pub segments_max: usize,
}

/// A compiled program: which packet goes where. No look-up allocates, panics, or takes a number of a packet as an index
/// before it is compared.
#[derive(Clone, Debug)]
pub struct AddressTable {
    pub(super) name: String,
    pub(super) slots: u32,
    pub(super) slot_bytes: u64,
    pub(super) base_bytes: u64,
    pub(super) window_frames: u32,
    pub(super) pixel: Option<PixelType>,
    pub(super) headers: Vec<ReadyHeader>,
    pub(super) places: Vec<ReadyPlaces>,
    pub(super) tiles: Vec<ReadyTile>,
    /// Sorted by port; the tiles of every other port first.
    pub(super) ports: Vec<ReadyPort>,
    /// Module and tile, sorted within each port.
    pub(super) by_module: Vec<(u64, u16)>,
    pub(super) coverage: Coverage,
}

impl AddressTable {
    /// Name of the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Frames that the store has room for; a power of two.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes from one slot to the next.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Bytes of the store.
    pub fn store_bytes(&self) -> u64 {
        self.base_bytes + u64::from(self.slots) * self.slot_bytes
    }

    /// Frames that may be incomplete at a time.
    pub fn window_frames(&self) -> u32 {
        self.window_frames
    }

    /// Type of a pixel, if the program says it.
    pub fn pixel(&self) -> Option<PixelType> {
        self.pixel
    }

    /// Tiles of a frame.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// Port and module by which tile `tile` is known.
    pub fn tile_match(&self, tile: usize) -> Option<(Option<u16>, Option<u64>)> {
        self.tiles.get(tile).map(|tile| (tile.port, tile.module))
    }

    /// Packets of tile `tile`; 0 if there is no such tile.
    pub fn packets(&self, tile: usize) -> u16 {
        self.header_of(tile).map_or(0, |header| header.packets)
    }

    /// Number that the first packet of tile `tile` has; 0 if there is no such tile.
    pub fn first_packet(&self, tile: usize) -> u64 {
        self.header_of(tile).map_or(0, |header| header.first_packet)
    }

    /// Bits of the number of a frame of tile `tile`.
    pub(super) fn frame_bits(&self, tile: usize) -> u32 {
        self.header_of(tile).map_or(64, |header| header.frame.bits())
    }

    /// The ports that the program names, in order.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().filter_map(|port| port.port)
    }

    /// Bytes of the longest datagram.
    pub fn datagram_bytes_max(&self) -> usize {
        self.headers.iter().map(|header| header.datagram_bytes).max().unwrap_or(0)
    }

    /// What the program writes.
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }

    pub(super) fn header_of(&self, tile: usize) -> Option<&ReadyHeader> {
        self.tiles.get(tile).and_then(|tile| self.headers.get(tile.header))
    }

    /// The address of a datagram that came to UDP port `port`.
    ///
    /// # Errors
    /// Why it has none: the first check that fails, in the order of [`Refusal`]; a module that no tile has is
    /// [`Refusal::Unknown`] and comes behind length and required values.
    #[inline]
    pub fn address(&self, port: u16, datagram: &[u8]) -> Result<Address, Refusal> {
        let entry = match self.ports.binary_search_by_key(&Some(port), |entry| entry.port) {
            Ok(found) => self.ports.get(found),
            // `None` is the smallest: the tiles of every other port.
            Err(_) => self.ports.first().filter(|entry| entry.port.is_none()),
        };
        let entry = entry.ok_or(Refusal::Unknown)?;
        let header = self.headers.get(entry.header).ok_or(Refusal::Unknown)?;
        if datagram.len() != header.datagram_bytes {
            return Err(Refusal::Length);
        }
        if header.require.iter().any(|(key, value)| key.read(datagram) != *value) {
            return Err(Refusal::Required);
        }
        let tiles = self.by_module.get(entry.first..entry.first + entry.count).ok_or(Refusal::Unknown)?;
        let tile = match (&header.module, entry.by_module) {
            (Some(module), true) => {
                let module = module.read(datagram);
                tiles.binary_search_by_key(&module, |tile| tile.0).ok().and_then(|found| tiles.get(found))
            }
            _ => tiles.first(),
        };
        let tile = tile.ok_or(Refusal::Unknown)?.1;
        let number = header.packet.read(datagram).wrapping_sub(header.first_packet);
        if number >= u64::from(header.packets) {
            return Err(Refusal::PacketNumber);
        }
        Ok(Address { tile, packet: number as u16, frame: header.frame.read(datagram) })
    }

    /// First byte of slot `slot` of the store.
    #[inline]
    pub fn slot_start(&self, slot: u32) -> u64 {
        self.base_bytes + u64::from(slot & (self.slots - 1)) * self.slot_bytes
    }

    /// The slot of frame `frame`.
    #[inline]
    pub fn slot_of(&self, frame: u64) -> u32 {
        // The slots are a power of two, so this is also right for numbers that wrap.
        (frame & u64::from(self.slots - 1)) as u32
    }

    /// Where the segments of a packet count from, in bytes of its slot; may lie outside of it for packets whose first
    /// segment does not begin there.
    pub fn origin(&self, tile: usize, packet: u16) -> Option<i64> {
        let tile = self.tiles.get(tile)?;
        let origin = self.places.get(tile.places)?.origins.get(usize::from(packet))?;
        Some(tile.offset + origin)
    }

    /// The segments of a packet: first byte in the datagram, first byte in the slot, number of bytes. None if there is
    /// no such packet.
    #[inline]
    pub fn segments(&self, tile: usize, packet: u16) -> impl Iterator<Item = (usize, usize, usize)> {
        let found = self.tiles.get(tile).and_then(|tile| {
            let places = self.places.get(tile.places)?;
            let packet = usize::from(packet);
            let (first, end) = (*places.starts.get(packet)?, *places.starts.get(packet + 1)?);
            Some((tile.offset, places.pieces.get(first as usize..end as usize)?))
        });
        let (offset, pieces) = found.unwrap_or((0, &[]));
        // Not below 0: the compiler has added up each of them.
        pieces.iter().map(move |p| (p.source as usize, (offset + p.destination) as usize, p.bytes as usize))
    }

    /// Copies the payload of a packet to its places in `slot`, the bytes of one slot. What does not fit is left out,
    /// which the compiler has excluded for a slot of [`Self::slot_bytes`].
    #[inline]
    pub fn copy(&self, address: &Address, datagram: &[u8], slot: &mut [u8]) {
        let segments = self.segments(address.tile.into(), address.packet);
        let segments = segments.map(|(source, destination, bytes)| Segment { source, destination, bytes });
        place(Isa::detect(), datagram, slot, segments);
    }

    /// Fills the places of a packet in `slot` with `value` over and over, each segment from its beginning.
    pub(super) fn fill(&self, tile: usize, packet: u16, value: &[u8], slot: &mut [u8]) {
        for (_, destination, bytes) in self.segments(tile, packet) {
            let Some(to) = slot.get_mut(destination..destination + bytes) else { continue };
            to.iter_mut().zip(value.iter().cycle()).for_each(|(to, from)| *to = *from);
        }
    }
}
