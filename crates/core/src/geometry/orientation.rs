//! The eight ways in which a rectangle of pixels can lie in the output image.

/// Quarter turns clockwise, as seen in the output image (row 0 above, column 0 at the left).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quarter {
    /// Not turned.
    #[default]
    Deg0,
    /// What was above is at the right.
    Deg90,
    /// Upside down.
    Deg180,
    /// What was above is at the left.
    Deg270,
}

impl Quarter {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Deg0, Self::Deg90, Self::Deg180, Self::Deg270];

    /// From degrees clockwise: 0, 90, 180 or 270.
    pub const fn from_deg(degrees: u32) -> Option<Self> {
        match degrees {
            0 => Some(Self::Deg0),
            90 => Some(Self::Deg90),
            180 => Some(Self::Deg180),
            270 => Some(Self::Deg270),
            _ => None,
        }
    }

    /// Degrees clockwise.
    pub const fn deg(self) -> u32 {
        self as u32 * 90
    }
}

/// How a tile lies in the output image: its rows are flipped first (or not), then the result is turned clockwise.
/// Flipping both rows and columns equals a turn of 180 degrees, so these values are all 8 symmetries, each of them
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Orientation {
    /// Before the turn: true if data row 0 is the lowest.
    pub flip_rows: bool,
    /// The turn.
    pub rotate: Quarter,
}

impl Orientation {
    /// Row 0 above, column 0 at the left.
    pub const UPRIGHT: Self = Self { flip_rows: false, rotate: Quarter::Deg0 };
    /// Row 0 below, column 0 at the left.
    pub const FLIPPED: Self = Self { flip_rows: true, rotate: Quarter::Deg0 };

    /// Rows and columns are flipped (in any order), then the result is turned.
    pub fn new(flip_rows: bool, flip_columns: bool, rotate: Quarter) -> Self {
        let turns = rotate as usize + if flip_columns { 2 } else { 0 };
        Self { flip_rows: flip_rows != flip_columns, rotate: Quarter::ALL[turns % 4] }
    }

    /// All eight.
    pub fn all() -> impl Iterator<Item = Self> {
        Quarter::ALL.into_iter().flat_map(|rotate| [false, true].map(|flip_rows| Self { flip_rows, rotate }))
    }

    /// True if rows of the tile are columns of the output image.
    pub const fn is_sideways(self) -> bool {
        matches!(self.rotate, Quarter::Deg90 | Quarter::Deg270)
    }

    /// Rows and columns that a tile of `size` (rows, columns) takes in the output image.
    pub const fn turned(self, size: (u32, u32)) -> (u32, u32) {
        if self.is_sideways() { (size.1, size.0) } else { size }
    }

    /// This orientation, followed by `next`.
    pub fn then(self, next: Self) -> Self {
        // A flip after a turn reverses the sense of the turn.
        let turns = next.rotate as usize + if next.flip_rows { 4 - self.rotate as usize } else { self.rotate as usize };
        Self { flip_rows: self.flip_rows != next.flip_rows, rotate: Quarter::ALL[turns % 4] }
    }

    /// Where a point (row, column) of a tile of `size` (rows, columns) lies in the turned tile, in pixels. The first
    /// pixel spans 0 to 1 in both directions. NaN stands for an unknown value.
    pub fn moved(self, size: (f64, f64), at: (f64, f64)) -> (f64, f64) {
        let row = if self.is_row_reversed() { size.0 - at.0 } else { at.0 };
        let column = if self.is_column_reversed() { size.1 - at.1 } else { at.1 };
        if self.is_sideways() { (column, row) } else { (row, column) }
    }

    /// The steps from one row of the turned tile to the next, and from one column to the next, each in rows and columns
    /// of the tile.
    pub fn steps(self) -> [[f64; 2]; 2] {
        let along_rows = [if self.is_row_reversed() { -1.0 } else { 1.0 }, 0.0];
        let along_columns = [0.0, if self.is_column_reversed() { -1.0 } else { 1.0 }];
        if self.is_sideways() { [along_columns, along_rows] } else { [along_rows, along_columns] }
    }

    /// True if a higher row of the tile comes earlier in the output image.
    pub(super) const fn is_row_reversed(self) -> bool {
        self.flip_rows != matches!(self.rotate, Quarter::Deg90 | Quarter::Deg180)
    }

    /// True if a higher column of the tile comes earlier in the output image.
    pub(super) const fn is_column_reversed(self) -> bool {
        matches!(self.rotate, Quarter::Deg180 | Quarter::Deg270)
    }
}

/// As people write it: "upright", "rows flipped", "turned by 90 degrees", "rows flipped, turned by 270 degrees".
impl std::fmt::Display for Orientation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.flip_rows, self.rotate) {
            (false, Quarter::Deg0) => f.write_str("upright"),
            (true, Quarter::Deg0) => f.write_str("rows flipped"),
            (false, turn) => write!(f, "turned by {} degrees", turn.deg()),
            (true, turn) => write!(f, "rows flipped, turned by {} degrees", turn.deg()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flips_of_columns_are_flips_of_rows_and_half_a_turn() {
        assert_eq!(Orientation::new(false, true, Quarter::Deg0), Orientation { flip_rows: true, rotate: Quarter::Deg180 });
        assert_eq!(Orientation::new(true, true, Quarter::Deg180), Orientation::UPRIGHT);
        assert_eq!(Orientation::new(true, true, Quarter::Deg270), Orientation { flip_rows: false, rotate: Quarter::Deg90 });
        assert_eq!(Orientation::all().collect::<std::collections::HashSet<_>>().len(), 8);
        for quarter in Quarter::ALL {
            assert_eq!(Quarter::from_deg(quarter.deg()), Some(quarter));
        }
        assert_eq!(Quarter::from_deg(45), None);
    }

    /// Where the pixel (row, column) of a tile of `size` lies after the flip and each quarter turn are done one after
    /// the other.
    fn by_hand(o: Orientation, mut size: (u32, u32), mut at: (u32, u32)) -> (u32, u32) {
        if o.flip_rows {
            at.0 = size.0 - 1 - at.0;
        }
        for _ in 0..o.rotate as u32 {
            (at, size) = ((at.1, size.0 - 1 - at.0), (size.1, size.0));
        }
        at
    }

    #[test]
    fn points_move_as_pixels_do() {
        let (size, middle) = ((5, 3), |(row, column): (u32, u32)| (f64::from(row) + 0.5, f64::from(column) + 0.5));
        let real = (5.0, 3.0);
        for (first, pixel) in Orientation::all().flat_map(|o| [(0, 0), (4, 1), (2, 2)].map(|pixel| (o, pixel))) {
            let once = by_hand(first, size, pixel);
            assert_eq!(first.moved(real, middle(pixel)), middle(once), "{first}");
            let [down, right] = first.steps();
            for (step, next) in [(down, (1.0, 0.0)), (right, (0.0, 1.0))] {
                let (row, column) = middle(pixel);
                let (row, column) = first.moved(real, (row + step[0], column + step[1]));
                assert_eq!((row, column), (middle(once).0 + next.0, middle(once).1 + next.1), "{first}");
            }
            for second in Orientation::all() {
                let twice = by_hand(second, first.turned(size), once);
                assert_eq!(by_hand(first.then(second), size, pixel), twice, "{first}, then {second}");
            }
        }
        let (row, column) = Orientation::FLIPPED.moved((f64::NAN, 3.0), (1.0, 2.0));
        assert!(row.is_nan() && column == 2.0, "the rows are not known");
    }
}
