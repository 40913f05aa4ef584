//! Joins on a virtual clock: parts are lost, delayed, doubled and come in another order, sources fall silent, come back
//! and begin their numbers anew. Each part has one fate, and no two triggers are joined with each other.

use crate::account::SourceAccount;
use crate::rules::{Join, JoinSpec, Joined, PART_BYTES, Reason, SourceSpec, Verdict};
use konkordia_sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

const TRIGGERS: u64 = 500;
const PERIOD_US: u64 = 1000;
const TIMEOUT_US: u64 = 20_000;

/// Chances of a fault, of 1000, and others.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost: u64,
    doubled: u64,
    delay_us_max: u64,
    /// One source sends nothing between these numbers.
    silent: (u64, u64),
    /// One source begins its numbers anew at this one; 0 = never.
    anew: u64,
    bytes_max: u64,
    is_kept: bool,
}

/// A part under way: its trigger as it happened, and as its source numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Under {
    source: usize,
    happened: u64,
    number: u64,
}

/// The parts in the order in which they arrive, with their times.
fn arrivals(rng: &mut Rng, sources: usize, first: u64, faults: Faults) -> Vec<(u64, Under)> {
    let mut found = Vec::new();
    for n in 0..TRIGGERS {
        for source in 0..sources {
            let is_first = source == 0;
            if rng.below(1000) < faults.lost || (is_first && (faults.silent.0..faults.silent.1).contains(&n)) {
                continue;
            }
            let is_anew = is_first && faults.anew > 0 && n >= faults.anew;
            let number = first.wrapping_add(if is_anew { n - faults.anew } else { n });
            let times = 1 + u64::from(rng.below(1000) < faults.doubled);
            for _ in 0..times {
                let at_us = n * PERIOD_US + rng.below(faults.delay_us_max + 1);
                found.push((at_us, Under { source, happened: first.wrapping_add(n), number }));
            }
        }
    }
    found.sort_by_key(|(at_us, _)| *at_us);
    found
}

/// What came out.
struct Run {
    join: Join<Under>,
    out: Vec<Joined<Under>>,
    sent: Vec<u64>,
}

fn run(seed: u64, required: &[bool], first: u64, faults: Faults) -> Run {
    let mut rng = Rng::new(seed);
    let source = |(n, is_required): (usize, &bool)| SourceSpec { name: format!("s{n}"), is_required: *is_required };
    let sources = required.iter().enumerate().map(source).collect();
    let bytes_max = if faults.bytes_max == 0 { u64::MAX } else { faults.bytes_max };
    let mut join = Join::new(JoinSpec { sources, timeout_us: TIMEOUT_US, is_kept: faults.is_kept, bytes_max });
    let (mut out, mut sent) = (Vec::new(), vec![0; required.len()]);
    let (mut came, mut left) = (BTreeSet::new(), BTreeSet::new());
    let mut last_us = 0;
    for (at_us, part) in arrivals(&mut rng, required.len(), first, faults) {
        // The clock ticks between the parts, too.
        (last_us + 1..at_us).step_by(700).for_each(|now_us| join.tick(now_us));
        last_us = at_us;
        sent[part.source] += 1;
        join.tick(at_us);
        out.extend(std::iter::from_fn(|| join.pop()));
        left.extend(out.iter().map(|joined: &Joined<Under>| joined.trigger));
        let is_new = came.insert((part.source, part.number));
        let expected = match (is_new, left.contains(&part.number)) {
            (false, _) => Verdict::Doubled,
            (true, true) => Verdict::Late,
            (true, false) => Verdict::Taken,
        };
        let verdict = join.offer(part.source, part.number, part, 1000, at_us);
        assert!(verdict == expected || !faults.is_kept, "{part:?}: {verdict:?}, not {expected:?}");
        check(&join, &sent);
        out.extend(std::iter::from_fn(|| join.pop()));
    }
    join.finish();
    out.extend(std::iter::from_fn(|| join.pop()));
    check(&join, &sent);
    assert!(join.is_empty() && join.sources().iter().all(|account| account.waiting == 0));
    Run { join, out, sent }
}

/// The sums hold at every moment.
fn check(join: &Join<Under>, sent: &[u64]) {
    for (account, sent) in join.sources().iter().zip(sent) {
        assert_eq!((account.received, account.imbalance("a source")), (*sent, None));
    }
}

impl Run {
    fn source(&self, n: usize) -> &SourceAccount {
        &self.join.sources()[n]
    }

