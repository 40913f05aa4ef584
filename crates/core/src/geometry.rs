//! Where tiles lie in the output image, and the gather list that turns tiles into blocks of the output image.
//!
//! A tile is placed by the row and column of its upper left pixel and may be flipped vertically. Nothing here comes from packet
//! headers: module ids, port names and row parity do not say how a detector is mounted (protocols 1.5).

use crate::tile::TileFormat;

/// Largest output image: 64 Mpixel, well above the 16M detectors.
pub const MAX_IMAGE_PIXELS: u64 = 1 << 26;

/// Where one tile lies in the output image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Output row of the tile's uppermost row.
    pub row: u32,
    /// Output column of the tile's leftmost pixel.
    pub column: u32,
    /// True if the tile's data row 0 is the lowest of its rows in the output image.
    pub flip_rows: bool,
}

/// Why a set of placements is no image.
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
    placements: Vec<Placement>,
}

impl ImageGeometry {
    /// Checks the placements. `size` is (rows, columns) of the image; without it the image ends where the last tile ends.
    pub fn new(format: TileFormat, placements: Vec<Placement>, size: Option<(u32, u32)>) -> Result<Self, GeometryError> {
        let end = |p: &Placement| (u64::from(p.row) + u64::from(format.rows), u64::from(p.column) + u64::from(format.columns));
        let far = placements.iter().map(end).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).ok_or(GeometryError::Empty)?;
        let (rows, columns) = size.map_or(far, |(r, c)| (u64::from(r), u64::from(c)));
        let pixels = rows.saturating_mul(columns);
        if pixels > MAX_IMAGE_PIXELS {
            return Err(GeometryError::TooLarge(pixels));
        }
        let (rows, columns) = (rows as u32, columns as u32);
        for (tile, placement) in placements.iter().enumerate() {
            let (row, column) = end(placement);
            if row > u64::from(rows) || column > u64::from(columns) {
                return Err(GeometryError::Outside { tile, row, column, rows, columns });
            }
            for (other, b) in placements[..tile].iter().enumerate() {
                if placement.row.abs_diff(b.row) < format.rows && placement.column.abs_diff(b.column) < format.columns {
                    return Err(GeometryError::Overlap(other, tile, placement.row.max(b.row), placement.column.max(b.column)));
                }
            }
        }
        Ok(Self { format, rows, columns, placements })
    }

    /// Tiles one below the other without gaps: the raw layout of `count` tiles.
    pub fn stacked(format: TileFormat, count: u32) -> Result<Self, GeometryError> {
        let placements = (0..count).map(|t| Placement { row: t * format.rows, column: 0, flip_rows: false }).collect();
        Self::new(format, placements, None)
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

    /// Place of every tile, in stream order.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// Calls `visit(output_pixel, tile, tile_pixel, length)` for each run of pixels that lies side by side in tile and output.
    pub fn for_each_run(&self, mut visit: impl FnMut(usize, usize, u32, u32)) {
        for (tile, p) in self.placements.iter().enumerate() {
            for row in 0..self.format.rows {
                let source_row = if p.flip_rows { self.format.rows - 1 - row } else { row };
                let output = (p.row + row) as usize * self.columns as usize + p.column as usize;
                visit(output, tile, source_row * self.format.columns, self.format.columns);
            }
        }
    }

    /// Copies per-tile planes (one value per tile pixel) into output order; gaps get `gap`.
    pub fn arrange<T: Copy>(&self, tiles: &[&[T]], gap: T) -> Vec<T> {
        assert_eq!(tiles.len(), self.placements.len(), "one plane per tile");
        let mut out = vec![gap; self.pixels()];
        self.for_each_run(|output, tile, pixel, length| {
            let source = &tiles[tile][pixel as usize..(pixel + length) as usize];
            out[output..output + length as usize].copy_from_slice(source);
        });
        out
    }

    /// Compiles the gather list for blocks of `block_pixels` output pixels.
    pub fn gather(&self, block_pixels: usize) -> Gather {
        Gather::new(self, block_pixels)
    }
}

