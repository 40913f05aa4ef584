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

/// How a number in one unit becomes one in another: times one number, over another, so that 172 um are 172e-6 m and no
/// number beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    times: f64,
    over: f64,
}

impl Factor {
    /// The number stays.
    pub const ONE: Self = times(1.0);

    /// The number in the other unit.
    pub fn apply(self, number: f64) -> f64 {
        number * self.times / self.over
    }
}

const fn times(times: f64) -> Factor {
    Factor { times, over: 1.0 }
}

const fn over(over: f64) -> Factor {
    Factor { times: 1.0, over }
}

/// Units of a dimension.
fn units(dimension: Dimension) -> Vec<(&'static str, Factor)> {
    const ONE: Factor = Factor::ONE;
    match dimension {
        Dimension::Length => {
            vec![("m", ONE), ("mm", over(1e3)), ("um", over(1e6)), ("µm", over(1e6)), ("nm", over(1e9)), ("cm", over(1e2))]
        }
        Dimension::Micrometres => vec![("um", ONE), ("µm", ONE), ("m", times(1e6)), ("mm", times(1e3)), ("nm", over(1e3))],
        Dimension::Energy => vec![("keV", ONE), ("eV", over(1e3))],
        Dimension::Electronvolts => vec![("eV", ONE), ("keV", times(1e3))],
        Dimension::Wavelength => vec![("angstrom", ONE), ("A", ONE), ("nm", times(10.0)), ("m", times(1e10)), ("pm", over(1e2))],
        Dimension::Time => vec![("s", ONE), ("ms", over(1e3)), ("us", over(1e6)), ("µs", over(1e6)), ("ns", over(1e9))],
        Dimension::Angle => {
            vec![("deg", ONE), ("rad", times(180.0 / std::f64::consts::PI)), ("mrad", times(0.18 / std::f64::consts::PI))]
        }
        Dimension::Temperature => vec![("K", ONE)],
        Dimension::Rate => vec![("1/s", ONE), ("Hz", ONE)],
        Dimension::Pixels => vec![("px", ONE), ("pixel", ONE)],
        Dimension::Number => vec![("1", ONE), ("", ONE), ("%", over(100.0))],
    }
}

/// From a unit to that of a dimension.
///
/// # Errors
/// There is no such unit, or none was given where there are several; in words.
pub fn factor(dimension: Dimension, unit: Option<&str>) -> Result<Factor, String> {
    let known = units(dimension);
    let names = || known.iter().filter(|(name, _)| !name.is_empty()).map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let Some(unit) = unit else {
        return match dimension {
            Dimension::Number | Dimension::Pixels => Ok(Factor::ONE),
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
        let of = |dimension, unit: &str, number| factor(dimension, Some(unit)).map(|factor| factor.apply(number));
        assert_eq!((of(Dimension::Length, "um", 172.0), of(Dimension::Energy, "eV", 12400.0)), (Ok(172e-6), Ok(12.4)));
        assert!((of(Dimension::Angle, "rad", 1.0).unwrap() - 57.29577951308232).abs() < 1e-12);
        assert_eq!((factor(Dimension::Pixels, None), factor(Dimension::Number, None)), (Ok(Factor::ONE), Ok(Factor::ONE)));
        assert!(factor(Dimension::Length, None).unwrap_err().contains("one of m, mm"));
        assert!(factor(Dimension::Length, Some("inch")).unwrap_err().contains("'inch'"));
    }
}
