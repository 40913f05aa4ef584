//! What is to be integrated, and how.

use crate::geometry::Radial;

/// How pixels go to bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Splitting {
    /// A pixel belongs to the bin of its centre: "no" in pyFAI. Sums of integers are exact.
    #[default]
    None,
    /// A pixel is the rectangle around its corners in the plane of radius and azimuth, with its centre in the middle:
    /// "bbox" in pyFAI.
    BoundingBox,
    /// A pixel is a polygon of its four corners in the plane of radius and azimuth, and each bin gets the share of its
    /// area that lies in it: "full" in pyFAI.
    Full,
}

/// Largest number of bins in all.
pub(super) const BINS_MAX: usize = 1 << 20;

/// Settings of an integration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What the bins are bins of.
    pub radial: Radial,
    /// Number of radial bins; together with `azimuth_bins` at most 1048576.
    pub bins: usize,
    /// Lower end of the first bin and upper end of the last, in the unit of `radial`; `None`: what the usable pixels
    /// cover. A range is needed for d.
    pub range: Option<[f64; 2]>,
    /// How pixels go to bins.
    pub splitting: Splitting,
    /// Only azimuths from the first to the second angle, degrees, counted as
    /// [`crate::geometry::Geometry::azimuth_rad`]; the second is above the first by at most 360. `None`: all.
    pub azimuth_deg: Option<[f64; 2]>,
    /// Number of azimuthal bins: 1 for a profile, more for a cake.
    pub azimuth_bins: usize,
    /// Divide by the polarisation of the scattered light, for a beam with this factor (-1 to 1; 0.99 at most
    /// synchrotrons).
    pub polarization: Option<f64>,
    /// Divide by the solid angle of each pixel.
    pub solid_angle: bool,
    /// Also calculate variances; splitting takes longer with them.
    pub variance: bool,
    /// Intensity of bins without valid pixels.
    pub empty: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            radial: Radial::Q,
            bins: 1000,
            range: None,
            splitting: Splitting::None,
            azimuth_deg: None,
            azimuth_bins: 1,
            polarization: None,
            solid_angle: true,
            variance: false,
            empty: f64::NAN,
        }
    }
}

impl Settings {
    /// # Errors
    /// If a setting makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let of = |what: String| Err(format!("azimuthal integration: {what}"));
        if self.bins == 0 || self.azimuth_bins == 0 || self.bins.saturating_mul(self.azimuth_bins) > BINS_MAX {
            let bins = format!("{} x {} bins", self.bins, self.azimuth_bins);
            return of(format!("{bins} cannot be made; there must be 1 to {BINS_MAX} in all"));
        }
        if let Some([low, high]) = self.range.filter(|[low, high]| !(low < high && (high - low).is_finite())) {
            return of(format!("the range {low} to {high} {} is empty or infinite", self.radial.unit()));
        }
        if self.radial == Radial::D && self.range.is_none() {
            return of("d grows without bound towards the beam; give a range of d".into());
        }
        let bad = |[from, to]: &[f64; 2]| !(from < to && to - from <= 360.0 && from.is_finite());
        if let Some([from, to]) = self.azimuth_deg.filter(bad) {
            return of(format!("the sector {from} to {to} degrees must rise by more than 0 and at most 360"));
        }
        if let Some(factor) = self.polarization.filter(|factor| !(-1.0..=1.0).contains(factor)) {
            return of(format!("the polarisation factor {factor} must lie between -1 and 1"));
        }
        Ok(())
    }
}
