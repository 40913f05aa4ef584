//! Turns the rows of a tile into the columns of an image.

use konkordia_core::geometry::Orientation;

/// How the rows and columns of a tile run in the image.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub is_sideways: bool,
    /// A higher row of the tile comes earlier.
    pub is_row_reversed: bool,
    /// A higher column of the tile comes earlier.
    pub is_column_reversed: bool,
}

impl Turn {
    pub fn new(orientation: Orientation) -> Self {
        let quarters = orientation.rotate.deg() / 90;
        Self {
            is_sideways: orientation.is_sideways(),
            is_row_reversed: orientation.flip_rows != matches!(quarters, 1 | 2),
            is_column_reversed: matches!(quarters, 2 | 3),
        }
    }
}

/// Largest edge, in pixels, of a square that is transposed in the cache.
const EDGE_MAX: usize = 128;

/// Edge of a square for pixels of this size. A square takes at most 64 KiB of the second-level cache, and its lines are
/// long enough that memory is read and written in runs.
const fn edge(pixel_bytes: usize) -> usize {
    if pixel_bytes <= 4 { EDGE_MAX } else { EDGE_MAX / 2 }
}

/// Pixels of a tile to be transposed: `rows` of `columns`. The first pixel is at `first`, and each next row lies
/// `stride` further on (or back).
#[derive(Clone, Copy)]
pub(super) struct Square {
    pub first: usize,
    pub stride: isize,
    pub rows: usize,
    pub columns: usize,
}

impl Square {
    /// Where a row begins.
    #[inline(always)]
    pub fn row(&self, row: usize) -> usize {
        self.first.wrapping_add_signed(self.stride * row as isize)
    }
}

/// Transposes the pixels of a square except the first `done_columns` of its first `done_rows` rows. `out` has a line of
/// `edge` pixels for each column.
#[inline(always)]
pub(super) fn transpose_rest<const N: usize>(
    tile: &[[u8; N]],
    square: Square,
    (done_rows, done_columns): (usize, usize),
    out: &mut [[u8; N]],
    edge: usize,
) {
    for row in 0..square.rows {
        let from = if row < done_rows { done_columns } else { 0 };
        let line = &tile[square.row(row)..][..square.columns];
        for (column, pixel) in line.iter().enumerate().skip(from) {
            out[column * edge + row] = *pixel;
        }
    }
}

/// The reference.
pub(super) fn transpose<const N: usize>(
    tile: &[[u8; N]],
    size: (usize, usize),
    image: &mut [[u8; N]],
    lines: (usize, usize),
    turn: Turn,
) {
    by_squares(tile, size, image, lines, turn, |tile, square, out, edge| transpose_rest(tile, square, (0, 0), out, edge));
}

/// Turns rows of the tile into columns of the image, square by square. `one` transposes a square into a buffer; whole
/// lines of the buffer are then copied to the image. The buffer is needed because lines of images whose length is a
/// power of two would evict each other from the cache. `image` starts with the first row of the tile's place;
/// `(columns, first)` are its columns and the first column of the place.
#[inline(always)]
pub(super) fn by_squares<const N: usize>(
    tile: &[[u8; N]],
    (rows, tile_columns): (usize, usize),
    image: &mut [[u8; N]],
    (columns, first): (usize, usize),
    turn: Turn,
    mut one: impl FnMut(&[[u8; N]], Square, &mut [[u8; N]], usize),
) {
    let edge = edge(N);
    let mut buffer = [[0; N]; EDGE_MAX * EDGE_MAX];
    let buffer = &mut buffer[..edge * edge];
    for row in (0..rows).step_by(edge) {
        let high = edge.min(rows - row);
        let (top, stride) =
            if turn.is_row_reversed { (row + high - 1, -(tile_columns as isize)) } else { (row, tile_columns as isize) };
        let left = first + if turn.is_row_reversed { rows - row - high } else { row };
        for column in (0..tile_columns).step_by(edge) {
            let wide = edge.min(tile_columns - column);
            one(tile, Square { first: top * tile_columns + column, stride, rows: high, columns: wide }, buffer, edge);
            for (column, line) in (column..column + wide).zip(buffer.chunks_exact(edge)) {
                let to = if turn.is_column_reversed { tile_columns - 1 - column } else { column };
                image[to * columns + left..][..high].copy_from_slice(&line[..high]);
            }
        }
    }
}
