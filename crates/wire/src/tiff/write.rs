//! Writes TIFF files: pages of one strip each, not packed, little-endian; BigTIFF where places need more than 32 bits.

use crate::stream::Element;

/// Bytes that classic places can reach.
const CLASSIC_BYTES_MAX: u64 = u32::MAX as u64;
/// Entries of a page.
const ENTRIES: u64 = 12;

/// Writes one file, page by page: the bytes in front of the first page ([`first_bytes`]), then for each page its
/// directory and its pixels. Each page knows where it lies before, because all pages are alike but for their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Rows, columns.
    shape: [u32; 2],
    element: Element,
    /// Places have 8 bytes.
    is_big: bool,
}

/// How a file begins.
pub fn first_bytes(is_big: bool) -> Vec<u8> {
    let mut head = Vec::new();
    if is_big {
        head.extend_from_slice(b"II+\0\x08\0\0\0");
        head.extend(16u64.to_le_bytes());
    } else {
        head.extend_from_slice(b"II*\0");
        head.extend(8u32.to_le_bytes());
    }
    head
}

impl Writer {
    /// For `pages` pages of this shape (rows, columns) and type, whose texts have at most `text_bytes_max` bytes
    /// together. `None` for pixels that TIFF does not have.
    pub fn new(shape: [u32; 2], element: Element, pages: u64, text_bytes_max: u64) -> Option<Self> {
        sample_format(element)?;
        let pixels = u64::from(shape[0]) * u64::from(shape[1]) * u64::from(element.bits()) / 8;
        let page = pixels.saturating_add(text_bytes_max).saturating_add(ENTRIES * 20 + 64);
        let is_big = page.saturating_mul(pages).saturating_add(16) > CLASSIC_BYTES_MAX;
        Some(Self { shape, element, is_big })
    }

    /// As [`Self::new`], always with places of 8 bytes.
    #[must_use]
    pub fn big(mut self) -> Self {
        self.is_big = true;
        self
    }

    /// True if the file is a BigTIFF.
    pub fn is_big(&self) -> bool {
        self.is_big
    }

    /// The directory of a page that begins at byte `at` of the file, its texts, and padding: all that comes before its
    /// pixels. `is_last` says that no page follows.
    pub fn head(&self, at: u64, texts: &Texts<'_>, is_last: bool) -> Vec<u8> {
        let (place, count_bytes) = if self.is_big { (8, 8) } else { (4, 2) };
        let texts = [(270u16, texts.description), (305, texts.software), (306, texts.date)];
        let entries = 11 + texts.iter().filter(|(_, text)| !text.is_empty()).count() as u64;
        let texts_at = at + count_bytes + entries * (4 + 2 * place) + place;
        let text_bytes: u64 = texts.iter().filter(|(_, text)| text.len() as u64 >= place).map(|(_, t)| t.len() as u64 + 1).sum();
        let pixels_at = (texts_at + text_bytes).next_multiple_of(16);
        let [rows, columns] = self.shape;
        let pixel_bytes = u64::from(rows) * u64::from(columns) * u64::from(self.element.bits()) / 8;
        let mut out = Vec::new();
        self.put(&mut out, entries, count_bytes);
        let mut behind = Vec::new();
        let mut list: Vec<(u16, u16, Value<'_>)> = vec![
            (254, 4, Value::Number(0)),
            (256, 4, Value::Number(columns.into())),
            (257, 4, Value::Number(rows.into())),
            (258, 3, Value::Number(self.element.bits().into())),
            (259, 3, Value::Number(1)),
            (262, 3, Value::Number(1)),
            (273, if self.is_big { 16 } else { 4 }, Value::Number(pixels_at)),
            (277, 3, Value::Number(1)),
            (278, 4, Value::Number(rows.into())),
            (279, if self.is_big { 16 } else { 4 }, Value::Number(pixel_bytes)),
            (339, 3, Value::Number(sample_format(self.element).unwrap_or(1))),
        ];
        list.extend(texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(tag, text)| (tag, 2, Value::Text(text))));
        list.sort_by_key(|(tag, ..)| *tag);
        for (tag, kind, value) in list {
            self.put(&mut out, tag.into(), 2);
            self.put(&mut out, kind.into(), 2);
            match value {
                Value::Number(number) => {
                    self.put(&mut out, 1, place);
                    self.put(&mut out, number, place);
                }
                Value::Text(text) => {
                    self.put(&mut out, text.len() as u64 + 1, place);
                    let mut bytes = text.as_bytes().to_vec();
                    bytes.push(0);
                    if bytes.len() as u64 <= place {
                        bytes.resize(place as usize, 0);
                        out.extend(bytes);
                    } else {
                        self.put(&mut out, texts_at + behind.len() as u64, place);
                        behind.extend(bytes);
                    }
                }
            }
        }
        let next = if is_last { 0 } else { (pixels_at + pixel_bytes).next_multiple_of(16) };
        self.put(&mut out, next, place);
        out.extend(behind);
        out.resize((pixels_at - at) as usize, 0);
        out
    }

    /// Where the page begins that follows one that ends at byte `end`.
    pub fn next_page(end: u64) -> u64 {
        end.next_multiple_of(16)
    }

    fn put(&self, out: &mut Vec<u8>, number: u64, bytes: u64) {
        out.extend_from_slice(&number.to_le_bytes()[..bytes as usize]);
    }
}

