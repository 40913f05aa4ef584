//! Keys for what the detector does not know: angles, sample and beam.

use super::schema_key::{Key, Kind, key, quantity};

const ANGLE: Kind = Kind::Number(-3600.0, 3600.0);
/// A component of a direction.
const DIRECTION: Kind = Kind::Numbers(3, -1e3, 1e3);
const RIGHT_HANDED: &str = "direction of the axis in the McStas frame (x to the left along the beam, y up, z along the beam); increasing angles turn right-handed about it";
const STEP: &str = "turn from one frame of the detector to the next, in degrees; an image of n frames covers n times as much";

/// The keys, in the order of the documentation.
pub const KEYS: &[Key] = &[
    key(
        "goniometer",
        "omega_start_deg",
        ANGLE,
        "no such axis",
        "angle at which the first image begins, in degrees; omega carries the other axes",
    ),
    key("goniometer", "omega_increment_deg", ANGLE, "0", STEP),
    key("goniometer", "omega_vector", DIRECTION, "[-1, 0, 0]", RIGHT_HANDED),
    key("goniometer", "kappa_start_deg", ANGLE, "no such axis", "the same of kappa, which omega carries"),
    key("goniometer", "kappa_increment_deg", ANGLE, "0", "the same of kappa"),
    key(
        "goniometer",
        "kappa_vector",
        DIRECTION,
        "not known: the angle is stored, but is not part of the geometry",
        "the same of kappa, whose direction depends on the goniometer",
    ),
    key("goniometer", "chi_start_deg", ANGLE, "no such axis", "the same of chi, which omega and kappa carry"),
    key("goniometer", "chi_increment_deg", ANGLE, "0", "the same of chi"),
    key("goniometer", "chi_vector", DIRECTION, "[0, 0, 1]", "the same of chi"),
    key("goniometer", "phi_start_deg", ANGLE, "no such axis", "the same of phi, which carries the sample"),
    key("goniometer", "phi_increment_deg", ANGLE, "0", "the same of phi"),
    key("goniometer", "phi_vector", DIRECTION, "[-1, 0, 0]", "the same of phi"),
    key("goniometer", "two_theta_start_deg", ANGLE, "no such axis", "angle of the arm that swings the detector about the sample"),
    key("goniometer", "two_theta_increment_deg", ANGLE, "0", "the same of the arm"),
    key("goniometer", "two_theta_vector", DIRECTION, "[-1, 0, 0]", "the same of the arm; the default lifts the detector"),
    key("experiment", "total_flux_ph_per_s", Kind::Number(0.0, 1e20), "not stored", "photons per second that hit the sample"),
    key(
        "experiment",
        "attenuator_transmission",
        Kind::Number(0.0, 1.0),
        "not stored",
        "share of the beam that the attenuator lets through, 1 = all of it",
    ),
    key(
        "experiment",
        "polarization_fraction",
        Kind::Number(0.0, 1.0),
        "not stored",
        "share of the intensity that is polarised horizontally: 0.5 = not polarised, 0.99 at most synchrotrons (FRACTION_OF_POLARIZATION of XDS)",
    ),
    quantity("experiment", "sample_temperature_k", (0.001, 5000.0), &[], "not stored", "temperature of the sample in kelvin"),
    key(
        "experiment",
        "unit_cell",
        Kind::Numbers(6, 0.1, 1e5),
        "not stored",
        "a, b, c in angstrom, alpha, beta, gamma in degrees, for example [79.1, 79.1, 38.2, 90, 90, 90]",
    ),
    key("experiment", "space_group", Kind::Text, "not stored", "space group, for example \"P 43 21 2\""),
];
