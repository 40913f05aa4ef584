//! Sums, narrowing and the policies for counts below zero, against the definition.

use konkordia_core::pixel::Pixel;
use konkordia_core::process::Negative;
use konkordia_kernels::finish::{Accumulator, Narrow, Signed, accumulate, narrow, negatives};
use proptest::prelude::*;

/// Mostly small numbers, some at the limits, some special.
fn value() -> impl Strategy<Value = i32> {
    let special = [
        i32::MASKED,
        i32::MISSING,
        i32::INVALID,
        i32::SATURATED,
        i32::VALID_MIN,
        i32::VALID_MAX,
        1 << 30,
        -(1 << 30),
        65532,
        -32766,
    ];
    prop_oneof![12 => -40_000i32..70_000, 1 => prop::sample::select(special.to_vec()), 1 => i32::VALID_MIN..=i32::VALID_MAX]
}

fn planes() -> impl Strategy<Value = (Vec<i32>, Vec<i32>)> {
    (0usize..300).prop_flat_map(|n| (prop::collection::vec(value(), n), prop::collection::vec(value(), n)))
}

fn is(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan()
}

/// The sum by its definition, in `f64`, which is exact for both types here.
fn naive_sum<A: Accumulator>(a: A, b: A) -> f64 {
    let special = A::TYPE.special();
    let (a, b) = (a.to_f64(), b.to_f64());
    for s in [special.masked, special.missing, special.invalid, special.saturated] {
        if is(a, s) || is(b, s) {
            return s;
        }
    }
    if a + b > special.valid_max { special.saturated } else { (a + b).max(special.valid_min) }
}

fn naive_narrow<P: Pixel>(value: i32) -> f64 {
    let (from, to) = (i32::TYPE.special(), P::TYPE.special());
    let v = f64::from(value);
    let pairs =
        [(from.masked, to.masked), (from.missing, to.missing), (from.invalid, to.invalid), (from.saturated, to.saturated)];
    match pairs.into_iter().find(|(s, _)| *s == v) {
        Some((_, special)) => special,
        None if v > to.valid_max => to.saturated,
        None => v.max(to.valid_min),
    }
}

fn check_narrow<P: Narrow>(sum: &[i32]) {
    let mut out = vec![P::default(); sum.len()];
    narrow(sum, &mut out);
    for (sum, out) in sum.iter().zip(out) {
        assert_eq!(out.to_f64(), naive_narrow::<P>(*sum), "{sum} as {:?}", P::TYPE);
    }
}

fn check_negatives<P: Signed>(pixels: &[P], offset: i32) {
    let special = P::TYPE.special();
    for policy in [Negative::Keep, Negative::Clamp, Negative::Offset(offset)] {
        let mut out = pixels.to_vec();
        negatives(policy, &mut out);
        for (before, after) in pixels.iter().map(|p| p.to_f64()).zip(out.iter().map(|p| p.to_f64())) {
            let number = before >= special.valid_min && before <= special.valid_max;
            let expected = match policy {
                Negative::Clamp if number => before.max(0.0),
                Negative::Offset(offset) if number && before + f64::from(offset) > special.valid_max => special.saturated,
                Negative::Offset(offset) if number => (before + f64::from(offset)).max(special.valid_min),
                _ => before,
            };
            assert!(is(after, expected), "{before} under {policy:?} became {after}, not {expected}");
        }
    }
}

/// Sums at the ends of 32 bits, where a careless addition gives a special value.
#[test]
fn sums_of_large_numbers_do_not_become_special_values() {
    for (a, b) in
        [(-(1 << 30), -(1 << 30)), (1 << 30, 1 << 30), (-(1 << 29) - 1, i32::VALID_MIN), (i32::VALID_MAX, 1), (1 << 29, 1 << 29)]
    {
        let mut sum = [a; 70];
        accumulate(&mut sum, &[b; 70]);
        assert!(sum.iter().all(|sum| f64::from(*sum) == naive_sum(a, b)), "{a} + {b} = {}", sum[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_exact_and_special_values_win((a, b) in planes()) {
        let mut sum = a.clone();
        accumulate(&mut sum, &b);
        for ((a, b), sum) in a.iter().zip(&b).zip(&sum) {
            prop_assert_eq!(f64::from(*sum), naive_sum(*a, *b));
        }
        let float = |v: &i32| match *v {
            i32::MASKED => f32::MASKED,
            i32::MISSING => f32::MISSING,
            i32::INVALID => f32::INVALID,
            i32::SATURATED => f32::SATURATED,
            v => (v % 100_000) as f32,
        };
        let (a, b): (Vec<f32>, Vec<f32>) = (a.iter().map(float).collect(), b.iter().map(float).collect());
        let mut sum = a.clone();
        accumulate(&mut sum, &b);
        for ((a, b), sum) in a.iter().zip(&b).zip(&sum) {
            prop_assert!(is(f64::from(*sum), naive_sum(*a, *b)), "{} + {} = {}", a, b, sum);
        }
    }

    #[test]
    fn narrow_keeps_numbers_and_translates_special_values((sum, _) in planes()) {
        check_narrow::<i16>(&sum);
        check_narrow::<u16>(&sum);
        check_narrow::<i32>(&sum);
        check_narrow::<u32>(&sum);
    }

    #[test]
    fn counts_below_zero_follow_the_policy((values, _) in planes(), offset in -70_000i32..70_000) {
        check_negatives(&values, offset);
        check_negatives(&values.iter().map(|v| *v as i16).collect::<Vec<_>>(), offset);
        check_negatives(&values.iter().map(|v| *v as u16).collect::<Vec<_>>(), offset);
        check_negatives(&values.iter().map(|v| v.max(&0).cast_unsigned()).collect::<Vec<_>>(), offset);
        check_negatives(&values.iter().map(|v| (*v % 10_000) as f32).chain([f32::NAN, f32::INFINITY, f32::NEG_INFINITY]).collect::<Vec<_>>(), offset);
    }
}
