//! Every word, every type, every instruction set against the definition; EIGER unpacking against bit arithmetic.

use konkordia_core::pixel::Pixel;
use konkordia_kernels::convert::{self, Constants, OutputPixel, WordCounts, count_words};
use konkordia_kernels::unpack::{self, Bits};
use konkordia_kernels::{Isa, convert::scalar};
use proptest::prelude::*;

/// Bits of a pixel, so that NaN equals NaN only if it is the same one.
fn bits<P: OutputPixel>(pixel: &P) -> Vec<u8> {
    bytemuck::bytes_of(pixel).to_vec()
}

/// The rules of the module documentation once more, as simply as possible.
fn oracle<P: Pixel>(word: u16, pedestal: [f32; 3], factor: [f32; 3]) -> P {
    let special = word == 0xFFFF || word == 0xC000 || word == 0x4000 || word >> 14 == 2;
    if special && (pedestal[0].is_nan() || factor[0].is_nan()) {
        return P::MASKED;
    }
    match (word, word >> 14) {
        (0xC000, _) => P::SATURATED,
        (0xFFFF | 0x4000, _) | (_, 2) => P::INVALID,
        (_, gain) => {
            let stage = [0, 1, usize::MAX, 2][usize::from(gain)];
            P::from_photons((f32::from(word & 0x3FFF) - pedestal[stage]) * factor[stage])
        }
    }
}

struct Case {
    raw: Vec<u16>,
    planes: [Vec<f32>; 6],
}

impl Case {
    fn constants(&self) -> Constants<'_> {
        let [p0, p1, p2, f0, f1, f2] = &self.planes;
        Constants { pedestal: [p0, p1, p2], factor: [f0, f1, f2] }
    }
}

fn check<P: OutputPixel>(case: &Case) {
    let constants = case.constants();
    let at = |i: usize, planes: [&[f32]; 3]| [planes[0][i], planes[1][i], planes[2][i]];
    for &isa in Isa::available() {
        let mut out = vec![P::default(); case.raw.len()];
        convert::jungfrau(isa, &case.raw, &constants, &mut out);
        let mut all_branches = vec![P::default(); case.raw.len()];
        convert::jungfrau_all_branches(isa, &case.raw, &constants, &mut all_branches);
        assert!(bytemuck::cast_slice::<P, u8>(&all_branches) == bytemuck::cast_slice::<P, u8>(&out), "{isa}");
        for (i, (pixel, &word)) in out.iter().zip(&case.raw).enumerate() {
            let (pedestal, factor) = (at(i, constants.pedestal), at(i, constants.factor));
            let expected: P = oracle(word, pedestal, factor);
            assert!(
                bits(pixel) == bits(&expected),
                "{isa} {:?}: word {word:#06x} with {pedestal:?} {factor:?} gave {pixel:?}, not {expected:?}",
                P::TYPE
            );
        }
    }
}

fn check_all(case: &Case) {
    check::<i16>(case);
    check::<i32>(case);
    check::<u16>(case);
    check::<u32>(case);
    check::<f32>(case);
}

/// Constants of a pixel: usual ones, ones that drive every type to its limits, and unusable ones.
fn constants_of(kind: usize) -> [f32; 6] {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let usual = [2300.5, 14000.25, 13500.75, 1.0 / 508.4, -1.0 / 17.8, -1.0 / 1.42];
    let with = |index: usize, value: f32| {
        let mut constants = usual;
        constants[index] = value;
        constants
    };
    match kind {
        0 => usual,
        1 => [nan; 6],
        2..=7 => with(kind - 2, nan),
        8 => [usual[0], usual[1], usual[2], nan, nan, nan],
        9 => [inf, inf, -inf, 1.0, -1.0, 1.0],
        10 => [inf, -inf, inf, 0.0, 0.0, -0.0],
        11 => [0.0, 0.0, 0.0, 0.5, -0.5, 2.5],
        12 => [0.5, 0.5, 0.5, 2.0, -2.0, 4.0],
        13 => [8000.0, 8000.0, 8000.0, 4.0, -4.0, 8.0],
        14 => [8000.0, 8000.0, 8000.0, 1.0e6, -1.0e6, 2.7e5],
        15 => [100.0, 100.0, 100.0, 3.0e38, -3.0e38, 3.0e38],
        16 => [16383.0, 0.0, 0.0, -0.0, 1.0e-42, -1.0e-42],
        17 => [0.0, 0.0, 0.0, inf, -inf, -nan],
        _ => [8192.0, 8192.0, 8192.0, 262144.0, 131072.03, -262143.98],
    }
}

