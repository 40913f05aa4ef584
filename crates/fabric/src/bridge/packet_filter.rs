//! A program as instructions of the kernel's eBPF machine, for XDP: the look-up of the address is done for each frame
//! before the network stack sees it.
//!
//! The frame is not changed. A datagram that has an address gets 16 bytes of metadata in front ([`Metadata`]); whoever
//! takes the frame from a socket of AF_XDP then knows where it belongs without looking at it. All other frames go on
//! without metadata, so that nothing is lost where nobody counts. Matches, keys, terms, offsets and masks of the
//! program become constants of the instructions; only segments stay a table, which the copying side has
//! ([`AddressTable::segments`]): a metadata of 16 bytes has room for one address.
//!
//! [`LookUp`] is the part that the XDP program of `konkordia_sources::xdp` takes in; [`instructions`] is a program of
//! its own, to be looked at and tried.

use super::program::Endian;
use super::table::{Address, AddressTable, ReadyHeader, ReadyKey, ReadyPort};
use konkordia_core::ebpf::{Assembler, If, Instruction, JUMP_MAX, Register, Register::*, Size};

/// Bytes in front of a frame that has an address.
pub const METADATA_BYTES: usize = 16;

/// What stands in front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Packet of the tile, from 0.
    pub packet: u16,
    /// Index of the tile in the program.
    pub tile: u16,
    /// Slot of the frame.
    pub slot: u32,
    /// Byte of the store from which the segments of the packet count: base, slot, offset of the tile and terms.
    pub destination: u64,
}

impl Metadata {
    /// Reads it as the instructions have written it on this machine.
    pub fn read(bytes: &[u8; METADATA_BYTES]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let [.., a, b, c, d, e, f, g, h] = *bytes;
        Self {
            packet: word(0) as u16,
            tile: (word(0) >> 16) as u16,
            slot: word(4),
            destination: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        }
    }

    /// The address of the datagram behind it; `None` unless all of both fits together, so that nothing is believed of
    /// memory that somebody else has written.
    #[inline]
    pub fn address(&self, table: &AddressTable, datagram: &[u8]) -> Option<Address> {
        let Self { packet, tile, slot, destination } = *self;
        let header = table.header_of(tile.into()).filter(|header| datagram.len() == header.datagram_bytes)?;
        let origin = table.origin(tile.into(), packet)?;
        let frame = header.frame.read(datagram);
        let is_right = slot == table.slot_of(frame) && destination == table.slot_start(slot).wrapping_add_signed(origin);
        is_right.then_some(Address { tile, packet, frame })
    }
}

// Result of XDP programs, and helper functions of the kernel (`enum xdp_action`, `enum bpf_func_id`).
const XDP_PASS: i32 = 2;
const XDP_ADJUST_META: i32 = 54;

// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;

/// Bytes of the header of UDP, with the destination port and the length in it.
const UDP_BYTES: i32 = 8;
const UDP_PORT: i16 = 2;
const UDP_LENGTH: i16 = 4;

/// Instructions that another program may have beside those of a look-up: the filter of AF_XDP has fewer than 300 for
/// its first port, and at most 6 for each further one.
const OTHER_INSTRUCTIONS: usize = 512;
const PORT_INSTRUCTIONS: usize = 6;

/// The look-up as a part of another XDP program, short enough for its jumps.
#[derive(Clone, Copy, Debug)]
pub struct LookUp<'a> {
    table: &'a AddressTable,
}

impl<'a> LookUp<'a> {
    /// # Errors
    /// The program has too many tiles for the jumps of the machine.
    pub fn new(table: &'a AddressTable) -> Result<Self, String> {
        let mut a = Assembler::default();
        look_up(&mut a, table, 0);
        let instructions = a.len() + OTHER_INSTRUCTIONS + PORT_INSTRUCTIONS * table.ports.len();
        if instructions >= JUMP_MAX {
            return Err(format!(
                "{} tiles make {instructions} instructions, and a jump reaches {JUMP_MAX}; divide the program by ports",
                table.tiles()
            ));
        }
        Ok(Self { table })
    }

