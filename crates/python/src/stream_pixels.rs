//! The arrays of streams, unpacked into those of numpy.

use super::errors::value;
use super::pixels;
use konkordia_core::array::Array;
use konkordia_core::ports::PixelUnpacker;
use konkordia_kernels::transform::Unpacker;
use konkordia_wire::unpacker::ArrayUnpacker;
use pyo3::prelude::*;

/// The dtype of an array when it is unpacked.
pub fn dtype(array: &Array) -> &'static str {
    array.element.unpacked().name()
}

/// Unpacks an array into one of numpy with its shape and type.
pub fn unpack(py: Python<'_>, array: &Array, out: &Bound<'_, PyAny>) -> PyResult<()> {
    let wanted: Vec<usize> = array.shape.dimensions().iter().map(|n| *n as usize).collect();
    pixels::write(out, |pixel, shape, bytes| {
        if pixel.name() != dtype(array) || shape != wanted {
            let wanted: Vec<String> = wanted.iter().map(usize::to_string).collect();
            return Err(value(format!("out must be a {} array of shape ({})", dtype(array), wanted.join(", "))));
        }
        py.detach(|| fill(array, bytes)).map_err(value)
    })
}

/// Unpacks an array into `out`, which has as many bytes as its pixels.
fn fill(array: &Array, out: &mut [u8]) -> Result<(), String> {
    if array.element.is_packed() {
        let wide = ArrayUnpacker::new(Box::new(Unpacker::new())).whole_bytes(array)?;
        out.copy_from_slice(&wide.pieces[0]);
        return Ok(());
    }
    let each = out.len() / array.pieces.len().max(1);
    if array.piece_shape().is_none() || each == 0 {
        let (shape, pieces) = (array.shape.dimensions(), array.pieces.len());
        return Err(format!("an array of shape {shape:?} cannot have {pieces} pieces"));
    }
    let mut unpacker = Unpacker::new();
    let mut pieces = array.pieces.iter().zip(out.chunks_exact_mut(each));
    pieces.try_for_each(|(piece, place)| unpacker.unpack(array.packing, array.element, piece, place))
}
