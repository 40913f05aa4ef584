//! Checks whether the detector is the one that the configuration describes. Nothing in a packet states bit depth,
//! interfaces or the number of modules, so a receiver with a wrong set-up takes half of the packets for all of them.
//! [`Seen`] records in a few numbers what one stream has received. [`judge`] compares this for all streams with the
//! plan and returns every difference as a [`Finding`]. The texts for the user are made elsewhere.
//!
//! Nothing here looks at pixels, allocates per packet, or decides where pixels lie: places follow from the
//! configuration alone.

use crate::MAX_PACKETS_PER_TILE;
use crate::ledger::Malformed;
use crate::sender::{OtherSenders, Sender, Senders};
use crate::tile::{DetectorKind, MODULE_ROWS, TileFormat};

/// Which module and which part of it a port carries, as the header says (docs/protocols.md 1.1).
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
    /// Modules are numbered down a column first, as in the SLS software; how many there are in a column is not known.
    Ordered,
    /// As `Ordered`, with a known number of modules in a column.
    Grid {
        /// Modules in a column.
        down: u32,
    },
    /// As given for each stream: row, column, module id; `None` = any.
    Given(Vec<[Option<u16>; 3]>),
}

/// What packets are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupRules {
    /// Packets that contradict the configuration are not placed, and headers of other modules than expected make the
    /// run incomplete.
    pub is_strict: bool,
    /// Ports of a module.
    pub ports_per_module: u32,
    /// What the headers should say.
    pub ports: Ports,
    /// The senders whose packets are taken.
    pub senders: Senders,
}

impl Default for SetupRules {
    /// Nothing is refused, and no particular header is expected.
    fn default() -> Self {
        Self { is_strict: false, ports_per_module: 1, ports: Ports::Unknown, senders: Senders::Any }
    }
}

/// The header fields that identify the detector, as far as the packet format has them; else 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFields {
    /// Type of the detector, as the format numbers them.
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
    /// Detector type in the header, if the datagrams are long enough for one.
    pub detector_type: u8,
    /// Version of the header, if the datagrams are long enough for one.
    pub version: u8,
    /// Their number.
    pub count: u64,
}

/// Number of wrong kinds of datagrams that are counted separately.
const ODD_KINDS: usize = 4;

/// What one stream has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Datagrams of any kind, as far as they were counted.
    pub received: u64,
    /// Packets that are right in everything but, perhaps, their packet number.
    pub packets: u64,
    /// Of these: with a packet number beyond the tile.
    pub beyond: u64,
    /// Of these: not placed because they contradict the configuration.
    pub refused: u64,
    /// Frames with refused packets since a packet was last placed; 0 = packets are being placed.
    pub refused_frames: u64,
    /// Number of the last of these frames.
    pub refused_frame: u64,
    /// Packets that entered the next two fields: those with a number that a tile can have, counted anew whenever
    /// packets begin or cease to be refused.
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
    /// The port that the headers name; `None` before the first packet.
    pub port: Option<Port>,
    /// Packets from this port.
    pub own_packets: u64,
    /// The port that the last different header named.
    pub other_port: Option<Port>,
    /// Packets from other ports.
    pub other_packets: u64,
    /// Of these: from `other_port` in a row, apart from packets of the own port.
    pub other_row: u64,
    /// The sender whose packets are taken, if the stream learned one.
    pub sender: Option<Sender>,
    /// The senders whose packets are refused.
    pub other_senders: OtherSenders,
    /// Images may hold packets of two senders that are both alive.
    pub is_contested: bool,
    /// Packets of frames outside of the run.
    pub foreign: u64,
    /// Lowest frame number of these.
    pub foreign_low: u64,
    /// Highest frame number of these.
    pub foreign_high: u64,
    /// Packets of frames far behind the newest: the frame count restarted.
    pub back: u64,
    /// Lowest frame number of these.
    pub back_low: u64,
    /// Datagrams that are no packets of this detector, by kind.
    pub odd: [Odd; ODD_KINDS],
    /// Those of further kinds.
    pub odd_others: u64,
}

