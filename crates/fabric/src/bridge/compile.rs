//! The compiler: checks all of a program, and makes its tables. Whatever passes here can neither write outside of a
//! slot nor write a byte twice, whatever a packet says.

use super::problem::{Finder, Problems, Step};
use super::program::{
    HEADER_BYTES_MAX, Header, Key, PATTERNS_MAX, Places, Program, REQUIRED_MAX, SEGMENTS_MAX, SLOT_BYTES_MAX, SLOTS_MAX,
    STORE_BYTES_MAX, TERMS_MAX, TILES_MAX,
};
use super::table::{AddressTable, Coverage, Piece, ReadyHeader, ReadyKey, ReadyPlaces, ReadyPort, ReadyTile};
use Step::{Index, Key as Name};
use konkordia_core::MAX_PACKETS_PER_TILE;
use konkordia_core::pixel::PixelType;
use std::collections::BTreeSet;

/// Bytes of the longest datagram of UDP over IPv4.
const DATAGRAM_BYTES_MAX: u32 = 65_507;
/// Bytes that one addend of an address may have, in both directions; sums of all of them stay far below 2^63.
const ADDEND_MAX: u64 = STORE_BYTES_MAX;
/// Segments of all tiles together; a 16M of EIGER at 4 bit has a tenth.
const SEGMENTS_IN_ALL_MAX: usize = 1 << 22;

impl Program {
    /// Checks the program and makes its tables.
    ///
    /// # Errors
    /// All that is wrong with it, up to 20 problems: numbers out of range, keys outside of their header, names that are
    /// not there, addresses outside of the slot, bytes that would be written twice.
    pub fn compile(&self) -> Result<AddressTable, Problems> {
        self.compile_with(None)
    }

    /// Reads a program and compiles it; problems have the lines of the text.
    ///
    /// # Errors
    /// As of [`Self::from_toml`] and [`Self::compile`].
    pub fn compile_text(text: &str) -> Result<AddressTable, Problems> {
        Self::from_toml(text)?.compile_with(Some(text))
    }

    fn compile_with(&self, text: Option<&str>) -> Result<AddressTable, Problems> {
        let mut finder = Finder::new(text);
        self.check_store(&mut finder);
        let pixel = self.check_pixel(&mut finder);
        self.headers.iter().for_each(|(name, header)| check_header(&mut finder, name, header, self.slots));
        for (name, places) in &self.places {
            check_places(&mut finder, name, places, self.headers.get(&places.header), pixel);
        }
        self.check_tiles(&mut finder);
        // Whatever follows takes for granted that the numbers are sound.
        finder.finish()?;
        let headers: Vec<ReadyHeader> = self.headers.values().map(ready_header).collect();
        let places: Vec<ReadyPlaces> = self.places.values().map(|places| self.ready_places(places)).collect();
        let tiles: Vec<ReadyTile> = self.tiles.iter().map(|tile| self.ready_tile(&tile.places, tile)).collect();
        let coverage = self.check_bytes(&mut finder, &headers, &places, &tiles);
        let (ports, by_module) = self.ready_ports(&mut finder, &tiles);
        finder.finish()?;
        Ok(AddressTable {
            name: self.name.clone(),
            slots: self.slots,
            slot_bytes: self.slot_bytes,
            base_bytes: self.base_bytes,
            window_frames: self.window_frames,
            pixel,
            headers,
            places,
            tiles,
            ports,
            by_module,
            coverage,
        })
    }

