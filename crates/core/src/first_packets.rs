//! The first packets of a stream are held back until they agree with each other. Otherwise a few stray packets could
//! decide with which frame a run begins or whose packets it takes, and packets of a detector with another set-up could
//! be taken for images of the configured one.
//!
//! This module uses numbers only. The caller keeps the bytes, and asks for a verdict after each packet and from time to
//! time without one. At most two tiles and a few packets are held back. A run begins when
//! - packets of one origin (port of the detector, and sender) *agree* on a frame, and
//! - a frame has *shown* the tile: it has packet numbers that no smaller readout has, and
//! - that frame has ended without numbers beyond the tile: one of the next frames has begun, or no packet came for a
//!   while, and
//! - with its neighbours it has half of a tile's packets, or it is one of several frames in a row, and no other origin
//!   or other range of frame numbers has more packets.
//!
//! Packets that could also be those of a smaller readout, and packets of a larger one, are refused. The next packets
//! are judged in the same way.

use crate::MAX_PACKETS_PER_TILE;
use crate::sender::Sender;
use crate::setup::Port;

/// Tiles that are held back, and packets beyond them: room for a frame that was cut short and for the one that shows
/// the tile.
const TILES: usize = 2;
const MORE_PACKETS: usize = 4;
/// Packets agree on a frame if this many are of it, and one more is of it or of the next frame. A damaged header does
/// not repeat itself.
const OF_THE_FRAME: u32 = 2;
/// A frame is over after this time without a packet if it is complete, and after the longer time if it was cut short.
const PAUSE_NS: u64 = 20_000_000;
const LONG_PAUSE_NS: u64 = 200_000_000;

/// This many frames in a row, each with some packets, come from a detector.
const MANY_FRAMES: usize = 4;
/// Frame numbers this close to each other belong to one count; frames between them may be lost.
const NEAR_FRAMES: u64 = 8;

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The part of the detector, as its header says.
    pub port: Port,
    /// What distinguishes senders, see [`crate::sender::SenderFilter::identity`].
    pub sender: Sender,
}

/// One packet that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstPacket {
    /// Frame number.
    pub frame: u64,
    /// Packet number of the header.
    pub number: u32,
    /// True if the number lies in the tile.
    pub is_in_tile: bool,
    /// Where it comes from.
    pub origin: Origin,
}

/// What happens to the packets held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstVerdict {
    /// They stay held back.
    Wait,
    /// The oldest packet agrees with no other and is not of this run; the others stay held back.
    DropOldest,
    /// The run may begin with this frame; packets of earlier frames are not of this run.
    Begin {
        /// Frame number.
        frame: u64,
        /// Where the packets come from, if enough of them agree.
        origin: Option<Origin>,
    },
    /// None is placed: they are not those of the configured tile, or could also be those of another readout. Further
    /// packets are held back.
    Refuse,
}

/// The rules by which the first packets are judged.
#[derive(Clone, Copy, Debug)]
pub struct OpeningSpec {
    /// Packets of the tile.
    pub packets: u32,
    /// True if packets that are not those of the tile are refused.
    pub is_strict: bool,
    /// The first number that no smaller readout of this kind of detector has; 0 if there is none. See
    /// [`crate::setup::distinctive_number`].
    pub distinctive_number: u32,
    /// Packets of the tile with such a number.
    pub distinctive_packets: u32,
    /// The run has one frame only, so that no next frame can agree with it.
    pub is_single: bool,
}

/// The first packets of a stream.
#[derive(Debug)]
pub struct Opening {
    spec: OpeningSpec,
    held: Vec<FirstPacket>,
    last_ns: u64,
    /// The lowest frame on which enough packets agree, and the time since which there is such a frame.
    agreed: Option<(u64, u64)>,
    /// The lowest frame that has shown the tile, of the origin and the range of frame numbers with the most packets;
    /// and its origin.
    shown: Option<(u64, Origin)>,
    /// One of the next frames has begun.
    is_over: bool,
    /// Consecutive packet numbers beyond the tile have come. A single such number is damage.
    is_larger: bool,
    /// Packets were refused before.
    has_refused: bool,
    /// After a larger tile was refused: packets of the tile since the last packet beyond it.
    since_larger: Option<u32>,
}

