//! What can be set.

use konkordia_kernels::dispersion::{Bound, HALF_WIDTH_MAX};

/// Name of the meaning of [`Settings`]. Another meaning gets another name.
pub const SETTINGS_VERSION: &str = "dispersion-1";

/// Settings of the finder; the defaults are those of `dials.find_spots` (DIALS 3.12) for pixel detectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Half height and half width of the window: 3, 3 is 7 x 7 pixels (`kernel_size`). Each 1 to 5.
    pub half_window_px: [usize; 2],
    /// A window is not background if its variance divided by its mean is this many standard deviations above 1.
    pub sigma_background: f64,
    /// A pixel is strong if it is this many standard deviations above the mean of its surroundings.
    pub sigma_strong: f64,
    /// Number of pixels that must count in a window (`min_local`): 2 or more; 0: all pixels of the window.
    pub count_min: usize,
    /// Pixel value per photon.
    pub gain: f64,
    /// A strong pixel is above this value.
    pub global_threshold: f64,
    /// Fewest pixels of a spot (`min_spot_size`; DIALS uses 3 for pixel detectors, 6 for others).
    pub pixels_min: u32,
    /// Most pixels of a spot (`max_spot_size`).
    pub pixels_max: u32,
    /// Longest distance between the highest pixel and the centre of intensity (`max_separation`).
    pub peak_distance_max_px: f64,
    /// True: `dispersion_extended`, the default of DIALS; false: `dispersion`.
    pub extended: bool,
    /// True: masked pixels are background when regions are shrunk, so that nothing is found beside them, as in DIALS up
    /// to 3.23. False: as from DIALS 3.24 on. Only for `extended`.
    pub masked_is_background: bool,
}

impl Settings {
    /// # Errors
    /// Says which setting is out of range.
    pub fn check(&self) -> Result<(), String> {
        let [height, width] = self.half_window_px;
        let largest = HALF_WIDTH_MAX - FAR_PX;
        if !(1..=largest).contains(&height) || !(1..=largest).contains(&width) {
            return Err(format!("half_window_px is {height}, {width}; each is from 1 to {largest}"));
        }
        let whole = (2 * height + 1) * (2 * width + 1);
        if self.count_min == 1 || self.count_min > whole {
            return Err(format!("count_min is {}; it is 0, or from 2 to the {whole} pixels of the window", self.count_min));
        }
        let numbers = [
            ("sigma_background", self.sigma_background),
            ("sigma_strong", self.sigma_strong),
            ("global_threshold", self.global_threshold),
            ("peak_distance_max_px", self.peak_distance_max_px),
        ];
        for (name, number) in numbers {
            if !(0.0..=HIGHEST).contains(&number) {
                return Err(format!("{name} is {number}; it is a number from 0 to {HIGHEST}"));
            }
        }
        if !(self.gain > 0.0 && self.gain <= HIGHEST) {
            return Err(format!("gain is {}; it is above 0 and at most {HIGHEST}", self.gain));
        }
        if self.pixels_min == 0 || self.pixels_max < self.pixels_min {
            let (min, max) = (self.pixels_min, self.pixels_max);
            return Err(format!("pixels_min is {min} and pixels_max is {max}; a spot has at least one pixel"));
        }
        Ok(())
    }

    /// The bound of the index of dispersion.
    pub(super) fn bound(&self) -> Bound {
        let [height, width] = self.half_window_px;
        let whole = (2 * height + 1) * (2 * width + 1);
        let count_min = if self.count_min == 0 { whole } else { self.count_min };
        Bound::new(height, width, count_min, self.sigma_background, self.gain)
    }

    /// How far from the pixels of a spot other pixels decide whether these are strong and their neighbours are not. If
    /// nothing changes in the rectangle of a spot that is grown by this, the spot is found again as it was.
    pub fn reach_px(&self) -> usize {
        let half = self.half_window_px[0].max(self.half_window_px[1]);
        let to_windows = if self.extended { half + FAR_PX + self.shrink_px() } else { 0 };
        // The neighbours, the windows of the background with the shrunk regions, the windows of the dispersion.
        1 + to_windows + half
    }

    /// How far regions that are not background shrink before their pixels can be strong; 0 without `extended`.
    pub(super) fn shrink_px(&self) -> usize {
        if self.extended { self.half_window_px[0].min(self.half_window_px[1]) - 1 } else { 0 }
    }
}

/// The window of the background is larger than that of the dispersion by this much on each side.
pub(super) const FAR_PX: usize = 2;

/// No setting is higher than this, so that sums over windows stay in range.
const HIGHEST: f64 = 1e9;

impl Default for Settings {
    fn default() -> Self {
        Self {
            half_window_px: [3, 3],
            sigma_background: 6.0,
            sigma_strong: 3.0,
            count_min: 2,
            gain: 1.0,
            global_threshold: 0.0,
            pixels_min: 3,
            pixels_max: 1000,
            peak_distance_max_px: 2.0,
            extended: true,
            masked_is_background: true,
        }
    }
}
