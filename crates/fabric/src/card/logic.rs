//! What the logic of a card is told before a run: the tables and registers of `place` and `frame_out` (`rtl/src`), made
//! of a program of the bridge, and the registers of `udp_front` and `pixel_pipeline`.

use crate::bridge::{AddressTable, Endian, Header, Key, Program};
use std::net::IpAddr;

/// Tiles of a frame at most.
pub const TILES_MAX: u8 = 16;
/// Packets of a tile at most.
pub const TILE_PACKETS_MAX: u16 = 512;
/// Bytes of a frame at most: the logic counts its beats in 21 bits, and a frame has whole blocks.
pub const IMAGE_BYTES_MAX: u32 = (1 << 27) - 8192;
/// Registers of the logic, in this order, each a u64.
pub const REGISTERS: [&str; 28] = [
    "frame_offset",
    "frame_big",
    "frame_mask",
    "frame_shift",
    "packet_offset",
    "packet_big",
    "packet_mask",
    "packet_shift",
    "module_offset",
    "module_big",
    "module_mask",
    "module_shift",
    "frame_bits",
    "first_packet",
    "packets",
    "frame_packets",
    "datagram_bytes",
    "header_sixteenths",
    "tiles",
    "slot_bytes",
    "unit_log2",
    "ip_version",
    "address_low",
    "address_high",
    "port_first",
    "streams",
    "high_gain",
    "shifts",
];
/// Bytes of a table row: u32 table, u32 row, u64 value.
pub const ROW_BYTES: usize = 16;
/// Bytes of a beat.
const BEAT_BYTES: u64 = 64;
/// Beats of a block of pixels.
const BLOCK_BEATS: usize = 128;
/// Slots in the memory of the card.
const SLOTS: u32 = 64;
/// Frames that may be incomplete at a time.
const WINDOW_FRAMES: u32 = 8;
/// UDP ports in a row.
const STREAMS_MAX: u16 = 16;
/// Places of a program, and patterns of each of them.
const PLACES_MAX: usize = 4;
/// Bytes of a datagram: the longest frame has 9238, with 14 of Ethernet, 40 of IPv6 and 8 of UDP.
const DATAGRAM_BYTES_MAX: u32 = 9238 - 14 - 40 - 8;
/// Units of a frame, each of which comes with one packet.
const UNITS_MAX: usize = 2048;
/// Beats of a unit at most, as a power of two.
const UNIT_LOG2_MAX: u32 = 10;

/// The tables, by the number that the port of the logic has for them.
mod table {
    pub const REQUIRE_MASK: u32 = 0;
    pub const REQUIRE_VALUE: u32 = 1;
    pub const ORIGINS: u32 = 2;
    pub const SEGMENTS: u32 = 3;
    pub const TILES: u32 = 4;
    pub const OFFSETS: u32 = 5;
    pub const OWNERS: u32 = 6;
}

/// A write to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the table.
    pub table: u32,
    /// Row of the table.
    pub row: u32,
    /// What is written.
    pub value: u64,
}

/// What of a run is not in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// Address of the card.
    pub address: IpAddr,
    /// UDP port of the first tile; `None` = as in the program.
    pub port: Option<u16>,
    /// Whether G0 is the high gain.
    pub high_gain: bool,
    /// Shifts of the three stages (`konkordia_kernels::convert::fixed`).
    pub shifts: [u8; 3],
}

/// A program as the logic takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logic {
    /// Tiles of a frame.
    pub tiles: u8,
    /// Packets of each.
    pub tile_packets: u16,
    /// Bytes of a frame.
    pub slot_bytes: u64,
    /// Table rows, in the order in which they are written.
    pub rows: Vec<Row>,
    registers: Vec<u64>,
}

impl Logic {
    /// The tables and registers of a program that has passed [`Program::compile`], which gave `table`.
    ///
    /// # Errors
    /// The program needs more than the logic has; says what.
    pub fn new(program: &Program, table: &AddressTable, front: &Front) -> Result<Self, String> {
        let header = check(program)?;
        let (port_first, streams) = ports(program, front.port)?;
        let names = place_names(program)?;
        let (unit_log2, owners) = owners(table)?;
        let mut rows = required(header);
        for (number, name) in names.iter().enumerate() {
            rows.extend(place_rows(program, table, number as u32, name)?);
        }
        for (tile, of) in program.tiles.iter().enumerate() {
            let module = of.module.unwrap_or(0);
            if module > u64::from(u16::MAX) {
                return Err(format!("a tile has module {module}; the logic compares 16 bits"));
            }
            let place = names.iter().position(|name| *name == of.places).unwrap_or(0) as u64;
            let stream = of.port.map_or(0, |port| u64::from(port - lowest(program).unwrap_or(port)));
            let any = u64::from(of.port.is_none()) << 23 | u64::from(of.module.is_none()) << 22;
            let value = 1 << 24 | any | stream << 18 | place << 16 | module;
            rows.push(Row { table: table::TILES, row: tile as u32, value });
            rows.push(Row { table: table::OFFSETS, row: tile as u32, value: of.offset });
        }
        let owner = |(row, value): (usize, u64)| Row { table: table::OWNERS, row: row as u32, value };
        rows.extend(owners.into_iter().enumerate().map(owner));
        let mut registers = program_registers(program, header, unit_log2);
        registers.extend(front_registers(front, port_first, streams));
        assert_eq!(registers.len(), REGISTERS.len(), "a value for each name");
        let (tiles, tile_packets) = (program.tiles.len() as u8, header.packets as u16);
        Ok(Self { tiles, tile_packets, slot_bytes: program.slot_bytes, rows, registers })
    }

