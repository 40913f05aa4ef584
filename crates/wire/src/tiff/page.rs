//! One page of a TIFF file: where its pixels are, and how they are packed.

use super::directory::{Directories, Directory};
use crate::blob::Blob;
use crate::stream::{Bounds, Element, Shape, unpacked_bytes};

/// Strips and tiles of all pages of a file.
const PIECES_MAX: usize = 1 << 25;
/// Bytes of the texts of all pages of a file.
const TEXT_BYTES_MAX: usize = 256 << 20;

/// Tags.
mod tag {
    pub const KIND: u16 = 254;
    pub const COLUMNS: u16 = 256;
    pub const ROWS: u16 = 257;
    pub const BITS: u16 = 258;
    pub const COMPRESSION: u16 = 259;
    pub const MEANING: u16 = 262;
    pub const FILL_ORDER: u16 = 266;
    pub const DESCRIPTION: u16 = 270;
    pub const MAKE: u16 = 271;
    pub const MODEL: u16 = 272;
    pub const STRIP_PLACES: u16 = 273;
    pub const SAMPLES: u16 = 277;
    pub const STRIP_ROWS: u16 = 278;
    pub const STRIP_BYTES: u16 = 279;
    pub const SOFTWARE: u16 = 305;
    pub const DATE: u16 = 306;
    pub const PREDICTOR: u16 = 317;
    pub const TILE_COLUMNS: u16 = 322;
    pub const TILE_ROWS: u16 = 323;
    pub const TILE_PLACES: u16 = 324;
    pub const TILE_BYTES: u16 = 325;
    pub const SAMPLE_FORMAT: u16 = 339;
}

/// How the pieces of a page are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// LZW, the high bits of a byte first.
    Lzw,
    /// One zlib stream for each piece (Deflate).
    Zlib,
    /// Runs of bytes.
    PackBits,
    /// One Zstd frame for each piece.
    Zstd,
}

/// What was done to the pixels of a row before they were packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    /// Nothing.
    None,
    /// The pixel before was subtracted.
    Difference,
    /// Bytes of floating-point numbers were sorted by their weight, and subtracted from each other.
    FloatingPoint,
}

/// Where a strip or a tile is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte.
    pub at: u64,
    /// Its bytes, packed; 0 if it was never written, which reads as zeros.
    pub bytes: u64,
}

/// One page, checked: its pieces lie in the file and cover its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Rows, columns.
    pub shape: Shape,
    /// Type of one pixel, unpacked.
    pub element: Element,
    /// Bits of one pixel in the file; fewer than those of [`Self::element`] if pixels share bytes.
    pub bits: u32,
    /// True if the pixels are big-endian.
    pub is_big_endian: bool,
    /// How each piece is packed.
    pub packing: Packing,
    /// What was done before.
    pub predictor: Predictor,
    /// Rows and columns of a whole piece. Strips are as wide as the image, and the last one may have fewer rows; tiles
    /// are always whole.
    pub piece_shape: [u64; 2],
    /// True for tiles, false for strips.
    pub is_tiled: bool,
    /// Pieces row by row.
    pub pieces: Vec<Piece>,
    /// A smaller copy of another page: no image of its own.
    pub is_reduced: bool,
    /// Description, maker, model, software and date, as far as there are any.
    pub texts: Vec<(&'static str, String)>,
}

impl Page {
    /// Rows of pixels that piece `n` has in the file.
    pub fn rows_of(&self, n: usize) -> u64 {
        let [rows, _] = self.edges();
        if self.is_tiled { self.piece_shape[0] } else { (rows - n as u64 * self.piece_shape[0]).min(self.piece_shape[0]) }
    }

    /// Bytes of piece `n`, unpacked: each row begins with a byte of its own.
    pub fn piece_bytes(&self, n: usize) -> u64 {
        self.rows_of(n) * (self.piece_shape[1] * u64::from(self.bits)).div_ceil(8)
    }

    /// Rows and columns.
    pub fn edges(&self) -> [u64; 2] {
        match *self.shape.dimensions() {
            [rows, columns] => [rows, columns],
            _ => [1, self.shape.elements()],
        }
    }