impl Opening {
    /// Allocates here and never after.
    pub fn new(mut spec: OpeningSpec) -> Self {
        assert!(spec.packets > 0);
        if !spec.is_strict || spec.distinctive_number == 0 {
            (spec.distinctive_number, spec.distinctive_packets) = (0, spec.packets);
        }
        Self {
            spec,
            held: Vec::with_capacity(Self::packets_max(spec.packets)),
            last_ns: 0,
            agreed: None,
            shown: None,
            is_over: false,
            is_larger: false,
            has_refused: false,
            since_larger: None,
        }
    }

    /// Most packets that are held back, for a tile of `packets` packets.
    pub const fn packets_max(packets: u32) -> usize {
        TILES * packets as usize + MORE_PACKETS
    }

    /// The packets held back, in order of arrival.
    pub fn held(&self) -> &[FirstPacket] {
        &self.held
    }

    /// True while the packets held back must not count as missing: they agree, and have agreed only for a short time.
    pub fn is_settling(&self, now_ns: u64) -> bool {
        self.agreed.is_some_and(|(_, since_ns)| now_ns.saturating_sub(since_ns) < LONG_PAUSE_NS)
    }

    /// True if packets were refused.
    pub fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Drops the oldest packet. It no longer counts for what the others show: a frame of which too few packets are left
    /// neither agrees nor shows the tile.
    pub fn drop_oldest(&mut self) {
        let oldest = self.held.remove(0);
        let is_touched = |frame: u64| frame == oldest.frame || frame.checked_add(1) == Some(oldest.frame);
        if let Some((_, since_ns)) = self.agreed.filter(|(frame, _)| is_touched(*frame)) {
            let agreeing = self.held.iter().filter(|held| held.is_in_tile && self.agree(held.frame, held.origin));
            self.agreed = agreeing.map(|held| held.frame).min().map(|frame| (frame, since_ns));
        }
        if self.shown.is_some_and(|(frame, origin)| is_near(&oldest, frame, origin)) {
            self.show_again();
        }
    }

    /// Finds the frame that has shown the tile among the packets that are still held.
    fn show_again(&mut self) {
        let showing = || self.held.iter().filter(|held| self.shows(held));
        let leader = showing().max_by_key(|held| self.count_near(held.frame, held.origin)).copied();
        self.shown = leader.map(|leader| (self.first_shown(&leader), leader.origin));
        self.is_over = self.shown.is_some_and(|(frame, origin)| {
            let is_next = |held: &&FirstPacket| held.frame > frame && is_near(held, frame, origin);
            self.held.iter().filter(is_next).any(|held| self.count(held.frame, origin, 0) >= self.of_the_frame())
        });
    }

    /// The lowest frame that has shown the tile, of those close to the frame of this packet and not above it.
    fn first_shown(&self, packet: &FirstPacket) -> u64 {
        let is_before =
            |held: &&FirstPacket| is_near(held, packet.frame, packet.origin) && held.frame <= packet.frame && self.shows(held);
        self.held.iter().filter(is_before).map(|held| held.frame).min().unwrap_or(packet.frame)
    }

    /// Drops all packets, because they are refused.
    pub fn refuse(&mut self) {
        if self.is_larger {
            self.since_larger = Some(0);
        }
        self.held.clear();
        (self.agreed, self.shown, self.is_over, self.is_larger) = (None, None, false, false);
        self.has_refused = true;
    }

    /// Holds back one more packet. `is_known`: the first frame of the run is decided already.
    pub fn push(&mut self, packet: FirstPacket, now_ns: u64, is_known: bool) -> FirstVerdict {
        assert!(self.held.len() < Self::packets_max(self.spec.packets), "decided when it is full");
        self.held.push(packet);
        self.last_ns = now_ns;
        if packet.is_in_tile {
            self.note(packet, now_ns);
        } else if (packet.number as usize) < MAX_PACKETS_PER_TILE {
            self.note_beyond(packet);
        }
        self.decide(is_known, 0, false)
    }

