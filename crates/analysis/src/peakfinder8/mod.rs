//! Bragg spots by peakfinder8, as CrystFEL 0.12 defines it (A. Barty et al., J. Appl. Cryst. 47 (2014) 1118, Cheetah;
//! T. A. White et al., J. Appl. Cryst. 45 (2012) 335, CrystFEL).
//!
//! 1. Pixels of the same rounded distance from the beam are a ring. Five times, mean and standard deviation of a ring
//!    are computed from the values that the time before did not find to stand out: those between the mean less and the
//!    mean plus [`Settings::snr_min`] standard deviations, of which the upper limit is at least
//!    [`Settings::threshold`]. A ring without such values has no spots.
//! 2. Neighbouring pixels (of eight) above the limits of their rings form a group. Groups that lie only in the first or
//!    last row or column of a panel are left out, and groups with too few or too many pixels.
//! 3. Mean and standard deviation of the pixels around the centre of the group that do not stand out, up to twice
//!    [`Settings::local_background_radius_px`] away, are its background. The group is a spot if its intensity above the
//!    background is at least [`Settings::snr_min`] times that standard deviation, and its highest pixel less the
//!    background is not below the highest pixel of the background less the background.
//!
//! Two consequences: the position of a spot is weighted with its pixels and not with what they have above the
//! background. A background in which all pixels are equal has no standard deviation, and a spot on it has no
//! signal-to-noise ratio and is left out; so is every pixel of a ring in which all values that do not stand out are
//! equal.
//!
//! Results are the same on every machine: statistics of integers are exact, those of floats are made in double
//! precision in the order of the pixels. CrystFEL computes in single precision, so that the limits of its rings differ
//! in the last digits. The caller gives the distances from the beam; [`crystfel_radius_px`] are those of CrystFEL.
//! CrystFEL 0.12 may add pixels near the first pixel of a panel to any spot; later versions and this program do not.

mod background;
mod bits;
mod groups;
mod rings;
mod settings;

pub use settings::{LOCAL_BACKGROUND_RADIUS_MAX_PX, Panel, SETTINGS_VERSION, Settings, crystfel_radius_px};

use crate::plane::Plane;
use crate::spot::SpotList;
use background::Disc;
use groups::Groups;
use konkordia_kernels::Isa;
use konkordia_kernels::stats::Measured;
use rings::{RingMap, RingStatistics};

/// Finds the spots of one image after the other. All memory is taken when it is made.
#[derive(Clone, Debug)]
pub struct Peakfinder8 {
    settings: Settings,
    rows: usize,
    columns: usize,
    panels: Vec<Panel>,
    rings: RingMap,
    statistics: RingStatistics,
    groups: Groups,
    disc: Disc,
}

impl Peakfinder8 {
    /// For images of `rows * columns` pixels. `radius_px` is the distance of each pixel from the beam on the plane of
    /// the detector, in pixels; pixels where it is not finite are not used, nor are those outside of all `panels`. An
    /// image without panels has no spots.
    ///
    /// # Errors
    /// If the settings make no sense, if the slices do not have `rows * columns` elements (at most 2^32 - 1), if a
    /// panel is empty, reaches beyond the image or overlaps with another, or if the distances from the beam of the
    /// pixels that are used differ by 65535 px or more.
    pub fn new(
        settings: Settings,
        radius_px: &[f32],
        usable: &[bool],
        rows: usize,
        columns: usize,
        panels: &[Panel],
    ) -> Result<Self, String> {
        settings.check()?;
        let pixels = rows.checked_mul(columns).filter(|&pixels| u32::try_from(pixels).is_ok());
        let pixels = pixels.ok_or_else(|| format!("peakfinder8: {rows} x {columns} pixels are too many"))?;
        for (what, found) in [("distances from the beam", radius_px.len()), ("usable pixels", usable.len())] {
            if found != pixels {
                return Err(format!("peakfinder8: {found} {what} for {rows} x {columns} pixels"));
            }
        }
        let fits = |first: usize, length: usize, all: usize| length > 0 && first < all && length <= all - first;
        for panel in panels {
            if !fits(panel.x_px, panel.columns, columns) || !fits(panel.y_px, panel.rows, rows) {
                return Err(format!("peakfinder8: the panel {panel:?} is not in an image of {rows} x {columns} pixels"));
            }
        }
        let rings = RingMap::new(&settings, radius_px, usable, columns, panels)?;
        Ok(Self {
            settings,
            rows,
            columns,
            panels: panels.to_vec(),
            statistics: RingStatistics::new(&settings, &rings),
            groups: Groups::new(pixels),
            disc: Disc::new(2 * settings.local_background_radius_px),
            rings,
        })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Mean of the pixels of the last image that do not stand out of their rings, of all rings together, in the unit of
    /// the pixels; `None` before the first image and without such a pixel.
    pub fn background(&self) -> Option<f64> {
        self.statistics.background
    }

    /// Replaces the spots in `spots` by those of the image, in the order of their first pixels that are not in the
    /// first or last row or column of a panel.
    ///
    /// # Panics
    /// If the image does not have the rows and columns for which this was made.
    pub fn find<P: Measured>(&mut self, isa: Isa, plane: &Plane<'_, P>, spots: &mut SpotList) {
        assert_eq!((plane.rows, plane.columns), (self.rows, self.columns), "an image of another size");
        assert_eq!(plane.pixels.len(), self.rings.of_pixel.len(), "one ring for each pixel");
        spots.clear();
        self.statistics.background = None;
        // False also for limits that are not numbers.
        let is_range = plane.low <= plane.high;
        if !is_range || self.rings.count == 1 {
            return;
        }
        self.statistics.find(isa, plane, &self.rings, &mut self.groups.marked);
        let (settings, disc) = (&self.settings, &self.disc);
        let rings =
            background::Rings { of_pixel: &self.rings.of_pixel, ranges: &self.statistics.ranges, means: &self.statistics.means };
        let pixels_allowed = settings.pixels_min as usize..=settings.pixels_max as usize;
        self.groups.each(self.columns, &self.panels, |panel, pixels| {
            if pixels_allowed.contains(&pixels.len())
                && let Some(spot) = background::spot(settings, plane, &rings, disc, panel, pixels)
            {
                spots.push(spot);
            }
        });
    }
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
