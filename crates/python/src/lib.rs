//! The compiled part of the Python package `konkordia` (folder `python/`): files of images and of raw frames,
//! calibrations, what is looked for in images, and compression, by the same code as the program. The package in Python
//! around it has the names, types and documentation for users; this module takes and gives plain values. Whatever takes
//! long lets other threads of Python run meanwhile.

mod analysis;
mod calibration;
mod codec;
mod darks;
mod errors;
mod geometry;
mod images;
mod lent_sys;
mod pixels;
mod raw_frames;
mod stream;
mod stream_out;
mod stream_pixels;
mod stream_start;
mod writer;

use pyo3::prelude::*;

/// `konkordia._native`
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::analysis::Analyser;
    #[pymodule_export]
    use super::calibration::{Calibration, FrameImages};
    #[pymodule_export]
    use super::codec::{compress, decompress};
    #[pymodule_export]
    use super::darks::{Darks, Pedestals};
    #[pymodule_export]
    use super::geometry::Geometry;
    #[pymodule_export]
    use super::images::Images;
    #[pymodule_export]
    use super::pixels::{picture, valid_range};
    #[pymodule_export]
    use super::raw_frames::{RawFrames, is_raw};
    #[pymodule_export]
    use super::stream::{StreamDecoder, StreamImage, is_result, protocol_of};
    #[pymodule_export]
    use super::stream_out::StreamEncoder;
    #[pymodule_export]
    use super::stream_start::StreamStart;
    #[pymodule_export]
    use super::writer::ImageWriter;
    use super::*;

    #[pymodule_init]
    fn version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
