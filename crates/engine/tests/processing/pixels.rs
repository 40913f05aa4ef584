//! Pixels of double size, turned tiles, and common mode of the rows and columns of a chip.

use crate::harness::{Recording, Scene, Seen, constants, losses, random_word};
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Orientation, Placement, Quarter};
use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_core::plan::{CommonMode, Compression, Plan, Processing, TrackedFrames, Tracking};
use konkordia_core::process::{Arithmetic, Negative};
use konkordia_core::selection::Selection;
use konkordia_sim::rng::Rng;

fn place(row: u32, column: u32, flip_rows: bool, rotate: Quarter) -> Placement {
    Placement { row, column, orientation: Orientation { flip_rows, rotate } }
}

/// Two tiles side by side with these orientations, with a gap between them.
fn side_by_side(first: Orientation, second: Orientation) -> Vec<Placement> {
    vec![Placement { row: 1, column: 0, orientation: first }, Placement { row: 2, column: 1033, orientation: second }]
}

#[test]
fn turned_tiles_with_split_kept_and_masked_double_pixels_equal_the_naive_image() {
    for (interfaces, modules) in [(1, 2), (2, 1)] {
        let scene = Scene { interfaces, modules, frames: 2, faults: losses(5), ..Scene::default() };
        let recording = scene.record_random();
        let constants = constants(&recording);
        let all: Vec<Orientation> = Orientation::all().collect();
        for (n, double_pixels) in DoublePixels::ALL.into_iter().cycle().take(4).enumerate() {
            let plan = recording.plan_at(side_by_side(all[2 * n], all[(2 * n + 5) % 8]), double_pixels);
            let workers = n + 1;
            recording.check(&Plan { workers, ..plan.clone() }, &constants);
            if n == 1 {
                let selection = Selection { sum_frames: 2, ..Selection::default() };
                let processing = Processing { selection, negative: Negative::Offset(50), ..Processing::default() };
                let compression = Compression::BSZSTD;
                recording.check(&Plan { processing, compression, pixel: PixelType::Uint32, ..plan.clone() }, &constants);
                recording.check(&Plan { pixel: PixelType::Float32, ..plan }, &constants);
            }
        }
    }
}

/// The highest word of the high gain is no number, whatever converts it; of the usual gain it is one.
#[test]
fn the_end_of_the_adc_is_saturated_in_high_gain_only() {
    let mut rng = Rng::new(31);
    let recording = Scene { interfaces: 2, frames: 4, faults: losses(31), ..Scene::default() }
        .record(|_, _| if rng.below(20) == 0 { 0x3FFF } else { random_word(&mut rng) });
    let mut constants = constants(&recording);
    let tracking = Some(Tracking { window_frames: 16, frames: TrackedFrames::All, snapshot_images: 0 });
    let sums = Processing { selection: Selection { sum_frames: 2, ..Selection::default() }, ..Processing::default() };
    let split =
        recording.plan_at(vec![place(0, 0, false, Quarter::Deg0), place(300, 7, true, Quarter::Deg90)], DoublePixels::Split);
    let plans = [
        recording.plan(),
        Plan { pixel: PixelType::Float32, ..recording.plan() },
        Plan { processing: Processing { tracking, ..Processing::default() }, ..recording.plan() },
        Plan { processing: Processing { common_mode: CommonMode::Row, ..Processing::default() }, ..recording.plan() },
        Plan { processing: sums, pixel: PixelType::Int32, ..split },
    ];
    for high_gain in [false, true] {
        constants.sets[0].high_gain = high_gain;
        for plan in &plans {
            let images = recording.check(plan, &constants);
            let saturated = |value: &f64| *value == plan.pixel.special().saturated;
            let count = images.iter().flat_map(|image| image.pixels(plan)).filter(saturated).count();
            assert_eq!(count > 10_000, high_gain, "{count} pixels of {}", plan.pixel);
        }
        // The reference has no integer arithmetic; which pixels are saturated does not depend on it.
        let float = recording.plan();
        let fixed = Plan { processing: Processing { arithmetic: Arithmetic::Fixed, ..Processing::default() }, ..float.clone() };
        let saturated = |plan: &Plan| {
            let images = recording.run(plan, &constants).1;
            let is_saturated = |image: &Seen| image.pixels(plan).into_iter().map(|p| p == f64::from(i16::SATURATED)).collect();
            images.iter().map(is_saturated).collect::<Vec<Vec<bool>>>()
        };
        assert!(saturated(&fixed) == saturated(&float));
    }
}

