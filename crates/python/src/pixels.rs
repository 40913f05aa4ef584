//! Arrays of numpy as pixels: their type and bytes, without a copy.

use super::errors::value;
use konkordia_core::array::Element;
use konkordia_core::pixel::PixelType;
use konkordia_picture::image;
use numpy::{PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Does something with each type that a pixel may have.
macro_rules! each_type {
    ($do:ident) => {
        $do! {
            Int8: i8, Uint8: u8, Int16: i16, Uint16: u16, Int32: i32, Uint32: u32, Int64: i64, Uint64: u64, Float32: f32,
            Float64: f64
        }
    };
}

/// Most pixels of an image, as files have them.
const PIXELS_MAX: usize = 1 << 28;

/// Refuses a shape for which no memory should even be asked.
pub fn check_shape([rows, columns]: [usize; 2]) -> PyResult<()> {
    match rows.checked_mul(columns) {
        Some(pixels) if (1..=PIXELS_MAX).contains(&pixels) => Ok(()),
        _ => Err(value(format!(
            "an image of {rows} x {columns} pixels is empty or too large; at most {PIXELS_MAX} pixels are possible"
        ))),
    }
}

/// The type of this name, as numpy calls it.
pub fn type_of(name: &str) -> PyResult<PixelType> {
    let wrong = || format!("pixels of type {name} are not known; images are of int8 to uint64, float32 or float64");
    name.parse().map_err(|_| PyTypeError::new_err(wrong()))
}

fn array<'a, 'py>(pixels: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyUntypedArray>> {
    pixels.cast::<PyUntypedArray>().map_err(|_| PyTypeError::new_err("the pixels must be a numpy array"))
}

fn no_such_type(pixels: &Bound<'_, PyUntypedArray>) -> PyErr {
    let dtype = pixels.dtype();
    PyTypeError::new_err(format!(
        "pixels of dtype {dtype} are not known; give int8 to uint64, float32 or float64 in the byte order of this machine"
    ))
}

fn not_in_one_piece() -> PyErr {
    value("the pixels do not lie one after the other in memory; give numpy.ascontiguousarray(pixels)")
}

/// Calls `with` with type, shape and little-endian bytes of an array.
pub fn read<R>(pixels: &Bound<'_, PyAny>, with: impl FnOnce(PixelType, &[usize], &[u8]) -> PyResult<R>) -> PyResult<R> {
    let pixels = array(pixels)?;
    macro_rules! as_its_type {
        ($($name:ident: $number:ty),*) => {
            $(if let Ok(typed) = pixels.cast::<PyArrayDyn<$number>>() {
                // Columns one after the other are a piece for numpy, too.
                if !pixels.is_c_contiguous() {
                    return Err(not_in_one_piece());
                }
                let typed = typed.try_readonly().map_err(|error| value(error.to_string()))?;
                let numbers = typed.as_slice().map_err(|_| not_in_one_piece())?;
                return with(PixelType::$name, pixels.shape(), bytemuck::cast_slice(numbers));
            })*
        };
    }
    each_type!(as_its_type);
    Err(no_such_type(pixels))
}

/// Calls `with` with type, shape and bytes of an array into which it writes.
pub fn write<R>(pixels: &Bound<'_, PyAny>, with: impl FnOnce(PixelType, &[usize], &mut [u8]) -> PyResult<R>) -> PyResult<R> {
    let pixels = array(pixels)?;
    macro_rules! as_its_type {
        ($($name:ident: $number:ty),*) => {
            $(if let Ok(typed) = pixels.cast::<PyArrayDyn<$number>>() {
                if !pixels.is_c_contiguous() {
                    return Err(not_in_one_piece());
                }
                let mut typed = typed.try_readwrite().map_err(|error| value(format!("out: {error}")))?;
                let shape = pixels.shape().to_vec();
                let numbers = typed.as_slice_mut().map_err(|_| not_in_one_piece())?;
                return with(PixelType::$name, &shape, bytemuck::cast_slice_mut(numbers));
            })*
        };
    }
    each_type!(as_its_type);
    Err(no_such_type(pixels))
}

/// Lowest and highest number of a dtype that is a measurement, in images of Konkordia.
#[pyfunction]
pub fn valid_range(dtype: &str) -> PyResult<(f64, f64)> {
    Ok(type_of(dtype)?.valid_range(None, None))
}

/// A picture (PNG) of an image on a logarithmic scale, of at most `size` x `size` dots.
#[pyfunction]
pub fn picture<'py>(py: Python<'py>, pixels: &Bound<'py, PyAny>, size: u32) -> PyResult<Bound<'py, PyBytes>> {
    let png = read(pixels, |pixel, shape, bytes| {
        let [_, columns] = shape else {
            return Err(value(format!("a picture is made of one image, and this has {} axes", shape.len())));
        };
        let of = image::Pixels { element: Element::from(pixel), columns: *columns, bytes };
        py.detach(|| image::png(of, size)).map_err(value)
    })?;
    Ok(PyBytes::new(py, &png))
}
