//! Numbers of a device about a trigger, as JSON in one part: `{"source": "encoder", "trigger": 17, "values":
//! {"angle_deg": 1.5}}`. The format is ours (docs/join.md); any program with ZeroMQ and JSON can send it.
//!
//! Facts relied on: JSON has no NaN and no infinity. Whole numbers beyond 2^53 lose digits as `values`; `trigger` has
//! all 64 bits. Further keys are left out.

use crate::stream::quoted;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 16;
/// Most numbers of a message.
pub const VALUES_MAX: usize = 64;
/// Longest name of a number.
pub const NAME_BYTES_MAX: usize = 64;

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalars<'a> {
    /// Name of the device.
    #[serde(borrow)]
    pub source: Cow<'a, str>,
    /// Number of the trigger.
    pub trigger: u64,
    /// The numbers by name.
    #[serde(deserialize_with = "values", serialize_with = "write_values")]
    pub values: Vec<(String, f64)>,
}

impl<'a> Scalars<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it: too long, no JSON, a key that is missing or of another type, a name that is not possible,
    /// a name twice, no number, or too many.
    pub fn parse(text: &'a [u8]) -> Result<Self, String> {
        if text.len() > MESSAGE_BYTES_MAX {
            return Err(format!("it has {} bytes, and {MESSAGE_BYTES_MAX} are possible", text.len()));
        }
        serde_json::from_slice(text).map_err(|error| format!("it is not the JSON that was expected: {error}"))
    }

    /// The message; the numbers must be finite.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// True if a number may have this name: letters, digits, `_`, `-`, `:` and `.`, as names of EPICS process variables
/// have them, and no `.` first.
pub fn is_name(name: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"_-:.".contains(&letter);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && name.bytes().all(is_letter)
}

/// Reads the numbers one by one, so that too many are refused before they take memory.
fn values<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, f64)>, D::Error> {
    struct Values;

    impl<'de> Visitor<'de> for Values {
        type Value = Vec<(String, f64)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of numbers")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut list: Self::Value = Vec::new();
            while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                if !is_name(&name) {
                    let why =
                        format!("{} is not of letters, digits, '_', '-', ':' and '.', at most {NAME_BYTES_MAX}", quoted(&name));
                    return Err(de::Error::custom(why));
                }
                if list.iter().any(|(known, _)| *known == name) {
                    return Err(de::Error::custom(format!("it says {} twice", quoted(&name))));
                }
                if list.len() == VALUES_MAX {
                    return Err(de::Error::custom(format!("it has more than {VALUES_MAX} numbers")));
                }
                list.push((name.into_owned(), map.next_value()?));
            }
            if list.is_empty() { Err(de::Error::custom("it has no numbers")) } else { Ok(list) }
        }
    }

    from.deserialize_map(Values)
}

fn write_values<S: serde::Serializer>(values: &[(String, f64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values.iter().map(|(name, value)| (name, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        Scalars::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn a_message_is_read() {
        let text =
            br#"{"source": "encoder", "trigger": 18446744073709551615, "time": [1], "values": {"XF:28.RBV": 1, "b": -2.5e3}}"#;
        let read = Scalars::parse(text).unwrap();
        assert_eq!((&*read.source, read.trigger), ("encoder", u64::MAX));
        assert_eq!(read.values, [("XF:28.RBV".to_owned(), 1.0), ("b".to_owned(), -2500.0)]);
        assert_eq!(Scalars::parse(read.to_text().as_bytes()), Ok(read));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let with = |trigger: &str, values: &str| format!(r#"{{"source":"e","trigger":{trigger},"values":{values}}}"#);
        let many: Vec<String> = (0..=VALUES_MAX).map(|n| format!(r#""v{n}":1"#)).collect();
        let cases = [
            ("".to_owned(), "EOF while parsing"),
            ("angle 1.5".into(), "expected value"),
            ("[1, 2]".into(), "invalid type"),
            ("{}".into(), "missing field `source`"),
            (with("-1", r#"{"a":1}"#), "invalid value: integer `-1`"),
            (with("1.5", r#"{"a":1}"#), "invalid type: floating point"),
            (with("18446744073709551616", r#"{"a":1}"#), "invalid type: floating point"),
            (with("\"7\"", r#"{"a":1}"#), "invalid type: string"),
            (with("7", r#"{"a":NaN}"#), "expected value"),
            (with("7", r#"{"a":"NaN"}"#), "invalid type: string"),
            (with("7", r#"{"a":null}"#), "invalid type: null"),
            (with("7", r#"{"a":1e999}"#), "number out of range"),
            (with("7", r#"{"a":[1]}"#), "invalid type: sequence"),
            (with("7", "[1]"), "expected an object of numbers"),
            (with("7", "{}"), "it has no numbers"),
            (with("7", r#"{"a":1,"a":2}"#), "'a' twice"),
            (with("7", r#"{"a/b":1}"#), "'a/b' is not of letters"),
            (with("7", r#"{".":1}"#), "'.' is not of letters"),
            (with("7", &format!("{{{}}}", many.join(","))), "more than 64 numbers"),
            (format!(r#"{{"source":"e","trigger":1,"x":{},"values":{{"a":1}}}}"#, "[".repeat(10_000)), "expected value"),
            (format!("{}1", " ".repeat(MESSAGE_BYTES_MAX)), "65537 bytes"),
        ];
        for (text, expected) in cases {
            let found = why(&text);
            assert!(found.contains(expected), "{}: {found}", text.chars().take(60).collect::<String>());
        }
        assert!(Scalars::parse(&[0xFF; 20]).is_err());
    }
}
