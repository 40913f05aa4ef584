//! Several pixels become one: bins of an image, sums of consecutive images.
//!
//! A special value among the pixels wins over numbers, in the order masked, missing, invalid, saturated. Totals are
//! exact for integers. Floats are added in double precision, down the columns of a bin first, in the same order on
//! every machine.

use super::dispatch::isa_paths;
use super::sample::{Kind, Sample, Total, for_element};
use super::totals::{add_row, write_totals};
use crate::isa::Isa;
use konkordia_core::array::Element;

pub use super::totals::{Bin, Reduce, Totals};

/// Adds a row of pixels to the totals, which [`Totals::begin`] made for as many.
///
/// # Panics
/// If the row is shorter or longer, or the element has no numbers (packed types).
pub fn add(isa: Isa, element: Element, row: &[u8], totals: &mut Totals) {
    fn typed<T: Sample>(isa: Isa, row: &[u8], totals: &mut Totals) {
        let (sums, kinds) = totals.of::<T>();
        assert_eq!(row.len(), sums.len() * size_of::<T>(), "one pixel for each total");
        isa_paths!(isa, add_row<T>(row, sums, kinds));
    }
    for_element!(element, typed(isa, row, totals), panic!("packed pixels are unpacked first"));
}

/// Writes totals of `element` pixels as pixels of another type, `columns` totals to one pixel. Totals left over are
/// ignored. `count` pixels went into each pixel of the output.
///
/// # Panics
/// If `out` holds another number of pixels than `totals / columns`, or an element has no numbers (packed types).
pub fn finish(isa: Isa, element: Element, totals: &mut Totals, columns: usize, count: u32, how: &Bin, out: &mut [u8]) {
    fn from<T: Sample>(isa: Isa, totals: &mut Totals, columns: usize, count: u32, how: &Bin, out: &mut [u8]) {
        let (sums, kinds) = totals.of::<T>();
        let to = how.element.unwrap_or(T::ELEMENT);
        for_element!(
            to,
            into::<_, T::Total>(isa, (sums, kinds), columns, count, how, out),
            panic!("nothing becomes packed pixels")
        );
    }
    fn into<U: Sample, S: Total>(isa: Isa, totals: (&[S], &[Kind]), columns: usize, count: u32, how: &Bin, out: &mut [u8]) {
        assert_eq!(out.len(), totals.0.len() / columns * size_of::<U>(), "one pixel for {columns} totals");
        isa_paths!(isa, write_totals < U, S > (totals, columns, count, how, out));
    }
    for_element!(element, from(isa, totals, columns, count, how, out), panic!("packed pixels are unpacked first"));
}

/// Bins an image of `columns` columns; rows and columns that fill no bin are left out.
///
/// # Panics
/// If `out` does not have the size of the result, the bin is empty or larger than [`Bin::PIXELS_MAX`], or an element
/// has no numbers.
pub fn bin(isa: Isa, element: Element, columns: usize, image: &[u8], how: &Bin, totals: &mut Totals, out: &mut [u8]) {
    let count = how.rows.checked_mul(how.columns).filter(|count| (1..=Bin::PIXELS_MAX).contains(count));
    let count = count.expect("a bin holds 1 to 2^20 pixels") as u32;
    let row_bytes = columns * element.bits() as usize / 8;
    let out_row_bytes = columns / how.columns * how.element.unwrap_or(element).bits() as usize / 8;
    assert_eq!(out.len(), image.len() / row_bytes / how.rows * out_row_bytes, "the output has one pixel for each bin");
    for (rows, out) in image.chunks_exact(row_bytes * how.rows).zip(out.chunks_exact_mut(out_row_bytes)) {
        totals.begin(element, columns);
        rows.chunks_exact(row_bytes).for_each(|row| add(isa, element, row, totals));
        finish(isa, element, totals, how.columns, count, how, out);
    }
}
