//! Folders of measured data as BagIt bags (RFC 8493) that are to last ten years. It makes, checks and restores bags; it
//! never reads HDF5 itself: what packs a file, and where its chunks lie, is told by a [`Packer`].
//! Read [`make()`] first, then [`check()`].
//!
//! A bag of ours has, beside what RFC 8493 asks for: the place and CRC-32 of each chunk of each HDF5 file
//! ([`sums`]), so that a changed byte is named down to the image; where each file comes from (`provenance.json`); and
//! the description of the format with the source of a reader.
#![forbid(unsafe_code)]

mod check;
mod date;
mod disk;
mod hash;
mod info;
mod make;
pub mod manifest;
mod paths;
mod restore;
pub mod sums;

pub use check::{Damage, Report, check};
pub use date::{date_of, is_date};
pub use hash::Show;
pub use make::{Done, Kind, Made, Options, Packer, make};
pub use paths::{CHUNKS, PAYLOAD};
pub use restore::{Restored, restore};
