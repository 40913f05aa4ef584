//! The output image: where its tiles lie, and which of their pixels lie where.

use super::opening::{Axis, DoublePixels, Opened};
use super::orientation::Orientation;
use crate::tile::TileFormat;

/// Largest output image: 64 Mpixel, well above the 16M detectors.
pub const MAX_IMAGE_PIXELS: u64 = 1 << 26;

/// Where one tile lies in the output image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Output row of the uppermost pixels of the tile's box.
    pub row: u32,
    /// Output column of the leftmost pixels of the tile's box.
    pub column: u32,
    /// How the tile lies in its box; turned by 90 or 270 degrees, its rows are columns of the image.
    pub orientation: Orientation,
}

impl Placement {
    /// Upright, with the upper left pixel here.
    pub const fn at(row: u32, column: u32) -> Self {
        Self { row, column, orientation: Orientation::UPRIGHT }
    }
}

/// Why placements do not make an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// No tile at all.
    #[error("no tile is placed")]
    Empty,
    /// Two tiles claim the same pixel.
    #[error("tiles {0} and {1} overlap at row {2}, column {3}")]
    Overlap(usize, usize, u32, u32),
    /// A tile reaches beyond the stated image size.
    #[error("tile {tile} ends at row {row}, column {column}, outside the image of {rows} x {columns}")]
    Outside {
        /// Index of the tile.
        tile: usize,
        /// One past its last row.
        row: u64,
        /// One past its last column.
        column: u64,
        /// Rows of the image.
        rows: u32,
        /// Columns of the image.
        columns: u32,
    },
    /// More pixels than [`MAX_IMAGE_PIXELS`].
    #[error("the image would have {0} pixels; at most {MAX_IMAGE_PIXELS} are possible")]
    TooLarge(u64),
}

/// The output image: its size and the place of every tile. Valid by construction: tiles lie inside and do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageGeometry {
    format: TileFormat,
    rows: u32,
    columns: u32,
    double_pixels: DoublePixels,
    placements: Vec<Placement>,
    /// Even and odd tiles before they are turned and placed.
    opened: [Opened; 2],
}

/// Pixels that lie side by side in the output image and at equal distances in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PixelRun {
    /// First pixel in the output image.
    pub output: usize,
    /// Number of pixels.
    pub length: u32,
    /// The tile.
    pub tile: u16,
    /// First pixel in the tile.
    pub tile_pixel: u32,
    /// Tile pixels from one output pixel to the next: 1, -1, or plus or minus the columns of the tile. 1 where `length`
    /// is 1.
    pub step: i32,
}

impl PixelRun {
    /// The tile's pixels, in output order.
    pub fn tile_pixels(self) -> impl Iterator<Item = usize> {
        stepped(self.tile_pixel, self.step, self.length)
    }
}

/// `count` pixels of a tile, at equal distances.
pub(super) fn stepped(first: u32, step: i32, count: u32) -> impl Iterator<Item = usize> {
    (0..i64::from(count)).map(move |k| (i64::from(first) + k * i64::from(step)) as usize)
}

/// Where a pixel of the image lies in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilePlace {
    /// The tile.
    pub tile: usize,
    /// Row and column there, before it is turned; `None` in gaps between its chips and on masked double pixels.
    pub pixel: Option<(u32, u32)>,
}

/// One output pixel of a double pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DoublePart {
    pub output: usize,
    pub tile: usize,
    pub tile_pixel: u32,
    pub part: u8,
    pub parts: u8,
}

impl ImageGeometry {
    /// Checks the placements. `size` is (rows, columns) of the image; without it the image ends where the last tile
    /// ends.
    ///
    /// # Errors
    /// There is no tile, two tiles overlap, one reaches beyond the image, or the image is too large.
    pub fn new(
        format: TileFormat,
        placements: Vec<Placement>,
        size: Option<(u32, u32)>,
        double_pixels: DoublePixels,
    ) -> Result<Self, GeometryError> {
        let opened = [0, 1].map(|tile| Opened::new(&format, tile, double_pixels));
        let mut geometry = Self { format, rows: 0, columns: 0, double_pixels, placements, opened };
        let far = (0..geometry.placements.len()).map(|t| geometry.end(t)).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
        let (rows, columns) = size.map(|(r, c)| (u64::from(r), u64::from(c))).or(far).ok_or(GeometryError::Empty)?;
        far.ok_or(GeometryError::Empty)?;
        let pixels = rows.saturating_mul(columns);
        if pixels > MAX_IMAGE_PIXELS {
            return Err(GeometryError::TooLarge(pixels));
        }
        (geometry.rows, geometry.columns) = (rows as u32, columns as u32);
        geometry.check_tiles()?;
        Ok(geometry)
    }

