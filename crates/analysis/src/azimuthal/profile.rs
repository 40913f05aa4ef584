//! The result of an integration.

/// What an integration gave, made once by [`super::Integrator::profile`] and filled for every image. The two axes have
/// one value for each bin; all other lists have one value for each bin of the cake, the radial bins of the first
/// azimuth first. A profile is a cake of one azimuthal bin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Centres of the radial bins, in the unit of the settings.
    pub radial: Vec<f64>,
    /// Centres of the azimuthal bins, degrees.
    pub azimuth_deg: Vec<f64>,
    /// Mean intensity of a pixel: `sum / normalization`; the value for empty bins where no pixel is valid.
    pub intensity: Vec<f64>,
    /// Sum of the pixels times their shares, without corrections.
    pub sum: Vec<f64>,
    /// Sum of shares times the corrections for solid angle and polarisation.
    pub normalization: Vec<f64>,
    /// Sum of shares: the number of valid pixels.
    pub pixels: Vec<f64>,
    /// Variance of `sum` if the pixels are counts of photons: the sum of the pixels times the squares of their shares,
    /// at least 0. Empty unless it was asked for.
    pub variance: Vec<f64>,
    /// Standard deviation of `intensity`: root of `variance`, divided by `normalization`; the value for empty bins
    /// where no pixel is valid. Empty unless it was asked for.
    pub sigma: Vec<f64>,
}

impl Profile {
    /// Room for the results of these bins.
    pub(super) fn new(radial: Vec<f64>, azimuth_deg: Vec<f64>, has_variance: bool) -> Self {
        let zeros = vec![0.0; radial.len() * azimuth_deg.len()];
        let variance = if has_variance { zeros.clone() } else { Vec::new() };
        Self {
            radial,
            azimuth_deg,
            intensity: zeros.clone(),
            sum: zeros.clone(),
            normalization: zeros.clone(),
            pixels: zeros,
            sigma: variance.clone(),
            variance,
        }
    }

    /// True if it has room for these bins.
    pub(super) fn fits(&self, bins: usize, has_variance: bool) -> bool {
        let all = [&self.intensity, &self.sum, &self.normalization, &self.pixels];
        let variances = [&self.variance, &self.sigma];
        all.iter().all(|list| list.len() == bins) && (!has_variance || variances.iter().all(|list| list.len() == bins))
    }

    /// Sets a bin. `variance` is given if it was asked for.
    pub(super) fn set(&mut self, bin: usize, empty: f64, [sum, pixels, normalization]: [f64; 3], variance: Option<f64>) {
        let is_empty = pixels <= 0.0 || normalization <= 0.0;
        self.sum[bin] = sum;
        self.pixels[bin] = pixels;
        self.normalization[bin] = normalization;
        self.intensity[bin] = if is_empty { empty } else { sum / normalization };
        if let Some(variance) = variance.map(|variance| variance.max(0.0)) {
            self.variance[bin] = variance;
            self.sigma[bin] = if is_empty { empty } else { variance.sqrt() / normalization };
        }
    }
}
