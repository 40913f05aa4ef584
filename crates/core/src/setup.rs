//! Is the detector the one that the configuration describes? Nothing in a packet states bit depth, interfaces or the number of modules, so a
//! receiver that is set up wrongly takes half of the packets for all of them. [`Seen`] is what one stream has seen of its packets, in a few
//! numbers; [`judge`] compares what all streams have seen with the plan and names what differs, as [`Finding`]s. Text is made elsewhere.
//!
//! Nothing here looks at pixels, allocates per packet, or decides where pixels lie: places follow from the configuration alone.

use crate::ledger::Malformed;
use crate::tile::{DetectorKind, TileFormat};

/// Which module and which part of it a port carries, as the header says (protocols 1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Port {
    /// Row of the port in the detector.
    pub row: u16,
    /// Column of the port.
    pub column: u16,
    /// Module id.
    pub module_id: u16,
}

/// What the headers of the ports should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// Not known, and not checked.
    #[default]
    Unknown,
    /// Modules count down a column first, as the SLS software counts them; how many there are in a column is not known.
    Ordered,
    /// The same, with so many modules in a column.
    Grid {
        /// Modules in a column.
        down: u32,
    },
    /// As given for each stream: row, column, module id; `None` = any.
    Given(Vec<[Option<u16>; 3]>),
}

/// What is held against the packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupRules {
    /// Packets that contradict the configuration are not placed, and headers of other modules than expected make the run incomplete.
    pub is_strict: bool,
    /// Ports of a module.
    pub ports_per_module: u32,
    /// What the headers should say.
    pub ports: Ports,
}

impl Default for SetupRules {
    /// Nothing is refused and no header expected.
    fn default() -> Self {
        Self { is_strict: false, ports_per_module: 1, ports: Ports::Unknown }
    }
}

/// The fields of a header that say whose packet it is; they exist in every datagram of at least a header's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFields {
    /// Type of the detector, as numbered by the SLS software.
    pub detector_type: u8,
    /// Version of the header.
    pub version: u8,
    /// Number of the packet.
    pub packet_number: u32,
}

/// Datagrams of one wrong kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odd {
    /// Bytes of each.
    pub bytes: u32,
    /// What the header says, if they are long enough for one.
    pub detector_type: u8,
    /// Version of the header, if they are long enough for one.
    pub version: u8,
    /// How many.
    pub count: u64,
}

/// Wrong kinds of datagrams that are told apart.
const ODD_KINDS: usize = 4;

/// What one stream has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets that are right in everything but, perhaps, their packet number.
    pub packets: u64,
    /// Of these: their number is none of the tile.
    pub beyond: u64,
    /// Of these: not placed because they contradict the configuration.
    pub refused: u64,
    /// Lowest packet number, as it stands in the header.
    pub packet_low: u32,
    /// Highest packet number.
    pub packet_high: u32,
    /// Frames of which a packet was placed.
    pub frames: u64,
    /// Highest frame number of these.
    pub frame_high: u64,
    /// Greatest common divisor of the distances between them; 0 with fewer than two.
    pub frame_step: u64,
    /// What the headers say; `None` before the first packet.
    pub port: Option<Port>,
    /// What other headers said last.
    pub other_port: Option<Port>,
    /// Packets with another header.
    pub other_packets: u64,
    /// Packets of frames outside of the run.
    pub foreign: u64,
    /// Lowest frame number of these.
    pub foreign_low: u64,
    /// Highest frame number of these.
    pub foreign_high: u64,
    /// Packets of frames far behind the newest: the count began again.
    pub back: u64,
    /// Lowest frame number of these.
    pub back_low: u64,
    /// Datagrams that are no packets of this detector, by kind.
    pub odd: [Odd; ODD_KINDS],
    /// Those of further kinds.
    pub odd_others: u64,
}

/// A frame so far behind the newest is no late one.
const BACK_FRAMES: u64 = 1000;

