//! The detector against an oracle of sets, which knows nothing of registers, words and wraps.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Positions that came, and that were tested.
#[derive(Default)]
struct Oracle {
    came: BTreeSet<i64>,
    newest: Option<i64>,
    lost: BTreeSet<i64>,
    tested: i64,
    late: u64,
    duplicate: u64,
}

impl Oracle {
    fn receive(&mut self, position: i64) -> Arrival {
        let newest = self.newest.unwrap_or(-1);
        let is_forgotten = position <= newest - 1024;
        if is_forgotten || (self.lost.contains(&position) && !self.came.contains(&position)) || position < 0 {
            self.late += 1;
            self.came.insert(position);
            return Arrival::Late;
        }
        if !self.came.insert(position) {
            self.duplicate += 1;
            return Arrival::Duplicate;
        }
        self.newest = Some(newest.max(position));
        self.test(position - 511);
        if position - newest >= 1024 { Arrival::Gap } else { Arrival::New }
    }

    fn test(&mut self, to: i64) {
        for position in self.tested..=to {
            if !self.came.contains(&position) {
                self.lost.insert(position);
            }
        }
        self.tested = self.tested.max(to + 1);
    }
}

fn entries(lost: &mut BTreeSet<i64>) -> impl FnMut(Range<u64>) {
    |run: Range<u64>| {
        assert!(run.start < run.end, "a run has at least one position");
        for position in run {
            assert!(lost.insert(position as i64), "{position} was reported before");
        }
    }
}

/// How a link treats each packet: lost, delayed by so many packets, doubled and delayed.
#[derive(Clone, Copy, Debug)]
struct Fate {
    is_lost: bool,
    delay: usize,
    doubled: Option<usize>,
    /// Numbers that the sender skips before this one.
    jump: i64,
}

fn fates(delay_max: usize) -> impl Strategy<Value = Vec<Fate>> {
    let jump = prop_oneof![400 => Just(0_i64), 1 => 1_i64..600, 1 => 1000_i64..3000];
    let delay = prop_oneof![6 => Just(0), 2 => 0..8_usize, 1 => 0..delay_max];
    let fate = (prop::bool::weighted(0.1), delay.clone(), prop::option::weighted(0.1, delay), jump);
    let fate = fate.prop_map(|(is_lost, delay, doubled, jump)| Fate { is_lost, delay, doubled, jump });
    prop::collection::vec(fate, 1..4000)
}

/// The positions in the order of their arrival.
fn arrivals(fates: &[Fate]) -> (Vec<i64>, i64) {
    let mut arrivals = Vec::new();
    let mut position = -1;
    for (time, fate) in fates.iter().enumerate() {
        position += 1 + fate.jump;
        if !fate.is_lost {
            arrivals.push((time + fate.delay, position));
            arrivals.extend(fate.doubled.map(|delay| (time + delay, position)));
        }
    }
    arrivals.sort_by_key(|(time, _)| *time);
    (arrivals.into_iter().map(|(_, position)| position).collect(), position)
}

