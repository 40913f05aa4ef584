//! The reorder queue, for one stream of numbered messages over several upstreams: restores the order in which the
//! messages were sent. Without it an image of the next series could not be told from one of this series when an
//! upstream is ahead.

use super::io::Incoming;
use konkordia_wire::message::{Event, Read};
use std::collections::BTreeMap;

/// Messages that wait for those before them. The in-flight budget bounds their number.
pub(crate) struct ReorderQueue {
    wait_ns: u64,
    waiting: BTreeMap<u64, Incoming>,
    /// The number that follows the last one that left; `None` before the first header.
    next: Option<u64>,
    /// Headers that wait.
    starts: usize,
    /// Messages up to this number are not held back any longer.
    released: Option<u64>,
    /// No message is too old before this time.
    check_ns: u64,
    counts: Vec<u64>,
}

fn number_of(incoming: &Incoming) -> Option<u64> {
    incoming.read.as_ref().ok().and_then(|read| read.message_number)
}

fn is_start(incoming: &Incoming) -> bool {
    matches!(incoming.read, Ok(Read { event: Event::Start(..), .. }))
}

impl ReorderQueue {
    pub fn new(wait_ns: u64, upstreams: usize) -> Self {
        let counts = vec![0; upstreams];
        Self { wait_ns, waiting: BTreeMap::new(), next: None, starts: 0, released: None, check_ns: u64::MAX, counts }
    }

    /// Takes a message; gives it back if it has no number, or if it is a copy of one that waits.
    pub fn push(&mut self, incoming: Incoming) -> Result<(), Incoming> {
        let Some(number) = number_of(&incoming) else { return Err(incoming) };
        if self.waiting.contains_key(&number) {
            return Err(incoming);
        }
        self.starts += usize::from(is_start(&incoming));
        self.check_ns = self.check_ns.min(incoming.received_ns.saturating_add(self.wait_ns));
        self.counts[incoming.receipt.upstream] += 1;
        self.waiting.insert(number, incoming);
        Ok(())
    }

    /// Releases messages that have waited too long: those missing before them are no longer waited for.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.check_ns {
            return;
        }
        self.check_ns = u64::MAX;
        for (number, incoming) in &self.waiting {
            let until = incoming.received_ns.saturating_add(self.wait_ns);
            if until <= now_ns {
                self.released = Some(*number);
            } else {
                self.check_ns = self.check_ns.min(until);
            }
        }
    }

    /// Nothing more comes.
    pub fn finish(&mut self) {
        self.released = Some(u64::MAX);
    }

    /// The next message, unless one before it is missing and still waited for.
    pub fn pop(&mut self) -> Option<Incoming> {
        let (&number, _) = self.waiting.first_key_value()?;
        let is_due = match self.next {
            Some(next) => number <= next,
            // What comes before a header belongs to no series; the header says where the numbers begin.
            None => self.starts > 0,
        };
        if !is_due && self.released.is_none_or(|released| number > released) {
            return None;
        }
        let incoming = self.waiting.remove(&number)?;
        self.counts[incoming.receipt.upstream] -= 1;
        let is_start = is_start(&incoming);
        self.starts -= usize::from(is_start);
        let following = number.saturating_add(1);
        self.next = match self.next {
            // Only a start sets the number back: a sender that was started again counts from the beginning.
            Some(next) if !is_start => Some(next.max(following)),
            None if !is_start => None,
            _ => Some(following),
        };
        if self.waiting.is_empty() {
            (self.released, self.check_ns) = (None, u64::MAX);
        }
        Some(incoming)
    }

    /// When [`Self::tick`] has something to do at the earliest.
    pub fn deadline_ns(&self) -> Option<u64> {
        (self.check_ns < u64::MAX && !self.waiting.is_empty()).then_some(self.check_ns)
    }

    /// Messages of this upstream that wait.
    pub fn count(&self, upstream: usize) -> u64 {
        self.counts[upstream]
    }
}
