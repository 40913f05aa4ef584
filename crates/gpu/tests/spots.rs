//! peakfinder8: spots and background are, bit for bit, those of the CPU.

mod common;

use common::Numbers;
use konkordia_analysis::peakfinder8::{Panel, Peakfinder8, Settings};
use konkordia_analysis::plane::Plane;
use konkordia_analysis::spot::{Rectangle, Spot, SpotList};
use konkordia_core::pixel::Pixel;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_gpu::layout::Lists;
use konkordia_kernels::Isa;
use konkordia_kernels::stats::Measured;

struct Scene {
    rows: usize,
    columns: usize,
    panels: Vec<Panel>,
    radius_px: Vec<f32>,
    usable: Vec<bool>,
    settings: Settings,
}

impl Scene {
    fn new((rows, columns): (usize, usize), panels: &[Panel], settings: Settings, numbers: &mut Numbers) -> Self {
        let (x, y) = (columns as f32 * 0.4, rows as f32 * 0.6);
        let radius = |n: usize| ((n % columns) as f32 - x).hypot((n / columns) as f32 - y);
        let radius_px = (0..rows * columns).map(radius).collect();
        let usable = (0..rows * columns).map(|_| numbers.below(50) != 0).collect();
        Self { rows, columns, panels: panels.to_vec(), radius_px, usable, settings }
    }

    /// Noise about `background`, with peaks of several pixels; some pixels are special.
    fn image<P: Measured>(&self, background: i64, peaks: usize, numbers: &mut Numbers) -> Vec<P> {
        let count = self.rows * self.columns;
        let noise = |numbers: &mut Numbers| (0..7).map(|_| (numbers.next() & 1) as i64).sum::<i64>();
        let mut values: Vec<i64> = (0..count).map(|_| background + noise(numbers)).collect();
        for _ in 0..peaks {
            let (x, y) = (numbers.below(self.columns as u64) as usize, numbers.below(self.rows as u64) as usize);
            let height = numbers.below(150) as i64;
            for (dx, dy, part) in [(0, 0, 1), (1, 0, 2), (0, 1, 2), (1, 1, 3), (2, 0, 5)] {
                if x + dx < self.columns && y + dy < self.rows {
                    values[(y + dy) * self.columns + x + dx] += height / part;
                }
            }
        }
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
        let pixel = |value: i64| match numbers.next() {
            word if word.is_multiple_of(60) => special[(word / 60) as usize % special.len()],
            word if P::TYPE.is_float() => P::from_photons(value as f32 + (word % 100) as f32 * 0.01),
            _ => P::from_whole(value),
        };
        values.into_iter().map(pixel).collect()
    }

    /// The ring of each pixel, as `peakfinder8` says it: the distance from the beam, rounded, less the lowest, plus 1.
    fn rings(&self) -> (Vec<u16>, usize) {
        let is_used = |n: usize| {
            let radius = f64::from(self.radius_px[n]);
            let is_in = self.panels.iter().any(|panel| panel.contains(n % self.columns, n / self.columns));
            self.usable[n] && is_in && radius > self.settings.radius_min_px && radius < self.settings.radius_max_px
        };
        let whole = |n: usize| self.radius_px[n].round_ties_even() as i64;
        let used: Vec<usize> = (0..self.usable.len()).filter(|n| is_used(*n)).collect();
        let first = used.iter().map(|n| whole(*n)).min().expect("pixels that are used");
        let mut rings = vec![0; self.usable.len()];
        used.iter().for_each(|n| rings[*n] = (whole(*n) - first + 1) as u16);
        let count = usize::from(*rings.iter().max().expect("pixels")) + 1;
        (rings, count)
    }

    /// First column, first row, columns and rows of each panel.
    fn panel_numbers(&self) -> Vec<u32> {
        self.panels.iter().flat_map(|p| [p.x_px, p.y_px, p.columns, p.rows].map(|number| number as u32)).collect()
    }

    /// Half the width of each row of the circle around a spot, in which pixels are background.
    fn half_widths(&self) -> Vec<u32> {
        let reach = 2 * self.settings.local_background_radius_px;
        (0..2 * reach).map(|row| (reach.pow(2) - row.abs_diff(reach).pow(2)).isqrt()).collect()
    }

    fn expected<P: Measured>(&self, image: &[P], low: P, high: P) -> (Vec<Spot>, Option<f64>) {
        let mut finder = Peakfinder8::new(self.settings, &self.radius_px, &self.usable, self.rows, self.columns, &self.panels)
            .expect("a finder");
        let mut spots = SpotList::new(10_000);
        finder.find(Isa::Scalar, &Plane::new(image, self.columns, low, high), &mut spots);
        (spots.spots, finder.background())
    }
}