impl Seen {
    /// A datagram that is none of a tile.
    pub fn on_malformed(&mut self, bytes: usize, fields: Option<HeaderFields>, why: Malformed) {
        if let (Malformed::PacketNumber, Some(fields)) = (why, fields) {
            self.beyond += 1;
            return self.on_number(fields.packet_number);
        }
        let (bytes, fields) = (bytes as u32, fields.map_or((0, 0), |f| (f.detector_type, f.version)));
        let is_it = |odd: &&mut Odd| odd.count == 0 || (odd.bytes, (odd.detector_type, odd.version)) == (bytes, fields);
        match self.odd.iter_mut().find(is_it) {
            Some(odd) => *odd = Odd { bytes, detector_type: fields.0, version: fields.1, count: odd.count + 1 },
            None => self.odd_others += 1,
        }
    }

    /// A packet that is right in all but perhaps its number.
    #[inline]
    pub fn on_number(&mut self, number: u32) {
        let first = self.packets == 0;
        self.packets += 1;
        self.packet_low = if first { number } else { self.packet_low.min(number) };
        self.packet_high = self.packet_high.max(number);
    }

    /// True if a packet comes from the port from which all of this stream came.
    #[inline]
    pub fn is_own(&mut self, port: Port) -> bool {
        let own = *self.port.get_or_insert(port);
        if own != port {
            (self.other_port, self.other_packets) = (Some(port), self.other_packets + 1);
        }
        own == port
    }

    /// The first packet of a frame was placed.
    pub fn on_frame(&mut self, frame: u64) {
        if self.frames > 0 {
            self.frame_step = gcd(self.frame_step, frame.abs_diff(self.frame_high));
        }
        self.frames += 1;
        self.frame_high = self.frame_high.max(frame);
    }

    /// A packet of a frame outside of the run.
    pub fn on_foreign(&mut self, frame: u64) {
        self.foreign_low = if self.foreign == 0 { frame } else { self.foreign_low.min(frame) };
        self.foreign_high = self.foreign_high.max(frame);
        self.foreign += 1;
        self.on_late(frame);
    }

    /// A packet of a frame that is closed, or outside of the run.
    pub fn on_late(&mut self, frame: u64) {
        // The first frames of a short run are few behind the newest; that the very first comes again says it too.
        let far = BACK_FRAMES.min(self.frames.saturating_sub(1).max(1));
        if self.frames > 0 && frame.saturating_add(far) <= self.frame_high {
            self.back_low = if self.back == 0 { frame } else { self.back_low.min(frame) };
            self.back += 1;
        }
    }

    /// Datagrams that are no packets of this detector.
    pub fn odd_total(&self) -> u64 {
        self.odd.iter().map(|odd| odd.count).sum::<u64>() + self.odd_others
    }

    /// True if no datagram came.
    pub fn is_silent(&self) -> bool {
        self.packets == 0 && self.odd_total() == 0
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What the number of packets means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// EIGER: pixels of so many bits.
    Bits(u32),
    /// JUNGFRAU: so many UDP interfaces.
    Interfaces(u32),
    /// JUNGFRAU: so many rows of the module are read out.
    Rows(u32),
    /// No readout that is known.
    Unknown,
}

/// What differs from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Packets of another type of detector.
    Type(u8),
    /// Headers of another version.
    Version(u8),
    /// Datagrams of another size.
    Size {
        /// Bytes that came.
        bytes: u32,
        /// Bytes of this detector's packets.
        expected: u32,
    },
    /// Another number of packets per frame.
    Packets {
        /// Packets of a frame, by their highest and lowest numbers.
        seen: u32,
        /// Packets of a tile.
        expected: u32,
        /// What has so many.
        means: Means,
    },
    /// Packets of two ports come to one.
    TwoPorts {
        /// Whose packets are taken.
        own: Port,
        /// Whose are not.
        other: Port,
    },
    /// The port of another place in the detector.
    Place {
        /// What the header says.
        seen: Port,
        /// Row, column and module id that belong here, where they are known.
        expected: [Option<u16>; 3],
    },
    /// This port stands before the one of the stream before it.
    Order {
        /// What the header says.
        seen: Port,
        /// What that of the stream before says.
        before: Port,
    },
    /// The same port came to another stream too.
    Twice {
        /// What both headers say.
        port: Port,
        /// The other stream.
        other: usize,
    },
    /// Nothing came, while other streams have frames.
    Silent,
    /// Only every so manieth frame comes.
    EveryNth(u64),
    /// No frame is one of the run.
    FirstFrame {
        /// Lowest frame number that came.
        low: u64,
        /// Highest frame number that came.
        high: u64,
    },
    /// The frame numbers began again.
    Restart {
        /// Highest before that.
        from: u64,
        /// Lowest afterwards.
        to: u64,
    },
    /// Many datagrams that are no packets of this detector.
    Noise {
        /// So many.
        odd: u64,
        /// Of so many.
        of: u64,
    },
}

