//! The synthetic JUNGFRAU against its own truth: statistics, gain stages, chip borders, reproducibility, calibration
//! files.

use konkordia_sim::jungfrau::{BadKind, JungfrauModel, SyntheticJungfrau, noise_electrons, raw_bytes};
use konkordia_sim::reference::{JungfrauConstants, convert_word};
use konkordia_sim::rng::Rng;
use konkordia_sim::scene::{MODULE_COLUMNS, MODULE_PIXELS, MODULE_ROWS};

fn one_module() -> JungfrauModel {
    let mut model = JungfrauModel::for_modules(1);
    (model.dead_ppm, model.noisy_ppm) = (0.0, 0.0);
    model
}

fn build(model: &JungfrauModel) -> SyntheticJungfrau {
    SyntheticJungfrau::new(model).expect("the model is valid")
}

fn constants(detector: &SyntheticJungfrau) -> JungfrauConstants {
    JungfrauConstants::new(detector.pedestals(), detector.gains(), detector.model().scene.energy_kev as f32)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u64), |(sum, n), v| (sum + v, n + 1));
    sum / n as f64
}

#[test]
fn photons_follow_the_expected_means_with_poisson_variance() {
    let detector = build(&one_module());
    let spots = detector.spots(0);
    let means = detector.expected_photons(0, &spots);
    let (mut photons, mut raw) = (vec![0; MODULE_PIXELS], vec![0; MODULE_PIXELS]);
    detector.module_into(0, 0, &spots, &mut raw, &mut photons);
    let total_expected: f64 = means.iter().map(|m| f64::from(*m)).sum();
    let total: f64 = photons.iter().map(|n| f64::from(*n)).sum();
    assert!((total - total_expected).abs() < 6.0 * total_expected.sqrt(), "{total} against {total_expected}");
    // Squared pulls of single pixels have mean 1; their spread is near sqrt(2 + 1/mean).
    let used: Vec<(f64, f64)> =
        means.iter().zip(&photons).filter(|(m, _)| **m > 0.1).map(|(m, n)| (f64::from(*m), f64::from(*n))).collect();
    let pull2 = mean(used.iter().map(|(m, n)| (n - m) * (n - m) / m));
    let sigma = (mean(used.iter().map(|(m, _)| 2.0 + 1.0 / m)) / used.len() as f64).sqrt();
    assert!((pull2 - 1.0).abs() < 6.0 * sigma, "{pull2} +- {sigma}");
}

#[test]
fn converting_back_recovers_the_photons_within_the_noise_in_all_stages() {
    let detector = build(&one_module());
    let constants = constants(&detector);
    let energy = detector.model().scene.energy_kev as f32;
    // A ramp from nothing to past the end of G2, evenly spread on a logarithmic scale.
    let charge: Vec<f32> =
        (0..MODULE_PIXELS).map(|i| (1.0 + i as f32 / MODULE_PIXELS as f32 * 9.6).exp() - 1.0_f32.exp()).collect();
    let mut raw = vec![0; MODULE_PIXELS];
    detector.digitise(0, 0, &charge, &mut raw);
    let mut pulls: [Vec<f64>; 3] = Default::default();
    let mut saturated = 0;
    for (pixel, (&word, &photons)) in raw.iter().zip(&charge).enumerate() {
        let stage = [0, 1, usize::MAX, 2][usize::from(word >> 14)];
        assert!(stage < 3, "gain 10 is never sent");
        if word == 0xC000 {
            saturated += 1;
            assert!(photons > 8500.0, "{photons} photons do not saturate");
            continue;
        }
        assert!(word != 0x4000 && word != 0xFFFF, "special word for {photons} photons");
        assert!(stage == 0 || photons > 15.0, "{photons} photons fit into G0");
        let noise_adu = (detector.noise_adu(stage).powi(2) + 1.0 / 12.0).sqrt();
        let noise = noise_adu / (detector.gains()[stage * MODULE_PIXELS + pixel].abs() * energy);
        let measured: f32 = convert_word(word, pixel, &constants);
        pulls[stage].push(f64::from((measured - photons) / noise));
    }
    for (stage, pulls) in pulls.iter().enumerate() {
        let n = pulls.len() as f64;
        assert!(n > 10_000.0, "stage {stage} has {n} pixels");
        let (m, v) = (mean(pulls.iter().copied()), mean(pulls.iter().map(|p| p * p)));
        // The switching point depends on the noise, so the ends of a stage are slightly biased.
        assert!(m.abs() < 0.02, "stage {stage}: mean pull {m}");
        assert!((v - 1.0).abs() < 0.05, "stage {stage}: squared pull {v}");
    }
    assert!(saturated > 1000, "{saturated}");
    assert!(raw[MODULE_PIXELS - 100..].iter().all(|w| *w == 0xC000), "far beyond G2 everything is saturated");
}

