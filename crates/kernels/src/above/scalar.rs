//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use crate::convert::OutputPixel;

/// Pixels of which it is known first whether there is any above: most groups have none, and are not looked at again.
/// Their number fits into the narrow counters of the loop.
const GROUP: usize = 128;

#[inline(always)]
fn is_above<P: OutputPixel>(pixel: P, level: P, high: P) -> bool {
    (pixel > level) & (pixel <= high)
}

#[inline(always)]
fn has_any<P: OutputPixel>(group: &[P], level: P, high: P) -> bool {
    group.iter().fold(false, |any, pixel| any | is_above(*pixel, level, high))
}

/// See [`super::count`].
#[inline(always)]
pub fn count<P: OutputPixel>(pixels: &[P], usable: &[bool], level: P, high: P) -> u64 {
    let mut count = 0;
    for (group, usable) in pixels.chunks(GROUP).zip(usable.chunks(GROUP)) {
        if has_any(group, level, high) {
            let each = group.iter().zip(usable).map(|(pixel, usable)| u8::from(is_above(*pixel, level, high) & usable));
            count += u64::from(each.sum::<u8>());
        }
    }
    count
}

/// See [`super::collect`].
#[inline(always)]
pub fn collect<P: OutputPixel>(row: &[P], usable: &[bool], level: P, high: P, columns: &mut [u32], values: &mut [P]) -> usize {
    let mut found = 0;
    for ((group, usable), first) in row.chunks(GROUP).zip(usable.chunks(GROUP)).zip((0u32..).step_by(GROUP)) {
        if !has_any(group, level, high) {
            continue;
        }
        for ((pixel, usable), column) in group.iter().zip(usable).zip(first..) {
            if is_above(*pixel, level, high) & usable {
                if found < columns.len() {
                    (columns[found], values[found]) = (column, *pixel);
                }
                found += 1;
            }
        }
    }
    found
}
