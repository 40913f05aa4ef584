//! Totals of pixels, and the loops that add a row to them and write them as bins. These loops are compiled for each
//! instruction set.

use super::sample::{Kind, NUMBER, Overflow, Sample, Total, read, write};
use konkordia_core::array::Element;

/// How the pixels of a bin are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their sum.
    #[default]
    Sum,
    /// Their mean; rounded half to even in integer types.
    Mean,
}

/// How an image is binned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bin {
    /// Rows of a bin.
    pub rows: usize,
    /// Columns of a bin.
    pub columns: usize,
    /// Sum or mean.
    pub reduce: Reduce,
    /// Type of the output; `None` = as the input.
    pub element: Option<Element>,
    /// What becomes of totals above its range.
    pub overflow: Overflow,
}

impl Bin {
    /// Most pixels of a bin; few enough that no total of 64 bits overflows.
    pub const PIXELS_MAX: usize = 1 << 20;
}

/// Totals of one row of pixels, each with the special value that wins so far. Grows to the longest row that was asked
/// for, and is kept.
#[derive(Default)]
pub struct Totals {
    /// Stored as the widest total, so that every type is aligned.
    sums: Vec<i128>,
    kinds: Vec<Kind>,
}

impl Totals {
    /// Sets all totals to 0, for rows of `pixels` pixels of a type.
    pub fn begin(&mut self, element: Element, pixels: usize) {
        let total_bytes = if matches!(element, Element::Uint64 | Element::Int64) { size_of::<i128>() } else { size_of::<i64>() };
        self.sums.clear();
        self.sums.resize((pixels * total_bytes).div_ceil(size_of::<i128>()), 0);
        self.kinds.clear();
        self.kinds.resize(pixels, NUMBER);
    }

    /// Most memory in bytes for this number of pixels.
    pub const fn bytes(pixels: usize) -> usize {
        pixels * (size_of::<i128>() + size_of::<Kind>())
    }

    pub(super) fn of<T: Sample>(&mut self) -> (&mut [T::Total], &mut [Kind]) {
        let pixels = self.kinds.len();
        (&mut bytemuck::cast_slice_mut(&mut self.sums)[..pixels], &mut self.kinds)
    }
}

/// Pixels that are examined together: if all are plain numbers, as nearly always, they are simply added.
const CHUNK: usize = 64;

/// Adds a row of pixels to the totals, one to each.
#[inline(always)]
pub(super) fn add_row<T: Sample>(row: &[u8], sums: &mut [T::Total], kinds: &mut [Kind]) {
    let rows = row.chunks(CHUNK * size_of::<T>());
    for ((row, sums), kinds) in rows.zip(sums.chunks_mut(CHUNK)).zip(kinds.chunks_mut(CHUNK)) {
        if read::<T>(row).fold(true, |all, pixel| all & pixel.is_plain()) {
            read::<T>(row).zip(sums).for_each(|(pixel, sum)| *sum += pixel.widen());
            continue;
        }
        for ((pixel, sum), winner) in read::<T>(row).zip(sums).zip(kinds) {
            match pixel.kind() {
                NUMBER => *sum += pixel.widen(),
                kind => *winner = kind.max(*winner),
            }
        }
    }
}

/// See [`super::bin::finish`]. The usual numbers of columns are constants, so that the compiler can optimise for them.
#[inline(always)]
pub(super) fn write_totals<U: Sample, S: Total>(
    (sums, kinds): (&[S], &[Kind]),
    columns: usize,
    count: u32,
    how: &Bin,
    out: &mut [u8],
) {
    match columns {
        1 => write_bins::<U, S>(sums, kinds, 1, count, how, out),
        2 => write_bins::<U, S>(sums, kinds, 2, count, how, out),
        4 => write_bins::<U, S>(sums, kinds, 4, count, how, out),
        _ => write_bins::<U, S>(sums, kinds, columns, count, how, out),
    }
}

#[inline(always)]
fn write_bins<U: Sample, S: Total>(sums: &[S], kinds: &[Kind], columns: usize, count: u32, how: &Bin, out: &mut [u8]) {
    let total = |sums: &[S]| {
        let mut total = S::default();
        sums.iter().for_each(|sum| total += *sum);
        total
    };
    let number = |total: S| match how.reduce {
        Reduce::Sum => total.sum::<U>(how.overflow),
        Reduce::Mean => total.mean::<U>(count, how.overflow),
    };
    let parts = sums.chunks(CHUNK * columns).zip(kinds.chunks(CHUNK * columns));
    for ((sums, kinds), out) in parts.zip(out.chunks_mut(CHUNK * size_of::<U>())) {
        let totals = sums.chunks_exact(columns).map(total);
        if kinds.iter().fold(NUMBER, |all, kind| all | kind) == NUMBER {
            if how.reduce == Reduce::Sum {
                write(out, totals.map(|total| total.sum::<U>(how.overflow)));
            } else {
                write(out, totals.map(number));
            }
            continue;
        }
        let kinds = kinds.chunks_exact(columns).map(|kinds| kinds.iter().fold(NUMBER, |all, kind| all.max(*kind)));
        write(out, totals.zip(kinds).map(|(total, kind)| if kind == NUMBER { number(total) } else { U::special(kind) }));
    }
}
