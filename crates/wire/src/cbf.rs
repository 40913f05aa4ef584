//! CBF files as the camserver of Pilatus detectors, DECTRIS' own programs and fabio write them (miniCBF): a text, then
//! one image. Source: the files of a PILATUS3 6M, and the format of imgCIF/CBF as far as such files use it.
//!
//! Facts relied on: the text has lines, with what the detector says under `_array_data.header_contents` between lines
//! of `;`. Then come `--CIF-BINARY-FORMAT-SECTION--` with MIME headers about the pixels, the bytes 0C 1A 04 D5,
//! `X-Binary-Size` bytes of pixels, padding, and text again. `x-CBF_BYTE_OFFSET` packs differences of signed 32-bit
//! pixels into one byte each at least. Lines of the detector begin with `#` and say `Key: value`, `Key = value` or
//! `Key value`; others of these lines are a date and a sentence about the sensor.

use crate::stream::{Bounds, Element, Refusal, Shape, quoted, unpacked_bytes};
use md5::Digest;
use std::borrow::Cow;

/// How a file begins.
pub const MAGIC: &[u8] = b"###CBF";
const SECTION: &str = "--CIF-BINARY-FORMAT-SECTION--";
const PIXELS_FOLLOW: [u8; 4] = [0x0C, 0x1A, 0x04, 0xD5];
const CONTENTS: &str = "_array_data.header_contents";

/// How pixels are packed in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// Differences in 1 to 15 bytes each, of signed 32-bit pixels.
    ByteOffset,
}

/// The one image of a file, checked: it has as many bytes as the file says, and enough for its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Rows, columns.
    pub shape: Shape,
    /// Type of one pixel, little-endian.
    pub element: Element,
    /// How the pixels are packed.
    pub packing: Packing,
    /// The pixels as they are packed.
    pub data: &'a [u8],
    /// What the detector says, in lines; see [`items`]. May be empty.
    pub contents: Cow<'a, str>,
}

