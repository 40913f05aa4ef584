//! Writes items into memory.

use minicbor::Encoder;
use minicbor::data::Tag;

/// Writes into memory, where nothing can fail.
pub(crate) type Writer<'o> = Encoder<&'o mut Vec<u8>>;
/// The end of a chain of writes.
pub(crate) type Written = Result<(), minicbor::encode::Error<std::convert::Infallible>>;

/// Writes a number in 32 bits if that does not change it.
pub(crate) fn write_number(e: &mut Writer, number: f64) -> Written {
    let short = number as f32;
    if f64::from(short) == number { e.f32(short)?.ok() } else { e.f64(number)?.ok() }
}

/// Writes a date.
pub(crate) fn write_date(e: &mut Writer, date: &str) -> Written {
    e.tag(Tag::new(0))?.str(date)?.ok()
}
