//! The whole finder against a naive one, and images that are no images.

use super::*;
use crate::spot::{Rectangle, Spot};
use konkordia_core::pixel::Pixel;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

/// An image as the naive finder takes it.
struct Naive<'a> {
    settings: &'a Settings,
    values: Vec<f64>,
    valid: Vec<bool>,
    rows: usize,
    columns: usize,
}

impl Naive<'_> {
    /// The pixels at most this far away.
    fn around(&self, pixel: usize, half: [usize; 2]) -> impl Iterator<Item = usize> {
        let (row, column, columns) = (pixel / self.columns, pixel % self.columns, self.columns);
        let rows = row.saturating_sub(half[0])..(row + half[0] + 1).min(self.rows);
        let across = column.saturating_sub(half[1])..(column + half[1] + 1).min(columns);
        rows.flat_map(move |row| across.clone().map(move |column| row * columns + column))
    }

    fn sums(&self, pixel: usize, half: [usize; 2], counted: impl Fn(usize) -> bool) -> (f64, f64, f64) {
        let counted = self.around(pixel, half).filter(|n| counted(*n) && self.values[*n] < f64::from(1 << 24));
        counted.fold((0.0, 0.0, 0.0), |(m, x, y), n| (m + 1.0, x + self.values[n], y + self.values[n] * self.values[n]))
    }

    fn is_above(&self, pixel: usize) -> bool {
        let s = self.settings;
        let whole = (2 * s.half_window_px[0] + 1) * (2 * s.half_window_px[1] + 1);
        let (m, x, y) = self.sums(pixel, s.half_window_px, |n| self.valid[n]);
        let count_min = if s.count_min == 0 { whole } else { s.count_min };
        m >= count_min as f64
            && x >= 0.0
            && m * y - x * x > s.gain * ((m - 1.0) + s.sigma_background * (2.0 * (m - 1.0)).sqrt()) * x
    }

    /// For each strong pixel: the mean of its background.
    fn strong(&self) -> Vec<Option<f64>> {
        let s = self.settings;
        let all = 0..self.values.len();
        let above: Vec<bool> = all.clone().map(|n| self.valid[n] && self.is_above(n)).collect();
        let [height, width] = s.half_window_px;
        if !s.extended {
            let strong = |n: usize| {
                let (m, x, _) = self.sums(n, s.half_window_px, |n| self.valid[n]);
                let deviation = s.sigma_strong * (s.gain * x * m).sqrt();
                (above[n] && self.values[n] > s.global_threshold && m * self.values[n] - x > deviation)
                    .then(|| if m >= 2.0 { x / m } else { 0.0 })
            };
            return all.map(strong).collect();
        }
        let near = [height.min(width) - 1; 2];
        let is_object = |n: usize| above[n] || (!self.valid[n] && !s.masked_is_background);
        let inner: Vec<bool> = all.clone().map(|n| self.valid[n] && self.around(n, near).all(is_object)).collect();
        let strong = |n: usize| {
            let (m, x, _) = self.sums(n, [height + 2, width + 2], |n| self.valid[n] && !inner[n]);
            let mean = if m >= 2.0 { x / m } else { 0.0 };
            let is_strong = inner[n]
                && x >= 0.0
                && self.values[n] > s.global_threshold
                && self.values[n] >= mean + s.sigma_strong * (s.gain * mean).sqrt();
            is_strong.then_some(mean)
        };
        all.map(strong).collect()
    }

    /// Mean of the valid pixels below 2^24 that are not strong.
    fn background(&self) -> Option<f64> {
        let strong = self.strong();
        let counts = |n: &usize| self.valid[*n] && self.values[*n] < f64::from(1 << 24) && strong[*n].is_none();
        let beside = || (0..self.values.len()).filter(counts).map(|n| self.values[n]);
        (beside().count() > 0).then(|| beside().sum::<f64>() / beside().count() as f64)
    }

    fn spots(&self) -> Vec<Spot> {
        let s = self.settings;
        let mut left = self.strong();
        let means = left.clone();
        let mut spots = Vec::new();
        for first in 0..left.len() {
            let (mut pixels, mut open) = (Vec::new(), vec![first]);
            while let Some(n) = open.pop() {
                if left[n].take().is_some() {
                    pixels.push(n);
                    open.extend(self.around(n, [1, 0]).chain(self.around(n, [0, 1])));
                }
            }
            pixels.sort_unstable();
            if pixels.len() < s.pixels_min as usize || pixels.len() > s.pixels_max as usize {
                continue;
            }
            let sum = |weight: &dyn Fn(usize) -> f64| pixels.iter().map(|n| self.values[*n] * weight(*n)).sum::<f64>();
            let (row, column) = (|n: usize| (n / self.columns) as f64, |n: usize| (n % self.columns) as f64);
            let intensity = sum(&|_| 1.0);
            let (x_px, y_px) = (sum(&column) / intensity, sum(&row) / intensity);
            let peak = *pixels.iter().rev().max_by(|a, b| self.values[**a].total_cmp(&self.values[**b])).unwrap();
            if (column(peak) - x_px).hypot(row(peak) - y_px) > s.peak_distance_max_px {
                continue;
            }
            let background = pixels.iter().filter_map(|n| means[*n]).sum::<f64>();
            let snr = (intensity - background) / (s.gain * background.max(1.0)).sqrt();
            let background = background / pixels.len() as f64;
            let at = |n: &usize| [(n % self.columns) as u32, (n / self.columns) as u32];
            let first_px = [0, 1].map(|axis| pixels.iter().map(|n| at(n)[axis]).min().unwrap());
            let rectangle = Rectangle { first_px, last_px: [0, 1].map(|axis| pixels.iter().map(|n| at(n)[axis]).max().unwrap()) };
            let pixels = pixels.len() as u32;
            spots.push(Spot { x_px, y_px, intensity, maximum: self.values[peak], background, snr, pixels, rectangle });
        }
        spots
    }
}

