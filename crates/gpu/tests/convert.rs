//! JUNGFRAU words to pixels: bit for bit those of the scalar code of the CPU.

use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_kernels::convert::{
    FixedConstants, Tracker, jungfrau, jungfrau_fixed, jungfrau_track_only, jungfrau_tracking, saturate_high_gain,
};
use konkordia_kernels::{Constants, Isa, OutputPixel};

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn float(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.next() % (1 << 24)) as f32 / (1 << 24) as f32
    }

    /// Words of all stages; about one of five is special, or at an end of its stage.
    fn word(&mut self) -> u16 {
        const EDGES: [u16; 12] = [0, 1, 0x3FFF, 0x3FFE, 0x4000, 0x4001, 0x7FFF, 0x8000, 0xBFFF, 0xC000, 0xC001, 0xFFFF];
        match self.next() % 20 {
            0..4 => EDGES[self.next() as usize % EDGES.len()],
            4..12 => self.next() as u16 & 0x3FFF,
            _ => self.next() as u16,
        }
    }
}

/// Three planes, one after the other.
struct Planes {
    pedestal: Vec<f32>,
    factor: Vec<f32>,
    gate: Vec<f32>,
}

impl Planes {
    /// Different constants in each stage and pixel. About one of ten is a mask, or at an edge of what constants can be.
    fn new(pixels: usize, numbers: &mut Numbers) -> Self {
        const EDGES: [f32; 8] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-42, f32::MAX, -f32::MAX];
        let mut plane = |ends: [(f32, f32); 3]| -> Vec<f32> {
            let values = ends.into_iter().flat_map(|ends| std::iter::repeat_n(ends, pixels));
            values
                .map(|(low, high)| match numbers.next() % 10 {
                    0 => EDGES[numbers.next() as usize % EDGES.len()],
                    _ => numbers.float(low, high),
                })
                .collect()
        };
        let pedestal = plane([(2000.0, 4000.0), (13000.0, 15000.0), (12000.0, 14000.0)]);
        let mut factor = plane([(0.001, 0.05), (-2.0, -0.1), (-40.0, -1.0)]);
        let mut gate = plane([(-5.0, 400.0); 3]);
        gate.truncate(pixels);
        // An infinite gate is not allowed where the pedestal is infinite.
        gate.iter_mut().filter(|gate| gate.is_infinite()).for_each(|gate| *gate = 1e30);
        for at in (0..pixels).step_by(7) {
            (0..3).for_each(|stage| factor[stage * pixels + at] = f32::NAN);
        }
        Self { pedestal, factor, gate }
    }

    fn constants(&self) -> Constants<'_> {
        let pixels = self.gate.len();
        let of = |stage: usize| stage * pixels..(stage + 1) * pixels;
        Constants {
            pedestal: [&self.pedestal[of(0)], &self.pedestal[of(1)], &self.pedestal[of(2)]],
            factor: [&self.factor[of(0)], &self.factor[of(1)], &self.factor[of(2)]],
        }
    }
}

/// Pixels in the order of the frames, and pedestals after them, from the CPU.
fn expected<P: OutputPixel>(words: &[u16], planes: &Planes, weight: Option<f32>, high_gain: bool) -> (Vec<P>, Vec<f32>) {
    let pixels = planes.gate.len();
    let mut pedestal = planes.pedestal[..pixels].to_vec();
    let mut out = vec![P::default(); words.len()];
    for (words, out) in words.chunks(pixels).zip(out.chunks_mut(pixels)) {
        match weight {
            Some(weight) => {
                let mut tracker = Tracker { pedestal: &mut pedestal, gate: &planes.gate, weight };
                jungfrau_tracking(Isa::Scalar, words, &planes.constants(), &mut tracker, out);
            }
            None => jungfrau(Isa::Scalar, words, &planes.constants(), out),
        }
        if high_gain {
            saturate_high_gain(words, out);
        }
    }
    (out, pedestal)
}

fn bits<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// The first difference, as words and pixels; `None` if all bits are equal.
fn difference<P: OutputPixel>(words: &[u16], ours: &[P], theirs: &[P]) -> Option<String> {
    let at = ours.iter().zip(theirs).position(|(a, b)| bits(&[*a]) != bits(&[*b]))?;
    Some(format!("word {:#06x} at {at} is {:?}, on the CPU {:?}", words[at], ours[at], theirs[at]))
}

