//! Metadata that a command may set for one run: the names and checks are those of the configuration.

use super::diagnostics::Diagnostics;
use super::facts::{check_vectors, fact_keys, facts, is_fact};
use super::schema_key::Kind;
use super::{read, schema};
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use serde_json::{Map, Value};

/// The metadata that `given` sets; everything else is `None`.
///
/// # Errors
/// A name that is not a metadata key, or a value that the key does not allow.
pub fn metadata(given: &Map<String, Value>) -> Result<Metadata, Failure> {
    let mut text = String::new();
    let mut open = "";
    for (table, name) in fact_keys() {
        if table != open {
            open = table;
            text.push_str(&format!("[{table}]\n"));
        }
        if let Some(value) = given.get(name) {
            text.push_str(&format!("{name} = {}\n", toml_value(name, value)?));
        }
    }
    let all: Vec<&str> = fact_keys().map(|(_, name)| name).collect();
    if let Some(name) = given.keys().find(|name| !all.contains(&name.as_str())) {
        let near = read::nearest(name, &all).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        let fix = format!("{near}the keys are {}", all.join(", "));
        let shown: String = name.chars().take(80).collect();
        return Err(refuse(format!("metadata: unknown key '{}'", shown.escape_debug()), String::new(), fix));
    }
    let mut d = Diagnostics::new("metadata", &text);
    let document = read::read(&text, &mut d);
    check_vectors(&document, &mut d);
    if let Some(found) = d.found.first() {
        return Err(refuse(format!("metadata: {}", found.what), found.why.clone(), found.fix.clone()));
    }
    Ok(facts(&document))
}

fn refuse(what: String, why: String, fix: String) -> Failure {
    Failure::new(Exit::Configuration, what, why, fix)
}