/// The kernels one after the other; `room` is that for seeds. Spots, background and number of seeds of each image.
fn found<P: Measured>(
    scene: &Scene,
    images: &[P],
    (low, high): (P, P),
    room: usize,
    order: Order,
) -> Vec<(Vec<Spot>, Option<f64>, u32)> {
    let name = P::TYPE.name();
    let pixels = scene.rows * scene.columns;
    let count = images.len() / pixels;
    let (ring_of, rings) = scene.rings();
    let lists = Lists::new(rings, ring_of.iter().map(|ring| usize::from(*ring)));
    let Settings { threshold, snr_min, pixels_min, pixels_max, local_background_radius_px, pixel_max, .. } = scene.settings;
    let (mut limits, mut means) = (vec![0.0f64; rings * count], vec![0.0f64; rings * count]);
    let mut moments = vec![0u64; 2 * rings * count];
    let grid = |x: usize| Grid { x: x as u32, y: count as u32 };
    let of_image = || [Argument::read(images), Argument::number(low), Argument::number(high)];
    let run = |kernel: &str, grid: Grid, arguments: Vec<Argument<'_>>| launch(kernel, grid, order, &arguments).expect("no fault");

    let rest = vec![
        Argument::read(&lists.starts),
        Argument::read(&lists.order),
        Argument::number(threshold),
        Argument::number(snr_min),
        Argument::write(&mut limits),
        Argument::write(&mut means),
        Argument::write(&mut moments),
        Argument::number(pixels as u32),
    ];
    run(&format!("ring_limits_{name}"), grid(rings - 1), of_image().into_iter().chain(rest).collect());
    let (mut background, mut counts) = (vec![0.0f64; count], vec![0u64; count]);
    let rest = vec![
        Argument::read(&moments),
        Argument::number(u32::from(P::TYPE.is_float())),
        Argument::write(&mut background),
        Argument::write(&mut counts),
        Argument::number(rings as u32),
        Argument::number(count as u32),
    ];
    run("ring_background", Grid { x: 1, y: 1 }, rest);
    let mut marked = vec![9u8; images.len()];
    let rest = vec![
        Argument::read(&ring_of),
        Argument::read(&limits),
        Argument::write(&mut marked),
        Argument::number(pixels as u32),
        Argument::number(rings as u32),
    ];
    run(&format!("stands_out_{name}"), grid(2), of_image().into_iter().chain(rest).collect());

    let (panels, half_widths) = (scene.panel_numbers(), scene.half_widths());
    let (seed_places, seed_columns) = seeds(scene, &marked, &panels, (count, room), order);
    let shape = [scene.rows, scene.columns, rings, scene.panels.len()].map(|number| number as u32);
    let shape = [&shape[..], &[2 * local_background_radius_px, pixels_min, pixels_max, room as u32]].concat();
    let (mut groups, levels) = (vec![0u32; count * room * pixels_max as usize], [snr_min, pixel_max]);
    let (mut numbers, mut places) = (vec![0.0f64; 6 * count * room], vec![7u32; 5 * count * room]);
    let rest = vec![
        Argument::read(&ring_of),
        Argument::read(&limits),
        Argument::read(&means),
        Argument::read(&marked),
        Argument::read(&panels),
        Argument::read(&half_widths),
        Argument::read(&shape),
        Argument::read(&levels),
        Argument::read(&seed_places),
        Argument::read(&seed_columns),
        Argument::write(&mut groups),
        Argument::write(&mut numbers),
        Argument::write(&mut places),
    ];
    run(&format!("group_spots_{name}"), grid(1), of_image().into_iter().chain(rest).collect());
    let of = |image: usize| {
        let seeds = seed_places[(image + 1) * (scene.rows + 1) - 1];
        let at = |seed: usize| image * room + seed;
        let spots = (0..(seeds as usize).min(room)).filter_map(|n| spot(&numbers[6 * at(n)..], &places[5 * at(n)..])).collect();
        (spots, (counts[image] > 0).then_some(background[image]), seeds)
    };
    (0..count).map(of).collect()
}