/// Background of about one photon, spots of a few pixels, masked places and values that are no measurements.
fn image<P: Measured>(rows: usize, columns: usize, random: &mut Random) -> (Vec<P>, Vec<bool>) {
    let mut photons: Vec<f32> = (0..rows * columns).map(|_| (random.below(4) * random.below(2)) as f32).collect();
    for _ in 0..rows * columns / 150 {
        let (row, column, height) = (random.below(rows as u64), random.below(columns as u64), random.below(5000) as f32);
        for (n, photons) in photons.iter_mut().enumerate() {
            let distance = (n / columns).abs_diff(row as usize).pow(2) + (n % columns).abs_diff(column as usize).pow(2);
            *photons += (height / (1.0 + (distance * distance) as f32)).floor();
        }
    }
    let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::from_count(1 << 24), P::from_count(30_000)];
    let rarity = [100, 700, 1 << 40][random.below(3) as usize];
    let mut pixel = |photons: f32| match random.below(rarity) {
        0 => special[random.below(special.len() as u64) as usize],
        _ => P::from_photons(photons),
    };
    let pixels = photons.into_iter().map(&mut pixel).collect();
    let usable = (0..rows * columns).map(|n| n % 50 < 46 && random.below(rarity) != 0).collect();
    (pixels, usable)
}