#[test]
fn whole_images_convert_back_to_their_photons() {
    let mut model = one_module();
    model.scene.distance_mm = 60.0;
    let detector = build(&model);
    let constants = constants(&detector);
    let image = detector.image(7);
    let stages = [0, 1, 3].map(|g| image.raw.iter().filter(|w| **w >> 14 == g).count());
    assert!(stages[1] > 100 && stages[2] > 0, "words per stage {stages:?}");
    for (pixel, (&word, &photons)) in image.raw.iter().zip(&image.photons).enumerate() {
        let measured: f32 = convert_word(word, pixel, &constants);
        let tolerance = [0.5, 2.5, f32::NAN, 20.0][usize::from(word >> 14)];
        assert!((measured - photons as f32).abs() < tolerance || word == 0xC000, "pixel {pixel}: {measured} for {photons}");
    }
}

#[test]
fn noise_is_that_of_the_paper() {
    assert_eq!((noise_electrons(10.0), noise_electrons(840.0)), (83.0, 200.0));
    for (exposure, electrons) in [(10.0, 83.0), (840.0, 200.0)] {
        let mut model = one_module();
        model.exposure_us = exposure;
        let detector = build(&model);
        let mut raw = vec![0; MODULE_PIXELS];
        detector.dark_into(0, 0, 0, &mut raw);
        // Back to electrons with each pixel's own gain; 3.6 eV each, and the rounding to whole ADU taken off.
        let rms = mean(raw.iter().enumerate().map(|(i, w)| (f64::from(*w) - f64::from(detector.pedestals()[i])).powi(2))).sqrt();
        let measured = (rms * rms - 1.0 / 12.0).sqrt() / 41.0 / 3.6e-3;
        assert!((measured - electrons).abs() < 0.01 * electrons, "{measured} electrons at {exposure} us");
    }
}

#[test]
fn border_pixels_gather_twice_the_photons_and_corners_four_times() {
    let mut model = one_module();
    (model.scene.crystal, model.scene.beam_stop_mm) = (None, 0.0);
    let means = build(&model).expected_photons(0, &[]);
    let ratio = |row: usize, column: usize| {
        let row_out = if row < 256 { row - 2 } else { row + 2 };
        let column_out = if column % 256 > 128 { column - 2 } else { column + 2 };
        f64::from(means[row * MODULE_COLUMNS + column]) / f64::from(means[row_out * MODULE_COLUMNS + column_out])
    };
    for border in [256, 512, 768] {
        for column in [border - 1, border] {
            let plain = mean((10..200).map(|row| means[row * MODULE_COLUMNS + column] as f64));
            let beside = mean(
                (10..200).map(|row| means[row * MODULE_COLUMNS + if column < border { column - 2 } else { column + 2 }] as f64),
            );
            assert!((plain / beside - 2.0).abs() < 0.1, "column {column}: {}", plain / beside);
            for row in [255, 256] {
                assert!((ratio(row, column) - 4.0).abs() < 0.3, "corner ({row}, {column}): {}", ratio(row, column));
            }
        }
    }
    for row in [255, 256] {
        let beside = if row == 255 { 253 } else { 258 };
        let sum = |row: usize| mean((10..200).map(|column| means[row * MODULE_COLUMNS + column] as f64));
        assert!((sum(row) / sum(beside) - 2.0).abs() < 0.1);
    }
}

