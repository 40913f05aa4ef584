//! The last rows of an image, and the windows that slide over them.

use super::settings::{FAR_PX, Settings};
use crate::plane::Plane;
use konkordia_kernels::Isa;
use konkordia_kernels::dispersion::{
    BLOCK, Bound, Columns, PAD, Range, Row, Value, Window, add, disperse, erode, load, padded, slide, slide_background,
};
use konkordia_kernels::stats::Measured;

/// Pixels from this value on do not count in windows, as in DIALS.
const UNCOUNTED_FROM: u32 = 1 << 24;

/// Rows of which windows are made. As many are kept as the windows need; one more slot stands for the rows above and
/// below the image.
#[derive(Clone, Debug)]
pub struct Rows<V> {
    bound: Bound,
    rows: usize,
    columns: usize,
    half_height: usize,
    shrink: usize,
    extended: bool,
    masked: u8,
    /// Number of slots without that of the rows outside the image.
    ring: usize,
    length: usize,
    values: Vec<V>,
    flags: Vec<u8>,
    above: Vec<u8>,
    inner: Vec<u8>,
    back: Vec<u8>,
    large: Vec<u8>,
    near: Sliding,
    far: Sliding,
    is_wide: Vec<u8>,
    slots: Vec<usize>,
    /// The pixels so far that count.
    counted: Pixels,
}

/// A window that slides down the image.
#[derive(Clone, Debug)]
struct Sliding {
    half_height: usize,
    half_width: usize,
    columns: Columns,
    /// For each block, with one before and after: how many rows of the window have large values there.
    large: Vec<u8>,
}

/// The pixels that count in the window around a pixel.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// Their number.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
}

/// Number and sum of some pixels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pixels {
    /// Their number.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Pixels {
    /// With others.
    pub fn add(&mut self, (count, sum): (u64, f64)) {
        self.count += count;
        self.sum += sum;
    }
}

/// The part of `all` that belongs to a slot.
fn line<T>(all: &[T], slot: usize, length: usize) -> &[T] {
    &all[slot * length..(slot + 1) * length]
}

impl Sliding {
    fn new([half_height, half_width]: [usize; 2], columns: usize) -> Self {
        let large = vec![0; columns.div_ceil(BLOCK) + 2];
        Self { half_height, half_width, columns: Columns::new(columns), large }
    }

    fn clear(&mut self) {
        self.columns.clear();
        self.large.fill(0);
    }

    /// Counts the blocks with large values of a row that enters and of one that leaves; `large` holds them for all
    /// slots.
    fn count_large(&mut self, large: &[u8], enter: usize, leave: usize) {
        let blocks = self.large.len() - 2;
        let [enter, leave] = [enter, leave].map(|slot| line(large, slot, blocks));
        for ((count, enter), leave) in self.large[1..].iter_mut().zip(enter).zip(leave) {
            *count = count.wrapping_add(*enter).wrapping_sub(*leave);
        }
    }

    /// True if the window has large values in a block or beside it.
    fn is_large(&self, block: usize) -> bool {
        self.large[block] | self.large[block + 1] | self.large[block + 2] != 0
    }
}

impl<V: Value> Rows<V> {
    /// Memory for images of this size.
    pub fn new(settings: &Settings, rows: usize, columns: usize) -> Self {
        let [half_height, half_width] = settings.half_window_px;
        let far = [half_height + FAR_PX, half_width + FAR_PX];
        let shrink = settings.shrink_px();
        let ring = half_height + shrink + 2 * far[0] + 2;
        let length = padded(columns);
        let blocks = columns.div_ceil(BLOCK);
        Self {
            bound: settings.bound(),
            rows,
            columns,
            half_height,
            shrink,
            extended: settings.extended,
            masked: u8::from(settings.extended && !settings.masked_is_background),
            ring,
            length,
            values: vec![V::default(); (ring + 1) * length],
            flags: vec![0; (ring + 1) * length],
            above: vec![1; (ring + 1) * length],
            inner: vec![0; (ring + 1) * length],
            back: vec![0; (ring + 1) * length],
            large: vec![0; (ring + 1) * blocks],
            near: Sliding::new(settings.half_window_px, columns),
            far: Sliding::new(far, columns),
            is_wide: vec![0; blocks],
            slots: Vec::with_capacity(2 * far[0] + 1),
            counted: Pixels::default(),
        }
    }

