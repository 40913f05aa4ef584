//! Arithmetic in integers: against the definition in wide integers, against floats on real frames, and the published
//! test vectors.

#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_core::pixel::Pixel;
use konkordia_kernels::Isa;
use konkordia_kernels::convert::fixed::{FRACTION_BITS, SHIFTS};
use konkordia_kernels::convert::{Constants, FixedConstants, OutputPixel, jungfrau, jungfrau_fixed};
use proptest::prelude::*;
use std::path::PathBuf;

/// Constants of one pixel as the logic holds them.
#[derive(Clone, Copy, Debug)]
struct One {
    pedestal: [u32; 3],
    factor: [u16; 3],
    shift: [u8; 3],
}

/// The rules of `docs/formats/fixed-point.md` with 128-bit integers and a floor division.
fn oracle<P: OutputPixel>(word: u16, one: One) -> P {
    let masked = |stage: usize| one.factor[stage] == 0;
    let gain = word >> 14;
    if word == 0xFFFF || word == 0xC000 || word == 0x4000 || gain == 2 {
        return match word {
            _ if masked(0) => P::MASKED,
            0xC000 => P::SATURATED,
            _ => P::INVALID,
        };
    }
    let stage = [0, 1, 9, 2][usize::from(gain)];
    if masked(stage) {
        return P::MASKED;
    }
    let adc = i128::from(word & 0x3FFF) * (1 << FRACTION_BITS[stage]);
    let diff = if stage == 0 { adc - i128::from(one.pedestal[0]) } else { i128::from(one.pedestal[stage]) - adc };
    let twice = 2 * diff * i128::from(one.factor[stage]) + (1 << one.shift[stage]);
    let whole = twice.div_euclid(1 << (one.shift[stage] + 1));
    if whole as f64 > P::VALID_MAX.to_f64() {
        P::SATURATED
    } else if (whole as f64) < P::VALID_MIN.to_f64() {
        P::VALID_MIN
    } else {
        P::from_whole(whole as i64)
    }
}

fn of(pixels: &[One]) -> FixedConstants {
    FixedConstants {
        pedestal_g0: pixels.iter().map(|p| p.pedestal[0]).collect(),
        pedestal_g1: pixels.iter().map(|p| p.pedestal[1] as u16).collect(),
        pedestal_g2: pixels.iter().map(|p| p.pedestal[2] as u16).collect(),
        factor: std::array::from_fn(|stage| pixels.iter().map(|p| p.factor[stage]).collect()),
        shift: pixels.first().map_or([1; 3], |p| p.shift),
    }
}

fn check<P: OutputPixel>(raw: &[u16], pixels: &[One]) {
    let constants = of(pixels);
    let mut out = vec![P::default(); raw.len()];
    jungfrau_fixed(raw, &constants.view(), &mut out);
    for (i, (pixel, &word)) in out.iter().zip(raw).enumerate() {
        let expected: P = oracle(word, pixels[i]);
        assert!(
            bytemuck::bytes_of(pixel) == bytemuck::bytes_of(&expected),
            "{word:#06x} {:?}: {pixel:?}, not {expected:?}",
            pixels[i]
        );
    }
    // Any division into parts gives the same.
    let mut parts = vec![P::default(); raw.len()];
    for first in (0..raw.len()).step_by(7) {
        let count = 7.min(raw.len() - first);
        jungfrau_fixed(&raw[first..first + count], &constants.view().slice(first, count), &mut parts[first..first + count]);
    }
    assert_eq!(bytemuck::cast_slice::<P, u8>(&parts), bytemuck::cast_slice::<P, u8>(&out));
}

fn check_all(raw: &[u16], pixels: &[One]) {
    check::<i16>(raw, pixels);
    check::<u16>(raw, pixels);
    check::<i32>(raw, pixels);
    check::<u32>(raw, pixels);
    check::<f32>(raw, pixels);
}

const TYPICAL: One = One { pedestal: [588_900, 54_336, 56_401], factor: [33_026, 59_653, 45_730], shift: [32, 22, 18] };

