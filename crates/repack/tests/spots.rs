//! Images whose background gets coarser: spots stay bit by bit and are found again, errors are bounded, special values
//! stay, and images that cannot be changed so are left as they are.

#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_analysis::Plane;
use konkordia_analysis::dispersion::{Dispersion, Settings};
use konkordia_analysis::spot::{Spot, SpotList};
use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_kernels::rounding::Whole;
use konkordia_kernels::stats::Measured;
use konkordia_kernels::{Isa, byte_offset};
use konkordia_repack::spots::{Keeper, MARGIN_MAX_PX, SpotCopy, SpotReport, Stored};
use std::path::Path;
use std::process::Command;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn copy_of<P: Measured>(shape: [usize; 2], usable: Vec<bool>, background_sigma: f64, margin_px: usize) -> SpotCopy {
    let valid = P::TYPE.valid_range(None, None);
    let finder = Settings::default();
    SpotCopy { finder, spots_max: 2000, margin_px, background_sigma, shape, pixel: P::TYPE, usable, valid }
}

/// Background with nearly the variance of photons, spots of 3 x 3 pixels, special values; a stripe is not usable.
fn image<P: Whole>([rows, columns]: [usize; 2], mean: u64, spots: usize) -> (Vec<P>, Vec<bool>) {
    let mut random = Random((rows * 7919 + columns * 31) as u64 + mean + 1);
    let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED];
    let mut pixels = vec![P::default(); rows * columns];
    for pixel in &mut pixels {
        // One photon with a probability of one half, twice as often as the mean.
        let photons = (0..2 * mean).filter(|_| random.below(2) == 0).count();
        *pixel = if random.below(300) == 0 { special[random.below(4) as usize] } else { P::of_wide(photons as i64) };
    }
    for _ in 0..spots {
        let (x, y) = (2 + random.below(columns as u64 - 4) as usize, 2 + random.below(rows as u64 - 4) as usize);
        for (row, column) in (y - 1..y + 2).flat_map(|row| (x - 1..x + 2).map(move |column| (row, column))) {
            pixels[row * columns + column] = P::of_wide(40 + 20 * mean as i64 + random.below(30) as i64);
        }
    }
    (pixels, (0..rows * columns).map(|n| n % columns % 50 != 17).collect())
}

fn found<P: Measured>(copy: &SpotCopy, pixels: &[P]) -> Vec<Spot> {
    let mut finder = Dispersion::new(copy.finder.clone(), &copy.usable, copy.shape[0], copy.shape[1]).unwrap();
    let mut list = SpotList::new(1_000_000);
    let plane = Plane::new(pixels, copy.shape[1], P::VALID_MIN, P::VALID_MAX);
    finder.find(Isa::Scalar, &plane, &mut list);
    list.spots
}