    fn check_store(&self, finder: &mut Finder<'_>) {
        if self.name.is_empty() || self.name.len() > 200 {
            finder.add(&[Name("name")], "a program has a name of 1 to 200 bytes", "write name = \"eiger-16bit\"");
        }
        if !self.slots.is_power_of_two() || self.slots > SLOTS_MAX {
            let next = self.slots.clamp(1, SLOTS_MAX).next_power_of_two();
            let what = format!("slots = {} is not a power of two up to {SLOTS_MAX}", self.slots);
            finder.add(
                &[Name("slots")],
                what,
                format!("write slots = {next}; numbers of frames that wrap then keep their slots"),
            );
        }
        if !(1..=SLOT_BYTES_MAX).contains(&self.slot_bytes) {
            let what = format!("a slot of {} bytes is not possible", self.slot_bytes);
            finder.add(&[Name("slot_bytes")], what, format!("write 1 to {SLOT_BYTES_MAX}"));
        }
        let slots_bytes = u64::from(self.slots).saturating_mul(self.slot_bytes);
        if self.base_bytes.saturating_add(slots_bytes) > STORE_BYTES_MAX {
            let what = format!("{} slots of {} bytes behind {} are too many", self.slots, self.slot_bytes, self.base_bytes);
            finder.add(&[Name("slots")], what, format!("a store has at most {STORE_BYTES_MAX} bytes: write fewer slots"));
        }
        if !(1..=self.slots.max(1)).contains(&self.window_frames) {
            let what = format!("window_frames = {} with {} slots", self.window_frames, self.slots);
            finder.add(&[Name("window_frames")], what, format!("write 1 to {}", self.slots));
        }
    }

    fn check_pixel(&self, finder: &mut Finder<'_>) -> Option<PixelType> {
        let name = self.pixel.as_deref()?;
        let pixel = name.parse::<PixelType>().ok();
        match pixel {
            None => {
                let types: Vec<&str> = PixelType::ALL.iter().map(|pixel| pixel.name()).collect();
                finder.add(
                    &[Name("pixel")],
                    format!("there is no pixel type \"{name}\""),
                    format!("write one of {}", types.join(", ")),
                );
            }
            Some(pixel) if !self.slot_bytes.is_multiple_of(pixel.bytes() as u64) => {
                let what = format!("slots of {} bytes do not hold whole pixels of {} bytes", self.slot_bytes, pixel.bytes());
                finder.add(&[Name("slot_bytes")], what, format!("write a multiple of {}", pixel.bytes()));
            }
            Some(_) => {}
        }
        pixel
    }

    fn check_tiles(&self, finder: &mut Finder<'_>) {
        if self.tiles.is_empty() || self.tiles.len() > TILES_MAX {
            let what = format!("{} tiles", self.tiles.len());
            finder.add(&[Name("tiles")], what, format!("write 1 to {TILES_MAX} tables [[tiles]]"));
            return;
        }
        let mut segments = 0;
        for (n, tile) in self.tiles.iter().enumerate() {
            let at = [Name("tiles"), Index(n)];
            let Some(places) = self.places.get(&tile.places) else {
                let names: Vec<&str> = self.places.keys().map(String::as_str).collect();
                let what = format!("there is no [places.{}]", tile.places);
                finder.add(&[at[0], at[1], Name("places")], what, format!("write one of: {}", names.join(", ")));
                continue;
            };
            if tile.offset > self.slot_bytes {
                let what = format!("offset = {} lies behind the slot of {} bytes", tile.offset, self.slot_bytes);
                finder.add(&[at[0], at[1], Name("offset")], what, "write an offset inside of the slot, or larger slot_bytes");
            }
            let header = self.headers.get(&places.header);
            self.check_module(finder, n, header);
            let packets = header.map_or(0, |header| header.packets as usize).min(MAX_PACKETS_PER_TILE);
            let longest = places.patterns.iter().map(Vec::len).max().unwrap_or(0);
            segments += packets * longest.min(SEGMENTS_MAX);
        }
        if segments > SEGMENTS_IN_ALL_MAX {
            let what = format!("{segments} segments of all tiles");
            finder.add(&[Name("tiles")], what, format!("at most {SEGMENTS_IN_ALL_MAX} are possible: divide the detector"));
        }
    }

