//! Inspects, checks and repairs existing files.

pub mod check;
pub mod inspect;
mod others;
pub mod repair;
pub mod statistics;

use konkordia_core::plan::Compression;
use konkordia_kernels::bitshuffle::ElementSize;
use konkordia_kernels::codec;
use konkordia_kernels::isa::Isa;

/// Decodes the chunks of files for the reader, which has no decoder of its own.
pub fn decode(compression: Compression, input: &[u8], element_bytes: usize, output: &mut [u8]) -> Result<(), String> {
    let element = ElementSize::new(element_bytes).ok_or_else(|| format!("pixels of {element_bytes} bytes"))?;
    codec::decompress(compression, Isa::detect(), input, element, output).map_err(|e| e.to_string())
}
