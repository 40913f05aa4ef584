//! Analysis of images: from a recipe to what is asked of them.

pub mod tasks;