    /// A module that a tile names must be one that its header can say.
    fn check_module(&self, finder: &mut Finder<'_>, tile: usize, header: Option<&Header>) {
        let (Some(module), Some(header)) = (self.tiles[tile].module, header) else { return };
        let at = [Name("tiles"), Index(tile), Name("module")];
        match &header.module {
            None => finder.add(&at, "the header has no key for the module", "add module = { offset = .., bytes = .. } to it"),
            Some(key) if module > most(key) => {
                let what = format!("module = {module} does not fit into its key, whose highest value is {}", most(key));
                finder.add(&at, what, "write a smaller number, or a wider key");
            }
            Some(_) => {}
        }
    }

    fn ready_places(&self, places: &Places) -> ReadyPlaces {
        let header = &self.headers[&places.header];
        let mut ready = ReadyPlaces { starts: vec![0], pieces: Vec::new(), origins: Vec::new(), terms: places.terms.clone() };
        for packet in 0..header.packets {
            let origin: i64 = places.terms.iter().filter_map(|term| term.of(packet)).sum();
            let first = ready.pieces.len();
            for segment in &places.patterns[packet as usize % places.patterns.len()] {
                let (source, destination) = (header.bytes + segment.source, origin + segment.destination);
                match ready.pieces[first..].last_mut() {
                    // What adjoins in the packet and in the image is one copy.
                    Some(last)
                        if last.source + last.bytes == source && last.destination + i64::from(last.bytes) == destination =>
                    {
                        last.bytes += segment.bytes;
                    }
                    _ => ready.pieces.push(Piece { source, bytes: segment.bytes, destination }),
                }
            }
            ready.starts.push(ready.pieces.len() as u32);
            ready.origins.push(origin);
        }
        ready
    }

    fn ready_tile(&self, places: &str, tile: &super::program::Tile) -> ReadyTile {
        let place = |names: Vec<&String>, name: &str| names.iter().position(|n| *n == name).unwrap_or(0);
        let header = place(self.headers.keys().collect(), &self.places[places].header);
        let places = place(self.places.keys().collect(), places);
        ReadyTile { port: tile.port, module: tile.module, header, places, offset: tile.offset as i64 }
    }

    /// Every byte lies inside of the slot and is written once.
    fn check_bytes(
        &self,
        finder: &mut Finder<'_>,
        headers: &[ReadyHeader],
        places: &[ReadyPlaces],
        tiles: &[ReadyTile],
    ) -> Coverage {
        let mut coverage = Coverage { written_bytes: 0, gap_bytes: 0, unused_bytes: 0, packets: 0, segments_max: 0 };
        let mut all: Vec<(u64, u64, u16, u16)> = Vec::new();
        for (n, tile) in tiles.iter().enumerate() {
            let (header, places) = (&headers[tile.header], &places[tile.places]);
            coverage.packets += u64::from(header.packets);
            for packet in 0..header.packets {
                let range = places.starts[usize::from(packet)] as usize..places.starts[usize::from(packet) + 1] as usize;
                coverage.segments_max = coverage.segments_max.max(range.len());
                let payload = (header.datagram_bytes - header.bytes) as u64;
                let used: u64 = places.pieces[range.clone()].iter().map(|piece| u64::from(piece.bytes)).sum();
                coverage.unused_bytes += payload.saturating_sub(used);
                coverage.written_bytes += used;
                for piece in &places.pieces[range] {
                    let (first, bytes) = (tile.offset + piece.destination, u64::from(piece.bytes));
                    match u64::try_from(first).ok().map(|first| (first, first + bytes)) {
                        Some((first, end)) if end <= self.slot_bytes => all.push((first, end, n as u16, packet)),
                        _ => {
                            let end = first + i64::from(piece.bytes);
                            let what = format!(
                                "packet {packet} would be written to bytes {first}..{end} of a slot of {}",
                                self.slot_bytes
                            );
                            let fix = "correct offset, or terms and patterns of its places, or write larger slot_bytes";
                            finder.add(&[Name("tiles"), Index(n), Name("offset")], what, fix);
                            return coverage;
                        }
                    }
                }
            }
        }
        all.sort_unstable();
        for pair in all.windows(2) {
            let ((first, end, a, p), (next, _, b, q)) = (pair[0], pair[1]);
            if next < end {
                let what = format!(
                    "byte {next} of the slot would be written by packet {q} of this tile and by packet {p} of tile number {} ({first}..{end})",
                    a + 1
                );
                finder.add(
                    &[Name("tiles"), Index(b.into())],
                    what,
                    "each byte has one packet: correct offset, terms or patterns",
                );
                return coverage;
            }
        }
        coverage.gap_bytes = self.slot_bytes - coverage.written_bytes;
        coverage
    }

