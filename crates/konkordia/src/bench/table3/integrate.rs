//! From counts to merged intensities, as simply as it can be done: the sum of a box around the place where a spot is
//! known to be, less the mean of a frame of pixels around it; the plain mean of all records of a reflection.

use super::crystal::{REACH_PX, Reflection, Spot};

/// Half width of the box: 7 x 7 pixels.
const BOX_PX: i64 = 3;
/// The frame of the background: from so many pixels to so many, in rows or columns.
const FRAME_PX: [i64; 2] = [5, REACH_PX];
/// Shells of equal volume, so that each has about as many reflections.
const SHELLS: usize = 10;
/// A merged reflection counts as measured from this intensity over its standard deviation on.
pub const SIGNIFICANT: f64 = 2.0;

/// A record of a reflection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Photons above the background.
    pub photons: f64,
    /// Their variance by the counts, at least 1.
    pub variance: f64,
}

/// Integrates a spot of an image of `edge` x `edge` pixels.
pub fn integrate(pixels: &[i16], edge: usize, spot: &Spot) -> Record {
    let (row, column) = (spot.y.floor() as i64, spot.x.floor() as i64);
    let (mut inside, mut around) = ([0.0, 0.0], [0.0, 0.0]);
    for dy in -FRAME_PX[1]..=FRAME_PX[1] {
        for dx in -FRAME_PX[1]..=FRAME_PX[1] {
            let far = dx.abs().max(dy.abs());
            let sum = if far <= BOX_PX {
                &mut inside
            } else if far >= FRAME_PX[0] {
                &mut around
            } else {
                continue;
            };
            // Spots lie so far from the edge that no pixel is beyond it (`crystal::distance_px`).
            let at = (row + dy) as usize * edge + (column + dx) as usize;
            sum[0] += 1.0;
            sum[1] += f64::from(pixels[at]);
        }
    }
    let share = inside[0] / around[0];
    Record { photons: inside[1] - share * around[1], variance: (inside[1] + share * share * around[1]).max(1.0) }
}

/// How well the records of a shell, or of all reflections, agree with each other and with the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Reflections that were recorded.
    pub reflections: usize,
    /// Those whose merged intensity is at least [`SIGNIFICANT`] standard deviations.
    pub significant: usize,
    /// Rmeas in percent; `None` if nothing was recorded twice.
    pub rmeas_percent: Option<f64>,
    /// Correlation of merged and true intensities; `None` for fewer than three reflections.
    pub correlation: Option<f64>,
    /// Sum of the merged intensities over that of the true ones; `None` if there are none.
    pub ratio: Option<f64>,
}

impl Quality {
    /// Share of the reflections that are significant, in percent; `None` if there are none.
    pub fn complete_percent(&self) -> Option<f64> {
        (self.reflections > 0).then(|| 100.0 * self.significant as f64 / self.reflections as f64)
    }
}

/// The quality of the lowest shell, of the highest one and of everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merged {
    /// Lowest resolution.
    pub low: Quality,
    /// Highest resolution.
    pub high: Quality,
    /// Everything.
    pub all: Quality,
}

/// Resolution limits of the lowest and the highest shell, in ångström: where the lowest ends, where the highest begins.
pub fn shells(reflections: &[Reflection]) -> [f64; 2] {
    let [from, to] = cubes(reflections);
    [1.0, SHELLS as f64 - 1.0].map(|shell| (from + shell / SHELLS as f64 * (to - from)).cbrt().recip())
}

fn cubes(reflections: &[Reflection]) -> [f64; 2] {
    let cubes = || reflections.iter().map(|reflection| reflection.inverse_d.powi(3));
    [cubes().fold(f64::INFINITY, f64::min), cubes().fold(0.0, f64::max)]
}

/// Merges all records, `records[n]` those of reflection n.
pub fn merge(reflections: &[Reflection], records: &[Vec<Record>]) -> Merged {
    let [low, high] = shells(reflections);
    let all: Vec<(&Reflection, &Vec<Record>)> =
        reflections.iter().zip(records).filter(|(_, records)| !records.is_empty()).collect();
    let of = |is_in: &dyn Fn(f64) -> bool| {
        let shell: Vec<_> = all.iter().filter(|(reflection, _)| is_in(reflection.inverse_d.recip())).copied().collect();
        quality(&shell)
    };
    Merged { low: of(&|d| d >= low), high: of(&|d| d <= high), all: of(&|_| true) }
}

