//! Where tiles lie in the output image, and the gather list that turns tiles into blocks of the output image.
//!
//! A tile is placed by the row and column of the upper left pixel of its box in the output image, in any of the 8
//! orientations. Its double pixels are kept, split, masked, or set beside a gap. Nothing here comes from packet
//! headers: module ids, port names and row parity do not say how a detector is mounted (docs/protocols.md 1.5).

mod gather;
mod image;
mod opening;
mod orientation;
mod part;
#[cfg(test)]
mod tests;

pub use gather::{Gather, Segment, Share};
pub use image::{GeometryError, ImageGeometry, MAX_IMAGE_PIXELS, PixelRun, Placement, TilePlace};
pub use opening::DoublePixels;
pub use orientation::{Orientation, Quarter};
pub use part::{Part, modules_of};