    /// Tiles by port and module, each of them once.
    fn ready_ports(&self, finder: &mut Finder<'_>, tiles: &[ReadyTile]) -> (Vec<ReadyPort>, Vec<(u64, u16)>) {
        let ports: BTreeSet<Option<u16>> = tiles.iter().map(|tile| tile.port).collect();
        let (mut ready, mut by_module) = (Vec::new(), Vec::new());
        for port in ports {
            let of_port: Vec<usize> = (0..tiles.len()).filter(|n| tiles[*n].port == port).collect();
            let header = tiles[of_port[0]].header;
            let first = by_module.len();
            let said = port.map_or("no port".to_string(), |port| format!("port {port}"));
            for &n in &of_port {
                let at = [Name("tiles"), Index(n)];
                if tiles[n].header != header {
                    finder.add(&at, format!("the tiles of {said} have different headers"), "give them one, or other ports");
                }
                if of_port.len() > 1 && tiles[n].module.is_none() {
                    let fix = "write the module of each, or other ports";
                    finder.add(&at, format!("several tiles have {said}, and this one no module"), fix);
                }
                by_module.push((tiles[n].module.unwrap_or(0), n as u16));
            }
            by_module[first..].sort_unstable();
            for pair in by_module[first..].windows(2).filter(|pair| pair[0].0 == pair[1].0 && tiles[of_port[0]].module.is_some())
            {
                let at = [Name("tiles"), Index(pair[1].1.into())];
                let what = format!("{said} and module {} are those of tile number {} too", pair[1].0, pair[0].1 + 1);
                finder.add(&at, what, "each tile has a port or a module of its own");
            }
            let has_module = of_port.iter().any(|n| tiles[*n].module.is_some());
            ready.push(ReadyPort { port, header, first, count: of_port.len(), by_module: has_module });
        }
        (ready, by_module)
    }
}

/// Highest number that a key can have.
fn most(key: &Key) -> u64 {
    (key.mask.unwrap_or(u64::MAX) & whole(key)).checked_shr(key.shift).unwrap_or(0)
}

/// All bits of a key.
fn whole(key: &Key) -> u64 {
    if key.bytes >= 8 { u64::MAX } else { (1u64 << (8 * key.bytes)) - 1 }
}

