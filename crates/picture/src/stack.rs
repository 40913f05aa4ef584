//! Sums and maxima of several images, pixel by pixel, as frames.

use crate::frame::{Coding, Frame, Region, pooled_frame, squares};
use crate::image::Pixels;
use konkordia_core::array::{Element, PackedBits};

/// How images are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackBy {
    /// Their sum: a pixel has a number if it has one in all of them.
    Sum,
    /// The largest number of each pixel.
    Maximum,
}

/// Images of one size put together: whole numbers as `int64`, floats as `float64`.
pub struct Stack {
    by: StackBy,
    size: [usize; 2],
    region: Region,
    bin: usize,
    coding: Coding,
    /// Little-endian, row by row, of the region; empty before the first image.
    numbers: Vec<u8>,
    images: usize,
}

const BYTES: usize = 8;
const MASKED: i64 = i64::MIN;
const VALID_MIN: i64 = i64::MIN + 3;
const SATURATED: i64 = i64::MAX;
/// Numbers of 64 bits are limited to this, so that no sum of images overflows.
const NUMBER_MAX: i64 = 1 << 55;

impl Stack {
    /// For images of this size (rows, columns), of which a frame of `region` with at most `values_max` values is made.
    pub fn new(by: StackBy, size: [usize; 2], region: Region, values_max: usize) -> Self {
        let (region, bin) = squares(region, size, values_max);
        Self { by, size, region, bin, coding: Coding::Count, numbers: Vec::new(), images: 0 }
    }

    /// Bytes of memory for images of this size.
    pub const fn bytes(pixels: u64) -> u64 {
        pixels.saturating_mul(BYTES as u64)
    }

    /// Images that it has.
    pub const fn images(&self) -> usize {
        self.images
    }

    /// Adds an image; false if it does not fit those before it.
    pub fn add(&mut self, pixels: Pixels<'_>) -> bool {
        let coding = match pixels.element {
            Element::Float32 | Element::Float64 => Coding::Float,
            _ => Coding::Count,
        };
        let element_bytes = pixels.element.bits() as usize / 8;
        let rows = pixels.bytes.len() / (pixels.columns * element_bytes).max(1);
        if [rows, pixels.columns] != self.size || (self.images > 0 && coding != self.coding) {
            return false;
        }
        self.coding = coding;
        match pixels.element {
            Element::Uint8 | Element::Packed(PackedBits::Four) => {
                self.add_of(pixels, |bytes| i64::from(u8::from_le_bytes(bytes)))
            }
            Element::Int8 => self.add_of(pixels, |bytes| i64::from(i8::from_le_bytes(bytes))),
            Element::Uint16 | Element::Packed(_) => {
                self.add_of(pixels, |bytes| from_unsigned(u16::from_le_bytes(bytes).into(), 16))
            }
            Element::Int16 => self.add_of(pixels, |bytes| from_signed(i16::from_le_bytes(bytes).into(), i16::MIN.into())),
            Element::Uint32 => self.add_of(pixels, |bytes| from_unsigned(u32::from_le_bytes(bytes).into(), 32)),
            Element::Int32 => self.add_of(pixels, |bytes| from_signed(i32::from_le_bytes(bytes).into(), i32::MIN.into())),
            Element::Uint64 => self.add_of(pixels, |bytes| from_unsigned(u64::from_le_bytes(bytes), 64)),
            Element::Int64 => self.add_of(pixels, |bytes| from_signed(i64::from_le_bytes(bytes), i64::MIN)),
            Element::Float32 => self.add_floats(pixels, |bytes| {
                let value = f32::from_le_bytes(bytes);
                if value == f32::MIN { f64::MIN } else { value.into() }
            }),
            Element::Float64 => self.add_floats(pixels, f64::from_le_bytes),
        }
        self.images += 1;
        true
    }

    fn add_of<const N: usize>(&mut self, pixels: Pixels<'_>, wide: impl Fn([u8; N]) -> i64) {
        match self.by {
            StackBy::Sum => self.each(pixels, wide, i64::from_le_bytes, sum_of, i64::to_le_bytes),
            StackBy::Maximum => self.each(pixels, wide, i64::from_le_bytes, i64::max, i64::to_le_bytes),
        }
    }

    fn add_floats<const N: usize>(&mut self, pixels: Pixels<'_>, wide: impl Fn([u8; N]) -> f64) {
        match self.by {
            StackBy::Sum => self.each(pixels, wide, f64::from_le_bytes, sum_of_floats, f64::to_le_bytes),
            StackBy::Maximum => self.each(pixels, wide, f64::from_le_bytes, larger_float, f64::to_le_bytes),
        }
    }