fn check<P: Measured>(settings: &Settings, [rows, columns]: [usize; 2], random: &mut Random) -> usize {
    let (pixels, usable) = image::<P>(rows, columns, random);
    let valid = pixels.iter().zip(&usable).map(|(pixel, usable)| *usable && pixel.is_number()).collect();
    let values = pixels.iter().map(|pixel| if pixel.is_number() { pixel.to_f64() } else { 0.0 }).collect();
    let naive = Naive { settings, values, valid, rows, columns };
    let (expected, background) = (naive.spots(), naive.background());
    let mut finder = Dispersion::new(settings.clone(), &usable, rows, columns).unwrap();
    let mut first: Option<SpotList> = None;
    for isa in Isa::available().iter().chain(Isa::available()) {
        let mut list = SpotList::new(10_000);
        finder.find(*isa, &Plane::own(&pixels, columns), &mut list);
        let context = format!("{:?}, {rows} x {columns}, {isa}, {settings:?}", P::TYPE);
        let is_close = match finder.background().zip(background) {
            Some((is, should)) => (is - should).abs() <= 1e-9 * (1.0 + should.abs()),
            None => finder.background() == background,
        };
        assert!(is_close, "{context}: {:?} instead of {background:?}", finder.background());
        let first = first.get_or_insert_with(|| list.clone());
        assert_eq!(first, &list, "{context}");
        assert_eq!(list.spots.len(), expected.len(), "{context}");
        for (spot, expected) in list.spots.iter().zip(&expected) {
            let numbers = |s: &Spot| [s.x_px, s.y_px, s.intensity, s.maximum, s.background, s.snr];
            let are_close = numbers(spot).iter().zip(numbers(expected)).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()));
            let is_there = (spot.pixels, spot.rectangle) == (expected.pixels, expected.rectangle);
            assert!(are_close && is_there, "{context}: {spot:?} instead of {expected:?}");
        }
    }
    expected.len()
}

fn check_types(settings: &Settings, size: [usize; 2], random: &mut Random) -> usize {
    check::<i16>(settings, size, random)
        + check::<u16>(settings, size, random)
        + check::<i32>(settings, size, random)
        + check::<u32>(settings, size, random)
        + check::<f32>(settings, size, random)
}

#[test]
fn equals_a_naive_finder() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let settings = [
        Settings::default(),
        Settings { extended: false, ..Settings::default() },
        Settings { masked_is_background: false, pixels_min: 1, ..Settings::default() },
        Settings { half_window_px: [1, 2], pixels_min: 2, gain: 0.7, ..Settings::default() },
        Settings { half_window_px: [5, 4], count_min: 0, sigma_strong: 4.5, ..Settings::default() },
        Settings {
            half_window_px: [2, 5],
            global_threshold: 20.0,
            pixels_max: 9,
            peak_distance_max_px: 0.5,
            ..Settings::default()
        },
        Settings { half_window_px: [4, 1], extended: false, sigma_background: 2.0, gain: 1.5, ..Settings::default() },
    ];
    let mut found = 0;
    for settings in &settings {
        for size in [[1, 1], [1, 90], [90, 1], [2, 33], [20, 31], [47, 65], [64, 128], [71, 101]] {
            found += check_types(settings, size, &mut random);
        }
    }
    println!("{found} spots");
    assert!(found > 1000);
}

/// Whatever happens beyond the reach of a spot, the spot is found as it was.
#[test]
fn a_spot_does_not_depend_on_what_is_beyond_its_reach() {
    let mut random = Random(0xD1B5_4A32_D192_ED03);
    let all = [
        Settings::default(),
        Settings { extended: false, half_window_px: [2, 3], ..Settings::default() },
        Settings { half_window_px: [5, 2], pixels_min: 1, ..Settings::default() },
        Settings { masked_is_background: false, half_window_px: [1, 1], ..Settings::default() },
    ];
    let mut held = 0;
    for settings in all.iter().cycle().take(200) {
        let (rows, columns) = (101, 131);
        let (mut pixels, usable) = image::<i32>(rows, columns, &mut random);
        let mut finder = Dispersion::new(settings.clone(), &usable, rows, columns).unwrap();
        let before = found(&mut finder, &pixels, columns);
        let mut kept = vec![0; pixels.len()];
        let chosen = &before.spots[..before.spots.len().min(3)];
        chosen.iter().for_each(|spot| spot.rectangle.grown(settings.reach_px(), [rows, columns]).mark(&mut kept, columns));
        let change = random.below(2000) as i32;
        pixels
            .iter_mut()
            .zip(kept)
            .filter(|(_, kept)| *kept == 0)
            .for_each(|(pixel, _)| *pixel = random.below(4) as i32 * change);
        let mut after = SpotList::new(10_000);
        finder.find(Isa::detect(), &Plane::own(&pixels, columns), &mut after);
        for spot in chosen {
            assert!(after.spots.contains(spot), "{spot:?} is lost, {settings:?}");
            held += 1;
        }
    }
    assert!(held > 300, "{held}");
}

