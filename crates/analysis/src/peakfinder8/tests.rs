//! Against [`Oracle`], on images of all kinds, with every instruction set.

use super::oracle::Oracle;
use super::*;
use crate::spot::Spot;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    /// About half of a number of events seen: a background with a spread.
    fn noise(&mut self, most: u32) -> i64 {
        (0..most).map(|_| (self.next() & 1) as i64).sum()
    }
}

#[derive(Clone, Copy, Debug)]
struct Scene {
    rows: usize,
    columns: usize,
    centre_px: (f32, f32),
    spots: usize,
    background: i64,
    special: bool,
}

fn radius_px(scene: &Scene) -> Vec<f32> {
    let at = |n: usize| ((n % scene.columns) as f32 - scene.centre_px.0).hypot((n / scene.columns) as f32 - scene.centre_px.1);
    (0..scene.rows * scene.columns).map(at).collect()
}

fn image<P: Measured>(scene: &Scene, random: &mut Random) -> Vec<P> {
    let count = scene.rows * scene.columns;
    let mut values: Vec<i64> = (0..count).map(|_| scene.background + random.noise(7)).collect();
    for _ in 0..scene.spots.min(count * 10) {
        let (x, y) = (random.next() as usize % scene.columns, random.next() as usize % scene.rows);
        let height = (random.next() % 150) as i64;
        for (dx, dy, part) in [(0, 0, 1), (1, 0, 2), (0, 1, 2), (1, 1, 3), (2, 0, 5)] {
            if x + dx < scene.columns && y + dy < scene.rows {
                values[(y + dy) * scene.columns + x + dx] += height / part;
            }
        }
    }
    let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
    let pixel = |value: i64| match random.next() {
        word if scene.special && word.is_multiple_of(40) => special[(word / 40) as usize % special.len()],
        word if P::TYPE.is_float() => P::from_photons(value as f32 + (word % 100) as f32 * 0.01),
        _ => P::from_whole(value),
    };
    values.into_iter().map(pixel).collect()
}

fn settings() -> Settings {
    Settings { threshold: 10.0, snr_min: 4.0, local_background_radius_px: 3, ..Settings::default() }
}

/// The spots that all instruction sets agree on.
fn find<P: Measured>(settings: &Settings, radius: &[f32], usable: &[bool], panels: &[Panel], plane: &Plane<'_, P>) -> Vec<Spot> {
    let mut finder = Peakfinder8::new(*settings, radius, usable, plane.rows, plane.columns, panels).unwrap();
    let mut first: Option<(SpotList, Option<u64>)> = None;
    for &isa in Isa::available() {
        let mut spots = SpotList::new(100_000);
        finder.find(isa, plane, &mut spots);
        finder.find(isa, plane, &mut spots);
        assert_eq!(spots.dropped(), 0);
        // Equal to the last bit.
        let found = (spots, finder.background().map(f64::to_bits));
        assert_eq!(*first.get_or_insert_with(|| found.clone()), found, "{:?} with {isa}", P::TYPE);
    }
    let (spots, background) = first.unwrap();
    let naive = Oracle { settings, radius_px: radius, usable, panels, plane }.background_of_all();
    match (background.map(f64::from_bits), naive) {
        (Some(is), Some(should)) => assert!((is - should).abs() <= 1e-9 * should.abs().max(1.0), "{is} instead of {should}"),
        (is, should) => assert_eq!(is, should),
    }
    spots.spots
}

fn check<P: Measured>(scene: &Scene, settings: &Settings, panels: &[Panel], seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let pixels = image::<P>(scene, &mut random);
    let usable: Vec<bool> = pixels.iter().map(|_| !random.next().is_multiple_of(50)).collect();
    let radius = radius_px(scene);
    let mut found = 0;
    for (low, high) in [(P::VALID_MIN, P::VALID_MAX), (P::from_whole(1), P::from_whole(60))] {
        let plane = Plane::new(&pixels, scene.columns, low, high);
        let spots = find(settings, &radius, &usable, panels, &plane);
        let oracle = Oracle { settings, radius_px: &radius, usable: &usable, panels, plane: &plane };
        assert_eq!(spots, oracle.find(), "{:?}, {scene:?}, {settings:?}, {panels:?}", P::TYPE);
        found += spots.len();
    }
    found
}

fn check_all(scene: &Scene, settings: &Settings, panels: &[Panel], seed: u64) -> [usize; 5] {
    [
        check::<i16>(scene, settings, panels, seed),
        check::<u16>(scene, settings, panels, seed),
        check::<i32>(scene, settings, panels, seed),
        check::<u32>(scene, settings, panels, seed),
        check::<f32>(scene, settings, panels, seed),
    ]
}

