//! What clients have set for the next arm. Everything else is as configured.

use super::keys::{self, Answer, KEYS, Key, Source, tidy};
use super::refuse::wrong;
use crate::http::problem::Problem;
use konkordia_acquire::handle::{ArmRequest, Detector};
use konkordia_config::overrides;
use konkordia_core::experiment::KEV_ANGSTROM;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Most images of a run, which the detector allows too.
const IMAGES_MAX: u64 = 1 << 40;
/// What `$id` in a file name stands for is the number of the run.
pub const ID: &str = "$id";

/// By subsystem and name of the key, in the units of SIMPLON.
#[derive(Debug, Default)]
pub struct Parameters {
    set: BTreeMap<(&'static str, &'static str), Value>,
}

impl Parameters {
    /// Everything is as configured again, in one subsystem or in all of them.
    pub fn reset(&mut self, subsystem: Option<&str>) {
        self.set.retain(|(of, _), _| subsystem.is_some_and(|subsystem| subsystem != *of));
    }

    /// A value that a client has set.
    pub fn chosen(&self, subsystem: &'static str, name: &'static str) -> Option<&Value> {
        self.set.get(&(subsystem, name))
    }

    /// What is known of a key; `None` if the detector has no such thing.
    pub fn read(&self, key: &'static Key, detector: &dyn Detector) -> Option<Answer> {
        let set = self.chosen(key.subsystem, key.name).cloned();
        let writable = |value_type, value: Option<Value>| Answer {
            value: set.clone().or(value).unwrap_or_default(),
            value_type,
            is_writable: true,
            unit: key.unit,
            ..Answer::default()
        };
        Some(match &key.source {
            Source::Number { fact, factor, of } => {
                Answer { range: range(fact, *factor), ..writable("float", of(&detector.facts()).map(tidy)) }
            }
            Source::Text { of, .. } => writable("string", Some(of(&detector.facts()).unwrap_or_default().into())),
            Source::Count(of) => {
                let range = Some((json!(1), json!(IMAGES_MAX)));
                Answer { range, ..writable("uint", Some(of(&detector.configuration()).unwrap_or(1).into())) }
            }
            Source::Choice(words, is_second) => {
                let word = words[usize::from(is_second(&detector.configuration()))];
                writable("string", Some(json!(word))).of(words)
            }
            Source::NamePattern => writable("string", Some(json!(""))),
            Source::Wavelength => {
                let energy = self.read(keys::find("detector", "photon_energy")?, detector)?;
                let (low, high) = energy.range?;
                let turned = |ev: &Value| ev.as_f64().map_or(Value::Null, |ev| tidy(1e3 * KEV_ANGSTROM / ev));
                let value = turned(&energy.value);
                Answer { value, unit: key.unit, range: Some((turned(&high), turned(&low))), ..energy }
            }
            Source::Alias(of) => self.read(keys::find(key.subsystem, of)?, detector)?,
            Source::Fixed(kind, of) => Answer { unit: key.unit, ..Answer::read_only(kind, of(detector)?) },
            Source::OnlyValue(kind, of) => {
                let value = of(detector);
                let allowed = Some(if value.is_null() { Vec::new() } else { vec![value.clone()] });
                Answer { allowed, ..writable(kind, Some(value)) }
            }
        })
    }