/// Coarsens an image with every instruction set, and checks each pixel in the slow and plain way.
fn check<P: Measured + Whole>(copy: &SpotCopy, pixels: &[P]) -> (Vec<P>, SpotReport) {
    copy.check().unwrap();
    let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| copy.pixel.le_bytes(pixel.to_f64())).collect();
    let made: Vec<_> = Isa::available().iter().map(|isa| Keeper::new(copy, *isa).coarsen(&bytes)).collect();
    assert!(made.iter().all(|one| *one == made[0]), "every instruction set makes the same");
    let (out, report) = made.into_iter().next().unwrap();
    assert_eq!(out.is_some(), report.stored == Stored::Rounded);
    let out = out.unwrap_or_else(|| bytes.clone());
    let after: Vec<P> = out.chunks_exact(size_of::<P>()).map(|bytes| P::of_wide(number(bytes, copy.pixel))).collect();
    let spots = found(copy, pixels);
    assert_eq!((report.spots, report.spots_unchanged), (spots.len() as u64, spots.len() as u64));
    assert_eq!(found(copy, &after), spots, "the same spots, none more and none less");
    let (mut changed, mut error_max, mut error_sum) = (0, 0, 0);
    for (n, (was, is)) in pixels.iter().zip(&after).enumerate() {
        let (row, column) = ((n / copy.shape[1]) as u32, (n % copy.shape[1]) as u32);
        let (was, error) = (was.wide(), is.wide() - was.wide());
        if error == 0 {
            continue;
        }
        assert!(was > 0 && copy.usable[n] && pixels[n] <= P::VALID_MAX && *is <= P::VALID_MAX, "{was} became {}", is.wide());
        assert!((error * error) as f64 <= copy.background_sigma.powi(2) * was as f64, "{was} became {}", is.wide());
        let margin = copy.margin_px as u32;
        let is_near = |spot: &Spot| {
            let ([x0, y0], [x1, y1]) = (spot.rectangle.first_px, spot.rectangle.last_px);
            column + margin >= x0 && column <= x1 + margin && row + margin >= y0 && row <= y1 + margin
        };
        assert!(!spots.iter().any(is_near), "pixel {column}, {row} lies beside a spot");
        (changed, error_max, error_sum) = (changed + 1, error_max.max(error.unsigned_abs()), error_sum + error);
    }
    let loss = report.loss;
    assert_eq!((loss.pixels_changed, loss.error_max, loss.error_sum), (changed, error_max, error_sum));
    let mut keeper = Keeper::new(copy, Isa::detect());
    assert!(keeper.is_copy(&bytes, &out));
    let mut damaged = out.clone();
    if let Some(spot) = spots.first() {
        let at = spot.y_px.round() as usize * copy.shape[1] + spot.x_px.round() as usize;
        damaged[at * size_of::<P>()] ^= 1;
        assert!(!keeper.is_copy(&bytes, &damaged), "a changed pixel of a spot is noticed");
    }
    (after, report)
}

fn number(bytes: &[u8], pixel: PixelType) -> i64 {
    match pixel {
        PixelType::Int16 => i16::from_le_bytes(bytes.try_into().unwrap()).into(),
        PixelType::Uint16 => u16::from_le_bytes(bytes.try_into().unwrap()).into(),
        PixelType::Int32 => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => u32::from_le_bytes(bytes.try_into().unwrap()).into(),
    }
}

fn all_of<P: Measured + Whole>() -> u64 {
    let mut rounded = 0;
    for (shape, spots) in [([1, 1], 0), ([1, 90], 0), ([90, 1], 0), ([33, 65], 1), ([97, 101], 4), ([150, 131], 9)] {
        for mean in [1, 4, 40] {
            for (sigma, margin_px) in [(1.0, 11), (1.0, 0), (2.0, 3), (0.4, 11)] {
                let (pixels, usable) = image::<P>(shape, mean, spots);
                let (_, report) = check(&copy_of::<P>(shape, usable, sigma, margin_px), &pixels);
                rounded += u64::from(report.stored == Stored::Rounded && report.loss.pixels_changed > 100);
            }
        }
    }
    rounded
}

#[test]
fn spots_stay_and_errors_are_bounded_for_all_types() {
    for rounded in [all_of::<i16>(), all_of::<u16>(), all_of::<i32>(), all_of::<u32>()] {
        assert!(rounded > 20, "only {rounded} images changed");
    }
}

#[test]
fn empty_and_saturated_images_do_not_change() {
    let shape = [40, 50];
    for value in [0, u16::MISSING, u16::MASKED, u16::SATURATED, u16::VALID_MAX] {
        let pixels = vec![value; 2000];
        let (after, report) = check(&copy_of::<u16>(shape, vec![true; 2000], 1.0, 11), &pixels);
        assert_eq!((after, report.spots, report.loss.error_max), (pixels, 0, 0), "{value}");
    }
    let (pixels, _) = image::<i32>(shape, 4, 2);
    let (after, _) = check(&copy_of::<i32>(shape, vec![false; 2000], 1.0, 11), &pixels);
    assert_eq!(after, pixels, "nothing is usable");
}