const SCENE: Scene = Scene { rows: 97, columns: 131, centre_px: (61.3, 40.8), spots: 60, background: 0, special: false };

#[test]
fn spots_are_those_of_the_oracle() {
    for seed in 0..4 {
        let whole = [Panel::whole(SCENE.rows, SCENE.columns)];
        let found = check_all(&SCENE, &settings(), &whole, seed);
        assert!(found.iter().all(|&found| found > 20), "{found:?}: these images show something");
        check_all(&Scene { special: true, ..SCENE }, &settings(), &whole, seed);
        check_all(&Scene { spots: 3000, ..SCENE }, &settings(), &whole, seed);
    }
}

#[test]
fn images_of_high_values_are_read_more_often_with_the_same_result() {
    let whole = [Panel::whole(SCENE.rows, SCENE.columns)];
    for background in [30, 120, 240, 250, 255, 260, 1000] {
        let found = check_all(&Scene { background, ..SCENE }, &settings(), &whole, 9);
        assert!(found.iter().all(|&found| found > 0), "{found:?} spots on {background}");
    }
    for threshold in [-50.0, 0.0, 2.5, 100.0, 1e15] {
        check_all(&SCENE, &Settings { threshold, ..settings() }, &whole, 10);
    }
}

#[test]
fn every_size_and_place_of_the_beam() {
    for (rows, columns) in [(0, 5), (1, 1), (1, 70), (70, 1), (2, 2), (3, 3), (3, 65), (64, 64), (65, 31)] {
        for centre_px in [(0.0, 0.0), (-1000.0, 20.0), (30.5, 1e6), (5.0, 5.0)] {
            let scene = Scene { rows, columns, centre_px, spots: 9, ..SCENE };
            let panels = if rows == 0 { vec![] } else { vec![Panel::whole(rows, columns)] };
            check_all(&scene, &settings(), &panels, (rows * columns) as u64);
        }
    }
}

#[test]
fn a_ring_may_have_more_pixels_than_its_counters_count() {
    let scene = Scene { rows: 263, columns: 260, centre_px: (1e12, 0.0), ..SCENE };
    let whole = [Panel::whole(scene.rows, scene.columns)];
    let found = check_all(&scene, &settings(), &whole, 12);
    assert!(found.iter().all(|&found| found > 20), "{found:?}");
}

#[test]
fn no_spot_and_no_background_crosses_the_border_of_a_region() {
    let panel = |x_px, y_px, columns, rows| Panel { x_px, y_px, columns, rows };
    let quarters = [panel(0, 0, 60, 50), panel(60, 0, 71, 50), panel(0, 50, 60, 47), panel(60, 50, 71, 47)];
    let gaps = [panel(70, 3, 20, 90), panel(1, 40, 67, 11)];
    for seed in 20..24 {
        check_all(&SCENE, &settings(), &quarters, seed);
        check_all(&SCENE, &settings(), &gaps, seed);
        check_all(&Scene { spots: 3000, ..SCENE }, &settings(), &quarters, seed);
    }
}

#[test]
fn every_setting_counts() {
    let whole = [Panel::whole(SCENE.rows, SCENE.columns)];
    let all = check::<i32>(&SCENE, &settings(), &whole, 3);
    for settings in [
        Settings { snr_min: 12.0, ..settings() },
        Settings { pixels_min: 4, ..settings() },
        Settings { pixels_max: 3, ..settings() },
        Settings { radius_min_px: 30.0, ..settings() },
        Settings { radius_max_px: 40.0, ..settings() },
        Settings { pixel_max: 50.0, ..settings() },
    ] {
        let found = check::<i32>(&SCENE, &settings, &whole, 3);
        assert!(found < all && found > 0, "{found} of {all} spots with {settings:?}");
    }
    for local_background_radius_px in [1, 2, 64] {
        check_all(&SCENE, &Settings { local_background_radius_px, ..settings() }, &whole, 4);
    }
    check_all(&SCENE, &Settings { snr_min: 0.3, pixels_min: 1, ..settings() }, &whole, 5);
}