#[test]
fn every_word_with_every_kind_of_constants() {
    for kind in 0..19 {
        let constants = constants_of(kind);
        let raw: Vec<u16> = (0..=u16::MAX).collect();
        check_all(&Case { planes: std::array::from_fn(|i| vec![constants[i]; raw.len()]), raw });
    }
}

/// The fast path without gain bits must not look at the constants of G1 and G2, and must stop exactly at its words.
#[test]
fn neighbours_do_not_disturb_each_other() {
    for len in 0..100 {
        let raw: Vec<u16> = (0..len).map(|i| [0x0001, 0x1234, 0x3FFF, 0x0000, 0x2A2A][i % 5]).collect();
        let planes = std::array::from_fn(|plane| (0..len).map(|i| constants_of(i % 19)[plane]).collect());
        let mut case = Case { raw, planes };
        check_all(&case);
        for (i, word) in [0xFFFF, 0xC000, 0x4000, 0x8000, 0xBFFF, 0x4001, 0xC001, 0xFFFE].into_iter().enumerate() {
            if let Some(place) = case.raw.get_mut((i * 37) % len.max(1)) {
                *place = word;
                check_all(&case);
            }
        }
    }
}

fn check_high_gain<P: OutputPixel>() {
    // Longer than the runs that are looked at together, with runs that hold no such word.
    let raw: Vec<u16> =
        (0..1500).map(|i| if i % 7 == 3 && i / 300 != 1 { 0x3FFF } else { [0x3FFE, 0x7FFF, 0xFFFF, 0xC000][i % 4] }).collect();
    let planes = std::array::from_fn(|plane| (0..raw.len()).map(|i| constants_of(i % 19)[plane]).collect());
    let case = Case { raw, planes };
    let mut before = vec![P::default(); case.raw.len()];
    convert::jungfrau(Isa::Scalar, &case.raw, &case.constants(), &mut before);
    let mut after = before.clone();
    convert::saturate_high_gain(&case.raw, &mut after);
    let mut seen = [0; 2];
    for ((pixel, before), &word) in after.iter().zip(&before).zip(&case.raw) {
        let is_masked = bits(before) == bits(&P::MASKED);
        let expected = if word == convert::HIGH_GAIN_SATURATED && !is_masked { &P::SATURATED } else { before };
        assert!(bits(pixel) == bits(expected), "{:?}: {word:#06x} was {before:?}, is {pixel:?}", P::TYPE);
        seen[usize::from(is_masked)] += usize::from(word == 0x3FFF);
    }
    assert!(seen.iter().all(|n| *n > 30), "measured and masked: {seen:?}");
}

#[test]
fn the_end_of_the_adc_in_high_gain_is_saturated_unless_masked() {
    check_high_gain::<i16>();
    check_high_gain::<i32>();
    check_high_gain::<u16>();
    check_high_gain::<u32>();
    check_high_gain::<f32>();
}

