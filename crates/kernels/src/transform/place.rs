//! Where pixels lie: turn and flip, cut out, put a tile into an image. Nothing here looks at what a pixel means.

use super::isa_paths;
use crate::isa::Isa;
use konkordia_core::geometry::Orientation;

/// A rectangle of pixels. All four in pixels, none of the sizes 0.
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
/// If the lengths are not those of the image, or pixels have not 1, 2, 4 or 8 bytes.
pub fn orient(isa: Isa, pixel_bytes: usize, size: (usize, usize), image: &[u8], orientation: Orientation, out: &mut [u8]) {
    assert_eq!(image.len(), out.len(), "an image and itself turned have the same length");
    place(isa, pixel_bytes, size, image, orientation, out, turned(orientation, size).1, (0, 0));
}

/// Puts a tile of `size` (rows, columns), turned, into an image of `columns` columns, with its corner at `at` (row, column).
///
/// # Panics
/// If the tile is not of this size, the turned tile does not lie in the image, or pixels have not 1, 2, 4 or 8 bytes.
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

/// How the rows and columns of a tile run in the image.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    is_sideways: bool,
    /// A higher row of the tile comes earlier.
    is_row_reversed: bool,
    /// A higher column of the tile comes earlier.
    is_column_reversed: bool,
}

impl Turn {
    fn new(orientation: Orientation) -> Self {
        let quarters = orientation.rotate.deg() / 90;
        Self {
            is_sideways: orientation.is_sideways(),
            is_row_reversed: orientation.flip_rows != matches!(quarters, 1 | 2),
            is_column_reversed: matches!(quarters, 2 | 3),
        }
    }
}

/// Edge of the square that is transposed at once.
const EDGE: usize = 8;
/// Squares side by side: their rows of the tile are whole cache lines, which stay in the first-level cache until they are used up.
const BAND: usize = 64;

/// Rows of the tile become columns of the image, by squares; what squares do not cover goes pixel by pixel. `image` starts with the first
/// row of the tile's place, `(columns, first)` are its columns and the first of the place.
#[inline(always)]
pub(super) fn transpose<const N: usize>(
    tile: &[[u8; N]],
    (rows, tile_columns): (usize, usize),
    image: &mut [[u8; N]],
    (columns, first): (usize, usize),
    turn: Turn,
) {
    let column_of = |row: usize| first + if turn.is_row_reversed { rows - 1 - row } else { row };
    let row_of = |column: usize| if turn.is_column_reversed { tile_columns - 1 - column } else { column };
    let (square_rows, square_columns) = (rows / EDGE * EDGE, tile_columns / EDGE * EDGE);
    for band in (0..square_columns).step_by(BAND) {
        for row in (0..square_rows).step_by(EDGE) {
            for column in (band..square_columns.min(band + BAND)).step_by(EDGE) {
                let mut square = [[[0; N]; EDGE]; EDGE];
                for i in 0..EDGE {
                    let line: &[[u8; N]; EDGE] =
                        tile[(row + i) * tile_columns + column..].first_chunk().expect("a square is inside");
                    let i = if turn.is_row_reversed { EDGE - 1 - i } else { i };
                    for j in 0..EDGE {
                        square[j][i] = line[j];
                    }
                }
                let left = column_of(if turn.is_row_reversed { row + EDGE - 1 } else { row });
                for (j, line) in square.iter().enumerate() {
                    image[row_of(column + j) * columns + left..][..EDGE].copy_from_slice(line);
                }
            }
        }
    }
    for row in 0..rows {
        let from = if row < square_rows { square_columns } else { 0 };
        for column in from..tile_columns {
            image[row_of(column) * columns + column_of(row)] = tile[row * tile_columns + column];
        }
    }
}
