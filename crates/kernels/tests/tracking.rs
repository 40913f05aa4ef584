//! Pedestals that follow the drift: every instruction set against the rule, frame by frame, and what the rule does to a
//! drifting pixel.

use konkordia_kernels::Isa;
use konkordia_kernels::convert::{self, Constants, OutputPixel, Tracker, scalar};
use proptest::prelude::*;

/// The rule of the module, with the pedestal after the word.
fn oracle(word: u16, pedestal: f32, gate: f32, weight: f32) -> f32 {
    if word >> 14 != 0 {
        return pedestal;
    }
    let distance = f32::from(word) - pedestal;
    if distance >= -gate && distance <= gate {
        let step = distance * weight;
        pedestal + step
    } else {
        pedestal
    }
}

#[derive(Debug)]
struct Case {
    frames: Vec<Vec<u16>>,
    planes: [Vec<f32>; 6],
    gate: Vec<f32>,
    weight: f32,
}

fn check<P: OutputPixel>(case: &Case) {
    let [p0, p1, p2, f0, f1, f2] = &case.planes;
    let constants = Constants { pedestal: [p0, p1, p2], factor: [f0, f1, f2] };
    let mut expected_pedestal = p0.clone();
    let mut runs: Vec<(Isa, Vec<f32>, Vec<f32>)> = Isa::available().iter().map(|&isa| (isa, p0.clone(), p0.clone())).collect();
    for raw in &case.frames {
        let mut expected = vec![P::default(); raw.len()];
        for (i, &word) in raw.iter().enumerate() {
            expected[i] = scalar::word(word, [expected_pedestal[i], p1[i], p2[i]], [f0[i], f1[i], f2[i]]);
            expected_pedestal[i] = oracle(word, expected_pedestal[i], case.gate[i], case.weight);
        }
        let bits: Vec<u32> = expected_pedestal.iter().map(|p| p.to_bits()).collect();
        for (isa, pedestal, alone) in &mut runs {
            let mut out = vec![P::default(); raw.len()];
            let mut tracker = Tracker { pedestal, gate: &case.gate, weight: case.weight };
            convert::jungfrau_tracking(*isa, raw, &constants, &mut tracker, &mut out);
            assert_eq!(bytemuck::cast_slice::<P, u8>(&out), bytemuck::cast_slice::<P, u8>(&expected), "{isa} {:?}", P::TYPE);
            assert!(tracker.pedestal.iter().map(|p| p.to_bits()).eq(bits.iter().copied()), "{isa}");
            convert::jungfrau_track_only(*isa, raw, &mut Tracker { pedestal: alone, gate: &case.gate, weight: case.weight });
            assert!(alone.iter().map(|p| p.to_bits()).eq(bits.iter().copied()), "{isa}, dark frames");
        }
    }
}

fn word() -> impl Strategy<Value = u16> {
    prop_oneof![12 => 2000u16..2600, 2 => 0u16..0x4000, 1 => any::<u16>(), 1 => Just(0xFFFF), 1 => Just(0xC000), 1 => Just(0x4000)]
}

fn gate() -> impl Strategy<Value = f32> {
    prop_oneof![6 => 10.0f32..400.0, 1 => Just(f32::NAN), 1 => Just(-1.0), 1 => Just(0.0), 1 => Just(1.0e30)]
}

