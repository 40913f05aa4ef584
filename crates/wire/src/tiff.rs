//! TIFF files of one image, not packed, in strips: what camservers and fabio write. Source: TIFF 6.0, files of a
//! PILATUS 1M and of fabio.
//!
//! Facts relied on: `II` or `MM` gives the byte order; then come 42 and the place of the first directory, which is a
//! count, 12 bytes for each entry (tag, type, count, value or its place), and the place of the next directory or 0.
//! Pilatus puts its header lines into the description (see [`crate::cbf::items`]). Files of DECTRIS and fabio have one
//! strip or one per row.

use crate::stream::{Bounds, Element, Refusal, Shape, unpacked_bytes};
use std::borrow::Cow;

/// How little-endian and big-endian files begin.
pub const MAGICS: [&[u8]; 2] = [b"II*\0", b"MM\0*"];

const ENTRY_BYTES: usize = 12;
/// Bytes of the values of each type, from type 1 on; the tags read here have no other types.
const TYPE_BYTES: [usize; 4] = [1, 1, 2, 4];

/// Tags.
mod tag {
    pub const COLUMNS: u16 = 256;
    pub const ROWS: u16 = 257;
    pub const BITS: u16 = 258;
    pub const COMPRESSION: u16 = 259;
    pub const DESCRIPTION: u16 = 270;
    pub const MAKE: u16 = 271;
    pub const MODEL: u16 = 272;
    pub const STRIP_PLACES: u16 = 273;
    pub const SAMPLES: u16 = 277;
    pub const STRIP_BYTES: u16 = 279;
    pub const SOFTWARE: u16 = 305;
    pub const DATE: u16 = 306;
    pub const TILE_COLUMNS: u16 = 322;
    pub const SAMPLE_FORMAT: u16 = 339;
}

/// The one image of a file, checked: as many bytes as rows, columns and type ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Rows, columns.
    pub shape: Shape,
    /// Type of one pixel.
    pub element: Element,
    /// True if the pixels are big-endian.
    pub is_big_endian: bool,
    /// The pixels, in order; adjacent strips are one piece.
    pub pieces: Vec<&'a [u8]>,
    /// Description, maker, model, software and date, as far as there are any.
    pub texts: Vec<(&'static str, Cow<'a, str>)>,
}

impl<'a> Image<'a> {
    /// Checks a file.
    ///
    /// # Errors
    /// What is wrong: not a TIFF file, packed or coloured pixels, tiles, several images, sizes that disagree or are
    /// beyond `bounds`.
    pub fn parse(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, Refusal> {
        Self::read(bytes, bounds).map_err(|why| Refusal::new(0, why))
    }

    fn read(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, String> {
        let file = File::open(bytes)?;
        if file.entry(tag::TILE_COLUMNS).is_some() {
            return Err("pixels in tiles are not supported".into());
        }
        let one = |tag, default| file.entry(tag).map_or(Ok(default), |entry| file.number(&entry));
        match one(tag::COMPRESSION, 1)? {
            1 => {}
            other => return Err(format!("its pixels are packed (compression {other}), which is not supported")),
        }
        match one(tag::SAMPLES, 1)? {
            1 => {}
            other => return Err(format!("a pixel has {other} values; images have one")),
        }
        let (format, bits) = (one(tag::SAMPLE_FORMAT, 1)?, one(tag::BITS, 1)?);
        let element =
            element(format, bits).ok_or_else(|| format!("pixels of {bits} bits and sample format {format} are not supported"))?;
        let (rows, columns) = (file.required(tag::ROWS, "rows")?, file.required(tag::COLUMNS, "columns")?);
        let shape = Shape::new(&[rows.into(), columns.into()]);
        let shape = shape.ok_or_else(|| format!("an image cannot have {rows} x {columns} pixels"))?;
        let wanted = unpacked_bytes(shape, element, bounds.image_bytes_max)?;
        let pieces = file.pieces()?;
        let came: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if came != wanted {
            let is = format!("{} of shape {:?}", element.name(), shape.dimensions());
            return Err(format!("{is} has {wanted} bytes, but its strips have {came}"));
        }
        Ok(Self { shape, element, is_big_endian: file.is_big_endian, pieces, texts: file.texts(bounds)? })
    }
}

fn element(format: u32, bits: u32) -> Option<Element> {
    Some(match (format, bits) {
        (1 | 4, 8) => Element::Uint8,
        (1 | 4, 16) => Element::Uint16,
        (1 | 4, 32) => Element::Uint32,
        (1 | 4, 64) => Element::Uint64,
        (2, 8) => Element::Int8,
        (2, 16) => Element::Int16,
        (2, 32) => Element::Int32,
        (2, 64) => Element::Int64,
        (3, 32) => Element::Float32,
        (3, 64) => Element::Float64,
        _ => return None,
    })
}

/// One entry of the directory.
struct Entry<'a> {
    /// Bytes of one value.
    value_bytes: usize,
    /// Its values, as many bytes as they have.
    values: &'a [u8],
}

struct File<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
    /// Places of the entries of the first directory, all of them in the file.
    entries: std::ops::Range<usize>,
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, String> {
        let order = MAGICS.iter().position(|magic| bytes.starts_with(magic)).ok_or("it does not begin as a TIFF file does")?;
        let mut file = Self { bytes, is_big_endian: order == 1, entries: 0..0 };
        let at = file.u32_at(4).ok_or("it ends in its header")? as usize;
        let cut = || format!("it ends inside its directory, which begins at byte {at}");
        let count = usize::from(file.u16_at(at).ok_or_else(cut)?);
        file.entries = at + 2..at + 2 + count * ENTRY_BYTES;
        if file.entries.end > bytes.len() {
            return Err(cut());
        }
        match file.u32_at(file.entries.end) {
            Some(0) => Ok(file),
            // Some writers end the file with the directory.
            None if file.entries.end == bytes.len() => Ok(file),
            None => Err(cut()),
            Some(_) => Err("it holds more than one image".into()),
        }
    }

