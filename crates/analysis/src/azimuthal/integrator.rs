//! Integrates images.

use konkordia_kernels::Isa;
use konkordia_kernels::azimuthal::{BinIndex, CHUNK, LANES, Lost, ONE, Split, Summed, Whole, WholeSums, add_split, add_whole};

use super::build::{Bins, Matrix, Stretch};
use super::grid::Grid;
use super::profile::Profile;
use super::settings::{Settings, Splitting};
use crate::geometry::Geometry;
use crate::plane::Plane;

/// Sums of split pixels: with or without squares of shares.
#[derive(Clone, Debug)]
enum SplitScratch {
    None,
    Sums(Vec<[[f64; 2]; LANES]>),
    Squares(Vec<[[f64; 4]; LANES]>),
}

/// Integrates images of one geometry. All memory is taken when it is made; every image, with every instruction set,
/// gives the same bits.
#[derive(Clone, Debug)]
pub struct Integrator {
    geometry: Geometry,
    grid: Grid,
    matrix: Matrix,
    whole: WholeSums,
    split: SplitScratch,
    lost: Vec<Lost>,
}

impl Integrator {
    /// Prepares the integration of images with this geometry. `usable` says for each pixel, row by row, whether it
    /// counts; others are never read.
    ///
    /// # Errors
    /// If `usable` does not have a value for each pixel, a setting makes no sense, the wavelength is not known but
    /// needed, or the matrix would be too large.
    pub fn new(geometry: &Geometry, settings: Settings, usable: &[bool]) -> Result<Self, String> {
        if geometry.rows.checked_mul(geometry.columns) != Some(usable.len()) {
            let shape = format!("{} rows and {} columns", geometry.rows, geometry.columns);
            return Err(format!("azimuthal integration: the mask has {} pixels, the geometry {shape}", usable.len()));
        }
        let grid = Grid::new(geometry, settings, usable)?;
        let matrix = Matrix::new(geometry, &grid, usable)?;
        let bins = matrix.full.len();
        let split = match (grid.settings.splitting, grid.settings.variance) {
            (Splitting::None, _) => SplitScratch::None,
            (_, false) => SplitScratch::Sums(vec![[[0.0; 2]; LANES]; bins]),
            (_, true) => SplitScratch::Squares(vec![[[0.0; 4]; LANES]; bins]),
        };
        let whole = WholeSums::new(if matches!(split, SplitScratch::None) { bins } else { 0 });
        Ok(Self { geometry: geometry.clone(), grid, matrix, whole, split, lost: vec![Lost::default(); bins] })
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.grid.settings
    }

    /// Its matrix.
    pub(super) fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// A profile with its axes and room for results.
    pub fn profile(&self) -> Profile {
        Profile::new(self.grid.radial_axis(), self.grid.azimuth_axis_deg(), self.grid.settings.variance)
    }

    /// Integrates an image into a profile of [`Self::profile`]. Pixels of the image that are not valid count neither
    /// in the sum nor in the normalisation.
    ///
    /// # Errors
    /// If the image has another shape than the geometry, or the profile is of another integrator.
    pub fn integrate<P: Summed>(&mut self, isa: Isa, plane: &Plane<'_, P>, out: &mut Profile) -> Result<(), String> {
        let (rows, columns) = (self.geometry.rows, self.geometry.columns);
        if (plane.rows, plane.columns) != (rows, columns) && plane.pixels.len() + rows * columns > 0 {
            let shape = format!("{} rows and {} columns", plane.rows, plane.columns);
            return Err(format!("azimuthal integration: the image has {shape}, the geometry {rows} and {columns}"));
        }
        if !out.fits(self.grid.len(), self.grid.settings.variance) {
            return Err("azimuthal integration: the profile has other bins; take one of this integrator".into());
        }
        self.lost.fill(Lost::default());
        let Self { matrix, whole, split, lost, .. } = self;
        match (&matrix.bins, split) {
            (Bins::Narrow(bins), SplitScratch::None) => run_whole(isa, plane, matrix, bins, P::sums(whole), lost),
            (Bins::Wide(bins), SplitScratch::None) => run_whole(isa, plane, matrix, bins, P::sums(whole), lost),
            (Bins::Narrow(bins), SplitScratch::Sums(sums)) => run_split(isa, plane, matrix, bins, sums, lost),
            (Bins::Wide(bins), SplitScratch::Sums(sums)) => run_split(isa, plane, matrix, bins, sums, lost),
            (Bins::Narrow(bins), SplitScratch::Squares(sums)) => run_split(isa, plane, matrix, bins, sums, lost),
            (Bins::Wide(bins), SplitScratch::Squares(sums)) => run_split(isa, plane, matrix, bins, sums, lost),
        }
        self.finish::<P>(out);
        Ok(())
    }