/// What a page says; empty texts are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Texts<'a> {
    /// Description.
    pub description: &'a str,
    /// The program that writes it.
    pub software: &'a str,
    /// `YYYY:MM:DD HH:MM:SS`.
    pub date: &'a str,
}

enum Value<'a> {
    Number(u64),
    Text(&'a str),
}

fn sample_format(element: Element) -> Option<u64> {
    Some(match element {
        Element::Uint8 | Element::Uint16 | Element::Uint32 | Element::Uint64 => 1,
        Element::Int8 | Element::Int16 | Element::Int32 | Element::Int64 => 2,
        Element::Float32 | Element::Float64 => 3,
        Element::Packed(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Image, pages};
    use super::*;
    use crate::stream::Bounds;
    use konkordia_core::array::PackedBits;

    #[test]
    fn what_is_written_is_read() {
        for is_big in [false, true] {
            for (description, pages_count) in [("", 1), ("abc", 2), ("abcdefg", 3), ("a longer description", 3)] {
                let writer = Writer::new([2, 3], Element::Uint16, pages_count, 100).unwrap();
                let writer = if is_big { writer.big() } else { writer };
                let mut file = first_bytes(writer.is_big());
                for page in 0..pages_count {
                    file.resize(if page == 0 { file.len() } else { Writer::next_page(file.len() as u64) as usize }, 0);
                    let texts = Texts { description, software: "konkordia", date: "" };
                    file.extend(writer.head(file.len() as u64, &texts, page + 1 == pages_count));
                    file.extend((0..6u16).flat_map(|n| (n + page as u16 * 10).to_le_bytes()));
                }
                let found = pages(&file[..], &Bounds::default()).unwrap();
                assert_eq!(found.len() as u64, pages_count);
                for (n, page) in found.iter().enumerate() {
                    let at = page.pieces[0].at as usize;
                    assert_eq!(file[at..at + 2], (n as u16 * 10).to_le_bytes());
                    assert_eq!((page.edges(), page.element), ([2, 3], Element::Uint16));
                    let said = page.texts.iter().find(|(name, _)| *name == "description").map_or("", |(_, text)| text);
                    assert_eq!(said, description);
                }
                assert_eq!(Image::parse(&file, &Bounds::default()).is_ok(), pages_count == 1);
            }
        }
    }

    #[test]
    fn large_files_have_long_places() {
        let big = |pages| Writer::new([1 << 15, 1 << 15], Element::Uint16, pages, 0).unwrap().is_big();
        assert!(!big(1) && big(2));
        assert!(Writer::new([1, 1], Element::Packed(PackedBits::Twelve), 1, 0).is_none());
    }
}