fn check_header(finder: &mut Finder<'_>, name: &str, header: &Header, slots: u32) {
    let at = |key| [Name("headers"), Name(name), Name(key)];
    if !(1..=HEADER_BYTES_MAX).contains(&header.bytes) {
        finder.add(&at("bytes"), format!("a header of {} bytes", header.bytes), format!("write 1 to {HEADER_BYTES_MAX}"));
    }
    if header.payload_bytes == 0 || header.payload_bytes > DATAGRAM_BYTES_MAX.saturating_sub(header.bytes) {
        let what = format!("{} bytes behind a header of {}", header.payload_bytes, header.bytes);
        finder.add(&at("payload_bytes"), what, format!("a datagram has at most {DATAGRAM_BYTES_MAX} bytes, and one of payload"));
    }
    if !(1..=MAX_PACKETS_PER_TILE as u32).contains(&header.packets) {
        let what = format!("{} packets of a tile", header.packets);
        finder.add(&at("packets"), what, format!("write 1 to {MAX_PACKETS_PER_TILE}: the mask has a bit for each"));
    }
    let mut is_sound = check_key(finder, &at("frame"), &header.frame, header.bytes);
    is_sound &= check_key(finder, &at("packet"), &header.packet, header.bytes);
    if let Some(module) = &header.module {
        check_key(finder, &at("module"), module, header.bytes);
    }
    if header.require.len() > REQUIRED_MAX {
        let what = format!("{} required values", header.require.len());
        finder.add(&at("require"), what, format!("write at most {REQUIRED_MAX}"));
    }
    for (n, require) in header.require.iter().enumerate().take(REQUIRED_MAX) {
        let at = [Name("headers"), Name(name), Name("require"), Index(n)];
        if check_key(finder, &at, &require.key(), header.bytes) && require.value & !most(&require.key()) != 0 {
            let what = format!("value = {} has bits that the key does not have", require.value);
            finder.add(&at, what, "no packet could match: correct mask, bytes or value");
        }
    }
    if !is_sound {
        return;
    }
    let frames = most(&header.frame);
    if frames != u64::MAX && frames < (2 * u64::from(slots)).saturating_sub(1) {
        let what = format!("numbers of frames end at {frames}, and there are {slots} slots");
        finder.add(&at("frame"), what, "write a wider key or fewer slots: frames and slots could be mistaken for each other");
    }
    let last = u64::from(header.first_packet) + u64::from(header.packets) - u64::from(header.packets > 0);
    if last > most(&header.packet) {
        let what = format!("packets up to {last} do not fit into their key, whose highest value is {}", most(&header.packet));
        finder.add(&at("packet"), what, "write a wider key, or fewer packets");
    }
}

/// True if the key lies in the header and its mask is one run of bits above `shift`.
fn check_key(finder: &mut Finder<'_>, at: &[Step<'_>], key: &Key, header_bytes: u32) -> bool {
    if !(1..=8).contains(&key.bytes) {
        finder.add(at, format!("a key of {} bytes", key.bytes), "write bytes = 1 to 8");
        return false;
    }
    let end = u64::from(key.offset) + u64::from(key.bytes);
    if end > u64::from(header_bytes) {
        let what = format!("bytes {}..{end} lie outside of the header of {header_bytes} bytes", key.offset);
        finder.add(at, what, format!("write an offset of at most {}", header_bytes.saturating_sub(key.bytes)));
        return false;
    }
    let mask = key.mask.unwrap_or(whole(key));
    if mask & !whole(key) != 0 {
        let what = format!("mask = 0x{mask:X} is wider than {} bytes", key.bytes);
        finder.add(at, what, format!("write a mask up to 0x{:X}, or more bytes", whole(key)));
        return false;
    }
    if key.shift >= 8 * key.bytes {
        finder.add(at, format!("shift = {} leaves nothing of {} bytes", key.shift, key.bytes), "write a smaller shift");
        return false;
    }
    let number = mask >> key.shift;
    if number == 0 || (number & number.wrapping_add(1)) != 0 {
        let what = format!("the bits 0x{mask:X} >> {} are not one run of bits from the lowest on", key.shift);
        finder.add(at, what, "write a mask without holes, and as shift the number of its zeros at the end");
        return false;
    }
    true
}