fn word() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0u16..0x4000, 3 => any::<u16>(), 1 => Just(0xFFFF), 1 => Just(0xC000), 1 => Just(0x4000), 1 => 0x8000u16..0xC000]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_words_and_constants(pixels in prop::collection::vec((word(), 0usize..19, any::<[u32; 6]>(), any::<bool>()), 0..200)) {
        let raw = pixels.iter().map(|pixel| pixel.0).collect();
        // Random bits give every kind of float, so values far outside the range, denormals and odd NaN come too.
        let planes = std::array::from_fn(|plane| {
            pixels.iter().map(|p| if p.3 { f32::from_bits(p.2[plane]) } else { constants_of(p.1)[plane] }).collect()
        });
        check_all(&Case { raw, planes });
    }

    #[test]
    fn eiger_of_every_depth(bytes in prop::collection::vec(any::<u8>(), 0..400), first in 0usize..70, depth in 0usize..5) {
        let depth = Bits::ALL[depth];
        let pixels = bytes.len() * 8 / depth.count() as usize;
        for count in [0, 1, 2, 3, 17, 300].into_iter().filter(|count| first + count <= pixels) {
            let expected: Vec<u32> = (first..first + count).map(|pixel| bit_by_bit(depth, &bytes, pixel)).collect();
            let mut wide = vec![7u32; count];
            unpack::eiger(depth, &bytes, first, &mut wide);
            prop_assert_eq!(&wide, &expected);
            let mut narrow = vec![7u16; count];
            unpack::eiger(depth, &bytes, first, &mut narrow);
            prop_assert!(narrow.iter().zip(&expected).all(|(&n, &w)| n == w as u16));
            let mask: Vec<u8> = (0..count).map(|i| u8::from(i % 3 == 1)).collect();
            let mut out = vec![7i16; count];
            convert::counts(depth, &bytes, first, Some(&mask), &mut out);
            let masked = |i: usize| if i % 3 == 1 { i16::MASKED } else { i16::from_count(expected[i]) };
            prop_assert!((0..count).all(|i| out[i] == masked(i)));
        }
    }

    #[test]
    fn words_are_counted_by_kind(raw in prop::collection::vec(word(), 0..300)) {
        prop_assert_eq!(count_words(&raw), counted(&raw));
    }
}

/// Pixel `index` by its place in the bit stream. In 12 bit the first nibble of a pair's second byte belongs to the
/// first pixel.
fn bit_by_bit(depth: Bits, bytes: &[u8], index: usize) -> u32 {
    let nibble = |n: usize| u32::from(bytes[n / 2] >> (4 * (n % 2)) & 15);
    match depth {
        Bits::Four => nibble(index ^ 1),
        _ => {
            let nibbles = depth.count() as usize / 4;
            (0..nibbles).map(|i| nibble(index * nibbles + i) << (4 * i)).sum()
        }
    }
}

fn counted(raw: &[u16]) -> WordCounts {
    let mut counts = WordCounts::default();
    for &word in raw {
        *match (word, word >> 14) {
            (0xFFFF, _) => &mut counts.missing,
            (0xC000, _) => &mut counts.saturated,
            (0x4000, _) | (_, 2) => &mut counts.illegal,
            (_, 0) => &mut counts.g0,
            (_, 1) => &mut counts.g1,
            _ => &mut counts.g2,
        } += 1;
    }
    counts
}

#[test]
fn counting_all_words_many_times_does_not_overflow() {
    let raw: Vec<u16> = (0..5).flat_map(|_| 0..=u16::MAX).chain(vec![0xFFFF; 100_000]).collect();
    assert_eq!(count_words(&raw), counted(&raw));
}

#[test]
fn eiger_by_hand() {
    let mut out = [0u16; 3];
    unpack::eiger(Bits::Four, &[0xAB, 0xC0], 0, &mut out);
    assert_eq!(out, [0xA, 0xB, 0xC]);
    unpack::eiger(Bits::Twelve, &[0x21, 0x43, 0x65, 0x87, 0x09], 0, &mut out);
    assert_eq!(out, [0x321, 0x654, 0x987]);
    assert_eq!(Bits::Twelve.bytes(3), 5);
    assert_eq!(Bits::new(12), Some(Bits::Twelve));
    assert_eq!(Bits::new(13), None);
}

#[test]
#[should_panic(expected = "ends before")]
fn a_second_pixel_of_12_bit_without_its_last_byte_is_refused() {
    unpack::eiger(Bits::Twelve, &[1, 2], 1, &mut [0u16]);
}

#[test]
fn the_scalar_reference_is_what_one_word_gives() {
    let got: i16 = scalar::word(0x4000 | 10000, [f32::NAN, 14000.0, 0.0], [f32::NAN, -0.1, 0.0]);
    assert_eq!(got, 400);
}

#[test]
#[should_panic(expected = "one constant per pixel")]
fn constants_of_another_length_are_refused() {
    let planes: [Vec<f32>; 6] = std::array::from_fn(|i| vec![1.0; 15 + i % 2]);
    let case = Case { raw: vec![0; 15], planes };
    convert::jungfrau(Isa::detect(), &case.raw, &case.constants(), &mut [0i16; 15]);
}