impl<'a> Image<'a> {
    /// Checks a file.
    ///
    /// # Errors
    /// What is wrong: not a CBF file, sizes that disagree or are beyond `bounds`, an unknown packing or type.
    pub fn parse(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, Refusal> {
        Self::read(bytes, bounds).map_err(|why| Refusal::new(0, why))
    }

    fn read(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, String> {
        if !bytes.starts_with(MAGIC) {
            return Err("it does not begin as a CBF file does".into());
        }
        let most = bounds.text_bytes_max;
        let in_front = &bytes[..bytes.len().min(most.saturating_add(PIXELS_FOLLOW.len()))];
        let at = in_front.windows(PIXELS_FOLLOW.len()).position(|four| *four == PIXELS_FOLLOW);
        let at = at.ok_or_else(|| format!("no pixels begin within its first {most} bytes"))?;
        let text = String::from_utf8_lossy(&bytes[..at]);
        let section = text.find(SECTION).ok_or("it has no binary section")?;
        let about = Section::read(&text[section + SECTION.len()..])?;
        let (shape, element, packing) = about.checked()?;
        let unpacked = unpacked_bytes(shape, element, bounds.image_bytes_max)?;
        let rest = &bytes[at + PIXELS_FOLLOW.len()..];
        let said = about.bytes.unwrap_or(rest.len() as u64);
        let data = usize::try_from(said).ok().and_then(|said| rest.get(..said));
        let data = data.ok_or_else(|| format!("it announces {said} bytes of pixels, but {} follow", rest.len()))?;
        let is = || format!("{} of shape {:?}", element.name(), shape.dimensions());
        match packing {
            Packing::None if said != unpacked => return Err(format!("{} has {unpacked} bytes, but {said} came", is())),
            Packing::ByteOffset if said < shape.elements() => {
                return Err(format!("{} cannot be packed into {said} bytes", is()));
            }
            Packing::None | Packing::ByteOffset => {}
        }
        let contents = match text {
            Cow::Borrowed(text) => Cow::Borrowed(contents(&text[..section])),
            Cow::Owned(text) => Cow::Owned(contents(&text[..section]).to_owned()),
        };
        Ok(Self { shape, element, packing, data, contents })
    }
}

/// What the MIME headers say.
#[derive(Default)]
struct Section<'a> {
    conversions: Option<&'a str>,
    bytes: Option<u64>,
    element: Option<&'a str>,
    order: Option<&'a str>,
    elements: Option<u64>,
    /// Fastest, second, third.
    dimensions: [Option<u64>; 3],
}

impl<'a> Section<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut section = Self::default();
        for line in text.lines().map(str::trim) {
            if let Some((_, value)) = line.split_once("conversions=") {
                section.conversions = Some(value.trim_matches('"'));
            }
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim().trim_matches('"');
            let number = || {
                let number = value.parse().map_err(|_| format!("its '{key}' is {}, not a whole number", quoted(value)));
                number.map(Some)
            };
            match key.to_ascii_lowercase().as_str() {
                "x-binary-size" => section.bytes = number()?,
                "x-binary-element-type" => section.element = Some(value),
                "x-binary-element-byte-order" => section.order = Some(value),
                "x-binary-number-of-elements" => section.elements = number()?,
                "x-binary-size-fastest-dimension" => section.dimensions[0] = number()?,
                "x-binary-size-second-dimension" => section.dimensions[1] = number()?,
                "x-binary-size-third-dimension" => section.dimensions[2] = number()?,
                _ => {}
            }
        }
        Ok(section)
    }

    fn checked(&self) -> Result<(Shape, Element, Packing), String> {
        let name = self.element.ok_or("it has no 'X-Binary-Element-Type'")?;
        let element = element(name).ok_or_else(|| format!("its pixel type {} is not supported", quoted(name)))?;
        let packing = match self.conversions.unwrap_or("x-CBF_NONE").to_ascii_lowercase().as_str() {
            "x-cbf_none" => Packing::None,
            "x-cbf_byte_offset" if element == Element::Int32 => Packing::ByteOffset,
            "x-cbf_byte_offset" => return Err(format!("byte-offset pixels are signed 32-bit, but these are {}", quoted(name))),
            other => return Err(format!("its packing is {}; x-CBF_BYTE_OFFSET and none are known", quoted(other))),
        };
        if !self.order.unwrap_or("LITTLE_ENDIAN").eq_ignore_ascii_case("LITTLE_ENDIAN") {
            return Err("big-endian pixels are not supported".into());
        }
        let [Some(columns), Some(rows), deep] = self.dimensions else {
            return Err("it has no 'X-Binary-Size-Fastest-Dimension' or no 'X-Binary-Size-Second-Dimension'".into());
        };
        if deep.is_some_and(|images| images > 1) {
            return Err("it holds more than one image".into());
        }
        let shape = Shape::new(&[rows, columns]).ok_or_else(|| format!("an image cannot have {rows} x {columns} pixels"))?;
        match self.elements {
            Some(said) if said != shape.elements() => Err(format!("it announces {said} pixels, but is {rows} x {columns}")),
            _ => Ok((shape, element, packing)),
        }
    }
}

fn element(name: &str) -> Option<Element> {
    Some(match name.to_ascii_lowercase().as_str() {
        "unsigned 8-bit integer" => Element::Uint8,
        "signed 8-bit integer" => Element::Int8,
        "unsigned 16-bit integer" => Element::Uint16,
        "signed 16-bit integer" => Element::Int16,
        "unsigned 32-bit integer" => Element::Uint32,
        "signed 32-bit integer" => Element::Int32,
        "signed 32-bit real ieee" => Element::Float32,
        "signed 64-bit real ieee" => Element::Float64,
        _ => return None,
    })
}

/// The text between the lines of `;` after the key.
fn contents(text: &str) -> &str {
    let behind = text.find(CONTENTS).map(|at| &text[at + CONTENTS.len()..]);
    let Some((between, body)) = behind.and_then(|text| text.split_once("\n;")) else { return "" };
    // A value on the same line is not a text of several lines.
    if !between.trim().is_empty() {
        return "";
    }
    body.split_once("\n;").map_or("", |(contents, _)| contents).trim()
}

/// What a detector says in lines that begin with `#` (in a CBF file, or in the description of a TIFF file): keys and
/// values as they are. The date has the key `date`, the sentence about the sensor the key `sensor`.
pub fn items(contents: &str) -> impl Iterator<Item = (&str, &str)> {
    contents.lines().filter_map(|line| {
        let line = line.trim().strip_prefix('#')?.trim();
        if line.contains("sensor,") {
            return Some(("sensor", line));
        }
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            return Some(("date", line));
        }
        let end = line.find(|c: char| c.is_whitespace() || c == ':' || c == '=').unwrap_or(line.len());
        let (key, value) = line.split_at(end);
        let value = value.trim_start().trim_start_matches([':', '=']).trim();
        (!key.is_empty()).then_some((key, value))
    })
}

