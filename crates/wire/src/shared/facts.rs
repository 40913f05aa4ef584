//! Reads facts about a measurement from the metadata of other programs: numbers with units, zeros that mean "not set".

use konkordia_core::array::Element;
use konkordia_core::experiment::{Axis, Goniometer, KEV_ANGSTROM, Metadata};
use serde_json::{Map, Value};

/// The number under `key`.
pub fn number(map: &Map<String, Value>, key: &str) -> Option<f64> {
    map.get(key)?.as_f64()
}

/// The number under `key` if it is above 0: a detector sends 0 for distances, energies and times that were not set.
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

/// The type of counts of so many bits.
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

/// A value that a user gave: a text that is JSON is parsed, anything else stays as it is.
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

/// An axis by its start and its turn from image to image. Zeros for both mean "not set": detectors send them for every
/// axis that nobody has set.
pub fn axis(start_deg: f64, increment_deg: f64) -> Axis {
    let is_set = start_deg.is_finite() && increment_deg.is_finite() && (start_deg != 0.0 || increment_deg != 0.0);
    if is_set { Axis::turning(start_deg, increment_deg) } else { Axis::default() }
}

/// Angles under the names of Stream V1, with or without the unit at their end: `omega_start`, `omega_increment_deg`.
fn angles(map: &Map<String, Value>) -> Goniometer {
    let mut all = Goniometer::default();
    for name in Goniometer::NAMES {
        let either = |what: &str| number(map, &format!("{name}_{what}_deg")).or_else(|| number(map, &format!("{name}_{what}")));
        if let Some(place) = all.axis_mut(name) {
            *place = axis(either("start").unwrap_or(0.0), either("increment").unwrap_or(0.0));
            // The second name is that of Jungfraujoch.
            let direction = ["vector", "rotation_axis"].iter().find_map(|what| map.get(&format!("{name}_{what}")));
            place.vector = direction.and_then(vector);
        }
    }
    all
}

/// A direction: three numbers, not all of them 0.
fn vector(value: &Value) -> Option<[f64; 3]> {
    let list: Vec<f64> = value.as_array()?.iter().filter_map(Value::as_f64).collect();
    list.try_into().ok().filter(|vector: &[f64; 3]| vector.iter().any(|n| *n != 0.0) && vector.iter().all(|n| n.is_finite()))
}

/// A unit cell as a list of six numbers or as a map with a, b, c, alpha, beta and gamma; `None` if it can be none.
fn unit_cell(value: &Value) -> Option<[f64; 6]> {
    let numbers: Vec<f64> = match value {
        Value::Array(list) => list.iter().filter_map(Value::as_f64).collect(),
        Value::Object(map) => ["a", "b", "c", "alpha", "beta", "gamma"].iter().filter_map(|name| number(map, name)).collect(),
        _ => Vec::new(),
    };
    let cell: [f64; 6] = numbers.try_into().ok()?;
    let (edges, angles) = cell.split_at(3);
    let is_one = edges.iter().all(|edge| *edge > 0.0 && edge.is_finite()) && angles.iter().all(|a| *a > 0.0 && *a < 180.0);
    is_one.then_some(cell)
}

