//! Finds lost packets by their sequence numbers: the loss detector of ESRF's RDMA over Ethernet (EUCALL D5.2, Fig. 27),
//! a shift register of 1024 bits with one bit for each number.
//!
//! As printed, the receipt of number n triggers the test of number n - 511 (512 tests 1). The printed version misses a
//! loss whose test would have been triggered by a packet that is lost itself, and never tests the last 511 numbers.
//! Here a receipt tests all numbers up to n - 511 that were not tested, and [`Detector::drain`] tests the rest.
//!
//! Numbers have 24 or 32 bits on the wire and wrap. Inside they are *positions*: 0 is the first number of the flow, and
//! positions do not wrap.

use std::ops::Range;

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;

/// Bits of the register.
pub const REGISTER_BITS: i64 = 1024;
/// Numbers that may be on their way: a number is tested when one that is 511 higher arrives.
pub const WINDOW: i64 = 512;

const WORD_BITS: i64 = 64;
const WORDS: usize = (REGISTER_BITS / WORD_BITS) as usize;

/// Bits of a sequence number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// As the packet sequence number of InfiniBand.
    Bits24,
    /// As that of RDMA over UDP.
    Bits32,
}

impl Width {
    const fn bits(self) -> u32 {
        match self {
            Self::Bits24 => 24,
            Self::Bits32 => 32,
        }
    }

    /// `to - from` among numbers that wrap, as the shorter way round.
    const fn distance(self, from: u32, to: u32) -> i64 {
        let unused = 32 - self.bits();
        ((to.wrapping_sub(from) << unused) as i32 >> unused) as i64
    }

    const fn mask(self) -> u32 {
        u32::MAX >> (32 - self.bits())
    }
}

/// What the arrival of a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It came for the first time, before it was tested.
    New,
    /// It came for the first time, at least 1024 beyond the newest one: the register begins anew.
    Gap,
    /// It came before.
    Duplicate,
    /// It was tested before and reported as lost, or it is so old that the register has forgotten it.
    Late,
}

/// How many numbers had which fate. `new + duplicate + late` is the number of packets received; after
/// [`Detector::drain`] `new + lost` is the number of positions up to the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Came in time, gaps included.
    pub new: u64,
    /// Came again.
    pub duplicate: u64,
    /// Came after their test.
    pub late: u64,
    /// Had not come when they were tested.
    pub lost: u64,
    /// Jumps of 1024 and more.
    pub gaps: u64,
}

/// The detector of one flow of packets.
#[derive(Clone, Debug)]
pub struct Detector {
    width: Width,
    first: Option<u32>,
    /// Bit `position % 1024`, of the 1024 positions up to `newest`.
    register: [u64; WORDS],
    newest: i64,
    /// All positions up to this one are tested.
    tested: i64,
    counts: Counts,
}

impl Detector {
    /// A detector before its first packet. `first` is the number with which the sender begins. Without it the first
    /// packet that arrives is taken for the first that was sent, and a loss before it is not noticed.
    pub const fn new(width: Width, first: Option<u32>) -> Self {
        let counts = Counts { new: 0, duplicate: 0, late: 0, lost: 0, gaps: 0 };
        Self { width, first, register: [0; WORDS], newest: -1, tested: -1, counts }
    }

    /// How many numbers had which fate so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The first position that is not tested yet. What is below it has come or is reported as lost.
    pub const fn tested_before(&self) -> u64 {
        (self.tested + 1) as u64
    }

    /// The sequence number of a position.
    pub fn number(&self, position: u64) -> u32 {
        self.first.unwrap_or(0).wrapping_add(position as u32) & self.width.mask()
    }

    /// The position that `number` has next to the newest one; negative before the first one.
    fn position(&mut self, number: u32) -> i64 {
        let first = *self.first.get_or_insert(number);
        let newest = first.wrapping_add(self.newest as u32) & self.width.mask();
        self.newest + self.width.distance(newest, number & self.width.mask())
    }

