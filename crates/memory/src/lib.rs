//! The rings of frames and images: the memory through which all pixels of a run pass, and the only concurrent `unsafe`
//! code of the project. It never looks at pixels or packets, allocates only when it is made, and has no lock: each role
//! owns a cursor and may touch only what the cursors give it. Read [`ring::Ring`] first.

pub mod cursor;
mod images;
mod loan;
mod mapping;
pub mod ring;
mod sync;

#[cfg(all(test, feature = "loom"))]
mod models;