    fn u16_at(&self, at: usize) -> Option<u16> {
        let two = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big_endian { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        let four = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
    }

    /// An entry whose values lie in the file; `None` if there is no such entry.
    fn entry(&self, tag: u16) -> Option<Entry<'a>> {
        let at = self.entries.clone().step_by(ENTRY_BYTES).find(|at| self.u16_at(*at) == Some(tag))?;
        let value_bytes = *TYPE_BYTES.get(usize::from(self.u16_at(at + 2)?).checked_sub(1)?)?;
        let bytes = (self.u32_at(at + 4)? as usize).checked_mul(value_bytes)?;
        let place = if bytes <= 4 { at + 8 } else { self.u32_at(at + 8)? as usize };
        Some(Entry { value_bytes, values: self.bytes.get(place..place.checked_add(bytes)?)? })
    }

    fn numbers(&self, entry: &Entry<'a>) -> impl Iterator<Item = u32> + use<'a> {
        let is_big_endian = self.is_big_endian;
        entry.values.chunks_exact(entry.value_bytes).map(move |value| {
            let step = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
            if is_big_endian { value.iter().fold(0, step) } else { value.iter().rev().fold(0, step) }
        })
    }

    /// The one value of an entry.
    fn number(&self, entry: &Entry<'a>) -> Result<u32, String> {
        self.numbers(entry).next().ok_or_else(|| "an entry of its directory has no value".to_owned())
    }

    fn required(&self, tag: u16, what: &str) -> Result<u32, String> {
        let entry = self.entry(tag).ok_or_else(|| format!("it does not say how many {what} it has"))?;
        self.number(&entry)
    }

    fn pieces(&self) -> Result<Vec<&'a [u8]>, String> {
        let places = self.entry(tag::STRIP_PLACES).ok_or("it does not say where its strips are")?;
        let bytes = self.entry(tag::STRIP_BYTES).ok_or("it does not say how long its strips are")?;
        if self.numbers(&places).count() != self.numbers(&bytes).count() {
            return Err("it has different numbers of strip offsets and strip lengths".into());
        }
        let mut pieces: Vec<&'a [u8]> = Vec::new();
        let mut open: Option<(usize, usize)> = None;
        for (n, (start, count)) in self.numbers(&places).zip(self.numbers(&bytes)).enumerate() {
            let (start, end) = (start as usize, start as usize + count as usize);
            if end > self.bytes.len() {
                return Err(format!("strip {n} reaches from byte {start} to {end}, but the file has {}", self.bytes.len()));
            }
            open = match open {
                Some((first, last)) if last == start => Some((first, end)),
                Some((first, last)) => {
                    pieces.push(&self.bytes[first..last]);
                    Some((start, end))
                }
                None => Some((start, end)),
            };
        }
        pieces.extend(open.map(|(first, last)| &self.bytes[first..last]));
        Ok(pieces)
    }

    fn texts(&self, bounds: &Bounds) -> Result<Vec<(&'static str, Cow<'a, str>)>, String> {
        let known = [
            ("description", tag::DESCRIPTION),
            ("make", tag::MAKE),
            ("model", tag::MODEL),
            ("software", tag::SOFTWARE),
            ("date", tag::DATE),
        ];
        let mut texts = Vec::new();
        for (name, tag) in known {
            let Some(entry) = self.entry(tag) else { continue };
            if entry.values.len() > bounds.text_bytes_max {
                let (has, most) = (entry.values.len(), bounds.text_bytes_max);
                return Err(format!("its {name} has {has} bytes; a text may have {most}"));
            }
            let end = entry.values.iter().position(|byte| *byte == 0).unwrap_or(entry.values.len());
            texts.push((name, String::from_utf8_lossy(&entry.values[..end])));
        }
        Ok(texts)
    }
}
