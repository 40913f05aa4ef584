//! Analysis of images: from recipes to what is done with their pixels, live and from files.

mod indexing;
pub mod live;
pub mod metadata;
pub mod model;
mod programs;
pub mod tasks;
