//! Repeated measurements of one figure: the median and how far they lie apart.

use serde_json::{Value, json};

/// Median, lowest and highest of repeated measurements, and how far they usually are from the median; not finite if
/// there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The lowest value.
    pub lowest: f64,
    /// The highest value.
    pub highest: f64,
    /// The median of the distances from the median (MAD).
    pub deviation: f64,
}

impl Spread {
    /// Of these values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Self { median: f64::NAN, lowest: f64::NAN, highest: f64::NAN, deviation: f64::NAN };
        }
        let middle = median(&mut values);
        let mut distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        Self { median: middle, lowest: values[0], highest: values[values.len() - 1], deviation: median(&mut distances) }
    }

    /// For programs.
    pub fn to_json(self) -> Value {
        json!({ "median": self.median, "lowest": self.lowest, "highest": self.highest, "mad": self.deviation })
    }

    /// For people: median (lowest .. highest), with so many digits after the point.
    pub fn to_text(self, digits: usize) -> String {
        if self.median.is_finite() {
            format!("{:.digits$} ({:.digits$} .. {:.digits$})", self.median, self.lowest, self.highest)
        } else {
            "-".into()
        }
    }

    /// For people: median ± median of the distances from it, with so many digits after the point.
    pub fn to_short_text(self, digits: usize) -> String {
        if self.median.is_finite() { format!("{:.digits$} ± {:.digits$}", self.median, self.deviation) } else { "-".into() }
    }
}

/// The middle one of the values, which are sorted by this; of an even number the upper one.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_between_the_lowest_and_the_highest() {
        let spread = Spread::of([3.0, 1.0, 10.0, 2.0, 4.0]);
        assert_eq!((spread.median, spread.lowest, spread.highest), (3.0, 1.0, 10.0));
        assert_eq!(spread.to_text(1), "3.0 (1.0 .. 10.0)");
        // Distances 0, 2, 7, 1, 1.
        assert_eq!((spread.deviation, spread.to_short_text(1).as_str()), (1.0, "3.0 ± 1.0"));
        assert_eq!(spread.to_json(), json!({ "median": 3.0, "lowest": 1.0, "highest": 10.0, "mad": 1.0 }));
        let none = Spread::of([]);
        assert_eq!((none.to_text(1).as_str(), none.to_json()["median"].is_null()), ("-", true));
    }
}