fn quality(shell: &[(&Reflection, &Vec<Record>)]) -> Quality {
    let (mut spread, mut sum, mut significant) = (0.0, 0.0, 0);
    let mut pairs = Vec::with_capacity(shell.len());
    for (reflection, records) in shell {
        let n = records.len() as f64;
        let mean = records.iter().map(|record| record.photons).sum::<f64>() / n;
        let sigma = records.iter().map(|record| record.variance).sum::<f64>().sqrt() / n;
        significant += usize::from(mean >= SIGNIFICANT * sigma);
        if records.len() > 1 {
            spread += (n / (n - 1.0)).sqrt() * records.iter().map(|record| (record.photons - mean).abs()).sum::<f64>();
            sum += n * mean;
        }
        pairs.push((mean, reflection.photons));
    }
    let truth: f64 = pairs.iter().map(|(_, truth)| truth).sum();
    Quality {
        reflections: shell.len(),
        significant,
        rmeas_percent: (sum > 0.0).then(|| 100.0 * spread / sum),
        correlation: correlation(&pairs),
        ratio: (truth > 0.0).then(|| pairs.iter().map(|(mean, _)| mean).sum::<f64>() / truth),
    }
}

/// Pearson's.
fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let n = pairs.len() as f64;
    let (x, y) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0 / n, sum.1 + pair.1 / n));
    let product = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let (xy, xx, yy) = (
        product(&|pair| (pair.0 - x) * (pair.1 - y)),
        product(&|pair| (pair.0 - x).powi(2)),
        product(&|pair| (pair.1 - y).powi(2)),
    );
    Some(xy / (xx * yy).sqrt()).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(photons: f64) -> Record {
        Record { photons, variance: 4.0 }
    }

    #[test]
    fn a_spot_on_a_flat_background_gives_its_photons() {
        let mut pixels = vec![3i16; 32 * 32];
        let spot = Spot { reflection: 0, x: 16.7, y: 12.2, photons: 0.0 };
        let share = 49.0 / 88.0;
        let flat = integrate(&pixels, 32, &spot);
        assert!(flat.photons.abs() < 1e-9 && (flat.variance - 3.0 * (49.0 + share * share * 88.0)).abs() < 1e-9, "{flat:?}");
        // Inside the box, between box and frame, in the frame, and outside.
        for (row, column, change) in [(12, 16, 100.0), (15, 13, 100.0), (12, 20, 0.0), (12, 22, -100.0 * share), (12, 23, 0.0)] {
            pixels[row * 32 + column] += 100;
            let found = integrate(&pixels, 32, &spot).photons;
            assert!((found - change).abs() < 1e-9, "{row}, {column}: {found}");
            pixels[row * 32 + column] -= 100;
        }
        let empty = integrate(&[0; 32 * 32], 32, &spot);
        assert_eq!(empty, Record { photons: 0.0, variance: 1.0 });
    }

    #[test]
    fn rmeas_is_that_of_its_formula() {
        let at = |inverse_d: f64, photons: f64| Reflection { inverse_d, photons };
        let reflections = [at(0.1, 10.0), at(0.2, 20.0), at(0.5, 5.0), at(0.5, 1.0)];
        let records = [vec![record(9.0), record(11.0)], vec![record(20.0); 3], vec![record(5.0)], vec![]];
        let all = merge(&reflections, &records).all;
        let expected = 100.0 * (2f64.sqrt() * 2.0) / 80.0;
        assert!((all.rmeas_percent.unwrap() - expected).abs() < 1e-9, "{all:?}");
        assert_eq!((all.reflections, all.significant), (3, 3));
        assert!((all.correlation.unwrap() - 1.0).abs() < 1e-9 && (all.ratio.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn weak_reflections_are_not_significant_and_shells_are_apart() {
        let at = |inverse_d: f64| Reflection { inverse_d, photons: 1.0 };
        let reflections = [at(0.05), at(0.3), at(0.49), at(0.5)];
        // The standard deviation of the mean of four is 1.
        let records = [1.9, 2.1, 1.9, 2.0].map(|photons| vec![record(photons); 4]);
        let merged = merge(&reflections, &records);
        assert_eq!((merged.low.reflections, merged.low.significant), (1, 0));
        assert_eq!((merged.high.reflections, merged.high.significant), (2, 1));
        assert_eq!((merged.all.reflections, merged.all.significant), (4, 2));
        assert_eq!(merged.high.complete_percent(), Some(50.0));
        assert_eq!(merged.low.correlation, None);
    }
}