    pub(super) fn read<B: Blob + ?Sized>(entries: &Directory<'_, B>, blob: &B, bounds: &Bounds) -> Result<Self, String> {
        let one = |tag, default| entries.number(tag).map(|number| number.unwrap_or(default));
        match one(tag::SAMPLES, 1)? {
            1 => {}
            other => return Err(format!("a pixel has {other} values; images have one")),
        }
        let (format, bits) = (one(tag::SAMPLE_FORMAT, 1)?, one(tag::BITS, 1)?);
        let wrong = || format!("pixels of {bits} bits and sample format {format} are not supported");
        let element = element(format, bits).ok_or_else(wrong)?;
        if one(tag::MEANING, 1)? > 1 {
            return Err("its pixels are colours, or numbers of colours; images have counts".into());
        }
        if one(tag::FILL_ORDER, 1)? != 1 && bits % 8 != 0 {
            return Err("its pixels fill bytes from their low bits on (fill order 2), which is not supported".into());
        }
        let required = |tag, what| entries.number(tag)?.ok_or_else(|| format!("it does not say how many {what} it has"));
        let (rows, columns) = (required(tag::ROWS, "rows")?, required(tag::COLUMNS, "columns")?);
        let shape = Shape::new(&[rows, columns]);
        let shape = shape.ok_or_else(|| format!("an image cannot have {rows} x {columns} pixels"))?;
        unpacked_bytes(shape, element, bounds.image_bytes_max)?;
        let is_tiled = entries.has(tag::TILE_COLUMNS);
        let piece_shape = if is_tiled {
            [one(tag::TILE_ROWS, 0)?, one(tag::TILE_COLUMNS, 0)?]
        } else {
            [one(tag::STRIP_ROWS, rows)?.clamp(1, rows), columns]
        };
        let is_piece = Shape::new(&piece_shape).and_then(|piece| unpacked_bytes(piece, element, bounds.image_bytes_max).ok());
        is_piece.ok_or_else(|| format!("it has tiles of {} x {} pixels", piece_shape[0], piece_shape[1]))?;
        let pieces = pieces(entries, blob, is_tiled)?;
        let wanted = rows.div_ceil(piece_shape[0]) * columns.div_ceil(piece_shape[1]);
        let page = Self {
            shape,
            element,
            bits: bits as u32,
            is_big_endian: entries.form.is_big_endian,
            packing: packing(one(tag::COMPRESSION, 1)?)?,
            predictor: predictor(one(tag::PREDICTOR, 1)?, element)?,
            piece_shape,
            is_tiled,
            pieces,
            is_reduced: one(tag::KIND, 0)? & 1 == 1,
            texts: texts(entries, bounds)?,
        };
        page.check(wanted)?;
        Ok(page)
    }

    /// Checks that there are so many pieces, of as many bytes as pixels that are not packed need.
    fn check(&self, wanted: u64) -> Result<(), String> {
        let is = || format!("{} of shape {:?}", self.element.name(), self.shape.dimensions());
        if self.packing == Packing::None && !self.is_tiled {
            let came: u64 = self.pieces.iter().map(|piece| piece.bytes).sum();
            let [rows, columns] = self.edges();
            let bytes = rows * (columns * u64::from(self.bits)).div_ceil(8);
            if came != bytes {
                return Err(format!("{} has {bytes} bytes, but its strips have {came}", is()));
            }
        }
        if self.pieces.len() as u64 != wanted {
            return Err(format!("{} needs {wanted} strips or tiles, but it has {}", is(), self.pieces.len()));
        }
        let short = |n: &usize| self.packing == Packing::None && ![0, self.piece_bytes(*n)].contains(&self.pieces[*n].bytes);
        match (0..self.pieces.len()).find(short) {
            Some(n) => Err(format!("piece {n} has {} bytes, not {}", self.pieces[n].bytes, self.piece_bytes(n))),
            None => Ok(()),
        }
    }
}

fn packing(number: u64) -> Result<Packing, String> {
    Ok(match number {
        1 => Packing::None,
        5 => Packing::Lzw,
        8 | 32946 => Packing::Zlib,
        32773 => Packing::PackBits,
        50000 | 34926 => Packing::Zstd,
        other => {
            let known = "none, LZW, Deflate, PackBits and Zstd are known";
            return Err(format!("its pixels are packed in a way that is not supported (compression {other}); {known}"));
        }
    })
}

fn predictor(number: u64, element: Element) -> Result<Predictor, String> {
    let is_float = matches!(element, Element::Float32 | Element::Float64);
    match (number, is_float) {
        (1, _) => Ok(Predictor::None),
        (2, _) => Ok(Predictor::Difference),
        (3, true) => Ok(Predictor::FloatingPoint),
        (other, _) => Err(format!("predictor {other} of pixels {} is not supported", element.name())),
    }
}

