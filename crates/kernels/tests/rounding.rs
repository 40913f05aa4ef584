//! Rounded counts against naive code: nearest multiples, sums, limits, and what must not change.

use konkordia_core::pixel::Pixel;
use konkordia_kernels::rounding::{COUNTS_END, Counts, Rounding, SIGMA_MAX, TILE, Whole};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Counts about a mean, a hundredth of them high, special values, and a tenth of the pixels to be kept.
fn image<P: Whole>(rows: usize, columns: usize, mean: u64) -> (Vec<P>, Vec<u8>) {
    let mut random = Random(rows as u64 * 7919 + columns as u64 * 104_729 + mean + 1);
    let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
    let mut pixel = || match random.below(100) {
        0 => special[random.below(6) as usize],
        1 => P::of_wide((random.below(200 * (mean + 1)) as i64).min(P::VALID_MAX.wide())),
        2 if P::VALID_MIN.wide() < 0 => P::of_wide(-(random.below(20) as i64)),
        _ => P::of_wide((0..8).map(|_| random.below(mean / 2 + 2) as i64).sum::<i64>() / 2),
    };
    let pixels: Vec<P> = (0..rows * columns).map(|_| pixel()).collect();
    let exact = (0..rows * columns).map(|_| u8::from(random.below(10) == 0)).collect();
    (pixels, exact)
}

fn own<'a, P: Whole>(pixels: &'a [P], columns: usize, is_exact: &'a [u8]) -> Counts<'a, P> {
    Counts { pixels, columns, is_exact, range: (P::VALID_MIN, P::VALID_MAX) }
}

/// The step of a count, found by trying all powers of two.
fn step_of(sigma: f64, count: i64) -> i64 {
    if !(1..COUNTS_END).contains(&count) {
        return 1;
    }
    let fits = |step: &i64| *step as f64 / 2.0 <= sigma * (count as f64).sqrt();
    (1..20).map(|n| 1 << n).take_while(fits).last().unwrap_or(1)
}

/// What can be said of each pixel without the code under test. Gives the sum of errors and the longest step.
fn check<P: Whole>(sigma: f64, image: &Counts<'_, P>, out: &[P]) -> (i64, i64) {
    let (mut sum, mut longest) = (0, 1);
    for ((was, is), exact) in image.pixels.iter().zip(out).zip(image.is_exact) {
        let (count, now) = (was.wide(), is.wide());
        let is_special = *was < image.range.0 || *was > image.range.1;
        if *exact != 0 || is_special || !(1..COUNTS_END).contains(&count) {
            assert_eq!(was, is, "{count} must stay");
            continue;
        }
        assert!(*is >= image.range.0 && *is <= image.range.1, "{now} is not a measurement");
        assert!((now - count).abs() as f64 <= sigma * (count as f64).sqrt(), "{count} became {now}");
        // A nearest multiple of its step, or of a shorter one.
        let step = step_of(sigma, count);
        let is_multiple = |step: i64| now % step == 0 && 2 * (now - count).abs() <= step;
        assert!((0..20).map(|n| 1 << n).take_while(|shorter| *shorter <= step).any(is_multiple), "{count} became {now}");
        sum += now - count;
        longest = longest.max(step);
    }
    (sum, longest)
}

