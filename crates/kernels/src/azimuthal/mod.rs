//! Sums of the pixels of an image in bins, by a sparse matrix: the inner loops of azimuthal integration. Pixels are
//! read once, in their order. [`add_whole`] is for pixels that fall into one bin each, [`add_split`] for pixels that
//! are split among bins.
//!
//! The matrix is laid out by pixels (compressed sparse columns); all sums are made in the same order with every
//! instruction set.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod matrix;
mod scalar;

pub use matrix::{BinIndex, CHUNK, Extra, LANES, Lost, ONE, Split, SplitSums, Summed, Whole, WholeSums, fixed};

use crate::isa::Isa;

/// Adds the pixels of a stretch to the sums of their bins. A pixel outside of `range` (lowest, highest; NaN always is)
/// is not added; what it would have weighed is added to `lost`.
///
/// `matrix.bins` has one element for each pixel; `sums` and `lost` have more elements than any bin of it.
///
/// # Panics
/// If a bin lies outside of `sums`, or of `lost`.
pub fn add_whole<P: Summed, I: BinIndex>(
    isa: Isa,
    pixels: &[P],
    range: [P; 2],
    matrix: &Whole<'_, I>,
    sums: &mut [[P::Wide; LANES]],
    lost: &mut [Lost],
) {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::add_whole(pixels, range, matrix, sums, lost),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::add_whole(pixels, range, matrix, sums, lost),
        _ => scalar::add_whole(pixels, range, matrix, sums, lost),
    }
}

