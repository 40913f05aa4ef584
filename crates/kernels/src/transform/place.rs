//! Moves pixels without reading their values: turns and flips, cuts out, puts a tile into an image.

use super::dispatch::isa_paths;
use super::transpose::{Turn, transpose};
use crate::isa::Isa;
use konkordia_core::geometry::Orientation;

/// A rectangle of pixels. All fields are in pixels, and neither size is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// First row.
    pub row: usize,
    /// First column.
    pub column: usize,
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
}

impl Window {
    /// True if it is not empty and lies within an image of this size.
    pub fn fits(&self, rows: usize, columns: usize) -> bool {
        let inside = |first: usize, count: usize, all: usize| count > 0 && first.checked_add(count).is_some_and(|end| end <= all);
        inside(self.row, self.rows, rows) && inside(self.column, self.columns, columns)
    }
}

/// Rows and columns of an image after a turn.
pub fn turned(orientation: Orientation, (rows, columns): (usize, usize)) -> (usize, usize) {
    if orientation.is_sideways() { (columns, rows) } else { (rows, columns) }
}

/// Copies a window of an image of `columns` columns to `out`, row by row.
///
/// # Panics
/// If the window does not lie in the image, or `out` has another size than it.
pub fn crop(pixel_bytes: usize, columns: usize, image: &[u8], window: Window, out: &mut [u8]) {
    assert!(window.fits(image.len() / pixel_bytes / columns, columns), "the window lies in the image");
    assert_eq!(out.len(), window.rows * window.columns * pixel_bytes, "the output has the size of the window");
    let (row_bytes, width) = (columns * pixel_bytes, window.columns * pixel_bytes);
    let rows = image.chunks_exact(row_bytes).skip(window.row);
    for (out, row) in out.chunks_exact_mut(width).zip(rows) {
        out.copy_from_slice(&row[window.column * pixel_bytes..][..width]);
    }
}

/// Turns and flips an image of `size` (rows, columns).
///
/// # Panics
/// If the lengths are not those of the image, or pixels do not have 1, 2, 4 or 8 bytes.
pub fn orient(isa: Isa, pixel_bytes: usize, size: (usize, usize), image: &[u8], orientation: Orientation, out: &mut [u8]) {
    assert_eq!(image.len(), out.len(), "an image and itself turned have the same length");
    place(isa, pixel_bytes, size, image, orientation, out, turned(orientation, size).1, (0, 0));
}

/// Puts a tile of `size` (rows, columns), turned, into an image of `columns` columns, with its corner at `at` (row,
/// column).
///
/// # Panics
/// If the tile is not of this size, the turned tile does not lie in the image, or pixels do not have 1, 2, 4 or 8
/// bytes.
#[expect(clippy::too_many_arguments, reason = "a tile, an image, and how the one lies in the other")]
pub fn place(
    isa: Isa,
    pixel_bytes: usize,
    size: (usize, usize),
    tile: &[u8],
    orientation: Orientation,
    image: &mut [u8],
    columns: usize,
    at: (usize, usize),
) {
    match pixel_bytes {
        1 => place_as::<1>(isa, size, tile, orientation, image, columns, at),
        2 => place_as::<2>(isa, size, tile, orientation, image, columns, at),
        4 => place_as::<4>(isa, size, tile, orientation, image, columns, at),
        8 => place_as::<8>(isa, size, tile, orientation, image, columns, at),
        other => panic!("pixels have 1, 2, 4 or 8 bytes, not {other}"),
    }
}

fn place_as<const N: usize>(
    isa: Isa,
    size: (usize, usize),
    tile: &[u8],
    orientation: Orientation,
    image: &mut [u8],
    columns: usize,
    at: (usize, usize),
) {
    let ((tile, rest), (image, _)) = (tile.as_chunks::<N>(), image.as_chunks_mut::<N>());
    assert!(rest.is_empty() && tile.len() == size.0 * size.1, "the tile has {} x {} pixels", size.0, size.1);
    let (rows, wide) = turned(orientation, size);
    let window = Window { row: at.0, column: at.1, rows, columns: wide };
    assert!(window.fits(image.len() / columns, columns), "the tile lies in the image");
    let image = &mut image[at.0 * columns..][..rows * columns];
    let turn = Turn::new(orientation);
    if !turn.is_sideways {
        for (row, line) in tile.chunks_exact(size.1).enumerate() {
            let to = if turn.is_row_reversed { size.0 - 1 - row } else { row };
            let out = &mut image[to * columns + at.1..][..wide];
            out.copy_from_slice(line);
            if turn.is_column_reversed {
                out.reverse();
            }
        }
        return;
    }
    isa_paths!(isa, transpose(tile, size, image, (columns, at.1), turn));
}
