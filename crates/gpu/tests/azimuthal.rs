//! Azimuthal integration: every number of a profile is, bit for bit, that of the CPU.

mod common;

use common::{Numbers, difference};
use konkordia_analysis::azimuthal::{Integrator, Profile, Settings, Splitting, Summed};
use konkordia_analysis::geometry::{Geometry, Radial};
use konkordia_analysis::plane::Plane;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_gpu::layout::Lists;
use konkordia_kernels::Isa;

/// A detector that is tilted, with the beam inside of it.
fn geometry(rows: usize, columns: usize) -> Geometry {
    let (x, y) = (columns as f64 * 0.3, rows as f64 * 0.45);
    let origin = [-0.075 * x, -0.075 * y, 20.0];
    Geometry::new([rows, columns], origin, [0.0735, 0.0, 0.0149], [0.002, 0.075, -0.004], Some(1.0)).expect("a geometry")
}

/// The matrix of an integrator as the kernels take it.
struct Matrix {
    starts: Vec<u32>,
    entries: Vec<u32>,
    shares: Vec<f32>,
    weights: Vec<f32>,
    full: Vec<i64>,
    bins: usize,
    is_split: bool,
    settings: Settings,
}

impl Matrix {
    fn new(integrator: &Integrator) -> Self {
        let (elements, full) = (integrator.elements(), integrator.full());
        let is_split = integrator.settings().splitting != Splitting::None;
        let sums = full.len() * if is_split { 8 } else { 4 };
        let lists = Lists::new(sums, elements.iter().map(|element| element.sum));
        let ordered = || lists.order.iter().map(|n| &elements[*n as usize]);
        Self {
            entries: ordered().map(|element| element.pixel).collect(),
            shares: ordered().map(|element| element.share).collect(),
            weights: ordered().map(|element| element.weight).collect(),
            full: full.concat(),
            bins: full.len(),
            is_split,
            settings: integrator.settings().clone(),
            starts: lists.starts,
        }
    }

    /// Numbers of the bins of all images: 6 for each.
    fn integrate<P: Summed>(&self, images: &[P], pixels: usize, (low, high): (P, P), order: Order) -> Vec<f64> {
        let (name, count, sums) = (P::TYPE.name(), images.len() / pixels, self.starts.len() - 1);
        let grid = Grid { x: 2, y: count as u32 };
        let has_weights = self.settings.solid_angle || self.settings.polarization.is_some();
        let (has_weights, has_squares) = (u32::from(has_weights), u32::from(self.settings.variance));
        let weights: &[f32] = if has_weights == 1 { &self.weights } else { &[] };
        let mut lost = vec![7i64; 2 * sums * count];
        let mut numbers = vec![7.0; 6 * self.bins * count];
        let given = || {
            let lists = [Argument::read(&self.starts), Argument::read(&self.entries)];
            [Argument::read(images), Argument::number(low), Argument::number(high)].into_iter().chain(lists)
        };
        let run = |kernel: &str, arguments: Vec<Argument<'_>>| launch(kernel, grid, order, &arguments).expect("no fault");
        if self.is_split {
            let mut of_shares = vec![7.0f64; sums * count];
            let mut squares = vec![7.0f64; if has_squares == 1 { sums * count } else { 0 }];
            let rest = vec![
                Argument::read(&self.shares),
                Argument::read(weights),
                Argument::number(has_weights),
                Argument::number(has_squares),
                Argument::write(&mut of_shares),
                Argument::write(&mut squares),
                Argument::write(&mut lost),
                Argument::number(sums as u32),
                Argument::number(pixels as u32),
            ];
            run(&format!("integrate_split_{name}"), given().chain(rest).collect());
            let rest = vec![
                Argument::read(&of_shares),
                Argument::read(&squares),
                Argument::read(&lost),
                Argument::read(&self.full),
                Argument::number(self.settings.empty),
                Argument::number(has_squares),
                Argument::write(&mut numbers),
                Argument::number(self.bins as u32),
            ];
            run("bins_split", rest);
            return numbers;
        }
        let mut whole = vec![7u64; sums * count];
        let rest = vec![
            Argument::read(weights),
            Argument::number(has_weights),
            Argument::write(&mut whole),
            Argument::write(&mut lost),
            Argument::number(sums as u32),
            Argument::number(pixels as u32),
        ];
        run(&format!("integrate_whole_{name}"), given().chain(rest).collect());
        let rest = vec![
            Argument::read(&whole),
            Argument::read(&lost),
            Argument::read(&self.full),
            Argument::number(self.settings.empty),
            Argument::write(&mut numbers),
            Argument::number(self.bins as u32),
        ];
        run(&format!("bins_whole_{}", if P::TYPE.is_float() { "floats" } else { "integers" }), rest);
        numbers
    }
}