fn uniform<P: Measured>(value: P) {
    let (rows, columns) = (40, 30);
    let radius = radius_px(&Scene { rows, columns, ..SCENE });
    let pixels = vec![value; rows * columns];
    let panels = [Panel::whole(rows, columns)];
    let plane = Plane::own(&pixels, columns);
    assert_eq!(find(&settings(), &radius, &vec![true; rows * columns], &panels, &plane), [], "{value:?}");
    assert_eq!(find(&settings(), &radius, &vec![false; rows * columns], &panels, &plane), []);
    let none = Plane::new(&pixels, columns, P::VALID_MAX, P::VALID_MIN);
    assert_eq!(find(&settings(), &radius, &vec![true; rows * columns], &panels, &none), []);
}

#[test]
fn images_without_anything_to_see_have_no_spots() {
    fn all<P: Measured>() {
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED];
        special.into_iter().chain([P::VALID_MIN, P::VALID_MAX, P::from_whole(0)]).for_each(uniform);
    }
    all::<i16>();
    all::<u16>();
    all::<i32>();
    all::<u32>();
    all::<f32>();
    uniform(f32::NAN);
}

#[test]
fn a_million_spots_are_counted_and_not_kept() {
    // A pattern of pairs of pixels on a background of 0 and 1, all in one ring.
    let (rows, columns) = (1000, 2000);
    let pixels: Vec<u16> = (0..rows * columns)
        .map(|n| match (n % columns % 4, n / columns % 2) {
            (1 | 2, 1) => 40,
            (_, row) => ((n / columns / 2 + row + n) % 2) as u16,
        })
        .collect();
    let settings = Settings { snr_min: 1.5, local_background_radius_px: 1, ..settings() };
    let (radius, usable) = (vec![7.0; pixels.len()], vec![true; pixels.len()]);
    let mut finder = Peakfinder8::new(settings, &radius, &usable, rows, columns, &[Panel::whole(rows, columns)]).unwrap();
    let mut spots = SpotList::new(10);
    finder.find(Isa::detect(), &Plane::own(&pixels, columns), &mut spots);
    assert_eq!((spots.spots.len(), spots.found), (10, (rows / 2 - 1) as u64 * (columns / 4) as u64));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |settings: Settings, radius: &[f32], usable: usize, size: (usize, usize), panels: &[Panel]| {
        Peakfinder8::new(settings, radius, &vec![true; usable], size.0, size.1, panels).expect_err("refused")
    };
    let whole = Panel::whole(2, 3);
    for settings in [
        Settings { threshold: f64::NAN, ..settings() },
        Settings { snr_min: 0.0, ..settings() },
        Settings { snr_min: f64::NAN, ..settings() },
        Settings { pixels_min: 0, ..settings() },
        Settings { pixels_min: 9, pixels_max: 8, ..settings() },
        Settings { local_background_radius_px: 0, ..settings() },
        Settings { local_background_radius_px: LOCAL_BACKGROUND_RADIUS_MAX_PX + 1, ..settings() },
        Settings { radius_max_px: f64::NAN, ..settings() },
        Settings { radius_min_px: 5.0, radius_max_px: 5.0, ..settings() },
        Settings { pixel_max: f64::NAN, ..settings() },
    ] {
        assert!(refused(settings, &[1.0; 6], 6, (2, 3), &[whole]).starts_with("peakfinder8: "), "{settings:?}");
    }
    let settings = settings();
    refused(settings, &[1.0; 5], 6, (2, 3), &[whole]);
    refused(settings, &[1.0; 6], 7, (2, 3), &[whole]);
    refused(settings, &[], 0, (1 << 16, 1 << 16), &[]);
    refused(settings, &[], 0, (usize::MAX, 2), &[]);
    refused(settings, &[1.0, 2.0, 3.0, 4.0, 5.0, 1e5], 6, (2, 3), &[whole]);
    for (x_px, y_px, columns, rows) in
        [(0, 0, 4, 1), (3, 0, 1, 1), (0, 1, 1, 2), (0, 0, 0, 1), (0, 0, 1, 0), (1, 1, usize::MAX, 1)]
    {
        refused(settings, &[1.0; 6], 6, (2, 3), &[Panel { x_px, y_px, columns, rows }]);
    }
    assert!(refused(settings, &[1.0; 6], 6, (2, 3), &[whole, Panel { rows: 1, ..whole }]).contains("overlaps"));
    let radius = [1.0, f32::NAN, f32::INFINITY, -3.0, 5.0, 6.0];
    let finder = Peakfinder8::new(settings, &radius, &[true; 6], 2, 3, &[whole]).unwrap();
    assert_eq!(finder.rings.of_pixel, [1, 0, 0, 0, 5, 6]);
    assert_eq!(crystfel_radius_px(-3.9, 4.9), 5.0);
}
