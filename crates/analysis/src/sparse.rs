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

#[cfg(test)]
mod tests {
    use super::*;

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