    /// Begins an image.
    pub fn clear(&mut self) {
        self.near.clear();
        self.far.clear();
        self.counted = Pixels::default();
    }

    /// The pixels of the rows that were loaded which count in windows.
    pub fn counted(&self) -> Pixels {
        self.counted
    }

    /// True if a measurement of this value counts in windows.
    pub fn counts(value: f64) -> bool {
        value < f64::from(UNCOUNTED_FROM)
    }

    /// Number of steps of an image: one per row, and more until the last one is through.
    pub fn steps(&self) -> usize {
        self.rows + self.delay()
    }

    /// Rows between the one that is loaded and the one that comes out.
    fn delay(&self) -> usize {
        self.half_height + if self.extended { self.shrink + self.far.half_height } else { 0 }
    }

    /// Loads row `step` of the image. Gives the row that comes out, if there is one and it has candidates: see
    /// [`Self::candidates`] and [`Self::around`].
    pub fn step<P: Measured>(&mut self, isa: Isa, plane: &Plane<P>, usable: &[u8], step: usize) -> Option<usize> {
        if step < self.rows {
            self.load(isa, plane, usable, step);
        }
        let row = step as isize;
        self.slide_near(isa, row);
        let middle = row - self.half_height as isize;
        let rows = self.rows;
        let in_image = |row: isize| usize::try_from(row).ok().filter(|row| *row < rows);
        if let Some(middle) = in_image(middle) {
            self.disperse(isa, middle);
            if !self.extended {
                return Some(middle);
            }
        }
        if !self.extended {
            return None;
        }
        let shrunk = middle - self.shrink as isize;
        if let Some(shrunk) = in_image(shrunk) {
            self.erode(isa, shrunk);
        }
        self.slide_far(isa, shrunk);
        let out = in_image(shrunk - self.far.half_height as isize)?;
        self.sum_wide(out);
        Some(out)
    }

    /// Where a row lies, in slots.
    fn slot(&self, row: isize) -> usize {
        if row >= 0 && row < self.rows as isize { row as usize % self.ring } else { self.ring }
    }

    fn load<P: Measured>(&mut self, isa: Isa, plane: &Plane<P>, usable: &[u8], row: usize) {
        let pixels = &plane.pixels[row * self.columns..(row + 1) * self.columns];
        let usable = &usable[row * self.columns..(row + 1) * self.columns];
        let has_larger = P::VALID_MAX.to_f64() >= f64::from(UNCOUNTED_FROM);
        let small_max = self.bound.small_max();
        let range = Range {
            low: plane.low,
            high: plane.high,
            uncounted_from: has_larger.then(|| P::from_count(UNCOUNTED_FROM)),
            small_min: V::lowest(small_max),
            small_max: V::highest(small_max),
        };
        let slot = self.slot(row as isize);
        let line = slot * self.length + PAD..(slot + 1) * self.length - PAD;
        let (values, flags) = (&mut self.values[line.clone()], &mut self.flags[line]);
        let large = &mut self.large[slot * self.is_wide.len()..][..self.is_wide.len()];
        load(isa, pixels, usable, range, values, flags, large);
        self.counted.add(add(isa, &values[..self.columns], &flags[..self.columns]));
    }

    fn slide_near(&mut self, isa: Isa, row: isize) {
        let [enter, leave] = [row, row - 2 * self.near.half_height as isize - 1].map(|row| self.slot(row));
        let line = |slot| (line(&self.values, slot, self.length), line(&self.flags, slot, self.length));
        slide(isa, line(enter), line(leave), &mut self.near.columns);
        self.near.count_large(&self.large, enter, leave);
    }

