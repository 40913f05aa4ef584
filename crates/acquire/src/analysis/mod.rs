//! Analysis of images: what a recipe asks, for files and for images as they come.

pub mod tasks;
