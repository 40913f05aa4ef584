//! Memory of Python objects as [`Bytes`], without a copy. (The stable interface of Python 3.10 has no buffers; arrays
//! of numpy stand in for them.)

use bytes::Bytes;
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// The bytes of an array, which lives as long as this.
struct Lent {
    first: *const u8,
    bytes: usize,
    _array: Py<PyArray1<u8>>,
}

// SAFETY: the memory belongs to the array, which this keeps alive; it is only read, from any thread, and a `Py` may be
// dropped in any thread.
unsafe impl Send for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `first` and `bytes` are those of a contiguous array that is kept alive. It is not resized (numpy
        // refuses that while there are references to it), and the package lends only arrays that nobody writes.
        unsafe { std::slice::from_raw_parts(self.first, self.bytes) }
    }
}

/// The memory of a `bytes` object or of a contiguous one-dimensional array of uint8, which nobody may write from now
/// on.
pub fn lent(part: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = part.extract::<PyBackedBytes>() {
        return Ok(Bytes::from_owner(bytes));
    }
    let wrong = || PyTypeError::new_err("a part of a message must be bytes, or a contiguous array of uint8");
    let array = part.cast::<PyArray1<u8>>().map_err(|_| wrong())?;
    if !array.is_contiguous() {
        return Err(wrong());
    }
    if array.len() == 0 {
        return Ok(Bytes::new());
    }
    Ok(Bytes::from_owner(Lent { first: array.data(), bytes: array.len(), _array: array.clone().unbind() }))
}