fn check<P: OutputPixel>(name: &str) {
    let mut numbers = Numbers(0x5EED_0000_1234_5679);
    for (pixels, frames, grid) in [(1, 1, 1), (7, 3, 1), (255, 1, 2), (256, 2, 1), (1025, 5, 3), (4099, 1, 4), (20_001, 1, 9)] {
        for (order, high_gain) in [(Order::Parallel(2), false), (Order::Down, true), (Order::Mixed(9), false)] {
            let planes = Planes::new(pixels, &mut numbers);
            let words: Vec<u16> = (0..pixels * frames).map(|_| numbers.word()).collect();
            let grid = Grid { x: grid, y: 1 };
            let (pixels, frames) = (pixels as u32, frames as u32);
            let mut out = vec![P::from_photons(77.0); words.len()];
            let plain = [
                Argument::read(&words),
                Argument::read(&planes.pedestal),
                Argument::read(&planes.factor),
                Argument::number(u32::from(high_gain)),
                Argument::write(&mut out),
                Argument::number(pixels),
                Argument::number(frames),
            ];
            launch(&format!("convert_{name}"), grid, order, &plain).expect("no fault");
            let (pixels_expected, _) = expected::<P>(&words, &planes, None, high_gain);
            assert_eq!(difference(&words, &out, &pixels_expected), None, "{name}, {pixels} pixels");

            let weight = [1.0, 0.01, 0.3][pixels as usize % 3];
            let mut tracked = planes.pedestal[..pixels as usize].to_vec();
            let tracking = [
                Argument::read(&words),
                Argument::read(&planes.pedestal),
                Argument::read(&planes.factor),
                Argument::write(&mut tracked),
                Argument::read(&planes.gate),
                Argument::number(weight),
                Argument::number(u32::from(high_gain)),
                Argument::write(&mut out),
                Argument::number(pixels),
                Argument::number(frames),
            ];
            launch(&format!("convert_tracking_{name}"), grid, order, &tracking).expect("no fault");
            let (pixels_expected, pedestal) = expected::<P>(&words, &planes, Some(weight), high_gain);
            assert_eq!(difference(&words, &out, &pixels_expected), None, "{name}, {pixels} pixels, tracking");
            assert!(bits(&tracked) == bits(&pedestal), "{name}, {pixels} pixels: moved pedestals");
        }
    }
}

#[test]
fn int16_is_that_of_the_cpu() {
    check::<i16>("int16");
}

#[test]
fn uint16_is_that_of_the_cpu() {
    check::<u16>("uint16");
}

#[test]
fn int32_is_that_of_the_cpu() {
    check::<i32>("int32");
}

#[test]
fn uint32_is_that_of_the_cpu() {
    check::<u32>("uint32");
}

#[test]
fn float32_is_that_of_the_cpu() {
    check::<f32>("float32");
}

/// All 65 536 words, in a pixel that is usable in all stages and in pixels that are masked in some.
#[test]
fn every_word_is_that_of_the_cpu() {
    for masked in 0..8usize {
        let pixels = 1 << 16;
        let plane = |values: [f32; 3]| -> Vec<f32> {
            let value = |stage: usize| if masked >> stage & 1 == 1 { f32::NAN } else { values[stage] };
            (0..3).flat_map(|stage| std::iter::repeat_n(value(stage), pixels)).collect()
        };
        let planes = Planes {
            pedestal: plane([2765.4, 14210.6, 13501.3]),
            factor: plane([0.0241, -0.7133, -9.871]),
            gate: vec![50.0; pixels],
        };
        let words: Vec<u16> = (0..=u16::MAX).collect();
        let mut out = vec![0i32; pixels];
        let arguments = [
            Argument::read(&words),
            Argument::read(&planes.pedestal),
            Argument::read(&planes.factor),
            Argument::number(0u32),
            Argument::write(&mut out),
            Argument::number(pixels as u32),
            Argument::number(1u32),
        ];
        launch("convert_int32", Grid { x: 16, y: 1 }, Order::Mixed(1), &arguments).expect("no fault");
        let (pixels, _) = expected::<i32>(&words, &planes, None, false);
        assert_eq!(difference(&words, &out, &pixels), None, "masked stages {masked:03b}");
    }
}

#[test]
fn dark_frames_move_pedestals_as_on_the_cpu() {
    let mut numbers = Numbers(0xDA2C_0000_1234_5679);
    for (pixels, frames) in [(1usize, 40usize), (333, 50), (2049, 3)] {
        let planes = Planes::new(pixels, &mut numbers);
        let words: Vec<u16> = (0..pixels * frames).map(|_| numbers.word()).collect();
        let mut ours = planes.pedestal[..pixels].to_vec();
        let mut theirs = ours.clone();
        for words in words.chunks(pixels) {
            let mut tracker = Tracker { pedestal: &mut theirs, gate: &planes.gate, weight: 0.02 };
            jungfrau_track_only(Isa::Scalar, words, &mut tracker);
        }
        let before = ours.clone();
        let arguments = [
            Argument::read(&words),
            Argument::write(&mut ours),
            Argument::read(&planes.gate),
            Argument::number(0.02f32),
            Argument::number(pixels as u32),
            Argument::number(frames as u32),
        ];
        launch("track_only", Grid { x: 2, y: 1 }, Order::Down, &arguments).expect("no fault");
        assert!(bits(&ours) == bits(&theirs), "{pixels} pixels");
        assert!(pixels < 100 || bits(&ours) != bits(&before), "nothing has moved");
    }
}