/// A frame this far behind the newest is not merely late.
const BACK_FRAMES: u64 = 1000;

impl Seen {
    /// Notes a datagram that is not a packet of the tile.
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

    /// Notes the number of a packet that is otherwise right. A number that no tile can have says nothing about the
    /// other packets.
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

    /// Notes a packet that is not placed because the packets of its stream are not those of the tile.
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

    /// Notes that from now on the packets of the stream are those of the tile. `port` is where they come from, if
    /// known.
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

    /// True if a packet comes from the port to which the stream belongs. This is the port of the first packet, unless
    /// that packet turns out to be a stray at once: then a tile of packets (`tile_packets`) comes from another port.
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

    /// Notes that the first packet of a frame was placed.
    pub fn on_frame(&mut self, frame: u64) {
        if self.frames > 0 {
            self.frame_step = gcd(self.frame_step, frame.abs_diff(self.frame_high));
        }
        self.frames += 1;
        self.frame_high = self.frame_high.max(frame);
    }

    /// Notes a packet of a frame outside the run.
    pub fn on_foreign(&mut self, frame: u64) {
        self.foreign_low = if self.foreign == 0 { frame } else { self.foreign_low.min(frame) };
        self.foreign_high = self.foreign_high.max(frame);
        self.foreign += 1;
        self.on_late(frame);
    }

    /// Notes a packet of a frame that is sealed or outside the run.
    pub fn on_late(&mut self, frame: u64) {
        // In a short run the first frames are few behind the newest. There, a repeat of the very first frame shows a
        // restart too.
        let far = BACK_FRAMES.min(self.frames.saturating_sub(1).max(1));
        if self.frames > 0 && frame.saturating_add(far) <= self.frame_high {
            self.back_low = if self.back == 0 { frame } else { self.back_low.min(frame) };
            self.back += 1;
        }
    }

    /// Number of datagrams that are not packets of this detector.
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

/// The readout to which a number of packets belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// EIGER: pixels of this many bits.
    Bits(u32),
    /// EIGER: pixels of `bits` bits, or `rows` rows that are read out; the packets do not show which.
    BitsOrRows {
        /// Bits of a pixel, if the rows are those of the configuration.
        bits: u32,
        /// Rows of each half module, if the bits are.
        rows: u32,
    },
    /// JUNGFRAU: this many UDP interfaces.
    Interfaces(u32),
    /// This many rows are read out: of a JUNGFRAU module, or of each half module of an EIGER.
    Rows(u32),
    /// Trains of this many images.
    Images(u32),
    /// No known readout.
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
        /// The readout with this number of packets.
        means: Means,
    },
    /// Packets of two detector ports come to one stream, or the headers of its port changed.
    TwoPorts {
        /// The port whose packets are taken.
        own: Port,
        /// The other port.
        other: Port,
    },
    /// Another sender sends to the same UDP port.
    OtherSenders {
        /// The sender whose packets are taken, if the stream learned one.
        own: Option<Sender>,
        /// The sender of most of the other packets.
        other: Sender,
        /// Number of the other packets.
        packets: u64,
        /// Some of them were taken while the first sender was silent for long.
        is_contested: bool,
    },
    /// The port belongs to another place in the detector.
    Place {
        /// What the header says.
        seen: Port,
        /// Row, column and module id that are expected, where they are known.
        expected: [Option<u16>; 3],
    },
    /// This port comes before that of the preceding stream in the order of the detector.
    Order {
        /// What the header says.
        seen: Port,
        /// What the header of the preceding stream says.
        before: Port,
    },
    /// The same port also came to another stream.
    Twice {
        /// What both headers say.
        port: Port,
        /// The other stream.
        other: usize,
    },
    /// Nothing came, while other streams have frames.
    Silent,
    /// Only every n-th frame comes.
    EveryNth(u64),
    /// No frame belongs to the run; its first frame is configured, or was set by another stream.
    FirstFrame {
        /// Lowest frame number that came.
        low: u64,
        /// Highest frame number that came.
        high: u64,
    },
    /// The frame numbers restarted.
    Restart {
        /// Highest before that.
        from: u64,
        /// Lowest afterwards.
        to: u64,
    },
    /// Many datagrams that are not packets of this detector.
    Noise {
        /// Their number.
        odd: u64,
        /// All datagrams.
        of: u64,
    },
}

