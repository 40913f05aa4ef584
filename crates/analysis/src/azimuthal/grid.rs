//! The bins: where they lie, and which bin a point belongs to.

use super::settings::{Settings, Splitting};
use crate::geometry::Geometry;

/// Bins of radius and azimuth. Bin numbers run along the radius first.
#[derive(Clone, Debug)]
pub struct Grid {
    pub(super) settings: Settings,
    low: f64,
    step: f64,
    from_deg: f64,
    step_deg: f64,
}

impl Grid {
    /// # Errors
    /// If a setting makes no sense, or q or d is asked for without a wavelength.
    pub(super) fn new(geometry: &Geometry, settings: Settings, usable: &[bool]) -> Result<Self, String> {
        settings.check()?;
        if geometry.radial(settings.radial, 0.5, 0.5).is_nan() {
            return Err("azimuthal integration: q and d need the wavelength; give energy_kev".into());
        }
        let [low, high] = settings.range.unwrap_or_else(|| covered(geometry, &settings, usable));
        // As in pyFAI, the highest value still belongs to the last bin.
        let above = f64::from(f32::EPSILON) * high.abs();
        let span = high + above - low;
        let step = if span > 0.0 { span / settings.bins as f64 } else { 1.0 };
        let [from_deg, to_deg] = settings.azimuth_deg.unwrap_or([-180.0, 180.0]);
        let step_deg = (to_deg - from_deg) / settings.azimuth_bins as f64;
        Ok(Self { settings, low, step, from_deg, step_deg })
    }

    /// Number of bins.
    pub(super) fn len(&self) -> usize {
        self.settings.bins * self.settings.azimuth_bins
    }

    /// True if the azimuth matters.
    pub(super) fn has_azimuth(&self) -> bool {
        self.settings.azimuth_deg.is_some() || self.settings.azimuth_bins > 1
    }

    /// Centres of the radial bins.
    pub(super) fn radial_axis(&self) -> Vec<f64> {
        (0..self.settings.bins).map(|bin| self.low + (bin as f64 + 0.5) * self.step).collect()
    }

    /// Centres of the azimuthal bins, degrees.
    pub(super) fn azimuth_axis_deg(&self) -> Vec<f64> {
        (0..self.settings.azimuth_bins).map(|bin| self.from_deg + (bin as f64 + 0.5) * self.step_deg).collect()
    }

    /// Radius as the number of radial bins from the first.
    pub(super) fn radius_bins(&self, geometry: &Geometry, x_px: f64, y_px: f64) -> f64 {
        (geometry.radial(self.settings.radial, x_px, y_px) - self.low) / self.step
    }

    /// Radius 0, as [`Self::radius_bins`].
    pub(super) fn zero_bins(&self) -> f64 {
        -self.low / self.step
    }

    /// Azimuth as the number of azimuthal bins from the first.
    pub(super) fn azimuth_bins(&self, geometry: &Geometry, x_px: f64, y_px: f64) -> f64 {
        (geometry.azimuth_rad(x_px, y_px).to_degrees() - self.from_deg) / self.step_deg
    }

    /// A whole turn, in azimuthal bins.
    pub(super) fn turn_bins(&self) -> f64 {
        360.0 / self.step_deg
    }

    /// The bin of a point.
    pub(super) fn bin_of(&self, radius_bins: f64, azimuth_bins: f64) -> Option<usize> {
        if !(radius_bins >= 0.0 && radius_bins < self.settings.bins as f64) {
            return None;
        }
        let row = if self.has_azimuth() {
            let (turn, rows) = (self.turn_bins(), self.settings.azimuth_bins);
            let azimuth = azimuth_bins.rem_euclid(turn);
            // In a whole turn, rounding leaves no point outside.
            let azimuth = if rows as f64 >= turn * (1.0 - 1e-12) { azimuth.min(rows as f64 - 0.5) } else { azimuth };
            if azimuth >= rows as f64 {
                return None;
            }
            azimuth as usize
        } else {
            0
        };
        Some(row * self.settings.bins + radius_bins as usize)
    }
}

/// The radii that the usable pixels cover, with their corners if pixels are split; 0 to 1 if there is no usable pixel.
fn covered(geometry: &Geometry, settings: &Settings, usable: &[bool]) -> [f64; 2] {
    let mut range = [f64::INFINITY, f64::NEG_INFINITY];
    let mut take = |radius: f64| {
        if radius.is_finite() {
            range = [range[0].min(radius), range[1].max(radius)];
        }
    };
    let radius = |x_px: f64, y_px: f64| geometry.radial(settings.radial, x_px, y_px);
    let columns = geometry.columns;
    let is_usable = |row: usize, column: usize| column < columns && usable.get(row * columns + column) == Some(&true);
    match settings.splitting {
        Splitting::None => {
            let pixels = usable.iter().enumerate().filter(|(_, is_usable)| **is_usable).map(|(pixel, _)| pixel);
            pixels.for_each(|pixel| take(radius((pixel % columns) as f64 + 0.5, (pixel / columns) as f64 + 0.5)));
        }
        Splitting::BoundingBox => {
            for pixel in usable.iter().enumerate().filter(|(_, is_usable)| **is_usable).map(|(pixel, _)| pixel) {
                let [x, y] = [(pixel % columns) as f64, (pixel / columns) as f64];
                let center = radius(x + 0.5, y + 0.5);
                let corners = [radius(x, y), radius(x + 1.0, y), radius(x, y + 1.0), radius(x + 1.0, y + 1.0)];
                let half = corners.into_iter().fold(0.0, |half: f64, corner| half.max((corner - center).abs()));
                // Radii below 0 do not exist.
                take((center - half).max(0.0));
                take(center + half);
            }
        }
        Splitting::Full => {
            for (row, column) in (0..=geometry.rows).flat_map(|row| (0..=columns).map(move |column| (row, column))) {
                // The pixels around the corner; there is no row or column before the first.
                let rows = [row.wrapping_sub(1), row].into_iter().filter(|row| *row < geometry.rows);
                if rows.into_iter().any(|row| is_usable(row, column) || is_usable(row, column.wrapping_sub(1))) {
                    take(radius(column as f64, row as f64));
                }
            }
        }
    }
    if range[0] <= range[1] { range } else { [0.0, 1.0] }
}
