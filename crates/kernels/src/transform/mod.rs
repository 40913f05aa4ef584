//! Transformations of whole images of any type: unpack, turn, cut, bin, look up, subtract, mask, pack. They are free
//! functions over bytes (little-endian pixels, at any alignment). A [`Recipe`] lists several of them; it is checked
//! once and then run on image after image.
//!
//! Special values are those of [`konkordia_core::pixel`]; its table holds for all types. Every instruction set gives
//! the same bits.
//!
//! Read [`Step`] first, then [`Compiled`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod bin;
mod compiled;
mod dispatch;
mod pack;
pub mod packed;
mod pixel_loops;
pub mod pixels;
pub mod place;
mod sample;
mod sum;
mod totals;
mod transpose;
pub mod unpack;

pub use bin::{Bin, Reduce, Totals};
pub use compiled::{Compiled, Plane, Recipe, Scratch, Step};
pub use pack::{PackScratch, compress, pack};
pub use pixels::{Background, Entries, Mask, PixelTable, Table};
pub use place::Window;
pub use sample::{Overflow, masked_le_bytes, missing_le_bytes};
pub use sum::{Sum, SumState};
pub use unpack::{UnpackScratch, Unpacker};
