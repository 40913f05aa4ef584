//! Statistics that show whether an image is plausible.

use konkordia_core::pixel::PixelType;
use serde_json::{Value, json};

/// Statistics of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Pixels with a measurement.
    pub valid: u64,
    /// Lowest of these.
    pub min: f64,
    /// Highest of these.
    pub max: f64,
    /// Their sum.
    pub sum: f64,
    /// Pixels whose packet was not received.
    pub missing: u64,
    /// Pixels without usable calibration, or in a gap.
    pub masked: u64,
    /// Pixels with an illegal word.
    pub invalid: u64,
    /// Pixels above the range.
    pub saturated: u64,
}

/// The values of an image, little endian, as `f64` (exact for all types but the 64-bit integers, which are rounded).
pub fn values(bytes: &[u8], pixel: PixelType) -> impl Iterator<Item = f64> + '_ {
    bytes.chunks_exact(pixel.bytes()).map(move |b| match pixel {
        PixelType::Int16 => f64::from(i16::from_le_bytes([b[0], b[1]])),
        PixelType::Uint16 => f64::from(u16::from_le_bytes([b[0], b[1]])),
        PixelType::Int32 => f64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        PixelType::Uint32 => f64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        PixelType::Float32 => f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        PixelType::Int8 => f64::from(b[0] as i8),
        PixelType::Uint8 => f64::from(b[0]),
        PixelType::Int64 => i64::from_le_bytes(std::array::from_fn(|k| b[k])) as f64,
        PixelType::Uint64 => u64::from_le_bytes(std::array::from_fn(|k| b[k])) as f64,
        PixelType::Float64 => f64::from_le_bytes(std::array::from_fn(|k| b[k])),
    })
}

impl Statistics {
    /// With `raw_words` the only special value is *missing*.
    pub fn of(bytes: &[u8], pixel: PixelType, raw_words: bool) -> Self {
        let special = pixel.special();
        let mut s = Self { min: f64::INFINITY, max: f64::NEG_INFINITY, ..Self::default() };
        for value in values(bytes, pixel) {
            if raw_words && value == f64::from(u16::MAX) || !raw_words && value == special.missing {
                s.missing += 1;
            } else if raw_words || (special.valid_min..=special.valid_max).contains(&value) && value.is_finite() {
                s.valid += 1;
                s.sum += value;
                (s.min, s.max) = (s.min.min(value), s.max.max(value));
            } else if value == special.saturated {
                s.saturated += 1;
            } else if value == special.invalid {
                s.invalid += 1;
            } else {
                s.masked += 1;
            }
        }
        s
    }

    /// Statistics if only the lowest and the highest valid value are known: values below count as *masked*, values
    /// above as *saturated*.
    pub fn within(bytes: &[u8], pixel: PixelType, (lowest, highest): (f64, f64)) -> Self {
        let mut s = Self { min: f64::INFINITY, max: f64::NEG_INFINITY, ..Self::default() };
        for value in values(bytes, pixel) {
            if (lowest..=highest).contains(&value) {
                s.valid += 1;
                s.sum += value;
                (s.min, s.max) = (s.min.min(value), s.max.max(value));
            } else if value > highest {
                s.saturated += 1;
            } else {
                s.masked += 1;
            }
        }
        s
    }

    /// Mean of the valid pixels, if there are any.
    pub fn mean(&self) -> Option<f64> {
        (self.valid > 0).then(|| self.sum / self.valid as f64)
    }

    /// For programs.
    pub fn to_json(self) -> Value {
        let some = |v: f64| (self.valid > 0).then_some(v);
        json!({
            "min": some(self.min), "max": some(self.max), "mean": self.mean(), "sum": some(self.sum), "valid": self.valid,
            "missing": self.missing, "masked": self.masked, "invalid": self.invalid, "saturated": self.saturated,
        })
    }

    /// For people.
    pub fn to_text(self) -> String {
        let numbers = match self.mean() {
            Some(mean) => format!("min {}, max {}, mean {mean:.4}, sum {}", self.min, self.max, self.sum),
            None => "no valid pixel".into(),
        };
        format!(
            "{numbers}\n             {} valid, {} missing, {} masked, {} invalid, {} saturated",
            self.valid, self.missing, self.masked, self.invalid, self.saturated
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values_are_no_measurements() {
        let image: Vec<u8> =
            [3i16, -2, i16::MIN, i16::MIN + 1, i16::MIN + 2, i16::MAX].iter().flat_map(|v| v.to_le_bytes()).collect();
        let s = Statistics::of(&image, PixelType::Int16, false);
        assert_eq!((s.valid, s.min, s.max, s.sum, s.mean()), (2, -2.0, 3.0, 1.0, Some(0.5)));
        assert_eq!((s.masked, s.invalid, s.missing, s.saturated), (1, 1, 1, 1));
        let image: Vec<u8> =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN, 1.5].iter().flat_map(|v| v.to_le_bytes()).collect();
        let s = Statistics::of(&image, PixelType::Float32, false);
        assert_eq!((s.valid, s.masked, s.saturated, s.missing, s.invalid, s.sum), (1, 1, 1, 1, 1, 1.5));
    }

    #[test]
    fn of_other_programs_counts_what_their_range_says() {
        let image: Vec<u8> = [0u16, 7, 100, 101, u16::MAX].iter().flat_map(|v| v.to_le_bytes()).collect();
        let s = Statistics::within(&image, PixelType::Uint16, (0.0, 100.0));
        assert_eq!((s.valid, s.saturated, s.masked, s.min, s.max, s.sum), (3, 2, 0, 0.0, 100.0, 107.0));
        let image: Vec<u8> = [-2i32, -1, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
        let s = Statistics::within(&image, PixelType::Int32, (0.0, f64::INFINITY));
        assert_eq!((s.valid, s.masked), (1, 2));
    }

    #[test]
    fn raw_words_have_only_missing() {
        let image: Vec<u8> = [0xFFFFu16, 0xFFFE, 0xC000, 5].iter().flat_map(|v| v.to_le_bytes()).collect();
        let s = Statistics::of(&image, PixelType::Uint16, true);
        assert_eq!((s.valid, s.missing, s.max), (3, 1, 65534.0));
        assert_eq!(Statistics::of(&[], PixelType::Int16, false).mean(), None);
    }
}
