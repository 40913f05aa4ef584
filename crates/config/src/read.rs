//! From a TOML file to checked values: types, ranges, words, units. The keys are listed in `schema`.

use super::diagnostics::Diagnostics;
use super::schema::{self, Key, Kind};
use konkordia_core::affinity;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{Compression, WrongCodec};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// The text of a configuration.
pub(super) fn text_of(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read(path).map_err(|error| Failure {
        exit: Exit::Configuration,
        fix: "check the path; `konkordia config init` writes an example".into(),
        ..Failure::io("cannot read the configuration", path, &error)
    })?;
    String::from_utf8(text).map_err(|error| {
        let why = format!("byte {} is not UTF-8", error.utf8_error().valid_up_to());
        let what = format!("the configuration {} is not text", path.display());
        Failure::new(Exit::Configuration, what, why, "TOML is text; `konkordia config init` writes an example")
    })
}

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, a choice or one path.
    Text(String),
    /// Several paths.
    Texts(Vec<String>),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Numbers.
    Numbers(Vec<f64>),
    /// True or false.
    Flag(bool),
}

/// The values of one table with their places in the text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    values: BTreeMap<&'static str, (Value, Range<usize>)>,
    /// Where the table begins.
    pub span: Option<Range<usize>>,
}

impl Table {
    /// Where the value of `name` stands.
    pub fn span(&self, name: &str) -> Option<Range<usize>> {
        self.values.get(name).map(|v| v.1.clone())
    }

    /// Names of the keys that were given.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.values.keys().copied()
    }

    /// True if the key was given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.values.get(name) {
            Some((Value::Text(text), _)) => Some(text),
            _ => None,
        }
    }

    /// A list of texts; one text counts as a list.
    pub fn texts(&self, name: &str) -> Vec<String> {
        match self.values.get(name) {
            Some((Value::Text(text), _)) => vec![text.clone()],
            Some((Value::Texts(texts), _)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    /// A whole number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.values.get(name) {
            Some((Value::Integer(n), _)) => Some(*n),
            _ => None,
        }
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.values.get(name) {
            Some((Value::Number(n), _)) => Some(*n),
            _ => None,
        }
    }

    /// A list of whole numbers.
    pub fn integers(&self, name: &str) -> Vec<i64> {
        match self.values.get(name) {
            Some((Value::Integers(list), _)) => list.clone(),
            _ => Vec::new(),
        }
    }

    /// A list of exactly `N` numbers.
    pub fn numbers<const N: usize>(&self, name: &str) -> Option<[f64; N]> {
        match self.values.get(name) {
            Some((Value::Numbers(list), _)) => list.as_slice().try_into().ok(),
            _ => None,
        }
    }

    /// A flag.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.values.get(name) {
            Some((Value::Flag(flag), _)) => Some(*flag),
            _ => None,
        }
    }
}

/// All tables of a file.
#[derive(Clone, Debug, Default)]
pub struct Document {
    tables: BTreeMap<&'static str, Table>,
    /// `[[detector.tile]]`, `[[source.module]]` and `[[stream]]`, each in order.
    arrays: BTreeMap<&'static str, Vec<Table>>,
    /// `[detectors.NAME]` in order, with their names.
    pub detectors: Vec<(String, Table)>,
    /// `[adapters.NAME]`, likewise.
    pub adapters: Vec<(String, Table)>,
    /// `[control.settings]` with its place. Only a driver knows its keys.
    pub driver_settings: Option<(Map<String, Json>, Range<usize>)>,
}

impl Document {
    /// A table, empty if it was not given.
    pub fn table(&self, name: &str) -> &Table {
        static EMPTY: Table = Table { values: BTreeMap::new(), span: None };
        self.tables.get(name).unwrap_or(&EMPTY)
    }

    /// The tables of an array, for example `detector.tile`.
    pub fn array(&self, name: &str) -> &[Table] {
        self.arrays.get(name).map_or(&[], Vec::as_slice)
    }

