//! The spot finder of DIALS (`dials.find_spots` with the threshold `dispersion_extended`, or `dispersion`) for still
//! images. A pixel is not background if the variance of the small window around it is too high for its mean. Regions of
//! such pixels shrink by almost half a window, because a strong pixel spoils all windows that contain it. What is left
//! is compared with the mean of the background pixels in a larger window. Strong pixels with common sides are a spot;
//! spots with too few or too many pixels, or with their highest pixel far from their centre, are dropped.
//!
//! Winter, G. et al. (2018), Acta Cryst. D74, 85-97; Winter, G. et al. (2022), Protein Sci. 31, 232-250.

mod rows;
mod settings;
mod strong;
#[cfg(test)]
mod tests;

pub use settings::{SETTINGS_VERSION, Settings};

use crate::components::{Components, Group, Neighbours, Run};
use crate::ordered::Ordered;
use crate::plane::Plane;
use crate::spot::SpotList;
use konkordia_kernels::Isa;
use konkordia_kernels::dispersion::Value;
use konkordia_kernels::stats::Measured;
use rows::{Pixels, Rows};
use std::sync::Arc;
use strong::Strong;

/// Finds spots in images of one size; see the module. A clone shares the mask.
///
/// Of a [`Spot`](crate::spot::Spot), as in DIALS, position and intensity come from the strong pixels as they are,
/// without subtracting background. `background` is the mean of the backgrounds of its pixels, and `snr` is the
/// intensity less that of all its pixels, divided by the square root of `gain` times that, or of `gain` where that is
/// below 1.
#[derive(Clone, Debug)]
pub struct Dispersion {
    settings: Settings,
    usable: Arc<[u8]>,
    size: [usize; 2],
    whole: Rows<i32>,
    float: Rows<f32>,
    runs: Vec<Run<Strong>>,
    components: Components<Strong>,
    ordered: Ordered,
    background: Option<f64>,
}

impl Dispersion {
    /// For images of `rows` x `columns` pixels, of which `usable` says which can count.
    ///
    /// # Errors
    /// A setting is out of range, or `usable` has another number of pixels, or there are no columns.
    pub fn new(settings: Settings, usable: &[bool], rows: usize, columns: usize) -> Result<Self, String> {
        settings.check()?;
        if columns == 0 || rows.checked_mul(columns) != Some(usable.len()) {
            return Err(format!("a mask of {} pixels for {rows} rows of {columns} pixels", usable.len()));
        }
        Ok(Self {
            usable: usable.iter().map(|usable| u8::from(*usable)).collect(),
            size: [rows, columns],
            whole: Rows::new(&settings, rows, columns),
            float: Rows::new(&settings, rows, columns),
            runs: Vec::with_capacity(columns / 2 + 1),
            components: Components::new(columns, Neighbours::Four),
            ordered: Ordered::default(),
            background: None,
            settings,
        })
    }

    /// Finds the spots of an image; what `list` held before is forgotten. Takes memory only if `list` can hold more
    /// than all lists before.
    ///
    /// # Panics
    /// If the image has another size.
    pub fn find<P: Measured>(&mut self, isa: Isa, plane: &Plane<P>, list: &mut SpotList) {
        assert_eq!([plane.rows, plane.columns], self.size, "the size of the image");
        self.ordered.start(list.spots_max());
        let Self { settings, usable, whole, float, runs, components, ordered, .. } = self;
        let mut done = |strong: &Strong| {
            if let Some(spot) = strong.spot(settings) {
                ordered.push(strong.first(), spot);
            }
        };
        let beside = if P::TYPE.is_float() {
            pass(isa, plane, settings, usable, float, runs, components, &mut done)
        } else {
            pass(isa, plane, settings, usable, whole, runs, components, &mut done)
        };
        ordered.give(list);
        self.background = (beside.count > 0).then(|| beside.sum / beside.count as f64);
    }

    /// Mean of the valid pixels below 2^24 of the last image that are not strong, in the unit of the pixels; `None`
    /// before the first image and without such a pixel.
    pub fn background(&self) -> Option<f64> {
        self.background
    }
}

/// All rows of an image. Gives the pixels that count and are not strong.
#[expect(clippy::too_many_arguments, reason = "the parts of one object, for two types of rows")]
fn pass<P: Measured, V: Value>(
    isa: Isa,
    plane: &Plane<P>,
    settings: &Settings,
    usable: &[u8],
    rows: &mut Rows<V>,
    runs: &mut Vec<Run<Strong>>,
    components: &mut Components<Strong>,
    done: &mut impl FnMut(&Strong),
) -> Pixels {
    rows.clear();
    let mut strong = Pixels::default();
    for step in 0..rows.steps() {
        if let Some(row) = rows.step(isa, plane, usable, step) {
            find_runs(plane, settings, rows, row, runs, &mut strong);
            components.row(runs, done);
        }
    }
    components.finish(done);
    let Pixels { count, sum } = rows.counted();
    Pixels { count: count - strong.count, sum: sum - strong.sum }
}

/// Finds the strong pixels of a row, and adds those that count to `counted`.
fn find_runs<P: Measured, V: Value>(
    plane: &Plane<P>,
    settings: &Settings,
    rows: &Rows<V>,
    row: usize,
    runs: &mut Vec<Run<Strong>>,
    counted: &mut Pixels,
) {
    runs.clear();
    let pixels = &plane.pixels[row * plane.columns..(row + 1) * plane.columns];
    let candidates = rows.candidates(row);
    for (block, candidates) in candidates.chunks(WORD).enumerate() {
        if candidates.iter().fold(0, |any, candidate| any | candidate) == 0 {
            continue;
        }
        for (n, _) in candidates.iter().enumerate().filter(|(_, candidate)| **candidate != 0) {
            let column = block * WORD + n;
            let around = rows.around(column);
            let (place, value) = ([row, column], pixels[column].to_f64());
            let Some(strong) = Strong::test(settings, value, around, place, plane.columns) else {
                continue;
            };
            if Rows::<V>::counts(value) {
                counted.add((1, value));
            }
            match runs.last_mut() {
                Some(run) if run.end == column => {
                    run.end += 1;
                    run.group.join(&strong);
                }
                _ => runs.push(Run { first: column, end: column + 1, group: strong }),
            }
        }
    }
}

/// Candidates that are looked at together.
const WORD: usize = 16;
