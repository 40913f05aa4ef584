//! The background of an image: the mean of its pixels that are not strong.

use super::strong::Strong;
use crate::plane::Plane;
use konkordia_kernels::stats::Measured;

/// Sums that are made side by side, so that a processor need not wait for one addition before the next.
const LANES: usize = 16;

/// Number and sum of the pixels that are not strong. Sums of integers below 2^53 are exact; those of floats are made in
/// a fixed order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    pixels: u64,
    sum: f64,
}

impl Beside {
    /// All valid pixels of an image.
    pub fn all<P: Measured>(plane: &Plane<'_, P>, usable: &[u8]) -> Self {
        let (mut pixels, mut sums) = ([0u64; LANES], [0.0f64; LANES]);
        let rows = plane.pixels.chunks(plane.columns).zip(usable.chunks(plane.columns));
        for (row, usable) in rows {
            let mut counts = [0u32; LANES];
            let mut add = |lane: usize, pixel: P, usable: u8| {
                let counts_here = plane.is_valid(pixel) & (usable != 0);
                counts[lane] += u32::from(counts_here);
                sums[lane] += if counts_here { pixel.to_f64() } else { 0.0 };
            };
            let (whole, rest) = row.as_chunks::<LANES>();
            let (usable, usable_rest) = usable.as_chunks::<LANES>();
            for (pixels, usable) in whole.iter().zip(usable) {
                (0..LANES).for_each(|lane| add(lane, pixels[lane], usable[lane]));
            }
            rest.iter().zip(usable_rest).enumerate().for_each(|(lane, (pixel, usable))| add(lane, *pixel, *usable));
            pixels.iter_mut().zip(counts).for_each(|(pixels, count)| *pixels += u64::from(count));
        }
        Self { pixels: pixels.iter().sum(), sum: sums.iter().fold(0.0, |all, sum| all + sum) }
    }

    /// Leaves a group of strong pixels out.
    pub fn leave_out(&mut self, strong: &Strong) {
        self.pixels -= u64::from(strong.pixels()).min(self.pixels);
        self.sum -= strong.sum();
    }

    /// Their mean; `None` if there are none.
    pub fn mean(self) -> Option<f64> {
        (self.pixels > 0).then(|| self.sum / self.pixels as f64)
    }
}