/// Something that differs from the configuration, where it was seen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The first stream that shows it.
    pub stream: usize,
    /// Streams that show it.
    pub streams: usize,
    /// What.
    pub what: What,
    /// The run cannot be called complete.
    pub is_wrong: bool,
}

/// A few damaged or stray datagrams are no finding: it takes so many, and this part of all.
const CERTAIN_PACKETS: u64 = 3;
const CERTAIN_PART: u64 = 16;
/// Frames after which what never came is known not to come.
const CERTAIN_FRAMES: u64 = 3;
/// Frames of the others after which a stream counts as silent, and frames that show which numbers come.
const MANY_FRAMES: u64 = 10;

/// The run as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// What is held against the packets.
    pub rules: &'a SetupRules,
    /// Format of every tile.
    pub format: &'a TileFormat,
    /// Bytes of the header before the payload of a packet.
    pub header_bytes: u32,
    /// Detector type of the plan, as numbered by the SLS software.
    pub detector_type: u8,
    /// Version of the header that is understood.
    pub version: u8,
    /// What each stream has seen.
    pub seen: &'a [Seen],
    /// Nothing more will come.
    pub has_ended: bool,
}

/// Compares; the gravest first, and each thing once however many streams show it.
pub fn judge(look: &Look<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let mut add = |stream: usize, what: Option<What>, is_wrong: bool| {
        let Some(what) = what else { return };
        match found.iter_mut().find(|f| same(&f.what, &what)) {
            Some(finding) => finding.streams += 1,
            None => found.push(Finding { stream, streams: 1, what, is_wrong }),
        }
    };
    let each = || look.seen.iter().enumerate();
    each().for_each(|(n, seen)| add(n, foreign_kind(look, seen), true));
    each().for_each(|(n, seen)| add(n, packets(look, seen), true));
    each().for_each(|(n, seen)| add(n, two_ports(seen), true));
    each().for_each(|(n, _)| add(n, twice(look, n), look.rules.is_strict));
    each().for_each(|(n, _)| add(n, place(look, n), look.rules.is_strict));
    each().for_each(|(n, seen)| add(n, first_frame(seen), true));
    each().for_each(|(n, seen)| add(n, restart(look, seen), true));
    each().for_each(|(n, seen)| add(n, every_nth(seen), true));
    let newest = look.seen.iter().map(|seen| seen.frames).max().unwrap_or(0);
    let is_certain = newest >= MANY_FRAMES || look.has_ended && newest > 0;
    each().for_each(|(n, seen)| add(n, (is_certain && seen.is_silent()).then_some(What::Silent), true));
    each().for_each(|(n, seen)| add(n, noise(seen), true));
    // What the packets are not says why the datagrams are not.
    if found.iter().any(|f| matches!(f.what, What::Type(_) | What::Version(_) | What::Size { .. })) {
        found.retain(|f| !matches!(f.what, What::Noise { .. }));
    }
    found
}