    fn slide_far(&mut self, isa: Isa, row: isize) {
        let [enter, leave] = [row, row - 2 * self.far.half_height as isize - 1].map(|row| self.slot(row));
        let line = |slot| (line(&self.values, slot, self.length), line(&self.back, slot, self.length));
        slide_background(isa, line(enter), line(leave), &mut self.far.columns);
        self.far.count_large(&self.large, enter, leave);
    }

    fn take_slots(&mut self, middle: usize, reach: usize) {
        let (middle, reach) = (middle as isize, reach as isize);
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        slots.extend((middle - reach..=middle + reach).map(|row| self.slot(row)));
        self.slots = slots;
    }

    fn disperse(&mut self, isa: Isa, row: usize) {
        self.take_slots(row, self.half_height);
        for (block, is_wide) in self.is_wide.iter_mut().enumerate() {
            *is_wide = u8::from(self.near.is_large(block));
        }
        let slot = self.slot(row as isize);
        let line = slot * self.length..(slot + 1) * self.length;
        let window = Window { values: &self.values, length: self.length, slots: &self.slots };
        let flags = &self.flags[line.clone()];
        let above = &mut self.above[line];
        let tested = Row { is_wide: &self.is_wide, flags, masked: self.masked, above };
        disperse(isa, window, &mut self.near.columns, &self.bound, tested);
        // Beside the image nothing is background.
        let line = slot * self.length..(slot + 1) * self.length;
        self.above[line][PAD + self.columns..].fill(1);
    }

    fn erode(&mut self, isa: Isa, row: usize) {
        self.take_slots(row, self.shrink);
        let slot = self.slot(row as isize);
        let line = slot * self.length..(slot + 1) * self.length;
        let (inner, back) = (&mut self.inner[line.clone()], &mut self.back[line.clone()]);
        erode(isa, &self.above, self.length, &self.slots, &self.flags[line], inner, back);
    }

    /// For each column of a row that came out: 1 if the pixel can be strong, otherwise 0.
    pub fn candidates(&self, row: usize) -> &[u8] {
        let candidates = if self.extended { &self.inner } else { &self.above };
        &line(candidates, self.slot(row as isize), self.length)[PAD..PAD + self.columns]
    }

    /// Sums of the background in double precision, from top to bottom, of the columns around the candidates of a row,
    /// where sums of whole numbers do not do.
    fn sum_wide(&mut self, row: usize) {
        self.take_slots(row, self.far.half_height);
        let slot = self.slot(row as isize);
        let mut ready = 0;
        for block in 0..self.is_wide.len() {
            let candidates = &line(&self.inner, slot, self.length)[PAD + block * BLOCK..][..BLOCK];
            let is_whole = V::IS_WHOLE && !self.far.is_large(block);
            if is_whole || candidates.iter().fold(0, |any, candidate| any | candidate) == 0 {
                continue;
            }
            let end = (block + 1) * BLOCK + 2 * PAD;
            for first in (ready.max(block * BLOCK)..end).step_by(BLOCK) {
                let mut sums = [0.0; BLOCK];
                for slot in &self.slots {
                    let values = &line(&self.values, *slot, self.length)[first..][..BLOCK];
                    let back = &line(&self.back, *slot, self.length)[first..][..BLOCK];
                    for ((sum, value), counts) in sums.iter_mut().zip(values).zip(back) {
                        *sum += if *counts == 1 { value.wide() } else { 0.0 };
                    }
                }
                self.far.columns.wide_sums[first..first + BLOCK].copy_from_slice(&sums);
            }
            ready = end;
        }
    }

    /// The background around a candidate of the row that came out last.
    pub fn around(&self, column: usize) -> Around {
        let window = if self.extended { &self.far } else { &self.near };
        let under = PAD + column - window.half_width..PAD + column + window.half_width + 1;
        let count: u32 = window.columns.counts[under.clone()].iter().map(|count| u32::from(*count)).sum();
        let sum = if V::IS_WHOLE && !window.is_large(column / BLOCK) {
            f64::from(window.columns.sums[under].iter().sum::<i32>())
        } else {
            window.columns.wide_sums[under].iter().sum()
        };
        Around { count: f64::from(count), sum }
    }
}
