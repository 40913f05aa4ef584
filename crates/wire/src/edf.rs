//! EDF files, not packed: what detectors at the ESRF, SPEC and fabio write. [`Image`] is the one image of a file that
//! came as a message; [`frames`] finds all images of a file. Source: files of fabio and its reader.
//!
//! Facts relied on: a text from `{` to `}` and the end of that line, usually 512 bytes or a multiple, with entries
//! `key = value ;`; then the pixels, which may be padded to a multiple of 512 bytes. `Dim_1` is the fast dimension. The
//! case of keys differs between writers. In a file of several images the next header follows the pixels, or their
//! padding.

use crate::blob::Blob;
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
        let Said { shape, element, is_big_endian, bytes: wanted } = Said::read(&header, bounds)?;
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

/// What a header says of its pixels.
struct Said {
    shape: Shape,
    element: Element,
    is_big_endian: bool,
    /// Bytes that the pixels have.
    bytes: u64,
}

impl Said {
    fn read(header: &str, bounds: &Bounds) -> Result<Self, String> {
        let value = |name: &str| items(header).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
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
        let bytes = unpacked_bytes(shape, element, bounds.image_bytes_max)?;
        Ok(Self { shape, element, is_big_endian, bytes })
    }
}

/// One image of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Rows, columns.
    pub shape: Shape,
    /// Type of one pixel.
    pub element: Element,
    /// True if the pixels are big-endian.
    pub is_big_endian: bool,
    /// Where the pixels begin.
    pub at: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The text between the braces; see [`items`].
    pub header: String,
}

/// The images of a file, in their order; all of them lie in it.
///
/// # Errors
/// What is wrong with the file, and with which image.
pub fn frames<B: Blob + ?Sized>(blob: &B, bounds: &Bounds) -> Result<Vec<Frame>, String> {
    let (mut frames, mut next): (Vec<Frame>, _) = (Vec::new(), Some(0));
    while let Some(at) = next {
        let of_image = |why| if frames.is_empty() { why } else { format!("image {}: {why}", frames.len()) };
        let frame = frame(blob, at, bounds).map_err(of_image)?;
        let end = frame.at + frame.bytes;
        frames.push(frame);
        next = next_header(blob, end)?;
    }
    Ok(frames)
}

fn frame<B: Blob + ?Sized>(blob: &B, at: u64, bounds: &Bounds) -> Result<Frame, String> {
    let left = usize::try_from(blob.bytes() - at).unwrap_or(usize::MAX).min(bounds.text_bytes_max);
    let (mut text, mut end) = (std::borrow::Cow::default(), None);
    // Most headers are short.
    for bytes in [4096, 64 << 10, left] {
        text = blob.read(at, bytes.min(left))?;
        if text.first() != Some(&b'{') {
            return Err("it does not begin as an EDF file does".into());
        }
        end = text.windows(2).position(|two| two == b"}\n" || two == b"}\r");
        if end.is_some_and(|end| end + 3 <= text.len() || bytes >= left) {
            break;
        }
    }
    let end = end.ok_or_else(|| format!("its header does not end within {} bytes", bounds.text_bytes_max))?;
    let behind = if text[end + 1..].starts_with(b"\r\n") { end + 3 } else { end + 2 };
    let header = String::from_utf8_lossy(&text[1..end]).into_owned();
    let Said { shape, element, is_big_endian, bytes } = Said::read(&header, bounds)?;
    let pixels_at = at + behind as u64;
    let there = blob.bytes().saturating_sub(pixels_at);
    if bytes > there {
        let is = format!("{} of shape {:?} has {bytes} bytes", element.name(), shape.dimensions());
        return Err(format!("{is}, but {there} follow its header"));
    }
    Ok(Frame { shape, element, is_big_endian, at: pixels_at, bytes, header })
}

