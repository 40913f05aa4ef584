//! What the search is asked to do.

/// Name of the meaning of [`Settings`]. Another meaning gets another name.
pub const SETTINGS_VERSION: &str = "peakfinder8-1";

/// The largest [`Settings::local_background_radius_px`].
pub const LOCAL_BACKGROUND_RADIUS_MAX_PX: u32 = 64;

/// Settings of peakfinder8; in brackets the options of CrystFEL that mean the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Lowest threshold, in the unit of the pixels: no pixel up to it belongs to a spot (`threshold`).
    pub threshold: f64,
    /// A pixel of a spot stands out of its ring by more than this many standard deviations, and the intensity of a spot
    /// out of its surroundings by at least as many (`min-snr`). Above 0.
    pub snr_min: f64,
    /// Least pixels of a spot (`min-pix-count`); at least 1.
    pub pixels_min: u32,
    /// Most pixels of a spot (`max-pix-count`).
    pub pixels_max: u32,
    /// The surroundings of a spot reach twice as far as this (`local-bg-radius`); 1 to
    /// [`LOCAL_BACKGROUND_RADIUS_MAX_PX`].
    pub local_background_radius_px: u32,
    /// Pixels up to this distance from the beam are not used (`min-res`).
    pub radius_min_px: f64,
    /// Pixels from this distance on are not used (`max-res`); infinite for no limit.
    pub radius_max_px: f64,
    /// Spots with a pixel that exceeds its background by more than this are left out (`max_adu` of the geometry
    /// with `no-use-saturated`); infinite for no limit.
    pub pixel_max: f64,
}

impl Default for Settings {
    /// The defaults of CrystFEL, except for its threshold of 800 ADU.
    fn default() -> Self {
        Self {
            threshold: 10.0,
            snr_min: 5.0,
            pixels_min: 2,
            pixels_max: 200,
            local_background_radius_px: 3,
            radius_min_px: 0.0,
            radius_max_px: f64::INFINITY,
            pixel_max: f64::INFINITY,
        }
    }
}

impl Settings {
    /// Says what is wrong with the settings.
    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("peakfinder8: {what}"));
        if !self.threshold.is_finite() {
            return wrong(&format!("the threshold {} is not a number", self.threshold));
        }
        if !(self.snr_min.is_finite() && self.snr_min > 0.0) {
            return wrong(&format!("the lowest signal-to-noise ratio {} is not above 0", self.snr_min));
        }
        if self.pixels_min == 0 || self.pixels_min > self.pixels_max {
            return wrong(&format!("no spot has {} to {} pixels", self.pixels_min, self.pixels_max));
        }
        if !(1..=LOCAL_BACKGROUND_RADIUS_MAX_PX).contains(&self.local_background_radius_px) {
            let (radius, most) = (self.local_background_radius_px, LOCAL_BACKGROUND_RADIUS_MAX_PX);
            return wrong(&format!("the radius {radius} px of the local background is not in the range 1 to {most} px"));
        }
        if self.radius_min_px.is_nan() || self.radius_max_px.is_nan() || self.radius_min_px >= self.radius_max_px {
            return wrong(&format!("no pixel is {} to {} px from the beam", self.radius_min_px, self.radius_max_px));
        }
        if self.pixel_max.is_nan() {
            return wrong("the highest value of a pixel of a spot is not a number");
        }
        Ok(())
    }
}

/// The distance of a pixel from the beam as CrystFEL takes it: of coordinates truncated to whole pixels. `x_px` and
/// `y_px` are those of the first corner of the pixel, less those of the beam. With these distances, the spots are those
/// of CrystFEL; with exact ones, about one of fifty differs.
pub fn crystfel_radius_px(x_px: f64, y_px: f64) -> f32 {
    x_px.trunc().hypot(y_px.trunc()) as f32
}

/// A rectangle of pixels in which spots are searched: a panel or a chip. No spot and no background reaches beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panel {
    /// First column.
    pub x_px: usize,
    /// First row.
    pub y_px: usize,
    /// Columns, at least 1.
    pub columns: usize,
    /// Rows, at least 1.
    pub rows: usize,
}

impl Panel {
    /// The whole image.
    pub fn whole(rows: usize, columns: usize) -> Self {
        Self { x_px: 0, y_px: 0, columns, rows }
    }

    /// True if the pixel lies in it.
    pub fn contains(&self, x_px: usize, y_px: usize) -> bool {
        x_px.wrapping_sub(self.x_px) < self.columns && y_px.wrapping_sub(self.y_px) < self.rows
    }

    /// True if the pixel lies in it, and not in its first or last row or column.
    pub(super) fn has_inside(&self, x_px: usize, y_px: usize) -> bool {
        let inner = |at: usize, first: usize, length: usize| at > first && at + 1 < first + length;
        inner(x_px, self.x_px, self.columns) && inner(y_px, self.y_px, self.rows)
    }
}
