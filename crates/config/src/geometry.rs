//! Presets: the places of all tiles for regular detectors. A tile is the part of an image that one stream sends. With
//! double pixels kept, pixels are not moved apart at chip borders, and a pixel lies at most 3 columns and 1 row from
//! its true place. Otherwise a module has its true size.
//!
//! Distances are those of the detectors at PSI: a module of 2 x 4 chips covers 514 x 1030 pixels (2 between chips),
//! modules are 8 pixels apart in a row and 36 in a column (docs/protocols.md 1.5). JUNGFRAU modules are numbered down a
//! column first. EIGER ports are ordered as in the packet capture of a 9M. With partial readout, the image begins with
//! the first row that is read and ends with the last.

use konkordia_core::geometry::{DoublePixels, Orientation, Placement};
use konkordia_core::tile::{DetectorKind, MODULE_ROWS, TileFormat};

/// Rows and columns from module to module.
const MODULE_PITCH: (u32, u32) = (514 + 36, 1030 + 8);
/// Half of the difference between the true size of a module and 512 x 1024.
const MODULE_MARGIN: (u32, u32) = (1, 3);
/// Rows between the upper left pixels of the half modules of an EIGER module.
const EIGER_HALF_PITCH: u32 = 258;
/// Columns between the upper left pixels of neighbouring ports.
const EIGER_PORT_PITCH: u32 = 516;

/// A regular arrangement of modules.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name in the configuration.
    pub name: &'static str,
    /// Type of the detector.
    pub kind: DetectorKind,
    /// Modules in a column.
    pub down: u32,
    /// Modules in a row.
    pub across: u32,
}

/// All presets, in the order of `schema::GEOMETRIES` without "stacked".
pub const PRESETS: [Preset; 8] = [
    Preset { name: "jungfrau-500k", kind: DetectorKind::Jungfrau, down: 1, across: 1 },
    Preset { name: "jungfrau-1m", kind: DetectorKind::Jungfrau, down: 2, across: 1 },
    Preset { name: "jungfrau-4m", kind: DetectorKind::Jungfrau, down: 4, across: 2 },
    Preset { name: "jungfrau-9m", kind: DetectorKind::Jungfrau, down: 6, across: 3 },
    Preset { name: "jungfrau-10m", kind: DetectorKind::Jungfrau, down: 5, across: 4 },
    Preset { name: "jungfrau-16m", kind: DetectorKind::Jungfrau, down: 8, across: 4 },
    Preset { name: "eiger-500k", kind: DetectorKind::Eiger, down: 1, across: 1 },
    Preset { name: "eiger-9m", kind: DetectorKind::Eiger, down: 6, across: 3 },
];

impl Preset {
    /// The preset of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|p| p.name == name)
    }

    /// Number of modules.
    pub fn modules(&self) -> u32 {
        self.down * self.across
    }

    /// Rows and columns of the image.
    pub fn size(&self, format: &TileFormat) -> (u32, u32) {
        let whole = (self.down * MODULE_PITCH.0 - 36, self.across * MODULE_PITCH.1 - 8);
        (whole.0 - 2 * rows_left_out(format), whole.1)
    }

    /// The place of every tile, in stream order.
    pub fn placements(&self, format: &TileFormat, double_pixels: DoublePixels) -> Vec<Placement> {
        let margin = if double_pixels == DoublePixels::Keep { MODULE_MARGIN } else { (0, 0) };
        let origin = |module: u32| (module % self.down * MODULE_PITCH.0, module / self.down * MODULE_PITCH.1);
        let size = double_pixels.tile_size(format, 0);
        let mut tiles = Vec::new();
        for module in 0..self.modules() {
            let (row, column) = origin(module);
            match self.kind {
                DetectorKind::Eiger => {
                    for port in 0..4 {
                        let (half, side) = (port / 2, port % 2);
                        // Data row 0 of both halves lies at the middle of the module, so the upper half is upside down.
                        let below = if margin.0 > 0 { EIGER_HALF_PITCH - format.whole_rows() + size.0 } else { size.0 };
                        let right = if margin.1 > 0 { EIGER_PORT_PITCH } else { size.1 };
                        let (row, column) = (row + half * below, column + side * right + u32::from(margin.1 > 0));
                        let orientation = if half == 0 { Orientation::FLIPPED } else { Orientation::UPRIGHT };
                        tiles.push(Placement { row, column, orientation });
                    }
                }
                _ => {
                    for interface in 0..format.tiles_per_module {
                        tiles.push(Placement::at(row + margin.0 + interface * size.0, column + margin.1));
                    }
                }
            }
        }
        tiles
    }
}

