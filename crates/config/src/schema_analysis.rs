//! The keys of a recipe: what is looked for in images.

use super::schema_key::{Key, Kind, key};

const SIGMA: Kind = Kind::Number(0.0, 1e6);
const PIXELS: Kind = Kind::Number(-1e6, 1e6);
const COUNT: Kind = Kind::Integer(1, 1_000_000);

/// Tables of a recipe; `region` may stand several times.
pub const TABLES: [&str; 5] = ["spots", "azimuthal", "region", "above", "hits"];

pub(super) const KEYS: &[Key] = &[
    key(
        "spots",
        "method",
        Kind::Choice(&["peakfinder8", "dispersion"]),
        "required",
        "peakfinder8 = as CrystFEL means it; dispersion = the threshold of DIALS",
    ),
    key("spots", "spots_max", Kind::Integer(0, 1_000_000), "2000", "spots of an image that are stored; all are counted"),
    key("spots", "d_min_angstrom", Kind::Number(0.01, 1e6), "no limit", "spots of finer resolution are left out"),
    key("spots", "d_max_angstrom", Kind::Number(0.01, 1e6), "no limit", "spots of coarser resolution are left out"),
    key("spots", "pixels_min", COUNT, "peakfinder8: 2, dispersion: 3", "fewest pixels of a spot"),
    key("spots", "pixels_max", COUNT, "peakfinder8: 200, dispersion: 1000", "most pixels of a spot"),
    key("spots", "threshold", Kind::Number(-1e9, 1e9), "peakfinder8: 10, dispersion: 0", "pixels of a spot are above this value"),
    key("spots", "snr_min", Kind::Number(0.01, 1e6), "5", "peakfinder8: least signal-to-noise ratio of pixels and of spots"),
    key(
        "spots",
        "local_background_radius_px",
        Kind::Integer(1, 64),
        "3",
        "peakfinder8: the surroundings of a spot reach twice as far",
    ),
    key(
        "spots",
        "pixel_max",
        Kind::Number(0.0, 1e12),
        "no limit",
        "peakfinder8: spots with a pixel higher above its background are left out",
    ),
    key(
        "spots",
        "radius_min_px",
        Kind::Number(0.0, 1e6),
        "0",
        "peakfinder8: pixels up to this distance from the beam are not used",
    ),
    key("spots", "radius_max_px", Kind::Number(0.0, 1e6), "no limit", "peakfinder8: pixels from this distance on are not used"),
    key("spots", "half_window_px", Kind::Integers(1, 4), "[3, 3]", "dispersion: half height and half width of the window"),
    key(
        "spots",
        "sigma_background",
        SIGMA,
        "6",
        "dispersion: standard deviations of the variance of a window that is not background",
    ),
    key(
        "spots",
        "sigma_strong",
        SIGMA,
        "3",
        "dispersion: standard deviations of a strong pixel above the mean of its surroundings",
    ),
    key("spots", "count_min", Kind::Integer(0, 121), "2", "dispersion: pixels that must count in a window; 0 = all of them"),
    key("spots", "gain", Kind::Number(1e-6, 1e6), "1", "dispersion: value of a pixel for one photon"),
    key("spots", "extended", Kind::Flag, "true", "dispersion: the extended method, which is the default of DIALS"),
    key(
        "azimuthal",
        "axis",
        Kind::Choice(&["q", "two_theta", "d"]),
        "q",
        "axis of the profile: 1/angstrom, degrees, or angstrom",
    ),
    key("azimuthal", "bins", Kind::Integer(1, 100_000), "1000", "bins of the profile"),
    key("azimuthal", "range", Kind::Numbers(2, 0.0, 1e6), "what the detector covers", "ends of the axis; needed for d"),
    key(
        "azimuthal",
        "splitting",
        Kind::Choice(&["none", "full"]),
        "none",
        "none = a pixel belongs to one bin; full = to all that it covers",
    ),
    key(
        "azimuthal",
        "azimuth_deg",
        Kind::Numbers(2, -360.0, 720.0),
        "all around",
        "only azimuths from the first angle to the second",
    ),
    key(
        "azimuthal",
        "polarization",
        Kind::Number(-1.0, 1.0),
        "no correction",
        "divide by the polarisation of the scattered light, for this factor of the beam",
    ),
    key("azimuthal", "solid_angle", Kind::Flag, "true", "divide by the solid angle of each pixel"),
    key("azimuthal", "variance", Kind::Flag, "false", "also give the standard deviation of each bin, from counting statistics"),
    key("region", "name", Kind::Text, "required", "its name"),
    key("region", "shape", Kind::Choice(&["box", "circle", "ring", "sector"]), "required", "box, circle, ring or sector"),
    key(
        "region",
        "corners_px",
        Kind::Numbers(4, -1e6, 1e6),
        "needed for a box",
        "first column, first row, last column, last row",
    ),
    key("region", "x_px", PIXELS, "the beam", "column of the centre of a circle, ring or sector"),
    key("region", "y_px", PIXELS, "the beam", "row of the centre"),
    key("region", "radius_px", Kind::Number(0.0, 1e6), "needed, but for a box", "radius; of a ring or sector the outer one"),
    key("region", "inner_radius_px", Kind::Number(0.0, 1e6), "0", "inner radius of a ring or sector"),
    key(
        "region",
        "from_deg",
        Kind::Number(-360.0, 360.0),
        "0",
        "where a sector begins, from the direction of increasing columns to that of increasing rows",
    ),
    key("region", "width_deg", Kind::Number(0.0, 360.0), "360", "how far a sector reaches from there"),
    key("above", "level", Kind::Integer(0, 1 << 24), "required", "pixels above this value are counted"),
    key("hits", "spots_min", Kind::Integer(1, 1_000_000), "15", "an image with so many spots, ice left out, is a hit"),
];
