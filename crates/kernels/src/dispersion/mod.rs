//! The sums of the spot finder of DIALS: for each pixel, the variance divided by the mean (the index of dispersion) of
//! a small window around it. Rows come one after the other; sums over the rows under the window are kept for each
//! column and slide from row to row. Sums of whole numbers are exact; where values are too large for 32 bits, and for
//! floats, they are made anew in double precision for each row and in a fixed order. So all instruction sets agree.
//!
//! Winter, G. et al. (2018), Acta Cryst. D74, 85-97; `DispersionExtendedThreshold` of DIALS.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bound;
mod lines;
mod scalar;
mod value;

pub use bound::{Bound, HALF_WIDTH_MAX};
pub use lines::{BLOCK, Columns, PAD, Range, Row, Window, padded};
pub use value::Value;

use crate::isa::Isa;
use crate::stats::Measured;

/// A function that runs as it was compiled for an instruction set.
macro_rules! by_isa {
    ($isa:expr, $name:ident($($argument:expr),*)) => {
        match $isa.usable() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::$name($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::$name($($argument),*),
            _ => scalar::$name($($argument),*),
        }
    };
}

/// Takes a row of an image apart: `flags` become 0 (masked: not usable or out of range), 1 (counts in windows) or 2 (a
/// measurement that does not count), `values` 0 where a pixel does not count, and `large` 1 for each [`BLOCK`] of
/// columns that has large values. `usable` has one byte per pixel, 0 if the pixel is never used; `values` and `flags`
/// have at least as many elements as there are pixels and are not touched behind them.
///
/// # Panics
/// If the lengths do not fit.
pub fn load<P: Measured, V: Value>(
    isa: Isa,
    pixels: &[P],
    usable: &[u8],
    range: Range<P, V>,
    values: &mut [V],
    flags: &mut [u8],
    large: &mut [u8],
) {
    by_isa!(isa, load(pixels, usable, range, values, flags, large));
}

/// Number and sum of the pixels of a row that count, as [`load`] left them. Sums of integers are exact for up to 2^20
/// pixels; those of floats are made in a fixed order.
///
/// # Panics
/// If there is not one flag for each value.
pub fn add<V: Value>(isa: Isa, values: &[V], flags: &[u8]) -> (u64, f64) {
    by_isa!(isa, add(values, flags))
}

/// Values and flags of a row, as [`load`] left them, enter the window, those of another row leave it. Both rows, and
/// all vectors of `columns`, are as long as a row in memory ([`padded`]).
pub fn slide<V: Value>(isa: Isa, enter: (&[V], &[u8]), leave: (&[V], &[u8]), columns: &mut Columns) {
    by_isa!(isa, slide(enter, leave, columns));
}

/// As [`slide`], but a pixel counts where the second slice, as [`erode`] made it, is 1, and there are no squares.
pub fn slide_background<V: Value>(isa: Isa, enter: (&[V], &[u8]), leave: (&[V], &[u8]), columns: &mut Columns) {
    by_isa!(isa, slide_background(enter, leave, columns));
}

/// Which pixels of the middle row of the window are not background, because their index of dispersion is above the
/// bound.
pub fn disperse<V: Value>(isa: Isa, window: Window<V>, columns: &mut Columns, bound: &Bound, row: Row) {
    by_isa!(isa, disperse(window, columns, bound, row));
}

/// Which pixels of a row are surrounded by pixels that are not background (`inner`), and which of the others count in
/// windows (`back`). `above` holds results of [`disperse`], rows of `length`; `slots` says which of them lie around the
/// row, from top to bottom, and reach as far to the left and right. True if there are inner pixels.
pub fn erode(isa: Isa, above: &[u8], length: usize, slots: &[usize], flags: &[u8], inner: &mut [u8], back: &mut [u8]) -> bool {
    by_isa!(isa, erode(above, length, slots, flags, inner, back))
}

#[cfg(test)]
mod tests;
