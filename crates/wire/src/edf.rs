//! EDF files of one image, not packed: what detectors at the ESRF, SPEC and fabio write. Source: files of fabio and its
//! reader.
//!
//! Facts relied on: a text from `{` to `}` and the end of that line, usually 512 bytes or a multiple, with entries
//! `key = value ;`; then the pixels, which may be padded to a multiple of 512 bytes. `Dim_1` is the fast dimension. The
//! case of keys differs between writers.

use crate::stream::{Bounds, Element, Refusal, Shape, quoted, unpacked_bytes};
use std::borrow::Cow;

/// A file may be padded to a multiple of this many bytes.
const FILL_BYTES: usize = 512;

/// The one image of a file, checked: as many bytes as its dimensions and its type ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Rows, columns.
    pub shape: Shape,
    /// Type of one pixel.
    pub element: Element,
    /// True if the pixels are big-endian.
    pub is_big_endian: bool,
    /// The pixels.
    pub data: &'a [u8],
    /// The text between the braces; see [`items`].
    pub header: Cow<'a, str>,
}

impl<'a> Image<'a> {
    /// Checks a file.
    ///
    /// # Errors
    /// What is wrong: not an EDF file, packed pixels, several images, sizes that disagree or are beyond `bounds`.
    pub fn parse(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, Refusal> {
        Self::read(bytes, bounds).map_err(|why| Refusal::new(0, why))
    }

    fn read(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, String> {
        if bytes.first() != Some(&b'{') {
            return Err("it does not begin as an EDF file does".into());
        }
        let in_front = &bytes[..bytes.len().min(bounds.text_bytes_max)];
        let end = in_front.windows(2).position(|two| two == b"}\n" || two == b"}\r");
        let end = end.ok_or_else(|| format!("its header does not end within {} bytes", bounds.text_bytes_max))?;
        let pixels_at = if bytes[end + 1..].starts_with(b"\r\n") { end + 3 } else { end + 2 };
        let header = String::from_utf8_lossy(&bytes[1..end]);
        let value = |name: &str| items(&header).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        if let Some(packed) = value("Compression").filter(|value| !value.is_empty() && !value.eq_ignore_ascii_case("none")) {
            return Err(format!("its pixels are packed ({}), which is not supported", quoted(packed)));
        }
        let name = value("DataType").ok_or("it has no 'DataType'")?;
        let element = element(name).ok_or_else(|| format!("its 'DataType' {} is not supported", quoted(name)))?;
        let is_big_endian = match value("ByteOrder") {
            None => false,
            Some(order) if order.eq_ignore_ascii_case("LowByteFirst") => false,
            Some(order) if order.eq_ignore_ascii_case("HighByteFirst") => true,
            Some(other) => return Err(format!("its 'ByteOrder' is {}; LowByteFirst and HighByteFirst are known", quoted(other))),
        };
        let shape = shape(value)?;
        let wanted = unpacked_bytes(shape, element, bounds.image_bytes_max)?;
        let rest = &bytes[pixels_at..];
        let data = usize::try_from(wanted).ok().and_then(|wanted| rest.get(..wanted));
        let is = || format!("{} of shape {:?} has {wanted} bytes", element.name(), shape.dimensions());
        let data = data.ok_or_else(|| format!("{}, but {} follow its header", is(), rest.len()))?;
        let more = rest.len() - data.len();
        if more >= FILL_BYTES || rest.get(data.len()) == Some(&b'{') {
            return Err(format!("{}, but {more} more follow: files of several images are not supported", is()));
        }
        Ok(Self { shape, element, is_big_endian, data, header })
    }
}

/// Rows and columns; a single line of pixels is one row.
fn shape<'v>(value: impl Fn(&str) -> Option<&'v str>) -> Result<Shape, String> {
    let number = |name: &str| {
        let parse = |text: &str| text.parse::<u64>().map_err(|_| format!("'{name}' is {}, not a whole number", quoted(text)));
        value(name).map(parse).transpose()
    };
    let columns = number("Dim_1")?.ok_or("it has no 'Dim_1'")?;
    let rows = number("Dim_2")?.unwrap_or(1);
    if number("Dim_3")?.is_some_and(|images| images > 1) {
        return Err("it holds more than one image".into());
    }
    Shape::new(&[rows, columns]).ok_or_else(|| format!("an image cannot have {rows} x {columns} pixels"))
}

fn element(name: &str) -> Option<Element> {
    Some(match name.to_ascii_lowercase().as_str() {
        "unsignedbyte" | "unsigned8" => Element::Uint8,
        "signedbyte" | "signed8" => Element::Int8,
        "unsignedshort" | "unsigned16" => Element::Uint16,
        "signedshort" | "signed16" => Element::Int16,
        "unsignedinteger" | "unsignedlong" | "unsigned32" => Element::Uint32,
        "signedinteger" | "signedlong" | "signed32" => Element::Int32,
        "unsigned64" => Element::Uint64,
        "signed64" => Element::Int64,
        "floatvalue" | "float" | "real" | "floatieee32" => Element::Float32,
        "doublevalue" | "double" | "floatieee64" => Element::Float64,
        _ => return None,
    })
}

/// Keys and values of a header, as they are.
pub fn items(header: &str) -> impl Iterator<Item = (&str, &str)> {
    header.split(';').filter_map(|entry| {
        let (key, value) = entry.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then_some((key, value.trim()))
    })
}
