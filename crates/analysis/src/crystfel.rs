//! The geometry of a detector as CrystFEL reads it (its manual page `crystfel_geometry`), with the places in a file
//! where images, mask and lists of spots are.
//!
//! CrystFEL has the laboratory of [`crate::geometry`]: z along the beam, y up, x to the left when looking along the
//! beam. It counts places on a panel from the corner of the first pixel, too, and adds the half pixel to lists of spots
//! itself.

use crate::geometry::Geometry;
use konkordia_core::experiment::KEV_ANGSTROM;
use std::fmt::Write;

/// The text of a geometry file with one panel, for images in an HDF5 file. `images` is the path of their stack
/// (images x rows x columns), `mask` that of the mask (rows x columns; a pixel with any bit is not used), `spots` the
/// group with `nPeaks`, `peakXPosRaw`, `peakYPosRaw` and `peakTotalIntensity`; `valid` are the lowest and highest
/// measurement.
///
/// # Errors
/// The photon energy is not known.
pub fn geometry_text(
    geometry: &Geometry,
    images: &str,
    [mask, spots]: [Option<&str>; 2],
    valid: (f64, f64),
) -> Result<String, String> {
    let wavelength_angstrom = geometry.wavelength_angstrom().ok_or("the photon energy is not known")?;
    let pixel_mm = geometry.pixel_size_mm()[0];
    let [corner, fast, slow] = {
        let (corner, fast, slow) =
            (geometry.position_mm(0.0, 0.0), geometry.position_mm(1.0, 0.0), geometry.position_mm(0.0, 1.0));
        let step = |to: [f64; 3]| std::array::from_fn::<f64, 3, _>(|axis| (to[axis] - corner[axis]) / pixel_mm);
        [corner, step(fast), step(slow)]
    };
    let direction = |[x, y, z]: [f64; 3]| format!("{x:+.12}x {y:+.12}y {z:+.12}z");
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("photon_energy", format!("{} eV", 1000.0 * KEV_ANGSTROM / wavelength_angstrom));
    line("adu_per_photon", "1".into());
    line("res", format!("{}", 1000.0 / pixel_mm));
    line("clen", format!("{} m", corner[2] / 1000.0));
    line("data", images.into());
    for (dimension, what) in ["%", "ss", "fs"].into_iter().enumerate() {
        line(&format!("dim{dimension}"), what.into());
    }
    if let Some(mask) = mask {
        line("mask0_data", mask.into());
        line("mask0_goodbits", "0x00000000".into());
        line("mask0_badbits", "0xffffffff".into());
    }
    if let Some(spots) = spots {
        line("peak_list", spots.into());
        line("peak_list_type", "cxi".into());
    }
    // Values that stand for something else than a measurement.
    for (key, limit) in [("flag_lessthan", valid.0), ("flag_morethan", valid.1)] {
        if limit.is_finite() {
            line(key, limit.to_string());
        }
    }
    for (key, value) in [("fs", fast), ("ss", slow)] {
        line(&format!("p0/{key}"), direction(value));
    }
    line("p0/corner_x", format!("{:.9}", corner[0] / pixel_mm));
    line("p0/corner_y", format!("{:.9}", corner[1] / pixel_mm));
    for (key, value) in [("min_fs", 0), ("max_fs", geometry.columns - 1), ("min_ss", 0), ("max_ss", geometry.rows - 1)] {
        line(&format!("p0/{key}"), value.to_string());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_detector_has_its_corner_at_the_beam_centre() {
        let origin = [40.5 * 0.075, 32.25 * 0.075, 100.0];
        let geometry =
            Geometry::new([64, 80], origin, [-0.075, 0.0, 0.0], [0.0, -0.075, 0.0], Some(KEV_ANGSTROM / 12.4)).unwrap();
        let text_of = |geometry| geometry_text(geometry, "/entry/data/data", [None, Some("/entry/s")], (0.0, 65533.0));
        let text = text_of(&geometry).unwrap();
        for line in [
            "photon_energy = 12400 eV",
            "clen = 0.1 m",
            "peak_list = /entry/s",
            "p0/corner_x = 40.500000000",
            "p0/corner_y = 32.250000000",
            "p0/fs = -1.000000000000x +0.000000000000y +0.000000000000z",
            "p0/max_fs = 79",
            "flag_morethan = 65533",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("mask"));
        let dark = Geometry::new([64, 80], origin, [-0.075, 0.0, 0.0], [0.0, -0.075, 0.0], None).unwrap();
        assert!(text_of(&dark).unwrap_err().contains("energy"));
    }
}
