//! Statistics of pixels by their distance from the beam. The pixels of about the same distance are a ring; the number
//! of its ring is known for every pixel before the run, and ring 0 holds the pixels that are never used.
//!
//! [`count`] makes one pass over an image of integers: it counts for every ring how often each small value occurs, and
//! lists the few pixels whose values are not small, or above a threshold. Mean and spread of any range of values follow
//! exactly from both without another pass. [`add_whole`] and [`add_real`] are the way for images where almost nothing
//! is small, and for floats: one pass for each range.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod moments;
mod portion;
mod scalar;
mod window;

pub use moments::{Moments, RealMoments, ValueRange, WholeMoments, add_real, add_whole};
pub use portion::{Listed, RingCounts};
pub use window::{SLOTS, Window};

use crate::isa::Isa;
use crate::stats::Measured;
use konkordia_core::pixel::PixelType;
use portion::Whole;

/// Counts pixels by ring and value, modulo 2^16: slot `n` of a ring counts the value `n` above the first value with a
/// slot; the last slot counts all other values. Pixels of ring 0 and pixels that are not valid are counted in the slots
/// of ring 0, where the numbers mean nothing. Usable pixels that the window lists ([`Window::is_listed`]) are appended
/// to `listed` in their order; their position is `first` plus the one in `pixels`.
///
/// # Panics
/// If the lengths of `pixels` and `rings` differ, if a ring is beyond `counts`, if positions do not fit into 32 bits,
/// or if the pixels are floats.
pub fn count<P: Measured>(
    isa: Isa,
    pixels: &[P],
    rings: &[u16],
    first: usize,
    window: &Window,
    counts: &mut [RingCounts],
    listed: &mut Vec<Listed>,
) {
    assert_eq!(pixels.len(), rings.len(), "one ring for each pixel");
    let first = u32::try_from(first + pixels.len()).expect("positions of 32 bits") - pixels.len() as u32;
    let mut out = portion::Out { counts, listed, first };
    match P::TYPE {
        PixelType::Int16 => run::<i16>(isa, bytemuck::cast_slice(pixels), rings, window, &mut out),
        PixelType::Uint16 => run::<u16>(isa, bytemuck::cast_slice(pixels), rings, window, &mut out),
        PixelType::Int32 => run::<i32>(isa, bytemuck::cast_slice(pixels), rings, window, &mut out),
        PixelType::Uint32 => run::<u32>(isa, bytemuck::cast_slice(pixels), rings, window, &mut out),
        other => panic!("pixels of {other} are not counted"),
    }
}

fn run<W: Whole>(isa: Isa, pixels: &[W], rings: &[u16], window: &Window, out: &mut portion::Out<'_>) {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::count(pixels, rings, window, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::count(pixels, rings, window, out),
        _ => scalar::count(pixels, rings, window, out),
    }
}

#[cfg(test)]
mod tests;