    /// To be called when no packet came. `is_last`: no more packets will come.
    pub fn tick(&mut self, now_ns: u64, is_known: bool, is_last: bool) -> FirstVerdict {
        if self.held.is_empty() {
            return FirstVerdict::Wait;
        }
        self.decide(is_known, now_ns.saturating_sub(self.last_ns), is_last)
    }

    /// Updates the state with the newest packet: only its own frame and the one before can newly agree.
    fn note(&mut self, new: FirstPacket, now_ns: u64) {
        self.since_larger = self.since_larger.map(|n| n.saturating_add(1));
        for frame in [Some(new.frame), new.frame.checked_sub(1)].into_iter().flatten() {
            if self.agree(frame, new.origin) && self.agreed.is_none_or(|(lowest, _)| frame < lowest) {
                self.agreed = Some((frame, self.agreed.map_or(now_ns, |(_, since_ns)| since_ns)));
            }
        }
        match self.shown {
            Some((frame, origin)) if new.frame > frame && is_near(&new, frame, origin) => {
                self.is_over |= self.count(new.frame, origin, 0) >= self.of_the_frame();
            }
            shown if self.shows(&new) && shown.is_none_or(|shown| self.gives_way(shown, &new)) => {
                let first = self.first_shown(&new);
                self.shown = Some((first, new.origin));
                self.is_over = first < new.frame && self.count(new.frame, new.origin, 0) >= self.of_the_frame();
            }
            _ => {}
        }
    }

    /// True if the packet and others of its frame have numbers that no smaller readout has.
    fn shows(&self, packet: &FirstPacket) -> bool {
        let needed = self.of_the_frame().min(self.spec.distinctive_packets);
        let from = self.spec.distinctive_number;
        packet.is_in_tile && packet.number >= from && self.count(packet.frame, packet.origin, from) >= needed
    }

    /// True if the frame of `new` replaces the one that has shown the tile: the lowest frame of a count decides, and of
    /// two counts the one with more packets.
    fn gives_way(&self, (frame, origin): (u64, Origin), new: &FirstPacket) -> bool {
        if new.origin == origin && new.frame.abs_diff(frame) <= NEAR_FRAMES {
            return new.frame < frame;
        }
        self.count_near(new.frame, new.origin) > self.count_near(frame, origin)
    }

    fn note_beyond(&mut self, new: FirstPacket) {
        self.since_larger = self.since_larger.map(|_| 0);
        let is_beside = |held: &FirstPacket| {
            (held.frame, held.origin, held.is_in_tile) == (new.frame, new.origin, false) && held.number.abs_diff(new.number) == 1
        };
        self.is_larger |= self.held.iter().any(is_beside);
    }

    fn decide(&self, is_known: bool, pause_ns: u64, is_last: bool) -> FirstVerdict {
        if self.spec.is_strict && self.is_larger {
            return FirstVerdict::Refuse;
        }
        let is_full = self.held.len() == Self::packets_max(self.spec.packets);
        let is_quiet = is_last || pause_ns >= LONG_PAUSE_NS;
        // If a tile has one packet, a single packet is a whole frame, but it may also be a stray.
        let is_tiny = self.spec.packets <= OF_THE_FRAME && (self.spec.packets > 1 || self.spec.is_single || is_last);
        let whole = || self.held.iter().find(|held| is_tiny && self.is_whole(held.frame, held.origin)).map(|held| held.frame);
        let lowest = || self.held.iter().map(|held| held.frame).min();
        let frame = match self.agreed {
            Some((frame, _)) => Some(frame),
            // A frame of one or two packets may be the only one of the run, or the only one for long.
            None if is_quiet && whole().is_some() => whole(),
            // If the run has begun, the frame numbers show what belongs to it.
            None if is_known && (is_last || is_full) => lowest(),
            None => None,
        };
        let Some(frame) = frame else {
            return if is_full { FirstVerdict::DropOldest } else { FirstVerdict::Wait };
        };
        let is_at_its_end = |shown: (u64, Origin)| self.is_over || pause_ns >= PAUSE_NS && self.is_whole(shown.0, shown.1);
        let is_far_ahead = self.since_larger.is_some_and(|n| n <= 2 * self.spec.packets);
        let begins = !is_far_ahead && self.shown.is_some_and(is_at_its_end);
        if !begins && !is_full && !is_quiet {
            return FirstVerdict::Wait;
        }
        if is_far_ahead || self.shown.is_none() && self.spec.distinctive_number > 0 {
            return FirstVerdict::Refuse;
        }
        // If the first frame of the run is not known, a few packets must not decide it.
        let is_much = self.shown.is_some_and(|shown| self.is_much(shown));
        if !is_known && !is_last && !is_much {
            return if is_full { FirstVerdict::DropOldest } else { FirstVerdict::Wait };
        }
        let frame = self.shown.map_or(frame, |shown| self.first_of(shown));
        FirstVerdict::Begin { frame, origin: if is_much || self.shown.is_none() { self.origin() } else { None } }
    }