/// Places of the rows and columns of the seeds of images, as `sparse.cu` lists the pixels above a level.
fn seeds(scene: &Scene, marked: &[u8], panels: &[u32], (images, room): (usize, usize), order: Order) -> (Vec<u32>, Vec<u32>) {
    let (rows, columns) = (scene.rows, scene.columns);
    let run = |kernel: &str, x: usize, arguments: &[Argument<'_>]| {
        launch(kernel, Grid { x: x as u32, y: if kernel == "row_places" { 1 } else { images as u32 } }, order, arguments)
            .expect("no fault");
    };
    let mut seeds = vec![9u16; marked.len()];
    let arguments = [
        Argument::read(marked),
        Argument::read(panels),
        Argument::number(scene.panels.len() as u32),
        Argument::write(&mut seeds),
        Argument::number(rows as u32),
        Argument::number(columns as u32),
    ];
    run("group_seeds", 2, &arguments);
    let usable = vec![1u8; rows * columns];
    let (mut counts, mut places) = (vec![0u32; rows * images], vec![0u32; (rows + 1) * images]);
    let pixels = || [Argument::read(&seeds), Argument::read(&usable), Argument::number(0u16), Argument::number(1u16)];
    let count: Vec<_> = pixels().into_iter().chain([Argument::write(&mut counts), Argument::number(columns as u32)]).collect();
    run("row_counts_uint16", rows, &count);
    run("row_places", images, &[Argument::read(&counts), Argument::number(rows as u32), Argument::write(&mut places)]);
    let (mut found, mut values) = (vec![0u32; room * images], vec![0u16; room * images]);
    let rest = [
        Argument::read(&places),
        Argument::write(&mut found),
        Argument::write(&mut values),
        Argument::number(columns as u32),
        Argument::number(room as u32),
    ];
    run("collect_uint16", rows, &pixels().into_iter().chain(rest).collect::<Vec<_>>());
    (places, found)
}

fn spot(numbers: &[f64], places: &[u32]) -> Option<Spot> {
    let [x_px, y_px, intensity, maximum, background, snr] = *numbers.first_chunk::<6>()?;
    let rectangle = Rectangle { first_px: [places[1], places[2]], last_px: [places[3], places[4]] };
    (places[0] > 0).then_some(Spot { x_px, y_px, intensity, maximum, background, snr, pixels: places[0], rectangle })
}

fn bits_of(spots: &[Spot]) -> Vec<[u64; 6]> {
    spots.iter().map(|s| [s.x_px, s.y_px, s.intensity, s.maximum, s.background, s.snr].map(f64::to_bits)).collect()
}

/// Two images, in both ranges of values. Returns the number of spots.
fn check<P: Measured>(scene: &Scene, (background, peaks): (i64, usize), order: Order, numbers: &mut Numbers) -> usize {
    let images: Vec<P> = (0..2).flat_map(|_| scene.image(background, peaks, numbers)).collect();
    let mut all = 0;
    for range in [(P::VALID_MIN, P::VALID_MAX), (P::from_whole(1), P::from_whole(60))] {
        let found = found(scene, &images, range, 500, order);
        for (n, (image, (spots, background, seeds))) in images.chunks(scene.rows * scene.columns).zip(found).enumerate() {
            let (spots_expected, background_expected) = scene.expected(image, range.0, range.1);
            let context = format!("{:?}, image {n}, {range:?}, {seeds} seeds", P::TYPE);
            assert!(seeds <= 500, "{context}");
            assert_eq!(spots, spots_expected, "{context}");
            assert_eq!(bits_of(&spots), bits_of(&spots_expected), "{context}");
            assert_eq!(background.map(f64::to_bits), background_expected.map(f64::to_bits), "{context}");
            all += spots.len();
        }
    }
    all
}

fn check_all(scene: &Scene, what: (i64, usize), order: Order, seed: u64) -> usize {
    let mut numbers = Numbers(seed);
    check::<i16>(scene, what, Order::Parallel(2), &mut numbers)
        + check::<u16>(scene, what, order, &mut numbers)
        + check::<i32>(scene, what, order, &mut numbers)
        + check::<u32>(scene, what, order, &mut numbers)
        + check::<f32>(scene, what, order, &mut numbers)
}

fn settings() -> Settings {
    Settings { threshold: 10.0, snr_min: 4.0, local_background_radius_px: 3, ..Settings::default() }
}

#[test]
fn spots_of_one_panel_are_those_of_the_cpu() {
    let mut numbers = Numbers(0x9EA1_0000_1234_5679);
    let scene = Scene::new((30, 40), &[Panel::whole(30, 40)], settings(), &mut numbers);
    assert!(check_all(&scene, (0, 40), Order::Mixed(3), 0xC0FF_EE00_1234_5679) > 40);
}