fn compare(width: Width, first: u32, fates: &[Fate]) -> Result<(), TestCaseError> {
    let mask = if width == Width::Bits24 { 0x00FF_FFFF } else { u32::MAX };
    let first = first & mask;
    let (arrivals, last) = arrivals(fates);
    let (mut oracle, mut detector, mut lost) = (Oracle::default(), Detector::new(width, Some(first)), BTreeSet::new());
    for &position in &arrivals {
        let number = first.wrapping_add(position as u32) & mask;
        let arrival = detector.receive(number, &mut entries(&mut lost));
        prop_assert_eq!(arrival, oracle.receive(position), "position {}", position);
        prop_assert_eq!(lost.len(), oracle.lost.len());
        prop_assert_eq!(detector.tested_before() as i64, oracle.tested.max(0));
        prop_assert_eq!(detector.position_of(number), Some(position as u64));
        prop_assert_eq!(detector.number(position as u64), number);
    }
    oracle.test(last);
    detector.drain(Some(first.wrapping_add(last as u32) & mask), &mut entries(&mut lost));
    prop_assert_eq!(&lost, &oracle.lost);
    let counts = detector.counts();
    prop_assert_eq!((counts.late, counts.duplicate, counts.lost), (oracle.late, oracle.duplicate, lost.len() as u64));
    prop_assert_eq!(counts.new + counts.duplicate + counts.late, arrivals.len() as u64);
    prop_assert_eq!(counts.new + counts.lost, last as u64 + 1);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn finds_what_a_set_finds(fates in fates(1500), is_wide: bool, first in prop_oneof![Just(0), Just(u32::MAX - 700), any::<u32>()]) {
        compare(if is_wide { Width::Bits32 } else { Width::Bits24 }, first, &fates)?;
    }

    /// With less disorder than the window, what is reported is what the link lost, and nothing is late.
    #[test]
    fn finds_exactly_the_losses_of_a_link(fates in fates(500)) {
        let fates: Vec<Fate> = fates.iter().map(|fate| Fate { jump: 0, ..*fate }).collect();
        let injected: BTreeSet<i64> = (0..).zip(&fates).filter(|(_, fate)| fate.is_lost).map(|(n, _)| n).collect();
        let (mut detector, mut lost) = (Detector::new(Width::Bits24, Some(0x00FF_FF00)), BTreeSet::new());
        let (arrivals, last) = arrivals(&fates);
        for position in arrivals {
            let number = 0x00FF_FF00_u32.wrapping_add(position as u32) & 0x00FF_FFFF;
            prop_assert_ne!(detector.receive(number, &mut entries(&mut lost)), Arrival::Late);
        }
        detector.drain(Some(0x00FF_FF00_u32.wrapping_add(last as u32)), &mut entries(&mut lost));
        prop_assert_eq!(lost, injected);
    }
}

/// "512 tests 1" (Fig. 27), and the loss that the printed version misses, since its trigger 514 is lost too.
#[test]
fn the_receipt_of_512_tests_1() {
    let (mut detector, mut lost) = (Detector::new(Width::Bits32, Some(1)), BTreeSet::new());
    for number in (2..=511).filter(|n| *n != 3) {
        detector.receive(number, &mut entries(&mut lost));
    }
    assert!(lost.is_empty());
    detector.receive(512, &mut entries(&mut lost));
    assert_eq!(lost, BTreeSet::from([0]), "number 1 is position 0");
    detector.receive(513, &mut entries(&mut lost));
    detector.receive(515, &mut entries(&mut lost));
    assert_eq!(lost, BTreeSet::from([0, 2]), "number 3, by 515 instead of 514");
    assert_eq!(detector.receive(3, &mut |_| panic!("nothing is lost by a late packet")), Arrival::Late);
    assert_eq!(detector.receive(3, &mut |_| {}), Arrival::Duplicate, "now it came before");
    detector.drain(Some(517), &mut entries(&mut lost));
    assert_eq!(lost, BTreeSet::from([0, 2, 513, 515, 516]), "also 514, 516 and 517, which nothing would have tested");
}

/// A jump over most of the numbers costs as much as any other, and is one run.
#[test]
fn a_long_gap_is_one_run() {
    let mut runs = Vec::new();
    let mut detector = Detector::new(Width::Bits32, Some(0));
    detector.receive(0, &mut |run| runs.push(run));
    assert_eq!(detector.receive(0x7FFF_FFFF, &mut |run| runs.push(run)), Arrival::Gap);
    assert_eq!((runs.len(), runs.first()), (1, Some(&(1..0x7FFF_FFFF - 510))));
    assert_eq!(detector.receive(0x7FFF_FFFE, &mut |_| {}), Arrival::New, "it may still be on its way");
    assert_eq!(detector.counts().gaps, 1);
    // Half of the numbers further is half of them back.
    assert_eq!(detector.receive(0xFFFF_FFFF, &mut |_| {}), Arrival::Late);
}

#[test]
fn a_flow_whose_first_number_is_not_known_begins_with_what_comes() {
    let mut detector = Detector::new(Width::Bits24, None);
    assert_eq!(detector.position_of(5), None);
    assert_eq!(detector.receive(0x00FF_FFFF, &mut |_| panic!("nothing is lost")), Arrival::New);
    assert_eq!(detector.receive(0, &mut |_| panic!("nothing is lost")), Arrival::New);
    assert_eq!(detector.receive(0x00FF_FFFE, &mut |_| {}), Arrival::Late, "before the first");
    detector.drain(None, &mut |_| panic!("nothing is lost"));
    assert_eq!((detector.counts().new, detector.tested_before()), (2, 2));
}