#[test]
fn one_seed_gives_the_same_bytes_and_another_does_not() {
    let model = JungfrauModel::for_modules(2);
    let (a, b) = (build(&model), build(&model));
    assert_eq!(a.image(3), b.image(3));
    assert_eq!((a.pedestals(), a.gains(), a.bad_pixels()), (b.pedestals(), b.gains(), b.bad_pixels()));
    assert_ne!(a.image(3).photons, a.image(4).photons);
    let mut other = model.clone();
    other.scene.seed = 2;
    let other = build(&other);
    assert_ne!(a.image(3).raw, other.image(3).raw);
    // Modules do not depend on the order in which they are made.
    let spots = a.spots(3);
    let (mut raw, mut photons) = (vec![0; MODULE_PIXELS], vec![0; MODULE_PIXELS]);
    a.module_into(3, 1, &spots, &mut raw, &mut photons);
    assert_eq!(raw, a.image(3).raw[MODULE_PIXELS..]);
}

#[test]
fn bad_pixels_are_those_of_the_list() {
    let mut model = JungfrauModel::for_modules(2);
    (model.dead_ppm, model.noisy_ppm) = (300.0, 200.0);
    let detector = build(&model);
    let of = |kind| detector.bad_pixels().iter().filter(|b| b.kind == kind).count();
    assert!((200..440).contains(&of(BadKind::Dead)) && (120..300).contains(&of(BadKind::Noisy)));
    assert!(detector.bad_pixels().windows(2).all(|w| w[0].pixel < w[1].pixel));
    let image = detector.image(0);
    for bad in detector.bad_pixels().iter().filter(|b| b.kind == BadKind::Dead) {
        assert_eq!(image.raw[bad.pixel], 0);
    }
    let noisy: Vec<usize> = detector.bad_pixels().iter().filter(|b| b.kind == BadKind::Noisy).map(|b| b.pixel).collect();
    let mut raw = vec![0; 2 * MODULE_PIXELS];
    let rms = mean((0..20).flat_map(|i| {
        let (first, second) = raw.split_at_mut(MODULE_PIXELS);
        detector.dark_into(i, 0, 0, first);
        detector.dark_into(i, 1, 0, second);
        noisy.iter().map(|p| (f64::from(raw[*p]) - f64::from(detector.pedestals()[*p])).powi(2)).collect::<Vec<_>>()
    }))
    .sqrt();
    assert!((rms / f64::from(detector.noise_adu(0)) - 40.0).abs() < 2.5, "{rms}");
    let [g0, g1, _, gain] = detector.calibration_files(true);
    let value = |bytes: &[u8], i: usize| f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("4 bytes"));
    assert_eq!((g0.0, g1.0, gain.0), ("pedestal_g0.f32", "pedestal_g1.f32", "gain_adu_per_kev.f32"));
    assert_eq!(gain.1.len(), 3 * g0.1.len());
    assert_eq!(value(&g0.1, noisy[0]), 16383.0);
    let good = (0..).find(|p| detector.bad_pixels().iter().all(|b| b.pixel != *p)).expect("most are good");
    assert_eq!(value(&g0.1, good), detector.pedestals()[good]);
    assert_eq!(value(&g1.1, good), detector.pedestals()[2 * MODULE_PIXELS + good]);
    assert_eq!(value(&gain.1, 4 * MODULE_PIXELS + good), detector.gains()[4 * MODULE_PIXELS + good]);
}

