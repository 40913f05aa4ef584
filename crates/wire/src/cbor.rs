//! The parts of CBOR (RFC 8949) and its typed arrays (RFC 8746) that are needed to read messages in place. No announced
//! size is trusted beyond the bytes that came, nesting is limited, and unknown items are skipped.
//!
//! Facts relied on: tags 64 to 87 say the type of the elements of a byte string; tag 40 is an array in row-major order,
//! of its dimensions and its typed array; DECTRIS puts tag 56500 over \[algorithm, element bytes, packed bytes\] where
//! the byte string would be.

use crate::stream::{Element, Packing, Pixels, Shape, quoted};
use minicbor::data::{Tag, Type};
use minicbor::{Decoder, Encoder};
use serde_json::Value;

mod json;

pub use json::item_of;

/// How deep items may lie in each other.
pub const DEPTH_MAX: usize = 32;

/// Says at the beginning of a message that it is CBOR (tag 55799).
pub(crate) const SELF_DESCRIBED: [u8; 3] = [0xD9, 0xD9, 0xF7];

const TAG_ROW_MAJOR: u64 = 40;
const TAG_DECTRIS_PACKED: u64 = 56500;
/// Tags of the little-endian typed arrays.
const TYPED: [(u64, Element); 10] = [
    (64, Element::Uint8),
    (69, Element::Uint16),
    (70, Element::Uint32),
    (71, Element::Uint64),
    (72, Element::Int8),
    (77, Element::Int16),
    (78, Element::Int32),
    (79, Element::Int64),
    (85, Element::Float32),
    (86, Element::Float64),
];
/// Names of packings in tag 56500.
const PACKINGS: [(&str, Packing); 3] =
    [("bslz4", Packing::BitshuffleLz4), ("lz4", Packing::Lz4), ("bszstd", Packing::BitshuffleZstd)];

/// One whole CBOR item that is passed on and not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a>(&'a [u8]);

impl<'a> Item<'a> {
    /// Checks that `bytes` is one item and no more, not nested deeper than [`DEPTH_MAX`].
    ///
    /// # Errors
    /// What is wrong, as a text for the user.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, String> {
        let mut d = Decoder::new(bytes);
        let item = item(&mut d)?;
        (item.0.len() == bytes.len()).then_some(item).ok_or_else(|| "bytes follow the CBOR item".to_owned())
    }

    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The item as JSON, for texts and files. Numbers that JSON does not have are null, byte strings are hexadecimal
    /// digits, typed arrays are lists (of rows, if they have rows), keys that are numbers are written as texts, and
    /// tags are skipped. Entries of a map are left out if they are named in `without`, if their key is a list or a map,
    /// or if their value is a typed array or byte string that is packed or that exceeds `bytes_max` bytes together with
    /// those before it.
    ///
    /// # Errors
    /// What is wrong, as a text for the user; also if texts and numbers together have more than `bytes_max` bytes.
    pub fn json(&self, without: &[&str], bytes_max: usize) -> Result<Value, String> {
        json::of(self.0, without, bytes_max)
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&'a str> {
        Decoder::new(self.0).str().ok()
    }

    /// The text in a byte string, if the item is a byte string with text: some clients pass on the texts of users as
    /// bytes.
    pub fn text_in_bytes(&self) -> Option<&'a str> {
        std::str::from_utf8(Decoder::new(self.0).bytes().ok()?).ok()
    }
}

/// The error text for an error of the decoder.
pub(crate) fn wrong(error: minicbor::decode::Error) -> String {
    format!("it is not the CBOR that was expected: {error}")
}

/// Skips the next item.
pub(crate) fn skip(d: &mut Decoder, depth_left: usize) -> Result<(), String> {
    let Some(depth_left) = depth_left.checked_sub(1) else {
        return Err(format!("items are nested more than {DEPTH_MAX} deep"));
    };
    let each = |d: &mut Decoder, count: Option<u64>, per: u64| {
        let Some(count) = count else {
            while d.datatype().map_err(wrong)? != Type::Break {
                skip(d, depth_left)?;
            }
            return d.skip().map_err(wrong);
        };
        // Each item has at least one byte, so this ends with the bytes that came.
        let count = count.checked_mul(per).ok_or("a count of items is beyond 64 bits")?;
        (0..count).try_for_each(|_| skip(d, depth_left))
    };
    match d.datatype().map_err(wrong)? {
        Type::Array | Type::ArrayIndef => {
            let count = d.array().map_err(wrong)?;
            each(d, count, 1)
        }
        Type::Map | Type::MapIndef => {
            let count = d.map().map_err(wrong)?;
            each(d, count, 2)
        }
        Type::Tag => {
            d.tag().map_err(wrong)?;
            skip(d, depth_left)
        }
        Type::Break => Err("a CBOR break without a matching start".into()),
        _ => d.skip().map_err(wrong),
    }
}