/// Where the header begins that follows pixels that end at `end`, perhaps behind padding; `None` at the end of the
/// file.
fn next_header<B: Blob + ?Sized>(blob: &B, end: u64) -> Result<Option<u64>, String> {
    let left = blob.bytes() - end;
    let window = blob.read(end, left.min(FILL_BYTES as u64) as usize)?;
    if let Some(padding) = window.iter().position(|byte| *byte == b'{') {
        return Ok(Some(end + padding as u64));
    }
    if left < FILL_BYTES as u64 { Ok(None) } else { Err(format!("{left} bytes follow the pixels, and no further header")) }
}

/// The bytes of a file of one image before its pixels, which are little-endian: keys and values, filled up to a
/// multiple of 512 bytes. `None` for pixels that EDF does not have. Of `said` what would end an entry early is left
/// out.
pub fn head(shape: [u64; 2], element: Element, said: &[(String, String)]) -> Option<Vec<u8>> {
    let name = data_type(element)?;
    let bytes = shape[0] * shape[1] * u64::from(element.bits()) / 8;
    let mut text = format!(
        "{{\nHeaderID = EH:000001:000000:000000 ;\nImage = 1 ;\nByteOrder = LowByteFirst ;\nDataType = {name} ;\n\
         Dim_1 = {} ;\nDim_2 = {} ;\nSize = {bytes} ;\n",
        shape[1], shape[0]
    );
    let plain = |text: &str| text.replace([';', '{', '}', '\n', '\r', '='], " ");
    for (key, value) in said {
        text.push_str(&format!("{} = {} ;\n", plain(key).trim(), plain(value).trim()));
    }
    let end = (text.len() + 2).next_multiple_of(FILL_BYTES);
    let mut out = text.into_bytes();
    out.resize(end - 2, b' ');
    out.extend_from_slice(b"}\n");
    Some(out)
}

fn data_type(element: Element) -> Option<&'static str> {
    Some(match element {
        Element::Uint8 => "UnsignedByte",
        Element::Int8 => "SignedByte",
        Element::Uint16 => "UnsignedShort",
        Element::Int16 => "SignedShort",
        Element::Uint32 => "UnsignedInteger",
        Element::Int32 => "SignedInteger",
        Element::Uint64 => "Unsigned64",
        Element::Int64 => "Signed64",
        Element::Float32 => "FloatValue",
        Element::Float64 => "DoubleValue",
        Element::Packed(_) => return None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::array::PackedBits;

    #[test]
    fn images_that_follow_each_other_are_found() {
        let said = [("title".to_owned(), "a; b".to_owned())];
        let mut file = head([2, 3], Element::Int16, &said).unwrap();
        assert_eq!(file.len() % FILL_BYTES, 0);
        file.extend([7; 12]);
        let one = file.clone();
        file.extend([0; 500]);
        file.extend(head([1, 4], Element::Float32, &[]).unwrap());
        file.extend([9; 16]);
        let found = frames(&file[..], &Bounds::default()).unwrap();
        assert_eq!(
            found.iter().map(|f| (f.element, f.bytes)).collect::<Vec<_>>(),
            [(Element::Int16, 12), (Element::Float32, 16)]
        );
        assert_eq!(file[found[1].at as usize], 9);
        assert_eq!(items(&found[0].header).find(|(key, _)| *key == "title"), Some(("title", "a  b")));
        assert_eq!(frames(&one[..], &Bounds::default()).unwrap().len(), 1);
        assert!(Image::parse(&one, &Bounds::default()).is_ok());
        let why = |bytes: &[u8]| frames(bytes, &Bounds::default()).unwrap_err();
        assert!(why(&file[..file.len() - 1]).contains("image 1: float32 of shape [1, 4] has 16 bytes, but 15 follow"));
        assert!(why(&one[..400]).contains("does not end"));
        assert!(why(&[&one[..], &[1; 600]].concat()).contains("600 bytes follow the pixels"));
        assert!(why(b"").contains("does not begin"));
        assert!(head([1, 1], Element::Packed(PackedBits::Twelve), &[]).is_none());
    }
}