fn check_places(finder: &mut Finder<'_>, name: &str, places: &Places, header: Option<&Header>, pixel: Option<PixelType>) {
    let at = |key| [Name("places"), Name(name), Name(key)];
    let Some(header) = header else {
        finder.add(&at("header"), format!("there is no [headers.{}]", places.header), "write the name of a header");
        return;
    };
    if places.terms.len() > TERMS_MAX {
        finder.add(&at("terms"), format!("{} terms", places.terms.len()), format!("write at most {TERMS_MAX}"));
    }
    for (n, term) in places.terms.iter().enumerate().take(TERMS_MAX) {
        let at = [Name("places"), Name(name), Name("terms"), Index(n)];
        if term.divide == 0 || term.modulo == Some(0) {
            finder.add(&at, "a division by 0", "write divide and modulo of 1 or more, or leave them out");
        } else if (0..header.packets.min(MAX_PACKETS_PER_TILE as u32))
            .any(|packet| term.of(packet).is_none_or(|bytes| bytes.unsigned_abs() > ADDEND_MAX))
        {
            finder.add(
                &at,
                format!("multiply = {} overflows", term.multiply),
                format!("addresses have at most {ADDEND_MAX} bytes"),
            );
        }
    }
    let patterns = places.patterns.len();
    if patterns == 0 || patterns > PATTERNS_MAX.min(header.packets.max(1) as usize) {
        let fix = format!("write 1 to {}: one for each packet of a period", header.packets.max(1));
        finder.add(&at("patterns"), format!("{patterns} patterns for {} packets", header.packets), fix);
    }
    for (n, pattern) in places.patterns.iter().enumerate().take(PATTERNS_MAX) {
        check_pattern(finder, &[Name("places"), Name(name), Name("patterns"), Index(n)], pattern, header, pixel);
    }
}

fn check_pattern(
    finder: &mut Finder<'_>,
    at: &[Step<'_>; 4],
    pattern: &[super::program::Segment],
    header: &Header,
    pixel: Option<PixelType>,
) {
    if pattern.is_empty() || pattern.len() > SEGMENTS_MAX {
        let what = format!("{} segments of one packet", pattern.len());
        finder.add(at, what, format!("write 1 to {SEGMENTS_MAX}: lines that do not adjoin have one each"));
        return;
    }
    let pixel_bytes = pixel.map_or(1, |pixel| pixel.bytes() as u64);
    for (n, segment) in pattern.iter().enumerate() {
        let here = [at[0], at[1], at[2], at[3], Index(n)];
        let end = u64::from(segment.source) + u64::from(segment.bytes);
        if segment.bytes == 0 || end > u64::from(header.payload_bytes) {
            let what = format!("bytes {}..{end} of a payload of {} bytes", segment.source, header.payload_bytes);
            finder.add(&here, what, "write source and bytes that lie in the payload");
        }
        if segment.destination.unsigned_abs() > ADDEND_MAX {
            finder.add(&here, format!("destination = {}", segment.destination), format!("write at most {ADDEND_MAX}"));
        }
        let parts = [u64::from(segment.source), segment.destination.unsigned_abs(), u64::from(segment.bytes)];
        if parts.iter().any(|part| !part.is_multiple_of(pixel_bytes)) {
            let what = format!("pixels of {pixel_bytes} bytes would be divided");
            finder.add(&here, what, format!("write multiples of {pixel_bytes}, or no pixel type"));
        }
    }
    let mut sources: Vec<(u32, u32)> = pattern.iter().map(|s| (s.source, s.source.saturating_add(s.bytes))).collect();
    sources.sort_unstable();
    if let Some(pair) = sources.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        let what = format!("byte {} of the payload is in two segments", pair[1].0);
        finder.add(at, what, "each byte has one place: correct source or bytes");
    }
}

fn ready_key(key: &Key) -> ReadyKey {
    ReadyKey {
        offset: key.offset as usize,
        bytes: key.bytes as usize,
        endian: key.endian,
        mask: key.mask.unwrap_or(u64::MAX) & whole(key),
        shift: key.shift,
    }
}

fn ready_header(header: &Header) -> ReadyHeader {
    ReadyHeader {
        bytes: header.bytes as usize,
        datagram_bytes: (header.bytes + header.payload_bytes) as usize,
        packets: header.packets as u16,
        first_packet: header.first_packet.into(),
        frame: ready_key(&header.frame),
        packet: ready_key(&header.packet),
        module: header.module.as_ref().map(ready_key),
        require: header.require.iter().map(|require| (ready_key(&require.key()), require.value)).collect(),
    }
}

#[cfg(test)]
#[path = "compile_tests.rs"]
mod tests;