fn all_of<P: Whole>() {
    for (rows, columns) in [(1, 1), (1, 70), (70, 1), (TILE, TILE), (33, 65), (97, 101)] {
        for mean in [0, 1, 3, 10, 100, 3000] {
            for sigma in [0.3, 0.5, 1.0, 1.7, 2.0] {
                let (pixels, exact) = image::<P>(rows, columns, mean);
                let (counts, rounding) = (own(&pixels, columns, &exact), Rounding::new(sigma).unwrap());
                let mut out = vec![P::default(); pixels.len()];
                rounding.round(&counts, &mut out);
                let name = format!("{} {rows} x {columns}, mean {mean}, sigma {sigma}", P::TYPE);
                let (sum, longest) = check(sigma, &counts, &out);
                assert!(2 * sum.abs() <= longest, "{name}: the errors sum to {sum}, the longest step is {longest}");
                let loss = rounding.compare(&counts, &out).expect("it is within the limits");
                let changed = pixels.iter().zip(&out).filter(|(was, is)| was != is).count();
                assert_eq!((loss.error_sum, loss.pixels_changed), (sum, changed as u64), "{name}");
                let is_valid = |pixel: &&P| **pixel >= P::VALID_MIN && **pixel <= P::VALID_MAX;
                assert_eq!(loss.sum_before, pixels.iter().filter(is_valid).map(|pixel| pixel.wide()).sum::<i64>(), "{name}");
                if rows * columns > 1000 && mean >= 10 && sigma >= 1.0 {
                    assert!(changed > pixels.len() / 4, "{name}: only {changed} pixels changed");
                }
            }
        }
    }
}

#[test]
fn every_pixel_is_within_its_limits_and_the_sum_stays() {
    all_of::<i16>();
    all_of::<u16>();
    all_of::<i32>();
    all_of::<u32>();
}

#[test]
fn no_part_of_an_even_background_becomes_higher() {
    // Counts of 1 lie in the middle of 0 and 2: the hardest case for the mean of small areas.
    let (rows, columns) = (128, 96);
    let (pixels, exact) = (vec![1u16; rows * columns], vec![0; rows * columns]);
    let mut out = vec![0; pixels.len()];
    Rounding::new(1.0).unwrap().round(&own(&pixels, columns, &exact), &mut out);
    for row in (0..rows).step_by(2) {
        for column in (0..columns).step_by(8) {
            let area = [row, row + 1].into_iter().flat_map(|r| &out[r * columns + column..][..8]);
            assert_eq!(area.sum::<u16>(), 16, "row {row}, column {column}");
        }
    }
}

#[test]
fn a_value_next_to_the_highest_does_not_become_special() {
    let high = 130i32;
    for count in 100..=high {
        let (pixels, exact) = (vec![count; 64], vec![0; 64]);
        let counts = Counts { pixels: &pixels, columns: 8, is_exact: &exact, range: (0, high) };
        let mut out = vec![0; 64];
        Rounding::new(2.0).unwrap().round(&counts, &mut out);
        assert!(out.iter().all(|pixel| *pixel <= high), "{count}: {out:?}");
    }
}

#[test]
fn a_comparison_refuses_what_went_too_far() {
    let rounding = Rounding::new(1.0).unwrap();
    let (pixels, exact) = ([100i16, 100, i16::MASKED, 0, -3, 100], [0, 1, 0, 0, 0, 0]);
    let counts = own(&pixels, 3, &exact);
    let with = |at: usize, value: i16| {
        let mut after = pixels;
        after[at] = value;
        rounding.compare(&counts, &after).map(|loss| (loss.error_max, loss.error_sum))
    };
    assert_eq!([with(0, 110), with(0, 90), with(0, 100)], [Some((10, 10)), Some((10, -10)), Some((0, 0))]);
    assert_eq!([with(0, 111), with(0, 89), with(0, i16::SATURATED)], [None; 3], "further than its Poisson error");
    assert_eq!([with(1, 101), with(2, 5), with(3, 1), with(4, -2)], [None; 4], "they must stay");
    let loss = rounding.compare(&counts, &pixels).unwrap();
    assert_eq!((loss.pixels, loss.pixels_exact, loss.sum_before), (5, 1, 297));
}

#[test]
fn limits_out_of_range_are_refused() {
    for sigma in [0.0, -1.0, f64::NAN, f64::INFINITY, SIGMA_MAX + 0.01] {
        assert!(Rounding::new(sigma).unwrap_err().contains("sigma"), "{sigma}");
    }
}