    /// What left agrees with the counters; each number left once.
    fn agrees(&self) -> &Self {
        let mut numbers = BTreeMap::new();
        for joined in &self.out {
            assert_eq!(numbers.insert(joined.trigger, ()), None, "number {} left twice", joined.trigger);
            assert!(joined.parts.iter().any(Option::is_some), "nothing left empty");
            for (n, part) in joined.parts.iter().enumerate() {
                assert!(part.is_none_or(|part| (part.source, part.number) == (n, joined.trigger)));
            }
        }
        let counts = self.join.numbers();
        let complete = self.out.iter().filter(|joined| joined.is_complete).count() as u64;
        assert_eq!(counts.complete, complete);
        assert_eq!(counts.incomplete() - counts.dropped, self.out.len() as u64 - complete);
        for n in 0..self.sent.len() {
            let account = self.source(n);
            let joined = self.out.iter().filter(|joined| joined.is_complete && joined.parts[n].is_some()).count() as u64;
            assert_eq!(account.joined, joined);
            let all = counts.complete + counts.incomplete();
            assert_eq!(account.absent + account.joined + account.alone + account.pushed_out, all);
            assert_eq!(account.alone_at.count, account.alone + account.pushed_out);
            assert_eq!(account.absent_at.count, account.absent);
        }
        self
    }
}

#[test]
fn without_faults_all_is_joined() {
    for seed in 0..20 {
        let run = run(seed, &[true, true, false], 1, Faults { delay_us_max: TIMEOUT_US - 1, is_kept: true, ..Faults::default() });
        run.agrees();
        assert_eq!((run.join.numbers().complete, run.join.numbers().incomplete()), (TRIGGERS, 0));
        assert!(run.out.iter().all(|joined| joined.reason == Reason::AllCame));
        assert_eq!(run.source(2).joined, TRIGGERS);
    }
}

#[test]
fn losses_delays_and_doubles_are_each_counted_once() {
    for seed in 0..60 {
        let is_kept = seed % 2 == 0;
        let faults = Faults { lost: 60, doubled: 40, delay_us_max: 2 * TIMEOUT_US, is_kept, ..Faults::default() };
        let run = run(seed, &[true, true, true], 0, faults);
        run.agrees();
        assert!((0..3).all(|n| run.source(n).doubled > 0 && run.source(n).alone > 0 && run.source(n).late > 0));
        // Nothing is made up: what leaves complete is from one trigger.
        let is_one = |joined: &Joined<Under>| joined.parts.iter().flatten().all(|part| part.happened == joined.trigger);
        assert!(run.out.iter().all(is_one));
        assert_eq!(run.join.numbers().dropped > 0, !is_kept);
    }
}

#[test]
fn a_source_that_is_silent_and_comes_back_is_absent_as_long() {
    for seed in 0..20 {
        let faults = Faults { silent: (100, 300), delay_us_max: 3000, is_kept: true, ..Faults::default() };
        let run = run(seed, &[true, true], 0, faults);
        run.agrees();
        assert_eq!((run.join.numbers().complete, run.join.numbers().timed_out), (TRIGGERS - 200, 200));
        assert_eq!((run.source(0).absent, run.source(1).alone, run.source(1).late), (200, 200, 0));
        let mut at: Vec<u64> = run.out.iter().filter(|joined| !joined.is_complete).map(|joined| joined.trigger).collect();
        at.sort_unstable();
        assert_eq!(at, (100..300).collect::<Vec<_>>());
    }
}

/// Numbers that begin anew were given before: no image of them is joined with another trigger.
#[test]
fn a_source_that_begins_anew_is_not_joined_with_other_triggers() {
    for seed in 0..20 {
        let faults = Faults { anew: 300, delay_us_max: 3000, is_kept: true, ..Faults::default() };
        let run = run(seed, &[true, true], 0, faults);
        run.agrees();
        assert!(run.out.iter().all(|joined| joined.parts.iter().flatten().all(|part| part.happened == joined.trigger)));
        assert_eq!((run.source(0).doubled, run.source(0).joined, run.source(1).alone), (200, 300, 200));
        assert!(run.source(0).backwards > 0);
    }
}

#[test]
fn numbers_that_wrap_are_joined() {
    let first = u64::MAX - 200;
    for seed in 0..20 {
        let run = run(seed, &[true, true], first, Faults { delay_us_max: 3000, is_kept: true, ..Faults::default() });
        run.agrees();
        assert_eq!(run.join.numbers().complete, TRIGGERS);
    }
}

#[test]
fn memory_stays_within_its_bound() {
    for seed in 0..20 {
        let bytes_max = 10 * (1000 + PART_BYTES);
        let faults = Faults { bytes_max, silent: (0, 400), lost: 30, delay_us_max: 4000, is_kept: true, ..Faults::default() };
        let run = run(seed, &[true, true], 0, faults);
        run.agrees();
        // It is reached, and one part beyond it at most is held while room is made.
        assert!((bytes_max..=bytes_max + 1000 + PART_BYTES).contains(&run.join.bytes_most()), "{}", run.join.bytes_most());
        let pushed_out: u64 = run.join.sources().iter().map(|source| source.pushed_out).sum();
        assert!(run.source(1).pushed_out > 300 && run.join.numbers().pushed_out == pushed_out);
    }
}
