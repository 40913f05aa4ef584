//! Options of the command line with a list of allowed values, of a library or of ours.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A parser for values of a library, each with its name and its help.
pub fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(T, &'static str, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(values.map(|(_, name, help)| PossibleValue::new(name).help(help)));
    names.try_map(move |name: String| values.iter().find(|value| value.1 == name).map(|value| value.0).ok_or(name))
}

/// `--drift-shape`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriftChoice {
    /// Evenly, then constant
    Linear,
    /// Fast at first, towards a limit
    Exponential,
}
