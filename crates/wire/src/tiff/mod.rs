//! TIFF files: what camservers, fabio, tifffile and microscopes write. [`Image`] is the one image of a file that came
//! as a message, not packed and in strips; [`pages`] finds all images of a file, packed or not, in strips or tiles.
//! Source: TIFF 6.0, its supplements, BigTIFF; files of a PILATUS 1M, of fabio and of tifffile.
//!
//! Facts relied on: `II` or `MM` gives the byte order; then come 42 and the place of the first directory, which is a
//! count, 12 bytes for each entry (tag, type, count, value or its place), and the place of the next directory or 0.
//! BigTIFF has 43 there, and 8 bytes for counts and places. Pilatus puts its header lines into the description (see
//! [`crate::cbf::items`]). Files of DECTRIS and fabio have one strip or one per row. Pixels of 1 to 31 bits share
//! bytes, the high bits first, and each row begins with a byte of its own.

mod directory;
mod page;
mod write;

pub use directory::MAGICS;
pub use page::{Packing, Page, Piece, Predictor, pages};
pub use write::{Texts, Writer, first_bytes};

use crate::stream::{Bounds, Element, Refusal, Shape};
use directory::Directories;
use std::borrow::Cow;

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
        let entries = Directories::open(bytes)?.next()?.ok_or("it has no directory")?;
        if entries.next != 0 {
            return Err("it holds more than one image".into());
        }
        let page = Page::read(&entries, bytes, bounds)?;
        if page.is_tiled {
            return Err("pixels in tiles are not supported".into());
        }
        if page.packing != Packing::None {
            return Err(format!("its pixels are packed ({:?}); in messages that is not supported", page.packing));
        }
        if page.bits != page.element.bits() {
            return Err(format!("pixels of {} bits are not supported in messages", page.bits));
        }
        if page.predictor != Predictor::None {
            return Err("its pixels are differences (predictor), which is not supported in messages".into());
        }
        let texts = page.texts.iter().map(|(name, text)| (*name, Cow::Owned(text.clone()))).collect();
        let (shape, element, is_big_endian) = (page.shape, page.element, page.is_big_endian);
        Ok(Self { shape, element, is_big_endian, pieces: joined(bytes, &page.pieces), texts })
    }
}

/// The pieces, with those that follow each other in one.
fn joined<'a>(bytes: &'a [u8], pieces: &[Piece]) -> Vec<&'a [u8]> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for piece in pieces {
        let (start, end) = (piece.at as usize, (piece.at + piece.bytes) as usize);
        match ranges.last_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges.into_iter().map(|(start, end)| &bytes[start..end]).collect()
}