/// Something that differs from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The first stream that shows it.
    pub stream: usize,
    /// Streams that show it.
    pub streams: usize,
    /// What.
    pub what: What,
    /// The run cannot count as complete.
    pub is_wrong: bool,
}

/// A few damaged or stray datagrams are not a finding. A finding needs this many (while a run goes on, as many as a
/// tile has), and at least 1/`CERTAIN_PART` of all.
const CERTAIN_PACKETS: u64 = 3;
const CERTAIN_PART: u64 = 16;
/// Frames after which a packet number that never came counts as not sent.
const CERTAIN_FRAMES: u64 = 3;
/// Frames of the other streams after which a stream counts as silent, and frames that suffice to show which numbers
/// come.
const MANY_FRAMES: u64 = 10;
/// Time since the first datagram of any stream, before which no stream counts as silent.
const SILENT_NS: u64 = 500_000_000;

/// The run as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// What packets are compared with.
    pub rules: &'a SetupRules,
    /// Format of every tile.
    pub format: &'a TileFormat,
    /// Detector type of the plan, as the packet format numbers them; 0 where it does not.
    pub detector_type: u8,
    /// Version of the header that is understood.
    pub version: u8,
    /// Number of the first frame, where it is known.
    pub first_frame: Option<u64>,
    /// What each stream has seen.
    pub seen: &'a [Seen],
    /// Time since the first datagram of any stream.
    pub since_first_ns: u64,
    /// Nothing more will come.
    pub has_ended: bool,
}

impl Look<'_> {
    /// True if `count` datagrams of one kind, `of` all datagrams, are not an accident.
    fn is_much(&self, count: u64, of: u64) -> bool {
        let least = if self.has_ended { CERTAIN_PACKETS } else { CERTAIN_PACKETS.max(self.format.packets().into()) };
        count >= least && count.saturating_mul(CERTAIN_PART) >= of
    }
}

/// Compares what came with the plan. The most serious finding comes first; each finding appears once, however many
/// streams show it.
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
    each().for_each(|(n, seen)| add(n, other_senders(seen), seen.is_contested));
    each().for_each(|(n, _)| add(n, twice(look, n), look.rules.is_strict));
    each().for_each(|(n, _)| add(n, place(look, n), look.rules.is_strict));
    each().for_each(|(n, seen)| add(n, first_frame(look, seen), true));
    each().for_each(|(n, seen)| add(n, restart(look, seen), true));
    each().for_each(|(n, seen)| add(n, every_nth(seen), true));
    let newest = look.seen.iter().map(|seen| seen.frames).max().unwrap_or(0);
    let is_certain = newest >= MANY_FRAMES && look.since_first_ns >= SILENT_NS || look.has_ended && newest > 0;
    each().for_each(|(n, seen)| add(n, (is_certain && seen.is_silent()).then_some(What::Silent), true));
    each().for_each(|(n, seen)| add(n, noise(look, seen), true));
    // A wrong type, version or size already explains the datagrams that are not packets.
    if found.iter().any(|f| matches!(f.what, What::Type(_) | What::Version(_) | What::Size { .. })) {
        found.retain(|f| !matches!(f.what, What::Noise { .. }));
    }
    found
}

