//! Units of numbers in tables and headers, and their factors to those of the fields.

/// What a number measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Metres.
    Length,
    /// Kilo-electronvolts.
    Energy,
    /// Angstrom.
    Wavelength,
    /// Seconds.
    Time,
    /// Degrees.
    Angle,
    /// Kelvin.
    Temperature,
    /// Per second.
    Rate,
    /// Pixels.
    Pixels,
    /// No unit.
    Number,
    /// Micrometres.
    Micrometres,
    /// Electronvolts.
    Electronvolts,
}

/// Units of a dimension, with the factor to that of the field.
fn units(dimension: Dimension) -> &'static [(&'static str, f64)] {
    match dimension {
        Dimension::Length => {
            &[("m", 1.0), ("mm", 1e-3), ("um", 1e-6), ("µm", 1e-6), ("nm", 1e-9), ("cm", 1e-2)]
        }
        Dimension::Micrometres => {
            &[("um", 1.0), ("µm", 1.0), ("m", 1e6), ("mm", 1e3), ("nm", 1e-3)]
        }
        Dimension::Energy => &[("keV", 1.0), ("eV", 1e-3)],
        Dimension::Electronvolts => &[("eV", 1.0), ("keV", 1e3)],
        Dimension::Wavelength => &[("angstrom", 1.0), ("A", 1.0), ("nm", 10.0), ("m", 1e10), ("pm", 1e-2)],
        Dimension::Time => &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9)],
        Dimension::Angle => &[("deg", 1.0), ("rad", 180.0 / std::f64::consts::PI), ("mrad", 0.18 / std::f64::consts::PI)],
        Dimension::Temperature => &[("K", 1.0)],
        Dimension::Rate => &[("1/s", 1.0), ("Hz", 1.0)],
        Dimension::Pixels => &[("px", 1.0), ("pixel", 1.0)],
        Dimension::Number => &[("1", 1.0), ("", 1.0), ("%", 0.01)],
    }
}

/// The factor from a unit to that of a dimension.
///
/// # Errors
/// There is no such unit, or none was given where there are several; in words.
pub fn factor(dimension: Dimension, unit: Option<&str>) -> Result<f64, String> {
    let known = units(dimension);
    let names = || known.iter().filter(|(name, _)| !name.is_empty()).map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let Some(unit) = unit else {
        return match dimension {
            Dimension::Number | Dimension::Pixels => Ok(1.0),
            _ => Err(format!("a unit is missing: one of {}", names())),
        };
    };
    let found = known.iter().find(|(name, _)| *name == unit.trim());
    found.map(|(_, factor)| *factor).ok_or_else(|| format!("'{unit}' is not a unit of this field; known are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_factors_and_must_be_given() {
        assert_eq!(factor(Dimension::Length, Some("mm")), Ok(1e-3));
        assert_eq!(factor(Dimension::Energy, Some("eV")), Ok(1e-3));
        assert!((factor(Dimension::Angle, Some("rad")).unwrap() - 57.29577951308232).abs() < 1e-12);
        assert_eq!((factor(Dimension::Pixels, None), factor(Dimension::Number, None)), (Ok(1.0), Ok(1.0)));
        assert!(factor(Dimension::Length, None).unwrap_err().contains("one of m, mm"));
        assert!(factor(Dimension::Length, Some("inch")).unwrap_err().contains("'inch'"));
    }
}
