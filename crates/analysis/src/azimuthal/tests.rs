//! Integration compared with naive calculations.

use konkordia_core::experiment::{Axis, Metadata};
use konkordia_kernels::Isa;
use konkordia_kernels::azimuthal::Summed;

use super::{Integrator, Profile, Settings, Splitting};
use crate::geometry::{Geometry, Radial};
use crate::plane::Plane;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
}

fn facts(center: [f64; 2], is_tilted: bool) -> Metadata {
    let mut facts = Metadata {
        energy_kev: Some(12.4),
        detector_distance_m: Some(0.02),
        beam_center_x_px: Some(center[0]),
        beam_center_y_px: Some(center[1]),
        pixel_size_m: Some([75e-6, 75e-6]),
        ..Metadata::default()
    };
    if is_tilted {
        facts.experiment.tilt_fast_deg = Some(12.0);
        facts.experiment.tilt_slow_deg = Some(-7.0);
        facts.experiment.goniometer.two_theta = Axis::turning(15.0, 0.0);
    }
    facts
}

fn pixels<P: Summed>(count: usize, rarity: u64, random: &mut Random) -> Vec<P> {
    let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED];
    let pixel = |_| match random.next() {
        word if (word >> 8).is_multiple_of(rarity) => special[word as usize % special.len()],
        word => P::from_photons((word % 4000) as f32 - 100.25),
    };
    (0..count).map(pixel).collect()
}

/// Integrates with every instruction set, twice, and demands the same bits.
fn integrated<P: Summed>(integrator: &mut Integrator, plane: &Plane<'_, P>) -> Profile {
    let mut first: Option<(Profile, String)> = None;
    for _ in 0..2 {
        for &isa in Isa::available() {
            let mut profile = integrator.profile();
            integrator.integrate(isa, plane, &mut profile).unwrap();
            // The shortest text of a number that reads back to it; NaN equals NaN.
            let text = format!("{profile:?}");
            let (_, expected) = first.get_or_insert_with(|| (profile, text.clone()));
            assert_eq!(*expected, text, "{isa}");
        }
    }
    first.unwrap().0
}

fn near(got: &[f64], expected: &[f64], tolerance: f64, context: &str) {
    let size = expected.iter().fold(0.0, |size: f64, number| size.max(number.abs()));
    assert_eq!(got.len(), expected.len(), "{context}");
    for (n, (got, expected)) in got.iter().zip(expected).enumerate() {
        let is_near = (got - expected).abs() <= tolerance * (size + 1e-300) || (got.is_nan() && expected.is_nan());
        assert!(is_near, "{context}, bin {n}: {got} instead of {expected}");
    }
}

/// Share of each bin in each pixel, found in another way than by cutting polygons.
type Shares = Vec<Vec<(usize, f64)>>;

/// Lower end and width of the bins.
fn bins_of(profile: &Profile) -> [f64; 2] {
    let step = if profile.radial.len() > 1 { profile.radial[1] - profile.radial[0] } else { 1.0 };
    [profile.radial[0] - 0.5 * step, step]
}

fn naive_whole(g: &Geometry, profile: &Profile, s: &Settings) -> Shares {
    let [low, step] = bins_of(profile);
    let centers = (0..g.rows).flat_map(|row| (0..g.columns).map(move |column| (column as f64 + 0.5, row as f64 + 0.5)));
    let share = |(x, y): (f64, f64)| {
        // The lowest radius is the beginning of the first bin but for rounding.
        let bin = ((g.radial(s.radial, x, y) - low) / step + 1e-6).floor();
        let azimuth = g.azimuth_rad(x, y).to_degrees();
        let is_in = s.azimuth_deg.is_none_or(|[from, to]| {
            (-2..3).any(|turn| {
                let azimuth = azimuth + 360.0 * f64::from(turn);
                from <= azimuth && azimuth < to
            })
        });
        if bin >= 0.0 && bin < s.bins as f64 && is_in { vec![(bin as usize, 1.0)] } else { vec![] }
    };
    centers.map(share).collect()
}

