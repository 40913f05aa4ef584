use super::*;
use crate::tile::TileFormat;
use proptest::prelude::*;
use std::collections::HashMap;

/// What an output pixel shows: tile and pixel of the tile, or nothing.
type Source = Option<(u16, u32)>;

/// Row and column in its box of place (row, column) of a rectangle of `size`: flips and turns one after the other, by
/// definition.
fn turned_by_hand(o: Orientation, size: (u32, u32), at: (u32, u32)) -> (u32, u32) {
    let (mut size, mut at) = (size, at);
    if o.flip_rows {
        at.0 = size.0 - 1 - at.0;
    }
    for _ in 0..o.rotate.deg() / 90 {
        // Clockwise: the first row becomes the last column.
        at = (at.1, size.0 - 1 - at.0);
        size = (size.1, size.0);
    }
    at
}

/// Where pixel (row, column) of a tile lies before the tile is turned: first row and column, height and width. From the
/// shape of the module: pixels 255 and 256 of each axis, and so on, are double.
fn opened_by_hand(g: &ImageGeometry, tile: u16, row: u32, column: u32) -> ((u32, u32), (u32, u32)) {
    if g.double_pixels() == DoublePixels::Keep {
        return ((row, column), (1, 1));
    }
    let f = g.format();
    let is_eiger = f.kind == crate::tile::DetectorKind::Eiger;
    // Module row and column of the tile's first pixel. Of a partial readout the rows around the middle are there.
    let first = match (is_eiger, f.tiles_per_module) {
        (true, _) => 256,
        (_, 1) => 256 - f.rows / 2,
        _ => {
            if tile % 2 == 1 {
                256
            } else {
                256 - f.rows
            }
        }
    };
    let left = if is_eiger && tile % 2 == 1 { 512 } else { 0 };
    let doubles = |at: u32, borders: &[u32]| borders.iter().filter(|b| **b < at).count() as u32;
    let (rows, columns) = ([255, 256], [255, 256, 511, 512, 767, 768]);
    let start = |at, borders| at + doubles(at, borders);
    let module_row = first + row;
    let module_column = left + column;
    let size = (1 + u32::from(rows.contains(&module_row)), 1 + u32::from(columns.contains(&module_column)));
    let at = (start(module_row, &rows) - start(first, &rows), start(module_column, &columns) - start(left, &columns));
    if g.double_pixels() == DoublePixels::Gap {
        // The pixel stays next to its chip: in the second place if the chip begins with it.
        let behind = |at: u32, double: u32| u32::from(double == 2 && at.is_multiple_of(2));
        return ((at.0 + behind(module_row, size.0), at.1 + behind(module_column, size.1)), (1, 1));
    }
    (at, size)
}

/// The image and the shares, pixel by pixel of the tiles. Panics if two pixels claim the same place.
fn by_hand(g: &ImageGeometry) -> (Vec<Source>, HashMap<usize, Share>) {
    let (mut image, mut shares) = (vec![None; g.pixels()], HashMap::new());
    let mut masked = vec![false; g.pixels()];
    for (tile, p) in g.placements().iter().enumerate() {
        let tile_size = g.double_pixels().tile_size(g.format(), tile);
        for pixel in 0..g.format().pixels() {
            let (row, column) = (pixel / g.format().columns, pixel % g.format().columns);
            let (first, (height, width)) = opened_by_hand(g, tile as u16, row, column);
            for part in 0..height * width {
                let at = turned_by_hand(p.orientation, tile_size, (first.0 + part / width, first.1 + part % width));
                let output = (p.row + at.0) as usize * g.columns() as usize + (p.column + at.1) as usize;
                assert!(image[output].is_none() && !masked[output], "two pixels at {output}");
                if height * width > 1 && g.double_pixels() == DoublePixels::Mask {
                    masked[output] = true;
                    continue;
                }
                image[output] = Some((tile as u16, pixel));
                if height * width > 1 {
                    let group = tile as u32 * g.format().pixels() + pixel;
                    shares.insert(output, Share { block_offset: 0, group, part: part as u8, parts: (height * width) as u8 });
                }
            }
        }
    }
    let mut visited = vec![false; g.pixels()];
    g.for_each_masked_double(|output| assert!(!std::mem::replace(&mut visited[output], true), "visited twice"));
    assert_eq!(visited, masked);
    (image, shares)
}