/// Packets of a tile in the other readouts of this kind of detector, where they are fewer.
pub fn other_counts(format: &TileFormat, ports_per_module: u32) -> [u32; 5] {
    match format.kind {
        DetectorKind::Eiger => [4, 8, 12, 16, 32].map(|bits| eiger_packets(format, bits)),
        DetectorKind::Jungfrau if ports_per_module == 1 => [64; 5],
        DetectorKind::Jungfrau => [0; 5],
    }
}

fn eiger_packets(format: &TileFormat, bits: u32) -> u32 {
    256 * 512 / 8 * bits / format.payload_bytes
}

/// True if two findings are told as one.
fn same(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::FirstFrame { .. }, What::FirstFrame { .. }) | (What::Restart { .. }, What::Restart { .. }) => true,
        (What::Noise { .. }, What::Noise { .. }) => true,
        _ => a == b,
    }
}

fn is_much(count: u64, of: u64) -> bool {
    count >= CERTAIN_PACKETS && count.saturating_mul(CERTAIN_PART) >= of
}

fn all_of(seen: &Seen) -> u64 {
    seen.packets + seen.odd_total()
}

/// Datagrams of another detector, header or size.
fn foreign_kind(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let odd = seen.odd.iter().filter(|odd| is_much(odd.count, all_of(seen))).max_by_key(|odd| odd.count)?;
    let expected = look.header_bytes + look.format.payload_bytes;
    let is_sls = (1..=8).contains(&odd.detector_type) && (1..=2).contains(&odd.version);
    if odd.version != look.version && odd.detector_type == look.detector_type && odd.bytes == expected {
        return Some(What::Version(odd.version));
    }
    match odd.detector_type == look.detector_type {
        _ if !is_sls => None,
        false => Some(What::Type(odd.detector_type)),
        true => Some(What::Size { bytes: odd.bytes, expected }),
    }
}

/// Another number of packets than the tile has.
fn packets(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let expected = look.format.packets();
    let (low, high) = (seen.packet_low, seen.packet_high);
    let is_more = is_much(seen.beyond, seen.packets);
    let is_certain = seen.refused > 0 || seen.frames >= CERTAIN_FRAMES || look.has_ended && seen.frames > 0;
    if !is_more && !is_certain || seen.packets == 0 {
        return None;
    }
    let means = meaning(look, low, high);
    let is_less = high - low + 1 < expected && means != Means::Unknown;
    (is_more || seen.refused > 0 || is_less).then_some(What::Packets { seen: high - low + 1, expected, means })
}

/// The readout that has packets with these numbers.
fn meaning(look: &Look<'_>, low: u32, high: u32) -> Means {
    let count = high - low + 1;
    match look.format.kind {
        DetectorKind::Eiger => {
            let bits = [4, 8, 12, 16, 32].into_iter().find(|bits| eiger_packets(look.format, *bits) == count);
            bits.filter(|bits| low == 0 && *bits != look.format.bits).map_or(Means::Unknown, Means::Bits)
        }
        DetectorKind::Jungfrau => {
            let ports = look.rules.ports_per_module;
            match (low, count) {
                (0, 64) if ports == 1 && !look.format.is_partial() => Means::Interfaces(2),
                (0, 128) if ports == 2 && !look.format.is_partial() => Means::Interfaces(1),
                _ if ports == 1 && low + high == 127 && count != look.format.packets() => Means::Rows(count * 4),
                _ => Means::Unknown,
            }
        }
    }
}

fn two_ports(seen: &Seen) -> Option<What> {
    let (own, other) = (seen.port?, seen.other_port?);
    is_much(seen.other_packets, seen.packets).then_some(What::TwoPorts { own, other })
}

/// The earlier stream to which the same port came.
fn twice(look: &Look<'_>, stream: usize) -> Option<What> {
    let port = look.seen[stream].port?;
    if look.rules.ports == Ports::Unknown {
        return None;
    }
    let other = look.seen[..stream].iter().position(|seen| seen.port == Some(port))?;
    Some(What::Twice { port, other })
}

