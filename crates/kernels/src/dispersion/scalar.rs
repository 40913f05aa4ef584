//! Plain Rust. The other instruction sets compile the same lines for wider registers.

use super::bound::{Bound, is_above};
use super::lines::{BLOCK, Columns, PAD, Range, Row, Window};
use super::value::Value;
use crate::stats::Measured;
use std::ops::Add;

/// See [`super::load`].
#[inline(always)]
pub fn load<P: Measured, V: Value>(
    pixels: &[P],
    usable: &[u8],
    range: Range<P, V>,
    values: &mut [V],
    flags: &mut [u8],
    large: &mut [u8],
) {
    assert!(usable.len() == pixels.len() && values.len() >= pixels.len() && flags.len() == values.len());
    let (wholes, rest) = pixels.as_chunks::<BLOCK>();
    let (usables, usable_rest) = usable.as_chunks::<BLOCK>();
    let out = values.as_chunks_mut::<BLOCK>().0.iter_mut().zip(flags.as_chunks_mut::<BLOCK>().0).zip(large);
    let mut out = out.map(|((values, flags), large)| (values, flags, large));
    for ((pixels, usable), (values, flags, large)) in wholes.iter().zip(usables).zip(&mut out) {
        *large = load_block(pixels, usable, range, values, flags);
    }
    if let Some((values, flags, large)) = out.next().filter(|_| !rest.is_empty()) {
        *large = load_block(rest, usable_rest, range, &mut values[..rest.len()], &mut flags[..rest.len()]);
    }
}

/// Loads at most [`BLOCK`] pixels; gives 1 if one of their values is large, otherwise 0.
#[inline(always)]
fn load_block<P: Measured, V: Value>(pixels: &[P], usable: &[u8], range: Range<P, V>, values: &mut [V], flags: &mut [u8]) -> u8 {
    let mut is_large = 0;
    let (below, all) = range.uncounted_from.map_or((range.high, true), |from| (from, false));
    for (((pixel, usable), out), flag) in pixels.iter().zip(usable).zip(values).zip(flags) {
        let is_valid = (*usable != 0) & (*pixel >= range.low) & (*pixel <= range.high);
        let counts = is_valid & (all | (*pixel < below));
        let value = if counts { V::of(*pixel) } else { V::default() };
        *out = value;
        *flag = u8::from(is_valid) * 2 - u8::from(counts);
        is_large |= u8::from((value > range.small_max) | (value < range.small_min));
    }
    is_large
}

/// Sums of floats that are made side by side.
const LANES: usize = 16;

/// See [`super::add`].
#[inline(always)]
pub fn add<V: Value>(values: &[V], flags: &[u8]) -> (u64, f64) {
    assert_eq!(values.len(), flags.len());
    let (words, rest) = flags.as_chunks::<8>();
    let ones = |word: u64| u64::from((word & 0x0101_0101_0101_0101).count_ones());
    let count = words.iter().map(|word| ones(u64::from_le_bytes(*word))).sum::<u64>();
    let count = count + rest.iter().map(|flag| u64::from(flag & 1)).sum::<u64>();
    // Values of pixels that do not count are 0.
    if V::IS_WHOLE {
        return (count, values.iter().map(|value| i64::from(value.whole())).sum::<i64>() as f64);
    }
    let mut sums = [0.0; LANES];
    let (wholes, rest) = values.as_chunks::<LANES>();
    for block in wholes {
        sums.iter_mut().zip(block).for_each(|(sum, value)| *sum += value.wide());
    }
    sums.iter_mut().zip(rest).for_each(|(sum, value)| *sum += value.wide());
    (count, sums.iter().fold(0.0, |all, sum| all + sum))
}

/// See [`super::slide`].
#[inline(always)]
pub fn slide<V: Value>(enter: (&[V], &[u8]), leave: (&[V], &[u8]), columns: &mut Columns) {
    let length = columns.counts.len();
    let (enter, enter_flags) = (&enter.0[..length], &enter.1[..length]);
    let (leave, leave_flags) = (&leave.0[..length], &leave.1[..length]);
    let counts = &mut columns.counts[..length];
    for n in 0..length {
        counts[n] = counts[n].wrapping_add(enter_flags[n] & 1).wrapping_sub(leave_flags[n] & 1);
    }
    if V::IS_WHOLE {
        let (sums, squares) = (&mut columns.sums[..length], &mut columns.squares[..length]);
        for n in 0..length {
            let (new, old) = (enter[n].whole(), leave[n].whole());
            let more = new.wrapping_sub(old);
            sums[n] = sums[n].wrapping_add(more);
            squares[n] = squares[n].wrapping_add(more.wrapping_mul(new.wrapping_add(old)));
        }
    }
}

