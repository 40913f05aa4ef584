//! Transformations of single pixels: lookup, subtraction of a background, masks, conversion, the unpacking of 12 bits.

use super::dispatch::isa_paths;
use super::pixel_loops::{convert_row, subtract_plane};
use super::place::Window;
use super::sample::{self, MASKED, NUMBER, Overflow, Sample, for_element, read, write};
use crate::isa::Isa;
use konkordia_core::array::Element;

/// What each value of a `uint8` or `uint16` image becomes, for example time over threshold to energy.
///
/// Entries take precedence: a special value of the input that has an entry becomes the entry. Of the values beyond the
/// table, a special one becomes that of the output, and a number becomes *saturated*.
pub struct Table {
    input: Element,
    entries: Entries,
    given: usize,
}

/// Entries of a [`Table`], for the values from 0 on.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Entries {
    Uint16(Vec<u16>),
    Uint32(Vec<u32>),
    Float32(Vec<f32>),
}

impl Table {
    /// For images of type `input`.
    ///
    /// # Errors
    /// Says why there is no such table, as a text for users.
    pub fn new(input: Element, entries: Entries) -> Result<Self, String> {
        fn filled<T: Sample>(input: Element, mut entries: Vec<T>) -> Result<(usize, Vec<T>), String> {
            let values = match input {
                Element::Uint8 => 1 << 8,
                Element::Uint16 => 1 << 16,
                other => return Err(format!("a lookup table is for images of uint8 or uint16, not {}", other.name())),
            };
            let given = entries.len();
            if !(1..=values).contains(&given) {
                return Err(format!("the lookup table has {given} entries; for {} it needs 1 to {values}", input.name()));
            }
            entries.extend((given..values).map(|value| {
                let kind = if input == Element::Uint8 { (value as u8).kind() } else { (value as u16).kind() };
                T::special(if kind == NUMBER { sample::SATURATED } else { kind })
            }));
            Ok((given, entries))
        }
        let (given, entries) = match entries {
            Entries::Uint16(list) => filled(input, list).map(|(given, list)| (given, Entries::Uint16(list)))?,
            Entries::Uint32(list) => filled(input, list).map(|(given, list)| (given, Entries::Uint32(list)))?,
            Entries::Float32(list) => filled(input, list).map(|(given, list)| (given, Entries::Float32(list)))?,
        };
        Ok(Self { input, entries, given })
    }

    /// Type of the images that it takes.
    pub fn input(&self) -> Element {
        self.input
    }

    /// Type of the images that it gives.
    pub fn output(&self) -> Element {
        match self.entries {
            Entries::Uint16(_) => Element::Uint16,
            Entries::Uint32(_) => Element::Uint32,
            Entries::Float32(_) => Element::Float32,
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({} to {}, {} entries)", self.input.name(), self.output().name(), self.given)
    }
}

/// Replaces each pixel by its entry.
///
/// # Panics
/// If the input and the output do not have the same number of pixels.
pub fn lookup(table: &Table, image: &[u8], out: &mut [u8]) {
    fn through<T: Sample>(input: Element, entries: &[T], image: &[u8], out: &mut [u8]) {
        assert_eq!(image.len() * 8 / input.bits() as usize, out.len() / size_of::<T>(), "one pixel for each");
        if input == Element::Uint8 {
            let entries: &[T; 1 << 8] = entries.try_into().expect("a table of uint8 has 256 entries");
            write(out, image.iter().map(|value| entries[usize::from(*value)]));
        } else {
            let entries: &[T; 1 << 16] = entries.try_into().expect("a table of uint16 has 65536 entries");
            write(out, read::<u16>(image).map(|value| entries[usize::from(value)]));
        }
    }
    match &table.entries {
        Entries::Uint16(entries) => through(table.input, entries, image, out),
        Entries::Uint32(entries) => through(table.input, entries, image, out),
        Entries::Float32(entries) => through(table.input, entries, image, out),
    }
}

/// What each value of each pixel becomes, for detectors whose pixels differ (time over threshold to energy).
#[derive(Clone, PartialEq)]
pub struct PixelTable {
    pixels: usize,
    values: usize,
    /// Pixel by pixel, for the values from 0 on.
    entries: Vec<f32>,
}

impl PixelTable {
    /// What a value below 0 becomes: it is no measurement.
    pub const BELOW: f32 = -1.0;
    /// What a value above all entries becomes.
    pub const ABOVE: f32 = -2.0;