fn place(look: &Look<'_>, stream: usize) -> Option<What> {
    let seen = look.seen[stream].port?;
    match &look.rules.ports {
        Ports::Unknown => None,
        Ports::Ordered => {
            let before = look.seen[..stream].iter().rev().find_map(|seen| seen.port)?;
            let key = |port: Port| rank(look, port);
            (key(seen) < key(before)).then_some(What::Order { seen, before })
        }
        Ports::Grid { down } => {
            let expected = expected_in_grid(look, *down, stream)?;
            let is_right = (u32::from(seen.row), u32::from(seen.column)) == expected;
            let known = [u16::try_from(expected.0).ok(), u16::try_from(expected.1).ok(), None];
            (!is_right && !is_twice(look, stream)).then_some(What::Place { seen, expected: known })
        }
        Ports::Given(list) => {
            let expected = *list.get(stream)?;
            let said = [seen.row, seen.column, seen.module_id];
            let is_right = expected.iter().zip(said).all(|(expected, said)| expected.is_none_or(|e| e == said));
            (!is_right).then_some(What::Place { seen, expected })
        }
    }
}

fn is_twice(look: &Look<'_>, stream: usize) -> bool {
    let port = look.seen[stream].port;
    look.seen.iter().enumerate().any(|(n, seen)| n != stream && seen.port == port)
}

/// Where a port stands in the count of the SLS software: down a column of modules first, and inside of a module row by row.
fn rank(look: &Look<'_>, port: Port) -> (u16, u16, u16) {
    match look.format.kind {
        DetectorKind::Jungfrau => (port.column, port.row, 0),
        DetectorKind::Eiger => (port.column / 2, port.row, port.column % 2),
    }
}

/// Row and column of a stream in a detector with so many modules in a column; counted from the least that came, because a detector may be
/// part of a larger one.
fn expected_in_grid(look: &Look<'_>, down: u32, stream: usize) -> Option<(u32, u32)> {
    let ports = look.rules.ports_per_module.max(1);
    let of = |stream: usize| {
        let (module, port) = (stream as u32 / ports, stream as u32 % ports);
        let (row, column) = (module % down.max(1), module / down.max(1));
        match look.format.kind {
            DetectorKind::Jungfrau => (row * ports + port, column),
            DetectorKind::Eiger => (row * 2 + port / 2, column * 2 + port % 2),
        }
    };
    let heard = || look.seen.iter().enumerate().filter_map(|(n, seen)| Some((n, seen.port?)));
    let least = |values: &mut dyn Iterator<Item = u32>| values.min().unwrap_or(0);
    let shift = (
        i64::from(least(&mut heard().map(|(_, p)| p.row.into()))) - i64::from(least(&mut heard().map(|(n, _)| of(n).0))),
        i64::from(least(&mut heard().map(|(_, p)| p.column.into()))) - i64::from(least(&mut heard().map(|(n, _)| of(n).1))),
    );
    let (row, column) = of(stream);
    Some((u32::try_from(i64::from(row) + shift.0).ok()?, u32::try_from(i64::from(column) + shift.1).ok()?))
}

fn first_frame(seen: &Seen) -> Option<What> {
    let none_is = seen.frames == 0 && seen.foreign >= CERTAIN_PACKETS;
    none_is.then_some(What::FirstFrame { low: seen.foreign_low, high: seen.foreign_high })
}

fn restart(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let much = u64::from(look.format.packets() / 2).max(CERTAIN_PACKETS);
    (seen.back >= much).then_some(What::Restart { from: seen.frame_high, to: seen.back_low })
}

fn every_nth(seen: &Seen) -> Option<What> {
    (seen.frames >= MANY_FRAMES && seen.frame_step > 1).then_some(What::EveryNth(seen.frame_step))
}

fn noise(seen: &Seen) -> Option<What> {
    let (odd, of) = (seen.odd_total(), all_of(seen));
    is_much(odd, of).then_some(What::Noise { odd, of })
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
