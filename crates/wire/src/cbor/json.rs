//! Any CBOR item as JSON, for what senders say about a measurement and what goes into a file.

use super::arrays::{TAG_ROW_MAJOR, TYPED, pixels};
use super::read::{DEPTH_MAX, skip, wrong};
use super::write::Written;
use crate::stream::{Element, Packing, Pixels};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use serde_json::{Map, Number, Value};

/// Bytes that may still be taken.
struct Left {
    /// By texts and numbers.
    texts: usize,
    /// By arrays and byte strings.
    arrays: usize,
}

/// See [`super::Item::json`].
pub(super) fn of(item: &[u8], without: &[&str], bytes_max: usize) -> Result<Value, String> {
    let mut left = Left { texts: bytes_max, arrays: bytes_max };
    Ok(value(&mut Decoder::new(item), without, &mut left, DEPTH_MAX)?.unwrap_or(Value::Null))
}

/// The next item; `None` if it is one that is left out.
fn value(d: &mut Decoder, without: &[&str], left: &mut Left, depth_left: usize) -> Result<Option<Value>, String> {
    let depth_left = depth_left.checked_sub(1).ok_or("items are nested too deep")?;
    take(&mut left.texts, 1)?;
    Ok(Some(match d.datatype().map_err(wrong)? {
        Type::Bool => Value::Bool(d.bool().map_err(wrong)?),
        Type::F16 | Type::F32 | Type::F64 => float(d.f64().map_err(wrong)?),
        Type::String | Type::StringIndef => {
            let mut text = String::new();
            for piece in d.str_iter().map_err(wrong)? {
                let piece = piece.map_err(wrong)?;
                take(&mut left.texts, piece.len())?;
                text.push_str(piece);
            }
            Value::String(text)
        }
        Type::Bytes | Type::BytesIndef => return bytes(d, left),
        Type::Array | Type::ArrayIndef => {
            let mut list = Vec::new();
            let count = d.array().map_err(wrong)?;
            each(d, count, |d| {
                list.push(value(d, &[], left, depth_left)?.unwrap_or(Value::Null));
                Ok(())
            })?;
            Value::Array(list)
        }
        Type::Map | Type::MapIndef => {
            let mut map = Map::new();
            let count = d.map().map_err(wrong)?;
            each(d, count, |d| entry(d, without, left, depth_left, &mut map))?;
            Value::Object(map)
        }
        Type::Tag => return tagged(d, without, left, depth_left),
        Type::Null | Type::Undefined | Type::Simple => {
            d.skip().map_err(wrong)?;
            Value::Null
        }
        _ => integer(d)?,
    }))
}

fn entry(
    d: &mut Decoder,
    without: &[&str],
    left: &mut Left,
    depth_left: usize,
    map: &mut Map<String, Value>,
) -> Result<(), String> {
    let key = match value(d, &[], left, depth_left)? {
        Some(Value::String(text)) => text,
        // A key inside a key inside a key would double in length at each level when written as a text.
        None | Some(Value::Array(_) | Value::Object(_)) => return skip(d, depth_left),
        Some(other) => other.to_string(),
    };
    if without.contains(&key.as_str()) {
        return skip(d, depth_left);
    }
    if let Some(value) = value(d, &[], left, depth_left)? {
        map.insert(key, value);
    }
    Ok(())
}

fn each(d: &mut Decoder, count: Option<u64>, mut entry: impl FnMut(&mut Decoder) -> Result<(), String>) -> Result<(), String> {
    match count {
        // Each entry needs bytes, so this ends with the bytes that came.
        Some(count) => (0..count).try_for_each(|_| entry(d)),
        None => {
            while d.datatype().map_err(wrong)? != Type::Break {
                entry(d)?;
            }
            d.skip().map_err(wrong)
        }
    }
}

fn integer(d: &mut Decoder) -> Result<Value, String> {
    let number = i128::from(d.int().map_err(wrong)?);
    let whole = u64::try_from(number).map(Number::from).or_else(|_| i64::try_from(number).map(Number::from));
    Ok(whole.map_or_else(|_| float(number as f64), Value::Number))
}

fn float(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

fn bytes(d: &mut Decoder, left: &mut Left) -> Result<Option<Value>, String> {
    let (mut text, mut fits) = (String::new(), true);
    for piece in d.bytes_iter().map_err(wrong)? {
        let piece = piece.map_err(wrong)?;
        fits = fits && take(&mut left.arrays, piece.len()).is_ok();
        if fits {
            text.extend(
                piece.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)),
            );
        }
    }
    Ok(fits.then_some(Value::String(text)))
}

fn tagged(d: &mut Decoder, without: &[&str], left: &mut Left, depth_left: usize) -> Result<Option<Value>, String> {
    let start = d.position();
    let tag = d.tag().map_err(wrong)?.as_u64();
    if tag != TAG_ROW_MAJOR && !TYPED.iter().any(|(of, _)| *of == tag) {
        return value(d, without, left, depth_left);
    }
    d.set_position(start);
    match pixels(d, u64::MAX) {
        Ok(array) => Ok(list(&array, left)),
        // Not an array as images have it: take what stands under the tag.
        Err(_) => {
            d.set_position(start);
            d.tag().map_err(wrong)?;
            value(d, without, left, depth_left)
        }
    }
}