fn toml_value(name: &str, value: &Value) -> Result<String, Failure> {
    match value {
        // JSON and TOML write these alike. TOML forbids bare control characters; JSON escapes all of them except
        // U+007F.
        Value::String(text) if text.len() <= 1000 && !text.contains('\u{7f}') => Ok(value.to_string()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Array(list) if list.len() <= 6 && list.iter().all(Value::is_number) => Ok(value.to_string()),
        _ => {
            let doc = schema::all().find(|key| key.name == name).map_or("", |key| key.doc);
            let why = "a number, true or false, a list of at most 6 numbers, or a text of at most 1000 bytes is expected";
            Err(refuse(format!("metadata: {name} has a wrong value"), why.into(), doc.into()))
        }
    }
}

/// False if `key` of `table` is metadata and `value` differs from the one in `facts`.
pub fn agrees(table: &str, key: &str, value: &toml::Value, facts: &Metadata) -> bool {
    if !is_fact(table, key) {
        return true;
    }
    let alone = toml::Table::from_iter([(table.to_owned(), toml::Table::from_iter([(key.to_owned(), value.clone())]).into())]);
    metadata_of_text(&alone.to_string()).over(facts.clone()) == *facts
}

/// The lowest and the highest allowed value of a number among the metadata.
pub fn range(name: &str) -> Option<(f64, f64)> {
    let (table, _) = fact_keys().find(|(_, key)| *key == name)?;
    match schema::keys_of(table).find(|key| key.name == name)?.kind {
        Kind::Number(low, high) => Some((low, high)),
        _ => None,
    }
}

/// True for a metadata key of `[detector]`.
pub fn is_of_detector(name: &str) -> bool {
    is_fact("detector", name)
}

/// The metadata in the text of a configuration.
pub fn metadata_of_text(text: &str) -> Metadata {
    facts(&read::read(text, &mut Diagnostics::new("configuration", text)))
}

/// The metadata of a configuration as tables and keys. `given`, what a command set, takes precedence. `[detector]` is
/// left out.
pub fn facts_beside_detector(configuration: &toml::Table, given: &Map<String, Value>) -> Value {
    let mut tables = Map::new();
    for (table, name) in fact_keys().filter(|(table, _)| *table != "detector") {
        let configured = || serde_json::to_value(configuration.get(table)?.get(name)?).ok();
        if let Some(value) = given.get(name).cloned().or_else(configured) {
            let entry = tables.entry(table).or_insert_with(|| Value::Object(Map::new()));
            entry[name] = value;
        }
    }
    Value::Object(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(value: Value) -> Result<Metadata, Failure> {
        metadata(value.as_object().unwrap())
    }

    #[test]
    fn facts_are_checked_as_in_the_configuration() {
        let facts = set(json!({"energy_kev": 12.4, "detector_distance_mm": 200, "sample_name": "lys\"o\n1"})).unwrap();
        assert_eq!((facts.energy_kev, facts.detector_distance_m), (Some(12.4), Some(0.2)));
        assert_eq!(facts.sample_name.as_deref(), Some("lys\"o\n1"));
        let base = Metadata { energy_kev: Some(1.0), sensor_material: Some("Si".into()), ..Metadata::default() };
        let merged = facts.over(base.clone());
        assert_eq!((merged.energy_kev, merged.sensor_material.as_deref()), (Some(12.4), Some("Si")));
        assert_eq!(set(json!({})).unwrap(), Metadata::default());
        let base = set(json!({"omega_start_deg": 10, "omega_increment_deg": 0.5, "omega_vector": [0, 1, 0]})).unwrap();
        let turned = set(json!({"omega_start_deg": 90, "unit_cell": [79.1, 79.1, 38, 90, 90, 90]})).unwrap().over(base);
        let omega = turned.experiment.goniometer.omega;
        assert_eq!((omega.start(), omega.increment(), omega.vector), (90.0, 0.5, Some([0.0, 1.0, 0.0])));
        assert_eq!(turned.experiment.unit_cell, Some([79.1, 79.1, 38.0, 90.0, 90.0, 90.0]));
    }

    #[test]
    fn facts_of_a_run_are_those_of_its_configuration_and_of_its_command() {
        let text =
            "[detector]\nenergy_kev = 12.4\n[output]\nprefix = \"run\"\nsample_name = \"a\"\n[goniometer]\nomega_start_deg = 1";
        let given = json!({"sample_name": "b", "energy_kev": 8, "unit_cell": [79.1, 79.1, 38, 90, 90, 90]});
        let found = facts_beside_detector(&text.parse().unwrap(), given.as_object().unwrap());
        let cell = json!({"unit_cell": [79.1, 79.1, 38, 90, 90, 90]});
        let wanted = json!({"output": {"sample_name": "b"}, "goniometer": {"omega_start_deg": 1}, "experiment": cell});
        assert_eq!(found, wanted);
        let read = metadata_of_text(&toml::to_string(&found).unwrap());
        assert_eq!((read.sample_name.as_deref(), read.experiment.goniometer.omega.start()), (Some("b"), 1.0));
        assert_eq!(read.experiment.unit_cell, Some([79.1, 79.1, 38.0, 90.0, 90.0, 90.0]));
    }

    #[test]
    fn a_key_that_says_something_else_than_the_run_is_found() {
        let run = set(json!({"energy_kev": 8, "detector_distance_mm": 321, "pixel_size_um": 75})).unwrap();
        for (key, value, is_so) in [
            ("energy_kev", toml::Value::from(12.4), false),
            ("energy_kev", toml::Value::from(8), true),
            ("detector_distance_mm", toml::Value::from(321.0), true),
            ("pixel_size_um", toml::Value::from(76.0), false),
            ("sensor_material", toml::Value::from("CdTe"), false),
            ("modules", toml::Value::from(3), true),
        ] {
            assert_eq!(agrees("detector", key, &value, &run), is_so, "{key} = {value}");
        }
    }

    #[test]
    fn the_range_of_a_number_is_that_of_the_configuration() {
        assert_eq!(range("energy_kev"), Some((0.5, 300.0)));
        assert_eq!(range("omega_start_deg"), Some((-3600.0, 3600.0)));
        assert_eq!((range("sample_name"), range("images_per_file")), (None, None));
    }

    #[test]
    fn nonsense_is_refused_with_a_remedy() {
        for (given, part) in [
            (json!({"energy_kev": 12400}), "looks like eV"),
            (json!({"energy_kve": 12.4}), "unknown key 'energy_kve'"),
            (json!({"energy_kev": "12"}), "text where"),
            (json!({"energy_kev": null}), "a wrong value"),
            (json!({"sample_name": ["a"]}), "a wrong value"),
            (json!({"omega_vector": [0, 0, 0]}), "no direction"),
            (json!({"omega_vector": [0, 1]}), "list of 3 numbers"),
            (json!({"attenuator_transmission": 25}), "not between 0 and 1"),
            (json!({"x\"]\n[service": 1}), "unknown key"),
        ] {
            let error = set(given.clone()).unwrap_err();
            assert!(error.to_string().contains(part) && !error.fix.is_empty(), "{given}: {error}");
        }
    }
}