    /// True if half of a tile's packets came around this frame, or if several frames in a row lost most of their
    /// packets.
    fn is_much(&self, (frame, origin): (u64, Origin)) -> bool {
        let has_some = |frame: &u64| self.count(*frame, origin, 0) >= self.of_the_frame().max(2);
        2 * self.count_near(frame, origin) >= self.spec.packets
            || (frame..=frame.saturating_add(NEAR_FRAMES)).filter(has_some).count() >= MANY_FRAMES
    }

    /// The frame with which the run begins after this frame has shown the tile: the first frame of the same count on
    /// which packets agree. After a refusal, older frames that are held back may still be of the refused readout.
    fn first_of(&self, (frame, origin): (u64, Origin)) -> u64 {
        let is_earlier =
            |held: &&FirstPacket| is_near(held, frame, origin) && held.frame < frame && self.agree(held.frame, origin);
        self.held.iter().filter(|_| !self.has_refused).filter(is_earlier).map(|held| held.frame).min().unwrap_or(frame)
    }

    /// Packets of one frame that are needed; in partial readout a tile may be a single packet.
    fn of_the_frame(&self) -> u32 {
        OF_THE_FRAME.min(self.spec.packets)
    }

    /// Packets of the tile, of one frame and origin, from this number on.
    fn count(&self, frame: u64, origin: Origin, from: u32) -> u32 {
        let is_one = |held: &&FirstPacket| held.is_in_tile && held.frame == frame && held.origin == origin && held.number >= from;
        self.held.iter().filter(is_one).count() as u32
    }

    /// Packets of the tile, of this frame or one close to it.
    fn count_near(&self, frame: u64, origin: Origin) -> u32 {
        self.held.iter().filter(|held| is_near(held, frame, origin)).count() as u32
    }

    fn agree(&self, frame: u64, origin: Origin) -> bool {
        let (own, next) = (self.count(frame, origin, 0), frame.checked_add(1).map_or(0, |next| self.count(next, origin, 0)));
        own >= self.of_the_frame() && own + next > self.of_the_frame()
    }

    fn is_whole(&self, frame: u64, origin: Origin) -> bool {
        self.count(frame, origin, 0) >= self.spec.packets
    }

    /// Where the packets come from, if enough of them agree: the origin of the frame that has shown the tile, or else
    /// that of most packets.
    fn origin(&self) -> Option<Origin> {
        if let Some((frame, origin)) = self.shown {
            return Some(origin).filter(|_| self.count_near(frame, origin) > self.of_the_frame());
        }
        let own = || self.held.iter().filter(|held| held.is_in_tile).map(|held| held.origin);
        let (leader, _) = own().fold((Origin::default(), 0u32), |leader, origin| match leader {
            (_, 0) => (origin, 1),
            (leader, n) if leader == origin => (leader, n + 1),
            (leader, n) => (leader, n - 1),
        });
        (own().filter(|origin| *origin == leader).count() as u32 > self.of_the_frame()).then_some(leader)
    }
}

fn is_near(held: &FirstPacket, frame: u64, origin: Origin) -> bool {
    held.is_in_tile && held.origin == origin && held.frame.abs_diff(frame) <= NEAR_FRAMES
}

#[cfg(test)]
#[path = "first_packets_tests.rs"]
mod tests;