/// Rows of a module that are not read above those that are read; as many are not read below them.
fn rows_left_out(format: &TileFormat) -> u32 {
    (MODULE_ROWS - format.module_rows()) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::geometry::ImageGeometry;

    fn format(kind: DetectorKind, interfaces: u32) -> TileFormat {
        match kind {
            DetectorKind::Eiger => TileFormat::eiger(16).unwrap(),
            _ => TileFormat::jungfrau(interfaces).unwrap(),
        }
    }

    fn geometry(preset: &Preset, interfaces: u32, double_pixels: DoublePixels) -> ImageGeometry {
        let format = format(preset.kind, interfaces);
        let placements = preset.placements(&format, double_pixels);
        ImageGeometry::new(format, placements, Some(preset.size(&format)), double_pixels).unwrap()
    }

    /// For each image pixel, the number of its raw pixel in the detector, counted from 1; 0 in gaps.
    fn picture(geometry: &ImageGeometry) -> Vec<u32> {
        let pixels = geometry.format().pixels();
        let planes: Vec<Vec<u32>> =
            (0..geometry.placements().len() as u32).map(|t| (1..=pixels).map(|p| t * pixels + p).collect()).collect();
        geometry.arrange(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>(), 0)
    }

    #[test]
    fn presets_are_the_names_of_the_schema() {
        let names: Vec<_> = std::iter::once("stacked").chain(PRESETS.iter().map(|p| p.name)).collect();
        assert_eq!(names, crate::schema::GEOMETRIES);
    }

    #[test]
    fn sizes_are_those_of_the_installations() {
        let size = |name| {
            let preset = Preset::find(name).unwrap();
            preset.size(&format(preset.kind, 1))
        };
        assert_eq!((size("jungfrau-1m"), size("jungfrau-4m")), ((1064, 1030), (2164, 2068)));
        assert_eq!((size("eiger-500k"), size("eiger-9m")), ((514, 1030), (3264, 3106)));
        assert_eq!((size("jungfrau-9m"), size("jungfrau-10m"), size("jungfrau-16m")), ((3264, 3106), (2714, 4144), (4364, 4144)));
        let modules = |name| Preset::find(name).unwrap().modules();
        assert_eq!((modules("jungfrau-9m"), modules("jungfrau-10m"), modules("jungfrau-16m")), (18, 20, 32));
    }

    /// Checked through the gather list: every raw pixel is in the image as often as it should be, and JUNGFRAU modules
    /// with one and with two interfaces give the same image.
    #[test]
    fn each_raw_pixel_lands_once_or_in_all_its_parts() {
        for preset in &PRESETS {
            for mode in &DoublePixels::ALL {
                let one = geometry(preset, 1, *mode);
                let picture_of_one = picture(&one);
                if preset.kind == DetectorKind::Jungfrau {
                    assert!(picture(&geometry(preset, 2, *mode)) == picture_of_one, "{} {mode:?}", preset.name);
                }
                let mut copies = vec![0u8; preset.modules() as usize * 512 * 1024];
                picture_of_one.iter().filter(|p| **p > 0).for_each(|p| copies[*p as usize - 1] += 1);
                let of = |n: u8| copies.iter().filter(|c| **c == n).count() / preset.modules() as usize;
                let (single, double, corner) = (510 * 1018, 2 * 1018 + 6 * 510, 12);
                let expected = match mode {
                    DoublePixels::Keep | DoublePixels::Gap => [0, 512 * 1024, 0, 0],
                    DoublePixels::Split => [0, single, double, corner],
                    DoublePixels::Mask => [double + corner, single, 0, 0],
                };
                assert_eq!([of(0), of(1), of(2), of(4)], expected, "{} {mode:?}", preset.name);
                check_gather(&one, &picture_of_one);
            }
        }
    }

    fn check_gather(geometry: &ImageGeometry, picture: &[u32]) {
        let gather = geometry.gather(4096);
        let (mut at, mut shares) = (0, 0);
        for block in 0..gather.blocks() {
            for s in gather.segments(block) {
                for k in 0..s.length as i32 {
                    let pixel =
                        |tile| u32::from(tile) * geometry.format().pixels() + s.tile_pixel.wrapping_add_signed(k * s.step) + 1;
                    assert_eq!(picture[at], s.tile.map_or(0, pixel));
                    at += 1;
                }
            }
            for share in gather.shares(block) {
                assert_eq!(picture[block * 4096 + share.block_offset as usize], share.group + 1);
            }
            shares += gather.shares(block).len();
        }
        let split = geometry.double_pixels() == DoublePixels::Split;
        assert_eq!((at, shares), (picture.len(), if split { modules(geometry) * (514 * 1030 - 510 * 1018) } else { 0 }));
        assert!(gather.bytes() <= geometry.gather_bytes_max(4096));
    }

    /// The halves of a split module touch: rows 0 to 256 and 257 to 513.
    #[test]
    fn halves_of_a_split_module_close_up() {
        let preset = Preset::find("jungfrau-1m").unwrap();
        let rows = |mode| {
            preset.placements(&TileFormat::jungfrau(2).unwrap(), mode).iter().map(|p| (p.row, p.column)).collect::<Vec<_>>()
        };
        assert_eq!(rows(DoublePixels::Split), [(0, 0), (257, 0), (550, 0), (807, 0)]);
        assert_eq!(rows(DoublePixels::Keep), [(1, 3), (257, 3), (551, 3), (807, 3)]);
    }

    fn modules(geometry: &ImageGeometry) -> usize {
        geometry.placements().len() / geometry.format().tiles_per_module as usize
    }

    /// The corners of the ports (x and y of the first and of the last pixel) that std_detector_buffer gives for a
    /// module of 0.5M (docs/protocols.md 1.5). Two pixels lie between the chips.
    #[test]
    fn an_eiger_module_has_its_chips_where_other_programs_have_them() {
        let corners = [[0, 0, 513, 255], [516, 0, 1029, 255], [0, 513, 513, 258], [516, 513, 1029, 258]];
        let geometry = geometry(Preset::find("eiger-500k").unwrap(), 1, DoublePixels::Gap);
        let picture = picture(&geometry);
        let mut expected = vec![0; 514 * 1030];
        for (port, [x0, y0, x1, y1]) in corners.into_iter().enumerate() {
            for pixel in 0..256 * 512 {
                let (row, column) = (pixel / 512, pixel % 512);
                let x = x0 + column + if column < 256 { 0 } else { 2 };
                // In std_detector_buffer the lower half is upside down. In the capture it is the upper half: row 0 of
                // both halves lies at the middle of the module.
                let y = if y1 > y0 { y1 - row } else { y1 + row };
                assert!((x0..=x1).contains(&x));
                expected[y * 1030 + x] = (port * 256 * 512 + pixel + 1) as u32;
            }
        }
        assert!(picture == expected);
    }

    /// Partial readout gives a part of the image of the whole detector, in every mode of double pixels.
    #[test]
    fn partial_readout_is_a_part_of_the_picture() {
        for (name, interfaces) in
            [("jungfrau-500k", 1), ("jungfrau-500k", 2), ("jungfrau-1m", 2), ("jungfrau-4m", 1), ("eiger-500k", 1)]
        {
            let preset = Preset::find(name).unwrap();
            for (mode, module_rows) in DoublePixels::ALL.into_iter().flat_map(|mode| [(mode, 8), (mode, 64), (mode, 256)]) {
                let whole = format(preset.kind, interfaces);
                let rows = if preset.kind == DetectorKind::Eiger { module_rows / 2 } else { module_rows };
                let part = whole.with_rows(rows).unwrap();
                let geometry = ImageGeometry::new(part, preset.placements(&part, mode), Some(preset.size(&part)), mode).unwrap();
                let full = self::geometry(preset, interfaces, mode);
                // Pixels that are read have their number in the whole detector; the others have 0.
                let (pixels, tiles) = (whole.pixels() as usize, geometry.placements().len());
                let number = |tile: usize, pixel: usize| (tile * pixels + pixel + 1) as u32;
                let planes = |of: &dyn Fn(usize) -> Vec<u32>| (0..tiles).map(of).collect::<Vec<_>>();
                let read = planes(&|t| part.pixels_read(t).map(|p| number(t, p)).collect());
                let all =
                    planes(&|t| (0..pixels).map(|p| if part.pixels_read(t).contains(&p) { number(t, p) } else { 0 }).collect());
                let show =
                    |g: &ImageGeometry, planes: &[Vec<u32>]| g.arrange(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>(), 0);
                let (seen, expected) = (show(&geometry, &read), show(&full, &all));
                let from = ((512 - module_rows) / 2 * full.columns()) as usize;
                assert!(seen == expected[from..expected.len() - from], "{name} {interfaces} {mode:?} {module_rows}");
                assert!(expected[..from].iter().chain(&expected[expected.len() - from..]).all(|p| *p == 0));
            }
        }
    }
}