/// Integral of the azimuth over the radius along the edges of a pixel, bin by bin.
fn naive_split(g: &Geometry, profile: &Profile, s: &Settings) -> Shares {
    let [low, step] = bins_of(profile);
    let of_pixel = |column: usize, row: usize| {
        let (x, y) = (column as f64, row as f64);
        let corners = [[x, y], [x + 1.0, y], [x + 1.0, y + 1.0], [x, y + 1.0]];
        let mut corners = corners.map(|[x, y]| [(g.radial(s.radial, x, y) - low) / step, g.azimuth_rad(x, y)]);
        for n in 1..4 {
            while corners[n][1] - corners[0][1] > std::f64::consts::PI {
                corners[n][1] -= std::f64::consts::TAU;
            }
            while corners[n][1] - corners[0][1] < -std::f64::consts::PI {
                corners[n][1] += std::f64::consts::TAU;
            }
        }
        let mut sums = vec![0.0; s.bins];
        let mut all = 0.0;
        for n in 0..4 {
            let ([r0, a0], [r1, a1]) = (corners[n], corners[(n + 1) % 4]);
            let below = |r: f64| if r0 == r1 { a0 } else { a0 + (a1 - a0) * (r - r0) / (r1 - r0) } - corners[0][1];
            let integral = |from: f64, to: f64| 0.5 * (below(from) + below(to)) * (to - from);
            all += integral(r0, r1);
            for (bin, sum) in sums.iter_mut().enumerate() {
                let clip = |r: f64| r.clamp(bin as f64, bin as f64 + 1.0);
                *sum += integral(clip(r0), clip(r1));
            }
        }
        sums.into_iter().enumerate().map(|(bin, sum)| (bin, sum / all)).filter(|(_, share)| share.abs() > 1e-13).collect()
    };
    (0..g.rows).flat_map(|row| (0..g.columns).map(move |column| (column, row))).map(|(c, r)| of_pixel(c, r)).collect()
}

/// The rectangle around the corners, with the centre in its middle.
fn naive_rectangle(g: &Geometry, profile: &Profile, s: &Settings) -> Shares {
    let [low, step] = bins_of(profile);
    let of_pixel = |n: usize| {
        let (x, y) = ((n % g.columns) as f64, (n / g.columns) as f64);
        let radius = |dx: f64, dy: f64| (g.radial(s.radial, x + dx, y + dy) - low) / step;
        let corners = [radius(0.0, 0.0), radius(0.0, 1.0), radius(1.0, 0.0), radius(1.0, 1.0)];
        let center = radius(0.5, 0.5);
        let half = corners.iter().map(|corner| (corner - center).abs()).fold(0.0, f64::max);
        let overlap = |bin: f64| (center + half).min(bin + 1.0) - (center - half).max(bin);
        let share = |bin: usize| (bin, (overlap(bin as f64) / (2.0 * half)).max(0.0));
        (0..s.bins).map(share).filter(|(_, share)| *share > 1e-13).collect()
    };
    (0..g.rows * g.columns).map(of_pixel).collect()
}

/// The profile of these shares: sum, variance, normalisation, pixels.
fn naive<P: Summed>(g: &Geometry, s: &Settings, usable: &[bool], pixels: &[P], shares: &Shares) -> [Vec<f64>; 4] {
    let mut sums = [0; 4].map(|_| vec![0.0; s.bins]);
    for (n, shares) in shares.iter().enumerate().filter(|(n, _)| usable[*n] && pixels[*n].is_number()) {
        let (x, y) = ((n % g.columns) as f64 + 0.5, (n / g.columns) as f64 + 0.5);
        let solid_angle = if s.solid_angle { g.solid_angle(x, y) } else { 1.0 };
        let weight = solid_angle * s.polarization.map_or(1.0, |factor| g.polarization(x, y, factor));
        for &(bin, share) in shares {
            let numbers = [share * pixels[n].to_f64(), share * share * pixels[n].to_f64(), share * weight, share];
            sums.iter_mut().zip(numbers).for_each(|(sums, number)| sums[bin] += number);
        }
    }
    sums
}

fn all_settings(splitting: Splitting) -> Vec<Settings> {
    let base = Settings { splitting, bins: 23, variance: true, ..Settings::default() };
    let plain = Settings { solid_angle: false, ..base.clone() };
    let mut all = vec![
        base.clone(),
        Settings { radial: Radial::TwoTheta, bins: 200, polarization: Some(0.95), ..base.clone() },
        Settings { radial: Radial::D, range: Some([1.5, 6.0]), ..plain.clone() },
        Settings { radial: Radial::TwoTheta, range: Some([1.5, 6.0]), variance: false, ..plain.clone() },
    ];
    if splitting == Splitting::None {
        all.push(Settings { azimuth_deg: Some([170.0, 250.0]), ..base });
        all.push(Settings { azimuth_deg: Some([-90.0, 30.0]), ..plain });
    }
    all
}

