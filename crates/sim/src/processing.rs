//! The naive run: what a correct receiver must do with the frames of a JUNGFRAU besides converting them, pixel by pixel
//! and frame by frame.
//!
//! Selection and sums of frames, pedestals that follow the drift, common mode, storage cells, split double pixels,
//! turned tiles, counts below zero. Everything is kept in the order of the streams (tile by tile) and brought into the
//! order of the image at the very end. It shares only this with the code that it checks: the names of the options, the
//! table of special values, and the hash that gives the part at which the remainder of a split pixel begins.

use crate::reference::{JungfrauConstants, Reference};
use konkordia_core::geometry::{DoublePixels, Placement, Quarter};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::{PixelType, Special};
use konkordia_core::process::{CommonMode, Negative, Processing, TrackedFrames};
use konkordia_core::selection::{Flag, Keep, Marked, Selection};
use konkordia_core::share::share_start;
use std::collections::HashMap;

/// Rows and columns of a chip.
const CHIP: usize = 256;
/// Fewest dark words from which an offset of the common mode is computed.
const DARK_WORDS_MIN: u32 = 32;

/// The raw pixel behind an output pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Raw pixel: tile by tile, row by row.
    pub pixel: usize,
    /// Which part of it this is.
    pub part: u8,
    /// Parts that it has: 1, 2 or 4.
    pub parts: u8,
}

/// For each output pixel the raw pixel behind it, if there is one.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Row by row.
    pub spots: Vec<Option<Spot>>,
}

impl Outline {
    /// An image of `size` (rows, columns) with tiles of `tile` (rows, columns) at these places.
    ///
    /// # Panics
    /// When a tile reaches beyond the image.
    pub fn new(tile: (usize, usize), placements: &[Placement], size: (usize, usize), double_pixels: DoublePixels) -> Self {
        let mut spots = vec![None; size.0 * size.1];
        for (number, placement) in placements.iter().enumerate() {
            let mut grid = opened(number, tile, double_pixels);
            if placement.orientation.flip_rows {
                grid.reverse();
            }
            let turns = Quarter::ALL.iter().position(|q| *q == placement.orientation.rotate).expect("one of the four");
            for _ in 0..turns {
                grid = turned_clockwise(&grid);
            }
            for (r, row) in grid.iter().enumerate() {
                for (c, spot) in row.iter().enumerate() {
                    let (r, c) = (placement.row as usize + r, placement.column as usize + c);
                    assert!(r < size.0 && c < size.1, "every tile lies inside the image");
                    spots[r * size.1 + c] = *spot;
                }
            }
        }
        Self { spots }
    }
}

type Grid = Vec<Vec<Option<Spot>>>;

/// A tile with its double pixels opened. Tiles of 256 rows are the upper and the lower half of a module in turn.
fn opened(number: usize, (rows, columns): (usize, usize), double_pixels: DoublePixels) -> Grid {
    let first_row = if rows == CHIP { number % 2 * CHIP } else { 0 };
    let opens = double_pixels != DoublePixels::Keep;
    let height = |row: usize| if opens && [255, 256].contains(&(first_row + row)) { 2 } else { 1 };
    let width = |column: usize| if opens && [255, 256, 511, 512, 767, 768].contains(&column) { 2 } else { 1 };
    // Which of the two output rows or columns of a double pixel touches the rest of its chip: the second one if the
    // pixel begins a chip, which is so for even numbers.
    let beside_chip = |at: usize, parts: u8| if parts == 2 && at.is_multiple_of(2) { 1 } else { 0 };
    let mut grid = Vec::new();
    for row in 0..rows {
        for down in 0..height(row) {
            let mut line = Vec::new();
            for column in 0..columns {
                let parts = height(row) * width(column);
                for across in 0..width(column) {
                    let pixel = (number * rows + row) * columns + column;
                    let in_chip = down == beside_chip(row, height(row)) && across == beside_chip(column, width(column));
                    line.push(match double_pixels {
                        DoublePixels::Gap => in_chip.then_some(Spot { pixel, part: 0, parts: 1 }),
                        DoublePixels::Mask if parts > 1 => None,
                        _ => Some(Spot { pixel, part: down * width(column) + across, parts }),
                    });
                }
            }
            grid.push(line);
        }
    }
    grid
}

