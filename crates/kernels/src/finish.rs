//! From the pixels of one frame to those of the image: sums of frames, counts below zero, the pixel type of the file.
//!
//! Sums are made in `i32` (or `f32` for float images) from frames that are already rounded: the sum of n frames is
//! exactly the sum of the n signed images of the same width that would have been written without summation. A special
//! value of any frame wins over numbers, in the order masked, missing, invalid, saturated. Each loop examines several
//! pixels at once. Where all of them are plain numbers far from the limits, which is nearly always so, it does simple
//! arithmetic that the compiler vectorises; otherwise it goes pixel by pixel. Both give the same result.

use konkordia_core::pixel::Pixel;
use konkordia_core::process::Negative;

/// Pixels that are examined together.
const CHUNK: usize = 64;
/// Two numbers of at most this magnitude can be added without checking the limits.
const SMALL: i32 = 1 << 29;

/// A pixel type in which frames are added.
pub trait Accumulator: Pixel {
    /// Adds `frame` to `sum` by the rules of the module. A sum above the valid range becomes saturated, one below is
    /// clamped.
    fn add(sum: &mut [Self], frame: &[Self]);
}

/// Adds a frame to a sum, pixel by pixel; see [`Accumulator`].
///
/// # Panics
/// If the lengths differ.
pub fn accumulate<A: Accumulator>(sum: &mut [A], frame: &[A]) {
    assert_eq!(sum.len(), frame.len(), "one pixel of the frame for each of the sum");
    A::add(sum, frame);
}

/// The special value that wins, if one of the two is special.
fn special<P: Pixel>(a: P, b: P) -> Option<P> {
    if a.is_number() && b.is_number() {
        return None;
    }
    // NaN, the masked float, is equal to nothing.
    let is_nan = |p: P| p.partial_cmp(&p).is_none();
    if is_nan(a) || is_nan(b) {
        return Some(P::MASKED);
    }
    [P::MASKED, P::MISSING, P::INVALID].into_iter().find(|s| a == *s || b == *s).or(Some(P::SATURATED))
}

fn add_one(a: i32, b: i32) -> i32 {
    special(a, b).unwrap_or_else(|| {
        let sum = i64::from(a) + i64::from(b);
        if sum > i64::from(i32::VALID_MAX) { i32::SATURATED } else { sum.max(i64::from(i32::VALID_MIN)) as i32 }
    })
}

impl Accumulator for i32 {
    fn add(sum: &mut [Self], frame: &[Self]) {
        for (sum, frame) in sum.chunks_mut(CHUNK).zip(frame.chunks(CHUNK)) {
            let small = |list: &[i32]| list.iter().fold(true, |all, v| all & (*v >= -SMALL) & (*v <= SMALL));
            if small(sum) & small(frame) {
                sum.iter_mut().zip(frame).for_each(|(a, b)| *a += b);
            } else {
                sum.iter_mut().zip(frame).for_each(|(a, b)| *a = add_one(*a, *b));
            }
        }
    }
}

impl Accumulator for f32 {
    fn add(sum: &mut [Self], frame: &[Self]) {
        for (a, &b) in sum.iter_mut().zip(frame) {
            *a = special(*a, b).unwrap_or_else(|| Self::from_photons(*a + b));
        }
    }
}

/// A pixel type of the file to which a sum can be converted.
pub trait Narrow: Pixel {
    /// One pixel: special values become those of this type, numbers are clamped at the lower end and saturate at the
    /// upper.
    fn narrow_one(value: i32) -> Self;
    /// Many pixels.
    fn narrow(sum: &[i32], out: &mut [Self]);
}

macro_rules! narrow {
    ($($t:ty)*) => { $(impl Narrow for $t {
        #[inline]
        fn narrow_one(value: i32) -> Self {
            match value {
                i32::MASKED => Self::MASKED,
                i32::MISSING => Self::MISSING,
                i32::INVALID => Self::INVALID,
                i32::SATURATED => Self::SATURATED,
                v if i64::from(v) > Self::VALID_MAX as i64 => Self::SATURATED,
                v if i64::from(v) < Self::VALID_MIN as i64 => Self::VALID_MIN,
                v => v as Self,
            }
        }
        fn narrow(sum: &[i32], out: &mut [Self]) {
            const MIN: i32 = <$t>::VALID_MIN as i32;
            const MAX: i32 = <$t>::VALID_MAX as i32;
            for (sum, out) in sum.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
                if sum.iter().fold(true, |all, v| all & (*v >= MIN) & (*v <= MAX)) {
                    out.iter_mut().zip(sum).for_each(|(out, v)| *out = *v as Self);
                } else {
                    out.iter_mut().zip(sum).for_each(|(out, v)| *out = Self::narrow_one(*v));
                }
            }
        }
    })* };
}
narrow!(i16 u16 i32 u32);

/// Converts sums to pixels of the file; see [`Narrow`].
///
/// # Panics
/// If the lengths differ.
pub fn narrow<P: Narrow>(sum: &[i32], out: &mut [P]) {
    assert_eq!(sum.len(), out.len(), "one output pixel for each sum");
    P::narrow(sum, out);
}

/// A pixel type to which the policies for counts below zero apply.
pub trait Signed: Pixel {
    /// The number plus `offset`, clamped at the lower end of the valid range and saturated at the upper.
    fn shifted(self, offset: i32) -> Self;
}

macro_rules! signed {
    ($($t:ty)*) => { $(impl Signed for $t {
        #[inline]
        fn shifted(self, offset: i32) -> Self {
            let value = self as i64 + i64::from(offset);
            if value > Self::VALID_MAX as i64 { Self::SATURATED } else { value.max(Self::VALID_MIN as i64) as Self }
        }
    })* };
}
signed!(i16 u16 i32 u32);

impl Signed for f32 {
    #[inline]
    fn shifted(self, offset: i32) -> Self {
        Self::from_photons(self + offset as f32)
    }
}

/// Applies `policy` to counts below zero; special values stay what they are.
pub fn negatives<P: Signed>(policy: Negative, out: &mut [P]) {
    match policy {
        Negative::Keep => {}
        Negative::Clamp => {
            let zero = P::default();
            for pixel in out {
                let below = *pixel < zero && *pixel >= P::VALID_MIN;
                *pixel = if below { zero } else { *pixel };
            }
        }
        Negative::Offset(offset) => {
            for pixel in out {
                let shifted = pixel.shifted(offset);
                *pixel = if pixel.is_number() { shifted } else { *pixel };
            }
        }
    }
}