/// Results near the ends of a type, on both sides of each.
fn check_ends<P: OutputPixel>() {
    let mut numbers = Numbers(0xE4D5_0000_1234_5679);
    let ends = [P::VALID_MIN, P::VALID_MAX, P::MASKED, P::SATURATED, P::MISSING].map(|end| end.to_f64() as f32);
    let pixels = 20_000;
    let words: Vec<u16> = (0..pixels).map(|_| 8000 + (numbers.next() % 8383) as u16).collect();
    let step = (ends[1].abs() / (1 << 24) as f32).max(0.25);
    let factor = |word: &u16| {
        let end = ends[numbers.next() as usize % ends.len()];
        (end + step * (numbers.next() % 41) as f32 - 20.0 * step) / f32::from(*word)
    };
    let factor: Vec<f32> = words.iter().map(factor).chain(std::iter::repeat_n(f32::NAN, 2 * pixels)).collect();
    let planes = Planes { pedestal: vec![0.0; 3 * pixels], factor, gate: vec![0.0; pixels] };
    let mut out = vec![P::default(); pixels];
    let arguments = [
        Argument::read(&words),
        Argument::read(&planes.pedestal),
        Argument::read(&planes.factor),
        Argument::number(0u32),
        Argument::write(&mut out),
        Argument::number(pixels as u32),
        Argument::number(1u32),
    ];
    launch(&format!("convert_{}", P::TYPE.name()), Grid { x: 3, y: 1 }, Order::Parallel(2), &arguments).expect("no fault");
    let (theirs, _) = expected::<P>(&words, &planes, None, false);
    assert_eq!(difference(&words, &out, &theirs), None, "{:?}", P::TYPE);
    assert!(out.contains(&P::VALID_MIN) && out.contains(&P::SATURATED), "{:?}: both ends", P::TYPE);
}

#[test]
fn results_near_the_ends_of_a_type_are_those_of_the_cpu() {
    check_ends::<i16>();
    check_ends::<u16>();
    check_ends::<i32>();
    check_ends::<u32>();
    check_ends::<f32>();
}

fn check_fixed<P: OutputPixel>() {
    let mut numbers = Numbers(0xF18E_0000_1234_5679);
    let cases = [(1usize, 1usize, [1, 47, 20], false), (1025, 3, [22, 14, 16], true), (20_001, 1, [8, 3, 1], true)];
    for (pixels, frames, shift, high_gain) in cases {
        let mut plane = |bits: u32| -> Vec<u32> {
            let one = |_| if numbers.next().is_multiple_of(9) { 0 } else { (numbers.next() % (1 << bits)) as u32 };
            (0..pixels).map(one).collect()
        };
        let narrow = |plane: Vec<u32>| plane.into_iter().map(|value| value as u16).collect::<Vec<u16>>();
        let constants = FixedConstants {
            pedestal_g0: plane(22),
            pedestal_g1: narrow(plane(16)),
            pedestal_g2: narrow(plane(16)),
            factor: [narrow(plane(16)), narrow(plane(16)), narrow(plane(16))],
            shift,
        };
        let words: Vec<u16> = (0..pixels * frames).map(|_| numbers.word()).collect();
        let (mut ours, mut theirs) = (vec![P::default(); words.len()], vec![P::default(); words.len()]);
        for (words, out) in words.chunks(pixels).zip(theirs.chunks_mut(pixels)) {
            jungfrau_fixed(words, &constants.view(), out);
            if high_gain {
                saturate_high_gain(words, out);
            }
        }
        let factor = constants.factor.concat();
        let arguments = [
            Argument::read(&words),
            Argument::read(&constants.pedestal_g0),
            Argument::read(&constants.pedestal_g1),
            Argument::read(&constants.pedestal_g2),
            Argument::read(&factor),
            Argument::number(u32::from(shift[0])),
            Argument::number(u32::from(shift[1])),
            Argument::number(u32::from(shift[2])),
            Argument::number(u32::from(high_gain)),
            Argument::write(&mut ours),
            Argument::number(pixels as u32),
            Argument::number(frames as u32),
        ];
        launch(&format!("convert_fixed_{}", P::TYPE.name()), Grid { x: 2, y: 1 }, Order::Mixed(3), &arguments).expect("no fault");
        assert_eq!(difference(&words, &ours, &theirs), None, "{:?}, {pixels} pixels", P::TYPE);
    }
}

#[test]
fn conversion_in_integers_is_that_of_the_cpu() {
    check_fixed::<i16>();
    check_fixed::<u16>();
    check_fixed::<i32>();
    check_fixed::<u32>();
    check_fixed::<f32>();
}