fn check<P: Summed>(splitting: Splitting) {
    // The beam outside, on the image, in a corner of it; one row; one column; one pixel.
    let cases = [
        ([31, 45], [-7.3, 60.2]),
        ([37, 61], [20.3, 11.8]),
        ([1, 67], [-3.2, 0.6]),
        ([53, 1], [0.4, -9.0]),
        ([1, 1], [3.5, 4.5]),
    ];
    for (n, (shape, center)) in cases.into_iter().enumerate() {
        for settings in all_settings(splitting) {
            let g = Geometry::of_run(shape, &facts(center, n % 2 == 0)).unwrap();
            let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (n as u64 + 1));
            let count = shape[0] * shape[1];
            // Where the beam is, splitting is by points.
            let beam = |pixel: usize| {
                let two_theta = g.two_theta_rad((pixel % shape[1]) as f64 + 0.5, (pixel / shape[1]) as f64 + 0.5);
                splitting != Splitting::None && two_theta < 0.01
            };
            let usable: Vec<bool> = (0..count).map(|n| !random.next().is_multiple_of(9) && !beam(n)).collect();
            for rarity in [1, 13, 1000] {
                let pixels = pixels::<P>(count, rarity, &mut random);
                let context = format!("{:?}, {shape:?}, one of {rarity} special, {settings:?}", P::TYPE);
                let mut integrator = Integrator::new(&g, settings.clone(), &usable).unwrap();
                let got = integrated(&mut integrator, &Plane::own(&pixels, shape[1]));
                let shares = match splitting {
                    Splitting::None => naive_whole(&g, &got, &settings),
                    Splitting::BoundingBox => naive_rectangle(&g, &got, &settings),
                    Splitting::Full => naive_split(&g, &got, &settings),
                };
                let [sum, variance, weights, counts] = naive(&g, &settings, &usable, &pixels, &shares);
                let tolerance = if splitting == Splitting::None { 1e-12 } else { 3e-7 };
                near(&got.sum, &sum, tolerance, &context);
                near(&got.pixels, &counts, tolerance, &context);
                near(&got.normalization, &weights, 3e-7, &context);
                if settings.variance {
                    let variance: Vec<f64> = variance.iter().map(|variance| variance.max(0.0)).collect();
                    near(&got.variance, &variance, tolerance, &context);
                }
                for bin in 0..settings.bins {
                    let mean = got.sum[bin] / got.normalization[bin];
                    assert!(if got.pixels[bin] > 0.0 { got.intensity[bin] == mean } else { got.intensity[bin].is_nan() });
                }
            }
        }
    }
}

#[test]
fn whole_pixels_equal_naive_integration() {
    check::<i16>(Splitting::None);
    check::<u16>(Splitting::None);
    check::<i32>(Splitting::None);
    check::<u32>(Splitting::None);
    check::<f32>(Splitting::None);
}

#[test]
fn split_pixels_equal_naive_integration() {
    check::<i16>(Splitting::Full);
    check::<u16>(Splitting::Full);
    check::<i32>(Splitting::Full);
    check::<u32>(Splitting::Full);
    check::<f32>(Splitting::Full);
}

#[test]
fn rectangles_equal_naive_integration() {
    check::<i16>(Splitting::BoundingBox);
    check::<u32>(Splitting::BoundingBox);
    check::<f32>(Splitting::BoundingBox);
}

