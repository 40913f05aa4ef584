//! Tables of placements for installations that many have. A tile is one stream's share of an image; its pixels are not moved apart at chip
//! borders, so inside an assembled detector a pixel lies at most 3 columns and 1 row from its true place.
//!
//! Distances are those of the installations at PSI: a module of 2 x 4 chips covers 514 x 1030 pixels (2 between chips), modules are 8 pixels
//! apart in a row and 36 in a column (protocols 1.5). JUNGFRAU modules count down a column first; EIGER ports as in the capture of a 9M.

use konkordia_core::geometry::Placement;
use konkordia_core::tile::DetectorKind;

/// Rows and columns from module to module.
const MODULE_PITCH: (u32, u32) = (514 + 36, 1030 + 8);
/// What an assembled module has more than 512 x 1024, halved.
const MODULE_MARGIN: (u32, u32) = (1, 3);
/// Rows between the upper left pixels of the half modules of an EIGER module.
const EIGER_HALF_PITCH: u32 = 258;
/// Columns between the upper left pixels of its ports.
const EIGER_PORT_PITCH: u32 = 516;

/// A detector of whole modules.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name in the configuration.
    pub name: &'static str,
    /// Family.
    pub kind: DetectorKind,
    /// Modules in a column.
    pub down: u32,
    /// Modules in a row.
    pub across: u32,
}

/// All presets, in the order of `schema::GEOMETRIES` without "stacked".
pub const PRESETS: [Preset; 5] = [
    Preset { name: "jungfrau-500k", kind: DetectorKind::Jungfrau, down: 1, across: 1 },
    Preset { name: "jungfrau-1m", kind: DetectorKind::Jungfrau, down: 2, across: 1 },
    Preset { name: "jungfrau-4m", kind: DetectorKind::Jungfrau, down: 4, across: 2 },
    Preset { name: "eiger-500k", kind: DetectorKind::Eiger, down: 1, across: 1 },
    Preset { name: "eiger-9m", kind: DetectorKind::Eiger, down: 6, across: 3 },
];

impl Preset {
    /// The preset of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|p| p.name == name)
    }

    /// Modules.
    pub fn modules(&self) -> u32 {
        self.down * self.across
    }

    /// Rows and columns of the image.
    pub fn size(&self) -> (u32, u32) {
        (self.down * MODULE_PITCH.0 - 36, self.across * MODULE_PITCH.1 - 8)
    }

    /// Place of every tile in stream order; `interfaces` matters for JUNGFRAU only.
    pub fn placements(&self, interfaces: u32) -> Vec<Placement> {
        let origin = |module: u32| (module % self.down * MODULE_PITCH.0, module / self.down * MODULE_PITCH.1);
        let mut tiles = Vec::new();
        for module in 0..self.modules() {
            let (row, column) = origin(module);
            match self.kind {
                DetectorKind::Jungfrau => {
                    for interface in 0..interfaces {
                        let row = row + MODULE_MARGIN.0 + interface * (512 / interfaces);
                        tiles.push(Placement { row, column: column + MODULE_MARGIN.1, flip_rows: false });
                    }
                }
                DetectorKind::Eiger => {
                    for port in 0..4 {
                        let (half, side) = (port / 2, port % 2);
                        // Data row 0 of both halves lies at the middle of the module, so the upper half is upside down.
                        let (row, column) = (row + half * EIGER_HALF_PITCH, column + side * EIGER_PORT_PITCH + 1);
                        tiles.push(Placement { row, column, flip_rows: half == 0 });
                    }
                }
            }
        }
        tiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::geometry::ImageGeometry;
    use konkordia_core::tile::TileFormat;

    #[test]
    fn presets_are_the_names_of_the_schema_and_possible() {
        let names: Vec<_> = std::iter::once("stacked").chain(PRESETS.iter().map(|p| p.name)).collect();
        assert_eq!(names, crate::config::schema::GEOMETRIES);
        for preset in PRESETS {
            for interfaces in [1, 2] {
                let format = match preset.kind {
                    DetectorKind::Jungfrau => TileFormat::jungfrau(interfaces).unwrap(),
                    DetectorKind::Eiger => TileFormat::eiger(16).unwrap(),
                };
                let geometry = ImageGeometry::new(format, preset.placements(interfaces), Some(preset.size())).unwrap();
                let pixels = geometry.placements().len() as u32 * format.pixels();
                assert_eq!(pixels, preset.modules() * 512 * 1024, "{}", preset.name);
            }
        }
    }

    #[test]
    fn sizes_are_those_of_the_installations() {
        let size = |name| Preset::find(name).unwrap().size();
        assert_eq!((size("jungfrau-1m"), size("jungfrau-4m")), ((1064, 1030), (2164, 2068)));
        assert_eq!((size("eiger-500k"), size("eiger-9m")), ((514, 1030), (3264, 3106)));
    }

    /// The two ways to read out a JUNGFRAU module give the same picture.
    #[test]
    fn interfaces_do_not_move_pixels() {
        let preset = Preset::find("jungfrau-4m").unwrap();
        let (one, two) = (preset.placements(1), preset.placements(2));
        for (module, tile) in one.iter().enumerate() {
            assert_eq!(*tile, two[2 * module]);
            assert_eq!((two[2 * module + 1].row, two[2 * module + 1].column), (tile.row + 256, tile.column));
        }
    }
}
