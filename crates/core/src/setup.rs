//! Is the detector the one that the configuration describes? Nothing in a packet states bit depth, interfaces or the number of modules, so a
//! receiver that is set up wrongly takes half of the packets for all of them. [`Seen`] is what one stream has seen of its packets, in a few
//! numbers; [`judge`] compares what all streams have seen with the plan and names what differs, as [`Finding`]s. Text is made elsewhere.
//!
//! Nothing here looks at pixels, allocates per packet, or decides where pixels lie: places follow from the configuration alone.

use crate::ledger::Malformed;
use crate::sender::{Sender, Senders, Strangers};
use crate::tile::{DetectorKind, MODULE_ROWS, TileFormat};
use crate::{DATAGRAM_HEADER_BYTES, MAX_PACKETS_PER_TILE};

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
    /// Whose packets are taken.
    pub senders: Senders,
}

impl Default for SetupRules {
    /// Nothing is refused and no header expected.
    fn default() -> Self {
        Self { is_strict: false, ports_per_module: 1, ports: Ports::Unknown, senders: Senders::Any }
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
    /// Datagrams of any kind, as far as they were counted.
    pub received: u64,
    /// Packets that are right in everything but, perhaps, their packet number.
    pub packets: u64,
    /// Of these: their number is none of the tile.
    pub beyond: u64,
    /// Of these: not placed because they contradict the configuration.
    pub refused: u64,
    /// Frames of which packets were refused since the last one was placed; 0 = what comes now is placed.
    pub refused_frames: u64,
    /// The last of these.
    pub refused_frame: u64,
    /// Packets whose numbers are in the following two: those that a tile can have, since packets were last refused or are no longer.
    pub numbered: u64,
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
    /// Packets with this header.
    pub own_packets: u64,
    /// What other headers said last.
    pub other_port: Option<Port>,
    /// Packets with another header.
    pub other_packets: u64,
    /// Of these: with the last one, in a row but for those of the own port.
    pub other_row: u64,
    /// Whose packets are taken, where it is one sender's.
    pub sender: Option<Sender>,
    /// Whose are not.
    pub strangers: Strangers,
    /// Packets of two senders that are both alive may lie in the images.
    pub is_contested: bool,
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

    /// A packet that is right in all but perhaps its number. One number that no tile has says nothing about the others.
    #[inline]
    pub fn on_number(&mut self, number: u32) {
        self.packets += 1;
        if number as usize >= MAX_PACKETS_PER_TILE {
            return;
        }
        self.packet_low = if self.numbered == 0 { number } else { self.packet_low.min(number) };
        self.packet_high = self.packet_high.max(number);
        self.numbered += 1;
    }

    /// A packet that is not placed, because the packets of its stream are not those of the tile.
    pub fn on_refused(&mut self, frame: u64, number: u32) {
        if self.refused_frames == 0 {
            self.forget_numbers();
        }
        if self.refused_frames == 0 || frame != self.refused_frame {
            (self.refused_frames, self.refused_frame) = (self.refused_frames + 1, frame);
        }
        self.refused += 1;
        self.on_number(number);
    }

    /// The packets of the stream are those of the tile, whatever came before. `port` is whose they are, where it is known.
    pub fn on_begin(&mut self, port: Option<Port>) {
        if self.refused_frames > 0 {
            self.forget_numbers();
        }
        self.refused_frames = 0;
        self.port = port;
    }

    fn forget_numbers(&mut self) {
        (self.numbered, self.packet_low, self.packet_high) = (0, 0, 0);
    }

    /// True if a packet comes from the port whose stream this is: the first one, unless it turns out at once that this was a stray one, and all
    /// of a tile of so many packets come from another.
    #[inline]
    pub fn is_own(&mut self, port: Port, tile_packets: u32) -> bool {
        if *self.port.get_or_insert(port) == port {
            self.own_packets += 1;
            return true;
        }
        self.is_new_owner(port, u64::from(tile_packets))
    }

    #[cold]
    fn is_new_owner(&mut self, port: Port, tile_packets: u64) -> bool {
        self.other_row = if self.other_port == Some(port) { self.other_row + 1 } else { 1 };
        (self.other_port, self.other_packets) = (Some(port), self.other_packets + 1);
        let is_stray = self.own_packets < tile_packets && self.own_packets.saturating_mul(CERTAIN_PART) < self.other_row;
        if self.other_row < tile_packets || !is_stray {
            return false;
        }
        (self.other_port, self.other_packets, self.other_row) = (self.port, self.own_packets, 0);
        (self.port, self.own_packets) = (Some(port), 1);
        true
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
        self.received == 0 && self.packets == 0 && self.odd_total() == 0
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
    /// EIGER: pixels of so many bits, or so many rows that are read out; packets do not say which.
    BitsOrRows {
        /// Bits of a pixel, if the rows are those of the configuration.
        bits: u32,
        /// Rows of each half module, if the bits are.
        rows: u32,
    },
    /// JUNGFRAU: so many UDP interfaces.
    Interfaces(u32),
    /// So many rows are read out: of a JUNGFRAU module, or of each half module of an EIGER.
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
    /// Packets of two ports come to one, or of one whose headers changed.
    TwoPorts {
        /// Whose packets are taken.
        own: Port,
        /// Whose are not.
        other: Port,
    },
    /// Somebody else sends to the port, too.
    Strangers {
        /// Whose packets are taken, where it is one sender's.
        own: Option<Sender>,
        /// Whose most of the others are.
        other: Sender,
        /// The others are so many.
        packets: u64,
        /// Some of theirs were taken while the first sender was silent for long.
        is_contested: bool,
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
    /// No frame is one of the run, whose first one is given or was begun by another stream.
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

/// A few damaged or stray datagrams are no finding: it takes so many (while a run goes on, as many as a tile has), and this part of all.
const CERTAIN_PACKETS: u64 = 3;
const CERTAIN_PART: u64 = 16;
/// Frames after which what never came is known not to come.
const CERTAIN_FRAMES: u64 = 3;
/// Frames of the others after which a stream counts as silent, and frames that show which numbers come.
const MANY_FRAMES: u64 = 10;
/// And so long it must have been silent.
const SILENT_NS: u64 = 500_000_000;

/// The run as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// What is held against the packets.
    pub rules: &'a SetupRules,
    /// Format of every tile.
    pub format: &'a TileFormat,
    /// Detector type of the plan, as numbered by the SLS software.
    pub detector_type: u8,
    /// Version of the header that is understood.
    pub version: u8,
    /// Number of the first frame, where it is known.
    pub first_frame: Option<u64>,
    /// What each stream has seen.
    pub seen: &'a [Seen],
    /// Time since the first datagram of any stream.
    pub heard_ns: u64,
    /// Nothing more will come.
    pub has_ended: bool,
}

impl Look<'_> {
    /// So many datagrams of one kind are no accident.
    fn is_much(&self, count: u64, of: u64) -> bool {
        let least = if self.has_ended { CERTAIN_PACKETS } else { CERTAIN_PACKETS.max(self.format.packets().into()) };
        count >= least && count.saturating_mul(CERTAIN_PART) >= of
    }
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
    each().for_each(|(n, _)| add(n, packets(look, n), true));
    each().for_each(|(n, seen)| add(n, two_ports(look, seen), true));
    each().for_each(|(n, seen)| add(n, strangers(seen), seen.is_contested));
    each().for_each(|(n, _)| add(n, twice(look, n), look.rules.is_strict));
    each().for_each(|(n, _)| add(n, place(look, n), look.rules.is_strict));
    each().for_each(|(n, seen)| add(n, first_frame(look, seen), true));
    each().for_each(|(n, seen)| add(n, restart(look, seen), true));
    each().for_each(|(n, seen)| add(n, every_nth(seen), true));
    let newest = look.seen.iter().map(|seen| seen.frames).max().unwrap_or(0);
    let is_certain = newest >= MANY_FRAMES && look.heard_ns >= SILENT_NS || look.has_ended && newest > 0;
    each().for_each(|(n, seen)| add(n, (is_certain && seen.is_silent()).then_some(What::Silent), true));
    each().for_each(|(n, seen)| add(n, noise(look, seen), true));
    // What the packets are not says why the datagrams are not.
    if found.iter().any(|f| matches!(f.what, What::Type(_) | What::Version(_) | What::Size { .. })) {
        found.retain(|f| !matches!(f.what, What::Noise { .. }));
    }
    found
}

/// The first packet number of a tile that no smaller readout of this kind of detector has: another depth of the same rows or of all, or one
/// of two interfaces. 0 if there is no smaller one. Half of a number looks like a number, so packets below it tell nothing.
pub fn telling_number(format: &TileFormat, ports_per_module: u32) -> u32 {
    let smaller = |counts: &mut dyn Iterator<Item = u32>| counts.filter(|count| *count < format.packets()).max().unwrap_or(0);
    match format.kind {
        DetectorKind::Eiger => {
            let counts = |bits| [eiger_packets(format, bits, format.rows), eiger_packets(format, bits, format.whole_rows())];
            smaller(&mut EIGER_BITS.into_iter().flat_map(counts))
        }
        DetectorKind::Jungfrau if ports_per_module == 1 => smaller(&mut [HALF_MODULE_PACKETS].into_iter()),
        DetectorKind::Jungfrau => 0,
    }
}

const EIGER_BITS: [u32; 5] = [4, 8, 12, 16, 32];
/// Packets of one of two interfaces of a JUNGFRAU.
const HALF_MODULE_PACKETS: u32 = 64;

/// Packets of a port with so many bits and rows of each half module.
fn eiger_packets(format: &TileFormat, bits: u32, rows: u32) -> u32 {
    rows * 512 / 8 * bits / format.payload_bytes
}

/// True if two findings are told as one.
fn same(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::FirstFrame { .. }, What::FirstFrame { .. }) | (What::Restart { .. }, What::Restart { .. }) => true,
        (What::Noise { .. }, What::Noise { .. }) => true,
        (What::Strangers { other: a, is_contested, .. }, What::Strangers { other: b, is_contested: too, .. }) => {
            (a.address().ip(), is_contested) == (b.address().ip(), too)
        }
        _ => a == b,
    }
}

