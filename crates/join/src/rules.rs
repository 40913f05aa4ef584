//! Which parts belong together, and how long is waited for them.
//!
//! A part is what one source says of one trigger: an image, or numbers. A trigger number leaves when all sources have
//! given it, or `timeout_us` after its first part. It is complete if no required source is absent then. Parts for a
//! number that has left are late. A source gives each number once in a run; what it gives again is doubled and not
//! used, also if its numbers have begun anew: two triggers must never be joined because their numbers are equal. So the
//! rules remember all numbers of the run, as ranges.

use crate::account::{NumberAccount, SourceAccount};
use crate::ranges::Ranges;
use std::collections::{BTreeMap, VecDeque};

/// Ranges of numbers that are remembered of each source; with more, the lowest are forgotten, and a part so late would
/// open its number again.
const RANGES_MAX: usize = 1 << 16;
/// Memory of a part beside its bytes.
pub const PART_BYTES: u64 = 512;

/// A source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// Its name.
    pub name: String,
    /// A number without it is incomplete.
    pub is_required: bool,
}

/// What the rules need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSpec {
    /// The sources.
    pub sources: Vec<SourceSpec>,
    /// Longest time from the first part of a number to its leaving.
    pub timeout_us: u64,
    /// Incomplete numbers are handed on too; otherwise they are only counted.
    pub is_kept: bool,
    /// Most memory of parts that wait.
    pub bytes_max: u64,
}

/// What happened to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits, or has left.
    Taken,
    /// Its number had left before.
    Late,
    /// Its source had given the number before.
    Doubled,
}

/// Why a number leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// All sources have given it.
    AllCame = 0,
    /// Its time is over.
    TimedOut = 1,
    /// The memory is full.
    PushedOut = 2,
    /// The run is over.
    AtEnd = 3,
}

/// A number that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined<P> {
    /// The number.
    pub trigger: u64,
    /// The part of each source; `None` = absent.
    pub parts: Vec<Option<P>>,
    /// No required source is absent.
    pub is_complete: bool,
    /// Why it left.
    pub reason: Reason,
}

/// A number that waits.
struct Waiting<P> {
    parts: Vec<Option<P>>,
    came: usize,
    bytes: u64,
    since_us: u64,
}

/// The rules.
pub struct Join<P> {
    spec: JoinSpec,
    waiting: BTreeMap<u64, Waiting<P>>,
    /// Numbers in the order in which their first parts came, and when; also of some that have left.
    order: VecDeque<(u64, u64)>,
    bytes: u64,
    bytes_most: u64,
    left: Ranges,
    given: Vec<Ranges>,
    newest: Vec<Option<u64>>,
    out: VecDeque<Joined<P>>,
    sources: Vec<SourceAccount>,
    numbers: NumberAccount,
}

impl<P> Join<P> {
    /// Nothing has come.
    pub fn new(spec: JoinSpec) -> Self {
        let count = spec.sources.len();
        Self {
            spec,
            waiting: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            bytes_most: 0,
            left: Ranges::new(RANGES_MAX),
            given: (0..count).map(|_| Ranges::new(RANGES_MAX)).collect(),
            newest: vec![None; count],
            out: VecDeque::new(),
            sources: vec![SourceAccount::default(); count],
            numbers: NumberAccount::default(),
        }
    }