/// The same through the gather list, which is checked on the way.
fn by_gather(g: &ImageGeometry, block_pixels: usize) -> (Vec<Source>, HashMap<usize, Share>) {
    let gather = g.gather(block_pixels);
    let (mut image, mut shares) = (Vec::new(), HashMap::new());
    for b in 0..gather.blocks() {
        let mut filled = 0;
        for s in gather.segments(b) {
            assert_eq!(s.block_offset as usize, filled, "segments follow each other");
            assert!(s.length > 0 && (s.step == 1 || s.length > 1 && s.tile.is_some()));
            for k in 0..s.length as i32 {
                let pixel = s.tile_pixel.wrapping_add_signed(k * s.step);
                image.push(s.tile.map(|t| (t, pixel)));
                if s.tile.is_some() {
                    assert_eq!(g.format().packets_of_pixel(pixel), (s.packet_first, s.packet_last));
                }
            }
            filled += s.length as usize;
        }
        assert_eq!(filled, gather.block_length(b));
        let plain = gather.segments(b).iter().all(|s| s.step == 1) && gather.shares(b).is_empty();
        assert_eq!(gather.is_plain(b), plain);
        assert!(gather.shares(b).is_sorted_by_key(|s| s.block_offset));
        for share in gather.shares(b) {
            let known = shares.insert(b * block_pixels + share.block_offset as usize, Share { block_offset: 0, ..*share });
            assert!(known.is_none());
        }
    }
    assert!(gather.bytes() <= g.gather_bytes_max(block_pixels), "{} bytes", gather.bytes());
    (image, shares)
}

fn by_arrange(g: &ImageGeometry) -> Vec<Source> {
    let tiles = 0..g.placements().len() as u16;
    let planes: Vec<Vec<Source>> = tiles.map(|t| (0..g.format().pixels()).map(|p| Some((t, p))).collect()).collect();
    g.arrange(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>(), None)
}

/// Compares the three, and that every pixel of the tiles is there once, twice or four times, or not at all where
/// masked.
#[track_caller]
fn check(g: &ImageGeometry, block_pixels: usize) {
    let (image, shares) = by_hand(g);
    assert!(by_arrange(g) == image, "constants lie where the pixels do");
    let gathered = by_gather(g, block_pixels);
    assert!(gathered.0 == image, "gather list");
    let mut parts: HashMap<u32, u8> = HashMap::new();
    for share in shares.values() {
        assert_eq!(*parts.entry(share.group).or_default() & 1 << share.part, 0, "each part once");
        *parts.get_mut(&share.group).unwrap() |= 1 << share.part;
        assert!(share.part < share.parts && matches!(share.parts, 2 | 4));
    }
    assert!(shares.values().all(|s| parts[&s.group] == (1 << s.parts) - 1), "no part is missing");
    if g.double_pixels() == DoublePixels::Split {
        assert!(gathered.1 == shares, "shares");
    } else {
        assert!(gathered.1.is_empty() && shares.is_empty());
    }
    let mut copies = vec![0u8; g.placements().len() * g.format().pixels() as usize];
    for (tile, pixel) in image.into_iter().flatten() {
        copies[usize::from(tile) * g.format().pixels() as usize + pixel as usize] += 1;
    }
    let expected = |group: usize| match g.double_pixels() {
        DoublePixels::Keep | DoublePixels::Gap => copies[group] == 1,
        DoublePixels::Split => copies[group].count_ones() == 1 && copies[group] <= 4,
        DoublePixels::Mask => copies[group] <= 1,
    };
    assert!((0..copies.len()).all(expected));
}

/// Planes of the tiles are row by row, packets are not: the gather list looks up each pixel where it was sent.
#[test]
fn pixels_that_chips_send_in_turns_are_found_in_every_orientation() {
    let format = TileFormat::excalibur();
    for orientation in Orientation::all() {
        let geometry =
            ImageGeometry::new(format, vec![Placement { orientation, ..Placement::at(3, 5) }], None, DoublePixels::Keep).unwrap();
        let (image, shares) = by_hand(&geometry);
        assert!(by_arrange(&geometry) == image && shares.is_empty());
        let sent = |(tile, pixel): (u16, u32)| (tile, format.wire_pixel(pixel));
        let expected: Vec<Source> = image.into_iter().map(|source| source.map(sent)).collect();
        for block_pixels in [4096, 1000] {
            assert!(by_gather(&geometry, block_pixels).0 == expected, "{orientation:?}, blocks of {block_pixels}");
        }
    }
    // Four pixels together, in both directions.
    let halves = [Orientation::UPRIGHT, Orientation::new(false, false, Quarter::Deg180)];
    let placements = (0u32..).zip(halves).map(|(n, orientation)| Placement { orientation, ..Placement::at(256 * n, 0) });
    let gather = ImageGeometry::new(format, placements.collect(), None, DoublePixels::Keep).unwrap().gather(4096);
    let of_block = |block: usize| gather.segments(block).iter().map(|s| (s.length, s.step)).collect::<Vec<_>>();
    assert_eq!((of_block(0), of_block(gather.blocks() - 1)), (vec![(4, 1); 1024], vec![(4, -1); 1024]));
}

