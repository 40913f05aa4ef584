//! Dark and signal frames in any order: images and pedestals are those of the CPU, frame by frame.

mod common;

use common::{Numbers, difference};
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_kernels::convert::{Tracker, jungfrau, jungfrau_track_only, jungfrau_tracking, saturate_high_gain};
use konkordia_kernels::{Constants, Isa, OutputPixel};

const NO_IMAGE: u32 = u32::MAX;

/// What is done with a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    /// Makes an image and moves the pedestals.
    Both,
    /// Makes an image with the pedestals as they are.
    Signal,
    /// Moves the pedestals only.
    Dark,
    /// Nothing.
    Skip,
}

struct Series {
    words: Vec<u16>,
    pedestal: Vec<f32>,
    factor: Vec<f32>,
    gate: Vec<f32>,
    weight: f32,
    high_gain: bool,
}

impl Series {
    fn new(pixels: usize, frames: usize, numbers: &mut Numbers) -> Self {
        let word = |numbers: &mut Numbers| match numbers.below(10) {
            0 => [0, 0x3FFF, 0x4000, 0xC000, 0xFFFF, 0x8001][numbers.below(6) as usize],
            1..8 => 2900 + numbers.below(300) as u16,
            _ => numbers.next() as u16,
        };
        let mut plane = |low: f32, width: u64, is_masked: bool| -> Vec<f32> {
            let value = |n: usize| match n % 13 {
                5 if is_masked => f32::NAN,
                _ => low + numbers.below(width) as f32 * 0.37,
            };
            (0..pixels).map(value).collect()
        };
        let pedestal = [plane(2950.0, 500, true), plane(14_000.0, 900, false), plane(13_000.0, 900, true)].concat();
        let factor = [plane(0.02, 1, true), plane(-0.7, 1, false), plane(-9.0, 1, false)].concat();
        let gate = plane(-3.0, 300, false);
        let words = (0..pixels * frames).map(|_| word(numbers)).collect();
        Self { words, pedestal, factor, gate, weight: 0.125, high_gain: frames.is_multiple_of(2) }
    }

    /// Images and pedestals of the CPU.
    fn expected<P: OutputPixel>(&self, uses: &[Use]) -> (Vec<P>, Vec<f32>) {
        let pixels = self.gate.len();
        let planes = |all: &[f32]| [0, 1, 2].map(|stage| all[stage * pixels..(stage + 1) * pixels].to_vec());
        let (fixed, factor) = (planes(&self.pedestal), planes(&self.factor));
        let mut tracked = fixed[0].clone();
        let mut images = Vec::new();
        for (words, used) in self.words.chunks(pixels).zip(uses) {
            let before = tracked.clone();
            let constants =
                Constants { pedestal: [&before, &fixed[1], &fixed[2]], factor: factor.each_ref().map(|plane| &plane[..]) };
            let mut tracker = Tracker { pedestal: &mut tracked, gate: &self.gate, weight: self.weight };
            let mut out = vec![P::default(); pixels];
            match used {
                Use::Both => jungfrau_tracking(Isa::Scalar, words, &constants, &mut tracker, &mut out),
                Use::Signal => jungfrau(Isa::Scalar, words, &constants, &mut out),
                Use::Dark => jungfrau_track_only(Isa::Scalar, words, &mut tracker),
                Use::Skip => {}
            }
            if matches!(used, Use::Both | Use::Signal) {
                if self.high_gain {
                    saturate_high_gain(words, &mut out);
                }
                images.extend(out);
            }
        }
        (images, tracked)
    }

    fn found<P: OutputPixel>(&self, uses: &[Use], grid: u32, order: Order) -> (Vec<P>, Vec<f32>) {
        let pixels = self.gate.len();
        let mut next = 0;
        let image_of = |used: &Use| {
            let has_image = matches!(used, Use::Both | Use::Signal);
            next += u32::from(has_image);
            if has_image { next - 1 } else { NO_IMAGE }
        };
        let images_of: Vec<u32> = uses.iter().map(image_of).collect();
        let moves: Vec<u8> = uses.iter().map(|used| u8::from(matches!(used, Use::Both | Use::Dark))).collect();
        let mut images = vec![P::from_photons(77.0); next as usize * pixels];
        let mut tracked = self.pedestal[..pixels].to_vec();
        let arguments = [
            Argument::read(&self.words),
            Argument::read(&self.pedestal),
            Argument::read(&self.factor),
            Argument::write(&mut tracked),
            Argument::read(&self.gate),
            Argument::number(self.weight),
            Argument::number(u32::from(self.high_gain)),
            Argument::read(&images_of),
            Argument::read(&moves),
            Argument::write(&mut images),
            Argument::number(pixels as u32),
            Argument::number(uses.len() as u32),
        ];
        launch(&format!("convert_series_{}", P::TYPE.name()), Grid { x: grid, y: 1 }, order, &arguments).expect("no fault");
        (images, tracked)
    }
}

fn check<P: OutputPixel>(numbers: &mut Numbers) {
    use Use::{Both, Dark, Signal, Skip};
    let orders = [
        vec![Dark, Signal, Dark, Signal, Dark, Signal],
        vec![Signal, Dark, Dark, Both, Skip, Signal, Both],
        vec![Dark, Skip],
        vec![Both, Signal, Both],
    ];
    for (n, uses) in orders.iter().enumerate() {
        for (pixels, grid, order) in [(1, 1, Order::Parallel(2)), (257, 2, Order::Down), (3001, 4, Order::Mixed(3))] {
            let series = Series::new(pixels, uses.len(), numbers);
            let (images, pedestal) = series.found::<P>(uses, grid, order);
            let (images_expected, pedestal_expected) = series.expected::<P>(uses);
            assert_eq!(difference(&images, &images_expected), None, "{:?}, series {n}, {pixels} pixels", P::TYPE);
            assert_eq!(difference(&pedestal, &pedestal_expected), None, "{:?}, series {n}: pedestals", P::TYPE);
            let moved = pedestal.iter().zip(&series.pedestal).filter(|(a, b)| a != b && !a.is_nan()).count();
            assert!(pixels < 100 || moved > pixels / 20, "{moved} pedestals moved");
        }
    }
}

#[test]
fn dark_and_signal_frames_are_those_of_the_cpu() {
    let mut numbers = Numbers(0x5E21_0000_1234_5679);
    check::<i16>(&mut numbers);
    check::<u16>(&mut numbers);
    check::<i32>(&mut numbers);
    check::<u32>(&mut numbers);
    check::<f32>(&mut numbers);
}