    /// The registers in the order of [`REGISTERS`].
    pub fn registers(&self) -> Vec<u8> {
        self.registers.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// The rows, [`ROW_BYTES`] each.
    pub fn table(&self) -> Vec<u8> {
        let bytes = |row: &Row| [&row.table.to_le_bytes()[..], &row.row.to_le_bytes(), &row.value.to_le_bytes()].concat();
        self.rows.iter().flat_map(bytes).collect()
    }
}

/// The one header of a program; refuses what the logic has no room for.
fn check(program: &Program) -> Result<&Header, String> {
    let mut headers = program.headers.values();
    let (Some(header), None) = (headers.next(), headers.next()) else {
        return Err(format!("{} layouts of headers; the logic has one", program.headers.len()));
    };
    if !matches!(header.bytes, 16 | 32 | 48 | 64) || !header.payload_bytes.is_multiple_of(64) {
        let what = format!("headers of {} bytes, and {} behind them", header.bytes, header.payload_bytes);
        return Err(format!("{what}; the logic has headers of 16, 32, 48 or 64, and payloads of whole beats of 64"));
    }
    if header.bytes + header.payload_bytes > DATAGRAM_BYTES_MAX {
        return Err(format!("datagrams of more than {DATAGRAM_BYTES_MAX} bytes, the most that the logic takes"));
    }
    if program.slots != SLOTS || program.window_frames != WINDOW_FRAMES {
        let has = format!("{} slots and a window of {} frames", program.slots, program.window_frames);
        return Err(format!("{has}; the logic has {SLOTS} and {WINDOW_FRAMES}"));
    }
    if program.tiles.len() > usize::from(TILES_MAX) {
        return Err(format!("{} tiles; the logic has at most {TILES_MAX}", program.tiles.len()));
    }
    if program.pixel.as_deref() != Some("uint16") {
        return Err("its pixels are not said to be the 16-bit words of a JUNGFRAU (pixel = \"uint16\")".into());
    }
    Ok(header)
}

/// The lowest port that a program names.
fn lowest(program: &Program) -> Option<u16> {
    program.tiles.iter().filter_map(|tile| tile.port).min()
}

/// The first port, and how many are in a row.
fn ports(program: &Program, given: Option<u16>) -> Result<(u16, u16), String> {
    let lowest = lowest(program);
    let highest = program.tiles.iter().filter_map(|tile| tile.port).max();
    let more = lowest.zip(highest).map_or(0, |(lowest, highest)| highest - lowest);
    if more >= STREAMS_MAX {
        return Err(format!("ports from the first to the last are {}; the logic has {STREAMS_MAX}", u32::from(more) + 1));
    }
    let first = given.or(lowest).ok_or("it names no port, so the first one has to be given")?;
    match first.checked_add(more) {
        Some(_) => Ok((first, more + 1)),
        None => Err(format!("{} ports from {first} on would end above 65535", more + 1)),
    }
}

/// The places that tiles use, in the order of their first tile.
fn place_names(program: &Program) -> Result<Vec<&str>, String> {
    let mut names: Vec<&str> = Vec::new();
    for tile in &program.tiles {
        if !names.contains(&tile.places.as_str()) {
            names.push(&tile.places);
        }
    }
    if names.len() > PLACES_MAX {
        return Err(format!("{} places; the logic has {PLACES_MAX}", names.len()));
    }
    Ok(names)
}

/// Rows of the tables of required values: 64 bytes of mask, and 64 of values.
fn required(header: &Header) -> Vec<Row> {
    let (mut masks, mut values) = ([0; 64], [0; 64]);
    for require in &header.require {
        let bits = require.mask.unwrap_or(u64::MAX);
        for n in 0..require.bytes as usize {
            let at = match require.endian {
                Endian::Little => n,
                Endian::Big => require.bytes as usize - 1 - n,
            };
            masks[require.offset as usize + at] |= (bits >> (8 * n)) as u8;
            values[require.offset as usize + at] |= (require.value >> (8 * n)) as u8;
        }
    }
    let rows = |table: u32, bytes: [u8; 64]| {
        let value = |eight: &[u8]| u64::from_le_bytes(std::array::from_fn(|n| eight[n]));
        let row = |(row, eight): (usize, &[u8])| Row { table, row: row as u32, value: value(eight) };
        bytes.chunks_exact(8).enumerate().map(row).collect::<Vec<_>>()
    };
    [rows(table::REQUIRE_MASK, masks), rows(table::REQUIRE_VALUE, values)].concat()
}

/// Rows of the origins of packets and of the segments of patterns, of one place.
fn place_rows(program: &Program, table: &AddressTable, number: u32, name: &str) -> Result<Vec<Row>, String> {
    let places = &program.places[name];
    let header = &program.headers[&places.header];
    if places.patterns.len() > PLACES_MAX {
        return Err(format!("{} patterns; the logic has {PLACES_MAX}", places.patterns.len()));
    }
    let tile = program.tiles.iter().position(|tile| tile.places == name).expect("the name is that of a tile");
    let offset = program.tiles[tile].offset as i64;
    let mut rows = Vec::new();
    for packet in 0..header.packets {
        let origin = table.origin(tile, packet as u16).ok_or("its packets have no addresses")? - offset;
        let pattern = u64::from(packet) % places.patterns.len() as u64;
        rows.push(Row { table: table::ORIGINS, row: number << 9 | packet, value: pattern << 32 | u64::from(origin as u32) });
    }
    for (which, pattern) in places.patterns.iter().enumerate() {
        let mut at = 0;
        for (n, segment) in pattern.iter().enumerate() {
            if segment.source != at || !segment.bytes.is_multiple_of(64) {
                return Err("segments that do not take the payload in order and in multiples of 64 bytes".into());
            }
            at += segment.bytes;
            let value = u64::from(segment.bytes / 64) << 32 | u64::from(segment.destination as u32);
            rows.push(Row { table: table::SEGMENTS, row: number << 6 | (which as u32) << 4 | n as u32, value });
        }
        if at != header.payload_bytes {
            return Err("segments that do not take all of the payload".into());
        }
    }
    Ok(rows)
}

/// Which packet brings each unit of a frame: the beats of a unit as a power of two, and tile and packet of each unit.
fn owners(table: &AddressTable) -> Result<(u32, Vec<u64>), String> {
    let whole = || "each 64 bytes of a frame have to come with one packet, and a frame has whole blocks of 8192 bytes".to_owned();
    let bytes = table.slot_bytes();
    if !bytes.is_multiple_of(BLOCK_BEATS as u64 * BEAT_BYTES) || bytes > IMAGE_BYTES_MAX.into() {
        return Err(whole());
    }
    let mut owners = vec![None; (bytes / BEAT_BYTES) as usize];
    for tile in 0..table.tiles() {
        for packet in 0..table.packets(tile) {
            for (_, first, bytes) in table.segments(tile, packet) {
                if !first.is_multiple_of(BEAT_BYTES as usize) {
                    return Err(whole());
                }
                owners[first / 64..(first + bytes) / 64].fill(Some((tile as u64) << 9 | u64::from(packet)));
            }
        }
    }
    let owners: Vec<u64> = owners.into_iter().collect::<Option<_>>().ok_or_else(whole)?;
    let is_unit = |log2: &u32| {
        let mut units = owners.chunks_exact(1 << log2);
        units.all(|unit| unit.iter().all(|owner| *owner == unit[0])) && units.remainder().is_empty()
    };
    let log2 = (0..=UNIT_LOG2_MAX).rev().find(is_unit).unwrap_or(0);
    let units: Vec<u64> = owners.iter().step_by(1 << log2).copied().collect();
    if units.len() > UNITS_MAX {
        return Err(format!("a frame of {} pieces that come with one packet each; the logic has {UNITS_MAX}", units.len()));
    }
    Ok((log2, units))
}

/// Offset, order, mask and shift of a key. The logic reads 8 bytes; a shorter key is one with a narrower mask.
fn key(key: &Key) -> [u64; 4] {
    let bits = 8 * key.bytes;
    let (big, unused) = match key.endian {
        Endian::Little => (0, 0),
        Endian::Big => (1, 64 - bits),
    };
    let mask = key.mask.unwrap_or(u64::MAX) & u64::MAX >> (64 - bits);
    [key.offset.into(), big, mask << unused, (key.shift + unused).into()]
}

fn program_registers(program: &Program, header: &Header, unit_log2: u32) -> Vec<u64> {
    let (frame, module) = (key(&header.frame), header.module.as_ref().map_or([0; 4], key));
    let mut registers = [frame, key(&header.packet), module].concat();
    registers.extend([
        frame[2] >> frame[3],
        header.first_packet.into(),
        header.packets.into(),
        u64::from(header.packets) * program.tiles.len() as u64,
        (header.bytes + header.payload_bytes).into(),
        // 4 of them are written as 0.
        u64::from(header.bytes / 16 % 4),
        program.tiles.len() as u64,
        program.slot_bytes,
        unit_log2.into(),
    ]);
    registers
}

fn front_registers(front: &Front, port_first: u16, streams: u16) -> [u64; 7] {
    let (version, address) = match front.address {
        IpAddr::V4(address) => (4, u128::from(address.to_bits())),
        IpAddr::V6(address) => (6, address.to_bits()),
    };
    let shifts = front.shifts.iter().rev().fold(0, |all, shift| all << 6 | u64::from(*shift));
    [version, address as u64, (address >> 64) as u64, port_first.into(), streams.into(), front.high_gain.into(), shifts]
}

#[cfg(test)]
#[path = "logic_tests.rs"]
mod tests;