    /// Puts each pixel of the region together with what is there.
    fn each<const N: usize, T>(
        &mut self,
        pixels: Pixels<'_>,
        wide: impl Fn([u8; N]) -> T,
        read: impl Fn([u8; BYTES]) -> T,
        both: impl Fn(T, T) -> T,
        write: impl Fn(T) -> [u8; BYTES],
    ) {
        let Region { column, row, columns, rows } = self.region;
        let is_first = self.images == 0;
        self.numbers.resize(rows * columns * BYTES, 0);
        for (n, numbers) in self.numbers.chunks_exact_mut((columns * BYTES).max(1)).enumerate() {
            let at = ((row + n) * pixels.columns + column) * N;
            let (values, _) = pixels.bytes[at..][..columns * N].as_chunks::<N>();
            let (numbers, _) = numbers.as_chunks_mut::<BYTES>();
            if is_first {
                numbers.iter_mut().zip(values).for_each(|(number, value)| *number = write(wide(*value)));
            } else {
                numbers.iter_mut().zip(values).for_each(|(number, value)| *number = write(both(read(*number), wide(*value))));
            }
        }
    }

    /// Type of its numbers.
    pub const fn element(&self) -> Element {
        match self.coding {
            Coding::Count => Element::Int64,
            Coding::Float => Element::Float64,
        }
    }

    /// What it has, pixel by pixel.
    pub fn pixels(&self) -> Pixels<'_> {
        Pixels { element: self.element(), columns: self.region.columns, bytes: &self.numbers }
    }

    /// The frame of what it has.
    pub fn frame(&self) -> Frame {
        pooled_frame(self.pixels(), Region { column: 0, row: 0, ..self.region }, self.region, self.bin)
    }
}

/// The special values of signed types are the three lowest numbers and the highest.
fn from_signed(value: i64, lowest: i64) -> i64 {
    let number = value.clamp(-NUMBER_MAX, NUMBER_MAX);
    let special = if value < lowest + 3 { value - lowest + MASKED } else { number };
    if value == !lowest { SATURATED } else { special }
}

/// Those of unsigned types are the four highest: saturated, invalid, masked, missing.
fn from_unsigned(value: u64, bits: u32) -> i64 {
    let highest = u64::MAX >> (64 - bits);
    let number = i64::try_from(value).unwrap_or(i64::MAX).min(NUMBER_MAX);
    match highest - value {
        0 => MASKED + 2,
        1 => MASKED,
        2 => MASKED + 1,
        3 => SATURATED,
        _ => number,
    }
}

/// Saturated if one is; else without a number if one has none, and the reason that is higher in the order of frames.
fn sum_of(a: i64, b: i64) -> i64 {
    let (low, high) = (a.min(b), a.max(b));
    let sum = a.wrapping_add(b);
    let counted = if low < VALID_MIN { if high < VALID_MIN { high } else { low } } else { sum };
    if high == SATURATED { SATURATED } else { counted }
}

/// As whole numbers, in the order masked, invalid, missing, number, saturated.
fn rank(value: f64) -> u8 {
    match value {
        _ if value.is_nan() => 0,
        f64::MIN => 1,
        f64::NEG_INFINITY => 2,
        f64::INFINITY => 4,
        _ => 3,
    }
}

fn sum_of_floats(a: f64, b: f64) -> f64 {
    match (rank(a), rank(b)) {
        (3, 3) => (a + b).clamp(f64::MIN / 2.0, f64::MAX),
        (4, _) | (_, 4) => f64::INFINITY,
        (3, _) => b,
        (_, 3) => a,
        (first, second) => {
            if first >= second {
                a
            } else {
                b
            }
        }
    }
}