fn turned_clockwise(grid: &Grid) -> Grid {
    (0..grid[0].len()).map(|column| grid.iter().rev().map(|row| row[column]).collect()).collect()
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is not used.
    Skipped,
    /// It is dark.
    Dark,
    /// It belongs to this image.
    Image(u64),
    /// It belongs to a sum that the run does not finish.
    Unfinished,
}

/// What happens to each frame of a run, from the words in their headers (`None` = no packet of the frame came).
pub fn uses(selection: &Selection, daq_info: &[Option<u32>]) -> Vec<Use> {
    let warmup = selection.warmup_frames as usize;
    let start = warmup.min(daq_info.len());
    let mut uses = vec![if selection.warmup_is_dark { Use::Dark } else { Use::Skipped }; start];
    uses.resize(daq_info.len(), Use::Skipped);
    let after: Vec<usize> = (start..daq_info.len()).collect();
    let dark: Vec<bool> = match selection.darks {
        Marked::None => vec![false; after.len()],
        Marked::Every(n) => (0..after.len() as u64).map(|i| (i + 1) % n == 0).collect(),
        Marked::Flag(flag) => marked(flag, &after, daq_info),
    };
    after.iter().zip(&dark).filter(|(_, dark)| **dark).for_each(|(frame, _)| uses[*frame] = Use::Dark);
    let bright: Vec<usize> = after.iter().zip(&dark).filter(|(_, dark)| !**dark).map(|(frame, _)| *frame).collect();
    let keeps: Vec<bool> = match selection.keep {
        Keep::All => vec![true; bright.len()],
        Keep::EveryNth(n) => (0..bright.len() as u64).map(|i| i % n == 0).collect(),
        Keep::Flag(flag) => marked(flag, &bright, daq_info),
    };
    let kept: Vec<usize> = bright.iter().zip(&keeps).filter(|(_, keep)| **keep).map(|(frame, _)| *frame).collect();
    for (image, frames) in (0..).zip(kept.chunks(selection.sum_frames as usize)) {
        if selection.images_max.is_none_or(|most| image < most) {
            let whole = frames.len() == selection.sum_frames as usize;
            frames.iter().for_each(|frame| uses[*frame] = if whole { Use::Image(image) } else { Use::Unfinished });
        }
    }
    uses
}

/// Which of these frames carry the flag; a lost frame counts like the one before it.
fn marked(flag: Flag, frames: &[usize], daq_info: &[Option<u32>]) -> Vec<bool> {
    let mut last = false;
    let mut of = |frame: &usize| {
        if let Some(word) = daq_info[*frame] {
            last = (word & flag.mask != 0) == flag.set;
        }
        last
    };
    frames.iter().map(&mut of).collect()
}

/// A pixel during processing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Masked,
    Missing,
    Invalid,
    Saturated,
    Number(f64),
}

/// The inputs of the naive run.
#[derive(Clone, Copy)]
pub struct NaiveRun<'a> {
    /// The packets that came.
    pub reference: &'a Reference,
    /// The options.
    pub processing: Processing,
    /// Type of the output pixels.
    pub pixel: PixelType,
    /// Which images are written.
    pub missing: MissingPolicy,
    /// Sets of constants.
    pub sets: &'a [JungfrauConstants],
    /// The set of each storage cell; `None` masks all pixels.
    pub set_of_cell: [Option<usize>; 16],
    /// Gates in ADU for each set, in stream order.
    pub gates: &'a [Vec<f32>],
    /// The output image.
    pub outline: &'a Outline,
}

/// An image with all that is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NaiveImage {
    /// Its state.
    pub status: ImageStatus,
    /// The first of its frames.
    pub first_frame: u64,
    /// Frames added.
    pub frames: u32,
    /// Of these: with every packet.
    pub frames_complete: u32,
    /// Pixels in output order as `f64`, exact for every type; empty unless the image is complete or partial.
    pub pixels: Vec<f64>,
    /// Pedestals of G0 after this image, of the set of its last frame (if that has none: of the first set), in output
    /// order; NaN in gaps.
    pub pedestals: Vec<f32>,
}