    /// Tables that were given, with their names.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, &Table)> {
        self.tables.iter().map(|(name, table)| (*name, table))
    }
}

/// Reads `text`. Errors go to `d`; the valid values are returned.
pub fn read(text: &str, d: &mut Diagnostics) -> Document {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let what = format!("not TOML: {}", error.message());
        d.add(error.span(), what, "", "correct the line; text needs quotes, lists need [ ], comments begin with #");
    }
    let mut document = Document::default();
    if !errors.is_empty() {
        return document;
    }
    for (name, value) in root.get_ref().iter() {
        if let Some((array, ..)) = schema::ARRAYS.iter().find(|(_, home, key)| home.is_empty() && *key == name.get_ref()) {
            read_array(array, value.get_ref(), value.span(), d, &mut document);
            continue;
        }
        let named = schema::NAMED.iter().find(|(table, _)| *table == name.get_ref().as_ref());
        if let (Some((table, of)), DeValue::Table(entries)) = (named, value.get_ref()) {
            let read = read_named(table, of, entries, d, &mut document);
            if *table == "adapters" {
                document.adapters = read
            } else {
                document.detectors = read
            }
            continue;
        }
        let table = schema::TABLES.iter().find(|t| t.0 == name.get_ref().as_ref() && !t.0.contains('.'));
        match (table, value.get_ref()) {
            (Some((table, _)), DeValue::Table(entries)) => {
                let mut read = read_table(table, entries, d, &mut document);
                read.span = Some(name.span());
                document.tables.insert(table, read);
            }
            (Some((table, _)), other) => {
                d.add(
                    Some(name.span()),
                    format!("'{table}' is a table, not {}", type_words(other)),
                    "",
                    format!("write [{table}]"),
                );
            }
            (None, _) => unknown_table(name.get_ref(), name.span(), d),
        }
    }
    document
}

fn unknown_table(name: &str, span: Range<usize>, d: &mut Diagnostics) {
    let tables: Vec<&str> = schema::TABLES.iter().map(|t| t.0).filter(|t| !t.contains('.')).collect();
    // A key above the first table, or a table with a typo.
    let home = schema::all().find(|k| k.name == name);
    let fix = match (home, nearest(name, &tables)) {
        (Some(key), _) => format!("move it into [{}]", key.table),
        (None, Some(near)) => format!("did you mean [{near}]?"),
        (None, None) => format!("the tables are {}", tables.iter().map(|t| format!("[{t}]")).collect::<Vec<_>>().join(", ")),
    };
    d.add(Some(span), format!("unknown table or key '{name}'"), "", fix);
}

fn read_table(table: &'static str, entries: &DeTable<'_>, d: &mut Diagnostics, document: &mut Document) -> Table {
    let mut read = Table::default();
    for (name, value) in entries.iter() {
        let text: &str = name.get_ref().as_ref();
        if let Some((array, ..)) = schema::ARRAYS.iter().find(|(_, home, key)| (*home, *key) == (table, text)) {
            read_array(array, value.get_ref(), value.span(), d, document);
            continue;
        }
        if (table, text) == ("control", "settings") {
            match json(value.get_ref()) {
                Ok(Json::Object(settings)) => document.driver_settings = Some((settings, name.span())),
                Ok(_) => d.add(Some(value.span()), "control.settings is a table", "", "write [control.settings]"),
                Err((what, fix)) => d.add(Some(value.span()), format!("control.settings: {what}"), "", fix),
            }
            continue;
        }
        let Some(key) = schema::find(table, text) else {
            unknown_key(table, text, name.span(), d);
            continue;
        };
        match check(key, value.get_ref()) {
            Ok(checked) => {
                read.values.insert(key.name, (checked, value.span()));
            }
            Err((what, fix)) => d.add(Some(value.span()), format!("{}.{}: {what}", key.table, key.name), "", fix),
        }
    }
    read
}