/// The next item, whatever it is.
pub(crate) fn item<'a>(d: &mut Decoder<'a>) -> Result<Item<'a>, String> {
    let start = d.position();
    skip(d, DEPTH_MAX)?;
    let bytes = d.input().get(start..d.position()).ok_or("the message ends inside an item")?;
    Ok(Item(bytes))
}

/// Calls `entry` for each entry of a map whose key is a text and whose value is not null; `entry` reads the value, or
/// says with `false` that it did not touch it.
pub(crate) fn entries<'a>(
    d: &mut Decoder<'a>,
    mut entry: impl FnMut(&'a str, &mut Decoder<'a>) -> Result<bool, String>,
) -> Result<(), String> {
    let count = d.map().map_err(wrong)?;
    let mut done = 0;
    loop {
        match count {
            Some(count) if done == count => return Ok(()),
            None if d.datatype().map_err(wrong)? == Type::Break => return d.skip().map_err(wrong),
            _ => done += 1,
        }
        if d.datatype().map_err(wrong)? != Type::String {
            skip(d, DEPTH_MAX)?;
            skip(d, DEPTH_MAX)?;
            continue;
        }
        let key = d.str().map_err(wrong)?;
        let null = matches!(d.datatype().map_err(wrong)?, Type::Null | Type::Undefined);
        if null || !entry(key, d).map_err(|why| format!("{}: {why}", quoted(key)))? {
            skip(d, DEPTH_MAX)?;
        }
    }
}

/// The number of items of an array that states it, at most `most`.
pub(crate) fn array_length(d: &mut Decoder, most: usize) -> Result<usize, String> {
    let length = d.array().map_err(wrong)?.ok_or("an array does not say its length")?;
    usize::try_from(length).ok().filter(|n| *n <= most).ok_or_else(|| format!("{length} items; at most {most} are accepted"))
}

/// A number of any kind.
pub(crate) fn number(d: &mut Decoder) -> Result<f64, String> {
    match d.datatype().map_err(wrong)? {
        Type::F16 | Type::F32 | Type::F64 => d.f64().map_err(wrong),
        _ => Ok(i128::from(d.int().map_err(wrong)?) as f64),
    }
}

/// A whole number from 0.
pub(crate) fn unsigned(d: &mut Decoder) -> Result<u64, String> {
    d.u64().map_err(wrong)
}

/// A text.
pub(crate) fn text<'a>(d: &mut Decoder<'a>) -> Result<&'a str, String> {
    d.str().map_err(wrong)
}

/// A text, perhaps marked as a date (tag 0).
pub(crate) fn date<'a>(d: &mut Decoder<'a>) -> Result<&'a str, String> {
    if d.datatype().map_err(wrong)? == Type::Tag {
        d.tag().map_err(wrong)?;
    }
    text(d)
}

/// An array with its dimensions, or a bare typed array, which has one dimension.
pub(crate) fn pixels<'a>(d: &mut Decoder<'a>, bytes_max: u64) -> Result<Pixels<'a>, String> {
    let mut tag = d.tag().map_err(wrong)?.as_u64();
    let mut shape = None;
    if tag == TAG_ROW_MAJOR {
        if array_length(d, 2)? != 2 {
            return Err("an array with dimensions must have two items".into());
        }
        let count = array_length(d, Shape::DIMENSIONS_MAX)?;
        let mut dimensions = [0; Shape::DIMENSIONS_MAX];
        for dimension in &mut dimensions[..count] {
            *dimension = unsigned(d)?;
        }
        let said = &dimensions[..count];
        shape = Some(Shape::new(said).ok_or_else(|| format!("an array cannot have shape {said:?}"))?);
        tag = d.tag().map_err(wrong)?.as_u64();
    }
    let element = TYPED.iter().find(|(of, _)| *of == tag).map(|(_, element)| *element);
    let element = element.ok_or_else(|| format!("tag {tag} is not a little-endian typed array"))?;
    let (packing, data) = packed(d, element)?;
    let shape = match shape {
        Some(shape) => shape,
        None if packing == Packing::None => {
            let count = data.len() as u64 / u64::from(element.bits() / 8);
            Shape::new(&[count]).ok_or("a typed array is empty")?
        }
        None => return Err("packed bytes without dimensions".into()),
    };
    Pixels::new_checked(shape, element, packing, data, bytes_max)
}

fn packed<'a>(d: &mut Decoder<'a>, element: Element) -> Result<(Packing, &'a [u8]), String> {
    if d.datatype().map_err(wrong)? != Type::Tag {
        return Ok((Packing::None, d.bytes().map_err(wrong)?));
    }
    let tag = d.tag().map_err(wrong)?.as_u64();
    if tag != TAG_DECTRIS_PACKED || array_length(d, 3)? != 3 {
        return Err(format!("tag {tag} is not a packed byte string"));
    }
    let name = text(d)?;
    let packing = PACKINGS.iter().find(|(of, _)| *of == name).map(|(_, packing)| *packing);
    let packing = packing.ok_or_else(|| format!("its packing is {}; bslz4, lz4 and bszstd are known", quoted(name)))?;
    let bytes = unsigned(d)?;
    if packing != Packing::Lz4 && bytes != u64::from(element.bits() / 8) {
        return Err(format!("it is packed as elements of {bytes} bytes, but its type is {}", element.name()));
    }
    Ok((packing, d.bytes().map_err(wrong)?))
}