impl NaiveRun<'_> {
    fn frames(&self) -> u64 {
        self.reference.layout().images
    }

    /// What happens to each frame.
    pub fn uses(&self) -> Vec<Use> {
        let words: Vec<_> = (0..self.frames()).map(|frame| self.reference.daq_info(frame)).collect();
        uses(&self.processing.selection, &words)
    }

    /// Calls `visit` for each image in order.
    pub fn for_each_image(&self, mut visit: impl FnMut(u64, NaiveImage)) {
        let uses = self.uses();
        let mut pedestals: Vec<Vec<f32>> = self.sets.iter().map(|set| set.pedestals[0].clone()).collect();
        let (mut members, mut sum) = (Vec::new(), Vec::new());
        for (frame, becomes) in (0..).zip(&uses) {
            let words = self.reference.words(frame);
            let set = self.reference.daq_info(frame).map(|word| self.set_of_cell[(word >> 8 & 15) as usize]);
            if let Use::Image(_) = becomes {
                let values = self.converted(&words, set, &pedestals);
                if members.is_empty() {
                    sum = values;
                } else {
                    let special = self.working().special();
                    sum.iter_mut().zip(values).for_each(|(a, b)| *a = self.added(*a, b, &special));
                }
                members.push(frame);
            }
            if let (Some(Some(set)), true) = (set, self.moves(*becomes)) {
                self.track(&words, set, &mut pedestals[set]);
            }
            if let Use::Image(image) = *becomes
                && members.len() == self.processing.selection.sum_frames as usize
            {
                visit(image, self.finished(image, &members, &sum, &pedestals[set.flatten().unwrap_or(0)]));
                members.clear();
            }
        }
    }

    fn moves(&self, becomes: Use) -> bool {
        self.processing.tracking.is_some_and(|t| t.frames == TrackedFrames::All || becomes == Use::Dark)
    }

    fn track(&self, words: &[Option<u16>], set: usize, pedestals: &mut [f32]) {
        let weight = 1.0 / self.processing.tracking.expect("asked before").window_frames as f32;
        for ((pedestal, word), gate) in pedestals.iter_mut().zip(words).zip(&self.gates[set]) {
            let Some(word) = word.filter(|w| w >> 14 == 0) else { continue };
            let distance = f32::from(word) - *pedestal;
            if distance.abs() <= *gate {
                *pedestal += distance * weight;
            }
        }
    }

    /// The type in which frames are rounded and added.
    fn working(&self) -> PixelType {
        let unsigned = matches!(self.pixel, PixelType::Uint16 | PixelType::Uint32);
        let offset = matches!(self.processing.negative, Negative::Offset(_));
        match self.pixel {
            PixelType::Float32 => PixelType::Float32,
            _ if self.processing.selection.sum_frames > 1 || unsigned && offset => PixelType::Int32,
            other => other,
        }
    }

    /// The pixels of a frame. `set` is `None` if no packet of the frame came, and `Some(None)` if its storage cell has
    /// no constants.
    fn converted(&self, words: &[Option<u16>], set: Option<Option<usize>>, pedestals: &[Vec<f32>]) -> Vec<Value> {
        let Some(set) = set else { return vec![Value::Missing; words.len()] };
        let Some(set) = set else { return vec![Value::Masked; words.len()] };
        let (constants, working) = (&self.sets[set], self.working());
        let special = working.special();
        let offsets = self.common_mode(words, &pedestals[set], &self.gates[set]);
        let offset = |pixel| match self.line(pixel) {
            Some(line) => offsets.get(&line).copied().unwrap_or(0.0),
            None => 0.0,
        };
        let of = |(pixel, word): (usize, &Option<u16>)| match word {
            None => Value::Missing,
            Some(word) => {
                let pedestal =
                    [pedestals[set][pixel] + offset(pixel), constants.pedestals[1][pixel], constants.pedestals[2][pixel]];
                let factor = constants.factors.each_ref().map(|plane| plane[pixel]);
                match convert(*word, pedestal, factor, working, &special) {
                    Value::Number(_) if *word == 0x3FFF && constants.high_gain => Value::Saturated,
                    value => value,
                }
            }
        };
        words.iter().enumerate().map(of).collect()
    }

    /// Which row or column of which chip a pixel belongs to: tile, row of chips or pixels, column of chips or pixels.
    fn line(&self, pixel: usize) -> Option<(usize, usize, usize)> {
        if self.processing.common_mode == CommonMode::None {
            return None;
        }
        let stream = self.reference.layout().stream;
        let (tile, in_tile) = (pixel / (stream.rows * stream.columns), pixel % (stream.rows * stream.columns));
        let (row, column) = (in_tile / stream.columns, in_tile % stream.columns);
        match self.processing.common_mode {
            CommonMode::None => None,
            CommonMode::Row => Some((tile, row, column / CHIP)),
            CommonMode::Column => Some((tile, row / CHIP, column)),
        }
    }

    /// Offset of each line: the mean distance of its dark words from their pedestals. Pixels that are nowhere in the
    /// image do not count.
    fn common_mode(&self, words: &[Option<u16>], pedestals: &[f32], gates: &[f32]) -> HashMap<(usize, usize, usize), f32> {
        let mut sums = HashMap::<_, (f64, u32)>::new();
        if self.processing.common_mode == CommonMode::None {
            return HashMap::new();
        }
        let mut is_seen = vec![false; words.len()];
        self.outline.spots.iter().flatten().for_each(|spot| is_seen[spot.pixel] = true);
        for (pixel, word) in words.iter().enumerate().filter(|(pixel, _)| is_seen[*pixel]) {
            let Some(word) = word.filter(|w| w >> 14 == 0) else { continue };
            let distance = f32::from(word) - pedestals[pixel];
            if distance.abs() <= gates[pixel] {
                let sum = sums.entry(self.line(pixel).expect("there is a common mode")).or_default();
                *sum = (sum.0 + f64::from(distance), sum.1 + 1);
            }
        }
        let enough = sums.into_iter().filter(|(_, sum)| sum.1 >= DARK_WORDS_MIN);
        enough.map(|(line, (sum, count))| (line, (sum / f64::from(count)) as f32)).collect()
    }

    fn added(&self, a: Value, b: Value, special: &Special) -> Value {
        let (Value::Number(a), Value::Number(b)) = (a, b) else {
            let order = [Value::Masked, Value::Missing, Value::Invalid, Value::Saturated];
            return order.into_iter().find(|s| a == *s || b == *s).expect("one is not a number");
        };
        let sum = if self.pixel == PixelType::Float32 { f64::from(a as f32 + b as f32) } else { a + b };
        bounded(sum, special)
    }

    fn finished(&self, image: u64, members: &[u64], sum: &[Value], pedestals: &[f32]) -> NaiveImage {
        let placed: Vec<usize> = members
            .iter()
            .map(|frame| {
                let streams = 0..self.reference.layout().stream.streams;
                streams.map(|s| self.reference.arrived(*frame, s).iter().filter(|came| **came).count()).sum()
            })
            .collect();
        let stream = self.reference.layout().stream;
        let all = stream.streams * stream.packets_per_tile as usize;
        let complete = placed.iter().filter(|n| **n == all).count();
        let status = match self.missing {
            _ if placed.iter().all(|n| *n == 0) => ImageStatus::Lost,
            _ if complete == members.len() => ImageStatus::Complete,
            MissingPolicy::Keep => ImageStatus::Partial,
            _ => ImageStatus::Discarded,
        };
        let mut pixels = Vec::new();
        if matches!(status, ImageStatus::Complete | ImageStatus::Partial) {
            let types = (self.working().special(), self.pixel.special());
            pixels = self.outline.spots.iter().map(|spot| self.output(*spot, image, sum, &types)).collect();
        }
        let pedestals = self.outline.spots.iter().map(|spot| spot.map_or(f32::NAN, |s| pedestals[s.pixel])).collect();
        let frames = members.len() as u32;
        NaiveImage { status, first_frame: members[0], frames, frames_complete: complete as u32, pixels, pedestals }
    }

    /// An output pixel: its share, the policy for counts below zero, the type of the file.
    fn output(&self, spot: Option<Spot>, image: u64, sum: &[Value], (working, special): &(Special, Special)) -> f64 {
        let value = spot.map_or(Value::Masked, |spot| match sum[spot.pixel] {
            Value::Number(whole) => self.treated(self.shared(whole, spot, image), working),
            other => other,
        });
        match value {
            Value::Number(number) => match bounded(number, special) {
                Value::Number(number) => number,
                _ => special.saturated,
            },
            Value::Masked => special.masked,
            Value::Missing => special.missing,
            Value::Invalid => special.invalid,
            Value::Saturated => special.saturated,
        }
    }

    fn shared(&self, whole: f64, spot: Spot, image: u64) -> f64 {
        let parts = f64::from(spot.parts);
        if spot.parts == 1 {
            return whole;
        }
        if self.pixel == PixelType::Float32 {
            return f64::from(whole as f32 / parts as f32);
        }
        let (each, rest) = ((whole / parts).floor(), whole.rem_euclid(parts));
        let start = share_start(spot.pixel as u32, image);
        let place = (i32::from(spot.part) - i32::from(start)).rem_euclid(i32::from(spot.parts));
        if f64::from(place) < rest { each + 1.0 } else { each }
    }

    fn treated(&self, number: f64, special: &Special) -> Value {
        match self.processing.negative {
            Negative::Keep => Value::Number(number),
            Negative::Clamp => Value::Number(number.max(0.0)),
            Negative::Offset(offset) if self.pixel == PixelType::Float32 => {
                bounded(f64::from(number as f32 + offset as f32), special)
            }
            Negative::Offset(offset) => bounded(number + f64::from(offset), special),
        }
    }
}