/// The numbers of a profile in the order of the kernels; variances are 0 where they were not asked for.
fn numbers_of(profile: &Profile, bin: usize) -> [f64; 4] {
    [profile.intensity[bin], profile.sum[bin], profile.normalization[bin], profile.pixels[bin]]
}

fn check<P: Summed>(geometry: &Geometry, settings: &Settings, order: Order, numbers: &mut Numbers) {
    let pixels = geometry.rows * geometry.columns;
    // Stretches of pixels that are not usable, and single ones.
    let usable: Vec<bool> = (0..pixels).map(|n| n / 50 % 9 != 4 && numbers.below(20) != 0).collect();
    let mut integrator = Integrator::new(geometry, settings.clone(), &usable).expect("an integrator");
    let matrix = Matrix::new(&integrator);
    for (rarity, range) in [(3, (P::VALID_MIN, P::VALID_MAX)), (400, (P::from_whole(1), P::from_whole(700)))] {
        let images: Vec<P> = numbers.pixels(2 * pixels, rarity);
        let ours = matrix.integrate(&images, pixels, range, order);
        for (n, (image, ours)) in images.chunks(pixels).zip(ours.chunks(6 * matrix.bins)).enumerate() {
            let mut profile = integrator.profile();
            integrator
                .integrate(Isa::Scalar, &Plane::new(image, geometry.columns, range.0, range.1), &mut profile)
                .expect("an image");
            let context = format!("{:?}, image {n}, {settings:?}", P::TYPE);
            let first: Vec<f64> = ours.chunks(6).flat_map(|bin| bin[..4].to_vec()).collect();
            let expected: Vec<f64> = (0..matrix.bins).flat_map(|bin| numbers_of(&profile, bin)).collect();
            assert_eq!(difference(&first, &expected), None, "{context}");
            if settings.variance {
                let [variance, sigma]: [Vec<f64>; 2] = [4, 5].map(|at| ours.chunks(6).map(|bin| bin[at]).collect());
                assert_eq!(difference(&variance, &profile.variance), None, "variance, {context}");
                assert_eq!(difference(&sigma, &profile.sigma), None, "standard deviation, {context}");
            }
        }
    }
}

fn check_all(geometry: &Geometry, settings: &Settings, order: Order, seed: u64) {
    let mut numbers = Numbers(seed);
    check::<i16>(geometry, settings, order, &mut numbers);
    check::<u16>(geometry, settings, order, &mut numbers);
    check::<i32>(geometry, settings, order, &mut numbers);
    check::<u32>(geometry, settings, order, &mut numbers);
    check::<f32>(geometry, settings, order, &mut numbers);
}

#[test]
fn profiles_of_whole_pixels_are_those_of_the_cpu() {
    let plain = Settings { bins: 37, solid_angle: false, ..Settings::default() };
    check_all(&geometry(40, 61), &plain, Order::Parallel(2), 0xA21A_0000_1234_5679);
    let all = Settings { polarization: Some(0.9), solid_angle: true, variance: true, empty: -1.0, ..plain };
    check_all(&geometry(40, 61), &all, Order::Mixed(4), 0xA21B_0000_1234_5679);
}

#[test]
fn cakes_are_those_of_the_cpu() {
    let cake = Settings { bins: 11, azimuth_bins: 7, radial: Radial::TwoTheta, ..Settings::default() };
    check_all(&geometry(33, 50), &cake, Order::Down, 0xA21C_0000_1234_5679);
    let split = Settings { splitting: Splitting::Full, variance: true, ..cake };
    check_all(&geometry(33, 50), &split, Order::Parallel(2), 0xA21D_0000_1234_5679);
}

#[test]
fn profiles_of_split_pixels_are_those_of_the_cpu() {
    // Bins narrower than pixels, so that many pixels lie in three and more.
    for (n, bins) in [9, 60, 150].into_iter().enumerate() {
        let splitting = [Splitting::BoundingBox, Splitting::Full][n % 2];
        let plain = Settings { bins, splitting, solid_angle: n == 0, variance: n > 0, ..Settings::default() };
        check_all(
            &geometry(31, 44),
            &plain,
            [Order::Parallel(2), Order::Down, Order::Mixed(2)][n],
            0xA21E_0000_1234_5679 + n as u64,
        );
    }
}

/// More bins than 16 bits can number, and bins that no pixel reaches.
#[test]
fn many_bins_and_empty_ones_are_those_of_the_cpu() {
    let mut numbers = Numbers(0xA21F_0000_1234_5679);
    let many = Settings { bins: 70_000, range: Some([0.0, 500.0]), solid_angle: false, ..Settings::default() };
    check::<i32>(&geometry(12, 17), &many, Order::Parallel(2), &mut numbers);
    check::<f32>(&geometry(12, 17), &many, Order::Down, &mut numbers);
}