/// Enters what a sender or a user says of sample, source, beam and detector under the names that are known
/// (docs/streams.md lists them). Facts that were entered before stay.
pub fn enter(map: &Map<String, Value>, facts: &mut Metadata) {
    let fraction = |key: &str| number(map, key).filter(|fraction| (0.0..=1.0).contains(fraction));
    let flag = |keys: [&str; 2]| keys.iter().find_map(|key| map.get(*key)).and_then(Value::as_bool);
    let enter_text = |place: &mut Option<String>, key: &str| *place = place.take().or_else(|| text(map, key));
    enter_text(&mut facts.sample_name, "sample_name");
    enter_text(&mut facts.source_name, "source_name");
    enter_text(&mut facts.instrument_name, "instrument_name");
    enter_text(&mut facts.instrument_name, "beamline");
    let e = &mut facts.experiment;
    enter_text(&mut e.source_short_name, "source_name_short");
    enter_text(&mut e.instrument_short_name, "instrument_name_short");
    enter_text(&mut e.space_group, "space_group");
    enter_text(&mut e.gain_setting, "gain_setting");
    e.goniometer = e.goniometer.over(angles(map));
    e.total_flux_ph_per_s =
        e.total_flux_ph_per_s.or_else(|| positive(map, "total_flux_ph_per_s")).or_else(|| positive(map, "total_flux"));
    e.attenuator_transmission = e.attenuator_transmission.or_else(|| fraction("attenuator_transmission"));
    e.polarization_fraction = e.polarization_fraction.or_else(|| fraction("polarization_fraction"));
    e.sample_temperature_k = e.sample_temperature_k.or_else(|| positive(map, "sample_temperature_k"));
    e.unit_cell = e.unit_cell.or_else(|| map.get("unit_cell").and_then(unit_cell));
    e.detector_readout_time_s = e.detector_readout_time_s.or_else(|| positive(map, "detector_readout_time"));
    let flags = [
        (&mut e.flatfield_applied, ["flatfield_enabled", "flatfield_correction_applied"]),
        (&mut e.countrate_correction_applied, ["countrate_correction_enabled", "countrate_correction_applied"]),
        (&mut e.pixel_mask_applied, ["pixel_mask_enabled", "pixel_mask_applied"]),
        (&mut e.virtual_pixel_interpolation_applied, ["virtual_pixel_interpolation_enabled", "virtual_pixel_correction_applied"]),
    ];
    for (place, keys) in flags {
        *place = place.or_else(|| flag(keys));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entered(maps: &[Value]) -> Metadata {
        let mut facts = Metadata::default();
        maps.iter().for_each(|map| enter(map.as_object().unwrap(), &mut facts));
        facts
    }

    #[test]
    fn known_names_are_entered_and_the_first_counts() {
        let facts = entered(&[
            json!({"sample_name": "lyso", "total_flux": 1e12, "omega_start": 90.0, "omega_increment": 0.1, "phi_start": 0.0,
                "phi_increment": 0.0, "flatfield_correction_applied": true}),
            json!({"sample_name": "other", "beamline": "X06SA", "attenuator_transmission": 0.25, "omega_start_deg": 1.0,
                "omega_rotation_axis": [0.0, -1.0, 0.0], "chi_vector": [0, 0, 0], "source_name_short": "SLS", "unit_cell": {"a": 79, "b": 79, "c": 38, "alpha": 90, "beta": 90, "gamma": 90}}),
        ]);
        assert_eq!((facts.sample_name.as_deref(), facts.instrument_name.as_deref()), (Some("lyso"), Some("X06SA")));
        let e = facts.experiment;
        assert_eq!((e.total_flux_ph_per_s, e.attenuator_transmission), (Some(1e12), Some(0.25)));
        let omega = Axis { vector: Some([0.0, -1.0, 0.0]), ..Axis::turning(90.0, 0.1) };
        assert_eq!((e.goniometer.omega, e.goniometer.phi, e.goniometer.chi), (omega, Axis::default(), Axis::default()));
        assert_eq!(e.source_short_name.as_deref(), Some("SLS"));
        assert_eq!((e.unit_cell, e.flatfield_applied), (Some([79.0, 79.0, 38.0, 90.0, 90.0, 90.0]), Some(true)));
    }

    #[test]
    fn what_cannot_be_is_not_entered() {
        let facts =
            entered(&[json!({"sample_name": "", "total_flux": -1, "attenuator_transmission": 25.0, "unit_cell": [1, 2, 3],
            "omega_start": "90", "omega_increment": null, "polarization_fraction": 1.5, "flatfield_enabled": "yes",
            "sample_temperature_k": 0})]);
        assert_eq!(facts, Metadata::default());
        assert_eq!(unit_cell(&json!([79, 79, 38, 90, 90, 180])), None);
        assert_eq!(axis(f64::NAN, 1.0), Axis::default());
    }

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
