//! A link that loses, repeats, reorders, damages and invents datagrams, and logs what it did.
//!
//! It works on a stream of datagrams and holds at most [`FaultModel::reorder_packets_max`] of them. Each copy of a
//! packet gets at most one kind of damage. The UDP checksum always counts as valid, as it does when a switch or a
//! sender does the damage. Once [`FaultLink::flush`] was called, delivered = sent - lost + duplicated + foreign +
//! strangers.

use crate::packet::{HEADER_BYTES, field};
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;

/// One datagram on its way: the stream (UDP port) it belongs to, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Index of the stream.
    pub stream: usize,
    /// Header and payload.
    pub bytes: &'a [u8],
    /// Another detector sent it, which has another address: see [`FaultModel::other_sender`].
    pub is_other_sender: bool,
}

/// What the link does, as probabilities per packet; all 0 by default.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultModel {
    /// Everything random follows from this.
    pub seed: u64,
    /// Frame number of image 0, to name packets in the log.
    pub first_frame_number: u64,
    /// A single packet is lost.
    pub loss: f64,
    /// A burst of losses starts with this packet ...
    pub burst: f64,
    /// ... and has this mean length in packets (geometric; counted over all streams in the order of pushing).
    pub burst_packets_mean: f64,
    /// A packet is delivered twice.
    pub duplicate: f64,
    /// A copy is delayed ...
    pub reorder: f64,
    /// ... by 1 to this many packets; also the bound of the memory.
    pub reorder_packets_max: usize,
    /// 1 to 8 bits are flipped among [`Self::header_bytes`].
    pub corrupt_header: f64,
    /// Bytes of the header that may be hit.
    pub header_bytes: Range<usize>,
    /// 1 to 8 bits of the payload are flipped.
    pub corrupt_payload: f64,
    /// A copy is cut to a random shorter length, 0 included.
    pub truncate: f64,
    /// A foreign datagram follows a packet, see [`ForeignKind`].
    pub foreign: f64,
    /// A second detector sends a packet of the same frame and number to the same port. It is right in everything, but
    /// has other pixels.
    pub other_sender: f64,
    /// From this image on the frame counter runs from [`Self::first_frame_number`] again, as when a detector restarts.
    pub restart_at_image: Option<u64>,
    /// Keep the fate of every packet (memory grows with the run). The counts are always kept.
    pub log_packets: bool,
}

impl Default for FaultModel {
    fn default() -> Self {
        Self {
            seed: 1,
            first_frame_number: 1,
            loss: 0.0,
            burst: 0.0,
            burst_packets_mean: 50.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_packets_max: 64,
            corrupt_header: 0.0,
            header_bytes: 0..HEADER_BYTES,
            corrupt_payload: 0.0,
            truncate: 0.0,
            foreign: 0.0,
            other_sender: 0.0,
            restart_at_image: None,
            log_packets: false,
        }
    }
}

/// Kinds of datagrams that are not packets of this detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForeignKind {
    /// A good packet but for its detector type.
    DetectorType,
    /// A good packet but for the version of its header.
    Version,
    /// A good packet with 1 to 256 bytes too many.
    Length,
    /// Random bytes, shorter than a packet.
    Noise,
    /// No bytes at all.
    Empty,
}

impl ForeignKind {
    /// All kinds, in counter order.
    pub const ALL: [Self; 5] = [Self::DetectorType, Self::Version, Self::Length, Self::Noise, Self::Empty];
}

/// How often the link did each thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets pushed.
    pub sent: u64,
    /// Datagrams handed on, foreign ones included.
    pub delivered: u64,
    /// Packets never delivered, in bursts or alone.
    pub lost: u64,
    /// Of these, in bursts.
    pub lost_in_bursts: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Copies that were delayed.
    pub reordered: u64,
    /// Copies with flipped bits in the header.
    pub header_corrupted: u64,
    /// Copies with flipped bits in the payload.
    pub payload_corrupted: u64,
    /// Copies that were cut.
    pub truncated: u64,
    /// Copies with another frame number because the counter restarted.
    pub renumbered: u64,
    /// Foreign datagrams by [`ForeignKind::ALL`].
    pub foreign: [u64; 5],
    /// Packets of a second detector.
    pub other_senders: u64,
}

