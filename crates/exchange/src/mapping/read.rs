//! Reads mappings.

use super::fields::{Field, Takes};
use super::model::{Constant, Mapping, Match, Rule, TableSpec, Time, wrong};
use super::table::{Delimiter, Encoding, Form};
use super::units::{Factor, factor};
use konkordia_core::failure::Failure;
use std::path::Path;
use toml::{Table as Toml, Value};

/// Bytes of a mapping.
const BYTES_MAX: u64 = 1 << 20;

impl Mapping {
    /// Reads a mapping.
    ///
    /// # Errors
    /// The file cannot be read, or is no mapping.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| Failure::io("cannot read the mapping", path, &error);
        let bytes = std::fs::metadata(path).map_err(cannot)?.len();
        if bytes > BYTES_MAX {
            return Err(wrong(path, format!("it has {bytes} bytes; a mapping may have {BYTES_MAX}")));
        }
        let text = std::fs::read(path).map_err(cannot)?;
        let text = String::from_utf8(text).map_err(|_| wrong(path, "it is not UTF-8"))?;
        let mut mapping = Self::parse(&text).map_err(|why| wrong(path, why))?;
        if let Some(table) = mapping.table.as_mut().and_then(|table| table.path.as_mut())
            && table.is_relative()
            && let Some(folder) = path.parent()
        {
            *table = folder.join(&*table);
        }
        Ok(mapping)
    }

    /// Reads the text of a mapping.
    ///
    /// # Errors
    /// What is wrong with it, and where; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let all: Toml = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let mut mapping = Self { text: text.to_owned(), ..Self::default() };
        for (name, value) in &all {
            let part = value.as_table().ok_or_else(|| format!("'{name}' is not a table"))?;
            match name.as_str() {
                "table" => mapping.table = Some(table(part).map_err(|why| format!("[table]: {why}"))?),
                "columns" | "header" => {
                    for (from, value) in part {
                        let rule = rule(from, value).map_err(|why| format!("[{name}] {from}: {why}"))?;
                        if name == "columns" { mapping.columns.push(rule) } else { mapping.header.push(rule) }
                    }
                }
                "values" => {
                    for (field, value) in part {
                        mapping.values.push(constant(field, value).map_err(|why| format!("[values] {field}: {why}"))?);
                    }
                }
                other => return Err(format!("there is no part [{other}]: table, columns, header and values are known")),
            }
        }
        mapping.check().map(|()| mapping)
    }

    fn check(&self) -> Result<(), String> {
        if self.table.is_none() && !self.columns.is_empty() {
            return Err("[columns] names columns, but there is no [table]".into());
        }
        if self.table.is_some() && self.columns.is_empty() {
            return Err("there is a [table], but [columns] says nothing of its columns".into());
        }
        let mut names: Vec<&str> = self.columns.iter().chain(&self.header).map(|rule| &*rule.field.name).collect();
        names.extend(self.values.iter().map(|(field, _)| &*field.name));
        names.sort_unstable();
        let twice = names.windows(2).find(|two| two[0] == two[1]);
        twice.map_or(Ok(()), |two| Err(format!("the field {} has two values", two[0])))
    }
}

fn known(table: &Toml, names: &[&str]) -> Result<(), String> {
    let other = table.keys().find(|key| !names.contains(&key.as_str()));
    other.map_or(Ok(()), |key| Err(format!("there is no key '{key}'; known are {}", names.join(", "))))
}

fn text<'t>(table: &'t Toml, key: &str) -> Result<Option<&'t str>, String> {
    let Some(value) = table.get(key) else { return Ok(None) };
    value.as_str().map(Some).ok_or_else(|| format!("'{key}' is not a text"))
}

fn table(part: &Toml) -> Result<TableSpec, String> {
    known(part, &["path", "encoding", "delimiter", "comment", "names", "match", "column"])?;
    let encoding = match text(part, "encoding")?.unwrap_or("utf-8").to_ascii_lowercase().as_str() {
        "utf-8" | "utf8" | "ascii" => Encoding::Utf8,
        "latin-1" | "latin1" | "iso-8859-1" => Encoding::Latin1,
        other => return Err(format!("encoding '{other}' is not known; utf-8 and latin-1 are")),
    };
    let delimiter = match text(part, "delimiter")? {
        None => None,
        Some("tab" | "\t") => Some(Delimiter::One('\t')),
        Some("space" | " ") => Some(Delimiter::Spaces),
        Some("," | ";" | "|" | ":") => text(part, "delimiter")?.and_then(|text| text.chars().next()).map(Delimiter::One),
        Some(other) => return Err(format!("delimiter '{other}' is not known; , ; | : tab and space are")),
    };
    let has_names = part.get("names").map_or(Some(true), Value::as_bool).ok_or("'names' is true or false")?;
    let column = text(part, "column")?.map(str::to_owned);
    let matching = match (text(part, "match")?.unwrap_or("order"), column) {
        ("order", None) => Match::Order,
        ("number", Some(column)) => Match::Number(column),
        ("name", Some(column)) => Match::Name(column),
        ("order", Some(_)) => return Err("'column' goes with match = \"number\" or \"name\"".into()),
        ("number" | "name", None) => return Err("'column' is missing: which column has the numbers or names?".into()),
        (other, _) => return Err(format!("match '{other}' is not known; order, number and name are")),
    };
    let comment = text(part, "comment")?.unwrap_or("#").to_owned();
    let form = Form { encoding, delimiter, comment, is_nameless: !has_names };
    Ok(TableSpec { path: text(part, "path")?.map(Into::into), form, matching })
}

