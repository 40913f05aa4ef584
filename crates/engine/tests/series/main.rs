//! The stream path as a whole, with a tiny protocol in place of real ones.

mod harness;
mod life;
mod panics;
mod pieces;
mod positions;
mod simulate;
mod speed;
mod sums;
