//! The matrix of an integrator, as a list of what is added to which sum, for others that integrate alike.

use konkordia_kernels::azimuthal::{BinIndex, CHUNK, LANES};

use super::build::{Bins, Matrix};
use super::integrator::Integrator;

/// One pixel, or a share of it, in one sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// Number of the sum, see [`Integrator::elements`].
    pub sum: usize,
    /// The pixel of the image.
    pub pixel: u32,
    /// Share of the pixel; 1 without splitting.
    pub share: f32,
    /// Normalisation of the whole pixel.
    pub weight: f32,
}

impl Integrator {
    /// All elements, in the order in which they are added. Bin b has the sums 4 b .. 4 b + 3 beside each other, whose
    /// sum is made last. With splitting it has eight: 8 b .. 8 b + 3 for bin b, and 8 b + 4 .. 8 b + 7 for bin b + 1,
    /// of the pixels whose first bin is b.
    pub fn elements(&self) -> Vec<Element> {
        match &self.matrix().bins {
            Bins::Narrow(bins) => elements(self.matrix(), bins),
            Bins::Wide(bins) => elements(self.matrix(), bins),
        }
    }

    /// What all pixels together are in the normalisation of each bin: their number and their weight, in units of 1 /
    /// [`konkordia_kernels::azimuthal::ONE`].
    pub fn full(&self) -> Vec<[i64; 2]> {
        let full = &self.matrix().full;
        full[..full.len() - 2].iter().map(|full| [full.pixels, full.weight]).collect()
    }
}

fn elements<I: BinIndex>(matrix: &Matrix, bins: &[I]) -> Vec<Element> {
    let nowhere = matrix.full.len() - 2;
    let is_split = !matrix.shares.is_empty();
    let mut all = Vec::new();
    for stretch in &matrix.stretches {
        for (n, chunk) in (stretch.chunk..).zip((0..stretch.count).step_by(CHUNK)) {
            let places = chunk..(chunk + CHUNK).min(stretch.count);
            let element = |place: usize, bin: usize, part: usize, share: f32| {
                let sum = if is_split { 2 * bin + part } else { bin } * LANES + place % LANES;
                let weight = matrix.weights.get(stretch.at + place).copied().unwrap_or(1.0);
                Element { sum, pixel: (stretch.pixel + place) as u32, share, weight }
            };
            for place in places {
                let bin = bins[stretch.at + place].get();
                match matrix.shares.get(stretch.at + place) {
                    _ if bin == nowhere => {}
                    None => all.push(element(place, bin, 0, 1.0)),
                    Some([first, next]) => {
                        all.push(element(place, bin, 0, *first));
                        all.extend((*next != 0.0).then(|| element(place, bin, 1, *next)));
                    }
                }
            }
            if is_split {
                let extras = &matrix.extras[matrix.chunks[n] as usize..matrix.chunks[n + 1] as usize];
                all.extend(extras.iter().map(|e| element(chunk + e.pixel as usize, e.bin as usize, 0, e.share)));
            }
        }
    }
    all
}
