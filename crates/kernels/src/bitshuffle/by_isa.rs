//! Chooses the path of an instruction set.

use super::block::ElementSize;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Isa;

/// See [`super::shuffle`]. `isa` is usable here; the wider paths do not take elements of eight bytes.
pub fn shuffle(isa: Isa, element: ElementSize, input: &[u8], out: &mut [u8]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::shuffle(element, input, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::shuffle(element, input, out),
        _ => scalar::shuffle(element, input, out, 0),
    }
}

/// See [`super::unshuffle`]. `isa` is usable here; the wider paths do not take elements of eight bytes.
pub fn unshuffle(isa: Isa, element: ElementSize, input: &[u8], out: &mut [u8]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::unshuffle(element, input, out),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::unshuffle(element, input, out),
        _ => scalar::unshuffle(element, input, out, 0),
    }
}
