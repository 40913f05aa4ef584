//! What is looked for in images, for Python: a recipe as `konkordia analyse` takes it, and its results of an image.

use super::errors::{raised, value};
use super::geometry::Geometry;
use super::pixels;
use konkordia_acquire::analysis::tasks;
use konkordia_analysis::analyser::{Analyser as Own, Results};
use konkordia_analysis::pixels::Pixels;
use konkordia_config::recipe::Recipe;
use konkordia_core::failure::Failure;
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Analyses images of one size. One image at a time: threads that share it wait for each other.
#[pyclass(frozen, module = "konkordia._native")]
pub struct Analyser {
    work: Mutex<Work>,
    regions: Vec<String>,
    shape: [usize; 2],
    left_out: Vec<String>,
}

/// Analyser and memory.
struct Work {
    analyser: Own,
    pixels: Pixels,
}

#[pymethods]
impl Analyser {
    /// By the text of a recipe; `name` names it in errors. `mask` is true where a pixel is not to be used.
    #[new]
    fn new(
        py: Python<'_>,
        recipe: &str,
        name: &str,
        shape: [usize; 2],
        geometry: Option<&Bound<'_, Geometry>>,
        mask: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        pixels::check_shape(shape)?;
        let recipe = Recipe::parse(recipe, Path::new(name)).map_err(|found| raised(&Failure::from(found)))?;
        let [rows, columns] = shape;
        let usable = match mask {
            None => vec![true; rows * columns],
            Some(mask) => pixels::read(mask, |_, its, bytes| {
                if its != shape || bytes.len() != rows * columns {
                    return Err(value(format!("the mask must be a boolean array of shape ({rows}, {columns})")));
                }
                Ok(bytes.iter().map(|byte| *byte == 0).collect())
            })?,
        };
        let geometry = geometry.map(|geometry| geometry.get().0.clone());
        let made = py.detach(|| {
            let tasks = tasks::of(&recipe, geometry.as_ref())?;
            Own::new(&tasks, geometry.as_ref(), &usable, shape)
        });
        let (analyser, left_out) = made.map_err(value)?;
        let regions = analyser.regions().iter().map(|region| region.name.clone()).collect();
        Ok(Self { work: Mutex::new(Work { analyser, pixels: Pixels::new() }), regions, shape, left_out })
    }

    /// What cannot be done without a geometry.
    #[getter]
    fn left_out(&self) -> Vec<String> {
        self.left_out.clone()
    }

    /// Results of an image; numbers from `low` to `high` are measurements.
    fn analyse<'py>(&self, py: Python<'py>, image: &Bound<'py, PyAny>, low: f64, high: f64) -> PyResult<Bound<'py, PyDict>> {
        pixels::read(image, |pixel, shape, bytes| {
            if shape != self.shape {
                return Err(value(format!("the image has shape {shape:?}; the analysis was made for {:?}", self.shape)));
            }
            let results = py.detach(|| {
                let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
                let Work { analyser, pixels } = &mut *work;
                let mut results = analyser.results();
                pixels.analyse(analyser, (pixel, bytes), (self.shape[1], (low, high)), &mut results)?;
                Ok::<_, String>(results)
            });
            as_dict(py, results.map_err(value)?, &self.regions)
        })
    }
}

/// The results of an image. What was not asked for is not in it.
fn as_dict<'py>(py: Python<'py>, results: Results, regions: &[String]) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    if let Some(found) = results.spots {
        let spots = &found.list.spots;
        let column = |of: fn(&konkordia_analysis::spot::Spot) -> f64| spots.iter().map(of).collect::<Vec<f64>>().into_pyarray(py);
        let table = PyDict::new(py);
        table.set_item("x_px", column(|spot| spot.x_px))?;
        table.set_item("y_px", column(|spot| spot.y_px))?;
        table.set_item("intensity", column(|spot| spot.intensity))?;
        table.set_item("maximum", column(|spot| spot.maximum))?;
        table.set_item("background", column(|spot| spot.background))?;
        table.set_item("snr", column(|spot| spot.snr))?;
        table.set_item("pixels", column(|spot| f64::from(spot.pixels)))?;
        table.set_item("d_angstrom", found.d_angstrom.into_pyarray(py))?;
        table.set_item("is_ice", found.is_ice.into_pyarray(py))?;
        out.set_item("spots", table)?;
        out.set_item("spots_found", found.list.found)?;
        out.set_item("is_hit", found.is_hit)?;
        out.set_item("shows_ice", found.shows_ice)?;
        out.set_item("shows_salt", found.shows_salt)?;
        out.set_item("resolution_angstrom", found.resolution_angstrom)?;
        out.set_item("background", found.background)?;
    }
    if let Some(profile) = results.profile {
        let table = PyDict::new(py);
        let columns = [
            ("radial", profile.radial),
            ("azimuth_deg", profile.azimuth_deg),
            ("intensity", profile.intensity),
            ("sum", profile.sum),
            ("normalization", profile.normalization),
            ("pixels", profile.pixels),
            ("sigma", profile.sigma),
        ];
        for (name, values) in columns {
            table.set_item(name, values.into_pyarray(py))?;
        }
        out.set_item("profile", table)?;
    }
    let values = PyList::empty(py);
    for (name, of) in regions.iter().zip(&results.regions) {
        values.append((name, of.pixels, of.sum, of.maximum, of.center_px))?;
    }
    out.set_item("regions", values)?;
    out.set_item("above", results.above)?;
    out.set_item("beam_shift_px", results.beam_shift_px.map(|[x, y]| (x, y)))?;
    Ok(out)
}