/// What stands between the pixels and the text behind them: zeros, for readers that look ahead.
pub const PADDING_BYTES: usize = 4095;

/// The bytes of a file before its pixels, `packed` by byte offset: text, MIME headers, and the four bytes in front of
/// the pixels. `name` is that of the data block, `lines` are those of the detector without `#`.
pub fn head(name: &str, lines: &[String], [rows, columns]: [u64; 2], packed: &[u8]) -> Vec<u8> {
    let plain = |text: &str| text.replace(['\n', '\r'], " ");
    let block: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    let mut text = format!(
        "###CBF: VERSION 1.5, Konkordia\r\n\r\ndata_{block}\r\n\r\n_array_data.header_convention \"PILATUS_1.2\"\r\n\
         {CONTENTS}\r\n;\r\n"
    );
    lines.iter().for_each(|line| text.push_str(&format!("# {}\r\n", plain(line))));
    let (bytes, pixels, sum) = (packed.len(), rows * columns, base64(&md5::Md5::digest(packed)));
    text.push_str(&format!(
        ";\r\n\r\n_array_data.data\r\n;\r\n{SECTION}\r\nContent-Type: application/octet-stream;\r\n     \
         conversions=\"x-CBF_BYTE_OFFSET\"\r\nContent-Transfer-Encoding: BINARY\r\nX-Binary-Size: {bytes}\r\n\
         X-Binary-ID: 1\r\nX-Binary-Element-Type: \"signed 32-bit integer\"\r\n\
         X-Binary-Element-Byte-Order: LITTLE_ENDIAN\r\nContent-MD5: {sum}\r\nX-Binary-Number-of-Elements: {pixels}\r\n\
         X-Binary-Size-Fastest-Dimension: {columns}\r\nX-Binary-Size-Second-Dimension: {rows}\r\n\
         X-Binary-Size-Padding: {PADDING_BYTES}\r\n\r\n"
    ));
    let mut out = text.into_bytes();
    out.extend_from_slice(&PIXELS_FOLLOW);
    out
}

/// The bytes behind the pixels.
pub fn tail() -> Vec<u8> {
    let mut out = vec![0; PADDING_BYTES];
    out.extend_from_slice(format!("\r\n{SECTION}--\r\n;\r\n\r\n").as_bytes());
    out
}

/// Bytes as text (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for n in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * n)) as usize & 63];
            out.push(if n <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_forms_are_read() {
        let lines = "# Detector: PILATUS3 6M, S/N 60-0119\r\n# 2019-09-11T13:20:28.989\r\n# Pixel_size 172e-6 m x 172e-6 m\n\
                     # Silicon sensor, thickness 0.000450 m\n# Tau = 0 s\nno item\n#\n# Flag";
        let all: Vec<_> = items(lines).collect();
        assert_eq!(
            all,
            [
                ("Detector", "PILATUS3 6M, S/N 60-0119"),
                ("date", "2019-09-11T13:20:28.989"),
                ("Pixel_size", "172e-6 m x 172e-6 m"),
                ("sensor", "Silicon sensor, thickness 0.000450 m"),
                ("Tau", "0 s"),
                ("Flag", ""),
            ]
        );
    }

    #[test]
    fn contents_stand_between_semicolons_or_nowhere() {
        assert_eq!(contents("_array_data.header_contents\r\n;\r\n# a\r\n# b\r\n;\r\nx"), "# a\r\n# b");
        for none in
            ["", "_array_data.header_contents", "_array_data.header_contents\n;\n# a", "_array_data.header_contents x\n;\na\n;"]
        {
            assert_eq!(contents(none), "", "{none:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!((&*base64(b""), &*base64(b"f"), &*base64(b"fo"), &*base64(b"foobar")), ("", "Zg==", "Zm8=", "Zm9vYmFy"));
        let lines = ["Detector: a\nb".to_owned(), "Tau = 0 s".to_owned()];
        let packed = [1, 2, 3, 4, 5, 6];
        let file = [head("a b", &lines, [2, 3], &packed), packed.to_vec(), tail()].concat();
        let image = Image::parse(&file, &Bounds::default()).unwrap();
        assert_eq!((image.shape.dimensions(), image.packing, image.data), ([2, 3].as_slice(), Packing::ByteOffset, &packed[..]));
        assert_eq!(items(&image.contents).collect::<Vec<_>>(), [("Detector", "a b"), ("Tau", "0 s")]);
    }
}