/// See [`super::slide_background`].
#[inline(always)]
pub fn slide_background<V: Value>(enter: (&[V], &[u8]), leave: (&[V], &[u8]), columns: &mut Columns) {
    let length = columns.counts.len();
    let (enter, enter_back) = (&enter.0[..length], &enter.1[..length]);
    let (leave, leave_back) = (&leave.0[..length], &leave.1[..length]);
    let counts = &mut columns.counts[..length];
    for n in 0..length {
        counts[n] = counts[n].wrapping_add(enter_back[n]).wrapping_sub(leave_back[n]);
    }
    if V::IS_WHOLE {
        let sums = &mut columns.sums[..length];
        for n in 0..length {
            let new = enter[n].whole() & i32::from(enter_back[n]).wrapping_neg();
            let old = leave[n].whole() & i32::from(leave_back[n]).wrapping_neg();
            sums[n] = sums[n].wrapping_add(new.wrapping_sub(old));
        }
    }
}

/// See [`super::disperse`].
#[inline(always)]
pub fn disperse<V: Value>(window: Window<V>, columns: &mut Columns, bound: &Bound, row: Row) {
    match bound.half_width {
        1 => disperse_width::<V, 3>(window, columns, bound, row),
        2 => disperse_width::<V, 5>(window, columns, bound, row),
        3 => disperse_width::<V, 7>(window, columns, bound, row),
        4 => disperse_width::<V, 9>(window, columns, bound, row),
        5 => disperse_width::<V, 11>(window, columns, bound, row),
        6 => disperse_width::<V, 13>(window, columns, bound, row),
        _ => disperse_width::<V, 15>(window, columns, bound, row),
    }
}

#[inline(always)]
fn disperse_width<V: Value, const WIDTH: usize>(window: Window<V>, columns: &mut Columns, bound: &Bound, row: Row) {
    // Columns before this one have their sums in double precision.
    let mut ready = 0;
    let out = row.above[PAD..].as_chunks_mut::<BLOCK>().0;
    let flags = row.flags[PAD..].as_chunks::<BLOCK>().0;
    for (block, ((out, flags), is_wide)) in out.iter_mut().zip(flags).zip(row.is_wide).enumerate() {
        let first = PAD + block * BLOCK - WIDTH / 2;
        let is_whole = are_whole::<WIDTH>(&columns.counts[first..], bound.whole / WIDTH);
        let mut counts = [bound.whole as u16; BLOCK];
        if !is_whole {
            if flags.iter().fold(0, |any, flag| any | flag) == 0 {
                *out = [row.masked; BLOCK];
                continue;
            }
            across::<u8, u16, WIDTH>(&columns.counts[first..], &mut counts);
        }
        if *is_wide == 0 && V::IS_WHOLE {
            let (mut sums, mut squares) = ([0; BLOCK], [0; BLOCK]);
            across::<i32, i32, WIDTH>(&columns.sums[first..], &mut sums);
            across::<i32, i32, WIDTH>(&columns.squares[first..], &mut squares);
            if is_whole && !may_be_above(&sums, &squares, bound) {
                *out = [0; BLOCK];
                continue;
            }
            decide(is_whole, &counts, &sums, &squares, bound, out);
        } else {
            let end = (block + 1) * BLOCK + 2 * PAD;
            sum_wide(window, columns, ready.max(block * BLOCK), end);
            ready = end;
            let (mut sums, mut squares) = ([0.0; BLOCK], [0.0; BLOCK]);
            across::<f64, f64, WIDTH>(&columns.wide_sums[first..], &mut sums);
            across::<f64, f64, WIDTH>(&columns.wide_squares[first..], &mut squares);
            decide(is_whole, &counts, &sums, &squares, bound, out);
        }
        if !is_whole {
            for (out, flag) in out.iter_mut().zip(flags) {
                *out = if *flag == 0 { row.masked } else { *out };
            }
        }
    }
}

/// True if all pixels count in all columns under the windows of a block.
#[inline(always)]
fn are_whole<const WIDTH: usize>(counts: &[u8], height: usize) -> bool {
    const { assert!(WIDTH <= BLOCK) };
    let counts = &counts[..BLOCK + WIDTH - 1];
    let mut least = u8::MAX;
    for n in 0..BLOCK {
        least = least.min(counts[n]).min(counts[n + WIDTH - 1]);
    }
    usize::from(least) == height
}

