//! Any arrival order with loss and copies gives every position once and in order, none waits longer than it may, and a
//! lost message is a gap.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn order(parts_per_image: u32, window_images: u64, wait_ns: u64) -> Order {
    Order::new(OrderSpec { parts_per_image, window_images, wait_ns })
}

fn popped(order: &mut Order) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| order.pop()).map(|ready| (ready.number, ready.missing_parts)).collect()
}

#[test]
fn whole_images_leave_in_order_and_at_once() {
    let mut order = order(2, 4, 100);
    assert_eq!(order.on_part(1, 0, 0), Verdict::Placed);
    assert_eq!(order.on_part(1, 1, 0), Verdict::Placed);
    assert_eq!(order.on_part(1, 1, 0), Verdict::Duplicate);
    assert_eq!(order.on_part(0, 1, 1), Verdict::Placed);
    assert_eq!(order.pop(), None);
    assert_eq!(order.on_part(0, 0, 2), Verdict::Placed);
    assert_eq!(popped(&mut order), [(0, 0), (1, 0)]);
    assert_eq!(order.on_part(1, 0, 3), Verdict::Late);
    assert_eq!((order.next(), order.seen_end(), order.waiting(), order.deadline_ns()), (2, 2, 0, None));
}

#[test]
fn time_releases_what_waits_and_everything_before_it() {
    let mut order = order(2, 8, 100);
    order.on_part(1, 0, 10);
    order.on_part(3, 0, 50);
    order.on_part(3, 1, 60);
    order.on_part(4, 0, 70);
    assert_eq!(order.deadline_ns(), Some(110));
    order.tick(109);
    assert_eq!(order.pop(), None);
    order.tick(110);
    assert_eq!(popped(&mut order), [(0, 0b11), (1, 0b10)]);
    assert_eq!(order.deadline_ns(), Some(150));
    order.tick(150);
    assert_eq!(popped(&mut order), [(2, 0b11), (3, 0)]);
    order.tick(169);
    assert_eq!(order.pop(), None);
    order.tick(170);
    assert_eq!(popped(&mut order), [(4, 0b10)]);
}

#[test]
fn a_part_ahead_of_the_window_pushes_the_oldest_out() {
    let mut order = order(1, 4, u64::MAX);
    order.on_part(1, 0, 0);
    assert_eq!(order.on_part(4, 0, 0), Verdict::Beyond);
    order.advance_for(4);
    assert_eq!(popped(&mut order), [(0, 1), (1, 0)]);
    assert_eq!(order.on_part(4, 0, 0), Verdict::Placed);
    // A jump over more than the window: all in between are gaps.
    order.advance_for(20);
    let gaps = popped(&mut order);
    assert_eq!((gaps.first(), gaps.last(), gaps.len()), (Some(&(2, 1)), Some(&(16, 1)), 15));
    assert!(gaps.contains(&(4, 0)));
    assert_eq!(order.on_part(20, 0, 0), Verdict::Placed);
    order.finish(Some(23));
    assert_eq!(popped(&mut order), [(17, 1), (18, 1), (19, 1), (20, 0), (21, 1), (22, 1)]);
    order.reset();
    assert_eq!((order.on_part(0, 0, 0), popped(&mut order)), (Verdict::Placed, vec![(0, 0)]));
}

#[test]
fn a_refused_part_is_not_waited_for_and_a_good_copy_still_counts() {
    let mut order = order(2, 4, 100);
    assert_eq!(order.on_refused(0, 1, 0), Verdict::Placed);
    assert_eq!(order.on_refused(0, 1, 0), Verdict::Duplicate);
    order.on_part(0, 0, 0);
    assert_eq!(popped(&mut order), [(0, 0b10)]);
    order.on_refused(1, 0, 0);
    assert_eq!(order.on_part(1, 0, 0), Verdict::Placed);
    assert_eq!(order.on_refused(1, 0, 0), Verdict::Duplicate);
    order.on_part(1, 1, 0);
    assert_eq!(popped(&mut order), [(1, 0)]);
}

#[test]
fn sixty_four_parts_fill_the_bits() {
    let mut order = order(64, 1, 10);
    (0..63).for_each(|part| assert_eq!(order.on_part(0, part, 0), Verdict::Placed));
    assert_eq!(order.pop(), None);
    order.finish(None);
    assert_eq!(popped(&mut order), [(0, 1 << 63)]);
}

