//! Files of images, for Python.

use super::codec::compression;
use super::errors::{raised, value};
use super::geometry::Geometry;
use super::pixels;
use konkordia_acquire::image_writer::{ImageFiles, ImageWriter as Own};
use konkordia_config::overrides;
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Open files; `None` when they are closed.
#[pyclass(frozen, module = "konkordia._native")]
pub struct ImageWriter {
    own: Mutex<Option<Own>>,
    /// A forked process has a copy of the open files, and must leave them alone.
    process: u32,
    master: PathBuf,
    shape: [usize; 2],
    pixel: PixelType,
}

#[pymethods]
impl ImageWriter {
    /// `output`: prefix, and whether files are replaced; `form`: shape and dtype; `packing`: codec and level; `count`:
    /// images per file, and images that are to come; `facts`: a JSON object with the keys of the metadata of a run, and
    /// the lowest and highest number that is a measurement; `planes`: mask and geometry.
    #[new]
    fn new(
        py: Python<'_>,
        output: (PathBuf, bool),
        form: ([usize; 2], String),
        packing: (String, Option<u8>),
        count: (u32, Option<u64>),
        facts: (String, Option<(i64, u64)>),
        planes: (Option<Bound<'_, PyAny>>, Option<Bound<'_, Geometry>>),
    ) -> PyResult<Self> {
        let ((output, overwrite), (shape, dtype), (images_per_file, images)) = (output, form, count);
        let ((metadata, limits), (mask, geometry)) = (facts, planes);
        pixels::check_shape(shape)?;
        let (pixel, compression) = (pixels::type_of(&dtype)?, compression(&packing.0, packing.1)?);
        let mask = mask.map(|mask| mask_of(&mask, shape)).transpose()?;
        let geometry = geometry.map(|geometry| geometry.get().0.clone());
        if let Some(its) = geometry.as_ref().map(|geometry| [geometry.rows, geometry.columns]).filter(|its| *its != shape) {
            return Err(value(format!("the geometry is of images of {its:?} pixels, and these have {shape:?}")));
        }
        let facts = geometry.map_or(Ok(Metadata::default()), |geometry| geometry.facts());
        let facts = facts.map_err(|why| value(format!("a file cannot hold this geometry: {why}")))?;
        let open = || {
            let given = serde_json::from_str(&metadata).map_err(|error| {
                let fix = "give texts, numbers and lists of numbers";
                Failure::new(Exit::Usage, "the metadata cannot be written", error.to_string(), fix)
            })?;
            let mut metadata = overrides::metadata(&given)?.over(facts);
            if let Some((low, high)) = limits {
                (metadata.underload_value, metadata.saturation_value) = (Some(low), Some(high));
            }
            Own::open(ImageFiles { output, overwrite, shape, pixel, compression, images_per_file, images, mask, metadata })
        };
        let own = py.detach(open).map_err(|failure| raised(&failure))?;
        let master = own.master().to_owned();
        Ok(Self { own: Mutex::new(Some(own)), process: std::process::id(), master, shape, pixel })
    }

    /// The master file.
    #[getter]
    fn path(&self) -> &std::path::Path {
        &self.master
    }

    /// Number of the next image; `None` when the files are closed.
    #[getter]
    fn next(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| self.own.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Own::next))
    }

    /// Adds an image; returns its number.
    fn append(&self, py: Python<'_>, number: Option<u64>, image: &Bound<'_, PyAny>) -> PyResult<u64> {
        pixels::read(image, |pixel, shape, bytes| {
            if pixel != self.pixel || shape != self.shape {
                let [rows, columns] = self.shape;
                let found = format!("not {pixel} of shape {shape:?}");
                return Err(value(format!("images of these files are {} of shape ({rows}, {columns}), {found}", self.pixel)));
            }
            let append = || {
                let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
                let own = own.as_mut().filter(|_| self.is_ours()).ok_or_else(|| self.closed())?;
                let number = number.unwrap_or(own.next());
                own.append(number, bytes).map(|()| number)
            };
            py.detach(append).map_err(|failure| raised(&failure))
        })
    }

    /// Closes the files; nothing if they are closed. `broken`: why they are not what they were to be.
    fn close(&self, py: Python<'_>, broken: Option<String>) -> PyResult<()> {
        let close = || {
            if !self.is_ours() {
                return Err(self.closed());
            }
            let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).take();
            own.map_or(Ok(()), |own| own.close(broken))
        };
        py.detach(close).map_err(|failure| raised(&failure))
    }
}

impl ImageWriter {
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn closed(&self) -> Failure {
        if self.is_ours() {
            let fix = "open others: konkordia.NXmxWriter(...)";
            return Failure::new(Exit::State, format!("{} is closed", self.master.display()), "", fix);
        }
        let why = "this process was forked from the one that has opened the files";
        let fix = "write in one process, or let each process write files of its own";
        Failure::new(Exit::State, format!("{} belongs to another process", self.master.display()), why, fix)
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !self.is_ours() {
            // Whatever closed the files here would write into those of the other process.
            std::mem::forget(own);
        } else if let Some(own) = own {
            // Nobody is left who could be told.
            let _ = own.close(Some("its writer was not closed".into()));
        }
    }
}

/// NXmx bits.
fn mask_of(mask: &Bound<'_, PyAny>, shape: [usize; 2]) -> PyResult<Vec<u32>> {
    pixels::read(mask, |pixel, its, bytes| {
        let rest = bytes.chunks_exact(4).map(|four| u32::from_le_bytes(std::array::from_fn(|k| four[k])));
        match pixel {
            PixelType::Uint32 if its == shape => Ok(rest.collect()),
            _ => Err(value(format!("the mask must be a boolean or uint32 array of shape ({}, {})", shape[0], shape[1]))),
        }
    })
}