/// The first packet number of a tile that no smaller readout of this kind of detector has: another depth with the same
/// or all rows, or one of two interfaces. 0 if there is no smaller readout. A smaller readout has all lower numbers
/// too, so they show nothing.
pub fn distinctive_number(format: &TileFormat, ports_per_module: u32) -> u32 {
    let smaller = |counts: &mut dyn Iterator<Item = u32>| counts.filter(|count| *count < format.packets()).max().unwrap_or(0);
    match format.kind {
        DetectorKind::Eiger => {
            let counts = |bits| [eiger_packets(format, bits, format.rows), eiger_packets(format, bits, format.whole_rows())];
            smaller(&mut EIGER_BITS.into_iter().flat_map(counts))
        }
        DetectorKind::Jungfrau if ports_per_module == 1 => smaller(&mut [HALF_MODULE_PACKETS].into_iter()),
        _ => 0,
    }
}

const EIGER_BITS: [u32; 5] = [4, 8, 12, 16, 32];
/// Packets of one of two interfaces of a JUNGFRAU.
const HALF_MODULE_PACKETS: u32 = 64;

/// Packets of a port with `bits` bits per pixel and `rows` rows of each half module.
fn eiger_packets(format: &TileFormat, bits: u32, rows: u32) -> u32 {
    rows * 512 / 8 * bits / format.payload_bytes
}

/// True if two findings are reported as one.
fn same(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::FirstFrame { .. }, What::FirstFrame { .. }) | (What::Restart { .. }, What::Restart { .. }) => true,
        (What::Noise { .. }, What::Noise { .. }) => true,
        (What::OtherSenders { other: a, is_contested, .. }, What::OtherSenders { other: b, is_contested: too, .. }) => {
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
    // If most packets are right, the others are noise from other senders.
    let is_most = |odd: &&Odd| look.is_much(odd.count, all_of(seen)) && odd.count > seen.packets;
    let odd = seen.odd.iter().filter(is_most).max_by_key(|odd| odd.count)?;
    let expected = look.format.datagram_bytes();
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
            // The count alone is enough here: after losses it rarely fits a depth by accident, whereas some number of
            // rows always fits.
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
        DetectorKind::XfelTrain => {
            let has_so_many = |format: &TileFormat| low == 0 && format.packets() == count && format != look.format;
            let train = (1..).map_while(|images| look.format.with_images(images)).find(has_so_many);
            let train = train.filter(|_| is_dense(look, &look.seen[stream], count));
            train.map_or(Means::Unknown, |format| Means::Images(format.images))
        }
        // Only 12 bit are received, so no key of the configuration would be right for another depth.
        DetectorKind::Excalibur => Means::Unknown,
    }
}

/// Rows of a readout whose packets have these numbers.
fn rows_of(look: &Look<'_>, stream: usize, low: u32, high: u32) -> Option<u32> {
    const LAST: u32 = HALF_MODULE_PACKETS - 1;
    match (look.format.kind, look.rules.ports_per_module, stream % 2) {
        (DetectorKind::Eiger, ..) => eiger_rows(look.format, high + 1).filter(|_| low == 0),
        (DetectorKind::Jungfrau, 1, _) => (low + high == 2 * LAST + 1).then(|| 4 * (high - low + 1)),
        // Of two interfaces the first sends its last packets, and the second its first ones.
        (DetectorKind::Jungfrau, _, 0) => (high == LAST).then(|| 8 * (LAST + 1 - low)),
        (DetectorKind::Jungfrau, ..) => (low == 0 && high <= LAST).then(|| 8 * (high + 1)),
        _ => None,
    }
    .filter(|rows| *rows <= MODULE_ROWS)
}

/// Rows of each half module of an EIGER that fill this many packets at the configured depth.
fn eiger_rows(format: &TileFormat, count: u32) -> Option<u32> {
    let whole = eiger_packets(format, format.bits, format.whole_rows());
    let rows = format.whole_rows() * count / whole;
    (rows * whole == format.whole_rows() * count && rows <= format.whole_rows()).then_some(rows)
}

