//! How far the direct beam lies from where the geometry has it, from one ring of a cake.
//!
//! About a wrong beam centre a ring is not round: in the direction in which the true beam lies, the ring lies further
//! out by as much. So the place of the ring is taken in each sector (the centroid above a straight background), and a
//! shift and the radius of the ring are fitted to the places by least squares. The radius need not be known.

use crate::azimuthal::Profile;
use crate::geometry::{Geometry, Radial};
use std::f64::consts::PI;
use std::ops::Range;

/// Fewest sectors of a cake from which a shift is taken.
pub const SECTORS_MIN: usize = 8;
/// Fewest bins across the ring.
pub const BINS_MIN: usize = 8;
/// A sector shows the ring if the counts in it are above the background by so many standard deviations.
const SNR_MIN: f64 = 5.0;

/// Finds the shift in the cakes of one integrator.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamRing {
    /// The bins of a sector in which the ring lies.
    bins: Range<usize>,
    bins_of_sector: usize,
    /// For each sector, by how many bins the ring moves per pixel of shift along x and along y.
    bins_per_px: Vec<[f64; 2]>,
}

impl BeamRing {
    /// For cakes with these axes; `ring` are its ends on the radial one.
    ///
    /// # Errors
    /// The cake is too coarse, the ring does not lie on its axis, or the beam does not meet the detector; in words.
    pub fn new(radial: Radial, ring: [f64; 2], axes: &Profile, geometry: &Geometry) -> Result<Self, String> {
        let sectors = axes.azimuth_deg.len();
        if sectors < SECTORS_MIN {
            return Err(format!("beam_ring needs a cake of at least {SECTORS_MIN} azimuth_bins, there are {sectors}"));
        }
        let within = |bin: &usize| (ring[0]..=ring[1]).contains(&axes.radial[*bin]);
        let (first, last) = ((0..axes.radial.len()).find(within), (0..axes.radial.len()).rfind(within));
        let bins = first.zip(last).map_or(0..0, |(first, last)| first..last + 1);
        if bins.len() < BINS_MIN {
            let (unit, bins) = (radial.unit(), bins.len());
            return Err(format!(
                "beam_ring {} to {} {unit} has {bins} bins of the cake, {BINS_MIN} are needed",
                ring[0], ring[1]
            ));
        }
        let center = geometry.beam_center_px().ok_or("beam_ring: the beam does not meet the detector")?;
        let ends = [axes.radial[bins.start], axes.radial[bins.end - 1]].map(|at| two_theta_rad(radial, at, geometry));
        let of_sector = |azimuth_deg: &f64| {
            let [inner, outer] = ends.map(|angle| geometry.on_detector_px(angle?, azimuth_deg.to_radians()));
            let (inner, outer) = inner.zip(outer)?;
            let [from, to] = [inner, outer].map(|[x, y]| [x - center[0], y - center[1]]);
            let [from_px, to_px] = [from, to].map(|[x, y]| x.hypot(y));
            let bins_per_px = (bins.len() - 1) as f64 / (to_px - from_px);
            Some([to[0] / to_px * bins_per_px, to[1] / to_px * bins_per_px])
        };
        let bins_per_px = axes.azimuth_deg.iter().map(of_sector).collect::<Option<Vec<_>>>();
        let bins_per_px = bins_per_px.ok_or("beam_ring: not all of the ring can meet the detector")?;
        Ok(Self { bins, bins_of_sector: axes.radial.len(), bins_per_px })
    }

    /// The true beam centre minus that of the geometry, x and y in pixels; `None` if too little of the ring is seen.
    pub fn shift_px(&self, cake: &Profile) -> Option<[f64; 2]> {
        // Normal equations of: place = radius + x * bins_per_px[0] + y * bins_per_px[1].
        let (mut matrix, mut right, mut sectors) = ([[0.0; 3]; 3], [0.0; 3], 0);
        for (sector, [x, y]) in self.bins_per_px.iter().enumerate() {
            let start = sector * self.bins_of_sector;
            let range = start + self.bins.start..start + self.bins.end;
            let Some(place) = centroid(&cake.sum[range.clone()], &cake.normalization[range]) else { continue };
            let row = [1.0, *x, *y];
            for (n, factor) in row.iter().enumerate() {
                (0..3).for_each(|m| matrix[n][m] += factor * row[m]);
                right[n] += factor * place;
            }
            sectors += 1;
        }
        // Half of the ring, so that radius and shift can be told apart.
        (2 * sectors >= self.bins_per_px.len()).then(|| solve(matrix, right)).flatten().map(|[_, x, y]| [x, y])
    }
}

/// Where the counts above the background lie, in bins; `None` if they do not stand out of it. The background is the
/// straight line through the means of the first and the last quarter.
fn centroid(sum: &[f64], normalization: &[f64]) -> Option<f64> {
    let (bins, edge) = (sum.len(), sum.len() / 4);
    let mean = |range: Range<usize>| {
        let normalization: f64 = normalization[range.clone()].iter().sum();
        (normalization > 0.0).then(|| sum[range].iter().sum::<f64>() / normalization)
    };
    let (low, high) = (mean(0..edge)?, mean(bins - edge..bins)?);
    let middle = (edge as f64 - 1.0) / 2.0;
    let slope = (high - low) / (bins - edge) as f64;
    let (mut counts, mut moment, mut all) = (0.0, 0.0, 0.0);
    for bin in 0..bins {
        if normalization[bin] <= 0.0 {
            return None;
        }
        // Per pixel, so that the number of pixels of a bin does not move the place.
        let background = low + slope * (bin as f64 - middle);
        let above = sum[bin] / normalization[bin] - background;
        counts += above;
        moment += above * bin as f64;
        all += sum[bin] / (normalization[bin] * normalization[bin]);
    }
    let place = moment / counts;
    (counts > SNR_MIN * all.max(0.0).sqrt() && (0.0..bins as f64).contains(&place)).then_some(place)
}