#[test]
fn all_azimuths_of_a_cake_are_the_profile() {
    let g = Geometry::of_run([41, 53], &facts([25.3, 18.9], true)).unwrap();
    let mut random = Random(7);
    let pixels = pixels::<u16>(41 * 53, 20, &mut random);
    let usable: Vec<bool> = (0..pixels.len()).map(|_| !random.next().is_multiple_of(9)).collect();
    for splitting in [Splitting::None, Splitting::BoundingBox, Splitting::Full] {
        let range = Some([0.02, 0.5]);
        let settings = Settings { splitting, range, bins: 40, variance: false, ..Settings::default() };
        let plane = Plane::own(&pixels, 53);
        let profile = integrated(&mut Integrator::new(&g, settings.clone(), &usable).unwrap(), &plane);
        for (azimuth_bins, azimuth_deg) in [(12, None), (7, Some([-35.0, 325.0])), (1, Some([100.0, 460.0])), (2000, None)] {
            let settings = Settings { azimuth_bins, azimuth_deg, ..settings.clone() };
            let mut integrator = Integrator::new(&g, settings, &usable).unwrap();
            let cake = integrated(&mut integrator, &plane);
            assert_eq!((cake.radial.len(), cake.azimuth_deg.len(), cake.sum.len()), (40, azimuth_bins, 40 * azimuth_bins));
            let over = |list: &[f64]| -> Vec<f64> { (0..40).map(|bin| list.iter().skip(bin).step_by(40).sum()).collect() };
            let context = format!("{splitting:?} {azimuth_bins}");
            near(&over(&cake.sum), &profile.sum, 1e-6, &context);
            near(&over(&cake.pixels), &profile.pixels, 1e-6, &context);
            near(&over(&cake.normalization), &profile.normalization, 1e-6, &context);
        }
    }
}

#[test]
fn each_azimuth_of_a_cake_is_the_profile_of_its_sector() {
    let g = Geometry::of_run([43, 57], &facts([24.3, 19.9], true)).unwrap();
    let mut random = Random(11);
    let pixels = pixels::<u16>(43 * 57, 20, &mut random);
    let usable: Vec<bool> = (0..pixels.len()).map(|_| !random.next().is_multiple_of(9)).collect();
    let plane = Plane::own(&pixels, 57);
    // Shares of split pixels are numbers of single precision, and cut at other places.
    for (splitting, tolerance) in [(Splitting::None, 0.0), (Splitting::BoundingBox, 3e-7), (Splitting::Full, 3e-7)] {
        let base = Settings { splitting, range: Some([0.02, 0.5]), bins: 31, variance: true, ..Settings::default() };
        let settings = Settings { azimuth_bins: 9, azimuth_deg: Some([-170.0, 190.0]), ..base.clone() };
        let cake = integrated(&mut Integrator::new(&g, settings, &usable).unwrap(), &plane);
        for sector in 0..9 {
            let from_deg = -170.0 + 40.0 * sector as f64;
            let settings = Settings { azimuth_deg: Some([from_deg, from_deg + 40.0]), ..base.clone() };
            let profile = integrated(&mut Integrator::new(&g, settings, &usable).unwrap(), &plane);
            let of_sector = sector * 31..(sector + 1) * 31;
            // A mean over next to no pixel is known no better than its share.
            for (of_cake, of_profile, tolerance) in [
                (&cake.sum, &profile.sum, tolerance),
                (&cake.pixels, &profile.pixels, tolerance),
                (&cake.normalization, &profile.normalization, tolerance),
                (&cake.variance, &profile.variance, tolerance),
                (&cake.intensity, &profile.intensity, 1e3 * tolerance),
            ] {
                let is_known = |n: &usize| profile.pixels[*n] > 1e-3 || splitting == Splitting::None;
                let known = |list: &[f64]| (0..31).filter(is_known).map(|n| list[n]).collect::<Vec<_>>();
                near(&known(&of_cake[of_sector.clone()]), &known(of_profile), tolerance, &format!("{splitting:?}, {sector}"));
            }
            assert_eq!(profile.azimuth_deg.len(), 1);
            assert!((cake.azimuth_deg[sector] - profile.azimuth_deg[0]).abs() < 1e-9);
        }
    }
}

#[test]
fn pixels_in_a_bin_of_a_cake_lie_there() {
    let g = Geometry::of_run([60, 60], &facts([30.0, 30.0], false)).unwrap();
    // Only the pixels above the beam, to its right.
    let pixels: Vec<u16> = (0..3600).map(|n| u16::from(n / 60 < 30 && n % 60 >= 30)).collect();
    for splitting in [Splitting::None, Splitting::Full] {
        let settings = Settings { splitting, bins: 10, azimuth_bins: 4, solid_angle: false, ..Settings::default() };
        let mut integrator = Integrator::new(&g, settings, &vec![true; 3600]).unwrap();
        let cake = integrated(&mut integrator, &Plane::own(&pixels, 60));
        assert_eq!(cake.azimuth_deg, [-135.0, -45.0, 45.0, 135.0]);
        let sums: Vec<f64> = cake.sum.chunks(10).map(|row| row.iter().sum()).collect();
        near(&sums, &[0.0, 0.0, 900.0, 0.0], 1e-6, "quarters");
    }
}

