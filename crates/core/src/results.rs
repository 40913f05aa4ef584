//! Results of an image: named numbers and small arrays that are computed where its pixels are in memory anyway. They
//! travel with the image into the file, to consumers, to HTTP and to metrics.
//!
//! A [`ResultKind`] says what one result is. The kinds of a run are fixed at arm, so every image has the same ones, and
//! their memory is known. To add a result, add its kind here and fill it where the pixels are; everybody behind takes
//! what is listed.

use crate::frame_header::ColumnType;
use crate::pixel::{Number, PixelType};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What one result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultKind {
    /// Name of the column, of the key and of the metric: letters, digits and underscores.
    pub name: &'static str,
    /// Type of its numbers, one of those of 8 bytes.
    pub number: ColumnType,
    /// Numbers per image; 1 for a single one.
    pub length: usize,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// What it means, in one line.
    pub meaning: &'static str,
}

/// Most numbers that the results of one image may have together.
pub const RESULT_NUMBERS_MAX: usize = 4096;

/// Numbers per image of [`pixel_results`].
pub const PIXEL_RESULTS: usize = 6;

const fn count(name: &'static str, meaning: &'static str) -> ResultKind {
    ResultKind { name, number: ColumnType::U64, length: 1, unit: "pixel", meaning }
}

const fn value(name: &'static str, number: ColumnType, meaning: &'static str) -> ResultKind {
    ResultKind { name, number, length: 1, unit: "pixel value", meaning }
}

const fn of_pixels(number: ColumnType) -> [ResultKind; PIXEL_RESULTS] {
    [
        count("valid_pixels", "pixels that hold a measurement"),
        count("missing_pixels", "pixels whose packet did not arrive"),
        count("saturated_pixels", "pixels above the range"),
        value("min_value", number, "lowest valid value; 0 if no pixel is valid"),
        value("max_value", number, "highest valid value; 0 if no pixel is valid"),
        value("sum_value", number, "sum of the valid values"),
    ]
}

static OF_INTEGERS: [ResultKind; PIXEL_RESULTS] = of_pixels(ColumnType::I64);
static OF_FLOATS: [ResultKind; PIXEL_RESULTS] = of_pixels(ColumnType::F64);

/// What is said of the pixels of every image that workers convert: in this order the number of valid, missing and
/// saturated pixels, and the lowest, the highest and the sum of the valid values.
pub fn pixel_results(pixel: PixelType) -> &'static [ResultKind; PIXEL_RESULTS] {
    if pixel.is_float() { &OF_FLOATS } else { &OF_INTEGERS }
}

/// What a column of this name means; `None` if no result has this name.
pub fn meaning(name: &str) -> Option<&'static str> {
    OF_INTEGERS.iter().find(|kind| kind.name == name).map(|kind| kind.meaning)
}

/// The results of one image. Takes no memory in an image that never has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageResults(Option<Box<Numbers>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers {
    kinds: Arc<[&'static ResultKind]>,
    /// The bits of all numbers, kind after kind; zeros while there are none.
    bits: Box<[u64]>,
    is_there: bool,
}

impl ImageResults {
    /// Results of these kinds, none of them there yet.
    pub fn new(kinds: Arc<[&'static ResultKind]>) -> Self {
        let numbers: usize = kinds.iter().map(|kind| kind.length).sum();
        Self((numbers > 0).then(|| Box::new(Numbers { kinds, bits: vec![0; numbers].into(), is_there: false })))
    }

    /// The image has no results, for example because it has no pixels.
    pub fn clear(&mut self) {
        if let Some(numbers) = &mut self.0 {
            numbers.bits.fill(0);
            numbers.is_there = false;
        }
    }

    /// The bits of all numbers, kind after kind, to be written.
    pub fn fill(&mut self) -> &mut [u64] {
        let Some(numbers) = &mut self.0 else { return &mut [] };
        numbers.is_there = true;
        &mut numbers.bits
    }

    /// The bits of all numbers, kind after kind; zeros if there are no results.
    pub fn bits(&self) -> &[u64] {
        self.0.as_ref().map_or(&[], |numbers| &numbers.bits)
    }

    /// Each kind with the bits of its numbers; nothing if there are no results.
    pub fn iter(&self) -> impl Iterator<Item = (&'static ResultKind, &[u64])> {
        let mut rest = self.bits();
        let kinds = self.0.iter().filter(|numbers| numbers.is_there).flat_map(|numbers| numbers.kinds.iter());
        kinds.map(move |kind| {
            let (own, after) = rest.split_at(kind.length);
            rest = after;
            (*kind, own)
        })
    }

    /// The results as a JSON object: a number, or a list if a result is an array. A number that JSON cannot express
    /// (NaN, infinity) is null.
    pub fn to_json(&self) -> Map<String, Value> {
        let number = |kind: &ResultKind, bits: u64| match kind.number.number(bits) {
            Number::Signed(value) => value.into(),
            Number::Unsigned(value) => value.into(),
            Number::Float(value) => value.into(),
        };
        let value = |(kind, bits): (&ResultKind, &[u64])| match bits {
            [one] if kind.length == 1 => number(kind, *one),
            all => all.iter().map(|bits| number(kind, *bits)).collect(),
        };
        self.iter().map(|result| (result.0.name.to_owned(), value(result))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    static SPOTS: ResultKind = ResultKind { name: "spots", number: ColumnType::F64, length: 3, unit: "", meaning: "" };

    #[test]
    fn results_are_there_only_after_they_were_filled_in() {
        let kinds: Vec<_> = pixel_results(PixelType::Int16).iter().chain([&SPOTS]).collect();
        let mut results = ImageResults::new(kinds.into());
        assert_eq!((results.bits(), results.iter().count()), (&[0; 9][..], 0));
        let numbers = [7, 1, 2, (-3i64).cast_unsigned(), 9, 40].into_iter();
        let spots = [0.5, f64::NAN, -1.0].map(f64::to_bits);
        results.fill().iter_mut().zip(numbers.chain(spots)).for_each(|(bits, number)| *bits = number);
        let expected = json!({"valid_pixels": 7, "missing_pixels": 1, "saturated_pixels": 2, "min_value": -3,
            "max_value": 9, "sum_value": 40, "spots": [0.5, null, -1.0]});
        assert_eq!(Value::from(results.to_json()), expected);
        results.clear();
        assert_eq!((results.bits(), results.to_json().len()), (&[0; 9][..], 0));
    }

    #[test]
    fn names_are_names_of_columns_and_differ() {
        for kinds in [pixel_results(PixelType::Uint32), pixel_results(PixelType::Float32)] {
            for (n, kind) in kinds.iter().enumerate() {
                assert!(kind.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{}", kind.name);
                assert!(kinds[..n].iter().all(|other| other.name != kind.name));
                assert_eq!(meaning(kind.name), Some(kind.meaning));
                assert_eq!((ColumnType::from_name(kind.number.name()), kind.number.bytes()), (Some(kind.number), 8));
            }
        }
    }
}
