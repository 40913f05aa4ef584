//! Double pixels. At the borders between chips a pixel is twice as wide or twice as high, so that the sensor has no
//! dead lines; where four chips meet it is both. JUNGFRAU and EIGER modules are 2 x 4 such chips. In an opened tile a
//! double pixel takes the 2 or 4 output pixels that it covers (docs/protocols.md 1.3, 1.5).

use crate::tile::{DetectorKind, TileFormat};

/// Rows and columns of one chip.
const CHIP: u32 = 256;

/// What is done with double pixels in the output image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DoublePixels {
    /// One output pixel like any other: a module is 512 x 1024. At its rim, pixels are up to 3 columns and 1 row away
    /// from their true places.
    #[default]
    Keep,
    /// Its value is shared between the 2 or 4 output pixels that it covers: a module is 514 x 1030.
    Split,
    /// The output pixels that it covers are masked: a module is 514 x 1030.
    Mask,
    /// Its whole value stands in the output pixel next to the rest of its chip. The other pixels that it covers form a
    /// gap of two pixels between the chips: a module is 514 x 1030.
    Gap,
}

impl DoublePixels {
    /// All.
    pub const ALL: [Self; 4] = [Self::Keep, Self::Split, Self::Mask, Self::Gap];

    /// Name as the configuration spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Split => "split",
            Self::Mask => "mask",
            Self::Gap => "gap",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Rows and columns of tile `tile` before it is turned: those of the format, or of the opened tile.
    pub fn tile_size(self, format: &TileFormat, tile: usize) -> (u32, u32) {
        let opened = Opened::new(format, tile, self);
        (opened.rows.length(), opened.columns.length())
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
    /// Where each row or column of the tile begins in the opened tile; the last entry is the end.
    starts: Vec<u32>,
    /// The stretches that fill the opened axis, in order; masked double pixels and gaps are in none.
    pub stretches: Vec<Stretch>,
}

impl Axis {
    /// `first` is where the `length` rows or columns begin in a module whose axis ends at `end`; inside the module,
    /// chips meet at every multiple of their size.
    fn new(first: u32, length: u32, end: u32, mode: DoublePixels) -> Self {
        let mut axis = Self { starts: vec![0], stretches: Vec::new() };
        let mut opened = 0;
        for tile in 0..length {
            let at = first + tile;
            let begins_chip = at.is_multiple_of(CHIP) && at > 0;
            let ends_chip = (at + 1).is_multiple_of(CHIP) && at + 1 < end;
            let is_double = mode != DoublePixels::Keep && (begins_chip || ends_chip);
            match mode {
                _ if !is_double => axis.append(opened, tile),
                DoublePixels::Split => (opened..opened + 2).for_each(|opened| axis.append(opened, tile)),
                DoublePixels::Gap => axis.append(opened + u32::from(begins_chip), tile),
                DoublePixels::Keep | DoublePixels::Mask => {}
            }
            opened += 1 + u32::from(is_double);
            axis.starts.push(opened);
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

    /// The row or column of the tile at a place in the opened tile; `None` where it is masked or a gap.
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
    /// Tile `tile` of the detector. With two JUNGFRAU interfaces, the even streams carry module rows 0 to 255 and the
    /// odd ones rows 256 to 511. Even EIGER ports carry the left half of a module; data row 0 lies at the middle of the
    /// module in either half.
    pub fn new(format: &TileFormat, tile: usize, mode: DoublePixels) -> Self {
        let module = (2 * CHIP, 4 * CHIP);
        let first = match format.kind {
            DetectorKind::Jungfrau => (tile as u32 % format.tiles_per_module * format.whole_rows() + format.first_row(tile), 0),
            DetectorKind::Eiger => (CHIP, tile as u32 % 2 * format.columns),
            // The chips of other detectors are not known, so their pixels are kept as they are.
            _ => (0, 0),
        };
        Self {
            rows: Axis::new(first.0, format.rows, module.0, mode),
            columns: Axis::new(first.1, format.columns, module.1, mode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_columns_and_rows_are_those_at_chip_borders() {
        let doubles = |axis: &Axis| (0..axis.starts.len() as u32 - 1).filter(|t| axis.place(*t).1 == 2).collect::<Vec<_>>();
        let module = Opened::new(&TileFormat::jungfrau(1).unwrap(), 3, DoublePixels::Split);
        assert_eq!((module.rows.length(), module.columns.length()), (514, 1030));
        assert_eq!(doubles(&module.rows), [255, 256]);
        assert_eq!(doubles(&module.columns), [255, 256, 511, 512, 767, 768]);
        // 0..=255, 255..=256, 256..=511 and so on: a double pixel ends one stretch and begins the next.
        let (rows, columns) = (module.rows.stretches.len(), module.columns.stretches.len());
        assert_eq!((rows, columns), (3, 7));
        assert_eq!([255, 256].map(|c| module.columns.place(c)), [(255, 2), (257, 2)]);
        assert_eq!([255, 256, 257, 258, 259].map(|o| module.columns.tile_at(o)), [255, 255, 256, 256, 257].map(Some));
        for (tile, double) in [(0, 255), (1, 0), (6, 255), (7, 0)] {
            let half = Opened::new(&TileFormat::jungfrau(2).unwrap(), tile, DoublePixels::Split);
            assert_eq!((half.rows.length(), doubles(&half.rows)), (257, vec![double]));
            assert_eq!(half.columns, module.columns);
        }
    }

    #[test]
    fn masked_pixels_have_a_place_but_no_source() {
        let module = Opened::new(&TileFormat::jungfrau(1).unwrap(), 0, DoublePixels::Mask);
        assert_eq!((module.rows.length(), module.columns.length()), (514, 1030));
        assert_eq!([254, 255, 258, 259].map(|o| module.rows.tile_at(o)), [Some(254), None, None, Some(257)]);
        assert_eq!(module.columns.stretches.len(), 4);
        let kept = Opened::new(&TileFormat::jungfrau(1).unwrap(), 0, DoublePixels::Keep);
        assert_eq!((kept.rows.length(), kept.columns.length(), kept.rows.stretches.len()), (512, 1024, 1));
    }

    /// A pixel stays with its chip: the gap of two pixels lies between the chips, and each EIGER port that has a
    /// neighbour has one of the two at its edge.
    #[test]
    fn gaps_lie_between_chips() {
        let gaps = |axis: &Axis| (0..axis.length()).filter(|o| axis.tile_at(*o).is_none()).collect::<Vec<_>>();
        let module = Opened::new(&TileFormat::jungfrau(1).unwrap(), 0, DoublePixels::Gap);
        assert_eq!((module.rows.length(), module.columns.length()), (514, 1030));
        assert_eq!((gaps(&module.rows), gaps(&module.columns)), (vec![256, 257], vec![256, 257, 514, 515, 772, 773]));
        for (tile, columns) in
            [(0, vec![256, 257, 514]), (1, vec![0, 257, 258]), (2, vec![256, 257, 514]), (71, vec![0, 257, 258])]
        {
            let port = Opened::new(&TileFormat::eiger(16).unwrap(), tile, DoublePixels::Gap);
            assert_eq!((port.rows.length(), port.columns.length()), (257, 515));
            assert_eq!((gaps(&port.rows), gaps(&port.columns)), (vec![0], columns), "port {tile}");
            // Every row and column is there, in order.
            assert_eq!((0..515).filter_map(|o| port.columns.tile_at(o)).collect::<Vec<_>>(), (0..512).collect::<Vec<_>>());
            assert_eq!((0..257).filter_map(|o| port.rows.tile_at(o)).collect::<Vec<_>>(), (0..256).collect::<Vec<_>>());
        }
        let closed = Opened::new(&TileFormat::eiger(16).unwrap(), 0, DoublePixels::Keep);
        assert_eq!((closed.rows.length(), closed.columns.length()), (256, 512));
    }

    /// Partial readout does not change which rows are double: those at the middle of the module.
    #[test]
    fn partial_readout_has_the_double_rows_of_the_module() {
        let doubles = |axis: &Axis| (0..axis.starts.len() as u32 - 1).filter(|t| axis.place(*t).1 == 2).collect::<Vec<_>>();
        let opened = |interfaces, tile, rows| {
            let format = TileFormat::jungfrau(interfaces).unwrap().with_rows(rows).unwrap();
            Opened::new(&format, tile, DoublePixels::Split).rows
        };
        assert_eq!((opened(1, 0, 64).length(), doubles(&opened(1, 0, 64))), (66, vec![31, 32]));
        assert_eq!((opened(1, 3, 256).length(), doubles(&opened(1, 3, 256))), (258, vec![127, 128]));
        assert_eq!((doubles(&opened(2, 0, 64)), doubles(&opened(2, 1, 64))), (vec![31], vec![0]));
        let eiger = TileFormat::eiger(16).unwrap().with_rows(64).unwrap();
        assert_eq!(doubles(&Opened::new(&eiger, 2, DoublePixels::Split).rows), [0]);
    }
}