fn all_of(seen: &Seen) -> u64 {
    seen.packets + seen.odd_total()
}

/// Datagrams of another detector, header or size.
fn foreign_kind(look: &Look<'_>, seen: &Seen) -> Option<What> {
    // Where most packets are right, the others are somebody else's: noise.
    let is_most = |odd: &&Odd| look.is_much(odd.count, all_of(seen)) && odd.count > seen.packets;
    let odd = seen.odd.iter().filter(is_most).max_by_key(|odd| odd.count)?;
    let expected = DATAGRAM_HEADER_BYTES as u32 + look.format.payload_bytes;
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
fn packets(look: &Look<'_>, stream: usize) -> Option<What> {
    let seen = &look.seen[stream];
    let (low, high, expected) = (seen.packet_low, seen.packet_high, look.format.packets());
    if seen.numbered == 0 {
        return None;
    }
    let count = high - low + 1;
    // The first frame may have come in part, and the last one may be on its way.
    let is_certain = |frames: u64| frames >= CERTAIN_FRAMES || look.has_ended && frames > 0;
    let is_refused = is_certain(seen.refused_frames);
    let is_many_beyond = seen.beyond >= 4 * MAX_PACKETS_PER_TILE as u64;
    let is_more = (is_certain(seen.frames) || is_many_beyond || look.has_ended) && look.is_much(seen.beyond, seen.packets);
    let means = meaning(look, stream, low, high);
    let is_less = is_certain(seen.frames) && count < expected && means != Means::Unknown;
    (is_more || is_refused || is_less).then_some(What::Packets { seen: count, expected, means })
}

/// The readout that has packets with these numbers.
fn meaning(look: &Look<'_>, stream: usize, low: u32, high: u32) -> Means {
    let count = high - low + 1;
    let rows = rows_of(look, stream, low, high).filter(|rows| look.format.with_rows(*rows).is_some());
    let rows = rows.filter(|_| count != look.format.packets() && is_dense(look, &look.seen[stream], count));
    match look.format.kind {
        DetectorKind::Eiger => {
            let has_so_many = |bits: &u32| eiger_packets(look.format, *bits, look.format.rows) == count;
            let bits = EIGER_BITS.into_iter().find(has_so_many).filter(|bits| low == 0 && *bits != look.format.bits);
            // The count alone: where packets were lost, few of them fit a depth by accident, but all fit some number of rows.
            let same_rows = eiger_rows(look.format, count).filter(|rows| low == 0 && look.format.with_rows(*rows).is_some());
            match (bits, same_rows, rows) {
                (Some(bits), Some(rows), _) => Means::BitsOrRows { bits, rows },
                (Some(bits), None, _) => Means::Bits(bits),
                (None, _, Some(rows)) => Means::Rows(rows),
                (None, _, None) => Means::Unknown,
            }
        }
        DetectorKind::Jungfrau => {
            let ports = look.rules.ports_per_module;
            match (low, count) {
                (0, 64) if ports == 1 && !look.format.is_partial() => Means::Interfaces(2),
                (0, 128) if ports == 2 && !look.format.is_partial() => Means::Interfaces(1),
                _ => rows.map_or(Means::Unknown, Means::Rows),
            }
        }
    }
}

/// Rows of a readout whose packets have these numbers.
fn rows_of(look: &Look<'_>, stream: usize, low: u32, high: u32) -> Option<u32> {
    const LAST: u32 = HALF_MODULE_PACKETS - 1;
    match (look.format.kind, look.rules.ports_per_module, stream % 2) {
        (DetectorKind::Eiger, ..) => eiger_rows(look.format, high + 1).filter(|_| low == 0),
        (DetectorKind::Jungfrau, 1, _) => (low + high == 2 * LAST + 1).then(|| 4 * (high - low + 1)),
        // Of two interfaces the first sends its last packets, and the second its first.
        (DetectorKind::Jungfrau, _, 0) => (high == LAST).then(|| 8 * (LAST + 1 - low)),
        (DetectorKind::Jungfrau, ..) => (low == 0 && high <= LAST).then(|| 8 * (high + 1)),
    }
    .filter(|rows| *rows <= MODULE_ROWS)
}

/// Rows of each half module of an EIGER that fill so many packets at the depth of the configuration.
fn eiger_rows(format: &TileFormat, count: u32) -> Option<u32> {
    let whole = eiger_packets(format, format.bits, format.whole_rows());
    let rows = format.whole_rows() * count / whole;
    (rows * whole == format.whole_rows() * count && rows <= format.whole_rows()).then_some(rows)
}

/// Nearly all packets of many frames came, so that those at the ends are not missing because they were lost.
fn is_dense(look: &Look<'_>, seen: &Seen, count: u32) -> bool {
    let frames = seen.frames.max(seen.refused_frames);
    let is_many = frames >= if look.has_ended { CERTAIN_FRAMES } else { MANY_FRAMES };
    is_many && seen.numbered.saturating_mul(CERTAIN_PART) >= (CERTAIN_PART - 1) * frames * u64::from(count)
}

fn two_ports(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let (own, other) = (seen.port?, seen.other_port?);
    look.is_much(seen.other_packets, seen.packets).then_some(What::TwoPorts { own, other })
}

fn strangers(seen: &Seen) -> Option<What> {
    let (other, packets) = (seen.strangers.first()?, seen.strangers.packets());
    let is_told = packets >= CERTAIN_PACKETS || seen.is_contested;
    is_told.then_some(What::Strangers { own: seen.sender, other, packets, is_contested: seen.is_contested })
}

/// The earlier stream to which the same port came.
fn twice(look: &Look<'_>, stream: usize) -> Option<What> {
    let port = look.seen[stream].port?;
    if look.rules.ports == Ports::Unknown {
        return None;
    }
    // Detectors of one module all say the same; where that is so, nothing is expected of their tiles.
    let is_expected = |stream: usize| match &look.rules.ports {
        Ports::Given(list) => list.get(stream).is_some_and(|expected| expected.iter().any(Option::is_some)),
        _ => true,
    };
    let is_same = |n: &usize| look.seen[*n].port == Some(port) && is_expected(*n);
    let other = (0..stream).find(is_same).filter(|_| is_expected(stream))?;
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

fn first_frame(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let none_is = seen.frames == 0 && look.is_much(seen.foreign, seen.foreign);
    // A detector that has not counted so far yet may still come to it.
    let may_come = !look.has_ended && look.first_frame.is_some_and(|first| seen.foreign_high < first);
    (none_is && !may_come).then_some(What::FirstFrame { low: seen.foreign_low, high: seen.foreign_high })
}

fn restart(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let much = u64::from(look.format.packets() / 2).max(CERTAIN_PACKETS);
    (seen.back >= much).then_some(What::Restart { from: seen.frame_high, to: seen.back_low })
}

fn every_nth(seen: &Seen) -> Option<What> {
    (seen.frames >= MANY_FRAMES && seen.frame_step > 1).then_some(What::EveryNth(seen.frame_step))
}

fn noise(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let (odd, of) = (seen.odd_total(), all_of(seen));
    look.is_much(odd, of).then_some(What::Noise { odd, of })
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