#[test]
fn every_word_at_usual_and_extreme_constants() {
    let raw: Vec<u16> = (0..=u16::MAX).collect();
    let largest = [(1 << 22) - 1, 65535, 65535];
    for pedestal in [[0; 3], largest, TYPICAL.pedestal] {
        for factor in [[0; 3], [1; 3], [65535; 3], [0, 1, 2], [1, 0, 0], TYPICAL.factor] {
            for shift in [[1; 3], [47; 3], [8, 2, 2], TYPICAL.shift] {
                check_all(&raw, &vec![One { pedestal, factor, shift }; raw.len()]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_constants(
        pixels in prop::collection::vec((any::<u16>(), 0u32..1 << 22, any::<[u16; 5]>()), 0..100),
        shift in [1u8..=47, 1u8..=47, 1u8..=47],
    ) {
        let raw: Vec<u16> = pixels.iter().map(|p| p.0).collect();
        let one = |p: &(u16, u32, [u16; 5])| One { pedestal: [p.1, p.2[0].into(), p.2[1].into()], factor: [p.2[2], p.2[3], p.2[4]], shift };
        check_all(&raw, &pixels.iter().map(one).collect::<Vec<_>>());
    }

    // Pedestals above 16383.87 round past the two fraction bits of G1 and G2;
    // `the_last_fraction_of_an_adu_is_for_g0_only` has those.
    #[test]
    fn quantised_constants_are_the_nearest(gain in 20.0f64..60.0, spread in prop::collection::vec((0.5f64..1.5, 0.0f32..16383.85), 1..50)) {
        let n = spread.len();
        let pedestal: Vec<f32> = spread.iter().map(|s| s.1).collect();
        let factor = |sign: f64| spread.iter().map(|s| (sign / (gain * s.0 * 12.4)) as f32).collect::<Vec<f32>>();
        let (up, down) = (factor(1.0), factor(-30.0));
        let constants = Constants { pedestal: [&pedestal; 3], factor: [&up, &down, &down] };
        let fixed = FixedConstants::quantise(&constants);
        for (stage, fraction_bits) in FRACTION_BITS.into_iter().enumerate() {
            let most = fixed.factor[stage].iter().max().unwrap();
            prop_assert!(*most >= 32768, "the largest factor uses the 16 bits: {}", most);
            let scale = 2f64.powi(i32::from(fixed.shift[stage]) - fraction_bits as i32);
            for i in 0..n {
                let back = f64::from(fixed.factor[stage][i]) / scale;
                prop_assert!((back - f64::from(constants.factor[stage][i].abs())).abs() <= 0.5 / scale);
            }
        }
        for (i, &pedestal) in pedestal.iter().enumerate() {
            prop_assert!((f64::from(fixed.pedestal_g0[i]) / 256.0 - f64::from(pedestal)).abs() <= 0.5 / 256.0);
            let coarse = f64::from(fixed.pedestal_g1[i]) / 4.0 - f64::from(pedestal);
            prop_assert!(coarse.abs() <= 0.125);
        }
    }
}

#[test]
fn what_does_not_fit_is_masked_and_costs_the_others_nothing() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let good = (2300.0f32, 0.002f32);
    let odd = [
        (nan, 0.002),
        (2300.0, nan),
        (-1.0, 0.002),
        (16384.0, 0.002),
        (2300.0, -0.002),
        (2300.0, 0.5),
        (2300.0, inf),
        (2300.0, 1.0e-9),
        (2300.0, 0.0),
    ];
    let pixels: Vec<(f32, f32)> = std::iter::repeat_n(good, 20).chain(odd).collect();
    let pedestal: Vec<f32> = pixels.iter().map(|p| p.0).collect();
    let factor: Vec<f32> = pixels.iter().map(|p| p.1).collect();
    let opposite: Vec<f32> = factor.iter().map(|f| -f).collect();
    let fixed = FixedConstants::quantise(&Constants { pedestal: [&pedestal; 3], factor: [&factor, &opposite, &opposite] });
    for stage in 0..3 {
        assert!(fixed.factor[stage][..20].iter().all(|f| *f >= 32768), "{:?}", fixed.factor[stage]);
        assert!(fixed.factor[stage][20..].iter().all(|f| *f == 0), "{:?}", &fixed.factor[stage][20..]);
    }
    // Nothing usable, or nothing at all, still has legal shifts.
    for plane in [vec![nan; 4], vec![]] {
        let fixed = FixedConstants::quantise(&Constants { pedestal: [&plane; 3], factor: [&plane; 3] });
        assert!(fixed.shift.iter().all(|s| SHIFTS.contains(s)) && fixed.factor[0].iter().all(|f| *f == 0));
        let mut out = vec![0i16; plane.len()];
        jungfrau_fixed(&vec![2000; plane.len()], &fixed.view(), &mut out);
        assert!(out.iter().all(|p| *p == i16::MASKED));
    }
}

#[test]
fn the_last_fraction_of_an_adu_is_for_g0_only() {
    let (pedestal, up, down) = ([16383.9f32], [0.002f32], [-0.002f32]);
    let fixed = FixedConstants::quantise(&Constants { pedestal: [&pedestal; 3], factor: [&up, &down, &down] });
    assert!(fixed.factor[0][0] >= 32768);
    assert_eq!([fixed.factor[1][0], fixed.factor[2][0]], [0, 0], "masked");
}

/// A simple generator with a fixed seed (Numerical Recipes), so that the vectors never change by themselves.
struct Draw(u64);
impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Words and constants of the published vectors: all special words, the ends of all ranges, ties, and random ones of
/// each stage.
fn vector_inputs() -> Vec<(u16, One)> {
    let mut list = Vec::new();
    let edges = [0x0000, 0x0001, 0x3FFF, 0x4000, 0x4001, 0x7FFF, 0x8000, 0x9234, 0xBFFF, 0xC000, 0xC001, 0xFFFE, 0xFFFF];
    let extreme = One { pedestal: [(1 << 22) - 1, 65535, 65535], factor: [65535; 3], shift: [8, 2, 2] };
    let low = One { pedestal: [0; 3], factor: [65535; 3], shift: [24, 18, 18] };
    let masked = One { factor: [0; 3], ..TYPICAL };
    let g0_only = One { factor: [33_026, 0, 0], ..TYPICAL };
    let not_g0 = One { factor: [0, 59_653, 45_730], ..TYPICAL };
    for one in [TYPICAL, extreme, low, masked, g0_only, not_g0] {
        list.extend(edges.map(|word| (word, one)));
    }
    // Exactly half a photon above and below whole numbers, in every stage: one photon is 512, 64 and 8 ADU.
    let tie = One { pedestal: [2000 << 8, 13_000 << 2, 13_000 << 2], factor: [32768; 3], shift: [32, 23, 20] };
    for step in -6i32..=6 {
        list.push(((2000 + 256 * step) as u16, tie));
        list.push((0x4000 | (13_000 + 32 * step) as u16, tie));
        list.push((0xC000 | (13_000 + 4 * step) as u16, tie));
    }
    let mut draw = Draw(2020);
    for i in 0..180 {
        let mut near = |value: u32, spread: u64| value + draw.below(spread) as u32 - spread as u32 / 2;
        let pedestal = [near(588_900, 300_000), near(54_336, 3000), near(56_401, 3000)];
        let factor = [near(33_026, 9000) as u16, near(55_000, 6000) as u16, near(45_730, 6000) as u16];
        let word = match i % 3 {
            0 => draw.below(0x4000) as u16,
            1 => 0x4001 + draw.below(13_600) as u16,
            _ => 0xC001 + draw.below(14_000) as u16,
        };
        list.push((word, One { pedestal, factor, shift: TYPICAL.shift }));
    }
    list
}

fn vectors() -> String {
    let mut text = String::from(
        "word,pedestal_g0,pedestal_g1,pedestal_g2,factor_g0,factor_g1,factor_g2,shift_g0,shift_g1,shift_g2,int16,int32,uint16,uint32\n",
    );
    for (word, one) in vector_inputs() {
        let constants = of(&[one]);
        let (mut a, mut b, mut c, mut d) = ([0i16], [0i32], [0u16], [0u32]);
        jungfrau_fixed(&[word], &constants.view(), &mut a);
        jungfrau_fixed(&[word], &constants.view(), &mut b);
        jungfrau_fixed(&[word], &constants.view(), &mut c);
        jungfrau_fixed(&[word], &constants.view(), &mut d);
        assert_eq!((a[0], b[0], c[0], d[0]), (oracle(word, one), oracle(word, one), oracle(word, one), oracle(word, one)));
        let ([p0, p1, p2], [f0, f1, f2], [s0, s1, s2]) = (one.pedestal, one.factor, one.shift);
        text += &format!("0x{word:04X},{p0},{p1},{p2},{f0},{f1},{f2},{s0},{s1},{s2},{},{},{},{}\n", a[0], b[0], c[0], d[0]);
    }
    text
}

/// The published file is what the kernel and the oracle compute. To write it anew:
/// `WRITE_VECTORS=1 cargo test -p konkordia-kernels --test fixed vectors`.
#[test]
fn the_published_vectors_are_those_of_the_kernel() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/fixed-point-vectors.csv"));
    let text = vectors();
    if std::env::var_os("WRITE_VECTORS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap();
    assert_eq!(published.lines().count(), vector_inputs().len() + 1);
    for (line, (published, ours)) in published.lines().zip(text.lines()).enumerate() {
        assert_eq!(published, ours, "line {} of {}", line + 1, path.display());
    }
}

const PIXELS: usize = 512 * 1024;

/// Real frames at 12.4 keV: integers and floats differ by less than the paper's figure.
#[test]
fn real_frames_differ_from_float_by_less_than_the_paper_s_figure() {
    let Some(folder) = skip::data("jungfrau-lyso") else { return };
    let bytes = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let floats =
        |name: &str| bytes(name).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<f32>>();
    let pedestal: Vec<Vec<f32>> = (0..3).map(|stage| floats(&format!("pedestal_g{stage}.f32"))).collect();
    let unusable = |i: usize| pedestal[0][i] == 0.0 || pedestal[0][i] == 16383.0;
    let factor = |(i, gain): (usize, &f32)| if unusable(i) { f32::NAN } else { (1.0 / (f64::from(*gain) * 12.4)) as f32 };
    let gains = floats("gain_adu_per_kev.f32");
    let factor: Vec<Vec<f32>> = gains.chunks_exact(PIXELS).map(|plane| plane.iter().enumerate().map(factor).collect()).collect();
    let constants =
        Constants { pedestal: [&pedestal[0], &pedestal[1], &pedestal[2]], factor: [&factor[0], &factor[1], &factor[2]] };
    let fixed = FixedConstants::quantise(&constants);
    let (mut squares, mut count, mut worst) = ([0i64; 3], [0i64; 3], [0i64; 3]);
    for frame in 0..10 {
        let raw: Vec<u16> =
            bytes(&format!("raw_{frame:02}.u16")).chunks_exact(2).map(|b| u16::from_le_bytes(b.try_into().unwrap())).collect();
        let (mut float, mut integer) = (vec![0i32; PIXELS], vec![0i32; PIXELS]);
        jungfrau(Isa::detect(), &raw, &constants, &mut float);
        jungfrau_fixed(&raw, &fixed.view(), &mut integer);
        for ((&a, &b), &word) in float.iter().zip(&integer).zip(&raw) {
            if !a.is_number() || !b.is_number() {
                assert_eq!(a, b, "special values agree");
                continue;
            }
            let (stage, difference) = ([0, 1, 9, 2][usize::from(word >> 14)], i64::from(a) - i64::from(b));
            squares[stage] += difference * difference;
            count[stage] += 1;
            worst[stage] = worst[stage].max(difference.abs());
        }
    }
    let rms = |squares: i64, count: i64| (squares as f64 / count as f64).sqrt();
    let all = rms(squares.iter().sum(), count.iter().sum());
    let by_stage: Vec<String> = (0..3).map(|s| format!("G{s} {:.4} (at most {})", rms(squares[s], count[s]), worst[s])).collect();
    println!(
        "fixed point against float, photons of 12.4 keV: RMS {all:.4}; {}; paper 0.22; shifts {:?}",
        by_stage.join(", "),
        fixed.shift
    );
    assert!(all <= 0.22 && worst.iter().all(|w| *w <= 1));
    assert!(count[0] > 5_200_000 && count[1] > 4000 && count[2] > 100);
}
