//! Errors as Python sees them: `KonkordiaError` with its hint for what the program would report, `ValueError` for
//! arguments that make no sense.

use konkordia_core::failure::Failure;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A failure as `konkordia.KonkordiaError`.
pub fn raised(failure: &Failure) -> PyErr {
    let (what, hint, code) = (failure.detail(), failure.fix.clone(), failure.exit as u8);
    Python::attach(|py| {
        let class = py.import("konkordia._errors").and_then(|module| module.getattr("KonkordiaError"));
        class.and_then(|class| class.call1((what, hint, code))).map_or_else(|error| error, PyErr::from_value)
    })
}

/// An argument that makes no sense, in words.
pub fn value(why: impl Into<String>) -> PyErr {
    PyValueError::new_err(why.into())
}
