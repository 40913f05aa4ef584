//! Facts about a measurement in other people's words: numbers with units, zeros that mean nothing.

use konkordia_core::array::Element;
use serde_json::{Map, Value};

/// Planck's constant times the speed of light, exact by definition of the SI.
pub const KEV_ANGSTROM: f64 = 12.398419843320026;

/// The number under `key`.
pub fn number(map: &Map<String, Value>, key: &str) -> Option<f64> {
    map.get(key)?.as_f64()
}

/// The number under `key` if it is above 0: distances, energies and times of 0 are what a detector says that was not told.
pub fn positive(map: &Map<String, Value>, key: &str) -> Option<f64> {
    number(map, key).and_then(above_0)
}

/// A number that can be a distance, an energy or a time.
pub fn above_0(number: f64) -> Option<f64> {
    (number > 0.0 && number.is_finite()).then_some(number)
}

/// The text under `key`, if it is not empty.
pub fn text(map: &Map<String, Value>, key: &str) -> Option<String> {
    map.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Energy in keV of photons of this wavelength in Angstrom.
pub fn energy_kev(wavelength_angstrom: f64) -> Option<f64> {
    above_0(wavelength_angstrom).map(|wavelength| KEV_ANGSTROM / wavelength)
}

/// Counts of so many bits.
pub fn counts(bits: u64) -> Option<Element> {
    match bits {
        8 => Some(Element::Uint8),
        16 => Some(Element::Uint16),
        32 => Some(Element::Uint32),
        _ => None,
    }
}

/// The first number of a text like "0.0190000 s" or "(1261.61, 1306.96) pixels".
pub fn leading(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(['(', ' ']);
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(text.len());
    let number = &text[..end];
    // A unit may stand without a space.
    let number = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    number.parse().ok().filter(|number: &f64| number.is_finite())
}

/// What a user gave as a text or as it is: JSON if the text is.
pub fn user_value(value: Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    }
}

/// The name of the file that a user asked for in a JSON object.
pub fn filename(user: &Value) -> Option<String> {
    user.as_object().and_then(|map| text(map, "filename"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_read_with_their_units() {
        for (text, wanted) in [
            ("0.0190000 s", Some(0.019)),
            ("172e-6 m x 172e-6 m", Some(172e-6)),
            ("(1261.61, 1306.96) pixels", Some(1261.61)),
            ("0.2m", Some(0.2)),
            ("-5", Some(-5.0)),
            ("autog", None),
            ("", None),
            ("inf", None),
        ] {
            assert_eq!(leading(text), wanted, "{text}");
        }
    }

    #[test]
    fn zeros_and_empty_texts_are_no_facts() {
        let map = json!({"a": 0.0, "b": 1, "c": "", "d": "x", "e": -1.0});
        let map = map.as_object().unwrap();
        assert_eq!(
            (positive(map, "a"), positive(map, "b"), positive(map, "e"), positive(map, "z")),
            (None, Some(1.0), None, None)
        );
        assert_eq!((text(map, "c"), text(map, "d"), text(map, "b")), (None, Some("x".into()), None));
    }

    #[test]
    fn users_may_give_json_in_a_text() {
        assert_eq!(user_value(json!(r#"{"filename":"a"}"#)), json!({"filename": "a"}));
        assert_eq!(user_value(json!("plain")), json!("plain"));
        assert_eq!(filename(&json!({"filename": ""})), None);
        assert_eq!(filename(&json!({"filename": "a"})), Some("a".into()));
        assert_eq!(filename(&json!(["filename"])), None);
    }
}