/// Panels with gaps between them; groups must not go from one to the next, and rims begin none.
#[test]
fn spots_of_several_panels_are_those_of_the_cpu() {
    let mut numbers = Numbers(0x9EA2_0000_1234_5679);
    let panel = |x_px, y_px, columns, rows| Panel { x_px, y_px, columns, rows };
    let panels = [panel(0, 0, 20, 30), panel(20, 0, 17, 14), panel(22, 14, 15, 16), panel(3, 31, 30, 2), panel(39, 5, 1, 20)];
    let settings =
        Settings { radius_min_px: 2.0, radius_max_px: 25.0, pixels_min: 1, local_background_radius_px: 1, ..settings() };
    let scene = Scene::new((33, 41), &panels, settings, &mut numbers);
    assert!(check_all(&scene, (0, 60), Order::Down, 0xC0FF_EE01_1234_5679) > 40);
    // Four that touch, with a line of pixels across each border.
    let panels = [panel(0, 0, 14, 13), panel(14, 0, 16, 13), panel(0, 13, 14, 13), panel(14, 13, 16, 13)];
    let scene = Scene::new((26, 30), &panels, Settings { pixels_min: 1, ..self::settings() }, &mut numbers);
    let mut image: Vec<i32> = scene.image(0, 0, &mut numbers);
    for (first, step) in [((5, 11), (0, 1)), ((21, 11), (0, 1)), ((12, 6), (1, 0)), ((12, 20), (1, 0))] {
        (0..4).for_each(|n| image[(first.1 + n * step.1) * 30 + first.0 + n * step.0] = 60 + n as i32);
    }
    let range = (0, 1000);
    let (spots, _, _) = found(&scene, &image, range, 300, Order::Parallel(2)).remove(0);
    assert_eq!(spots, scene.expected(&image, range.0, range.1).0);
    assert!(spots.len() >= 4, "both halves of a line among them: {spots:?}");
}

/// Groups that are too large, groups with several seeds, pixels that are too high, and a background far from zero.
#[test]
fn limits_of_spots_are_those_of_the_cpu() {
    let mut numbers = Numbers(0x9EA3_0000_1234_5679);
    let settings = Settings { pixels_min: 3, pixels_max: 9, pixel_max: 90.0, threshold: -50.0, snr_min: 2.0, ..settings() };
    let scene = Scene::new((24, 30), &[Panel::whole(24, 30)], settings, &mut numbers);
    assert!(check::<u16>(&scene, (20, 90), Order::Parallel(2), &mut numbers) > 0);
    assert!(check::<f32>(&scene, (20, 90), Order::Parallel(2), &mut numbers) > 0);
    assert!(check::<i32>(&scene, (-30, 60), Order::Parallel(3), &mut numbers) > 0);
}

/// Pixels below and above zero put the weighted position outside of the panel, along one axis only.
#[test]
fn spots_outside_of_their_panel_are_left_out_as_on_the_cpu() {
    let mut numbers = Numbers(0x9EA6_0000_1234_5679);
    let settings = Settings { pixels_min: 2, threshold: -100.0, snr_min: 4.0, ..settings() };
    let scene = Scene::new((30, 34), &[Panel::whole(30, 34)], settings, &mut numbers);
    for (first, step) in [((28, 10), (1, 0)), ((4, 10), (1, 0)), ((12, 26), (0, 1)), ((12, 3), (0, 1)), ((15, 12), (1, 1))] {
        for values in [[-11, 12], [12, -11], [40, 30]] {
            let mut image: Vec<i32> = (0..30 * 34).map(|_| -40 + numbers.below(4) as i32).collect();
            for (n, value) in values.into_iter().enumerate() {
                image[(first.1 + n * step.1) * 34 + first.0 + n * step.0] = value;
            }
            let range = (i32::VALID_MIN, i32::VALID_MAX);
            let (spots, _, _) = found(&scene, &image, range, 300, Order::Parallel(2)).remove(0);
            assert_eq!(spots, scene.expected(&image, range.0, range.1).0, "{first:?}, {values:?}");
        }
    }
}

/// A group in whose surroundings no pixel is usable has the mean of its ring as background.
#[test]
fn a_spot_without_surroundings_is_that_of_the_cpu() {
    let mut numbers = Numbers(0x9EA7_0000_1234_5679);
    let settings = Settings { pixels_min: 1, local_background_radius_px: 1, ..settings() };
    let mut scene = Scene::new((30, 34), &[Panel::whole(30, 34)], settings, &mut numbers);
    let mut image: Vec<f32> = scene.image(20, 0, &mut numbers);
    for (x, y) in (8..16).flat_map(|x| (8..16).map(move |y| (x, y))) {
        scene.usable[y * 34 + x] = (11..13).contains(&x) && y == 12;
        image[y * 34 + x] = 150.0;
    }
    let range = (f32::VALID_MIN, f32::VALID_MAX);
    let (spots, _, _) = found(&scene, &image, range, 300, Order::Parallel(2)).remove(0);
    let expected = scene.expected(&image, range.0, range.1).0;
    let alone = expected.iter().find(|spot| spot.rectangle == Rectangle { first_px: [11, 12], last_px: [12, 12] });
    assert!(alone.expect("the pixels in the hole").background > 20.0);
    assert_eq!(bits_of(&spots), bits_of(&expected));
}

