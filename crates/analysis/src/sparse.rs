//! Sparse images: the pixels above a level, as compressed rows (CSR), with a bound. Their number may also serve as a
//! veto: an image of few such pixels shows nothing (Ponsard et al. 2020, threshold value and threshold number).

use crate::plane::Plane;
use konkordia_kernels::stats::Measured;
use konkordia_kernels::{Isa, above};

/// Number of usable pixels whose value is a measurement above `level`.
///
/// # Panics
/// If it is not known of each pixel whether it is usable.
pub fn count_above<P: Measured>(isa: Isa, plane: &Plane<'_, P>, usable: &[bool], level: P) -> u64 {
    above::count(isa, plane.pixels, usable, level, plane.high)
}

/// The pixels of an image above a level. Row `r` has the columns `columns()[row_starts[r]..row_starts[r + 1]]`, and the
/// values at the same places.
///
/// There is room for so many pixels as it was made for. Rows are kept from the first on, as long as a whole row fits;
/// the others are empty, [`Self::is_whole`] is false, and [`Self::found`] still counts all pixels: nothing is cut
/// silently.
#[derive(Clone, Debug)]
pub struct SparseImage<P> {
    /// One more than there are rows.
    pub row_starts: Vec<u32>,
    /// Room for columns and values; those of the image come first.
    columns: Vec<u32>,
    values: Vec<P>,
    /// Pixels above the level, also those for which there was no room.
    pub found: u64,
}

impl<P: Measured> SparseImage<P> {
    /// An empty image of so many rows, with room for `pixels_max` pixels; it takes its memory here.
    pub fn new(rows: usize, pixels_max: usize) -> Self {
        let room = pixels_max.min(u32::MAX as usize);
        Self { row_starts: vec![0; rows + 1], columns: vec![0; room], values: vec![P::MASKED; room], found: 0 }
    }

    fn used(&self) -> usize {
        self.row_starts.last().map_or(0, |end| *end as usize)
    }

    /// Columns of the pixels, ascending within a row.
    pub fn columns(&self) -> &[u32] {
        &self.columns[..self.used()]
    }

    /// Values of the pixels.
    pub fn values(&self) -> &[P] {
        &self.values[..self.used()]
    }

    /// Takes the pixels of an image above a level.
    ///
    /// # Panics
    /// If the image has another number of rows than this was made for, or if it is not known of each pixel whether it
    /// is usable.
    pub fn take(&mut self, isa: Isa, plane: &Plane<'_, P>, usable: &[bool], level: P) {
        assert_eq!((plane.rows + 1, plane.pixels.len()), (self.row_starts.len(), usable.len()));
        self.found = 0;
        let (mut used, mut is_full) = (0, false);
        let rows = plane.pixels.chunks_exact(plane.columns).zip(usable.chunks_exact(plane.columns));
        for ((row, usable), start) in rows.zip(&mut self.row_starts[1..]) {
            let (columns, values) = (&mut self.columns[used..], &mut self.values[used..]);
            let room = columns.len();
            let found = above::collect(isa, row, usable, level, plane.high, columns, values);
            self.found += found as u64;
            is_full |= found > room;
            used += if is_full { 0 } else { found };
            *start = used as u32;
        }
    }

    /// True if all pixels that were found are here.
    pub fn is_whole(&self) -> bool {
        self.found == self.used() as u64
    }
}

/// What becomes of an image with more pixels above the level than are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Its first pixels are kept.
    #[default]
    Truncate,
    /// None of its pixels is kept.
    None,
}

/// The pixels of an image above a level, with their numbers in the image, row by row: one row of a sparse matrix of
/// images (CSR). At most `pixels_max` are kept; all are counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SparsePixels {
    /// Numbers of the pixels that are kept, ascending.
    pub indices: Vec<u32>,
    /// Their values.
    pub values: Vec<f64>,
    /// Pixels above the level, also those that are not kept.
    pub found: u64,
    pixels_max: usize,
    overflow: Overflow,
}