    fn check_tiles(&self) -> Result<(), GeometryError> {
        for (tile, a) in self.placements.iter().enumerate() {
            let (row, column) = self.end(tile);
            if row > u64::from(self.rows) || column > u64::from(self.columns) {
                return Err(GeometryError::Outside { tile, row, column, rows: self.rows, columns: self.columns });
            }
            for (other, b) in self.placements[..tile].iter().enumerate() {
                let first = (a.row.max(b.row), a.column.max(b.column));
                let end = (row.min(self.end(other).0), column.min(self.end(other).1));
                if u64::from(first.0) < end.0 && u64::from(first.1) < end.1 {
                    return Err(GeometryError::Overlap(other, tile, first.0, first.1));
                }
            }
        }
        Ok(())
    }

    /// One past the last row and column of a tile's box.
    fn end(&self, tile: usize) -> (u64, u64) {
        let (p, size) = (&self.placements[tile], self.box_size(tile));
        (u64::from(p.row) + u64::from(size.0), u64::from(p.column) + u64::from(size.1))
    }

    /// Tiles one below the other without gaps: the raw layout of `count` tiles, double pixels kept.
    ///
    /// # Errors
    /// As of [`Self::stacked_with`].
    pub fn stacked(format: TileFormat, count: u32) -> Result<Self, GeometryError> {
        Self::stacked_with(format, count, DoublePixels::Keep)
    }

    /// Tiles one below the other without gaps. The two halves of a JUNGFRAU module with two interfaces adjoin.
    ///
    /// # Errors
    /// There is no tile, or the image is too large.
    pub fn stacked_with(format: TileFormat, count: u32, double_pixels: DoublePixels) -> Result<Self, GeometryError> {
        let rows = double_pixels.tile_size(&format, 0).0;
        let too_large = || GeometryError::TooLarge(u64::from(count) * u64::from(format.pixels()));
        let placements = (0..count).map(|t| Some(Placement::at(t.checked_mul(rows)?, 0))).collect::<Option<_>>();
        Self::new(format, placements.ok_or_else(too_large)?, None, double_pixels)
    }

    /// Format of every tile.
    pub fn format(&self) -> &TileFormat {
        &self.format
    }

    /// Rows of the output image.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Columns of the output image.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Pixels of the output image.
    pub fn pixels(&self) -> usize {
        self.rows as usize * self.columns as usize
    }

    /// What is done with double pixels.
    pub fn double_pixels(&self) -> DoublePixels {
        self.double_pixels
    }

    /// Place of every tile, in stream order.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// Rows and columns of the output image that the box of tile `tile` takes.
    pub fn box_size(&self, tile: usize) -> (u32, u32) {
        let opened = &self.opened[tile % 2];
        self.placements[tile].orientation.turned((opened.rows.length(), opened.columns.length()))
    }

    /// The tile whose box has this pixel of the image, and its pixel there; `None` between tiles.
    pub fn tile_at(&self, row: u32, column: u32) -> Option<TilePlace> {
        let is_in = |tile: &usize| {
            let (p, (rows, columns)) = (&self.placements[*tile], self.box_size(*tile));
            (p.row..p.row + rows).contains(&row) && (p.column..p.column + columns).contains(&column)
        };
        let tile = (0..self.placements.len()).find(is_in)?;
        let p = &self.placements[tile];
        let o = Lie::new(&self.opened[tile % 2], p.orientation, self.format.columns);
        let along = |axis: &Axis, at: u32, is_reversed: bool| axis.tile_at(if is_reversed { axis.length() - 1 - at } else { at });
        let down = along(o.down, row - p.row, o.is_down_reversed);
        let across = along(o.across, column - p.column, o.is_across_reversed);
        let pixel = down.zip(across).map(|(down, across)| down * o.down_step as u32 + across * o.across_step as u32);
        Some(TilePlace { tile, pixel: pixel.map(|pixel| (pixel / self.format.columns, pixel % self.format.columns)) })
    }

    /// Calls `visit` for each run of pixels. A run is a part of one output row; split double pixels are in 2 or 4 runs.
    /// Masked double pixels and gaps are in none.
    pub fn for_each_run(&self, mut visit: impl FnMut(PixelRun)) {
        for (tile, p) in self.placements.iter().enumerate() {
            let o = Lie::new(&self.opened[tile % 2], p.orientation, self.format.columns);
            for box_row in 0..o.down.length() {
                let down = if o.is_down_reversed { o.down.length() - 1 - box_row } else { box_row };
                let Some(down) = o.down.tile_at(down) else { continue };
                let output = (p.row + box_row) as usize * self.columns as usize + p.column as usize;
                for s in &o.across.stretches {
                    let (at, across, step) = if o.is_across_reversed {
                        (o.across.length() - s.opened - s.length, s.tile + s.length - 1, -o.across_step)
                    } else {
                        (s.opened, s.tile, o.across_step)
                    };
                    visit(PixelRun {
                        output: output + at as usize,
                        length: s.length,
                        tile: tile as u16,
                        tile_pixel: down * o.down_step as u32 + across * o.across_step as u32,
                        step: if s.length == 1 { 1 } else { step },
                    });
                }
            }
        }
    }