    /// The position of `number` if it is the newest one or older than that by less than half of all numbers; `None`
    /// before the first one.
    pub fn position_of(&self, number: u32) -> Option<u64> {
        let newest = self.first?.wrapping_add(self.newest as u32) & self.width.mask();
        u64::try_from(self.newest + self.width.distance(newest, number & self.width.mask())).ok()
    }

    const fn word(position: i64) -> (usize, u64) {
        let bit = position.rem_euclid(REGISTER_BITS);
        ((bit / WORD_BITS) as usize, 1 << (bit % WORD_BITS))
    }

    fn has(&self, position: i64) -> bool {
        let (word, bit) = Self::word(position);
        self.register[word] & bit != 0
    }

    /// Enters the arrival of `number`. `lost` is called with each run of positions that are found to be lost, in
    /// ascending order.
    #[inline]
    pub fn receive(&mut self, number: u32, lost: &mut impl FnMut(Range<u64>)) -> Arrival {
        let position = self.position(number);
        let arrival = if position > self.newest {
            let jump = position - self.newest;
            self.advance(position, lost);
            if jump >= REGISTER_BITS { Arrival::Gap } else { Arrival::New }
        } else if position < 0 || position <= self.newest - REGISTER_BITS {
            Arrival::Late
        } else if self.has(position) {
            Arrival::Duplicate
        } else if position <= self.tested {
            Arrival::Late
        } else {
            Arrival::New
        };
        match arrival {
            Arrival::New => self.counts.new += 1,
            Arrival::Gap => (self.counts.new, self.counts.gaps) = (self.counts.new + 1, self.counts.gaps + 1),
            Arrival::Duplicate => self.counts.duplicate += 1,
            Arrival::Late => self.counts.late += 1,
        }
        if position >= 0 && position > self.newest - REGISTER_BITS {
            let (word, bit) = Self::word(position);
            self.register[word] |= bit;
        }
        arrival
    }

    /// Ends the flow for now: tests everything up to `last`, the last number that was sent, or else up to the newest
    /// that came. Whoever knows `last` finds the packets lost at the end too. The flow may go on afterwards.
    pub fn drain(&mut self, last: Option<u32>, lost: &mut impl FnMut(Range<u64>)) {
        if let Some(last) = last {
            let position = self.position(last);
            if position > self.newest {
                self.advance(position, lost);
            }
        }
        self.test(self.newest, lost);
    }

    /// Makes `newest` the newest position, whose own bit is not set. Bits that leave the register were tested, because
    /// the window is shorter than the register.
    fn advance(&mut self, newest: i64, lost: &mut impl FnMut(Range<u64>)) {
        debug_assert!(newest > self.newest, "the newest position only grows");
        let before = self.newest;
        let testable = newest - WINDOW + 1;
        if newest - before >= REGISTER_BITS {
            // Nothing beyond `before` came, so all of it is one run, however long.
            self.test_runs(before, testable, lost);
            self.register.fill(0);
            self.newest = newest;
        } else {
            self.test(testable.min(before), lost);
            self.newest = newest;
            for position in before + 1..=newest {
                let (word, bit) = Self::word(position);
                self.register[word] &= !bit;
            }
            self.test(testable, lost);
        }
    }

    fn test(&mut self, to: i64, lost: &mut impl FnMut(Range<u64>)) {
        self.test_runs(to, to, lost);
    }

    /// Tests the bits of what is not tested up to `to`; what follows up to `missing_to` has not come.
    fn test_runs(&mut self, to: i64, missing_to: i64, lost: &mut impl FnMut(Range<u64>)) {
        let mut run: Option<i64> = None;
        let mut found = 0;
        let mut report = |from: i64, to: i64| {
            found += (to - from) as u64;
            lost(from as u64..to as u64);
        };
        for position in self.tested + 1..=to {
            match (self.has(position), run) {
                (false, None) => run = Some(position),
                (true, Some(from)) => {
                    report(from, position);
                    run = None;
                }
                _ => {}
            }
        }
        let end = to.max(missing_to) + 1;
        let from = run.or_else(|| (missing_to > to).then(|| (to + 1).max(self.tested + 1)));
        if let Some(from) = from {
            report(from, end);
        }
        self.tested = self.tested.max(end - 1);
        self.counts.lost += found;
    }
}