    /// From a table \[pixels, values\], for the values from 0 on.
    ///
    /// # Errors
    /// Says why there is no such table, as a text for users.
    pub fn new(pixels: usize, values: usize, entries: Vec<f32>) -> Result<Self, String> {
        let has = entries.len();
        if pixels == 0 || values == 0 || pixels.checked_mul(values) != Some(has) {
            return Err(format!("a lookup table of {has} entries does not fit {pixels} pixels of {values} values"));
        }
        Ok(Self { pixels, values, entries })
    }

    /// Pixels of the plane.
    pub fn pixels(&self) -> usize {
        self.pixels
    }

    /// True for the types that have such tables: integers.
    pub const fn takes(element: Element) -> bool {
        !matches!(element, Element::Float32 | Element::Float64 | Element::Packed(_))
    }
}

impl std::fmt::Debug for PixelTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PixelTable({} pixels, {} values)", self.pixels, self.values)
    }
}

/// Replaces each pixel by the entry of its value in its own table, or by [`PixelTable::BELOW`] or
/// [`PixelTable::ABOVE`]. The result is `float32`.
///
/// # Panics
/// If the lengths do not fit, or [`PixelTable::takes`] is false for the type.
pub fn lookup_per_pixel(element: Element, table: &PixelTable, image: &[u8], out: &mut [u8]) {
    assert!(PixelTable::takes(element), "{} is no index of a table", element.name());
    fn typed<T: Sample>(table: &PixelTable, image: &[u8], out: &mut [u8]) {
        assert_eq!(image.len() / size_of::<T>(), table.pixels, "one table for each pixel");
        assert_eq!(out.len(), table.pixels * 4, "one result for each pixel");
        let entries = table.entries.chunks_exact(table.values);
        // `f64` holds every index of a table exactly. Any other value is below 0 or above all entries.
        let one = |(pixel, own): (T, &[f32])| match pixel.to_f64() {
            value if value >= 0.0 => own.get(value as usize).copied().unwrap_or(PixelTable::ABOVE),
            _ => PixelTable::BELOW,
        };
        write(out, read::<T>(image).zip(entries).map(one));
    }
    for_element!(element, typed(table, image, out), unreachable!());
}

/// Sets a part of an image of `columns` columns to -1, or to the value *masked* where the type has no sign.
///
/// # Panics
/// If the window lies outside of the image, or the type is packed.
pub fn mask_rectangle(element: Element, columns: usize, window: Window, image: &mut [u8]) {
    fn fill<T: Sample>(columns: usize, window: Window, image: &mut [u8]) {
        let rows = image.chunks_exact_mut((columns * size_of::<T>()).max(1)).skip(window.row);
        let element = T::ELEMENT;
        let is_signed = !matches!(element, Element::Uint8 | Element::Uint16 | Element::Uint32 | Element::Uint64);
        let value = if is_signed { T::of_i64(-1, Overflow::Clamped) } else { T::special(MASKED) };
        for row in rows.take(window.rows) {
            let (from, to) = (window.column * size_of::<T>(), (window.column + window.columns) * size_of::<T>());
            write(&mut row[from..to], std::iter::repeat(value));
        }
    }
    for_element!(element, fill(columns, window, image), panic!("packed pixels are unpacked first"));
}

/// What is subtracted from each pixel.
#[derive(Clone, Debug, PartialEq)]
pub enum Background {
    /// Whole numbers.
    Int32(Vec<i32>),
    /// Any numbers.
    Float32(Vec<f32>),
}

impl Background {
    /// Pixels of the plane.
    pub fn pixels(&self) -> usize {
        match self {
            Self::Int32(plane) => plane.len(),
            Self::Float32(plane) => plane.len(),
        }
    }

