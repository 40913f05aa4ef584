//! What is known of each image beside its pixels, as results of the image ([`crate::results`]): its angle, its place in
//! a raster, its pulse, its energy. So files, streams, HTTP, metrics, rules and alarms have it under one name.

use crate::experiment::Axis;
use crate::frame_header::{ColumnType, ColumnValue};
use crate::image::CommittedImage;
use crate::results::ResultKind;
use serde_json::Value;

/// Where one value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// A turning axis: its angle at the beginning of the exposure.
    Axis(Axis),
    /// Column of the image in a raster that is scanned row by row.
    RasterColumn(Raster),
    /// Row of the image in a raster.
    RasterRow(Raster),
    /// What the packets of an image say: that of its first tile with a packet, and the factor to the unit.
    Packet(ColumnValue, f64),
    /// What the sender says of an image: a JSON pointer (RFC 6901) into it, and the factor to the unit of the result.
    Header(String, f64),
}

/// A raster scan. Its images follow each other row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raster {
    /// Images of a row, at least 1.
    pub columns: u64,
    /// Every second row is scanned backwards.
    pub is_snake: bool,
}

impl Raster {
    /// Column and row of the image at this position of the run, from 0.
    pub fn place(&self, number: u64) -> [u64; 2] {
        let (row, step) = (number / self.columns, number % self.columns);
        let is_backwards = self.is_snake && row % 2 == 1;
        [if is_backwards { self.columns - 1 - step } else { step }, row]
    }
}

/// The values that each image of a run or series gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageMetadata {
    list: Vec<(ResultKind, Origin)>,
}

impl ImageMetadata {
    /// These values, in this order.
    pub fn new(list: Vec<(ResultKind, Origin)>) -> Self {
        Self { list }
    }

    /// The results that they are.
    pub fn kinds(&self) -> impl Iterator<Item = ResultKind> {
        self.list.iter().map(|(kind, _)| *kind)
    }

