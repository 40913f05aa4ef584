//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use super::sums::{RegionSums, Stretch};
use crate::stats::Measured;

/// Numbers that are added side by side, so that the order is the same in all instruction sets.
const LANES: usize = 8;

/// See [`super::sum`].
#[inline(always)]
pub fn sum<P: Measured>(pixels: &[P], columns: usize, stretches: &[Stretch], (low, high): (P, P)) -> RegionSums {
    let (mut counts, mut highest) = ([0.0f64; LANES], [f64::NEG_INFINITY; LANES]);
    let (mut sums, mut by_column, mut by_row) = ([0.0f64; LANES], [0.0f64; LANES], [0.0f64; LANES]);
    for stretch in stretches {
        let (row, column) = ((stretch.first / columns) as f64, (stretch.first % columns) as f64);
        let (groups, rest) = pixels[stretch.first..stretch.end].as_chunks::<LANES>();
        let (mut x, mut of_row): ([f64; LANES], _) = (std::array::from_fn(|lane| column + lane as f64), [0.0f64; LANES]);
        for group in groups {
            for lane in 0..LANES {
                let is_valid = (group[lane] >= low) & (group[lane] <= high);
                let number = group[lane].to_f64();
                let value = if is_valid { number } else { 0.0 };
                let top = if is_valid { number } else { f64::NEG_INFINITY };
                counts[lane] += if is_valid { 1.0 } else { 0.0 };
                of_row[lane] += value;
                by_column[lane] += value * x[lane];
                highest[lane] = if top > highest[lane] { top } else { highest[lane] };
                x[lane] += LANES as f64;
            }
        }
        for (lane, pixel) in rest.iter().enumerate() {
            if *pixel >= low && *pixel <= high {
                let value = pixel.to_f64();
                counts[lane] += 1.0;
                of_row[lane] += value;
                by_column[lane] += value * x[lane];
                highest[lane] = highest[lane].max(value);
            }
        }
        for lane in 0..LANES {
            sums[lane] += of_row[lane];
            by_row[lane] += of_row[lane] * row;
        }
    }
    RegionSums {
        pixels: counts.iter().sum::<f64>() as u64,
        sum: sums.iter().sum(),
        highest: highest.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        moments: [by_column.iter().sum(), by_row.iter().sum()],
    }
}
