//! Compression of images, as the chunks of HDF5 files and streams have them.

use super::errors::value;
use super::pixels;
use konkordia_core::plan::Compression;
use konkordia_kernels::codec;
use konkordia_kernels::{ElementSize, Isa};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The compression of this name with its options, and of a level that was given apart.
pub fn compression(name: &str, level: Option<u8>) -> PyResult<Compression> {
    Compression::parse(name, level.map(i64::from)).map_err(|why| value(format!("codec {name:?}: {why}")))
}

fn element(bytes: usize) -> PyResult<ElementSize> {
    ElementSize::new(bytes).ok_or_else(|| value(format!("pixels of {bytes} bytes cannot be compressed")))
}

/// Compresses the pixels of an array into one chunk.
#[pyfunction]
pub fn compress<'py>(
    py: Python<'py>,
    pixels: &Bound<'py, PyAny>,
    codec: &str,
    level: Option<u8>,
) -> PyResult<Bound<'py, PyBytes>> {
    let known = compression(codec, level)?;
    let chunk = pixels::read(pixels, |pixel, _, bytes| {
        let element = element(pixel.bytes())?;
        let strip_bytes = bytes.len().next_multiple_of(known.block_bytes()).max(known.block_bytes());
        Ok(py.detach(|| codec::compress(known, Isa::detect(), element, bytes, strip_bytes)))
    })?;
    Ok(PyBytes::new(py, &chunk))
}

/// Decodes a chunk into an array, which it fills exactly.
#[pyfunction]
pub fn decompress(py: Python<'_>, chunk: &[u8], codec: &str, out: &Bound<'_, PyAny>) -> PyResult<()> {
    let known = compression(codec, None)?;
    pixels::write(out, |pixel, _, bytes| {
        let element = element(pixel.bytes())?;
        let done = py.detach(|| codec::decompress(known, Isa::detect(), chunk, element, bytes));
        done.map_err(|error| value(format!("this is no chunk of {} bytes in {codec}: {error}", bytes.len())))
    })
}