    /// Puts the look-up here. Before: R6 is the context, R8 the header of UDP. Frames without address jump to "pass";
    /// those with one have their metadata and go on behind. Only R6 and the stack stay as they are.
    pub fn put(&self, a: &mut Assembler) {
        a.copy(R2, R8);
        a.load(Size::Bits32, R3, R6, DATA_END);
        look_up(a, self.table, 0);
    }
}

/// The instructions for frames whose UDP header begins at byte `udp_offset`: 42 - 8 = 34 for Ethernet without tags and
/// IPv4 without options. Whoever loads them has made sure that the frames are such.
///
/// # Errors
/// The program has too many tiles for the jumps of the machine.
pub fn instructions(table: &AddressTable, udp_offset: i16) -> Result<Vec<Instruction>, String> {
    LookUp::new(table)?;
    let mut a = Assembler::default();
    a.copy(R6, R1);
    a.load(Size::Bits32, R2, R6, DATA);
    a.load(Size::Bits32, R3, R6, DATA_END);
    look_up(&mut a, table, udp_offset);
    a.label("pass");
    a.set(R0, XDP_PASS);
    a.exit();
    Ok(a.finish())
}

/// Address and metadata of the frame; without an address to "pass".
///
/// Registers: R6 context, R2 the place behind which the UDP header lies by `udp_offset`, R3 end of the first buffer, R7
/// packet, R8 frame and later slot, R9 destination.
fn look_up(a: &mut Assembler, table: &AddressTable, udp_offset: i16) {
    require_bytes(a, i32::from(udp_offset) + UDP_BYTES);
    a.load(Size::Bits16, R1, R2, udp_offset + UDP_PORT);
    a.u16_from_network(R1);
    // The ports that are named come first, then the tiles of every other port.
    let (others, named): (Vec<_>, Vec<_>) = table.ports.iter().enumerate().partition(|(_, entry)| entry.port.is_none());
    for (n, entry) in &named {
        if let Some(port) = entry.port {
            a.jump_if(If::Equal, R1, port.into(), format!("port {n}"));
        }
    }
    match others.first() {
        Some((n, _)) => a.jump(format!("port {n}")),
        None => a.jump("pass"),
    }
    for (n, entry) in table.ports.iter().enumerate() {
        a.label(format!("port {n}"));
        of_port(a, table, n, entry, udp_offset);
    }
    accept(a);
}

/// To "pass" unless so many bytes lie in the first buffer. Without this the kernel refuses the loads that follow.
fn require_bytes(a: &mut Assembler, bytes: i32) {
    a.copy(R0, R2);
    a.add(R0, bytes);
    a.jump_if_register(If::Greater, R0, R3, "pass");
}

/// Header, tile and address of a datagram to this port.
fn of_port(a: &mut Assembler, table: &AddressTable, n: usize, entry: &ReadyPort, udp_offset: i16) {
    let header = &table.headers[entry.header];
    let start = udp_offset + UDP_BYTES as i16;
    a.load(Size::Bits16, R0, R2, udp_offset + UDP_LENGTH);
    a.u16_from_network(R0);
    a.jump_if(If::Unequal, R0, UDP_BYTES + header.datagram_bytes as i32, "pass");
    require_bytes(a, i32::from(start) + header.bytes as i32);
    for (key, value) in &header.require {
        read(a, R1, key, start);
        a.set_u64(R5, *value);
        a.jump_if_register(If::Unequal, R1, R5, "pass");
    }
    packet_and_frame(a, header, start, table.slots());
    let tiles = &table.by_module[entry.first..entry.first + entry.count];
    match (&header.module, entry.by_module) {
        (Some(module), true) => {
            read(a, R1, module, start);
            for (module, tile) in tiles {
                a.set_u64(R5, *module);
                a.jump_if_register(If::Equal, R1, R5, format!("tile {n} {tile}"));
            }
            a.jump("pass");
        }
        _ => a.jump(format!("tile {n} {}", tiles[0].1)),
    }
    for (_, tile) in tiles {
        a.label(format!("tile {n} {tile}"));
        destination(a, table, *tile);
        a.jump("accept");
    }
}