/// The arithmetic of 128 bits, at carries, borrows and ties.
#[test]
fn whole_numbers_of_128_bits_are_exact() {
    let mut numbers = Numbers(0x9EA8_0000_1234_5679);
    let mut cases: Vec<[u64; 3]> =
        vec![[u64::MAX, u64::MAX, u64::MAX], [1 << 63, 2, 1], [1 << 32, 1 << 32, 0], [0, 0, 0], [1, 5, 5]];
    // 2^64 x (2^53 + 1) is half way between two numbers of double precision; one more or less decides.
    for half in [(1u64 << 53) + 1, (1 << 53) + 3, (1 << 54) + 2, (1 << 54) + 6] {
        cases.extend([0, 1, u64::MAX].map(|more| [half << 8, 1 << 60, more]));
    }
    let mut any = || numbers.next() << 11 ^ numbers.next();
    cases.extend((0..2000).map(|n| [any() >> (n % 50), any() >> (n % 37), any() >> (n % 20)]));
    // None is below 0.
    cases.retain(|[a, b, c]| u128::from(*a) * u128::from(*b) >= u128::from(*c));
    let mut out = vec![0u64; 6 * cases.len()];
    let arguments = [Argument::read(cases.as_flattened()), Argument::write(&mut out), Argument::number(cases.len() as u32)];
    launch("probe_big", Grid { x: 1, y: 1 }, Order::Parallel(2), &arguments).expect("no fault");
    for ([a, b, c], out) in cases.iter().zip(out.chunks(6)) {
        let product = u128::from(*a) * u128::from(*b);
        let of = |number: u128| [(number >> 64) as u64, number as u64, (number as f64).to_bits()];
        let sum = product.wrapping_add(u128::from(*c));
        assert_eq!(out, [of(sum), of(product - u128::from(*c))].concat(), "{a} {b} {c}");
    }
}

/// Values near the ends of 32 bits: sums of squares beyond 64 bits.
#[test]
fn large_values_are_summed_exactly() {
    let mut numbers = Numbers(0x9EA4_0000_1234_5679);
    let scene = Scene::new((24, 300), &[Panel::whole(24, 300)], Settings { threshold: -1e9, ..settings() }, &mut numbers);
    let mut values = |low: i64, width: u64| -> Vec<i64> { (0..24 * 300).map(|_| low + numbers.below(width) as i64).collect() };
    let low: Vec<i32> = values(-999_999_990, 1000).iter().map(|value| *value as i32).collect();
    let wide: Vec<u32> = values(1, 999_999_998).iter().map(|value| *value as u32).collect();
    for (spots, expected) in [
        (
            found(&scene, &low, (i32::MIN + 3, i32::MAX - 1), 900, Order::Parallel(2)),
            scene.expected(&low, i32::MIN + 3, i32::MAX - 1),
        ),
        (found(&scene, &wide, (0, u32::MAX - 4), 900, Order::Parallel(2)), scene.expected(&wide, 0, u32::MAX - 4)),
    ] {
        assert_eq!(spots[0].0, expected.0);
        assert_eq!(spots[0].1.map(f64::to_bits), expected.1.map(f64::to_bits));
    }
}

/// What has no room is counted: the caller sees that spots are missing, and has the first ones.
#[test]
fn seeds_without_room_are_counted() {
    let mut numbers = Numbers(0x9EA5_0000_1234_5679);
    let scene = Scene::new((40, 52), &[Panel::whole(40, 52)], settings(), &mut numbers);
    let image: Vec<i32> = scene.image(0, 60, &mut numbers);
    let range = (i32::VALID_MIN, i32::VALID_MAX);
    let whole = found(&scene, &image, range, 500, Order::Parallel(2)).remove(0);
    let part = found(&scene, &image, range, 5, Order::Parallel(2)).remove(0);
    assert!(part.2 == whole.2 && whole.2 > 5 && part.0.len() <= 5);
    assert_eq!(part.0, whole.0[..part.0.len()]);
}