#[test]
fn an_even_image_is_even() {
    let g = Geometry::of_run([101, 99], &facts([48.6, 51.2], true)).unwrap();
    let pixels = vec![7u32; 101 * 99];
    for splitting in [Splitting::None, Splitting::BoundingBox, Splitting::Full] {
        let settings = Settings { splitting, solid_angle: false, bins: 300, ..Settings::default() };
        let mut integrator = Integrator::new(&g, settings, &vec![true; pixels.len()]).unwrap();
        let profile = integrated(&mut integrator, &Plane::own(&pixels, 99));
        profile.intensity.iter().filter(|mean| !mean.is_nan()).for_each(|mean| assert!((mean - 7.0).abs() < 1e-6));
        assert!((profile.pixels.iter().sum::<f64>() - 9999.0).abs() < 1e-2, "{splitting:?}");
    }
}

#[test]
fn images_without_anything_to_sum() {
    let g = Geometry::of_run([5, 7], &facts([2.0, 2.0], false)).unwrap();
    for splitting in [Splitting::None, Splitting::BoundingBox, Splitting::Full] {
        let settings = Settings { splitting, bins: 4, variance: true, empty: -1.0, ..Settings::default() };
        let mut none = Integrator::new(&g, settings.clone(), &[false; 35]).unwrap();
        let profile = integrated(&mut none, &Plane::own(&[5i16; 35], 7));
        assert_eq!((profile.intensity, profile.pixels), (vec![-1.0; 4], vec![0.0; 4]));
        let mut all = Integrator::new(&g, settings.clone(), &[true; 35]).unwrap();
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let profile = integrated(&mut all, &Plane::own(&[special; 35], 7));
            assert_eq!((profile.intensity, profile.normalization, profile.sigma), (vec![-1.0; 4], vec![0.0; 4], vec![-1.0; 4]));
        }
        let empty = Geometry::of_run([0, 7], &facts([2.0, 2.0], false)).unwrap();
        let mut integrator = Integrator::new(&empty, settings, &[]).unwrap();
        assert_eq!(integrated(&mut integrator, &Plane::own(&[0u16; 0], 7)).intensity, [-1.0; 4]);
    }
}

#[test]
fn what_cannot_be_integrated_is_refused() {
    let g = Geometry::of_run([5, 7], &facts([2.0, 2.0], false)).unwrap();
    let base = Settings::default();
    for settings in [
        Settings { bins: 0, ..base.clone() },
        Settings { bins: usize::MAX, azimuth_bins: 2, ..base.clone() },
        Settings { range: Some([1.0, 1.0]), ..base.clone() },
        Settings { range: Some([f64::NAN, 1.0]), ..base.clone() },
        Settings { range: Some([0.0, f64::INFINITY]), ..base.clone() },
        Settings { radial: Radial::D, ..base.clone() },
        Settings { azimuth_deg: Some([10.0, 10.0]), ..base.clone() },
        Settings { azimuth_deg: Some([0.0, 361.0]), ..base.clone() },
        Settings { azimuth_deg: Some([f64::NAN, 1.0]), ..base.clone() },
        Settings { polarization: Some(1.5), ..base.clone() },
        Settings { polarization: Some(f64::NAN), ..base.clone() },
        Settings { splitting: Splitting::Full, bins: 1 << 20, ..base.clone() },
    ] {
        let result = Integrator::new(&g, settings.clone(), &[true; 35]);
        // Few pixels may be split among very many bins.
        assert!(result.is_err() || settings.bins == 1 << 20, "{settings:?}");
    }
    assert!(Integrator::new(&g, base.clone(), &[true; 34]).is_err());
    let no_energy = Metadata { energy_kev: None, ..facts([2.0, 2.0], false) };
    let no_energy = Geometry::of_run([5, 7], &no_energy).unwrap();
    assert!(Integrator::new(&no_energy, base.clone(), &[true; 35]).is_err());
    assert!(Integrator::new(&no_energy, Settings { radial: Radial::TwoTheta, ..base.clone() }, &[true; 35]).is_ok());
    let mut integrator = Integrator::new(&g, base, &[true; 35]).unwrap();
    let mut profile = integrator.profile();
    assert!(integrator.integrate(Isa::detect(), &Plane::own(&[0u16; 35], 5), &mut profile).is_err());
    assert!(integrator.integrate(Isa::detect(), &Plane::own(&[0u16; 35], 7), &mut Profile::default()).is_err());
}
