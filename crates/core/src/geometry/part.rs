//! Modules as parts of the image.

/// A part of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First row.
    pub row: u32,
    /// First column.
    pub column: u32,
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
}

impl Part {
    /// The rectangle around both.
    fn join(self, other: Self) -> Self {
        let (row, column) = (self.row.min(other.row), self.column.min(other.column));
        let end = (self.row + self.rows).max(other.row + other.rows);
        let right = (self.column + self.columns).max(other.column + other.columns);
        Self { row, column, rows: end - row, columns: right - column }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let rows = self.row < other.row + other.rows && other.row < self.row + self.rows;
        rows && self.column < other.column + other.columns && other.column < self.column + self.columns
    }
}

/// The modules of a detector in the image: the rectangle around the tiles of each, of which a module has `each`. Where
/// such rectangles overlap (tiles placed one by one), every tile is a module; `None` if even these overlap, or there is
/// none.
pub fn modules_of(tiles: &[Part], each: usize) -> Option<Vec<Part>> {
    let joined = |each: usize| tiles.chunks(each).filter_map(|module| module.iter().copied().reduce(Part::join)).collect();
    let is_apart = |parts: &Vec<Part>| {
        !parts.is_empty() && parts.iter().enumerate().all(|(n, part)| !parts[..n].iter().any(|other| part.overlaps(other)))
    };
    [each.max(1), 1].into_iter().map(joined).find(is_apart)
}