/// Reads an array of tables.
fn read_array(array: &'static str, value: &DeValue<'_>, span: Range<usize>, d: &mut Diagnostics, document: &mut Document) {
    let DeValue::Array(list) = value else {
        d.add(
            Some(span),
            format!("{array} is a list of tables"),
            "",
            format!("write [[{array}]] with two brackets, {}", how_often(array)),
        );
        return;
    };
    let one = array.rsplit('.').next().unwrap_or(array);
    for entry in list.iter() {
        match entry.get_ref() {
            DeValue::Table(entries) => {
                let mut read = read_table(array, entries, d, document);
                read.span = Some(entry.span());
                let number = document.array(array).len();
                for key in schema::keys_of(array).filter(|key| key.default == "required") {
                    if !entries.iter().any(|(k, _)| k.get_ref().as_ref() == key.name) {
                        let what = format!("{one} {number} has no '{}'", key.name);
                        d.add(Some(entry.span()), what, "", format!("add {} = ... ({})", key.name, key.doc));
                    }
                }
                document.arrays.entry(array).or_default().push(read);
            }
            other => d.add(
                Some(entry.span()),
                format!("a {one} is a table, not {}", type_words(other)),
                "",
                format!("write [[{array}]]"),
            ),
        }
    }
}

fn how_often(array: &str) -> &'static str {
    match array {
        "detector.tile" => "once per stream",
        "source.module" => "once per upstream",
        _ => "once for each",
    }
}

/// Reads `[detectors.NAME]` and `[adapters.NAME]`: a table with a table for each name. `of` is what has the name.
fn read_named(
    table: &'static str,
    of: &str,
    entries: &DeTable<'_>,
    d: &mut Diagnostics,
    document: &mut Document,
) -> Vec<(String, Table)> {
    let mut all = Vec::new();
    for (name, value) in entries.iter() {
        let DeValue::Table(keys) = value.get_ref() else {
            let what = format!("'{}' stands in [{table}], which has one table per {of}", name.get_ref());
            let keys: Vec<String> = schema::keys_of(table).map(|key| format!("{} = ...", key.name)).collect();
            d.add(Some(name.span()), what, "", format!("write [{table}.NAME] and under it {}", keys.join(" or ")));
            continue;
        };
        let mut read = read_table(table, keys, d, document);
        read.span = Some(name.span());
        all.push((name.get_ref().to_string(), read));
    }
    all
}

/// Unit suffixes that keys have, or that people try instead.
const UNITS: [&str; 22] = [
    "ev", "kev", "mev", "m", "cm", "mm", "um", "nm", "px", "pixels", "s", "ms", "us", "ns", "sec", "seconds", "b", "kib", "mib",
    "gib", "mb", "gb",
];

fn stem(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((stem, unit)) if UNITS.contains(&unit.to_lowercase().as_str()) => stem,
        _ => name,
    }
}

fn unknown_key(table: &'static str, name: &str, span: Range<usize>, d: &mut Diagnostics) {
    let here: Vec<&str> = schema::keys_of(table).map(|k| k.name).collect();
    let same_stem = here.iter().find(|k| stem(k) == stem(&name.to_lowercase()) && **k != name);
    let elsewhere = schema::all().find(|k| k.name == name && k.table != "detector.tile");
    let what = format!("unknown key '{name}' in [{table}]");
    if let Some(key) = same_stem.and_then(|k| schema::find(table, k)) {
        d.add(Some(span), what, "the unit is part of the key", format!("did you mean '{}' ({})?", key.name, key.doc));
    } else if let Some(near) = nearest(name, &here) {
        d.add(Some(span), what, "", format!("did you mean '{near}'?"));
    } else if let Some(key) = elsewhere {
        d.add(Some(span), what, "", format!("move it into [{}]", key.table));
    } else {
        let everywhere: Vec<&str> = schema::all().map(|k| k.name).collect();
        let other = nearest(name, &everywhere).and_then(|n| schema::all().find(|k| k.name == n));
        let fix = other.map_or_else(
            || format!("the keys of [{table}] are {}", here.join(", ")),
            |k| format!("did you mean '{}' in [{}]?", k.name, k.table),
        );
        d.add(Some(span), what, "", fix);
    }
}

