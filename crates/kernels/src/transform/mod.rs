//! What can be done to whole images of any type on their way: unpack, turn, cut, bin, look up, subtract, mask, pack. Free functions over bytes
//! (little-endian pixels, wherever they lie), and a [`Recipe`] of them that is checked once and then run on image after image.
//!
//! Special values are those of [`konkordia_core::pixel`]; its table holds for all types. Every path gives the same bits.
//!
//! Read [`Step`] first, then [`Compiled`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod bin;
mod compiled;
mod pack;
pub mod pixels;
pub mod place;
mod sample;
mod sum;
pub mod unpack;

pub use bin::{Bin, Reduce, Totals};
pub use compiled::{Compiled, Plane, Recipe, Scratch, Step};
pub use pack::{PackScratch, pack};
pub use pixels::{Background, Entries, Mask, Table};
pub use place::Window;
pub use sample::{Overflow, masked_le_bytes, missing_le_bytes};
pub use sum::{Sum, SumState};
pub use unpack::UnpackScratch;

/// Calls the loop of this name as it was compiled for an instruction set.
macro_rules! isa_paths {
    ($isa:expr, $name:ident $(<$($t:ty),*>)? ($($argument:expr),* $(,)?)) => {
        match $isa.usable() {
            #[cfg(target_arch = "x86_64")]
            crate::isa::Isa::Avx512 => super::avx512::$name $(::<$($t),*>)? ($($argument),*),
            #[cfg(target_arch = "x86_64")]
            crate::isa::Isa::Avx2 => super::avx2::$name $(::<$($t),*>)? ($($argument),*),
            _ => $name $(::<$($t),*>)? ($($argument),*),
        }
    };
}
use isa_paths;

/// Compiles the shared loops for one instruction set: the compiler turns them into its vectors. They do no arithmetic that depends on the
/// order of floats, so that the bits stay the same.
#[cfg(target_arch = "x86_64")]
macro_rules! compiled_for {
    ($isa:ident, $features:literal) => {
        /// See [`bin::add_row`].
        pub fn add_row<T: Sample>(row: &[u8], sums: &mut [T::Total], kinds: &mut [Kind]) {
            #[target_feature(enable = $features)]
            fn inner<T: Sample>(row: &[u8], sums: &mut [T::Total], kinds: &mut [Kind]) {
                bin::add_row::<T>(row, sums, kinds);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<T>(row, sums, kinds) }
        }

        /// See [`pixels::subtract_plane`].
        pub fn subtract_plane<T: Sample, B: Sample>(image: &[u8], plane: &[B], out: &mut [u8]) {
            #[target_feature(enable = $features)]
            fn inner<T: Sample, B: Sample>(image: &[u8], plane: &[B], out: &mut [u8]) {
                pixels::subtract_plane::<T, B>(image, plane, out);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<T, B>(image, plane, out) }
        }

        /// See [`bin::write_totals`].
        pub fn write_totals<U: Sample, S: Total>(
            totals: (&[S], &[Kind]),
            columns: usize,
            count: u32,
            how: &bin::Bin,
            out: &mut [u8],
        ) {
            #[target_feature(enable = $features)]
            fn inner<U: Sample, S: Total>(totals: (&[S], &[Kind]), columns: usize, count: u32, how: &bin::Bin, out: &mut [u8]) {
                bin::write_totals::<U, S>(totals, columns, count, how, out);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<U, S>(totals, columns, count, how, out) }
        }

        /// See [`pixels::convert_row`].
        pub fn convert_row<U: Sample, T: Sample>(image: &[u8], overflow: Overflow, out: &mut [u8]) {
            #[target_feature(enable = $features)]
            fn inner<U: Sample, T: Sample>(image: &[u8], overflow: Overflow, out: &mut [u8]) {
                pixels::convert_row::<U, T>(image, overflow, out);
            }
            assert!(Isa::$isa.is_available());
            // SAFETY: the instruction set is available (asserted above).
            unsafe { inner::<U, T>(image, overflow, out) }
        }
    };
}
#[cfg(target_arch = "x86_64")]
use compiled_for;