    /// Turns sums into results, and sets them to zero.
    fn finish<P: Summed>(&mut self, out: &mut Profile) {
        let settings = &self.grid.settings;
        // What the pixels of the bin before add to this one.
        let mut before = [0.0; 2];
        // The last round only sets the sums of pixels without a bin to zero.
        for bin in 0..=self.grid.len() {
            let [sum, variance] = match &mut self.split {
                SplitScratch::None => [self.whole.take::<P>(bin); 2],
                SplitScratch::Sums(sums) => {
                    let [first, next] = added(std::mem::replace(&mut sums[bin], [[0.0; 2]; LANES]));
                    let here = [first + before[0], 0.0];
                    before = [next, 0.0];
                    here
                }
                SplitScratch::Squares(sums) => {
                    let [first, next, first_squares, next_squares] = added(std::mem::replace(&mut sums[bin], [[0.0; 4]; LANES]));
                    let here = [first + before[0], first_squares + before[1]];
                    before = [next, next_squares];
                    here
                }
            };
            if bin == self.grid.len() {
                break;
            }
            let (full, lost) = (self.matrix.full[bin], self.lost[bin]);
            let number = |fixed: i64| fixed as f64 / ONE as f64;
            let numbers = [sum, number(full.pixels - lost.pixels), number(full.weight - lost.weight)];
            out.set(bin, settings.empty, numbers, settings.variance.then_some(variance));
        }
    }
}

/// Sums of all lanes, in their order.
fn added<const N: usize>(lanes: [[f64; N]; LANES]) -> [f64; N] {
    lanes.into_iter().fold([0.0; N], |sums, lane| std::array::from_fn(|n| sums[n] + lane[n]))
}

/// The part of a list that belongs to a stretch; nothing of an empty list.
fn part<'a, T>(list: &'a [T], stretch: &Stretch) -> &'a [T] {
    if list.is_empty() { list } else { &list[stretch.at..stretch.at + stretch.count] }
}

fn run_whole<P: Summed, I: BinIndex>(
    isa: Isa,
    plane: &Plane<'_, P>,
    matrix: &Matrix,
    bins: &[I],
    sums: &mut [[P::Wide; LANES]],
    lost: &mut [Lost],
) {
    for stretch in &matrix.stretches {
        let pixels = &plane.pixels[stretch.pixel..stretch.pixel + stretch.count];
        let columns = Whole { bins: part(bins, stretch), weights: part(&matrix.weights, stretch) };
        add_whole(isa, pixels, [plane.low, plane.high], &columns, sums, lost);
    }
}

fn run_split<P: Summed, I: BinIndex, const N: usize>(
    isa: Isa,
    plane: &Plane<'_, P>,
    matrix: &Matrix,
    bins: &[I],
    sums: &mut [[[f64; N]; LANES]],
    lost: &mut [Lost],
) {
    for stretch in &matrix.stretches {
        let pixels = &plane.pixels[stretch.pixel..stretch.pixel + stretch.count];
        let columns = Split {
            bins: part(bins, stretch),
            shares: part(&matrix.shares, stretch),
            weights: part(&matrix.weights, stretch),
            chunks: &matrix.chunks[stretch.chunk..=stretch.chunk + stretch.count.div_ceil(CHUNK)],
            extras: &matrix.extras,
        };
        add_split(isa, pixels, [plane.low, plane.high], &columns, sums, lost);
    }
}
