//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use super::value::Value;

/// Pixels of which it is known first whether there is any above: most groups have none, and are not looked at again.
/// Their number fits into the narrow counters of the loop.
const GROUP: usize = 128;

/// 1 for each pixel that counts, otherwise 0.
#[inline(always)]
fn flags<P: Value>(pixels: &[P], usable: &[bool], level: P, high: P, flags: &mut [u8]) {
    for ((flag, pixel), usable) in flags.iter_mut().zip(pixels).zip(usable) {
        *flag = u8::from((*pixel > level) & (*pixel <= high) & usable);
    }
}

/// Calls `found` with the first place and the flags of each group that has a pixel above, and of the last pixels.
#[inline(always)]
fn each_group<P: Value>(pixels: &[P], usable: &[bool], level: P, high: P, mut found: impl FnMut(usize, &[u8; GROUP])) {
    let above = P::above(level, high);
    let ((groups, rest), (usable, rest_usable)) = (pixels.as_chunks::<GROUP>(), usable.as_chunks::<GROUP>());
    let mut own = [0; GROUP];
    for (n, (group, usable)) in groups.iter().zip(usable).enumerate() {
        if P::any(group, &above) {
            flags(group, usable, level, high, &mut own);
            found(n * GROUP, &own);
        }
    }
    own.fill(0);
    flags(rest, rest_usable, level, high, &mut own);
    found(pixels.len() - rest.len(), &own);
}

/// See [`super::count`].
#[inline(always)]
pub fn count<P: Value>(pixels: &[P], usable: &[bool], level: P, high: P) -> u64 {
    let mut count = 0;
    each_group(pixels, usable, level, high, |_, flags| count += u64::from(flags.iter().sum::<u8>()));
    count
}

/// See [`super::collect`].
#[inline(always)]
pub fn collect<P: Value>(row: &[P], usable: &[bool], level: P, high: P, columns: &mut [u32], values: &mut [P]) -> usize {
    let mut found = 0;
    each_group(row, usable, level, high, |first, flags| {
        for (n, eight) in flags.as_chunks().0.iter().enumerate() {
            let mut eight = u64::from_le_bytes(*eight);
            while eight != 0 {
                let column = first + n * 8 + eight.trailing_zeros() as usize / 8;
                if found < columns.len() {
                    (columns[found], values[found]) = (column as u32, row[column]);
                }
                found += 1;
                eight &= eight - 1;
            }
        }
    });
    found
}