/// Writes into memory, where nothing can fail.
pub(crate) type Writer<'o> = Encoder<&'o mut Vec<u8>>;
/// The end of a chain of writes.
pub(crate) type Written = Result<(), minicbor::encode::Error<std::convert::Infallible>>;

/// Whether these pixels can be written.
pub(crate) fn check_writable(pixels: &Pixels) -> Result<(), String> {
    let name = pixels.packing() == Packing::None || PACKINGS.iter().any(|(_, packing)| *packing == pixels.packing());
    if name && TYPED.iter().any(|(_, element)| *element == pixels.element()) {
        return Ok(());
    }
    Err(format!("this format cannot carry {} with packing {:?}", pixels.element().name(), pixels.packing()))
}

/// Writes pixels that passed [`check_writable`]; without their dimensions if they are a `bare` list.
pub(crate) fn write_pixels(e: &mut Writer, pixels: &Pixels, bare: bool) -> Written {
    if !bare {
        let shape = pixels.shape();
        e.tag(Tag::new(TAG_ROW_MAJOR))?.array(2)?.array(shape.dimensions().len() as u64)?;
        for dimension in shape.dimensions() {
            e.u64(*dimension)?;
        }
    }
    if let Some((tag, _)) = TYPED.iter().find(|(_, element)| *element == pixels.element()) {
        e.tag(Tag::new(*tag))?;
    }
    if let Some((name, packing)) = PACKINGS.iter().find(|(_, packing)| *packing == pixels.packing()) {
        let element_bytes = if *packing == Packing::Lz4 { 0 } else { pixels.element().bits() / 8 };
        e.tag(Tag::new(TAG_DECTRIS_PACKED))?.array(3)?.str(name)?.u32(element_bytes)?;
    }
    e.bytes(pixels.data())?.ok()
}

/// Writes a number in 32 bits if that does not change it.
pub(crate) fn write_number(e: &mut Writer, number: f64) -> Written {
    let short = number as f32;
    if f64::from(short) == number { e.f32(short)?.ok() } else { e.f64(number)?.ok() }
}

/// Writes a date.
pub(crate) fn write_date(e: &mut Writer, date: &str) -> Written {
    e.tag(Tag::new(0))?.str(date)?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| [vec![0x81; depth], vec![0]].concat();
        assert!(Item::new_checked(&nested(DEPTH_MAX - 1)).is_ok());
        assert!(Item::new_checked(&nested(DEPTH_MAX)).unwrap_err().contains("more than 32 deep"));
        assert!(Item::new_checked(&vec![0x9F; 1 << 20]).unwrap_err().contains("more than 32 deep"));
        assert!(Item::new_checked(&vec![0xC1; 1 << 20]).unwrap_err().contains("more than 32 deep"));
    }

    #[test]
    fn items_are_whole_and_alone() {
        for good in [&[0x60][..], &[0x9F, 0x01, 0xFF], &[0xBF, 0x01, 0x02, 0xFF], &[0xA1, 0x01, 0x02], &[0x5F, 0x41, 0, 0xFF]] {
            assert_eq!(Item::new_checked(good).unwrap().bytes(), good);
        }
        for bad in [&[][..], &[0, 0], &[0xFF], &[0x9F, 0x01], &[0xA1, 0x01], &[0x42, 0], &[0x81, 0xFF]] {
            assert!(Item::new_checked(bad).is_err(), "{bad:x?}");
        }
        // A map with one entry, null: null.
        assert_eq!(Item::new_checked(&[0xA1, 0xF6, 0xF6]).unwrap().json(&[], 9).unwrap(), serde_json::json!({"null": null}));
        // Announces more than any memory has.
        for huge in [0x5B, 0x7B, 0x9B, 0xBB] {
            let bytes = [vec![huge], vec![0xFF; 8], vec![0; 9]].concat();
            assert!(Item::new_checked(&bytes).is_err());
        }
        assert_eq!(Item::new_checked(&[0x61, b'a']).unwrap().text(), Some("a"));
        assert_eq!(Item::new_checked(&[0x01]).unwrap().text(), None);
    }

    #[test]
    fn numbers_of_all_kinds_are_read() {
        let read = |bytes: &[u8]| number(&mut Decoder::new(bytes));
        assert_eq!(read(&[0xF9, 0x3C, 0x00]), Ok(1.0));
        assert_eq!(read(&[0xFA, 0x3F, 0xC0, 0, 0]), Ok(1.5));
        assert_eq!(read(&[0x20]), Ok(-1.0));
        assert!(read(&[0x61, b'1']).is_err());
        for value in [0.0, 0.1, -1.5, 7.5e-5, f64::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut Encoder::new(&mut bytes), value).unwrap();
            assert_eq!(read(&bytes), Ok(value));
        }
    }
}