/// As [`add_whole`], for pixels that are split. `sums` is indexed by the first bin of a pixel. `lost` needs two
/// elements more than the highest first bin.
///
/// # Panics
/// If a bin lies outside of `sums`, or of `lost`, or if `matrix.chunks` and `matrix.extras` do not fit together.
pub fn add_split<P: Summed, I: BinIndex, const N: usize>(
    isa: Isa,
    pixels: &[P],
    range: [P; 2],
    matrix: &Split<'_, I>,
    sums: &mut SplitSums<N>,
    lost: &mut [Lost],
) {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::add_split(pixels, range, matrix, sums, lost),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::add_split(pixels, range, matrix, sums, lost),
        _ => scalar::add_split(pixels, range, matrix, sums, lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::pixel::Pixel;

    const BINS: usize = 37;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 >> 16
        }
    }

    /// Pixels of which about one of `rarity` is special.
    fn pixels<P: Summed>(count: usize, rarity: u64, random: &mut Random) -> Vec<P> {
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
        let pixel = |_| match random.next() {
            word if (word >> 8).is_multiple_of(rarity) => special[word as usize % 5],
            word => P::from_photons((word % 4000) as f32 - 900.25),
        };
        (0..count).map(pixel).collect()
    }

    fn check_whole<P: Summed, I: BinIndex>(index: impl Fn(usize) -> I) {
        for (n, count) in [0, 1, 3, 4, 63, 64, 65, 129, 1023, 5000].into_iter().enumerate() {
            for rarity in [1, 2, 50, 100_000] {
                let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (n as u64 * 77 + rarity));
                let pixels = pixels::<P>(count, rarity, &mut random);
                let bins: Vec<usize> = (0..count).map(|_| random.next() as usize % BINS).collect();
                let weights: Vec<f32> = (0..count).map(|_| random.next() as f32 / u64::MAX as f32).collect();
                let (mut naive, mut sizes, mut naive_lost) = ([0.0; BINS], [0.0; BINS], [Lost::default(); BINS]);
                for ((pixel, &bin), &weight) in pixels.iter().zip(&bins).zip(&weights) {
                    if pixel.is_number() {
                        naive[bin] += pixel.to_f64();
                        sizes[bin] += pixel.to_f64().abs();
                    } else {
                        naive_lost[bin].pixels += ONE;
                        naive_lost[bin].weight += (f64::from(weight) * ONE as f64).round() as i64;
                    }
                }
                let stored: Vec<I> = bins.iter().map(|&bin| index(bin)).collect();
                let matrix = Whole { bins: &stored, weights: &weights };
                let mut first = None;
                for &isa in Isa::available() {
                    let (mut sums, mut lost) = (WholeSums::new(BINS), [Lost::default(); BINS]);
                    add_whole(isa, &pixels, [P::VALID_MIN, P::VALID_MAX], &matrix, P::sums(&mut sums), &mut lost);
                    let got: Vec<f64> = (0..BINS).map(|bin| sums.take::<P>(bin)).collect();
                    let context = format!("{:?}, {count} pixels, one of {rarity} special, {isa}", P::TYPE);
                    for bin in 0..BINS {
                        assert!((got[bin] - naive[bin]).abs() <= sizes[bin] * 1e-14, "{context}, bin {bin}");
                    }
                    assert_eq!(lost, naive_lost, "{context}");
                    let bits: Vec<u64> = got.iter().map(|sum| sum.to_bits()).collect();
                    assert_eq!(*first.get_or_insert(bits.clone()), bits, "{context}");
                    assert!((0..BINS).all(|bin| sums.take::<P>(bin) == 0.0), "{context}");
                }
            }
        }
    }

    struct Shares {
        bins: Vec<u16>,
        shares: Vec<[f32; 2]>,
        weights: Vec<f32>,
        chunks: Vec<u32>,
        extras: Vec<Extra>,
    }

    fn random_shares(count: usize, random: &mut Random) -> Shares {
        let mut part = |scale: f32| (random.next() % 1000) as f32 * scale / 1000.0;
        let bins = (0..count).map(|_| part(BINS as f32 - 1.0) as u16).collect();
        let shares = (0..count).map(|_| [part(0.5), part(0.5)]).collect();
        let weights = (0..count).map(|_| part(1.0)).collect();
        let (mut chunks, mut extras) = (vec![0], vec![]);
        for chunk in 0..count.div_ceil(CHUNK) {
            for pixel in 0..CHUNK.min(count - chunk * CHUNK) {
                if part(1.0) < 0.2 {
                    extras.push(Extra { pixel: pixel as u32, bin: part(BINS as f32) as u32, share: part(0.5) });
                }
            }
            chunks.push(extras.len() as u32);
        }
        Shares { bins, shares, weights, chunks, extras }
    }

    /// All elements of the matrix: pixel, bin, share.
    fn elements(s: &Shares) -> Vec<(usize, usize, f64)> {
        let pairs = s.bins.iter().zip(&s.shares).enumerate();
        let mut all: Vec<_> = pairs
            .flat_map(|(n, (&bin, &[a, b]))| [(n, usize::from(bin), a.into()), (n, usize::from(bin) + 1, b.into())])
            .collect();
        for (chunk, ends) in s.chunks.windows(2).enumerate() {
            let extras = &s.extras[ends[0] as usize..ends[1] as usize];
            all.extend(extras.iter().map(|e| (chunk * CHUNK + e.pixel as usize, e.bin as usize, e.share.into())));
        }
        all
    }

    fn check_split<P: Summed, const N: usize>() {
        for (n, count) in [0, 1, 3, 64, 65, 129, 1023, 5000].into_iter().enumerate() {
            for rarity in [1, 2, 50, 100_000] {
                let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (n as u64 * 77 + rarity));
                let pixels = pixels::<P>(count, rarity, &mut random);
                let s = random_shares(count, &mut random);
                let (mut naive, mut sizes, mut naive_lost) = ([[0.0; 2]; BINS], [0.0; BINS], [Lost::default(); BINS + 1]);
                for (pixel, bin, share) in elements(&s) {
                    if pixels[pixel].is_number() {
                        let value = pixels[pixel].to_f64();
                        naive[bin][0] += share * value;
                        naive[bin][1] += share * share * value;
                        sizes[bin] += value.abs();
                    } else {
                        naive_lost[bin].pixels += fixed(share);
                        naive_lost[bin].weight += fixed(share * f64::from(s.weights[pixel]));
                    }
                }
                let Shares { bins, shares, weights, chunks, extras } = &s;
                let matrix = Split { bins, shares, weights, chunks, extras };
                let mut first = None;
                for &isa in Isa::available() {
                    let (mut sums, mut lost) = (vec![[[0.0; N]; LANES]; BINS], [Lost::default(); BINS + 1]);
                    add_split(isa, &pixels, [P::VALID_MIN, P::VALID_MAX], &matrix, &mut sums, &mut lost);
                    let context = format!("{:?}, {count} pixels, one of {rarity} special, {isa}", P::TYPE);
                    let at = |bin: usize, n: usize| sums[bin].iter().map(|lane| lane[n]).sum::<f64>();
                    for bin in 0..BINS {
                        for square in 0..N / 2 {
                            let before = if bin > 0 { at(bin - 1, 2 * square + 1) } else { 0.0 };
                            let got = at(bin, 2 * square) + before;
                            let naive = naive[bin][square];
                            assert!((got - naive).abs() <= sizes[bin] * 1e-14, "{context}, bin {bin}: {got} {naive}");
                        }
                    }
                    assert_eq!(lost, naive_lost, "{context}");
                    let bits: Vec<u64> = sums.as_flattened().as_flattened().iter().map(|sum| sum.to_bits()).collect();
                    assert_eq!(*first.get_or_insert(bits.clone()), bits, "{context}");
                }
            }
        }
    }

    #[test]
    fn whole_pixels_equal_naive_sums() {
        check_whole::<i16, u16>(|bin| bin as u16);
        check_whole::<u16, u32>(|bin| bin as u32);
        check_whole::<i32, u16>(|bin| bin as u16);
        check_whole::<u32, u32>(|bin| bin as u32);
        check_whole::<f32, u16>(|bin| bin as u16);
    }

    #[test]
    fn split_pixels_equal_naive_sums() {
        check_split::<i16, 2>();
        check_split::<u16, 4>();
        check_split::<i32, 2>();
        check_split::<u32, 4>();
        check_split::<f32, 2>();
        check_split::<f32, 4>();
    }

    #[test]
    fn sums_of_integers_are_exact() {
        let pixels = vec![u32::VALID_MAX; 10_007];
        let bins = vec![1u16; pixels.len()];
        for &isa in Isa::available() {
            let (mut sums, mut lost) = (WholeSums::new(2), [Lost::default(); 2]);
            let matrix = Whole { bins: &bins, weights: &[] };
            add_whole(isa, &pixels, [0, u32::VALID_MAX], &matrix, u32::sums(&mut sums), &mut lost);
            assert_eq!(sums.take::<u32>(1), f64::from(u32::VALID_MAX) * 10_007.0);
            assert_eq!(lost, [Lost::default(); 2]);
        }
    }
}