    /// Calls `visit(output_pixel)` for every output pixel that a masked double pixel covers; in [`Self::arrange`] and
    /// in the gather list these look like gaps. Nothing to visit unless double pixels are masked.
    pub fn for_each_masked_double(&self, mut visit: impl FnMut(usize)) {
        if self.double_pixels == DoublePixels::Mask {
            self.for_each_double_part(|part| visit(part.output));
        }
    }

    /// All output pixels of all double pixels. Parts are numbered row by row as the pixel lies in the tile, whatever
    /// the orientation.
    pub(super) fn for_each_double_part(&self, mut visit: impl FnMut(DoublePart)) {
        for (tile, p) in self.placements.iter().enumerate() {
            let opened = &self.opened[tile % 2];
            let all_columns: Vec<u32> = (0..self.format.columns).collect();
            let double_columns: Vec<u32> = all_columns.iter().copied().filter(|c| opened.columns.place(*c).1 == 2).collect();
            for row in 0..self.format.rows {
                let columns = if opened.rows.place(row).1 == 2 { &all_columns } else { &double_columns };
                for &column in columns {
                    let ((first_row, height), (first_column, width)) = (opened.rows.place(row), opened.columns.place(column));
                    for part in 0..height * width {
                        let at = (first_row + part / width, first_column + part % width);
                        let (box_row, box_column) = in_box(opened, p.orientation, at);
                        visit(DoublePart {
                            output: (p.row + box_row) as usize * self.columns as usize + (p.column + box_column) as usize,
                            tile,
                            tile_pixel: row * self.format.columns + column,
                            part: part as u8,
                            parts: (height * width) as u8,
                        });
                    }
                }
            }
        }
    }

    /// Copies planes of the tiles, in stream order (each with one value per tile pixel, row by row), into a plane of
    /// the output image (rows x columns). Split double pixels get 2 or 4 copies, gaps and masked ones get `gap`.
    ///
    /// # Panics
    /// If there is not one plane per tile, or a plane is too short.
    pub fn arrange<T: Copy>(&self, tiles: &[&[T]], gap: T) -> Vec<T> {
        assert_eq!(tiles.len(), self.placements.len(), "one plane per tile");
        let mut out = vec![gap; self.pixels()];
        self.for_each_run(|run| {
            let (source, out) = (tiles[usize::from(run.tile)], &mut out[run.output..][..run.length as usize]);
            if run.step == 1 {
                out.copy_from_slice(&source[run.tile_pixel as usize..][..out.len()]);
            } else {
                out.iter_mut().zip(run.tile_pixels()).for_each(|(out, pixel)| *out = source[pixel]);
            }
        });
        out
    }
}

/// A tile as seen in the output image: which of its axes runs down and which across, and in which direction.
struct Lie<'a> {
    down: &'a Axis,
    across: &'a Axis,
    is_down_reversed: bool,
    is_across_reversed: bool,
    /// Tile pixels from one place of the axis to the next.
    down_step: i32,
    across_step: i32,
}

impl<'a> Lie<'a> {
    fn new(opened: &'a Opened, orientation: Orientation, columns: u32) -> Self {
        let rows = (&opened.rows, orientation.is_row_reversed(), columns as i32);
        let columns = (&opened.columns, orientation.is_column_reversed(), 1);
        let (down, across) = if orientation.is_sideways() { (columns, rows) } else { (rows, columns) };
        Self {
            down: down.0,
            across: across.0,
            is_down_reversed: down.1,
            is_across_reversed: across.1,
            down_step: down.2,
            across_step: across.2,
        }
    }
}

/// Row and column inside the box, for a place (row, column) in the opened tile.
fn in_box(opened: &Opened, orientation: Orientation, at: (u32, u32)) -> (u32, u32) {
    let turn = |at, length, is_reversed| if is_reversed { length - 1 - at } else { at };
    orientation.turned((
        turn(at.0, opened.rows.length(), orientation.is_row_reversed()),
        turn(at.1, opened.columns.length(), orientation.is_column_reversed()),
    ))
}
