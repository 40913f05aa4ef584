//! The frame of [`super::count`]: portions of 64 pixels. What is done for the pixels of a portion side by side differs
//! between instruction sets; counting and listing do not.

use super::window::{SLOTS, Window};
use konkordia_core::pixel::Pixel;

/// Pixels of a portion.
pub const PORTION: usize = 64;

/// A pixel type of whole numbers.
pub trait Whole: Pixel {
    /// The value modulo 2^32.
    fn word(self) -> u32;
}

macro_rules! whole {
    ($($t:ty)*) => { $(impl Whole for $t {
        #[inline(always)]
        fn word(self) -> u32 {
            self as u32
        }
    })* };
}
whole!(i16 u16 i32 u32);

/// How often each value occurs in a ring, see [`super::count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct RingCounts(pub [u16; SLOTS]);

impl Default for RingCounts {
    fn default() -> Self {
        Self([0; SLOTS])
    }
}

/// A pixel that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its position.
    pub position: u32,
    /// Its value modulo 2^32, see [`Window::value`].
    pub word: u32,
    /// Its ring.
    pub ring: u16,
}

/// Where the results go, see [`super::count`].
pub struct Out<'a> {
    pub counts: &'a mut [RingCounts],
    pub listed: &'a mut Vec<Listed>,
    /// Position of the first pixel.
    pub first: u32,
}

/// Takes the pixels portion by portion. `places` writes for each pixel of a portion (given as words and rings) where it
/// is counted, and returns a bit for each pixel that is listed.
#[inline(always)]
pub fn count<W: Whole>(
    pixels: &[W],
    rings: &[u16],
    out: &mut Out<'_>,
    mut places: impl FnMut(&[u32; PORTION], &[u16; PORTION], &mut [u32; PORTION]) -> u64,
) {
    let (mut words, mut at) = ([0; PORTION], [0; PORTION]);
    let (portions, rest) = pixels.as_chunks::<PORTION>();
    let (ring_portions, rings_rest) = rings.as_chunks::<PORTION>();
    let mut first = out.first;
    for (portion, rings) in portions.iter().zip(ring_portions) {
        for (word, pixel) in words.iter_mut().zip(portion) {
            *word = pixel.word();
        }
        let listed = places(&words, rings, &mut at);
        finish(&at, listed, first, (&words, rings), out);
        first = first.wrapping_add(PORTION as u32);
    }
    if !rest.is_empty() {
        // Pixels of ring 0 fill the portion up.
        let mut last_rings = [0; PORTION];
        last_rings[..rest.len()].copy_from_slice(rings_rest);
        for (word, pixel) in words.iter_mut().zip(rest) {
            *word = pixel.word();
        }
        let listed = places(&words, &last_rings, &mut at);
        finish(&at, listed, first, (&words, &last_rings), out);
    }
}

#[inline(always)]
fn finish(
    places: &[u32; PORTION],
    mut listed: u64,
    first: u32,
    (words, rings): (&[u32; PORTION], &[u16; PORTION]),
    out: &mut Out<'_>,
) {
    // Sixteen at a time, so that the loop is unrolled.
    for places in places.as_chunks::<16>().0 {
        for &place in places {
            let count = &mut out.counts[place as usize / SLOTS].0[place as usize % SLOTS];
            *count = count.wrapping_add(1);
        }
    }
    while listed != 0 {
        let n = listed.trailing_zeros();
        out.listed.push(Listed { position: first + n, word: words[n as usize], ring: rings[n as usize] });
        listed &= listed - 1;
    }
}

/// The place of one pixel, and whether it is listed.
#[inline(always)]
pub fn place(word: u32, ring: u16, window: &Window) -> (u32, bool) {
    let is_used = word.wrapping_sub(window.low) <= window.span && ring != 0;
    let above = word.wrapping_sub(window.base);
    let place = u32::from(ring) * SLOTS as u32 + above.min(SLOTS as u32 - 1);
    (if is_used { place } else { 0 }, is_used && above >= window.cut)
}