    /// True for the types from which a background can be subtracted: those that a double holds exactly.
    pub const fn takes(element: Element) -> bool {
        !matches!(element, Element::Uint64 | Element::Int64 | Element::Float64 | Element::Packed(_))
    }
}

/// Subtracts a background; the result is `int32`, rounded half to even, saturated above the valid range and clamped
/// below it.
///
/// A special value of the image becomes that of `int32`. Otherwise, where the background has a special value, the
/// result is masked.
///
/// # Panics
/// If the lengths do not fit, or [`Background::takes`] is false for the type.
pub fn subtract(isa: Isa, element: Element, image: &[u8], background: &Background, out: &mut [u8]) {
    assert!(Background::takes(element), "a background cannot be subtracted from {}", element.name());
    fn typed<T: Sample>(isa: Isa, image: &[u8], background: &Background, out: &mut [u8]) {
        let pixels = image.len() / size_of::<T>();
        assert!(background.pixels() == pixels && out.len() == pixels * 4, "one background and one result for each pixel");
        match background {
            Background::Int32(plane) => isa_paths!(isa, subtract_plane < T, i32 > (image, plane, out)),
            Background::Float32(plane) => isa_paths!(isa, subtract_plane < T, f32 > (image, plane, out)),
        }
    }
    for_element!(element, typed(isa, image, background, out), unreachable!());
}

/// Pixels that are of no use, stored as runs, so that few of them cost little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    pixels: usize,
    /// First pixel and number of pixels.
    runs: Vec<(usize, usize)>,
}

impl Mask {
    /// From a plane in which every pixel of no use is true.
    pub fn new(plane: impl IntoIterator<Item = bool>) -> Self {
        let (mut pixels, mut runs) = (0, Vec::<(usize, usize)>::new());
        for is_masked in plane {
            if is_masked {
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == pixels => *count += 1,
                    _ => runs.push((pixels, 1)),
                }
            }
            pixels += 1;
        }
        Self { pixels, runs }
    }

    /// Pixels of the plane.
    pub fn pixels(&self) -> usize {
        self.pixels
    }

    /// Pixels of no use.
    pub fn masked(&self) -> usize {
        self.runs.iter().map(|(_, count)| count).sum()
    }
}

/// Sets the pixels of no use to the value *masked* of the type, whatever they were.
///
/// # Panics
/// If the image has another number of pixels than the mask, or no such value (packed types).
pub fn mask(element: Element, mask: &Mask, image: &mut [u8]) {
    fn fill<T: Sample>(mask: &Mask, image: &mut [u8]) {
        assert_eq!(image.len(), mask.pixels * size_of::<T>(), "the mask has the size of the image");
        for &(first, count) in &mask.runs {
            let run = &mut image[first * size_of::<T>()..][..count * size_of::<T>()];
            write(run, std::iter::repeat(T::special(MASKED)));
        }
    }
    for_element!(element, fill(mask, image), panic!("packed pixels are unpacked first"));
}

/// Converts an image to another type. Integers are rounded half to even, numbers above the range become what `overflow`
/// says, and numbers below it are clamped. Special values become those of the other type.
///
/// # Panics
/// If the lengths do not fit, or a type is packed.
pub fn convert(isa: Isa, from: Element, image: &[u8], to: Element, overflow: Overflow, out: &mut [u8]) {
    fn outer<T: Sample>(isa: Isa, image: &[u8], to: Element, overflow: Overflow, out: &mut [u8]) {
        for_element!(to, inner::<_, T>(isa, image, overflow, out), panic!("nothing becomes packed pixels"));
    }
    fn inner<U: Sample, T: Sample>(isa: Isa, image: &[u8], overflow: Overflow, out: &mut [u8]) {
        assert_eq!(image.len() / size_of::<T>(), out.len() / size_of::<U>(), "one pixel for each");
        isa_paths!(isa, convert_row < U, T > (image, overflow, out));
    }
    for_element!(from, outer(isa, image, to, overflow, out), panic!("packed pixels are unpacked first"));
}