fn convert(word: u16, pedestal: [f32; 3], factor: [f32; 3], working: PixelType, special: &Special) -> Value {
    let stage = match word {
        0xFFFF | 0xC000 | 0x4000 | 0x8000..0xC000 if pedestal[0].is_nan() || factor[0].is_nan() => return Value::Masked,
        0xC000 => return Value::Saturated,
        0xFFFF | 0x4000 | 0x8000..0xC000 => return Value::Invalid,
        _ => [0, 1, 0, 2][usize::from(word >> 14)],
    };
    let product = (f32::from(word & 0x3FFF) - pedestal[stage]) * factor[stage];
    let number = f64::from(product);
    match working {
        _ if product.is_nan() => Value::Masked,
        PixelType::Float32 => bounded(number, special),
        _ => bounded(number.round_ties_even(), special),
    }
}

fn bounded(number: f64, special: &Special) -> Value {
    if number > special.valid_max { Value::Saturated } else { Value::Number(number.max(special.valid_min)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::geometry::Orientation;

    #[test]
    fn a_module_opens_and_turns() {
        let place = |orientation| Placement { row: 0, column: 0, orientation };
        let upright = Outline::new((512, 1024), &[place(Orientation::UPRIGHT)], (514, 1030), DoublePixels::Split);
        let parts = |n| upright.spots.iter().flatten().filter(|s| s.parts == n).count();
        assert_eq!((parts(1), parts(2), parts(4)), (510 * 1018, 2 * 6 * 510 + 2 * 2 * 1018, 4 * 12));
        assert_eq!(upright.spots[255 * 1030 + 256], Some(Spot { pixel: 255 * 1024 + 255, part: 1, parts: 4 }));
        let turned = Orientation::new(false, false, Quarter::Deg90);
        let sideways = Outline::new((512, 1024), &[place(turned)], (1030, 514), DoublePixels::Split);
        // What was above is at the right.
        assert_eq!((sideways.spots[513], sideways.spots[0]), (upright.spots[0], upright.spots[513 * 1030]));
        let masked = Outline::new((512, 1024), &[place(Orientation::UPRIGHT)], (514, 1030), DoublePixels::Mask);
        assert_eq!(masked.spots.iter().flatten().count(), 510 * 1018);
    }

    #[test]
    fn frames_are_selected() {
        let flag = Flag { mask: 2, set: true };
        let selection = Selection { warmup_frames: 1, darks: Marked::Flag(flag), sum_frames: 2, ..Selection::default() };
        let found = uses(&selection, &[None, Some(0), Some(2), None, Some(1), Some(0)]);
        assert_eq!(found, [Use::Dark, Use::Image(0), Use::Dark, Use::Dark, Use::Image(0), Use::Unfinished]);
        let found = uses(&Selection { keep: Keep::EveryNth(2), images_max: Some(1), ..Selection::default() }, &[None; 4]);
        assert_eq!(found, [Use::Image(0), Use::Skipped, Use::Skipped, Use::Skipped]);
    }
}
