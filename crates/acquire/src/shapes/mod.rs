//! The mask and the regions that people draw over the image of a detector. They apply from the next run, or the next
//! series, on: then the pixels of the mask have the bit *masked by the user* in its files and are left out of its
//! analysis, while their counts stay; the regions are those of the recipe beside its own. Read [`DrawnShapes`] first,
//! then [`ShapeBoard`].

mod board;
mod drawing;
mod file;
mod form;
mod pixel;
mod run_mask;
#[cfg(test)]
mod tests;

pub use board::{NotDrawn, ShapeBoard, ShapesState};
pub use drawing::Drawing;
pub use form::DrawnShapes;
pub use pixel::{ModuleList, PixelFacts};
pub use run_mask::RunMask;
