//! What a mapping says.

use super::fields::Field;
use super::table::Form;
use super::units::Factor;
use konkordia_core::failure::{Exit, Failure};
use std::path::{Path, PathBuf};

/// How rows of a table find their images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// One row for each image, in their order.
    Order,
    /// This column holds the number in the name of the file.
    Number(String),
    /// This column holds the name of the file.
    Name(String),
}

/// One line of a mapping.
#[derive(Clone)]
pub struct Rule {
    /// Column of the table, or key of the header.
    pub from: String,
    /// What it becomes.
    pub field: Field,
    /// From its unit to that of the field.
    pub factor: Factor,
    /// Absolute times: seconds since 1970, or dates; `factor` is for the former.
    pub time: Time,
    /// Whole numbers, in a column of its own.
    pub is_whole: bool,
}

/// How a start time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Since the start of the series.
    Relative,
    /// Seconds since 1970.
    Unix,
    /// ISO 8601.
    Iso,
}

/// A value for all images.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A number, in the unit of its field.
    Number(f64),
    /// A text.
    Text(String),
}

/// A mapping, checked.
#[derive(Clone, Default)]
pub struct Mapping {
    /// The table; `None` if there is none.
    pub table: Option<TableSpec>,
    /// Columns of the table.
    pub columns: Vec<Rule>,
    /// Keys of the headers of the files.
    pub header: Vec<Rule>,
    /// Values for all images.
    pub values: Vec<(Field, Constant)>,
    /// The mapping as it was given, for the file.
    pub text: String,
}

/// The table of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The file; `None` = it must be named on the command line.
    pub path: Option<PathBuf>,
    /// How it is written.
    pub form: Form,
    /// How its rows find their images.
    pub matching: Match,
}

/// The failure for something wrong in a mapping or its table.
pub fn wrong(path: &Path, why: impl Into<String>) -> Failure {
    let fix = "correct it; docs/import.md describes mappings and tables";
    Failure::new(Exit::Configuration, format!("{} cannot be used", path.display()), why, fix)
}