    /// Sets a key, whose present value is `known`. Returns the keys that have changed.
    ///
    /// # Errors
    /// The value cannot be used, in our words.
    pub fn set(&mut self, key: &'static Key, value: &Value, known: &Answer) -> Result<Vec<&'static str>, Problem> {
        let taken = match &key.source {
            Source::Alias(of) => return self.set(keys::find(key.subsystem, of).expect("it is in the table"), value, known),
            Source::Wavelength => {
                let energy = keys::find("detector", "photon_energy").expect("it is in the table");
                let Source::Number { fact, factor, .. } = &energy.source else { return Ok(Vec::new()) };
                let (wavelength, turned) = (a_number(key, value)?, |ev: f64| 1e3 * KEV_ANGSTROM / ev);
                within(key, wavelength, limits(fact, *factor).map(|(low, high)| (turned(high), turned(low))))?;
                return self.set(energy, &tidy(turned(wavelength)), known);
            }
            Source::Number { fact, factor, .. } => {
                let number = a_number(key, value)?;
                within(key, number, limits(fact, *factor))?;
                check_fact(key, fact, tidy(number * factor))?;
                Some(json!(number))
            }
            Source::Text { fact, .. } => {
                let text = a_text(key, value)?;
                check_fact(key, fact, json!(text))?;
                (!text.is_empty()).then(|| json!(text))
            }
            Source::NamePattern => Some(a_text(key, value)?).filter(|text| !text.is_empty()).map(Value::from),
            Source::Count(_) => Some(json!(a_count(key, value)?)),
            Source::Choice(words, _) => {
                let word = a_text(key, value)?;
                if !words.contains(&word) {
                    return Err(not_one_of(key, value, words));
                }
                Some(json!(word))
            }
            Source::Fixed(..) | Source::OnlyValue(..) => {
                return if is_same(value, &known.value) { Ok(Vec::new()) } else { Err(is_fixed(key, value, &known.value)) };
            }
        };
        match taken {
            Some(value) => drop(self.set.insert((key.subsystem, key.name), value)),
            None => drop(self.set.remove(&(key.subsystem, key.name))),
        }
        Ok(with_its_other_names(key))
    }

    /// The number of images of each trigger, and of triggers.
    pub fn counts(&self, detector: &dyn Detector) -> (u64, u64) {
        let count = |name| {
            let known = keys::find("detector", name).and_then(|key| self.read(key, detector));
            known.and_then(|answer| answer.value.as_u64()).unwrap_or(1)
        };
        (count("nimages"), count("ntrigger"))
    }

    /// The word of a choice.
    pub fn word(&self, subsystem: &str, name: &str, detector: &dyn Detector) -> String {
        let answer = keys::find(subsystem, name).and_then(|key| self.read(key, detector));
        answer.and_then(|answer| answer.value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The arm with these parameters, of the run with this number.
    pub fn request(&self, detector: &dyn Detector, run: u64) -> ArmRequest {
        let (images, triggers) = self.counts(detector);
        let pattern = self.chosen("filewriter", "name_pattern").and_then(Value::as_str);
        let mode = self.chosen("filewriter", "mode");
        ArmRequest {
            images: Some(images.saturating_mul(triggers)),
            prefix: pattern.map(|pattern| pattern.replace(ID, &run.to_string())),
            write: mode.map(|mode| mode == "enabled"),
            metadata: self.metadata(),
            append: false,
        }
    }

    fn metadata(&self) -> Map<String, Value> {
        let fact = |key: &'static Key| {
            let value = self.chosen(key.subsystem, key.name)?;
            match &key.source {
                Source::Number { fact, factor, .. } => Some(((*fact).to_string(), tidy(value.as_f64()? * factor))),
                Source::Text { fact, .. } => Some(((*fact).to_string(), value.clone())),
                _ => None,
            }
        };
        KEYS.iter().filter_map(fact).collect()
    }
}

/// The key and those that show the same value, as a DECTRIS unit lists what a change has changed.
fn with_its_other_names(key: &'static Key) -> Vec<&'static str> {
    let others = KEYS.iter().filter(|other| match &other.source {
        Source::Alias(of) => other.subsystem == key.subsystem && *of == key.name,
        Source::Wavelength => key.name == "photon_energy",
        _ => false,
    });
    [key.name].into_iter().chain(others.map(|other| other.name)).collect()
}

/// What the configuration allows for a fact, in the unit of SIMPLON.
fn limits(fact: &str, factor: f64) -> Option<(f64, f64)> {
    let (low, high) = overrides::range(fact)?;
    Some((tidy(low / factor).as_f64()?, tidy(high / factor).as_f64()?))
}

/// Refuses a number beyond the limits, in the unit in which it was sent.
fn within(key: &Key, number: f64, limits: Option<(f64, f64)>) -> Result<(), Problem> {
    match limits {
        Some((low, high)) if !(low..=high).contains(&number) => {
            let detail = format!("{}: {number:?} is not between {} and {}", key.name, tidy(low), tidy(high));
            Err(wrong(detail, unit_hint(key)))
        }
        _ => Ok(()),
    }
}

/// The limits as clients see them. The lowest value is a little above the one that is accepted, because fastcs-eiger
/// rounds what it sends to as many decimals as this number has.
fn range(fact: &str, factor: f64) -> Option<(Value, Value)> {
    let (low, high) = limits(fact, factor)?;
    let least = match low {
        low if low <= 0.0 || low > 1e-3 => low + 1e-6,
        low if low > 1e-6 => low * 1.01,
        low => low,
    };
    Some((tidy(least), tidy(high)))
}

fn a_number(key: &Key, value: &Value) -> Result<f64, Problem> {
    let number = value.as_f64().filter(|number| number.is_finite());
    number.ok_or_else(|| wrong(format!("{}: {} is no number", key.name, shown(value)), unit_hint(key)))
}

fn a_text<'a>(key: &Key, value: &'a Value) -> Result<&'a str, Problem> {
    value.as_str().ok_or_else(|| wrong(format!("{}: {} is no text", key.name, shown(value)), "send a text"))
}

/// A whole number in any notation: for JSON 1000.0 is one too.
fn a_count(key: &Key, value: &Value) -> Result<u64, Problem> {
    let whole = || value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..2f64.powi(63)).contains(number));
    let count = value.as_u64().or_else(|| whole().map(|number| number as u64));
    count.filter(|count| (1..=IMAGES_MAX).contains(count)).ok_or_else(|| {
        let detail = format!("{}: {} is no whole number from 1 to {IMAGES_MAX}", key.name, shown(value));
        wrong(detail, "give the number of images of a trigger, or of triggers")
    })
}