/// The parts of every split pixel add up to the number that the same pixel has when it is kept.
#[test]
fn splitting_wins_and_loses_no_photon() {
    let recording = Scene { interfaces: 2, frames: 6, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let upside_down = place(0, 0, false, Quarter::Deg180);
    for sum_frames in [1, 3] {
        let selection = Selection { sum_frames, ..Selection::default() };
        let processing = Processing { selection, ..Processing::default() };
        let pixel = PixelType::Int32;
        let kept = Plan { processing, pixel, ..recording.plan() };
        let split = recording.plan_at(vec![upside_down, place(300, 7, true, Quarter::Deg90)], DoublePixels::Split);
        let split = Plan { processing, pixel, ..split };
        let outline = recording.outline(&split);
        let whole = recording.check(&kept, &constants);
        for (whole, parts) in whole.iter().zip(recording.check(&split, &constants)) {
            let (whole, parts) = (whole.pixels(&kept), parts.pixels(&split));
            let mut sums = vec![(0.0, 0u8); whole.len()];
            for (spot, value) in outline.spots.iter().zip(parts).filter_map(|(spot, value)| Some(((*spot)?, value))) {
                let special = pixel.special();
                let is_number = value >= special.valid_min && value <= special.valid_max;
                // Special values are not shared: every part has them.
                sums[spot.pixel].0 += if is_number { value } else { value / f64::from(spot.parts) };
                sums[spot.pixel].1 += 1;
            }
            assert!(sums.iter().all(|(_, parts)| [1, 2, 4].contains(parts)), "every raw pixel is there");
            assert!(sums.iter().zip(&whole).all(|((sum, _), whole)| sum == whole));
        }
    }
}

/// A module of half height whose words are the pedestal, noise, some photons, and an offset that depends on the pixel's
/// line and on the frame.
fn with_offsets(offset_adu: fn(frame: u64, row: usize, column: usize) -> f64) -> Recording {
    let mut rng = Rng::new(8);
    let scene = Scene { interfaces: 2, frames: 3, faults: losses(8), ..Scene::default() };
    let pedestals = constants(&scene.record(|_, _| 0)).sets[0].pedestals[0].clone();
    scene.record(|frame, pixel| {
        let (row, column) = (pixel / 1024, pixel % 1024);
        let photons = if rng.below(40) == 0 { random_word(&mut rng) & 0x3FF } else { 0 };
        let adc = f64::from(pedestals[pixel]) + 5.0 * rng.normal() + offset_adu(frame, row, column) + f64::from(photons);
        match random_word(&mut rng) {
            word @ 0x4000.. => word,
            _ => adc.round() as u16,
        }
    })
}

fn remove_offsets(mode: CommonMode, offset_adu: fn(u64, usize, usize) -> f64) {
    let recording = with_offsets(offset_adu);
    let mut constants = constants(&recording);
    // Pixels in ADU, so that the rest of the offset can be read from them.
    constants.sets[0].factors[0].iter_mut().for_each(|f| *f /= *f);
    let processing = Processing { common_mode: mode, ..Processing::default() };
    let plan = Plan { processing, pixel: PixelType::Float32, compression: Compression::BSLZ4, ..recording.plan() };
    let first = recording.check(&Plan { workers: 1, ..plan.clone() }, &constants);
    for workers in [2, 5] {
        assert!(recording.run(&Plan { workers, ..plan.clone() }, &constants).1 == first, "{workers} workers");
    }
    let dark = |pixels: Vec<f64>| pixels.into_iter().filter(|p| p.abs() < 60.0).collect::<Vec<_>>();
    for image in &first {
        let dark = dark(image.pixels(&plan));
        let rms = (dark.iter().map(|p| p * p).sum::<f64>() / dark.len() as f64).sqrt();
        assert!(dark.len() > 300_000 && rms < 9.0, "{} pixels, {rms:.1} ADU RMS", dark.len());
    }
    // Integers, double pixels split and masked, tiles that lie sideways, sums of frames.
    let selection = Selection { sum_frames: 3, ..Selection::default() };
    for double_pixels in [DoublePixels::Split, DoublePixels::Mask] {
        let placements = vec![place(0, 0, false, Quarter::Deg90), place(5, 300, true, Quarter::Deg0)];
        let geometry = ImageGeometry::new(recording.format, placements, None, double_pixels).unwrap();
        let processing = Processing { selection, ..processing };
        recording.check(&Plan { geometry, processing, workers: 3, pixel: PixelType::Int32, ..recording.plan() }, &constants);
    }
}

#[test]
fn the_common_mode_of_rows_of_chips_is_removed() {
    remove_offsets(CommonMode::Row, |frame, row, column| ((row * 7 + column / 256 * 3 + frame as usize) % 50) as f64 - 25.0);
}

#[test]
fn the_common_mode_of_columns_of_chips_is_removed() {
    remove_offsets(CommonMode::Column, |frame, row, column| ((column * 3 + row / 256 * 5 + frame as usize) % 50) as f64 - 25.0);
}
