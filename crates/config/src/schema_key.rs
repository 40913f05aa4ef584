//! What the schema says of each key.

use konkordia_core::plan::Compression;

/// Allowed values of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A compression by its name, with options behind it.
    Codec,
    /// One of these compressions, with options behind it, or this word.
    CodecOr(&'static [&'static str], &'static str),
    /// Any text.
    Text,
    /// A path, relative to the folder of the configuration file.
    Path,
    /// One path or a list of paths.
    Paths,
    /// A whole number in a range, ends included.
    Integer(i64, i64),
    /// A number in a range, ends included.
    Number(f64, f64),
    /// A whole number in a range, or one of these words.
    IntegerOr(i64, i64, &'static [&'static str]),
    /// A list of whole numbers in a range.
    Integers(i64, i64),
    /// Processors: "auto", a list of their numbers, or a text such as "4-7,12".
    Processors,
    /// A list of exactly so many numbers, each in a range.
    Numbers(usize, f64, f64),
    /// `true` or `false`.
    Flag,
    /// One text or a list of texts.
    Texts,
}

impl Kind {
    /// In words, for people.
    pub fn words(self) -> String {
        match self {
            Self::Choice(words) => words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", "),
            Self::Codec => Self::Choice(&Compression::NAMES).words() + CODEC_OPTIONS,
            Self::CodecOr(names, word) => format!("\"{word}\", {}{CODEC_OPTIONS}", Self::Choice(names).words()),
            Self::Text => "text".into(),
            Self::Path => "path".into(),
            Self::Paths => "path or list of paths".into(),
            Self::Integer(low, high) => format!("whole number, {low} to {high}"),
            Self::Number(low, high) => format!("number, {low} to {high}"),
            Self::IntegerOr(low, high, words) => format!("{} or a whole number, {low} to {high}", Self::Choice(words).words()),
            Self::Integers(low, high) => format!("list of whole numbers, {low} to {high}"),
            Self::Processors => "\"auto\", list of whole numbers, or text such as \"4-7,12\"".into(),
            Self::Numbers(count, low, high) => format!("list of {count} numbers, {low} to {high}"),
            Self::Flag => "true or false".into(),
            Self::Texts => "text or list of texts".into(),
        }
    }
}

/// Behind the names of compressions.
const CODEC_OPTIONS: &str = ", also with options: \"bszstd,level=5,block=64k\"";

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Table of the key, without brackets.
    pub table: &'static str,
    /// Its name, with the unit last.
    pub name: &'static str,
    /// Allowed values.
    pub kind: Kind,
    /// What applies without the key, in words.
    pub default: &'static str,
    /// Meaning.
    pub doc: &'static str,
    /// Units that people confuse with the right one, each with the factor that converts to the right one.
    pub other_units: &'static [(&'static str, f64)],
}

const NO_UNITS: &[(&str, f64)] = &[];

pub(super) const fn key(table: &'static str, name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { table, name, kind, default, doc, other_units: NO_UNITS }
}

pub(super) const fn quantity(
    table: &'static str,
    name: &'static str,
    range: (f64, f64),
    units: &'static [(&'static str, f64)],
    default: &'static str,
    doc: &'static str,
) -> Key {
    Key { table, name, kind: Kind::Number(range.0, range.1), default, doc, other_units: units }
}