impl FaultCounts {
    /// Sum of the foreign datagrams.
    pub fn foreign_total(&self) -> u64 {
        self.foreign.iter().sum()
    }
}

/// Names a packet as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId {
    /// Image, from 0.
    pub image: u64,
    /// Stream.
    pub stream: usize,
    /// Packet within the tile.
    pub packet: u32,
}

/// What happened to a packet: how many copies of it were handed on in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFate {
    /// Copies as sent.
    pub pristine: u16,
    /// Copies with a sound header and a damaged payload: no receiver can tell.
    pub payload_corrupted: u16,
    /// Copies with a damaged header, which may name another packet.
    pub header_corrupted: u16,
    /// Copies that were cut.
    pub truncated: u16,
    /// Copies under the frame number of another image (the counter restarted); otherwise sound.
    pub renumbered: u16,
}

impl PacketFate {
    /// All copies.
    pub fn copies(&self) -> u16 {
        self.pristine + self.payload_corrupted + self.header_corrupted + self.truncated + self.renumbered
    }

    /// Copies that a receiver would place here if they came in time and first.
    pub fn placeable(&self) -> u16 {
        self.pristine + self.payload_corrupted
    }
}

/// What the link did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultLog {
    /// Totals.
    pub counts: FaultCounts,
    /// Every packet that was sent, if [`FaultModel::log_packets`] is set.
    pub packets: BTreeMap<PacketId, PacketFate>,
}

impl FaultLog {
    /// Packets of which a receiver without limits must place one copy. Exact as long as no header was damaged and no
    /// counter restarted.
    pub fn placeable(&self) -> u64 {
        self.packets.values().filter(|fate| fate.placeable() > 0).count() as u64
    }

    /// Copies beyond the first of those. Exact under the same condition.
    pub fn surplus(&self) -> u64 {
        self.packets.values().map(|fate| u64::from(fate.placeable().saturating_sub(1))).sum()
    }
}

struct Held {
    release_at: u64,
    stream: usize,
    bytes: Vec<u8>,
}

