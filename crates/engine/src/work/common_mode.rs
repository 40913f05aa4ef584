//! Common mode: the offset above their pedestals that the pixels of one row, or one column, of a chip share in one
//! frame.
//!
//! The offset is the mean of ADC - pedestal over the G0 words of the chip's row or column that lie within their gates:
//! pixels with photons do not count. Fewer than [`WORDS_MIN`] such words give no offset. It is computed from raw words
//! in the order of the tile, so that it is the same for any number of workers, and remembered for the frames of a
//! batch.

use super::batch::BATCH_FRAMES;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::TileRecord;
use konkordia_core::plan::CommonMode;
use konkordia_core::tile::TileFormat;
use konkordia_kernels::constants::CellConstants;

/// Edge of a chip in pixels.
const CHIP: usize = 256;
/// Fewest dark words that make an offset.
const WORDS_MIN: u32 = 32;

/// Pedestals and gates of G0 in tile order, for each set of constants.
pub(crate) struct Tables {
    mode: CommonMode,
    columns: usize,
    packet_pixels: usize,
    /// Pixels of the first chip row above the tile's first pixel, which partial readout leaves out.
    skipped_pixels: usize,
    /// For each set and tile: pedestal and gate of its pixels, NaN where a pixel lies nowhere in the image.
    planes: Vec<Vec<(Vec<f32>, Vec<f32>)>>,
}

impl Tables {
    /// The tables of a run; `None` if it has no common mode.
    pub fn new(mode: CommonMode, geometry: &ImageGeometry, calibration: &CellConstants) -> Option<Self> {
        if mode == CommonMode::None {
            return None;
        }
        let format = geometry.format();
        let empty = || vec![f32::NAN; format.pixels() as usize];
        let plane = |set: usize| {
            let (pedestal, gate) = (&calibration.sets[set].pedestal[0], &calibration.gate_adu[set]);
            let mut tiles: Vec<_> = geometry.placements().iter().map(|_| (empty(), empty())).collect();
            geometry.for_each_run(|run| {
                let tile = &mut tiles[usize::from(run.tile)];
                for (output, pixel) in (run.output..).zip(run.tile_pixels()) {
                    (tile.0[pixel], tile.1[pixel]) = (pedestal[output], gate[output]);
                }
            });
            tiles
        };
        let planes = (0..calibration.sets.len()).map(plane).collect();
        let packet_pixels = format.payload_bytes as usize / 2;
        // The tile of a second interface starts at the first row of its chips and skips nothing. But it lies within one
        // row of chips, so the same number gives the right line.
        let skipped_pixels = (format.first_row(0) * format.columns) as usize;
        Some(Self { mode, columns: format.columns as usize, packet_pixels, skipped_pixels, planes })
    }

    /// Number of the offset that holds for a pixel of a tile.
    pub fn line(&self, tile_pixel: usize) -> usize {
        match self.mode {
            CommonMode::Column => {
                (tile_pixel + self.skipped_pixels) / self.columns / CHIP * self.columns + tile_pixel % self.columns
            }
            _ => tile_pixel / CHIP,
        }
    }

    fn lines(&self, format: &TileFormat) -> usize {
        self.line(format.pixels() as usize - 1) + 1
    }

    /// Computes the offset of a line and, for columns, of its whole row of chips, which costs the same.
    fn compute(&self, set: usize, tile: usize, record: &TileRecord, words: &[u16], line: usize, out: &mut Line<'_>) {
        let (pedestal, gate) = &self.planes[set][tile];
        let mut add = |line: usize, pixel: usize| {
            let distance = f32::from(words[pixel]) - pedestal[pixel];
            if words[pixel] < 0x4000 && distance.abs() <= gate[pixel] && record.bitmap.has((pixel / self.packet_pixels) as u16) {
                out.sum[line] += f64::from(distance);
                out.count[line] += 1;
            }
        };
        let lines = match self.mode {
            CommonMode::Column => {
                let chip_row = line / self.columns;
                let chip = chip_row * CHIP * self.columns..(chip_row + 1) * CHIP * self.columns;
                let of_tile = |pixel: usize| pixel.saturating_sub(self.skipped_pixels).min(words.len());
                for pixel in of_tile(chip.start)..of_tile(chip.end) {
                    add(pixel % self.columns, pixel);
                }
                chip_row * self.columns..(chip_row + 1) * self.columns
            }
            _ => {
                (line * CHIP..(line + 1) * CHIP).for_each(|pixel| add(0, pixel));
                line..line + 1
            }
        };
        for (n, line) in lines.enumerate() {
            let mean = if out.count[n] < WORDS_MIN { 0.0 } else { (out.sum[n] / f64::from(out.count[n])) as f32 };
            out.offsets[line] = mean;
            (out.sum[n], out.count[n]) = (0.0, 0);
        }
    }
}

/// Where [`Tables::compute`] adds up and leaves its results.
struct Line<'a> {
    sum: &'a mut [f64],
    count: &'a mut [u32],
    offsets: &'a mut [f32],
}

/// Offsets of one worker: those of a batch of frames.
pub(crate) struct Offsets {
    /// Frame + 1 of each entry.
    tags: Vec<u64>,
    /// For each entry, tile and line; NaN = not computed yet.
    offsets: Vec<f32>,
    tiles: usize,
    lines: usize,
    sum: Vec<f64>,
    count: Vec<u32>,
}

impl Offsets {
    pub fn new(tables: &Tables, geometry: &ImageGeometry) -> Self {
        let (tiles, lines) = (geometry.placements().len(), tables.lines(geometry.format()));
        let batch = BATCH_FRAMES as usize;
        Self {
            tags: vec![0; batch],
            offsets: vec![f32::NAN; batch * tiles * lines],
            tiles,
            lines,
            sum: vec![0.0; tables.columns],
            count: vec![0; tables.columns],
        }
    }

    /// The offset of a pixel in ADU.
    pub fn of(&mut self, tables: &Tables, set: usize, frame: u64, tile: (usize, &TileRecord, &[u16]), tile_pixel: usize) -> f32 {
        let entry = (frame % BATCH_FRAMES) as usize;
        let per_entry = self.tiles * self.lines;
        if self.tags[entry] != frame + 1 {
            self.tags[entry] = frame + 1;
            self.offsets[entry * per_entry..(entry + 1) * per_entry].fill(f32::NAN);
        }
        let (tile, record, words) = tile;
        let line = tables.line(tile_pixel);
        let offsets = &mut self.offsets[entry * per_entry + tile * self.lines..][..self.lines];
        if offsets[line].is_nan() {
            tables.compute(set, tile, record, words, line, &mut Line { sum: &mut self.sum, count: &mut self.count, offsets });
        }
        offsets[line]
    }
}