/// Pixels that are looked at together.
const BLOCK: usize = 4096;

impl SparsePixels {
    /// Room for so many pixels; it takes its memory here.
    pub fn new(pixels_max: usize, overflow: Overflow) -> Self {
        let room = || Vec::with_capacity(pixels_max);
        Self { indices: room(), values: Vec::with_capacity(pixels_max), found: 0, pixels_max, overflow }
    }

    /// Takes the usable pixels of an image whose values are measurements above `level`.
    ///
    /// # Panics
    /// If it is not known of each pixel whether it is usable, or if there are more than 2^32.
    pub fn take<P: Measured>(&mut self, isa: Isa, plane: &Plane<'_, P>, usable: &[bool], level: P) {
        assert!(plane.pixels.len() == usable.len() && u32::try_from(usable.len().saturating_sub(1)).is_ok());
        self.indices.clear();
        self.values.clear();
        self.found = 0;
        let (mut places, mut values) = ([0; BLOCK], [P::MASKED; BLOCK]);
        for (block, (pixels, usable)) in plane.pixels.chunks(BLOCK).zip(usable.chunks(BLOCK)).enumerate() {
            let found = above::collect(isa, pixels, usable, level, plane.high, &mut places, &mut values);
            self.found += found as u64;
            let kept = found.min(self.pixels_max - self.indices.len());
            self.indices.extend(places[..kept].iter().map(|place| (block * BLOCK) as u32 + place));
            self.values.extend(values[..kept].iter().map(|value| value.to_f64()));
        }
        if self.overflow == Overflow::None && !self.is_whole() {
            self.indices.clear();
            self.values.clear();
        }
    }