/// The candidate that is most similar to `name`, if one is similar enough.
pub fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let score = |c: &&&str| strsim::jaro_winkler(&name, c);
    let best = candidates.iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    let close = strsim::damerau_levenshtein(&name, best) <= 1 + best.len() / 4;
    (score(&best) > 0.78 && close).then_some(best)
}

/// A value of any kind as JSON. Dates become texts.
fn json(value: &DeValue<'_>) -> Result<Json, Refusal> {
    Ok(match value {
        DeValue::String(text) => Json::String(text.to_string()),
        DeValue::Integer(_) => integer(value)
            .map(Json::from)
            .ok_or_else(|| ("a number is too large".to_string(), "give a smaller one".to_string()))?,
        DeValue::Float(_) => number(value)
            .and_then(serde_json::Number::from_f64)
            .map(Json::Number)
            .ok_or_else(|| ("inf and nan are no settings".to_string(), "give a number".to_string()))?,
        DeValue::Boolean(flag) => Json::Bool(*flag),
        DeValue::Datetime(date) => Json::String(date.to_string()),
        DeValue::Array(list) => Json::Array(list.iter().map(|one| json(one.get_ref())).collect::<Result<_, _>>()?),
        DeValue::Table(entries) => {
            let mut object = Map::new();
            for (name, value) in entries.iter() {
                object.insert(name.get_ref().to_string(), json(value.get_ref())?);
            }
            Json::Object(object)
        }
    })
}

fn type_words(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let n = value.as_integer()?;
    i64::from_str_radix(n.as_str(), n.radix()).ok()
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(n) => n.as_str().parse().ok(),
        _ => integer(value).map(|n| n as f64),
    }
}

/// What is wrong, and the remedy.
type Refusal = (String, String);

fn in_range(n: i64, low: i64, high: i64) -> Result<i64, Refusal> {
    if (low..=high).contains(&n) {
        Ok(n)
    } else {
        Err((format!("{n} is not between {low} and {high}"), format!("give a value from {low} to {high}")))
    }
}

/// "auto" as text, processors as numbers; `None` for a value of another type.
fn processors(value: &DeValue<'_>) -> Option<Result<Value, Refusal>> {
    let Some(text) = value.as_str() else {
        let list = value.as_array()?.iter().map(|v| integer(v.get_ref())).collect::<Option<Vec<i64>>>()?;
        return Some(list.into_iter().map(|n| in_range(n, 0, 65_535)).collect::<Result<_, _>>().map(Value::Integers));
    };
    if text == "auto" {
        return Some(Ok(Value::Text(text.into())));
    }
    let list = affinity::cpus(text).map(|cpus| Value::Integers(cpus.into_iter().map(|cpu| cpu as i64).collect()));
    let refusal = || (format!("\"{text}\" is no list of processors"), "write for example \"4-7,12\", or \"auto\"".into());
    Some(list.ok_or_else(refusal))
}

/// A word that is none of those that are possible.
fn not_of_these(word: &str, words: &[&str], kind: Kind) -> Refusal {
    let near = nearest(word, words).map(|n| format!("did you mean \"{n}\"? ")).unwrap_or_default();
    let list = if words.len() == 1 { format!("only {} is possible", kind.words()) } else { format!("one of {}", kind.words()) };
    (format!("\"{word}\" is not possible"), format!("{near}{list}"))
}

/// The name of a compression in front of its options.
fn codec_name(text: &str) -> &str {
    text.split(',').next().unwrap_or_default().trim()
}

/// A compression without loss, with its options.
fn codec(text: &str) -> Result<Value, Refusal> {
    let name = codec_name(text);
    if name == "sz3" {
        let fix =
            "choose one without loss; `konkordia repack --compression sz3` or [travel] make a lossy copy of the finished run";
        return Err(("\"sz3\" is lossy, and a run is written without loss".into(), fix.into()));
    }
    let near = || nearest(name, &Compression::NAMES).filter(|near| *near != name);
    match Compression::parse(text, None) {
        Ok(_) => Ok(Value::Text(text.into())),
        Err(WrongCodec { what, fix }) => {
            Err((what, near().map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default() + &fix))
        }
    }
}