/// A run of pixels inside one block that comes from one place of one tile and from the same packets, or a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First pixel inside the block.
    pub block_offset: u32,
    /// Number of pixels.
    pub length: u32,
    /// The tile, or `None` for a gap.
    pub tile: Option<u16>,
    /// First pixel inside the tile.
    pub tile_pixel: u32,
    /// First packet of the tile that holds these pixels.
    pub packet_first: u16,
    /// Last packet of the tile that holds these pixels (two packets only for a 12-bit pixel on a packet border).
    pub packet_last: u16,
}

/// For every block of the output image, the segments that fill it, in order and without holes.
#[derive(Clone, Debug)]
pub struct Gather {
    block_pixels: usize,
    image_pixels: usize,
    segments: Vec<Segment>,
    block_start: Vec<u32>,
}

impl Gather {
    fn new(geometry: &ImageGeometry, block_pixels: usize) -> Self {
        assert!(block_pixels > 0);
        let mut runs = Vec::new();
        geometry.for_each_run(|output, tile, pixel, length| runs.push((output, tile as u16, pixel, length)));
        runs.sort_unstable();
        let mut gather = Self { block_pixels, image_pixels: geometry.pixels(), segments: Vec::new(), block_start: vec![0] };
        let mut next = 0;
        for (output, tile, pixel, length) in runs {
            gather.push_gap(next, output);
            gather.push_run(geometry.format(), output, tile, pixel, length);
            next = output + length as usize;
        }
        gather.push_gap(next, geometry.pixels());
        gather.block_start.push(gather.segments.len() as u32);
        assert_eq!(gather.block_start.len(), gather.blocks() + 1);
        gather
    }

    fn push_gap(&mut self, mut from: usize, to: usize) {
        while from < to {
            let length = (to - from).min(self.block_pixels - from % self.block_pixels);
            self.push(
                from,
                Segment { block_offset: 0, length: length as u32, tile: None, tile_pixel: 0, packet_first: 0, packet_last: 0 },
            );
            from += length;
        }
    }

    fn push_run(&mut self, format: &TileFormat, mut output: usize, tile: u16, mut pixel: u32, mut length: u32) {
        while length > 0 {
            let (packet_first, packet_last) = format.packets_of_pixel(pixel);
            let room = (self.block_pixels - output % self.block_pixels) as u32;
            let mut take = 1;
            if packet_first == packet_last {
                // Whole pixels that end inside this packet.
                let packet_end_bit = (u64::from(packet_first) + 1) * u64::from(format.payload_bytes) * 8;
                let whole = (packet_end_bit - u64::from(pixel) * u64::from(format.bits)) / u64::from(format.bits);
                take = (whole as u32).min(room).min(length);
            }
            self.push(
                output,
                Segment { block_offset: 0, length: take, tile: Some(tile), tile_pixel: pixel, packet_first, packet_last },
            );
            output += take as usize;
            pixel += take;
            length -= take;
        }
    }

    fn push(&mut self, output: usize, mut segment: Segment) {
        segment.block_offset = (output % self.block_pixels) as u32;
        if segment.block_offset == 0 && output > 0 {
            self.block_start.push(self.segments.len() as u32);
        } else if let Some(last) = self.segments.last_mut() {
            let follows = last.tile_pixel + last.length == segment.tile_pixel || segment.tile.is_none();
            let same_packets = (last.packet_first, last.packet_last) == (segment.packet_first, segment.packet_last);
            if last.tile == segment.tile && follows && same_packets {
                last.length += segment.length;
                return;
            }
        }
        self.segments.push(segment);
    }

    /// Number of blocks; only the last may be short.
    pub fn blocks(&self) -> usize {
        self.image_pixels.div_ceil(self.block_pixels)
    }

