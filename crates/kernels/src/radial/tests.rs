//! Every instruction set against naive code.

use super::*;
use konkordia_core::pixel::Pixel;
use std::collections::BTreeMap;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
}

fn image<P: Measured>(count: usize, seed: u64) -> (Vec<P>, Vec<u16>) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
    let pixels = (0..count).map(|_| match random.next() {
        word if (word >> 20) % 9 == 0 => special[word as usize % special.len()],
        word if (word >> 20) % 9 == 1 => P::from_whole((word % 900) as i64 - 200),
        word => P::from_whole((word % 12) as i64 - 3),
    });
    let pixels = pixels.collect();
    (pixels, (0..count).map(|_| (random.next() % 5) as u16).collect())
}

type Counts = BTreeMap<(u16, i64), u32>;

/// Number of pixels of each ring and value, and the pixels that are listed.
fn naive<P: Measured>(
    pixels: &[P],
    rings: &[u16],
    [low, high]: [P; 2],
    base: i64,
    threshold: f64,
) -> (Counts, Vec<(u32, u16, i64)>) {
    let (mut counts, mut listed) = (Counts::new(), Vec::new());
    for (n, (&pixel, &ring)) in pixels.iter().zip(rings).enumerate() {
        if ring == 0 || pixel < low || pixel > high {
            continue;
        }
        let value = pixel.to_f64() as i64;
        let is_small = value >= base && value < base + SLOTS as i64 - 1;
        *counts.entry((ring, if is_small { value } else { base + SLOTS as i64 - 1 })).or_default() += 1;
        if !is_small || value as f64 > threshold {
            listed.push((n as u32 + 7, ring, value));
        }
    }
    (counts, listed)
}

fn check<P: Measured>() {
    for (n, count_px) in [0, 1, 2, 15, 63, 64, 65, 127, 129, 700, 4097].into_iter().enumerate() {
        for (base, threshold) in [(0i64, 10.0), (-3, 4.5), (-8, -20.0), (5, 3.0), (0, 1e12), (-1000, 20.0), (2, f64::MIN)] {
            let (pixels, rings) = image::<P>(count_px, n as u64 * 31 + base.unsigned_abs() + 1);
            for range in [[P::VALID_MIN, P::VALID_MAX], [P::from_whole(0), P::from_whole(9)], [P::VALID_MAX; 2]] {
                let (expected, expected_listed) = naive(&pixels, &rings, range, base, threshold);
                let window = Window::new(range[0], range[1], base, threshold);
                for &isa in Isa::available() {
                    let context = format!("{:?}, {count_px} pixels, base {base}, above {threshold}, {isa}", P::TYPE);
                    let (mut counts, mut listed) = (vec![RingCounts::default(); 5], Vec::new());
                    count(isa, &pixels, &rings, 7, &window, &mut counts, &mut listed);
                    let listed = listed.iter().map(|one: &Listed| (one.position, one.ring, window.value(one.word)));
                    assert_eq!(listed.collect::<Vec<_>>(), expected_listed, "{context}");
                    let counts = counts.iter().flat_map(|ring| ring.0).enumerate();
                    for (place, found) in counts.skip(SLOTS) {
                        let key = ((place / SLOTS) as u16, base + (place % SLOTS) as i64);
                        assert_eq!(u32::from(found), expected.get(&key).copied().unwrap_or(0), "{context}, {key:?}");
                    }
                }
                for &pixel in pixels.iter().filter(|&&pixel| pixel >= range[0] && pixel <= range[1]) {
                    let value = pixel.to_f64() as i64;
                    let is_small = value >= base && value < base + SLOTS as i64 - 1;
                    assert_eq!(window.has_slot(value), is_small);
                    assert_eq!(window.is_listed(value), !is_small || value as f64 > threshold);
                }
            }
        }
    }
}

#[test]
fn every_path_counts_and_lists_what_naive_code_does() {
    check::<i16>();
    check::<u16>();
    check::<i32>();
    check::<u32>();
}

#[test]
fn moments_are_those_of_the_pixels_in_range() {
    let ranges = [ValueRange { above: -3.0, below: 1e9 }; 3];
    let pixels = [5i16, -3, 7, i16::MASKED, 9, 100, -2];
    let rings = [1, 1, 1, 1, 0, 2, 1];
    let mut moments = [WholeMoments::default(); 3];
    add_whole(&pixels, &rings, [i16::VALID_MIN, i16::VALID_MAX], &ranges, &mut moments);
    assert_eq!(moments[1], Moments { count: 3, sum: 10, squares: 78 });
    assert_eq!(moments[2], Moments { count: 1, sum: 100, squares: 10_000 });
    assert_eq!(moments[0].mean_and_sigma(), None);
    assert_eq!(moments[2].mean_and_sigma(), Some((100.0, 0.0)));
    let (mean, sigma) = moments[1].mean_and_sigma().unwrap();
    assert!((mean - 10.0 / 3.0).abs() < 1e-15 && (sigma * sigma - (26.0 - 100.0 / 9.0)).abs() < 1e-12);

    let mut real = [RealMoments::default(); 3];
    let pixels = [5.0f32, f32::NAN, 7.0, f32::INFINITY, 9.0, 100.0, -2.0];
    add_real(&pixels, &rings, [f32::VALID_MIN, f32::VALID_MAX], &ranges, &mut real);
    assert_eq!(real[1], Moments { count: 3, sum: 10.0, squares: 78.0 });
    assert_eq!(real[0].mean_and_sigma(), None);
    assert!((real[1].mean_and_sigma().unwrap().1 - sigma).abs() < 1e-12);
}

#[test]
fn the_largest_moments_do_not_overflow() {
    let most = WholeMoments { count: 1 << 32, sum: 1 << 62, squares: 1 << 92 };
    assert_eq!(most.mean_and_sigma(), Some(((1u64 << 30) as f64, 0.0)));
}
