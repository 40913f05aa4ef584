//! Images of salt instead of the sample: few reflections, all strong, and none near the beam.
//!
//! The number of reflections on an image grows with the volume of the unit cell, and no reflection is coarser than the
//! longest repeat of the lattice. Crystals of inorganic salts have cells of a few angstrom (NaCl 5.6, ammonium sulphate
//! up to 10.6), and they diffract strongly; those of macromolecules have cells of tens to hundreds of angstrom, and
//! reflections beyond 10 angstrom. The limit of the signal-to-noise ratio is above the medians of a well diffracting
//! protein: 25 to 70 on the two frames of thaumatin with which the spot finders are tested.

/// Version of what the settings mean.
pub const SETTINGS_VERSION: &str = "salt-1";
/// Fewest spots of salt.
pub const SPOTS_MIN: usize = 2;
/// No spot of salt is coarser.
pub const D_MAX_ANGSTROM: f64 = 10.0;

/// When an image shows salt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Most spots beside the rings of ice.
    pub spots_max: usize,
    /// Least median of their signal-to-noise ratios, as the method that found them means it.
    pub snr_min: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { spots_max: 20, snr_min: 100.0 }
    }
}

impl Settings {
    /// True if these spots are those of salt: [`SPOTS_MIN`] to [`Self::spots_max`] of them, none coarser than
    /// [`D_MAX_ANGSTROM`], and the median of their signal-to-noise ratios at least [`Self::snr_min`]. `spots` are all
    /// spots of an image beside the rings of ice, each with its signal-to-noise ratio and its spacing in angstrom;
    /// spacings that are not known (NaN) decide nothing. Of an even number the median is the lower one of the two in
    /// the middle. `scratch` is used as memory.
    pub fn hold(&self, spots: impl Iterator<Item = (f64, f64)>, scratch: &mut Vec<f64>) -> bool {
        scratch.clear();
        for (snr, d_angstrom) in spots {
            if d_angstrom > D_MAX_ANGSTROM || scratch.len() == self.spots_max {
                return false;
            }
            scratch.push(snr);
        }
        scratch.sort_by(f64::total_cmp);
        scratch.len() >= SPOTS_MIN && scratch[(scratch.len() - 1) / 2] >= self.snr_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows_salt(spots: &[(f64, f64)]) -> bool {
        Settings { spots_max: 5, snr_min: 100.0 }.hold(spots.iter().copied(), &mut vec![7.0; 3])
    }

    #[test]
    fn few_strong_spots_without_coarse_ones_are_salt() {
        assert!(shows_salt(&[(100.0, 2.8), (3000.0, 5.6)]));
        assert!(shows_salt(&[(20.0, 2.8), (200.0, 1.9), (300.0, 10.0), (50.0, 3.0), (100.0, 1.5)]));
        // The lower one of the two in the middle.
        assert!(!shows_salt(&[(99.0, 2.8), (3000.0, 5.6)]));
        // One, none, and too many of them.
        assert!(!shows_salt(&[(1e4, 2.8)]) && !shows_salt(&[]) && !shows_salt(&[(1e4, 2.8); 6]) && shows_salt(&[(1e4, 2.8); 5]));
        // A coarse one, wherever it stands.
        assert!(!shows_salt(&[(1e4, 10.1), (1e4, 2.0)]) && !shows_salt(&[(1e4, 2.0), (1e4, 60.0)]));
    }

    #[test]
    fn what_is_not_known_decides_nothing() {
        assert!(shows_salt(&[(1e4, f64::NAN), (1e4, f64::NAN)]));
        assert!(!shows_salt(&[(f64::NAN, 2.0), (50.0, 2.0), (60.0, 2.0)]));
        assert!(!Settings { spots_max: 0, snr_min: 0.0 }.hold([(1.0, 1.0); 3].into_iter(), &mut Vec::new()));
    }
}