/// True if nearly all packets of many frames came, so that packet numbers missing at the ends were not sent, rather
/// than lost.
fn is_dense(look: &Look<'_>, seen: &Seen, count: u32) -> bool {
    let frames = seen.frames.max(seen.refused_frames);
    let is_many = frames >= if look.has_ended { CERTAIN_FRAMES } else { MANY_FRAMES };
    is_many && seen.numbered.saturating_mul(CERTAIN_PART) >= (CERTAIN_PART - 1) * frames * u64::from(count)
}

fn two_ports(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let (own, other) = (seen.port?, seen.other_port?);
    look.is_much(seen.other_packets, seen.packets).then_some(What::TwoPorts { own, other })
}

fn other_senders(seen: &Seen) -> Option<What> {
    let (other, packets) = (seen.other_senders.first()?, seen.other_senders.packets());
    let is_certain = packets >= CERTAIN_PACKETS || seen.is_contested;
    is_certain.then_some(What::OtherSenders { own: seen.sender, other, packets, is_contested: seen.is_contested })
}

/// The earlier stream to which the same port came.
fn twice(look: &Look<'_>, stream: usize) -> Option<What> {
    let port = look.seen[stream].port?;
    if look.rules.ports == Ports::Unknown {
        return None;
    }
    // Detectors of one module all send the same header. For such tiles no header is expected.
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

/// Rank of a port in the numbering of the SLS software: down a column of modules first, and inside a module row by row.
fn rank(look: &Look<'_>, port: Port) -> (u16, u16, u16) {
    match look.format.kind {
        DetectorKind::Eiger => (port.column / 2, port.row, port.column % 2),
        _ => (port.column, port.row, 0),
    }
}

/// Expected row and column of a stream in a detector with `down` modules in a column, counted from the lowest that
/// came, because a detector may be part of a larger one.
fn expected_in_grid(look: &Look<'_>, down: u32, stream: usize) -> Option<(u32, u32)> {
    let ports = look.rules.ports_per_module.max(1);
    let of = |stream: usize| {
        let (module, port) = (stream as u32 / ports, stream as u32 % ports);
        let (row, column) = (module % down.max(1), module / down.max(1));
        match look.format.kind {
            DetectorKind::Eiger => (row * 2 + port / 2, column * 2 + port % 2),
            _ => (row * ports + port, column),
        }
    };
    let seen_ports = || look.seen.iter().enumerate().filter_map(|(n, seen)| Some((n, seen.port?)));
    let least = |values: &mut dyn Iterator<Item = u32>| values.min().unwrap_or(0);
    let shift = (
        i64::from(least(&mut seen_ports().map(|(_, p)| p.row.into())))
            - i64::from(least(&mut seen_ports().map(|(n, _)| of(n).0))),
        i64::from(least(&mut seen_ports().map(|(_, p)| p.column.into())))
            - i64::from(least(&mut seen_ports().map(|(n, _)| of(n).1))),
    );
    let (row, column) = of(stream);
    Some((u32::try_from(i64::from(row) + shift.0).ok()?, u32::try_from(i64::from(column) + shift.1).ok()?))
}

fn first_frame(look: &Look<'_>, seen: &Seen) -> Option<What> {
    let none_is = seen.frames == 0 && look.is_much(seen.foreign, seen.foreign);
    // A detector that has not counted so far yet may still reach the first frame.
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

/// Stands between the end of a run and its wrong set-up in the text of the ledger.
pub const WRONG_SETUP: &str = ", with a wrong set-up: ";

/// The wrong set-up in a text of the ledger that says how a run ended.
pub fn wrong_setup(ended: &str) -> Option<&str> {
    ended.split_once(WRONG_SETUP).map(|(_, wrong)| wrong)
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