fn larger_float(a: f64, b: f64) -> f64 {
    match rank(a).cmp(&rank(b)) {
        std::cmp::Ordering::Less => b,
        std::cmp::Ordering::Greater => a,
        std::cmp::Ordering::Equal => {
            if rank(a) == 3 {
                a.max(b)
            } else {
                a
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Format, frame};

    const ALL: Region = Region { column: 0, row: 0, columns: usize::MAX, rows: usize::MAX };

    fn bytes<T: Copy, const N: usize>(values: &[T], write: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|value| write(*value)).collect()
    }

    fn stacked(by: StackBy, element: Element, images: &[Vec<u8>], columns: usize) -> Frame {
        let rows = images[0].len() / columns / (element.bits() as usize / 8);
        let mut stack = Stack::new(by, [rows, columns], ALL, 1 << 20);
        for bytes in images {
            assert!(stack.add(Pixels { element, columns, bytes }));
        }
        assert_eq!(stack.images(), images.len());
        stack.frame()
    }

    #[test]
    fn a_stack_of_one_image_is_the_image() {
        let values: Vec<i32> = (0..35).map(|n| n * n - 40).chain([i32::MIN, i32::MIN + 1, i32::MIN + 2, i32::MAX, 7]).collect();
        let of_image = bytes(&values, i32::to_le_bytes);
        let plain = frame(Pixels { element: Element::Int32, columns: 8, bytes: &of_image }, ALL, 1 << 20);
        for by in [StackBy::Sum, StackBy::Maximum] {
            assert_eq!(stacked(by, Element::Int32, std::slice::from_ref(&of_image), 8), plain);
        }
        let unsigned: Vec<u16> = values.iter().map(|value| *value as u16).chain([65535, 65534, 65533, 65532]).collect();
        let of_image = bytes(&unsigned, u16::to_le_bytes);
        let plain = frame(Pixels { element: Element::Uint16, columns: 4, bytes: &of_image }, ALL, 1 << 20);
        assert_eq!(stacked(StackBy::Sum, Element::Uint16, std::slice::from_ref(&of_image), 4), plain);
    }

    #[test]
    fn sums_and_maxima_are_of_numbers_and_say_where_one_is_missing() {
        let (masked, missing, saturated) = (i16::MIN, i16::MIN + 2, i16::MAX);
        let images = [
            bytes(&[1i16, 30000, masked, masked, missing, saturated, -5], i16::to_le_bytes),
            bytes(&[2i16, 30000, masked, 4, 7, masked, -6], i16::to_le_bytes),
        ];
        let numbers = |frame: &Frame| -> Vec<i32> {
            match frame.format {
                Format::Int32 => frame.bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect(),
                _ => panic!("{frame:?}"),
            }
        };
        let (masked, missing, saturated) = (i32::MIN, i32::MIN + 2, i32::MAX);
        let sum = stacked(StackBy::Sum, Element::Int16, &images, 7);
        assert_eq!(numbers(&sum), [3, 60000, masked, masked, missing, saturated, -11]);
        let maximum = stacked(StackBy::Maximum, Element::Int16, &images, 7);
        assert_eq!(numbers(&maximum), [2, 30000, masked, 4, 7, saturated, -5]);
    }

    #[test]
    fn floats_stay_floats() {
        let one = bytes(&[1.5f32, f32::NAN, f32::NEG_INFINITY, f32::MIN, f32::INFINITY], f32::to_le_bytes);
        let two = bytes(&[2.25f32, 3.0, f32::NAN, 1.0, 2.0], f32::to_le_bytes);
        let values = |frame: Frame| -> Vec<f32> {
            assert_eq!(frame.format, Format::Float32);
            frame.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        };
        let sum = values(stacked(StackBy::Sum, Element::Float32, &[one.clone(), two.clone()], 5));
        assert_eq!((sum[0], sum[1].is_nan(), &sum[2..]), (3.75, true, &[f32::NEG_INFINITY, f32::MIN, f32::INFINITY][..]));
        let maximum = values(stacked(StackBy::Maximum, Element::Float32, &[one, two], 5));
        assert_eq!(maximum, [2.25, 3.0, f32::NEG_INFINITY, 1.0, f32::INFINITY]);
    }

    #[test]
    fn the_largest_of_a_sum_is_not_the_sum_of_the_largest() {
        let images = [bytes(&[9u32, 0, 0, 0], u32::to_le_bytes), bytes(&[0u32, 9, 0, 0], u32::to_le_bytes)];
        let mut stack = Stack::new(StackBy::Sum, [2, 2], ALL, 1);
        assert!(images.iter().all(|bytes| stack.add(Pixels { element: Element::Uint32, columns: 2, bytes })));
        let pooled = stack.frame();
        let codes: Vec<u16> = pooled.bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
        assert_eq!((pooled.bin, codes), (2, vec![9 + 4112]));
        let wide = [bytes(&[9u32; 9], u32::to_le_bytes), bytes(&[1u32, 2, 3, 4, 5, 6, 7, 8, 9], u32::to_le_bytes)];
        let mut stack = Stack::new(StackBy::Sum, [3, 3], ALL, 4);
        assert!(wide.iter().all(|bytes| stack.add(Pixels { element: Element::Uint32, columns: 3, bytes })));
        let pooled = stack.frame();
        let codes: Vec<u16> = pooled.bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
        assert_eq!((pooled.bin, codes), (2, [14, 15, 17, 18].map(|sum| sum + 4112).to_vec()));
    }

    #[test]
    fn other_sizes_and_kinds_do_not_fit() {
        let mut stack = Stack::new(StackBy::Sum, [1, 4], ALL, 100);
        assert!(!stack.add(Pixels { element: Element::Uint8, columns: 3, bytes: &[0; 12] }));
        assert!(stack.add(Pixels { element: Element::Uint8, columns: 4, bytes: &[255; 4] }));
        assert!(!stack.add(Pixels { element: Element::Float32, columns: 4, bytes: &[0; 16] }));
        assert!(stack.add(Pixels { element: Element::Uint8, columns: 4, bytes: &[255; 4] }));
        let codes: Vec<u16> = stack.frame().bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
        assert_eq!(codes, [510 + 4112; 4]);
    }
}