    /// True if all pixels that were found are here.
    pub fn is_whole(&self) -> bool {
        self.found == self.indices.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels_equal_naive_code<P: Measured>(rows: usize, columns: usize) {
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
        let pixel = |n: usize| match n * 7919 % 101 {
            k if k < 6 => special[k],
            k => P::from_photons(k as f32 * 3.0),
        };
        let pixels: Vec<P> = (0..rows * columns).map(pixel).collect();
        let usable: Vec<bool> = (0..pixels.len()).map(|n| n % 11 != 3).collect();
        let plane = Plane::own(&pixels, columns);
        let is_above = |n: usize| usable[n] && plane.is_valid(pixels[n]) && pixels[n].to_f64() > 150.0;
        let naive: Vec<usize> = (0..pixels.len()).filter(|n| is_above(*n)).collect();
        for room in [0, 1, naive.len().saturating_sub(1), naive.len(), naive.len() + 9] {
            for overflow in [Overflow::Truncate, Overflow::None] {
                let mut sparse = SparsePixels::new(room, overflow);
                let memory = (sparse.indices.as_ptr(), sparse.values.as_ptr());
                for &isa in Isa::available().iter().chain(Isa::available()) {
                    sparse.take(isa, &plane, &usable, P::from_photons(150.0));
                    let kept = if overflow == Overflow::None && naive.len() > room { 0 } else { naive.len().min(room) };
                    let context = format!("{:?}, {rows} x {columns}, room {room}, {overflow:?}, {isa}", P::TYPE);
                    assert_eq!((sparse.found, sparse.is_whole()), (naive.len() as u64, kept == naive.len()), "{context}");
                    assert!(sparse.indices.iter().map(|n| *n as usize).eq(naive[..kept].iter().copied()), "{context}");
                    assert!(sparse.values.iter().copied().eq(naive[..kept].iter().map(|n| pixels[*n].to_f64())), "{context}");
                    assert_eq!(memory, (sparse.indices.as_ptr(), sparse.values.as_ptr()), "no memory is taken");
                }
            }
        }
    }

    #[test]
    fn sparse_pixels_are_those_of_naive_code() {
        for (rows, columns) in [(0, 7), (1, 1), (1, 4096), (17, 241), (3, 4097), (70, 131)] {
            pixels_equal_naive_code::<i16>(rows, columns);
            pixels_equal_naive_code::<u16>(rows, columns);
            pixels_equal_naive_code::<i32>(rows, columns);
            pixels_equal_naive_code::<u32>(rows, columns);
            pixels_equal_naive_code::<f32>(rows, columns);
        }
        let mut none = SparsePixels::new(9, Overflow::Truncate);
        none.take(Isa::detect(), &Plane::own(&[f32::NAN, f32::INFINITY, 7.0], 3), &[true, true, false], 1.0);
        assert!(none.is_whole() && none.found == 0);
    }

    fn image() -> (Vec<u16>, Vec<bool>) {
        let pixels: Vec<u16> = (0..7 * 300).map(|n| if n % 13 == 0 { 200 + (n % 50) as u16 } else { (n % 90) as u16 }).collect();
        let usable = (0..pixels.len()).map(|n| n % 26 != 0).collect();
        (pixels, usable)
    }

    #[test]
    fn a_sparse_image_has_all_pixels_above_the_level() {
        let (pixels, usable) = image();
        let plane = Plane::own(&pixels, 300);
        let mut sparse = SparseImage::new(7, 1000);
        for &isa in Isa::available() {
            sparse.take(isa, &plane, &usable, 100);
            let mut dense = vec![0u16; pixels.len()];
            for row in 0..7 {
                let of_row = sparse.row_starts[row] as usize..sparse.row_starts[row + 1] as usize;
                for at in of_row {
                    dense[row * 300 + sparse.columns()[at] as usize] = sparse.values()[at];
                }
            }
            let wanted: Vec<u16> =
                pixels.iter().zip(&usable).map(|(pixel, usable)| if *pixel > 100 && *usable { *pixel } else { 0 }).collect();
            assert_eq!(dense, wanted);
            assert!(sparse.is_whole() && sparse.found == count_above(isa, &plane, &usable, 100));
        }
    }

    #[test]
    fn what_has_no_room_is_counted_and_whole_rows_stay() {
        let (pixels, usable) = image();
        let plane = Plane::own(&pixels, 300);
        let mut all = SparseImage::new(7, 1000);
        all.take(Isa::Scalar, &plane, &usable, 100);
        let per_row = all.row_starts[1] as usize;
        for room in [0, 1, per_row - 1, per_row, per_row + 1, 3 * per_row] {
            let mut some = SparseImage::new(7, room);
            for _ in 0..2 {
                some.take(Isa::Scalar, &plane, &usable, 100);
                assert!(!some.is_whole() && some.found == all.found && some.columns().len() <= room);
                let kept = some.columns().len();
                let rows = all.row_starts.iter().take_while(|start| **start as usize <= room).count() - 1;
                assert_eq!(kept, all.row_starts[rows] as usize, "{room}");
                assert_eq!((some.columns(), some.values()), (&all.columns()[..kept], &all.values()[..kept]));
                assert!(some.row_starts[rows..].iter().all(|start| *start as usize == kept));
            }
        }
    }

    #[test]
    fn odd_images_are_no_trouble() {
        let mut sparse = SparseImage::<f32>::new(1, 5);
        sparse.take(Isa::detect(), &Plane::own(&[f32::NAN, f32::INFINITY, 7.0], 3), &[true; 3], 1.0);
        assert_eq!((sparse.found, sparse.columns()), (1, &[2][..]));
        let mut none = SparseImage::<u32>::new(0, 5);
        none.take(Isa::detect(), &Plane::own(&[], 3), &[], 1);
        assert!(none.is_whole() && none.row_starts == [0]);
        let saturated = vec![u16::MAX - 3; 5000];
        assert_eq!(count_above(Isa::detect(), &Plane::own(&saturated, 100), &[true; 5000], 10), 0);
    }
}