/// The number of a key into `to`, by R0.
fn read(a: &mut Assembler, to: Register, key: &ReadyKey, start: i16) {
    let at = start + key.offset as i16;
    let size = match key.bytes {
        1 => Some(Size::Bits8),
        2 => Some(Size::Bits16),
        4 => Some(Size::Bits32),
        8 => Some(Size::Bits64),
        _ => None,
    };
    match size {
        Some(size) => {
            a.load(size, to, R2, at);
            match (key.bytes, key.endian) {
                (1, _) => {}
                (_, Endian::Little) => a.from_little_endian(to, 8 * key.bytes as i32),
                (_, Endian::Big) => a.from_network(to, 8 * key.bytes as i32),
            }
        }
        // Byte by byte, the highest first.
        None => {
            a.set(to, 0);
            for n in 0..key.bytes as i16 {
                let byte = if key.endian == Endian::Big { n } else { key.bytes as i16 - 1 - n };
                a.load(Size::Bits8, R0, R2, at + byte);
                a.shift_left(to, 8);
                a.or_register(to, R0);
            }
        }
    }
    a.set_u64(R0, key.mask);
    a.and_register(to, R0);
    if key.shift > 0 {
        a.shift_right(to, key.shift as i32);
    }
}

/// R7 = packet of the tile, R8 = slot.
fn packet_and_frame(a: &mut Assembler, header: &ReadyHeader, start: i16, slots: u32) {
    read(a, R7, &header.packet, start);
    a.set_u64(R5, header.first_packet.wrapping_neg());
    a.add_register(R7, R5);
    // Numbers before the first one are very large ones now.
    a.jump_if(If::Greater, R7, i32::from(header.packets) - 1, "pass");
    read(a, R8, &header.frame, start);
    a.set_u64(R5, u64::from(slots - 1));
    a.and_register(R8, R5);
}

/// R9 = where the segments of the packet count from; the tile beside the packet in R7.
fn destination(a: &mut Assembler, table: &AddressTable, tile: u16) {
    let ready = &table.tiles[usize::from(tile)];
    let places = &table.places[ready.places];
    a.set_u64(R9, table.base_bytes.wrapping_add_signed(ready.offset));
    a.copy(R4, R8);
    a.set_u64(R5, table.slot_bytes);
    a.multiply_register(R4, R5);
    a.add_register(R9, R4);
    for term in &places.terms {
        a.copy(R4, R7);
        if term.divide > 1 {
            a.divide(R4, term.divide.min(i32::MAX as u32).cast_signed());
        }
        if let Some(modulo) = term.modulo {
            a.remainder(R4, modulo.min(i32::MAX as u32).cast_signed());
        }
        a.set_u64(R5, term.multiply.cast_unsigned());
        a.multiply_register(R4, R5);
        a.add_register(R9, R4);
    }
    a.add(R7, i32::from(tile) << 16);
}

/// Room in front of the frame, and what is known about it.
fn accept(a: &mut Assembler) {
    a.label("accept");
    a.copy(R1, R6);
    a.set(R2, -(METADATA_BYTES as i32));
    a.call(XDP_ADJUST_META);
    // A driver without room for metadata.
    a.jump_if(If::Unequal, R0, 0, "pass");
    a.load(Size::Bits32, R1, R6, DATA_META);
    a.load(Size::Bits32, R2, R6, DATA);
    a.copy(R0, R1);
    a.add(R0, METADATA_BYTES as i32);
    a.jump_if_register(If::Greater, R0, R2, "pass");
    a.store(Size::Bits32, R1, 0, R7);
    a.store(Size::Bits32, R1, 4, R8);
    a.store(Size::Bits64, R1, 8, R9);
}

#[cfg(test)]
#[path = "packet_filter_tests.rs"]
mod tests;