#[test]
fn a_million_spots_are_left_as_they_are() {
    let shape = [2000, 2001];
    let is_spot = |n: usize| (n / shape[1]).is_multiple_of(2) && (n % shape[1]).is_multiple_of(2);
    let pixels: Vec<u16> = (0..shape[0] * shape[1]).map(|n| if is_spot(n) { 900 } else { 3 }).collect();
    let mut copy = copy_of::<u16>(shape, vec![true; pixels.len()], 1.0, 11);
    copy.finder = Settings { pixels_min: 1, sigma_background: 0.0, sigma_strong: 0.0, extended: false, ..Settings::default() };
    let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let (out, report) = Keeper::new(&copy, Isa::detect()).coarsen(&bytes);
    assert_eq!((out, report.stored, report.spots), (None, Stored::TooManySpots, 1_001_000));
    assert_eq!((report.loss.pixels, report.loss.pixels_changed), (pixels.len() as u64, 0));
}

#[test]
fn settings_out_of_range_are_errors() {
    let good = || copy_of::<u16>([4, 5], vec![true; 20], 1.0, 11);
    assert_eq!(good().check(), Ok(()));
    let bad = [
        SpotCopy { background_sigma: 0.0, ..good() },
        SpotCopy { background_sigma: f64::NAN, ..good() },
        SpotCopy { background_sigma: 2.5, ..good() },
        SpotCopy { margin_px: MARGIN_MAX_PX + 1, ..good() },
        SpotCopy { finder: Settings { gain: 0.0, ..Settings::default() }, ..good() },
        SpotCopy { usable: vec![true; 19], ..good() },
    ];
    for copy in bad {
        assert!(copy.check().is_err(), "{copy:?}");
    }
    let words = [good(), SpotCopy { spots_max: 7, ..good() }, SpotCopy { margin_px: 9, ..good() }].map(|copy| copy.words());
    assert!(words[0] != words[1] && words[0] != words[2], "{words:?}");
}

/// The pixels of a packed miniCBF; `None` if there is no program that unpacks it.
fn frame(path: &Path, pixels: usize) -> Option<Vec<i32>> {
    let Ok(unpacked) = Command::new("bzip2").arg("-dc").arg(path).output() else {
        skip::skipped("no program bzip2");
        return None;
    };
    let mark = [0x0c, 0x1a, 0x04, 0xd5];
    let start = unpacked.stdout.windows(4).position(|window| window == mark).expect("the data of a CBF") + mark.len();
    let mut bytes = vec![0; pixels * 4];
    byte_offset::decode(&unpacked.stdout[start..], &mut bytes).expect("packed pixels");
    Some(bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
}

#[test]
fn a_thaumatin_frame_keeps_its_spots_and_loses_its_lowest_bits() {
    let Some(path) = skip::data("thaumatin/thau_3_2_0008.cbf.bz2") else { return };
    let shape = [2527, 2463];
    let Some(pixels) = frame(&path, shape[0] * shape[1]) else { return };
    // -1 and -2 mark gaps and bad pixels.
    let mut copy = copy_of::<i32>(shape, vec![true; pixels.len()], 1.0, 11);
    copy.valid = (0.0, 115_897.0);
    let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let (out, report) = Keeper::new(&copy, Isa::detect()).coarsen(&bytes);
    assert_eq!((report.stored, report.spots, report.spots_unchanged), (Stored::Rounded, 1104, 1104));
    let loss = report.loss;
    println!("{loss:?}");
    assert!(loss.pixels_changed * 3 > loss.pixels && loss.pixels_exact * 5 < loss.pixels, "{loss:?}");
    assert!(loss.error_sum.abs() < 1000 && loss.error_sigma_max <= 1.0, "{loss:?}");
    assert!(Keeper::new(&copy, Isa::detect()).is_copy(&bytes, &out.unwrap()));
    // With twice the error the finder sees so many new spots that ten rounds are not enough.
    copy.background_sigma = 2.0;
    let (out, report) = Keeper::new(&copy, Isa::detect()).coarsen(&bytes);
    assert_eq!((out, report.stored, report.spots_unchanged), (None, Stored::SpotsChanged, 1104));
    assert_eq!((report.loss.pixels_changed, report.loss.error_max), (0, 0));
}
