//! The images of files, for Python.

use super::errors::{raised, value};
use super::geometry::Geometry;
use super::pixels;
use konkordia_core::failure::{Exit, Failure};
use konkordia_input::images::{Facts, Frames, Images as Opened};
use numpy::{IntoPyArray, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Files that were opened and belong together; `None` when they are closed.
#[pyclass(frozen, module = "konkordia._native")]
pub struct Images {
    opened: Mutex<Option<Opened>>,
    facts: Facts,
}

#[pymethods]
impl Images {
    #[new]
    fn new(py: Python<'_>, files: Vec<PathBuf>, channel: Option<&str>) -> PyResult<Self> {
        let opened = py.detach(|| Opened::open(&files, channel)).map_err(|failure| raised(&failure))?;
        let facts = opened.facts.clone();
        Ok(Self { opened: Mutex::new(Some(opened)), facts })
    }

    #[getter]
    fn shape(&self) -> (u64, usize, usize) {
        let [rows, columns] = self.facts.shape;
        (self.facts.images, rows, columns)
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.facts.pixel.name()
    }

    #[getter]
    fn valid_range(&self) -> (f64, f64) {
        self.facts.valid
    }

    #[getter]
    fn writer(&self) -> &'static str {
        self.facts.writer
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.facts.notes.clone()
    }

    #[getter]
    fn is_rotation(&self) -> bool {
        self.facts.frames != Frames::Stills
    }

    /// Geometry, or why there is none.
    #[getter]
    fn geometry(&self) -> (Option<Geometry>, Option<String>) {
        match &self.facts.geometry {
            Ok(geometry) => (Some(Geometry(geometry.clone())), None),
            Err(why) => (None, Some(why.clone())),
        }
    }

    /// True where a pixel is not to be used.
    fn mask<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<bool>>> {
        let masked: Vec<bool> = self.facts.usable.iter().map(|usable| !usable).collect();
        masked.into_pyarray(py).reshape(self.facts.shape)
    }

    /// Reads an image into an array of its size and type; false if it was never written.
    fn read(&self, py: Python<'_>, image: u64, out: &Bound<'_, PyAny>) -> PyResult<bool> {
        if image >= self.facts.images {
            return Err(value(format!("there is no image {image}; there are {}, from 0", self.facts.images)));
        }
        let facts = &self.facts;
        pixels::write(out, |pixel, shape, bytes| {
            if pixel != facts.pixel || shape != facts.shape {
                let [rows, columns] = facts.shape;
                return Err(value(format!("out must be a {} array of shape ({rows}, {columns})", facts.pixel)));
            }
            py.detach(|| {
                let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
                let opened = opened.as_ref().ok_or_else(closed)?;
                let Some(found) = opened.read(image)? else { return Ok(false) };
                bytes.copy_from_slice(&found);
                Ok(true)
            })
            .map_err(|failure: Failure| raised(&failure))
        })
    }

    /// Closes the files.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.opened.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }

    #[getter]
    fn is_closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_none())
    }
}

pub fn closed() -> Failure {
    Failure::new(Exit::State, "the files are closed", "", "open them again: konkordia.open(...)")
}