#[test]
fn a_stacked_jungfrau_block_is_one_packet() {
    let geometry = ImageGeometry::stacked(TileFormat::jungfrau(1).unwrap(), 2).unwrap();
    let gather = geometry.gather(4096);
    assert_eq!(gather.blocks(), 256);
    for b in 0..256 {
        let [s] = gather.segments(b) else { panic!("one segment per block") };
        assert_eq!((s.tile, s.packet_first, s.length, s.step), (Some((b / 128) as u16), (b % 128) as u16, 4096, 1));
        assert!(gather.is_plain(b));
    }
}

#[test]
fn impossible_geometries_are_refused() {
    let format = TileFormat::eiger(16).unwrap();
    let new = |placements, size| ImageGeometry::new(format, placements, size, DoublePixels::Keep);
    let at = Placement::at;
    assert_eq!(new(vec![], None), Err(GeometryError::Empty));
    assert_eq!(new(vec![], Some((10, 10))), Err(GeometryError::Empty));
    assert_eq!(new(vec![at(0, 0), at(255, 511)], None), Err(GeometryError::Overlap(0, 1, 255, 511)));
    assert!(matches!(new(vec![at(0, 1)], Some((256, 512))), Err(GeometryError::Outside { tile: 0, .. })));
    assert!(matches!(new(vec![at(u32::MAX, u32::MAX)], None), Err(GeometryError::TooLarge(_))));
    // Sideways a tile takes 512 x 256.
    let sideways =
        |row, column| Placement { orientation: Orientation { flip_rows: false, rotate: Quarter::Deg90 }, ..at(row, column) };
    assert_eq!(new(vec![at(0, 0), sideways(255, 511)], None), Err(GeometryError::Overlap(0, 1, 255, 511)));
    assert!(new(vec![at(0, 0), sideways(0, 512)], Some((512, 768))).is_ok());
    assert!(matches!(new(vec![sideways(0, 0)], Some((256, 512))), Err(GeometryError::Outside { tile: 0, row: 512, .. })));
    // Opened modules need their room.
    let (jungfrau, pair) = (TileFormat::jungfrau(1).unwrap(), vec![at(0, 0), at(512, 0)]);
    assert!(ImageGeometry::new(jungfrau, pair.clone(), None, DoublePixels::Keep).is_ok());
    let split = ImageGeometry::new(jungfrau, pair, None, DoublePixels::Split);
    assert_eq!(split, Err(GeometryError::Overlap(0, 1, 512, 0)));
    assert!(matches!(ImageGeometry::stacked(format, u32::MAX), Err(GeometryError::TooLarge(_))));
}

#[test]
fn two_interfaces_show_the_picture_of_one() {
    for (double_pixels, rows) in DoublePixels::ALL.into_iter().flat_map(|d| [(d, 512), (d, 64), (d, 8)]) {
        let picture = |interfaces| {
            let format = TileFormat::jungfrau(interfaces).unwrap().with_rows(rows).unwrap();
            let g = ImageGeometry::stacked_with(format, 2 * interfaces, double_pixels).unwrap();
            let module_pixel =
                |s: Source| s.map(|(tile, pixel)| u64::from(tile) * u64::from(g.format().pixels()) + u64::from(pixel));
            let shares = by_gather(&g, 4096).1;
            (g.rows(), g.columns(), by_arrange(&g).into_iter().map(module_pixel).collect::<Vec<_>>(), shares)
        };
        assert!(picture(1) == picture(2), "{double_pixels:?}, {rows} rows");
    }
}

/// The parts of one double pixel, wherever the module lies, are numbered as it lies in the module.
#[test]
fn a_corner_pixel_has_four_parts() {
    for orientation in Orientation::all() {
        let place = vec![Placement { orientation, ..Placement::at(0, 0) }];
        let g = ImageGeometry::new(TileFormat::jungfrau(1).unwrap(), place, None, DoublePixels::Split).unwrap();
        let mut found = Vec::new();
        g.for_each_double_part(|p| {
            if p.tile_pixel == 256 * 1024 + 511 {
                found.push((p.part, p.output));
            }
        });
        let columns = g.columns() as usize;
        let at = |row, column| {
            let (row, column) = turned_by_hand(orientation, (514, 1030), (row, column));
            row as usize * columns + column as usize
        };
        assert_eq!(found, [(0, at(257, 513)), (1, at(257, 514)), (2, at(258, 513)), (3, at(258, 514))], "{orientation}");
    }
}

