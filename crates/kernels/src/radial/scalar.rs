//! Plain Rust, one pixel after the other.

use super::portion::{self, Out, Whole, place};
use super::window::Window;

/// See [`super::count`].
pub fn count<W: Whole>(pixels: &[W], rings: &[u16], window: &Window, out: &mut Out<'_>) {
    portion::count(pixels, rings, out, |words, rings, places| {
        let mut listed = 0;
        for (n, (&word, &ring)) in words.iter().zip(rings).enumerate() {
            let (at, is_listed) = place(word, ring, window);
            places[n] = at;
            listed |= u64::from(is_listed) << n;
        }
        listed
    });
}