fn check(key: &Key, value: &DeValue<'_>) -> Result<Value, Refusal> {
    let expected = || Err((format!("{} where {} is expected", type_words(value), key.kind.words()), key.doc.to_string()));
    match key.kind {
        Kind::Choice(words) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(Value::Text(word.into())),
            Some(word) => Err(not_of_these(word, words, key.kind)),
            None => expected(),
        },
        Kind::Codec => value.as_str().map_or_else(expected, codec),
        Kind::CodecOr(names, word) => match value.as_str() {
            Some(text) if text == word || names.contains(&codec_name(text)) => {
                if text == word {
                    Ok(Value::Text(text.into()))
                } else {
                    codec(text)
                }
            }
            Some(text) => Err(not_of_these(text, &[names, &[word]].concat(), key.kind)),
            None => expected(),
        },
        Kind::Text | Kind::Path => match value.as_str() {
            Some("") => Err(("empty text".into(), key.doc.into())),
            Some(text) => Ok(Value::Text(text.into())),
            None => expected(),
        },
        Kind::Paths | Kind::Texts => match value {
            DeValue::String(text) => Ok(Value::Text(text.to_string())),
            DeValue::Array(list) => {
                let texts: Option<Vec<String>> = list.iter().map(|v| v.get_ref().as_str().map(str::to_string)).collect();
                texts.map_or_else(expected, |t| Ok(Value::Texts(t)))
            }
            _ => expected(),
        },
        Kind::Integer(low, high) => integer(value).map_or_else(expected, |n| in_range(n, low, high).map(Value::Integer)),
        Kind::IntegerOr(low, high, words) => match value.as_str() {
            Some(text) if words.contains(&text) => Ok(Value::Text(text.into())),
            Some(_) => expected(),
            None => integer(value).map_or_else(expected, |n| in_range(n, low, high).map(Value::Integer)),
        },
        Kind::Number(low, high) => match number(value) {
            Some(n) if (low..=high).contains(&n) => Ok(Value::Number(n)),
            Some(n) => Err(out_of_range(key, n, low, high)),
            None => expected(),
        },
        Kind::Integers(low, high) => {
            let Some(list) = value.as_array() else { return expected() };
            let Some(list) = list.iter().map(|v| integer(v.get_ref())).collect::<Option<Vec<i64>>>() else { return expected() };
            list.into_iter().map(|n| in_range(n, low, high)).collect::<Result<_, _>>().map(Value::Integers)
        }
        Kind::Processors => processors(value).unwrap_or_else(expected),
        Kind::Numbers(count, low, high) => {
            let numbers = value.as_array().map(|list| list.iter().map(|v| number(v.get_ref())).collect::<Option<Vec<f64>>>());
            let Some(list) = numbers.flatten().filter(|list| list.len() == count) else { return expected() };
            match list.iter().find(|n| !(low..=high).contains(*n)) {
                Some(n) => Err(out_of_range(key, *n, low, high)),
                None => Ok(Value::Numbers(list)),
            }
        }
        Kind::Flag => value.as_bool().map_or_else(expected, |b| Ok(Value::Flag(b))),
    }
}

fn out_of_range(key: &Key, n: f64, low: f64, high: f64) -> Refusal {
    let what = format!("{n} is not between {low} and {high}");
    let unit = key.other_units.iter().find(|(_, factor)| (low..=high).contains(&(n * factor)));
    match unit {
        Some((unit, factor)) => {
            // Rounded, so that 12400 * 0.001 reads 12.4.
            let converted = (n * factor * 1e9).round() / 1e9;
            (format!("{what}; it looks like {unit}"), format!("write {} = {converted}", key.name))
        }
        None => (what, format!("{}: give a value from {low} to {high}", key.doc)),
    }
}