#[test]
fn every_orientation_interface_and_mode_is_as_by_hand() {
    for interfaces in [1, 2] {
        let format = TileFormat::jungfrau(interfaces).unwrap();
        for (n, orientation) in Orientation::all().enumerate() {
            for double_pixels in DoublePixels::ALL {
                let second = Placement { orientation, ..Placement::at(1040, 5) };
                let placements = vec![Placement { orientation, ..Placement::at(3, 1) }, second];
                let g = ImageGeometry::new(format, placements, None, double_pixels).unwrap();
                check(&g, [4096, 2048, 32768, 1000][n % 4]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn gather_equals_naive_arrangement(bits in prop::sample::select(vec![4u32, 8, 12, 16, 32]), gap in (0u32..9, 0u32..9),
                                       turns in prop::array::uniform4((any::<bool>(), 0usize..4)), border in 0u32..5,
                                       block in prop::sample::select(vec![128usize, 2048, 4096, 4104])) {
        let format = TileFormat::eiger(bits).unwrap();
        let placements = turns.iter().enumerate().map(|(t, turn)| Placement {
            row: border + t as u32 / 2 * (512 + gap.0), column: border + t as u32 % 2 * (512 + gap.1),
            orientation: Orientation { flip_rows: turn.0, rotate: Quarter::ALL[turn.1] },
        }).collect::<Vec<_>>();
        let size = (1024 + gap.0 + 2 * border, 1024 + gap.1 + 2 * border);
        check(&ImageGeometry::new(format, placements, Some(size), DoublePixels::Keep).unwrap(), block);
    }

    /// EIGER ports over either network, opened in any mode, with any number of rows read.
    #[test]
    fn opened_eiger_ports_are_as_by_hand(bits in prop::sample::select(vec![4u32, 8, 12, 16, 32]), slow: bool, mode in 0usize..4,
                                         rows in prop::sample::select(vec![16u32, 64, 256]), turns in prop::array::uniform4(0usize..8)) {
        let whole = if slow { TileFormat::eiger_1gbe(bits) } else { TileFormat::eiger(bits) };
        let format = whole.unwrap().with_rows(rows).unwrap();
        let placements = turns.iter().enumerate().map(|(t, turn)| Placement {
            row: t as u32 / 2 * 520, column: t as u32 % 2 * 520, orientation: Orientation::all().nth(*turn).unwrap(),
        }).collect::<Vec<_>>();
        check(&ImageGeometry::new(format, placements, None, DoublePixels::ALL[mode]).unwrap(), 4096);
    }

    /// JUNGFRAU with any number of rows read.
    #[test]
    fn partial_readout_is_as_by_hand(interfaces in 1u32..3, rows in 1u32..65, mode in 0usize..4, turns in prop::array::uniform4(0usize..8)) {
        let format = TileFormat::jungfrau(interfaces).unwrap().with_rows(rows * 8).unwrap();
        let placements = turns.iter().enumerate().map(|(t, turn)| Placement {
            row: t as u32 / 2 * 1040, column: t as u32 % 2 * 1040, orientation: Orientation::all().nth(*turn).unwrap(),
        }).collect::<Vec<_>>();
        check(&ImageGeometry::new(format, placements, None, DoublePixels::ALL[mode]).unwrap(), 4096);
    }

    /// Tiles anywhere, in any orientation; those that overlap are left out.
    #[test]
    fn random_placements_are_as_by_hand(tiles in prop::collection::vec((0u32..2400, 0u32..2400, 0usize..8), 1..7), interfaces in 1u32..3,
                                        mode in 0usize..4, block in prop::sample::select(vec![2048usize, 4096, 32768, 4099])) {
        let (format, mode) = (TileFormat::jungfrau(interfaces).unwrap(), DoublePixels::ALL[mode]);
        let mut placed = Vec::new();
        for (row, column, orientation) in tiles {
            placed.push(Placement { row, column, orientation: Orientation::all().nth(orientation).unwrap() });
            if ImageGeometry::new(format, placed.clone(), None, mode).is_err() {
                placed.pop();
            }
        }
        check(&ImageGeometry::new(format, placed, None, mode).unwrap(), block);
    }
}
