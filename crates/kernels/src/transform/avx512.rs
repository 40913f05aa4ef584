//! The loops compiled for AVX-512.

use super::sample::{Kind, Overflow, Sample, Total};
use super::{pixel_loops, totals};
use crate::isa::Isa;

super::avx2::compiled_for!(Avx512, "avx512f,avx512bw,avx512dq,avx512vl");

/// The registers of AVX2 are wide enough to be faster than memory.
pub use super::avx2::transpose;