/// False only if no pixel of a block, of whose windows all pixels count, is above the bound. In single precision, whose
/// roundings (a few parts in 2^24) the margin of a part in 2^20 covers: the square of the sum is never above the number
/// times the sum of the squares.
#[inline(always)]
fn may_be_above(sums: &[i32; BLOCK], squares: &[i32; BLOCK], bound: &Bound) -> bool {
    const MARGIN: f32 = 1.0 / (1 << 20) as f32;
    let (count, factor) = (bound.whole as f32 * (1.0 + MARGIN), bound.factor(bound.whole) as f32 * (1.0 - MARGIN));
    let mut any = false;
    for n in 0..BLOCK {
        let (sum, squares) = (sums[n] as f32, squares[n] as f32);
        any |= count * squares - sum * sum > factor * sum;
    }
    any
}

/// Sums of `WIDTH` neighbours, from each of the first [`BLOCK`] columns on.
#[inline(always)]
fn across<T: Copy, S: Copy + From<T> + Add<Output = S>, const WIDTH: usize>(columns: &[T], out: &mut [S; BLOCK]) {
    let columns = &columns[..BLOCK + WIDTH - 1];
    for (n, out) in out.iter_mut().enumerate() {
        let mut sum = S::from(columns[n]);
        for offset in 1..WIDTH {
            sum = sum + S::from(columns[n + offset]);
        }
        *out = sum;
    }
}

/// Which pixels of a block are not background.
#[inline(always)]
fn decide<S: Copy + Into<f64>>(
    is_whole: bool,
    counts: &[u16; BLOCK],
    sums: &[S; BLOCK],
    squares: &[S; BLOCK],
    bound: &Bound,
    out: &mut [u8; BLOCK],
) {
    if is_whole {
        let (count, factor) = (bound.whole as f64, bound.factor(bound.whole));
        for n in 0..BLOCK {
            out[n] = u8::from(is_above(count, sums[n].into(), squares[n].into(), factor));
        }
    } else {
        let mut factors = [0.0; BLOCK];
        for (factor, count) in factors.iter_mut().zip(counts) {
            *factor = bound.factor(usize::from(*count));
        }
        for n in 0..BLOCK {
            let (sum, squares) = (sums[n].into(), squares[n].into());
            out[n] = u8::from(is_above(f64::from(counts[n]), sum, squares, factors[n]));
        }
    }
}

/// Sums in double precision of the columns `first .. end`, from top to bottom.
#[inline(always)]
fn sum_wide<V: Value>(window: Window<V>, columns: &mut Columns, first: usize, end: usize) {
    if first >= end {
        return;
    }
    let sums = columns.wide_sums[first..end].as_chunks_mut::<PART>().0;
    let squares = columns.wide_squares[first..end].as_chunks_mut::<PART>().0;
    for (part, (out_sums, out_squares)) in sums.iter_mut().zip(squares).enumerate() {
        let (mut sums, mut squares) = ([0.0; PART], [0.0; PART]);
        for slot in window.slots {
            let values = &window.values[slot * window.length + first + part * PART..][..PART];
            for n in 0..PART {
                let value = values[n].wide();
                sums[n] += value;
                squares[n] += value * value;
            }
        }
        (*out_sums, *out_squares) = (sums, squares);
    }
}

/// Columns whose sums in double precision are made together.
const PART: usize = 16;

/// See [`super::erode`].
#[inline(always)]
pub fn erode(above: &[u8], length: usize, slots: &[usize], flags: &[u8], inner: &mut [u8], back: &mut [u8]) -> bool {
    let reach = slots.len() / 2;
    let mut any = 0;
    let blocks = inner[PAD..length - PAD].as_chunks_mut::<BLOCK>().0.iter_mut();
    let backs = back[PAD..length - PAD].as_chunks_mut::<BLOCK>().0;
    let flags = flags[PAD..length - PAD].as_chunks::<BLOCK>().0;
    for (block, ((inner, back), flags)) in blocks.zip(backs).zip(flags).enumerate() {
        let first = block * BLOCK;
        let here = &above[slots[reach] * length + PAD + first..][..BLOCK];
        if here.iter().fold(0, |any, above| any | above) == 0 {
            *inner = [0; BLOCK];
            for (back, flag) in back.iter_mut().zip(flags) {
                *back = flag & 1;
            }
            continue;
        }
        let mut down = [1u8; BLOCK + 2 * PAD];
        for slot in slots {
            let row = &above[slot * length + first..][..BLOCK + 2 * PAD];
            for (down, above) in down.iter_mut().zip(row) {
                *down &= above;
            }
        }
        let mut all = [1u8; BLOCK];
        for offset in PAD - reach..=PAD + reach {
            for (all, down) in all.iter_mut().zip(&down[offset..offset + BLOCK]) {
                *all &= down;
            }
        }
        for n in 0..BLOCK {
            inner[n] = if flags[n] == 0 { 0 } else { all[n] };
            back[n] = flags[n] & 1 & !all[n];
            any |= inner[n];
        }
    }
    any != 0
}