    /// Takes a part of `bytes` bytes.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn offer(&mut self, source: usize, trigger: u64, part: P, bytes: u64, now_us: u64) -> Verdict {
        self.tick(now_us);
        let account = &mut self.sources[source];
        account.received += 1;
        account.backwards += u64::from(self.newest[source].replace(trigger).is_some_and(|before| trigger < before));
        if !self.given[source].insert(trigger) {
            account.doubled += 1;
            return Verdict::Doubled;
        }
        if self.left.contains(trigger) {
            account.late += 1;
            return Verdict::Late;
        }
        account.waiting += 1;
        let count = self.spec.sources.len();
        let bytes = bytes.saturating_add(PART_BYTES);
        let waiting = self.waiting.entry(trigger).or_insert_with(|| {
            self.order.push_back((trigger, now_us));
            Waiting { parts: (0..count).map(|_| None).collect(), came: 0, bytes: 0, since_us: now_us }
        });
        // A source whose oldest numbers are forgotten may give one again that still waits; its newer part counts.
        let replaced = waiting.parts[source].replace(part);
        if replaced.is_some() {
            (account.waiting, account.doubled) = (account.waiting - 1, account.doubled + 1);
        } else {
            waiting.came += 1;
        }
        waiting.bytes = waiting.bytes.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes_most = self.bytes_most.max(self.bytes);
        if waiting.came == count {
            self.leave(trigger, Reason::AllCame);
        }
        while self.bytes > self.spec.bytes_max
            && let Some((oldest, _)) = self.oldest()
        {
            self.leave(oldest, Reason::PushedOut);
        }
        Verdict::Taken
    }

    /// Counts an image of a further series whose numbers begin anew.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn refuse_series(&mut self, source: usize) {
        let account = &mut self.sources[source];
        (account.received, account.other_series) = (account.received + 1, account.other_series + 1);
    }

    /// Lets numbers leave whose time is over.
    pub fn tick(&mut self, now_us: u64) {
        while let Some((trigger, since_us)) = self.oldest()
            && now_us.saturating_sub(since_us) >= self.spec.timeout_us
        {
            self.leave(trigger, Reason::TimedOut);
        }
    }

    /// Lets all numbers leave: nothing comes any more.
    pub fn finish(&mut self) {
        while let Some((trigger, _)) = self.oldest() {
            self.leave(trigger, Reason::AtEnd);
        }
    }

    /// The next number that has left and is handed on.
    pub fn pop(&mut self) -> Option<Joined<P>> {
        self.out.pop_front()
    }

    /// True if no number waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Numbers that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Most memory of parts that waited at the same time.
    pub fn bytes_most(&self) -> u64 {
        self.bytes_most
    }

    /// The parts of each source.
    pub fn sources(&self) -> &[SourceAccount] {
        &self.sources
    }

    /// The trigger numbers.
    pub fn numbers(&self) -> &NumberAccount {
        &self.numbers
    }

    /// Ranges of numbers that were forgotten, of all sources together: numbers come with too many gaps.
    pub fn forgotten(&self) -> u64 {
        self.left.forgotten + self.given.iter().map(|ranges| ranges.forgotten).sum::<u64>()
    }

    /// The number whose first part came first, and when that was.
    fn oldest(&mut self) -> Option<(u64, u64)> {
        while let Some((trigger, since_us)) = self.order.front().copied() {
            if self.waiting.get(&trigger).is_some_and(|waiting| waiting.since_us == since_us) {
                return Some((trigger, since_us));
            }
            self.order.pop_front();
        }
        None
    }

    fn leave(&mut self, trigger: u64, reason: Reason) {
        let Some(waiting) = self.waiting.remove(&trigger) else { return };
        self.bytes -= waiting.bytes;
        self.left.insert(trigger);
        let is_absent = |(source, part): (&SourceSpec, &Option<P>)| source.is_required && part.is_none();
        let is_complete = !self.spec.sources.iter().zip(&waiting.parts).any(is_absent);
        for (account, part) in self.sources.iter_mut().zip(&waiting.parts) {
            if part.is_none() {
                account.absent += 1;
                account.absent_at.add(trigger);
                continue;
            }
            account.waiting -= 1;
            if is_complete {
                account.joined += 1;
                continue;
            }
            account.alone_at.add(trigger);
            *(if reason == Reason::PushedOut { &mut account.pushed_out } else { &mut account.alone }) += 1;
        }
        let numbers = &mut self.numbers;
        match reason {
            _ if is_complete => numbers.complete += 1,
            Reason::PushedOut => numbers.pushed_out += 1,
            Reason::AtEnd => numbers.at_end += 1,
            Reason::TimedOut | Reason::AllCame => numbers.timed_out += 1,
        }
        if is_complete || self.spec.is_kept {
            self.out.push_back(Joined { trigger, parts: waiting.parts, is_complete, reason });
        } else {
            numbers.dropped += 1;
        }
        // Entries of numbers that have left are taken out from the front only; no more than twice as many stay.
        if self.order.len() > 2 * self.waiting.len() + 64 {
            self.order.retain(|(trigger, since_us)| self.waiting.get(trigger).is_some_and(|w| w.since_us == *since_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(required: &[bool], is_kept: bool, bytes_max: u64) -> Join<u64> {
        let source = |(n, is_required): (usize, &bool)| SourceSpec { name: format!("s{n}"), is_required: *is_required };
        let sources = required.iter().enumerate().map(source).collect();
        Join::new(JoinSpec { sources, timeout_us: 100, is_kept, bytes_max })
    }

    fn popped(join: &mut Join<u64>) -> Vec<(u64, Vec<Option<u64>>, bool, Reason)> {
        std::iter::from_fn(|| join.pop()).map(|j| (j.trigger, j.parts, j.is_complete, j.reason)).collect()
    }

    #[test]
    fn a_number_leaves_when_all_have_given_it() {
        let mut join = join(&[true, true], true, 1 << 20);
        assert_eq!(join.offer(0, 5, 50, 0, 0), Verdict::Taken);
        assert_eq!(join.offer(0, 6, 60, 0, 1), Verdict::Taken);
        assert!(join.pop().is_none());
        // The second one first.
        join.offer(1, 6, 61, 0, 2);
        join.offer(1, 5, 51, 0, 3);
        let all = Reason::AllCame;
        assert_eq!(popped(&mut join), [(6, vec![Some(60), Some(61)], true, all), (5, vec![Some(50), Some(51)], true, all)]);
        assert!(join.is_empty() && join.sources()[0].joined == 2 && join.numbers().complete == 2);
    }

    #[test]
    fn what_is_alone_leaves_at_the_time_out_or_is_dropped() {
        for is_kept in [true, false] {
            let mut join = join(&[true, true], is_kept, 1 << 20);
            join.offer(0, 5, 50, 0, 10);
            join.tick(109);
            assert_eq!(join.waiting(), 1);
            join.tick(110);
            let found = popped(&mut join);
            assert_eq!(found, if is_kept { vec![(5, vec![Some(50), None], false, Reason::TimedOut)] } else { vec![] });
            assert_eq!(join.offer(1, 5, 51, 0, 111), Verdict::Late);
            assert_eq!(join.offer(1, 5, 51, 0, 112), Verdict::Doubled);
            let [a, b] = join.sources() else { panic!() };
            assert_eq!((a.alone, a.absent, b.late, b.doubled, b.absent, b.received), (1, 0, 1, 1, 1, 2));
            assert_eq!((join.numbers().timed_out, join.numbers().dropped), (1, u64::from(!is_kept)));
        }
    }

    #[test]
    fn a_number_without_an_optional_source_is_complete_at_the_time_out() {
        let mut join = join(&[true, true, false], false, 1 << 20);
        join.offer(0, 5, 50, 0, 0);
        join.offer(1, 5, 51, 0, 1);
        assert!(join.pop().is_none(), "the optional one may come");
        join.tick(100);
        assert_eq!(popped(&mut join), [(5, vec![Some(50), Some(51), None], true, Reason::TimedOut)]);
        join.offer(2, 6, 62, 0, 101);
        join.finish();
        assert!(popped(&mut join).is_empty(), "an optional one alone is not complete");
        assert_eq!((join.numbers().at_end, join.numbers().dropped, join.sources()[2].alone), (1, 1, 1));
    }

    #[test]
    fn the_oldest_leaves_first_when_the_memory_is_full() {
        let mut join = join(&[true, true], true, 2 * (1000 + PART_BYTES));
        for trigger in [9, 3, 7] {
            join.offer(0, trigger, trigger, 1000, 0);
        }
        assert_eq!(popped(&mut join), [(9, vec![Some(9), None], false, Reason::PushedOut)]);
        // A part larger than all memory goes out at once, and takes those before it along.
        join.offer(0, 8, 8, 1 << 30, 1);
        assert_eq!(popped(&mut join).iter().map(|(trigger, ..)| *trigger).collect::<Vec<_>>(), [3, 7, 8]);
        assert_eq!((join.sources()[0].pushed_out, join.numbers().pushed_out, join.waiting()), (4, 4, 0));
        assert_eq!(join.sources()[0].alone_at.ranges, [(9, 9), (3, 3), (7, 8)]);
    }

    /// A source that begins its numbers again must not be joined with other triggers of the same numbers.
    #[test]
    fn numbers_that_begin_anew_are_doubled_and_a_wrap_is_not() {
        let mut join = join(&[true, true], true, 1 << 20);
        for trigger in [u64::MAX - 1, u64::MAX, 0, 1] {
            (0..2).for_each(|source| _ = join.offer(source, trigger, trigger, 0, 0));
        }
        assert_eq!((join.numbers().complete, join.sources()[0].backwards), (4, 1));
        assert_eq!(join.offer(0, 0, 0, 0, 1), Verdict::Doubled);
        join.refuse_series(0);
        let account = &join.sources()[0];
        assert_eq!((account.doubled, account.other_series, account.received), (1, 1, 6));
        assert_eq!(account.imbalance("s0"), None);
    }
}