    /// Pixels of block `block`.
    pub fn block_length(&self, block: usize) -> usize {
        (self.image_pixels - block * self.block_pixels).min(self.block_pixels)
    }

    /// Pixels of a full block.
    pub fn block_pixels(&self) -> usize {
        self.block_pixels
    }

    /// Segments that fill block `block`.
    pub fn segments(&self, block: usize) -> &[Segment] {
        &self.segments[self.block_start[block] as usize..self.block_start[block + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fills an image through the gather list with an id of every tile pixel.
    fn by_gather(geometry: &ImageGeometry, block: usize) -> Vec<i64> {
        let gather = geometry.gather(block);
        let mut image = Vec::new();
        for b in 0..gather.blocks() {
            let mut filled = 0;
            for s in gather.segments(b) {
                assert_eq!(s.block_offset as usize, filled, "segments follow each other");
                for k in 0..s.length {
                    image.push(s.tile.map_or(-1, |t| i64::from(t) << 32 | i64::from(s.tile_pixel + k)));
                    if s.tile.is_some() {
                        assert_eq!(geometry.format().packets_of_pixel(s.tile_pixel + k), (s.packet_first, s.packet_last));
                    }
                }
                filled += s.length as usize;
            }
            assert_eq!(filled, gather.block_length(b));
        }
        image
    }

    fn by_arrange(geometry: &ImageGeometry) -> Vec<i64> {
        let pixels = i64::from(geometry.format().pixels());
        let planes: Vec<Vec<i64>> =
            (0..geometry.placements().len() as i64).map(|t| (0..pixels).map(|p| t << 32 | p).collect()).collect();
        geometry.arrange(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>(), -1)
    }

    #[test]
    fn a_stacked_jungfrau_block_is_one_packet() {
        let geometry = ImageGeometry::stacked(TileFormat::jungfrau(1).unwrap(), 2).unwrap();
        let gather = geometry.gather(4096);
        assert_eq!(gather.blocks(), 256);
        for b in 0..256 {
            let [s] = gather.segments(b) else { panic!("one segment per block") };
            assert_eq!((s.tile, s.packet_first, s.length), (Some((b / 128) as u16), (b % 128) as u16, 4096));
        }
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let format = TileFormat::eiger(16).unwrap();
        let at = |row, column| Placement { row, column, flip_rows: false };
        assert_eq!(ImageGeometry::new(format, vec![], None), Err(GeometryError::Empty));
        assert!(matches!(
            ImageGeometry::new(format, vec![at(0, 0), at(255, 511)], None),
            Err(GeometryError::Overlap(0, 1, 255, 511))
        ));
        assert!(matches!(
            ImageGeometry::new(format, vec![at(0, 1)], Some((256, 512))),
            Err(GeometryError::Outside { tile: 0, .. })
        ));
        assert!(matches!(ImageGeometry::new(format, vec![at(u32::MAX, u32::MAX)], None), Err(GeometryError::TooLarge(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn gather_equals_naive_arrangement(bits in prop::sample::select(vec![4u32, 8, 12, 16, 32]), gap_row in 0u32..9, gap_column in 0u32..9,
                                           flips in 0u32..16, block in prop::sample::select(vec![128usize, 2048, 4096, 4104]), border in 0u32..5) {
            let format = TileFormat::eiger(bits).unwrap();
            let placements = (0..4).map(|t| Placement {
                row: border + t / 2 * (format.rows + gap_row), column: border + t % 2 * (format.columns + gap_column), flip_rows: flips >> t & 1 == 1,
            }).collect::<Vec<_>>();
            let size = (2 * format.rows + gap_row + 2 * border, 2 * format.columns + gap_column + 2 * border);
            let geometry = ImageGeometry::new(format, placements, Some(size)).unwrap();
            prop_assert_eq!(by_gather(&geometry, block), by_arrange(&geometry));
        }
    }
}