fn found<P: Measured>(finder: &mut Dispersion, pixels: &[P], columns: usize) -> SpotList {
    let mut list = SpotList::new(20);
    for &isa in Isa::available() {
        finder.find(isa, &Plane::own(pixels, columns), &mut list);
    }
    list
}

#[test]
fn images_without_anything() {
    let (rows, columns) = (50, 70);
    let mut finder = Dispersion::new(Settings::default(), &vec![true; rows * columns], rows, columns).unwrap();
    let size = rows * columns;
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::MAX * 0.5, 0.0, -1.0, 1e30, 5.0] {
        assert_eq!(found(&mut finder, &vec![value; size], columns).found, 0, "{value}");
    }
    for value in [0, 1, u32::MAX, u32::SATURATED, u32::VALID_MAX, 1 << 24, (1 << 24) - 1] {
        assert_eq!(found(&mut finder, &vec![value; size], columns).found, 0, "{value}");
    }
    assert_eq!(found(&mut finder, &vec![i32::VALID_MIN; size], columns).found, 0);
    let plane = Plane { pixels: &vec![f32::NEG_INFINITY; size], rows, columns, low: f32::NEG_INFINITY, high: f32::INFINITY };
    let mut list = SpotList::new(1);
    finder.find(Isa::detect(), &plane, &mut list);
    assert_eq!(list.found, 0);
    let mut masked = Dispersion::new(Settings::default(), &vec![false; size], rows, columns).unwrap();
    assert_eq!(found(&mut masked, &(0..size as u32).collect::<Vec<_>>(), columns).found, 0);
    let mut empty = Dispersion::new(Settings::default(), &[], 0, columns).unwrap();
    assert_eq!(found::<u16>(&mut empty, &[], columns).found, 0);
}

#[test]
fn very_many_spots() {
    let (rows, columns) = (300, 301);
    let settings = Settings { pixels_min: 1, sigma_background: 0.0, sigma_strong: 0.0, extended: false, ..Settings::default() };
    let mut finder = Dispersion::new(settings, &vec![true; rows * columns], rows, columns).unwrap();
    let marked = |n: usize| (n / columns).is_multiple_of(2) && (n % columns).is_multiple_of(2);
    let pixels: Vec<u16> = (0..rows * columns).map(|n| if marked(n) { 900 } else { 0 }).collect();
    let list = found(&mut finder, &pixels, columns);
    assert_eq!((list.found, list.spots.len()), (150 * 151, 20));
    assert_eq!(list.spots.iter().map(|spot| (spot.x_px, spot.y_px)).nth(19), Some((38.0, 0.0)));
}

#[test]
fn settings_out_of_range_are_errors() {
    let size = vec![true; 12];
    let good = Settings::default;
    let bad = [
        Settings { half_window_px: [0, 3], ..good() },
        Settings { half_window_px: [3, 6], ..good() },
        Settings { sigma_strong: f64::NAN, ..good() },
        Settings { sigma_background: -1.0, ..good() },
        Settings { gain: 0.0, ..good() },
        Settings { count_min: 1, ..good() },
        Settings { count_min: 50, ..good() },
        Settings { pixels_min: 0, ..good() },
        Settings { pixels_max: 2, ..good() },
    ];
    for settings in bad {
        assert!(Dispersion::new(settings.clone(), &size, 3, 4).is_err(), "{settings:?}");
    }
    assert!(Dispersion::new(good(), &size, 3, 4).is_ok());
    assert!(Dispersion::new(good(), &size, 4, 4).is_err());
    assert!(Dispersion::new(good(), &[], 4, 0).is_err());
}