/// The scattering angle of a place on the axis; `None` if there is none.
fn two_theta_rad(radial: Radial, at: f64, geometry: &Geometry) -> Option<f64> {
    let of_q = |q: f64| 2.0 * (q * geometry.wavelength_angstrom().unwrap_or(f64::NAN) / (4.0 * PI)).asin();
    let angle = match radial {
        Radial::TwoTheta => at.to_radians(),
        Radial::Q => of_q(at),
        Radial::D => of_q(2.0 * PI / at),
    };
    angle.is_finite().then_some(angle)
}

/// Solves three linear equations (Cramer's rule); `None` if they do not determine the numbers.
fn solve(matrix: [[f64; 3]; 3], right: [f64; 3]) -> Option<[f64; 3]> {
    let determinant = |m: [[f64; 3]; 3]| {
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
            + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    };
    let all = determinant(matrix);
    let scale = matrix[0][0] * matrix[1][1] * matrix[2][2];
    (all > 1e-9 * scale).then(|| {
        std::array::from_fn(|column| {
            let mut replaced = matrix;
            (0..3).for_each(|row| replaced[row][column] = right[row]);
            determinant(replaced) / all
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::azimuthal::{Integrator, Settings};
    use crate::plane::Plane;
    use konkordia_kernels::Isa;

    const SIZE: [usize; 2] = [400, 420];

    /// A detector whose beam is at this place, turned by `tilt` about the vertical.
    fn geometry([x, y]: [f64; 2], tilt_deg: f64) -> Geometry {
        let (sin, cos) = tilt_deg.to_radians().sin_cos();
        let (fast, slow) = ([-0.1 * cos, 0.0, 0.1 * sin], [0.0, -0.1, 0.0]);
        let origin: [f64; 3] = std::array::from_fn(|axis| [0.0, 0.0, 80.0][axis] - x * fast[axis] - y * slow[axis]);
        Geometry::new(SIZE, origin, fast, slow, Some(1.0)).unwrap()
    }

    fn settings() -> Settings {
        Settings { bins: 60, range: Some([1.0, 1.6]), azimuth_bins: 24, ..Settings::default() }
    }

    /// A ring at q = 1.3 about the true beam on a background that falls with q.
    fn image(truth: &Geometry, photons: f64) -> Vec<u32> {
        let at = |x, y| truth.radial(Radial::Q, x, y);
        truth
            .map(|x, y| (photons * (-0.5 * ((at(x, y) - 1.3) / 0.03).powi(2)).exp() + 40.0 / (1.0 + at(x, y))).round())
            .iter()
            .map(|value| *value as u32)
            .collect()
    }

    fn found(photons: f64, truth: [f64; 2], tilt_deg: f64, is_usable: impl Fn(usize) -> bool) -> Option<[f64; 2]> {
        let assumed = geometry([205.0, 198.0], tilt_deg);
        let usable: Vec<bool> = (0..SIZE[0] * SIZE[1]).map(|n| is_usable(n % SIZE[1])).collect();
        let mut integrator = Integrator::new(&assumed, settings(), &usable).unwrap();
        let mut cake = integrator.profile();
        let pixels = image(&geometry(truth, tilt_deg), photons);
        integrator.integrate(Isa::detect(), &Plane::own(&pixels, SIZE[1]), &mut cake).unwrap();
        BeamRing::new(Radial::Q, [1.05, 1.55], &cake, &assumed).unwrap().shift_px(&cake)
    }

    #[test]
    fn the_shift_of_the_beam_is_found() {
        for tilt_deg in [0.0, 12.0] {
            for (truth, shift) in [([205.0, 198.0], [0.0, 0.0]), ([208.0, 198.0], [3.0, 0.0]), ([203.5, 202.0], [-1.5, 4.0])] {
                let [x, y] = found(200.0, truth, tilt_deg, |_| true).unwrap();
                assert!((x - shift[0]).abs() < 0.2 && (y - shift[1]).abs() < 0.2, "{tilt_deg} {truth:?}: {x}, {y}");
            }
        }
    }

    #[test]
    fn without_a_ring_or_half_of_it_there_is_no_shift() {
        assert_eq!(found(0.0, [205.0, 198.0], 0.0, |_| true), None);
        assert_eq!(found(200.0, [205.0, 198.0], 0.0, |column| column > 240), None);
        assert_eq!(found(200.0, [205.0, 198.0], 0.0, |_| false), None);
        let [x, y] = found(200.0, [207.0, 198.0], 0.0, |column| column > 150).unwrap();
        assert!((x - 2.0).abs() < 0.3 && y.abs() < 0.3, "{x}, {y}");
    }

    #[test]
    fn a_ring_that_cannot_be_used_is_refused() {
        let geometry = geometry([205.0, 198.0], 0.0);
        let usable = vec![true; SIZE[0] * SIZE[1]];
        for (settings, ring, why) in [
            (Settings { azimuth_bins: 7, ..settings() }, [1.05, 1.55], "at least 8 azimuth_bins, there are 7"),
            (settings(), [1.2, 1.26], "has 6 bins of the cake, 8 are needed"),
            (settings(), [2.0, 3.0], "has 0 bins"),
        ] {
            let cake = Integrator::new(&geometry, settings.clone(), &usable).unwrap().profile();
            let refused = BeamRing::new(Radial::Q, ring, &cake, &geometry).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
