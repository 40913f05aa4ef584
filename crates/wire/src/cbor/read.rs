//! Reads one item after the other. No announced size is trusted beyond the bytes that came, nesting is limited, and
//! unknown items are skipped.

use crate::stream::quoted;
use minicbor::Decoder;
use minicbor::data::Type;

/// How deep items may lie in each other.
pub const DEPTH_MAX: usize = 32;

/// The error text for an error of the decoder.
pub(crate) fn wrong(error: minicbor::decode::Error) -> String {
    format!("it is not the CBOR that was expected: {error}")
}

/// Skips the next item.
pub(super) fn skip(d: &mut Decoder, depth_left: usize) -> Result<(), String> {
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
