//! The first packets of a stream are held back until they agree on what they are, so that one stray packet does not decide with which frame
//! a run begins, and so that packets of a detector that is set up otherwise are not taken for images of the one that is configured.
//!
//! Sees numbers only; the bytes are kept by the caller, who asks for a verdict after each packet and from time to time without one. At most
//! one tile and a few packets are held. A stream whose first frame is whole waits for the next packet, or until none comes for a while.

use crate::MAX_PACKETS_PER_TILE;
use crate::setup::Port;

/// Packets beyond one tile that are held.
const MORE_PACKETS: usize = 4;
/// So many packets of a frame, and one more of it or of the next, confirm it.
const OF_THE_FRAME: usize = 2;
/// So long no packet comes when a frame is at its end, and when one is cut short.
const PAUSE_NS: u64 = 20_000_000;
const LONG_PAUSE_NS: u64 = 200_000_000;

/// One packet that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Frame number.
    pub frame: u64,
    /// Packet number of the header.
    pub number: u32,
    /// It is one of the tile.
    pub is_in_tile: bool,
    /// Whose it is.
    pub port: Port,
}

/// What becomes of the held packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// They are held further.
    Wait,
    /// The oldest one agrees with no other and is not of this run; the others are held further.
    DropOldest,
    /// The run may begin with this frame; packets of earlier frames are not of this run.
    Begin {
        /// Frame number.
        frame: u64,
        /// Whose packets these are.
        port: Port,
    },
    /// The packets are not those of the configured tile; see [`Refusal`] for what says that this was wrong.
    Refuse {
        /// Highest number of the packets held.
        last: u32,
    },
}

/// The packets of a stream are refused, until they turn out to be those of the tile after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    last: u32,
    /// Packets of the tile since the last one that is none.
    since: u32,
}

impl Refusal {
    /// After packets of which the last had this number.
    pub fn new(last: u32) -> Self {
        Self { last, since: 0 }
    }

    /// Judges one more packet of a tile of so many: a smaller tile has no higher numbers, and of a larger one no two tiles come without.
    pub fn is_lifted_by(&mut self, number: u32, is_in_tile: bool, packets: u32) -> bool {
        self.since = if is_in_tile { self.since + 1 } else { 0 };
        let is_larger = self.last >= packets;
        is_in_tile && if is_larger { self.since > 2 * packets } else { number > self.last }
    }
}

/// How an opening decides.
#[derive(Clone, Copy, Debug)]
pub struct OpeningSpec {
    /// Packets of the tile.
    pub packets: u32,
    /// Packets that are not those of the tile are refused.
    pub is_strict: bool,
    /// A number of packets that another readout of this kind of detector has.
    pub others: [u32; 5],
}

/// The first packets of a stream.
#[derive(Debug)]
pub struct Opening {
    spec: OpeningSpec,
    held: Vec<Held>,
    last_ns: u64,
}

impl Opening {
    /// Allocates here and never after.
    pub fn new(spec: OpeningSpec) -> Self {
        Self { spec, held: Vec::with_capacity(Self::packets_max(spec.packets)), last_ns: 0 }
    }

    /// Packets that are held at most, of a tile of so many.
    pub fn packets_max(packets: u32) -> usize {
        packets as usize + MORE_PACKETS
    }

    /// What is held, in the order in which it came.
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// Forgets the oldest.
    pub fn drop_oldest(&mut self) {
        self.held.remove(0);
    }

    /// Holds one more. `is_known` says that the first frame of the run is decided.
    pub fn push(&mut self, packet: Held, now_ns: u64, is_known: bool) -> Opened {
        assert!(self.held.len() < Self::packets_max(self.spec.packets), "decided when it is full");
        self.held.push(packet);
        self.last_ns = now_ns;
        self.decide(is_known, 0)
    }

    /// Asked when no packet came. `is_last`: none will.
    pub fn tick(&mut self, now_ns: u64, is_known: bool, is_last: bool) -> Opened {
        let pause_ns = if is_last { u64::MAX } else { now_ns.saturating_sub(self.last_ns) };
        if self.held.is_empty() { Opened::Wait } else { self.decide(is_known, pause_ns) }
    }

    fn decide(&self, is_known: bool, pause_ns: u64) -> Opened {
        let is_full = self.held.len() == Self::packets_max(self.spec.packets);
        let Some(frame) = self.confirmed(is_known) else {
            return if is_full { Opened::DropOldest } else { Opened::Wait };
        };
        let own = || self.held.iter().filter(|held| held.frame == frame);
        if self.spec.is_strict && self.is_larger_tile() {
            return self.refuse();
        }
        let has_next = self.held.iter().filter(|held| held.frame > frame).count() >= self.of_the_frame();
        let is_whole = own().count() >= self.spec.packets as usize;
        let is_over = has_next || is_whole && pause_ns >= PAUSE_NS || pause_ns >= LONG_PAUSE_NS;
        if is_over && self.spec.is_strict && self.is_other_tile(frame) {
            return self.refuse();
        }
        if is_over || is_full { Opened::Begin { frame, port: self.port() } } else { Opened::Wait }
    }

    fn refuse(&self) -> Opened {
        Opened::Refuse { last: self.held.iter().map(|held| held.number).max().unwrap_or(0) }
    }

    /// Packets of one frame that count; a tile of partial readout may be a single packet.
    fn of_the_frame(&self) -> usize {
        OF_THE_FRAME.min(self.spec.packets as usize)
    }

    /// The lowest frame that enough packets agree on.
    fn confirmed(&self, is_known: bool) -> Option<u64> {
        if is_known {
            return self.held.iter().map(|held| held.frame).min();
        }
        let count = |frame: u64| self.held.iter().filter(|held| held.frame == frame).count();
        let agrees = |frame: &u64| {
            let own = count(*frame);
            own >= self.of_the_frame() && own + frame.checked_add(1).map_or(0, count) >= self.of_the_frame() + 1
        };
        self.held.iter().map(|held| held.frame).filter(agrees).min()
    }

    /// True if two packets of one frame follow on the last one of the tile; single wild numbers are damage.
    fn is_larger_tile(&self) -> bool {
        let beyond = |held: &&Held| !held.is_in_tile && (held.number as usize) < MAX_PACKETS_PER_TILE;
        let follows = |a: &Held, b: &Held| a.frame == b.frame && a.port == b.port && b.number == a.number + 1;
        self.held.iter().filter(beyond).any(|a| self.held.iter().filter(beyond).any(|b| follows(a, b)))
    }

    /// True if every packet of a smaller tile came, and none beyond it.
    fn is_other_tile(&self, frame: u64) -> bool {
        let own = || self.held.iter().filter(|held| held.frame == frame);
        let (low, high) = own().fold((u32::MAX, 0), |(low, high), held| (low.min(held.number), high.max(held.number)));
        let any_higher = self.held.iter().any(|held| held.number > high);
        let count = high.saturating_add(1);
        let is_known = low == 0 && count < self.spec.packets && self.spec.others.contains(&count);
        is_known && !any_higher && own().count() >= count as usize
    }

    /// Whose packets most of these are.
    fn port(&self) -> Port {
        let mut leader = (Port::default(), 0u32);
        for held in &self.held {
            leader = match leader {
                (_, 0) => (held.port, 1),
                (port, n) if port == held.port => (port, n + 1),
                (port, n) => (port, n - 1),
            };
        }
        leader.0
    }
}

#[cfg(test)]
#[path = "opening_tests.rs"]
mod tests;
