//! Slots that are filled by others: by credits, or in free run with generations.
//!
//! With credits a module fills a slot only when its receiver said that it may: [`Credits`]. In free run it fills the
//! slots in turn, and a reader notices afterwards that its slot was overwritten: [`Generations`], a sequence lock whose
//! counter comes in the events. An event before the first byte of a block makes the counter odd, one behind the last
//! byte makes it even. The first one is necessary: with an event at the end only, a reader would take a half
//! overwritten slot for a good one. Both rely on a link that delivers the packets of one module in order.

/// What the receiver allows a module: for each slot, how often it may be filled in all. The number only grows, so a
/// credit that comes twice or late does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credits {
    fills: Vec<u64>,
}

impl Credits {
    /// Credits for `slots` slots that may be filled once each: a receive buffer is empty at the beginning.
    pub fn new(slots: u32) -> Self {
        Self { fills: vec![1; slots as usize] }
    }

    /// Allows that `slot` is filled `fills` times in all. False if there is no such slot.
    pub fn grant(&mut self, slot: u32, fills: u64) -> bool {
        let Some(granted) = self.fills.get_mut(slot as usize) else { return false };
        *granted = (*granted).max(fills);
        true
    }

    /// May `slot`, which was filled `generation` times, be filled again?
    pub fn allow(&self, slot: u32, generation: u64) -> bool {
        self.fills.get(slot as usize).is_some_and(|fills| generation < *fills)
    }
}

/// The counter of a slot before (odd) and after (even) its fill number `generation`, from 0.
pub const fn counter(generation: u64, is_done: bool) -> u64 {
    2 * generation + if is_done { 2 } else { 1 }
}

/// A slot that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    slot: u32,
    counter: u64,
}

impl Lease {
    /// The slot.
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// How often it was filled before.
    pub const fn generation(&self) -> u64 {
        self.counter / 2 - 1
    }
}

/// The newest counter of each slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Generations {
    counters: Vec<u64>,
}

impl Generations {
    /// Of slots that were never filled.
    pub fn new(slots: u32) -> Self {
        Self { counters: vec![0; slots as usize] }
    }

    /// Notes the counter of an event; an older one changes nothing. False if there is no such slot.
    pub fn note(&mut self, slot: u32, counter: u64) -> bool {
        let Some(known) = self.counters.get_mut(slot as usize) else { return false };
        *known = (*known).max(counter);
        true
    }

    /// Begins to read a slot; `None` if it was never filled or is being overwritten.
    pub fn take(&self, slot: u32) -> Option<Lease> {
        let counter = *self.counters.get(slot as usize)?;
        (counter > 0 && counter.is_multiple_of(2)).then_some(Lease { slot, counter })
    }

    /// Is what was read good? To be asked after reading, when all events that came were noted.
    pub fn is_unchanged(&self, lease: Lease) -> bool {
        self.counters.get(lease.slot as usize) == Some(&lease.counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot of two words, its writer and its reader, each in the middle of its program.
    #[derive(Clone)]
    struct Model {
        has_begin: bool,
        words: [u64; 2],
        generations: Generations,
        writer: usize,
        reader: usize,
        lease: Option<Lease>,
        read: [u64; 2],
    }

    const FILLS: usize = 3;

    impl Model {
        fn new(has_begin: bool) -> Self {
            let generations = Generations::new(1);
            Self { has_begin, words: [0; 2], generations, writer: 0, reader: 0, lease: None, read: [0; 2] }
        }

        fn write(&mut self) {
            let generation = (self.writer / 4) as u64;
            match self.writer % 4 {
                0 if self.has_begin => drop(self.generations.note(0, counter(generation, false))),
                0 => {}
                3 => drop(self.generations.note(0, counter(generation, true))),
                word => self.words[word - 1] = generation + 100,
            }
            self.writer += 1;
        }

        /// The verdict of the reader, when it comes to its end: were the words good although it says that they are?
        fn read(&mut self) -> Option<bool> {
            match self.reader {
                0 => self.lease = self.generations.take(0),
                3 => {
                    let lease = self.lease.filter(|lease| self.generations.is_unchanged(*lease));
                    return Some(lease.is_none_or(|lease| self.read == [lease.generation() + 100; 2]));
                }
                word => self.read[word - 1] = self.words[word - 1],
            }
            self.reader += 1;
            None
        }

        /// Goes through all orders of the steps of both; counts ends, and ends at which bad words passed as good.
        fn explore(&self, ends: &mut [usize; 3]) {
            if self.writer < 4 * FILLS {
                let mut next = self.clone();
                next.write();
                next.explore(ends);
            }
            let mut next = self.clone();
            match next.read() {
                None => next.explore(ends),
                Some(is_good) => {
                    ends[0] += 1;
                    ends[1] += usize::from(!is_good);
                    ends[2] += usize::from(next.lease.is_some_and(|lease| next.generations.is_unchanged(lease)));
                }
            }
        }
    }

    #[test]
    fn no_order_of_steps_lets_overwritten_words_pass() {
        let mut ends = [0; 3];
        Model::new(true).explore(&mut ends);
        assert_eq!((ends[0], ends[1]), (1820, 0), "C(16, 4) orders");
        assert!(ends[2] > 0, "and some reads succeed");
    }

    #[test]
    fn without_the_event_before_a_block_overwritten_words_do_pass() {
        let mut ends = [0; 3];
        Model::new(false).explore(&mut ends);
        assert!(ends[1] > 0, "the model is able to fail");
    }

    #[test]
    fn old_events_and_credits_change_nothing() {
        let mut generations = Generations::new(2);
        assert_eq!((generations.take(0), generations.take(2)), (None, None));
        assert!(generations.note(1, counter(4, true)) && generations.note(1, counter(3, true)) && !generations.note(2, 1));
        let lease = generations.take(1).expect("filled");
        assert_eq!((lease.generation(), lease.slot(), generations.is_unchanged(lease)), (4, 1, true));
        generations.note(1, counter(5, false));
        assert_eq!((generations.is_unchanged(lease), generations.take(1)), (false, None));

        let mut credits = Credits::new(2);
        assert!(credits.allow(1, 0) && !credits.allow(1, 1) && !credits.allow(2, 0));
        assert!(credits.grant(1, 3) && credits.grant(1, 2) && !credits.grant(2, 1));
        assert!(credits.allow(1, 2) && !credits.allow(1, 3) && !credits.allow(0, 1));
    }
}
