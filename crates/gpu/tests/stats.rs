//! Statistics of images: bit for bit those of the workers.

mod common;

use common::Numbers;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_kernels::Isa;
use konkordia_kernels::stats::{self, Measured, PixelStats, STATS_NUMBERS};

/// Statistics of the strips of an image, and of the image.
type Found = (Vec<[u64; STATS_NUMBERS]>, [u64; STATS_NUMBERS]);

fn expected<P: Measured>(image: &[P], strip: usize, within: Option<(&[bool], P, P)>) -> Found {
    let mut all = PixelStats::default();
    let strips = image.chunks(strip).enumerate().map(|(n, pixels)| {
        let mut stats = PixelStats::default();
        match within {
            None => stats::add(Isa::Scalar, pixels, &mut stats),
            Some((usable, low, high)) => {
                stats::add_within(Isa::Scalar, pixels, &usable[n * strip..][..pixels.len()], (low, high), &mut stats);
            }
        }
        all.merge(&stats);
        stats.bits()
    });
    let strips = strips.collect();
    (strips, all.bits())
}

fn found<P: Measured>(images: &[P], pixels: usize, strip: usize, within: Option<(&[u8], P, P)>, order: Order) -> Vec<Found> {
    let (count, strips) = (images.len() / pixels, pixels.div_ceil(strip));
    let (mut numbers, mut merged) = (vec![9u64; STATS_NUMBERS * strips * count], vec![9u64; STATS_NUMBERS * count]);
    let mut arguments = vec![Argument::read(images)];
    if let Some((usable, low, high)) = within {
        arguments.extend([Argument::read(usable), Argument::number(low), Argument::number(high)]);
    }
    arguments.extend([Argument::write(&mut numbers), Argument::number(pixels as u32), Argument::number(strip as u32)]);
    let kernel = format!("stats{}_{}", if within.is_some() { "_within" } else { "" }, P::TYPE.name());
    launch(&kernel, Grid { x: strips as u32, y: count as u32 }, order, &arguments).expect("no fault");
    let arguments =
        [Argument::read(&numbers), Argument::write(&mut merged), Argument::number(strips as u32), Argument::number(count as u32)];
    let kind = if P::TYPE.is_float() { "floats" } else { "integers" };
    launch(&format!("merge_stats_{kind}"), Grid { x: 1, y: 1 }, order, &arguments).expect("no fault");
    let of_image = numbers.chunks(STATS_NUMBERS * strips).zip(merged.as_chunks::<STATS_NUMBERS>().0);
    of_image.map(|(strips, all)| (strips.as_chunks::<STATS_NUMBERS>().0.to_vec(), *all)).collect()
}

fn check<P: Measured>() {
    let mut numbers = Numbers(0x57A7_0000_1234_5679);
    let orders = [Order::Parallel(2), Order::Down, Order::Mixed(7)];
    for (n, (pixels, strip)) in
        [(1, 256), (255, 256), (300, 256), (4096, 4096), (4099, 4096), (9001, 5120)].into_iter().enumerate()
    {
        for rarity in [1, 2, 50, 100_000] {
            let mut images: Vec<P> = numbers.pixels(2 * pixels, rarity);
            if n % 2 == 0 {
                // A stretch of gaps, and zeros of both signs as the lowest values.
                images.iter_mut().skip(70).take(600).for_each(|pixel| *pixel = P::MASKED);
                images.iter_mut().step_by(31).for_each(|pixel| *pixel = P::from_photons(-0.0));
            }
            let expected_own: Vec<Found> = images.chunks(pixels).map(|image| expected(image, strip, None)).collect();
            assert_eq!(found(&images, pixels, strip, None, orders[n % 3]), expected_own, "{:?}, {pixels} pixels", P::TYPE);

            let usable: Vec<bool> = (0..pixels).map(|_| numbers.below(9) != 0).collect();
            let bytes: Vec<u8> = usable.iter().map(|usable| u8::from(*usable)).collect();
            let (low, high) = [(P::VALID_MIN, P::VALID_MAX), (P::from_whole(1), P::from_whole(500))][n % 2];
            let expected_within: Vec<Found> =
                images.chunks(pixels).map(|image| expected(image, strip, Some((&usable, low, high)))).collect();
            let ours = found(&images, pixels, strip, Some((&bytes, low, high)), orders[(n + 1) % 3]);
            assert_eq!(ours, expected_within, "{:?}, {pixels} pixels, {low:?} to {high:?}", P::TYPE);
        }
    }
}

/// Sums of floats of very different sizes, of which every order gives another one, and zeros of both signs, of which
/// the first is the lowest and the highest.
#[test]
fn sums_of_floats_are_made_in_the_order_of_the_cpu() {
    let mut numbers = Numbers(0x57A8_0000_1234_5679);
    let (pixels, strip) = (3 * 4096 + 700, 4096 + 256);
    let wide = |numbers: &mut Numbers| (numbers.below(2000) as f32 - 999.5) * 10f32.powi(numbers.below(24) as i32 - 6);
    let zero = |numbers: &mut Numbers| if numbers.below(2) == 0 { 0.0 } else { -0.0 };
    let mut image: Vec<f32> = (0..pixels).map(|_| wide(&mut numbers)).collect();
    image.extend((0..pixels).map(|_| zero(&mut numbers)));
    let backwards: f64 = image[..pixels].iter().rev().map(|value| f64::from(*value)).sum();
    for order in [Order::Parallel(2), Order::Mixed(3)] {
        let ours = found(&image, pixels, strip, None, order);
        let theirs: Vec<Found> = image.chunks(pixels).map(|image| expected(image, strip, None)).collect();
        assert_eq!(ours, theirs);
        assert_ne!(ours[0].1[5], backwards.to_bits(), "the order matters");
    }
}

#[test]
fn statistics_are_those_of_the_cpu() {
    check::<i16>();
    check::<u16>();
    check::<i32>();
    check::<u32>();
    check::<f32>();
}
