//! The stream path as a whole, with a tiny protocol in place of real ones.

mod harness;
mod life;
mod panics;
mod pieces;
#[path = "../processing/planes.rs"]
mod planes;
mod positions;
mod simulate;
mod speed;
mod sums;
mod whole_images;
