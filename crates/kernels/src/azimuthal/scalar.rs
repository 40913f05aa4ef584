//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use super::matrix::{BinIndex, CHUNK, LANES, Lost, ONE, Split, SplitSums, Summed, Whole, fixed};

#[inline(always)]
fn is_valid<P: PartialOrd + Copy>(pixel: P, [low, high]: [P; 2]) -> bool {
    (pixel >= low) & (pixel <= high)
}

#[inline(always)]
fn all_valid<P: PartialOrd + Copy>(pixels: &[P], range: [P; 2]) -> bool {
    pixels.iter().fold(true, |all, &pixel| all & is_valid(pixel, range))
}

#[inline(always)]
fn weight_of(weights: &[f32], pixel: usize) -> f64 {
    if weights.is_empty() { 1.0 } else { f64::from(weights[pixel]) }
}

/// See [`super::add_whole`].
#[inline(always)]
pub fn add_whole<P: Summed, I: BinIndex>(
    pixels: &[P],
    range: [P; 2],
    matrix: &Whole<'_, I>,
    sums: &mut [[P::Wide; LANES]],
    lost: &mut [Lost],
) {
    let chunks = pixels.chunks(CHUNK).zip(matrix.bins.chunks(CHUNK));
    for (n, (pixels, bins)) in chunks.enumerate() {
        if all_valid(pixels, range) {
            let (fours, pixels_left) = pixels.as_chunks::<LANES>();
            let (bins_of_fours, bins_left) = bins.as_chunks::<LANES>();
            for (pixels, bins) in fours.iter().zip(bins_of_fours) {
                for lane in 0..LANES {
                    let sum = &mut sums[bins[lane].get()][lane];
                    *sum = *sum + pixels[lane].wide();
                }
            }
            for (lane, (pixel, bin)) in pixels_left.iter().zip(bins_left).enumerate() {
                let sum = &mut sums[bin.get()][lane];
                *sum = *sum + pixel.wide();
            }
            continue;
        }
        for (place, (&pixel, bin)) in pixels.iter().zip(bins).enumerate() {
            if is_valid(pixel, range) {
                let sum = &mut sums[bin.get()][place % LANES];
                *sum = *sum + pixel.wide();
            } else {
                let lost = &mut lost[bin.get()];
                lost.pixels += ONE;
                lost.weight += fixed(weight_of(matrix.weights, n * CHUNK + place));
            }
        }
    }
}

/// The numbers by which a pixel is multiplied: its shares, and their squares if `N` is 4.
#[inline(always)]
fn factors<const N: usize>([first, second]: [f32; 2]) -> [f64; N] {
    let shares = [f64::from(first), f64::from(second)];
    std::array::from_fn(|n| if n < 2 { shares[n] } else { shares[n % 2] * shares[n % 2] })
}

#[inline(always)]
fn add_to<const N: usize>(sums: &mut [f64; N], factors: [f64; N], value: f64) {
    for n in 0..N {
        sums[n] += factors[n] * value;
    }
}

/// See [`super::add_split`].
#[inline(always)]
pub fn add_split<P: Summed, I: BinIndex, const N: usize>(
    pixels: &[P],
    range: [P; 2],
    matrix: &Split<'_, I>,
    sums: &mut SplitSums<N>,
    lost: &mut [Lost],
) {
    let chunks = pixels.chunks(CHUNK).zip(matrix.bins.chunks(CHUNK).zip(matrix.shares.chunks(CHUNK)));
    for (n, (pixels, (bins, shares))) in chunks.enumerate() {
        let extras = &matrix.extras[matrix.chunks[n] as usize..matrix.chunks[n + 1] as usize];
        if all_valid(pixels, range) {
            let (fours, pixels_left) = pixels.as_chunks::<LANES>();
            let (bins_of_fours, bins_left) = bins.as_chunks::<LANES>();
            let (shares_of_fours, shares_left) = shares.as_chunks::<LANES>();
            for ((pixels, bins), shares) in fours.iter().zip(bins_of_fours).zip(shares_of_fours) {
                for lane in 0..LANES {
                    add_to(&mut sums[bins[lane].get()][lane], factors(shares[lane]), pixels[lane].to_f64());
                }
            }
            for (lane, ((pixel, bin), &shares)) in pixels_left.iter().zip(bins_left).zip(shares_left).enumerate() {
                add_to(&mut sums[bin.get()][lane], factors(shares), pixel.to_f64());
            }
        } else {
            for (place, ((&pixel, bin), &shares)) in pixels.iter().zip(bins).zip(shares).enumerate() {
                if is_valid(pixel, range) {
                    add_to(&mut sums[bin.get()][place % LANES], factors(shares), pixel.to_f64());
                } else {
                    let weight = weight_of(matrix.weights, n * CHUNK + place);
                    lose(&mut lost[bin.get()], shares[0], weight);
                    lose(&mut lost[bin.get() + 1], shares[1], weight);
                }
            }
        }
        for extra in extras {
            let place = extra.pixel as usize;
            if is_valid(pixels[place], range) {
                let sums = &mut sums[extra.bin as usize][place % LANES];
                add_to(sums, factors([extra.share, 0.0]), pixels[place].to_f64());
            } else {
                lose(&mut lost[extra.bin as usize], extra.share, weight_of(matrix.weights, n * CHUNK + place));
            }
        }
    }
}

#[inline(always)]
fn lose(lost: &mut Lost, share: f32, weight: f64) {
    lost.pixels += fixed(f64::from(share));
    lost.weight += fixed(f64::from(share) * weight);
}
