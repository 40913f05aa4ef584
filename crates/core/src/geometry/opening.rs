//! Double pixels of JUNGFRAU modules: at the borders of its chips a pixel is twice as wide or high, so that the sensor has no dead lines; where
//! four chips meet it is both. An opened tile gives such a pixel the 2 or 4 output pixels that it covers (protocols 1.3, 1.5).

use super::GeometryError;
use crate::tile::{DetectorKind, TileFormat};

/// Rows and columns of one chip.
const CHIP: u32 = 256;

/// What the output image makes of double pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DoublePixels {
    /// One output pixel like any other: a module is 512 x 1024, and up to 3 columns and 1 row from its true place at the rim.
    #[default]
    Keep,
    /// Its value is shared between the 2 or 4 output pixels that it covers: a module is 514 x 1030.
    Split,
    /// The output pixels that it covers are masked: a module is 514 x 1030.
    Mask,
}

impl DoublePixels {
    /// All.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Split, Self::Mask];

    /// Name as the configuration spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Split => "split",
            Self::Mask => "mask",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Rows and columns of tile `tile` before it is turned: those of the format, or of the opened tile.
    pub fn tile_size(self, format: &TileFormat, tile: usize) -> Result<(u32, u32), GeometryError> {
        let opened = Opened::new(format, tile, self)?;
        Ok((opened.rows.length(), opened.columns.length()))
    }
}

/// Pixels of a tile that lie side by side in the opened tile too, along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// First place in the opened tile.
    pub opened: u32,
    /// First row or column of the tile.
    pub tile: u32,
    /// Number of pixels.
    pub length: u32,
}

/// One axis of an opened tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Where each row or column of the tile begins in the opened tile; one more for the end.
    starts: Vec<u32>,
    /// What fills the opened axis, in order; where masked double pixels lie, nothing does.
    pub stretches: Vec<Stretch>,
}

impl Axis {
    /// `is_double` says which of the `length` rows or columns are; none is when double pixels are kept.
    fn new(length: u32, mode: DoublePixels, is_double: impl Fn(u32) -> bool) -> Self {
        let mut axis = Self { starts: vec![0], stretches: Vec::new() };
        let mut end = 0;
        for tile in 0..length {
            let width = if mode != DoublePixels::Keep && is_double(tile) { 2 } else { 1 };
            if width == 1 || mode == DoublePixels::Split {
                (end..end + width).for_each(|opened| axis.append(opened, tile));
            }
            end += width;
            axis.starts.push(end);
        }
        axis
    }

    fn append(&mut self, opened: u32, tile: u32) {
        match self.stretches.last_mut() {
            Some(last) if last.opened + last.length == opened && last.tile + last.length == tile => last.length += 1,
            _ => self.stretches.push(Stretch { opened, tile, length: 1 }),
        }
    }

    /// Rows or columns of the opened tile.
    pub fn length(&self) -> u32 {
        self.starts[self.starts.len() - 1]
    }

    /// Where row or column `tile` lies in the opened tile, and how many pixels it covers.
    pub fn place(&self, tile: u32) -> (u32, u32) {
        let start = self.starts[tile as usize];
        (start, self.starts[tile as usize + 1] - start)
    }

    /// The row or column of the tile at a place in the opened tile; `None` where it is masked.
    pub fn tile_at(&self, opened: u32) -> Option<u32> {
        let next = self.stretches.partition_point(|s| s.opened <= opened);
        let s = self.stretches.get(next.checked_sub(1)?)?;
        (opened < s.opened + s.length).then(|| s.tile + opened - s.opened)
    }
}

/// A tile before it is turned and placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub rows: Axis,
    pub columns: Axis,
}

impl Opened {
    /// Tile `tile` of the detector. Of two JUNGFRAU interfaces the even streams carry module rows 0 to 255, the odd ones 256 to 511.
    pub fn new(format: &TileFormat, tile: usize, mode: DoublePixels) -> Result<Self, GeometryError> {
        if mode != DoublePixels::Keep && format.kind != DetectorKind::Jungfrau {
            return Err(GeometryError::NoDoublePixels(format.kind.name()));
        }
        let module = (2 * CHIP, 4 * CHIP);
        let first_row = if format.rows < module.0 { tile as u32 % 2 * format.rows } else { 0 };
        // The two rows or columns at each border between chips.
        let at_border =
            |at: u32, end: u32| (at.is_multiple_of(CHIP) && at > 0) || ((at + 1).is_multiple_of(CHIP) && at + 1 < end);
        Ok(Self {
            rows: Axis::new(format.rows, mode, |row| at_border(first_row + row, module.0)),
            columns: Axis::new(format.columns, mode, |column| at_border(column, module.1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_columns_and_rows_are_those_at_chip_borders() {
        let doubles = |axis: &Axis| (0..axis.starts.len() as u32 - 1).filter(|t| axis.place(*t).1 == 2).collect::<Vec<_>>();
        let module = Opened::new(&TileFormat::jungfrau(1).unwrap(), 3, DoublePixels::Split).unwrap();
        assert_eq!((module.rows.length(), module.columns.length()), (514, 1030));
        assert_eq!(doubles(&module.rows), [255, 256]);
        assert_eq!(doubles(&module.columns), [255, 256, 511, 512, 767, 768]);
        // 0..=255, 255..=256, 256..=511 and so on: a double pixel ends one stretch and begins the next.
        let (rows, columns) = (module.rows.stretches.len(), module.columns.stretches.len());
        assert_eq!((rows, columns), (3, 7));
        assert_eq!([255, 256].map(|c| module.columns.place(c)), [(255, 2), (257, 2)]);
        assert_eq!([255, 256, 257, 258, 259].map(|o| module.columns.tile_at(o)), [255, 255, 256, 256, 257].map(Some));
        for (tile, double) in [(0, 255), (1, 0), (6, 255), (7, 0)] {
            let half = Opened::new(&TileFormat::jungfrau(2).unwrap(), tile, DoublePixels::Split).unwrap();
            assert_eq!((half.rows.length(), doubles(&half.rows)), (257, vec![double]));
            assert_eq!(half.columns, module.columns);
        }
    }

    #[test]
    fn masked_pixels_have_a_place_but_no_source() {
        let module = Opened::new(&TileFormat::jungfrau(1).unwrap(), 0, DoublePixels::Mask).unwrap();
        assert_eq!((module.rows.length(), module.columns.length()), (514, 1030));
        assert_eq!([254, 255, 258, 259].map(|o| module.rows.tile_at(o)), [Some(254), None, None, Some(257)]);
        assert_eq!(module.columns.stretches.len(), 4);
        let kept = Opened::new(&TileFormat::jungfrau(1).unwrap(), 0, DoublePixels::Keep).unwrap();
        assert_eq!((kept.rows.length(), kept.columns.length(), kept.rows.stretches.len()), (512, 1024, 1));
        let eiger = TileFormat::eiger(16).unwrap();
        assert!(Opened::new(&eiger, 0, DoublePixels::Keep).is_ok());
        assert_eq!(DoublePixels::Split.tile_size(&eiger, 0), Err(GeometryError::NoDoublePixels("eiger")));
    }
}
