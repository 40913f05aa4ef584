//! Rings of ice, and how far the spots of an image reach.

/// Spacings of hexagonal ice (Ih) in angstrom, from a = 4.498 and c = 7.338 angstrom, of
/// 100, 002, 101, 102, 110, 103, 200, 112, 201, 202, 203, 210, 211, 114, 212, 300 and 213.
pub const ICE_ANGSTROM: [f64; 17] =
    [3.895, 3.669, 3.441, 2.671, 2.249, 2.071, 1.948, 1.917, 1.883, 1.720, 1.524, 1.472, 1.444, 1.422, 1.366, 1.298, 1.261];
/// Half of the width of a ring, in 1/d^2.
pub const ICE_HALF_WIDTH_PER_ANGSTROM2: f64 = 0.002;
/// Spots from which on the resolution of an image is estimated.
pub const SPOTS_MIN: usize = 10;
/// Part of the spots that is coarser than the estimated resolution.
const PART: f64 = 0.95;

/// True if a spacing lies on a ring of ice.
pub fn is_ice(d_angstrom: f64) -> bool {
    let of = |d: f64| 1.0 / (d * d);
    ICE_ANGSTROM.iter().any(|ice| (of(d_angstrom) - of(*ice)).abs() <= ICE_HALF_WIDTH_PER_ANGSTROM2)
}

/// Version of what the settings mean.
pub const ICE_SETTINGS_VERSION: &str = "ice-1";

/// When an image shows ice: [`Self::hold`].
///
/// The rings cover about a tenth of 1/d^2, in which the spots of a crystal lie evenly, so about every tenth spot of any
/// crystal lies on one of them by chance (10 to 11 % on two frames of thaumatin).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IceSettings {
    /// Fewest spots on rings of ice.
    pub spots_min: u64,
    /// Least part of all spots that lie on rings of ice, 0 to 1.
    pub part_min: f64,
}

impl Default for IceSettings {
    fn default() -> Self {
        Self { spots_min: 5, part_min: 0.25 }
    }
}

impl IceSettings {
    /// True if so many of an image's spots lie on rings of ice that it shows ice.
    pub fn hold(&self, on_ice: u64, spots: u64) -> bool {
        on_ice >= self.spots_min && on_ice as f64 >= self.part_min * spots as f64
    }
}

/// The spacing that 95 % of these spots exceed; `None` for fewer than [`SPOTS_MIN`] spots. Sorts them; spacings that
/// are not finite do not count.
pub fn estimate(d_angstrom: &mut Vec<f64>) -> Option<f64> {
    d_angstrom.retain(|d| d.is_finite());
    d_angstrom.sort_by(|a, b| b.total_cmp(a));
    let last = (d_angstrom.len() as f64 * PART).ceil() as usize;
    (d_angstrom.len() >= SPOTS_MIN).then(|| d_angstrom[last - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacings_are_those_of_the_cell_of_ice() {
        let (a, c) = (4.498f64, 7.338f64);
        let d = |h: f64, k: f64, l: f64| (4.0 / 3.0 * (h * h + h * k + k * k) / (a * a) + l * l / (c * c)).powf(-0.5);
        let rings = [
            (1, 0, 0),
            (0, 0, 2),
            (1, 0, 1),
            (1, 0, 2),
            (1, 1, 0),
            (1, 0, 3),
            (2, 0, 0),
            (1, 1, 2),
            (2, 0, 1),
            (2, 0, 2),
            (2, 0, 3),
            (2, 1, 0),
            (2, 1, 1),
            (1, 1, 4),
            (2, 1, 2),
            (3, 0, 0),
            (2, 1, 3),
        ];
        for ((h, k, l), ice) in rings.into_iter().zip(ICE_ANGSTROM) {
            let d = d(f64::from(h), f64::from(k), f64::from(l));
            assert!((d - ice).abs() < 0.002, "{h}{k}{l}: {d} instead of {ice}");
            assert!(is_ice(ice) && is_ice(d));
        }
        assert!(!is_ice(3.0) && !is_ice(5.0) && !is_ice(f64::NAN) && !is_ice(f64::INFINITY) && !is_ice(0.0));
    }

    #[test]
    fn ice_is_more_than_what_lies_on_its_rings_by_chance() {
        let ice = IceSettings { spots_min: 5, part_min: 0.25 };
        assert!(ice.hold(5, 5) && ice.hold(5, 20) && ice.hold(100, 400));
        assert!(!ice.hold(4, 4) && !ice.hold(5, 21) && !ice.hold(40, 400) && !ice.hold(0, 0));
    }

    #[test]
    fn the_estimate_leaves_out_the_finest_spots() {
        let mut spots: Vec<f64> = (1..=100).map(f64::from).rev().chain([f64::NAN]).collect();
        assert_eq!(estimate(&mut spots), Some(6.0));
        assert_eq!(estimate(&mut vec![2.0; SPOTS_MIN - 1]), None);
        assert_eq!(estimate(&mut vec![2.0; SPOTS_MIN]), Some(2.0));
        assert_eq!(estimate(&mut Vec::new()), None);
    }
}