/// Arrivals: (image, part, time between). Some are copies, some are lost, the order is anything within a distance.
fn arrivals() -> impl Strategy<Value = (u32, u64, u64, Vec<(u64, u32, u64)>)> {
    (1u32..=5, 1u64..=20, 1u64..=60).prop_flat_map(|(parts, window, wait_ns)| {
        let part = (0u64..40, 0..parts, 0u64..8);
        (Just(parts), Just(window), Just(wait_ns), prop::collection::vec(part, 0..300))
    })
}

proptest! {
    #[test]
    fn every_position_leaves_once_in_order_and_in_time((parts, window, wait_ns, arrivals) in arrivals()) {
        let mut order = order(parts, window, wait_ns);
        let all = u64::MAX >> (64 - parts);
        let mut books: BTreeMap<u64, u64> = BTreeMap::new();
        let mut first_seen: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut left, mut now_ns) = (Vec::new(), 0);
        for (number, part, pause_ns) in arrivals {
            now_ns += pause_ns;
            order.tick(now_ns);
            left.extend(popped(&mut order));
            // Nothing that is still here is too old.
            for (_, since) in first_seen.iter().filter(|(number, _)| **number >= order.next()) {
                prop_assert!(now_ns < since + wait_ns);
            }
            let mut verdict = order.on_part(number, part, now_ns);
            if verdict == Verdict::Beyond {
                prop_assert!(number >= order.next() + window);
                order.advance_for(number);
                left.extend(popped(&mut order));
                verdict = order.on_part(number, part, now_ns);
            }
            let here = books.entry(number).or_default();
            let expected = if number < order.next() {
                Verdict::Late
            } else if *here & 1 << part != 0 {
                Verdict::Duplicate
            } else {
                Verdict::Placed
            };
            prop_assert_eq!(verdict, expected);
            if verdict == Verdict::Placed {
                *here |= 1 << part;
                first_seen.entry(number).or_insert(now_ns);
            }
            left.extend(popped(&mut order));
            prop_assert!(order.waiting() <= window);
            prop_assert_eq!(order.waiting() > 0, order.deadline_ns().is_some());
        }
        order.finish(Some(45));
        left.extend(popped(&mut order));
        let expected: Vec<(u64, u64)> = (0..45).map(|n| (n, all & !books.get(&n).copied().unwrap_or(0))).collect();
        prop_assert_eq!(left, expected);
    }

    #[test]
    fn a_series_is_whole_exactly_when_all_its_numbers_have_come(
        start in prop_oneof![Just(0u64), Just(u64::MAX / 2), 0u64..1000],
        shuffled in Just((1u64..60).collect::<Vec<_>>()).prop_shuffle(),
        kept in 0usize..80,
        copies in prop::collection::vec(0usize..60, 0..20),
    ) {
        let mut numbers = Numbers::new(start, 64);
        let mut seen = BTreeSet::new();
        for (n, offset) in shuffled.iter().enumerate().take(kept) {
            prop_assert!(numbers.on_number(start + offset));
            seen.insert(*offset);
            if let Some(copy) = copies.get(n).and_then(|copy| shuffled[..=n].get(*copy)) {
                prop_assert!(!numbers.on_number(start + copy));
            }
            if *offset == 59 {
                numbers.set_end(start + 59);
            }
            prop_assert_eq!(numbers.is_whole(), seen.len() == 59);
        }
    }
}

#[test]
fn numbers_far_ahead_give_up_the_oldest_in_bounded_memory() {
    let mut numbers = Numbers::new(7, 64);
    assert!(numbers.on_number(9));
    assert!(!numbers.on_number(7) && !numbers.on_number(9));
    assert!(numbers.on_number(1 << 60));
    numbers.set_end(1 << 60);
    assert!(!numbers.on_number(8), "given up");
    ((1 << 60) - 63..1 << 60).for_each(|n| assert!(numbers.on_number(n)));
    assert!(!numbers.is_whole(), "8 never came");
    assert_eq!((numbers.start(), numbers.end()), (7, Some(1 << 60)));
    numbers.set_end(10);
    assert_eq!(numbers.end(), Some(10));
}
