//! Pixels above a level: how many there are, and which. The first is the veto kernel of Ponsard et al. 2020 (threshold
//! value, threshold number); the second makes a sparse image of them (compressed rows, CSR).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
mod value;

use crate::isa::Isa;
pub use value::Value;

/// Number of usable pixels above `level` that are measurements, thus at most `high`. NaN is above nothing.
///
/// # Panics
/// If it is not known of each pixel whether it is usable.
pub fn count<P: Value>(isa: Isa, pixels: &[P], usable: &[bool], level: P, high: P) -> u64 {
    assert_eq!(pixels.len(), usable.len());
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::count(pixels, usable, level, high),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::count(pixels, usable, level, high),
        _ => scalar::count(pixels, usable, level, high),
    }
}

/// Appends the columns and values of the pixels of one row that [`count`] counts, in their order, as far as there is
/// room in both; returns their number, of which only so many were appended.
///
/// # Panics
/// If `columns` and `values` have different lengths, or as [`count`].
pub fn collect<P: Value>(
    isa: Isa,
    row: &[P],
    usable: &[bool],
    level: P,
    high: P,
    columns: &mut [u32],
    values: &mut [P],
) -> usize {
    assert_eq!((row.len(), columns.len()), (usable.len(), values.len()));
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::collect(row, usable, level, high, columns, values),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::collect(row, usable, level, high, columns, values),
        _ => scalar::collect(row, usable, level, high, columns, values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::OutputPixel;
    use konkordia_core::pixel::Pixel;

    fn pixels<P: OutputPixel>(count: usize, rarity: u64, seed: u64) -> Vec<P> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 16
        };
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
        let pixel = |_| match next() {
            word if (word >> 8).is_multiple_of(rarity) => special[word as usize % special.len()],
            word => P::from_photons((word % 400) as f32),
        };
        (0..count).map(pixel).collect()
    }

    fn check<P: Value>() {
        for count_of in [0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 255, 1024, 4097, 70_001] {
            for (level, rarity) in [(390.0, 50), (100.0, 2), (1e4, 1000), (-1.0, 9)] {
                let (pixels, level) = (pixels::<P>(count_of, rarity, count_of as u64), P::from_photons(level));
                let usable: Vec<bool> = (0..count_of).map(|n| n % 11 != 3).collect();
                let is_above = |n: u32, pixel: &P| *pixel > level && *pixel <= P::VALID_MAX && n % 11 != 3;
                let naive: Vec<(u32, u64)> =
                    (0..).zip(&pixels).filter(|(n, p)| is_above(*n, p)).map(|(n, p)| (n, p.to_f64().to_bits())).collect();
                for &isa in Isa::available() {
                    let context = format!("{:?}, {count_of} pixels above {level:?}, {isa}", P::TYPE);
                    assert_eq!(count(isa, &pixels, &usable, level, P::VALID_MAX), naive.len() as u64, "{context}");
                    for room in [0, 1, naive.len() / 2, naive.len(), naive.len() + 3] {
                        let (mut columns, mut values) = (vec![u32::MAX; room], vec![P::MASKED; room]);
                        let found = collect(isa, &pixels, &usable, level, P::VALID_MAX, &mut columns, &mut values);
                        assert_eq!(found, naive.len(), "{context}");
                        let kept = found.min(room);
                        let all = columns.iter().copied().zip(values.iter().map(|value| value.to_f64().to_bits()));
                        assert!(all.clone().take(kept).eq(naive.iter().copied().take(kept)), "{context}, room for {room}");
                        assert!(columns[kept..].iter().all(|column| *column == u32::MAX), "{context}: beyond the found");
                    }
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_finds_what_naive_code_finds() {
        check::<i16>();
        check::<u16>();
        check::<i32>();
        check::<u32>();
        check::<f32>();
    }

    #[test]
    fn nan_and_infinity_are_above_nothing() {
        let row = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3.0];
        for &isa in Isa::available() {
            assert_eq!(count(isa, &row, &[true; 4], 2.0, f32::VALID_MAX), 1);
        }
    }

    #[test]
    fn levels_at_the_ends_count_what_they_say() {
        let floats: Vec<f32> = (0..300).map(|n| [-0.0, 0.0, -3.5, 1e-40, f32::NAN, 2.0][n % 6]).collect();
        let whole: Vec<i16> = (0..300).map(|n| [i16::MIN, -1, 0, 1, i16::MAX - 1, i16::MAX][n % 6]).collect();
        for &isa in Isa::available() {
            let of_floats = |level, high| count(isa, &floats, &[true; 300], level, high);
            for (level, high, expected) in
                [(-0.0, 9.0, 100), (0.0, 9.0, 100), (-4.0, 9.0, 250), (-4.0, -0.0, 150), (f32::NAN, 9.0, 0), (9.0, 2.0, 0)]
            {
                assert_eq!(of_floats(level, high), expected, "floats above {level} up to {high}, {isa}");
            }
            let of_whole = |level, high| count(isa, &whole, &[true; 300], level, high);
            for (level, high, expected) in
                [(i16::MIN, i16::MAX, 250), (-1, i16::MAX - 1, 150), (i16::MAX, i16::MAX, 0), (i16::MAX, i16::MIN, 0)]
            {
                assert_eq!(of_whole(level, high), expected, "whole numbers above {level} up to {high}, {isa}");
            }
        }
    }
}
