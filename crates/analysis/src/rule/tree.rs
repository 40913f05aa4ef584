//! A checked rule, ready to be computed.

use konkordia_core::frame_header::ColumnType;

/// The bits of all results of an image.
#[derive(Clone, Copy)]
pub(super) struct Results<'a>(pub &'a [u64]);

/// Numbers of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Where they begin.
    pub at: usize,
    pub length: usize,
    pub number: ColumnType,
    /// Where it stands how many of them are used.
    pub counted_at: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Flag {
    Constant(bool),
    Not(Box<Flag>),
    And(Box<[Flag; 2]>),
    Or(Box<[Flag; 2]>),
    Same(Box<[Flag; 2]>),
    Compare(Compare, Box<[Number; 2]>),
    If(Box<[Flag; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Constant(f64),
    Single(Place),
    Entry(Place, Box<Number>),
    OfList(OfList, Place),
    Negative(Box<Number>),
    Absolute(Box<Number>),
    Calculate(Calculate, Box<[Number; 2]>),
    If(Box<(Flag, Number, Number)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfList {
    Size,
    Sum,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calculate {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Place {
    fn value(&self, results: Results<'_>, entry: usize) -> f64 {
        self.number.number(results.0[self.at + entry]).to_f64()
    }

    fn used(&self, results: Results<'_>) -> usize {
        let counted = self.counted_at.map_or(self.length as u64, |at| results.0[at]);
        usize::try_from(counted).map_or(self.length, |count| count.min(self.length))
    }

    fn values(&self, results: Results<'_>) -> impl Iterator<Item = f64> {
        (0..self.used(results)).map(move |entry| self.value(results, entry))
    }
}

impl Flag {
    pub fn of(&self, results: Results<'_>) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::Not(flag) => !flag.of(results),
            Self::And(flags) => flags[0].of(results) && flags[1].of(results),
            Self::Or(flags) => flags[0].of(results) || flags[1].of(results),
            Self::Same(flags) => flags[0].of(results) == flags[1].of(results),
            Self::Compare(compare, sides) => compare.of(sides[0].of(results), sides[1].of(results)),
            Self::If(flags) => flags[if flags[0].of(results) { 1 } else { 2 }].of(results),
        }
    }
}

impl Compare {
    fn of(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterEqual => left >= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

impl Number {
    pub fn of(&self, results: Results<'_>) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Single(place) => place.value(results, 0),
            Self::Entry(place, index) => {
                let index = index.of(results);
                let is_there = index >= 0.0 && index < place.used(results) as f64 && index.fract() == 0.0;
                if is_there { place.value(results, index as usize) } else { f64::NAN }
            }
            Self::OfList(what, place) => what.of(place, results),
            Self::Negative(number) => -number.of(results),
            Self::Absolute(number) => number.of(results).abs(),
            Self::Calculate(calculate, sides) => calculate.of(sides[0].of(results), sides[1].of(results)),
            Self::If(parts) => if parts.0.of(results) { &parts.1 } else { &parts.2 }.of(results),
        }
    }
}

impl OfList {
    fn of(self, place: &Place, results: Results<'_>) -> f64 {
        let values = place.values(results);
        match self {
            Self::Size => place.used(results) as f64,
            Self::Sum => values.sum(),
            // NaN for an empty list; entries that are NaN do not count.
            Self::Min => values.fold(f64::NAN, f64::min),
            Self::Max => values.fold(f64::NAN, f64::max),
        }
    }
}

impl Calculate {
    fn of(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Remainder => left % right,
        }
    }
}
