//! Trains keep their order whatever programs do, and each is counted once.

use super::*;
use proptest::prelude::*;

fn kept(values: &[(&str, f64)]) -> Judgement {
    Judgement { is_kept: true, values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect() }
}

fn rejected() -> Judgement {
    Judgement { is_kept: false, values: Vec::new() }
}

fn given<T: Copy>(processing: &mut Processing<T>) -> Option<T> {
    let mut found = None;
    processing.give(|train| {
        found = Some(*train);
        true
    });
    found
}

#[test]
fn judgements_out_of_order_leave_the_order_of_trains() {
    let mut processing = Processing::new(3, 100);
    (1..=3).for_each(|id| processing.offer(id, id, 0));
    assert!(processing.has_waiting());
    processing.give(|_| false);
    assert_eq!([given(&mut processing), given(&mut processing)], [Some(1), Some(2)], "a program that had gone got nothing");
    processing.judge(2, rejected());
    assert_eq!(processing.pop(50), None, "train 1 is still looked at");
    processing.judge(1, kept(&[("peaks", 12.0)]));
    assert_eq!(processing.pop(50), Some((1, Some(kept(&[("peaks", 12.0)])))));
    assert_eq!(processing.pop(50), Some((2, Some(rejected()))));
    assert_eq!((processing.pop(99), processing.pop(100)), (None, Some((3, None))), "nobody asked for train 3");
    let expected = ProcessingCounts { kept: 1, rejected: 1, skipped: 1, ..ProcessingCounts::default() };
    assert_eq!((*processing.counts(), processing.is_empty()), (expected, true));
}

#[test]
fn a_program_that_hangs_costs_the_timeout_and_its_answer_is_late() {
    let mut processing = Processing::new(1, 100);
    processing.offer(7, "a", 0);
    processing.offer(8, "b", 10);
    assert_eq!([given(&mut processing), given(&mut processing)], [Some("a"), None], "one may be open: the second is skipped");
    assert_eq!((processing.pop(99), processing.pop(100), processing.pop(100)), (None, Some(("a", None)), Some(("b", None))));
    processing.judge(7, kept(&[]));
    processing.judge(99, kept(&[]));
    let expected = ProcessingCounts { skipped: 1, unanswered: 1, late: 2, ..ProcessingCounts::default() };
    assert_eq!(*processing.counts(), expected);
}

proptest! {
    #[test]
    fn every_train_goes_on_once_and_in_order(steps in prop::collection::vec((0..4u8, 0..8u64), 1..400), open_max in 0..4usize) {
        let mut processing = Processing::new(open_max, 20);
        let (mut now_us, mut offered, mut out) = (0, 0, Vec::new());
        for (step, argument) in steps {
            match step {
                0 => {
                    offered += 1;
                    processing.offer(offered, offered, now_us);
                }
                1 => processing.give(|_| argument % 3 != 0),
                2 => processing.judge(offered.saturating_sub(argument), if argument % 2 == 0 { kept(&[]) } else { rejected() }),
                _ => now_us += argument,
            }
            while let Some((train, _)) = processing.pop(now_us) {
                out.push(train);
            }
        }
        // Whatever happened, the time-out sends all on.
        while let Some((train, _)) = processing.pop(now_us + 20) {
            out.push(train);
        }
        prop_assert_eq!(out, (1..=offered).collect::<Vec<_>>());
        let counts = processing.counts();
        prop_assert_eq!(counts.kept + counts.rejected + counts.skipped + counts.unanswered, offered);
    }
}