#[test]
fn pedestals_drift_towards_their_limit() {
    let mut model = one_module();
    (model.drift_adu, model.drift_images) = (80.0, 50.0);
    let detector = build(&model);
    let still = build(&one_module());
    assert_eq!((detector.drift_adu(0), still.drift_adu(1000)), (0.0, 0.0));
    let (mut a, mut b) = (vec![0; MODULE_PIXELS], vec![0; MODULE_PIXELS]);
    for image in [0, 50, 500] {
        detector.dark_into(image, 0, 0, &mut a);
        still.dark_into(image, 0, 0, &mut b);
        let rise = mean(a.iter().zip(&b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
        assert!((rise - detector.drift_adu(image)).abs() < 0.2, "image {image}: {rise}");
    }
    // Light does not change it: the same charge and the same noise, moved by the drift.
    let charge = vec![10.0; MODULE_PIXELS];
    detector.digitise(100, 0, &charge, &mut a);
    still.digitise(100, 0, &charge, &mut b);
    let rise = mean(a.iter().zip(&b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    assert!((rise - detector.drift_adu(100)).abs() < 0.01, "{rise}");
    model.drift_adu = 101.0;
    assert!(SyntheticJungfrau::new(&model).err().expect("refused").to_string().contains("drift_adu is 101"));
}

#[test]
fn dark_images_show_each_stage_around_its_pedestal() {
    let detector = build(&one_module());
    let mut raw = vec![0; MODULE_PIXELS];
    for (stage, bits) in [(0, 0), (1, 1), (2, 3)] {
        detector.dark_into(4, 0, stage, &mut raw);
        assert!(raw.iter().all(|w| w >> 14 == bits));
        let pedestals = &detector.pedestals()[stage * MODULE_PIXELS..];
        let offset = mean(raw.iter().zip(pedestals).map(|(w, p)| f64::from(w & 0x3FFF) - f64::from(*p)));
        assert!(offset.abs() < 0.3, "stage {stage}: {offset}");
    }
}

#[test]
fn photons_at_junctions_of_four_pixels_are_lost_by_rounding_to_one() {
    let detector = build(&one_module());
    let constants = constants(&detector);
    let mut raw = vec![0; MODULE_PIXELS];
    let groups = detector.junctions_into(0, 0, 5, &mut raw);
    assert_eq!(
        groups.len(),
        MODULE_ROWS.div_ceil(5) * MODULE_COLUMNS.div_ceil(5) - MODULE_COLUMNS.div_ceil(5) * usize::from(MODULE_ROWS % 5 == 1)
    );
    let photons = |word: u16, pixel: usize| convert_word::<f32>(word, pixel, &constants);
    let sums: Vec<f32> = groups
        .iter()
        .map(|&p| [p, p + 1, p + MODULE_COLUMNS, p + MODULE_COLUMNS + 1].iter().map(|&q| photons(raw[q], q)).sum())
        .collect();
    let exact = mean(sums.iter().map(|s| f64::from(*s)));
    assert!((exact - 1.0).abs() < 0.01, "unrounded, the photon is there: {exact}");
    let rounded: i32 = raw.iter().enumerate().map(|(p, &w)| i32::from(convert_word::<i16>(w, p, &constants))).sum();
    assert!(rounded.unsigned_abs() < groups.len() as u32 / 1000, "rounded, {rounded} of {} photons are left", groups.len());
}

#[test]
fn charge_sharing_keeps_the_charge_and_spoils_single_photons() {
    let mut model = one_module();
    (model.scene.crystal, model.scene.background) = (None, 0.05);
    model.charge_cloud_um = 9.0;
    let detector = build(&model);
    let constants = constants(&detector);
    let image = detector.image(0);
    let photons = mean(image.photons.iter().map(|n| f64::from(*n)));
    let converted = || image.raw.iter().enumerate();
    let charge = mean(converted().map(|(p, &w)| f64::from(convert_word::<f32>(w, p, &constants))));
    assert!((charge - photons).abs() < 2e-3 + 0.002 * photons, "{charge} for {photons}");
    let rounded = mean(converted().map(|(p, &w)| f64::from(convert_word::<i16>(w, p, &constants))));
    assert!(rounded < 0.99 * photons && rounded > 0.8 * photons, "rounded {rounded} for {photons}");
}

#[test]
fn raw_bytes_are_little_endian() {
    assert_eq!(raw_bytes(&[0x1234, 0xC000]), [0x34, 0x12, 0x00, 0xC0]);
    let mut rng = Rng::new(1);
    let words: Vec<u16> = (0..99).map(|_| rng.next_u64() as u16).collect();
    let back: Vec<u16> = raw_bytes(&words).chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    assert_eq!(back, words);
}

#[test]
fn drift_can_be_a_ramp_and_the_low_gains_see_the_same_charge() {
    use konkordia_sim::jungfrau::DriftShape;
    let mut model = one_module();
    (model.drift_adu, model.drift_images, model.drift_shape) = (100.0, 200.0, DriftShape::Linear);
    let detector = build(&model);
    assert_eq!([0, 50, 200, 500].map(|image| detector.drift_adu(image)), [0.0, 25.0, 100.0, 100.0]);
    let still = build(&one_module());
    let (mut a, mut b) = (vec![0; MODULE_PIXELS], vec![0; MODULE_PIXELS]);
    for (stage, share) in [(0, 1.0), (1, -1.439 / 41.0), (2, -0.1145 / 41.0)] {
        detector.dark_into(300, 0, stage, &mut a);
        still.dark_into(300, 0, stage, &mut b);
        let rise = mean(a.iter().zip(&b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
        assert!((rise - 100.0 * share).abs() < 0.2, "stage {stage}: {rise}");
    }
}

#[test]
fn each_storage_cell_has_pedestals_of_its_own() {
    let model = JungfrauModel { storage_cells: 4, ..one_module() };
    let detector = build(&model);
    assert_eq!([0, 1, 2, 3, 4, 7].map(|image| detector.storage_cell(image)), [0, 1, 2, 3, 0, 3]);
    assert_eq!(build(&one_module()).storage_cell(9), 3, "the cell that the headers name");
    let mut raw = vec![0; MODULE_PIXELS];
    for (stage, bits) in [(0, 0), (1, 1), (2, 3), (3, 0)] {
        for image in 0..4 {
            detector.dark_into(image, 0, stage, &mut raw);
            let truth = detector.pedestal_plane(stage, detector.storage_cell(image));
            let bad: Vec<usize> = detector.bad_pixels().iter().map(|b| b.pixel).collect();
            let good = |pixel: &usize| bad.binary_search(pixel).is_err();
            let sigma = f64::from(detector.noise_adu(stage)).max(1.0);
            let far = (0..MODULE_PIXELS).filter(good).filter(|&p| {
                assert_eq!(raw[p] >> 14, bits);
                (f64::from(raw[p] & 0x3FFF) - f64::from(truth[p])).abs() > 5.5 * sigma
            });
            assert!(far.count() < 3, "stage {stage}, image {image}");
        }
    }
    let (zero, one) = (detector.pedestal_plane(0, 0), detector.pedestal_plane(0, 1));
    let apart = mean(zero.iter().zip(&one).map(|(a, b)| f64::from((a - b).abs())));
    assert!(apart > 10.0, "{apart}");
    assert_eq!(detector.high_gains()[7], detector.gains()[7] * 2.4f32);
}

#[test]
fn stray_photons_hit_single_pixels() {
    let detector = build(&one_module());
    let mut clean = vec![0; MODULE_PIXELS];
    detector.dark_into(0, 0, 0, &mut clean);
    let mut raw = clean.clone();
    detector.add_stray_photons(0, 0, 1e-3, &mut raw);
    let hit: Vec<f64> = raw.iter().zip(&clean).filter(|(a, b)| a != b).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
    assert!((400..650).contains(&hit.len()), "{}", hit.len());
    assert!(hit.iter().all(|rise| *rise > 400.0), "one photon is about 508 ADU");
}