fn rule(from: &str, value: &Value) -> Result<Rule, String> {
    let (field, unit, kind) = match value {
        Value::String(field) => (field.as_str(), None, None),
        Value::Table(part) => {
            known(part, &["field", "unit", "type"])?;
            (text(part, "field")?.ok_or("'field' is missing")?, text(part, "unit")?, text(part, "type")?)
        }
        _ => return Err("a field, or { field = ..., unit = ... } is expected".into()),
    };
    let field = Field::find(field)?;
    let is_whole = match (kind, field.takes) {
        (None | Some("float64"), _) => false,
        (Some("uint64"), Takes::Own(_)) => true,
        (Some(other), _) => return Err(format!("type '{other}' is not possible here; columns/NAME takes float64 and uint64")),
    };
    let time = match (field.takes, unit) {
        (Takes::StartTime, Some("iso")) => Time::Iso,
        (Takes::StartTime, Some("unix")) => Time::Unix,
        _ => Time::Relative,
    };
    let factor = match (field.dimension(), time) {
        (_, Time::Iso | Time::Unix) | (None, _) if unit.is_none() || time != Time::Relative => Factor::ONE,
        (None, _) => return Err("a text has no unit".into()),
        // A column of its own is stored as it comes; its unit is only a remark.
        (Some(_), _) if matches!(field.takes, Takes::Own(_)) => Factor::ONE,
        (Some(dimension), _) => factor(dimension, unit)?,
    };
    Ok(Rule { from: from.to_owned(), field, factor, time, is_whole })
}

fn constant(name: &str, value: &Value) -> Result<(Field, Constant), String> {
    let field = Field::find(name)?;
    let (value, unit) = match value {
        Value::Table(part) => {
            known(part, &["value", "unit"])?;
            (part.get("value").ok_or("'value' is missing")?, text(part, "unit")?)
        }
        other => (other, None),
    };
    let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    match (field.takes, number, value.as_str()) {
        (Takes::Text(_), None, Some(text)) => Ok((field, Constant::Text(text.to_owned()))),
        (Takes::Text(_), ..) => Err("a text is expected".into()),
        (Takes::Image(..) | Takes::StartTime | Takes::Own(_), ..) => {
            Err("it differs from image to image: it belongs into [columns] or [header]".into())
        }
        (_, Some(number), _) if number.is_finite() => {
            let factor = factor(field.dimension().ok_or("it has no numbers")?, unit)?;
            Ok((field, Constant::Number(factor.apply(number))))
        }
        _ => Err("a number is expected, or { value = ..., unit = ... }".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        [table]
        path = "scan.csv"
        delimiter = ";"
        match = "number"
        column = "frame"
        [columns]
        energy = { field = "instrument/beam/incident_energy", unit = "eV" }
        sample = "sample/name"
        current = { field = "columns/ring_current", unit = "mA" }
        time = { field = "instrument/detector/start_time", unit = "iso" }
        [header]
        Exposure_time = { field = "/entry/instrument/detector/count_time", unit = "s" }
        [values]
        "instrument/detector/distance" = { value = 192, unit = "mm" }
        "instrument/name" = "BL1"
    "#;

    #[test]
    fn a_mapping_is_read() {
        let mapping = Mapping::parse(WHOLE).unwrap();
        let table = mapping.table.unwrap();
        assert_eq!((table.matching, table.form.delimiter), (Match::Number("frame".into()), Some(Delimiter::One(';'))));
        let energy = mapping.columns.iter().find(|rule| rule.from == "energy").unwrap();
        assert_eq!((energy.factor.apply(12400.0), &*energy.field.name), (12.4, "instrument/beam/incident_energy"));
        assert_eq!(mapping.columns.iter().find(|rule| rule.from == "time").unwrap().time, Time::Iso);
        assert_eq!(mapping.header.len(), 1);
        assert!(
            mapping
                .values
                .iter()
                .any(|(field, value)| field.name == "instrument/detector/distance" && *value == Constant::Number(0.192))
        );
    }

    #[test]
    fn what_is_wrong_with_a_mapping_is_said() {
        let why = |text: &str| Mapping::parse(text).err().unwrap_or_default();
        let but = |from: &str, to: &str| why(&WHOLE.replace(from, to));
        assert!(why("[x]\n").contains("no part [x]") && why("table = 1").contains("not a table") && why("[").contains("TOML"));
        assert!(but("unit = \"eV\"", "unit = \"V\"").contains("[columns] energy: 'V' is not a unit"));
        assert!(but(", unit = \"eV\"", "").contains("a unit is missing: one of keV, eV"));
        assert!(but("\"sample/name\"", "\"sample/nam\"").contains("there is no field 'sample/nam'"));
        assert!(but("\"sample/name\"", "{ field = \"sample/name\", unit = \"m\" }").contains("a text has no unit"));
        assert!(but("\"number\"", "\"nothing\"").contains("match 'nothing'"));
        assert!(but("column = \"frame\"", "").contains("'column' is missing"));
        assert!(but("match = \"number\"", "").contains("'column' goes with"));
        assert!(but("delimiter = \";\"", "delimiter = \"x\"").contains("delimiter 'x'"));
        assert!(but("delimiter", "separator").contains("no key 'separator'"));
        assert!(but("\"BL1\"", "5").contains("[values] instrument/name: a text is expected"));
        assert!(but("192", "\"far\"").contains("a number is expected"));
        assert!(but("instrument/name", "pulse_id").contains("differs from image to image"));
        assert!(but("/entry/instrument/detector/count_time", "sample/temperature").contains("'s' is not a unit"));
        assert!(but("instrument/name", "sample/name").contains("the field sample/name has two values"));
        assert!(why("[columns]\na = \"sample/name\"").contains("no [table]") && why("[table]").contains("says nothing"));
    }
}
