//! The loops compiled for AVX-512.

use super::sample::{Kind, Sample};
use super::{bin, pixels, place};
use crate::isa::Isa;

super::compiled_for!(Avx512, "avx512f,avx512bw,avx512dq,avx512vl");
