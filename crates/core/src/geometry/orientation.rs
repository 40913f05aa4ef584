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

/// How a tile lies in the output image: its rows are flipped first (or not), then the result is turned clockwise. Two flips and a turn of
/// 180 degrees are the same, so that these are all 8 symmetries, each with one value.
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
}