/// Checks a fact as the detector would at arm.
fn check_fact(key: &Key, fact: &str, value: Value) -> Result<(), Problem> {
    if value == "" {
        return Ok(());
    }
    let alone = Map::from_iter([(fact.to_string(), value)]);
    overrides::metadata(&alone).map(drop).map_err(|failure| {
        let hint = [unit_hint(key), failure.fix.clone()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        wrong(format!("{}: {}", key.name, failure.detail()), hint.join("; "))
    })
}

fn unit_hint(key: &Key) -> String {
    if key.unit.is_empty() { String::new() } else { format!("the unit of {} is {}", key.name, key.unit) }
}

fn not_one_of(key: &Key, value: &Value, words: &[&str]) -> Problem {
    let words = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    wrong(format!("{}: {} is not possible with this detector", key.name, shown(value)), format!("allowed: {words}"))
}

fn is_fixed(key: &Key, value: &Value, known: &Value) -> Problem {
    let detail = format!("{} cannot be set to {}: the configuration of the service fixes it", key.name, shown(value));
    let now = if known.is_null() { "it has no value".into() } else { format!("it is {known}") };
    wrong(detail, format!("{now}; docs/simplon.md says which key of the configuration sets it"))
}

fn is_same(sent: &Value, known: &Value) -> bool {
    sent == known || (sent.as_f64().is_some() && sent.as_f64() == known.as_f64())
}

/// A value as it is shown in an error: its beginning.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 80 { format!("{}...", text.chars().take(80).collect::<String>()) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_is_metadata_and_its_limits_are_those_of_the_configuration() {
        for key in KEYS {
            match &key.source {
                Source::Number { fact, factor, .. } => {
                    let (low, high) = overrides::range(fact).unwrap_or_else(|| panic!("{fact} is no metadata"));
                    let (least, most) = range(fact, *factor).unwrap();
                    let in_our_unit = |value: &Value| tidy(value.as_f64().unwrap() * factor).as_f64().unwrap();
                    let (least, most) = (in_our_unit(&least), in_our_unit(&most));
                    assert!(least >= low && least < most && (most / high - 1.0).abs() < 1e-9, "{}: {least} to {most}", key.name);
                    assert!(check_fact(key, fact, json!(least)).is_ok(), "{}", key.name);
                }
                Source::Text { fact, .. } => assert!(check_fact(key, fact, json!("text")).is_ok(), "{}", key.name),
                Source::Alias(of) => assert!(keys::find(key.subsystem, of).is_some(), "{}", key.name),
                _ => {}
            }
        }
    }

    #[test]
    fn the_lowest_value_has_the_decimals_that_clients_round_to() {
        // By fastcs-eiger: the digits behind the point of this text, or the exponent.
        let least = |fact, factor| range(fact, factor).unwrap().0;
        assert_eq!(least("omega_increment_deg", 1.0), json!(-3599.999999));
        assert_eq!(least("beam_center_x_px", 1.0), json!(-999999.999999));
        assert_eq!(least("detector_distance_mm", 1e3), json!(0.005001));
        assert_eq!(least("frame_time_us", 1e6), json!(1.01e-5));
        assert_eq!(least("count_time_us", 1e6), json!(1e-7));
        assert_eq!(least("energy_kev", 1e-3), json!(500.000001));
    }

    #[test]
    fn changes_of_units_leave_no_digits_behind() {
        assert_eq!(tidy(0.000_909_1 * 1e6), json!(909.1));
        assert_eq!(tidy(0.1 + 0.2), json!(0.3));
        assert_eq!(tidy(f64::NAN), Value::Null);
    }

    #[test]
    fn counts_are_whole_numbers_in_any_notation() {
        let key = keys::find("detector", "nimages").unwrap();
        assert_eq!((a_count(key, &json!(7)).unwrap(), a_count(key, &json!(1000.0)).unwrap()), (7, 1000));
        for bad in [json!(0), json!(-1), json!(1.5), json!("7"), json!(true), json!(null), json!(1e30), json!(IMAGES_MAX + 1)] {
            assert_eq!(a_count(key, &bad).unwrap_err().body().status, 400, "{bad}");
        }
    }
}