/// The elements of a typed array, as nested lists by its shape; `None` if they are packed or too many.
fn list(array: &Pixels, left: &mut Left) -> Option<Value> {
    if array.packing() != Packing::None || take(&mut left.arrays, array.data().len()).is_err() {
        return None;
    }
    let each = array.element().bits() as usize / 8;
    let mut level: Vec<Value> = array.data().chunks_exact(each).map(|bytes| number(array.element(), bytes)).collect();
    for dimension in array.shape().dimensions()[1..].iter().rev() {
        level = level.chunks(*dimension as usize).map(|row| Value::Array(row.to_vec())).collect();
    }
    Some(Value::Array(level))
}

fn number(element: Element, bytes: &[u8]) -> Value {
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(eight);
    match element {
        Element::Float32 => float(f32::from_bits(bits as u32).into()),
        Element::Float64 => float(f64::from_bits(bits)),
        Element::Int8 => Value::from(bits as i8),
        Element::Int16 => Value::from(bits as i16),
        Element::Int32 => Value::from(bits as i32),
        Element::Int64 => Value::from(bits as i64),
        _ => Value::from(bits),
    }
}

fn take(left: &mut usize, bytes: usize) -> Result<(), String> {
    *left = left.checked_sub(bytes).ok_or("more text than is accepted")?;
    Ok(())
}

/// A JSON value as a CBOR item.
pub fn item_of(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing into memory cannot fail.
    let _ = write(&mut Encoder::new(&mut out), value);
    out
}

fn write(e: &mut Encoder<&mut Vec<u8>>, value: &Value) -> Written {
    match value {
        Value::Null => e.null()?.ok(),
        Value::Bool(flag) => e.bool(*flag)?.ok(),
        Value::String(text) => e.str(text)?.ok(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => e.u64(number)?.ok(),
            (None, Some(number)) => e.i64(number)?.ok(),
            (None, None) => e.f64(number.as_f64().unwrap_or(f64::NAN))?.ok(),
        },
        Value::Array(list) => {
            e.array(list.len() as u64)?;
            list.iter().try_for_each(|value| write(e, value))
        }
        Value::Object(map) => {
            e.map(map.len() as u64)?;
            map.iter().try_for_each(|(key, value)| {
                e.str(key)?;
                write(e, value)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Item, write_pixels};
    use super::*;
    use crate::stream::Shape;
    use minicbor::Encoder;
    use serde_json::json;

    fn read(bytes: &[u8], bytes_max: usize) -> Result<Value, String> {
        Item::new_checked(bytes).unwrap().json(&[], bytes_max)
    }

    #[test]
    fn items_of_all_kinds_have_a_form() {
        let of = |bytes: &[u8]| read(bytes, 100).unwrap();
        assert_eq!(of(&[0x18, 0x64]), json!(100));
        assert_eq!(of(&[0x3B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]), json!(-18_446_744_073_709_551_616.0));
        assert_eq!(of(&[0x38, 0x63]), json!(-100));
        assert_eq!(of(&[0xF9, 0x3C, 0x00]), json!(1.0));
        assert_eq!(of(&[0xF9, 0x7E, 0x00]), Value::Null);
        assert_eq!(of(&[0x83, 0xF5, 0xF7, 0x42, 0xAB, 0x01]), json!([true, null, "ab01"]));
        assert_eq!(of(&[0xA2, 0x61, b'a', 0x01, 0x05, 0x61, b'b']), json!({"a": 1, "5": "b"}));
        assert_eq!(of(&[0xC0, 0x61, b'd']), json!("d"));
        assert_eq!(of(&[0x7F, 0x61, b'a', 0x61, b'b', 0xFF]), json!("ab"));
        assert_eq!(of(&[0xBF, 0x61, b'a', 0x9F, 0x01, 0xFF, 0xFF]), json!({"a": [1]}));
        assert_eq!(of(&[0xA2, 0x81, 0x01, 0x02, 0xF5, 0x03]), json!({"true": 3}), "a list is no key");
        // A typed array of big-endian numbers is a byte string.
        assert_eq!(of(&[0xD8, 65, 0x42, 1, 2]), json!("0102"));
    }

    #[test]
    fn arrays_are_lists_or_left_out() {
        let data: Vec<u8> = [1i16, -2, 3, 4, 5, 6].iter().flat_map(|n| n.to_le_bytes()).collect();
        let array = Pixels::new_checked(Shape::new(&[2, 3]).unwrap(), Element::Int16, Packing::None, &data, 12).unwrap();
        let mut bytes = vec![0xA2, 0x61, b'x'];
        write_pixels(&mut Encoder::new(&mut bytes), &array, false).unwrap();
        bytes.extend([0x61, b'y', 0x01]);
        assert_eq!(read(&bytes, 100).unwrap(), json!({"x": [[1, -2, 3], [4, 5, 6]], "y": 1}));
        assert_eq!(read(&bytes, 11).unwrap(), json!({"y": 1}), "more than 11 bytes of array");
        assert!(read(&bytes, 5).is_err());
        let but = Item::new_checked(&bytes).unwrap().json(&["y", "z"], 100).unwrap();
        assert_eq!(but, json!({"x": [[1, -2, 3], [4, 5, 6]]}));
    }

    #[test]
    fn json_comes_back() {
        let value = json!({"a": [1, -2, 0.5, null, true, "x"], "b": {"c": u64::MAX, "d": i64::MIN}});
        assert_eq!(read(&item_of(&value), 1000).unwrap(), value);
    }

    #[test]
    fn texts_beyond_the_bound_are_refused() {
        assert!(read(&[0x63, b'a', b'b', b'c'], 3).unwrap_err().contains("more text"));
        assert!(read(&[0x83, 1, 2, 3], 3).unwrap_err().contains("more text"));
        assert_eq!(read(&[0x83, 1, 2, 3], 4).unwrap(), json!([1, 2, 3]));
    }
}