fn pedestal() -> impl Strategy<Value = f32> {
    prop_oneof![8 => 2000.0f32..2600.0, 1 => Just(f32::NAN), 1 => Just(0.0), 1 => Just(16383.0), 1 => Just(-3.5e4), 1 => Just(2200.0)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_instruction_set_follows_the_rule(
        pixels in prop::collection::vec((pedestal(), gate(), prop::collection::vec(word(), 6), any::<bool>()), 0..150),
        window in prop_oneof![1u32..5, 10u32..2000],
    ) {
        let frames = (0..6).map(|f| pixels.iter().map(|p| p.2[f]).collect()).collect();
        let plane = |value: f32| pixels.iter().map(|p| if p.3 { value } else { value * 1.25 }).collect::<Vec<f32>>();
        let planes = [pixels.iter().map(|p| p.0).collect(), plane(14000.0), plane(13000.0), plane(0.002), plane(-0.06), plane(-0.7)];
        let case = Case { frames, planes, gate: pixels.iter().map(|p| p.1).collect(), weight: 1.0 / window as f32 };
        check::<i16>(&case);
        check::<u16>(&case);
        check::<i32>(&case);
        check::<u32>(&case);
        check::<f32>(&case);
    }
}

/// Parts of a frame done apart give what the whole gives: workers own strips.
#[test]
fn slices_of_a_tracker_are_independent() {
    let raw: Vec<u16> = (0..1001).map(|i| 2000 + (i * 37 % 90) as u16).collect();
    let gate = vec![60.0; raw.len()];
    let mut whole = vec![2040.0f32; raw.len()];
    convert::jungfrau_track_only(Isa::detect(), &raw, &mut Tracker { pedestal: &mut whole, gate: &gate, weight: 0.125 });
    for isa in Isa::available() {
        let mut parts = vec![2040.0f32; raw.len()];
        let mut tracker = Tracker { pedestal: &mut parts, gate: &gate, weight: 0.125 };
        for first in (0..raw.len()).step_by(123) {
            let count = 123.min(raw.len() - first);
            convert::jungfrau_track_only(*isa, &raw[first..first + count], &mut tracker.slice(first, count));
        }
        assert_eq!(parts, whole);
    }
}

/// A normal deviate from a hash: the sum of twelve uniform ones.
fn noise(seed: u64) -> f64 {
    let uniform = |k: u64| {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(k.wrapping_mul(0xD1B5_4A32_D192_ED03));
        x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (x >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..12).map(uniform).sum::<f64>() - 6.0
}

/// 100 ADU in 3 s at 1.1 kHz, noise of 8 ADU, a gate of 5 times the noise, and light on a tenth of the frames.
#[test]
fn a_drift_of_100_adu_in_3_s_is_followed_and_a_still_pixel_is_not_biased() {
    let (pixels, frames, drift) = (200usize, 3300u64, 100.0);
    let gate = vec![40.0f32; pixels];
    let truth = |pixel: usize, frame: u64| {
        let moves = if pixel.is_multiple_of(2) { drift * frame as f64 / frames as f64 } else { 0.0 };
        9000.3 + pixel as f64 * 0.37 + moves
    };
    let mut pedestal: Vec<f32> = (0..pixels).map(|p| truth(p, 0) as f32).collect();
    for frame in 0..frames {
        let word = |pixel: usize| {
            let seed = frame * pixels as u64 + pixel as u64;
            let light = if (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & 0xFF < 26 { 508.0 } else { 0.0 };
            (truth(pixel, frame) + 8.0 * noise(seed) + light).round() as u16
        };
        let raw: Vec<u16> = (0..pixels).map(word).collect();
        let mut tracker = Tracker { pedestal: &mut pedestal, gate: &gate, weight: 1.0 / 100.0 };
        convert::jungfrau_track_only(Isa::detect(), &raw, &mut tracker);
    }
    let residual = |pixel: usize| f64::from(pedestal[pixel]) - truth(pixel, frames);
    let moving: Vec<f64> = (0..pixels).step_by(2).map(residual).collect();
    let still: Vec<f64> = (1..pixels).step_by(2).map(residual).collect();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let worst = |v: &[f64]| v.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    println!(
        "residual in ADU, mean and worst: drifting {:.3} {:.3}, still {:.3} {:.3}",
        mean(&moving),
        worst(&moving),
        mean(&still),
        worst(&still)
    );
    assert!(worst(&moving) < 6.5 && mean(&moving).abs() < 5.0);
    // The mean of the still pixels has an error of 8 / sqrt(199 x 100) ADU.
    assert!(mean(&still).abs() < 0.25 && worst(&still) < 2.5);
}

/// The bound on the resolution, at its worst: a pixel without noise, far up in the range, with the longest usual
/// window.
#[test]
fn a_pixel_without_noise_stops_within_the_bound() {
    let weight = 1.0f32 / 1024.0;
    let mut pedestal = [12000.0f32, 3000.0];
    for _ in 0..20_000 {
        let raw = [12030u16, 3030];
        convert::jungfrau_track_only(Isa::detect(), &raw, &mut Tracker { pedestal: &mut pedestal, gate: &[100.0; 2], weight });
    }
    println!("stops {} and {} ADU short", 12030.0 - pedestal[0], 3030.0 - pedestal[1]);
    assert!((12030.0 - pedestal[0]).abs() <= 0.5 && (3030.0 - pedestal[1]).abs() <= 0.125);
}

#[test]
#[should_panic(expected = "one pedestal and one gate per pixel")]
fn a_gate_of_another_length_is_refused() {
    convert::jungfrau_track_only(Isa::detect(), &[0; 8], &mut Tracker { pedestal: &mut [0.0; 8], gate: &[1.0; 7], weight: 0.5 });
}