fn element(format: u64, bits: u64) -> Option<Element> {
    Some(match (format, bits) {
        (1 | 4, 1..=8) => Element::Uint8,
        (1 | 4, 9..=16) => Element::Uint16,
        (1 | 4, 17..=32) => Element::Uint32,
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

fn pieces<B: Blob + ?Sized>(entries: &Directory<'_, B>, blob: &B, is_tiled: bool) -> Result<Vec<Piece>, String> {
    let (name, places, bytes) = if is_tiled {
        ("tile", entries.numbers(tag::TILE_PLACES)?, entries.numbers(tag::TILE_BYTES)?)
    } else {
        ("strip", entries.numbers(tag::STRIP_PLACES)?, entries.numbers(tag::STRIP_BYTES)?)
    };
    let places = places.ok_or_else(|| format!("it does not say where its {name}s are"))?;
    let bytes = bytes.ok_or_else(|| format!("it does not say how long its {name}s are"))?;
    if places.len() != bytes.len() {
        return Err(format!("it has different numbers of {name} offsets and {name} lengths"));
    }
    for (n, (at, bytes)) in places.iter().zip(&bytes).enumerate() {
        let end = at.saturating_add(*bytes);
        if end > blob.bytes() {
            return Err(format!("{name} {n} reaches from byte {at} to {end}, but the file has {}", blob.bytes()));
        }
    }
    Ok(places.into_iter().zip(bytes).map(|(at, bytes)| Piece { at, bytes }).collect())
}

fn texts<B: Blob + ?Sized>(entries: &Directory<'_, B>, bounds: &Bounds) -> Result<Vec<(&'static str, String)>, String> {
    let known = [
        ("description", tag::DESCRIPTION),
        ("make", tag::MAKE),
        ("model", tag::MODEL),
        ("software", tag::SOFTWARE),
        ("date", tag::DATE),
    ];
    let mut texts = Vec::new();
    for (name, tag) in known {
        texts.extend(entries.text(tag, name, bounds.text_bytes_max)?.map(|text| (name, text)));
    }
    Ok(texts)
}

/// The pages of a file that are images, in their order. Smaller copies of other pages are left out.
///
/// # Errors
/// What is wrong with the file, and with which page.
pub fn pages<B: Blob + ?Sized>(blob: &B, bounds: &Bounds) -> Result<Vec<Page>, String> {
    let mut directories = Directories::open(blob)?;
    let (mut pages, mut all): (Vec<Page>, usize) = (Vec::new(), 0);
    // Pages may share their tables and texts, so a small file could ask for much memory.
    let (mut pieces, mut text_bytes) = (0, 0);
    while let Some(entries) = directories.next()? {
        let of_page = |why| if all == 0 { why } else { format!("page {all}: {why}") };
        let page = Page::read(&entries, blob, bounds).map_err(of_page)?;
        all += 1;
        pieces += page.pieces.len();
        text_bytes += page.texts.iter().map(|(_, text)| text.len()).sum::<usize>();
        if pieces > PIECES_MAX || text_bytes > TEXT_BYTES_MAX {
            return Err(format!(
                "its first {all} pages have {pieces} strips and tiles and {text_bytes} bytes of texts, too many"
            ));
        }
        if !page.is_reduced {
            pages.push(page);
        }
    }
    match pages.first() {
        Some(only) if pages.len() == 1 => more_than_pages(only).map_or(Ok(pages), Err),
        Some(_) => Ok(pages),
        None => Err("it holds only small copies of images".into()),
    }
}

/// ImageJ puts the images of large files behind one page, and says so only in the description.
fn more_than_pages(page: &Page) -> Option<String> {
    let (_, text) = page.texts.iter().find(|(name, _)| *name == "description")?;
    let said = text.starts_with("ImageJ=").then(|| text.lines().find_map(|line| line.strip_prefix("images=")))??;
    let images = said.trim().parse::<u64>().ok().filter(|images| *images > 1)?;
    Some(format!("it says that it holds {images} images (ImageJ), but it has one page; save it with one page for each image"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_share_one_long_text_are_not_all_kept() {
        const TEXT_BYTES: u32 = 1 << 20;
        let mut file = b"II*\0".to_vec();
        file.extend([0; 4]);
        file.resize(TEXT_BYTES as usize + 8, b'a');
        let mut last = 4;
        for _ in 0..300 {
            let at = file.len() as u32;
            file[last..last + 4].copy_from_slice(&at.to_le_bytes());
            let entries = [
                (256u16, 4u16, 1u32, 1u32),
                (257, 4, 1, 1),
                (258, 3, 1, 8),
                (270, 2, TEXT_BYTES, 8),
                (273, 4, 1, 8),
                (279, 4, 1, 1),
            ];
            file.extend((entries.len() as u16).to_le_bytes());
            for (tag, kind, count, value) in entries {
                file.extend([&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &value.to_le_bytes()].concat());
            }
            last = file.len();
            file.extend([0; 4]);
        }
        let bounds = Bounds { text_bytes_max: 2 << 20, ..Bounds::default() };
        assert!(pages(&file[..], &bounds).unwrap_err().contains("too many"));
        file.truncate(8 + TEXT_BYTES as usize + 5 * 78);
        assert!(pages(&file[..], &bounds).unwrap_err().contains("ends inside its directory"));
    }
}