    /// The results of images that have `before` already, and then these.
    pub fn behind(&self, before: &[ResultKind]) -> Vec<ResultKind> {
        before.iter().copied().chain(self.kinds()).collect()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Writes the bits of all values of an image to the front of `bits`. A value that is not said is NaN, or 0 where
    /// the result is a whole number, and is counted in `missing`, which has a number for each value.
    ///
    /// # Panics
    /// If there are fewer `bits` or numbers than values.
    pub fn fill(&self, image: &CommittedImage, bits: &mut [u64], missing: &mut [u64]) {
        let is_said = self.list.iter().any(|(_, origin)| matches!(origin, Origin::Header(..)));
        let said: Value = if is_said { serde_json::from_slice(&image.header_json).unwrap_or_default() } else { Value::Null };
        for (n, (kind, origin)) in self.list.iter().enumerate() {
            let value = value(kind.number, origin, image, &said);
            missing[n] += u64::from(value.is_none());
            bits[n] = value.unwrap_or(if kind.number == ColumnType::F64 { f64::NAN.to_bits() } else { 0 });
        }
    }

    /// What to say of values that were missing, if any was.
    pub fn unsaid(&self, missing: &[u64]) -> Option<String> {
        let texts = self.list.iter().zip(missing).filter(|(_, images)| **images > 0).map(|((kind, origin), images)| {
            let images = crate::text::count(*images);
            match origin {
                Origin::Header(pointer, _) => {
                    format!("{images} images without {}: their sender says no number at {pointer}", kind.name)
                }
                _ => format!("{images} images without {}", kind.name),
            }
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// The bits of one value; `None` if it is not said.
fn value(number: ColumnType, origin: &Origin, image: &CommittedImage, said: &Value) -> Option<u64> {
    let bits = |value: f64| if number == ColumnType::F64 { value.to_bits() } else { value as u64 };
    match origin {
        Origin::Axis(axis) => Some(bits(axis.angle_deg(image.number as f64))),
        Origin::RasterColumn(raster) => Some(raster.place(image.number)[0]),
        Origin::RasterRow(raster) => Some(raster.place(image.number)[1]),
        Origin::Packet(column, factor) => {
            let value = image.packets.as_ref()?.header()?.value(*column);
            Some(if number == ColumnType::F64 { bits(value as f64 * factor) } else { value })
        }
        Origin::Header(pointer, factor) => match said.pointer(pointer)? {
            // Numbers of pulses may be longer than the precision of a double.
            Value::Number(whole) if number == ColumnType::U64 && *factor == 1.0 => whole.as_u64(),
            Value::Number(value) => value.as_f64().map(|value| bits(value * factor)),
            // JSON has no longer numbers than these; some senders write text.
            Value::String(text) if number == ColumnType::U64 => text.trim().parse().ok(),
            Value::String(text) => text.trim().parse::<f64>().ok().map(|value| bits(value * factor)),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_header::FrameHeader;
    use crate::image::{Packets, TileRecord};
    use crate::results::metadata::{ANGLE, ENERGY, PULSE, SAMPLE_X};

    #[test]
    fn every_second_row_of_a_snake_is_scanned_backwards() {
        let places = |is_snake| (0..7).map(|n| Raster { columns: 3, is_snake }.place(n)).collect::<Vec<_>>();
        assert_eq!(places(false), [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [0, 2]]);
        assert_eq!(places(true), [[0, 0], [1, 0], [2, 0], [2, 1], [1, 1], [0, 1], [0, 2]]);
        assert_eq!(Raster { columns: 1, is_snake: true }.place(5), [0, 5]);
    }

    #[test]
    fn values_come_from_where_they_are_said() {
        let header = |pointer: &str, factor| Origin::Header(pointer.to_owned(), factor);
        let metadata = ImageMetadata::new(vec![
            (ANGLE, Origin::Axis(Axis::turning(10.0, 0.5))),
            (ENERGY, header("/user/energy_ev", 1e-3)),
            (PULSE, header("/pulse", 1.0)),
            (SAMPLE_X, header("/x/0", 1.0)),
        ]);
        let image = |json: &'static str| CommittedImage { header_json: json.into(), ..CommittedImage::lost(4) };
        let mut bits = [7; 4];
        let json = r#"{"user": {"energy_ev": 12400}, "pulse": 18446744073709551615, "x": ["-2.5"]}"#;
        let mut missing = [0; 4];
        metadata.fill(&image(json), &mut bits, &mut missing);
        assert_eq!((missing, metadata.unsaid(&missing)), ([0; 4], None));
        assert_eq!((f64::from_bits(bits[0]), f64::from_bits(bits[1])), (12.0, 12.4));
        assert_eq!((bits[2], f64::from_bits(bits[3])), (u64::MAX, -2.5));
        for json in
            ["", "[]", "{\"pulse\": -3}", "{\"pulse\": {}, \"x\": [null]}", "no JSON", "{\"pulse\": \"p\", \"x\": [\"q\"]}"]
        {
            metadata.fill(&image(json), &mut bits, &mut missing);
            assert!(f64::from_bits(bits[1]).is_nan() && bits[2] == 0 && f64::from_bits(bits[3]).is_nan(), "{json}");
        }
        assert_eq!(missing, [0, 6, 6, 6]);
        let text = metadata.unsaid(&[0, 6, 0, 1]).unwrap();
        let wanted = "6 images without energy_kev: their sender says no number at /user/energy_ev; 1 images without sample_x_um";
        assert!(text.starts_with(wanted), "{text}");
    }

    #[test]
    fn packets_say_their_pulse() {
        let metadata = ImageMetadata::new(vec![(PULSE, Origin::Packet(ColumnValue::Field(0), 1.0))]);
        let mut header = FrameHeader::default();
        header.fields[0] = 77;
        let tiles = vec![TileRecord::default(), TileRecord { packets: 3, header, ..TileRecord::default() }];
        let image = CommittedImage { packets: Some(Packets { tiles, ..Packets::default() }), ..CommittedImage::lost(0) };
        let mut bits = [0];
        let mut missing = [0];
        metadata.fill(&image, &mut bits, &mut missing);
        assert_eq!((bits, missing), ([77], [0]));
        metadata.fill(&CommittedImage::lost(0), &mut bits, &mut missing);
        assert_eq!((bits, missing), ([0], [1]));
    }
}