/// The link; see the module.
pub struct FaultLink {
    model: FaultModel,
    rng: Rng,
    log: FaultLog,
    burst_left: u64,
    held: Vec<Held>,
    /// Buffers of released datagrams, for the next ones; at most as many as were ever held.
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

enum Damage {
    None,
    Header,
    Payload,
    Cut,
}

impl FaultLink {
    /// A link in its first state.
    ///
    /// # Panics
    /// When a probability is outside 0 to 1, the mean burst is shorter than one packet, or the header bytes are not
    /// within 48.
    pub fn new(model: &FaultModel) -> Self {
        let m = model;
        for p in
            [m.loss, m.burst, m.duplicate, m.reorder, m.corrupt_header, m.corrupt_payload, m.truncate, m.foreign, m.other_sender]
        {
            assert!((0.0..=1.0).contains(&p), "{p} is not a probability; give 0 to 1");
        }
        assert!(m.burst_packets_mean >= 1.0, "a burst has one packet or more");
        assert!(!m.header_bytes.is_empty() && m.header_bytes.end <= HEADER_BYTES, "header bytes lie within 0..48");
        Self {
            model: model.clone(),
            rng: Rng::keyed(model.seed, &[0x6661_756c]),
            log: FaultLog::default(),
            burst_left: 0,
            held: Vec::new(),
            spare: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// What was done so far. Copies still held count as delivered only after [`Self::flush`].
    pub fn log(&self) -> &FaultLog {
        &self.log
    }

    /// Sends one packet (48-byte header and payload, as the packetiser wrote it). `sink` gets what comes out at the
    /// other end now.
    ///
    /// # Panics
    /// When the datagram has no payload: the link only takes whole packets.
    pub fn push(&mut self, datagram: Datagram<'_>, sink: &mut dyn FnMut(Datagram<'_>)) {
        assert!(datagram.bytes.len() > HEADER_BYTES, "a packet is a header and a payload");
        self.log.counts.sent += 1;
        let id = self.identify(&datagram);
        if self.model.log_packets {
            self.log.packets.entry(id).or_default();
        }
        if self.is_lost() {
            self.log.counts.lost += 1;
        } else {
            let twice = self.rng.chance(self.model.duplicate);
            self.log.counts.duplicated += u64::from(twice);
            for _ in 0..1 + u32::from(twice) {
                self.send_copy(id, datagram, sink);
            }
        }
        if self.rng.chance(self.model.foreign) {
            self.invent(datagram, sink);
        }
        // Without a second detector no number is drawn, so that a seed gives the same results as before there was one.
        if self.model.other_sender > 0.0 && self.rng.chance(self.model.other_sender) {
            self.join_in(datagram, sink);
        }
        self.release(self.log.counts.sent, sink);
    }

    /// Hands on everything that is still held.
    pub fn flush(&mut self, sink: &mut dyn FnMut(Datagram<'_>)) {
        self.release(u64::MAX, sink);
    }

    fn identify(&self, datagram: &Datagram<'_>) -> PacketId {
        let frame = u64::from_le_bytes(*datagram.bytes[field::FRAME_NUMBER].first_chunk().expect("8 bytes"));
        let packet = u32::from_le_bytes(*datagram.bytes[field::PACKET_NUMBER].first_chunk().expect("4 bytes"));
        PacketId { image: frame.wrapping_sub(self.model.first_frame_number), stream: datagram.stream, packet }
    }

    fn is_lost(&mut self) -> bool {
        let alone = self.rng.chance(self.model.loss);
        if self.rng.chance(self.model.burst) && self.burst_left == 0 {
            // Geometric with the given mean: at least one packet.
            let stop = 1.0 / self.model.burst_packets_mean;
            let more = if stop < 1.0 { ((1.0 - self.rng.uniform()).ln() / (1.0 - stop).ln()) as u64 } else { 0 };
            self.burst_left = 1 + more;
        }
        let in_burst = self.burst_left > 0;
        self.burst_left -= u64::from(in_burst);
        self.log.counts.lost_in_bursts += u64::from(in_burst);
        in_burst || alone
    }

    fn send_copy(&mut self, id: PacketId, datagram: Datagram<'_>, sink: &mut dyn FnMut(Datagram<'_>)) {
        let damage = self.choose_damage();
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend_from_slice(datagram.bytes);
        let mut fate = PacketFate::default();
        let renumbered = self.renumber(id.image, &mut bytes);
        self.log.counts.renumbered += u64::from(renumbered);
        match damage {
            Damage::Header => {
                let bits = self.model.header_bytes.start * 8..self.model.header_bytes.end * 8;
                self.flip(bits, &mut bytes);
                (self.log.counts.header_corrupted, fate.header_corrupted) = (self.log.counts.header_corrupted + 1, 1);
            }
            Damage::Payload => {
                self.flip(HEADER_BYTES * 8..bytes.len() * 8, &mut bytes);
                self.log.counts.payload_corrupted += 1;
                if renumbered { fate.renumbered = 1 } else { fate.payload_corrupted = 1 }
            }
            Damage::Cut => {
                let length = self.rng.below(bytes.len() as u64) as usize;
                bytes.truncate(length);
                (self.log.counts.truncated, fate.truncated) = (self.log.counts.truncated + 1, 1);
            }
            Damage::None if renumbered => fate.renumbered = 1,
            Damage::None => fate.pristine = 1,
        }
        if self.model.log_packets {
            let entry = self.log.packets.entry(id).or_default();
            entry.pristine += fate.pristine;
            entry.payload_corrupted += fate.payload_corrupted;
            entry.header_corrupted += fate.header_corrupted;
            entry.truncated += fate.truncated;
            entry.renumbered += fate.renumbered;
        }
        self.deliver(datagram.stream, bytes, sink);
    }

    /// Hands a copy on, now or later.
    fn deliver(&mut self, stream: usize, bytes: Vec<u8>, sink: &mut dyn FnMut(Datagram<'_>)) {
        let delay = 1 + self.rng.below(self.model.reorder_packets_max.max(1) as u64);
        let late = self.rng.chance(self.model.reorder) && self.held.len() < self.model.reorder_packets_max;
        if !late {
            self.log.counts.delivered += 1;
            sink(Datagram { stream, bytes: &bytes, is_other_sender: false });
            self.scratch = bytes;
            return;
        }
        self.log.counts.reordered += 1;
        self.held.push(Held { release_at: self.log.counts.sent + delay, stream, bytes });
        self.scratch = self.spare.pop().unwrap_or_default();
    }

    fn release(&mut self, now: u64, sink: &mut dyn FnMut(Datagram<'_>)) {
        let mut at = 0;
        while at < self.held.len() {
            if self.held[at].release_at > now {
                at += 1;
                continue;
            }
            let held = self.held.remove(at);
            self.log.counts.delivered += 1;
            sink(Datagram { stream: held.stream, bytes: &held.bytes, is_other_sender: false });
            self.spare.push(held.bytes);
        }
    }

    fn choose_damage(&mut self) -> Damage {
        let (header, payload, cut) = (
            self.rng.chance(self.model.corrupt_header),
            self.rng.chance(self.model.corrupt_payload),
            self.rng.chance(self.model.truncate),
        );
        match (header, payload, cut) {
            (true, _, _) => Damage::Header,
            (_, true, _) => Damage::Payload,
            (_, _, true) => Damage::Cut,
            _ => Damage::None,
        }
    }

    /// Flips 1 to 8 different bits of a range of bits.
    fn flip(&mut self, bits: Range<usize>, bytes: &mut [u8]) {
        let count = 1 + self.rng.below(8.min(bits.len() as u64));
        let mut flipped = Vec::with_capacity(8);
        while (flipped.len() as u64) < count {
            let bit = bits.start + self.rng.below(bits.len() as u64) as usize;
            // Never the same twice, or the damage could undo itself.
            if !flipped.contains(&bit) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                flipped.push(bit);
            }
        }
    }

    fn renumber(&self, image: u64, bytes: &mut [u8]) -> bool {
        match self.model.restart_at_image {
            Some(restart) if restart > 0 && image >= restart => {
                let frame = self.model.first_frame_number + (image - restart);
                bytes[field::FRAME_NUMBER].copy_from_slice(&frame.to_le_bytes());
                true
            }
            _ => false,
        }
    }

    fn invent(&mut self, model: Datagram<'_>, sink: &mut dyn FnMut(Datagram<'_>)) {
        let kind = ForeignKind::ALL[self.rng.below(5) as usize];
        let mut bytes = model.bytes.to_vec();
        match kind {
            ForeignKind::DetectorType => bytes[field::DET_TYPE] ^= 1 + self.rng.below(255) as u8,
            ForeignKind::Version => bytes[field::VERSION] ^= 1 + self.rng.below(255) as u8,
            ForeignKind::Length => bytes.resize(bytes.len() + 1 + self.rng.below(256) as usize, 0xA5),
            ForeignKind::Noise => {
                bytes.truncate(1 + self.rng.below(bytes.len() as u64 - 1) as usize);
                bytes.iter_mut().for_each(|byte| *byte = self.rng.next_u64() as u8);
            }
            ForeignKind::Empty => bytes.clear(),
        }
        self.log.counts.foreign[kind as usize] += 1;
        self.log.counts.delivered += 1;
        sink(Datagram { stream: model.stream, bytes: &bytes, is_other_sender: false });
    }

    fn join_in(&mut self, model: Datagram<'_>, sink: &mut dyn FnMut(Datagram<'_>)) {
        let mut bytes = model.bytes.to_vec();
        bytes[HEADER_BYTES..].iter_mut().for_each(|byte| *byte ^= 0x55);
        self.log.counts.other_senders += 1;
        self.log.counts.delivered += 1;
        sink(Datagram { stream: model.stream, bytes: &bytes, is_other_sender: true });
    }
}
