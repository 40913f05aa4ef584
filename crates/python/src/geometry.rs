//! Where each pixel lies, for Python.

use super::errors::{raised, value};
use super::pixels::check_shape;
use konkordia_analysis::geometry as of;
use konkordia_analysis::poni::Poni;
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use numpy::{IntoPyArray, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use std::path::PathBuf;

/// A flat detector and the beam.
#[pyclass(frozen, module = "konkordia._native")]
pub struct Geometry(pub of::Geometry);

#[pymethods]
impl Geometry {
    /// From the corner of the first pixel and the steps along rows and columns, mm in the laboratory.
    #[new]
    fn new(
        shape: [usize; 2],
        origin_mm: [f64; 3],
        fast_mm: [f64; 3],
        slow_mm: [f64; 3],
        wavelength_angstrom: Option<f64>,
    ) -> PyResult<Self> {
        check_shape(shape)?;
        of::Geometry::new(shape, origin_mm, fast_mm, slow_mm, wavelength_angstrom).map(Self).map_err(value)
    }

    /// From what a configuration says of a detector.
    #[staticmethod]
    #[pyo3(signature = (shape, distance_mm, beam_center_px, pixel_size_um, energy_kev, tilt_fast_deg, tilt_slow_deg))]
    fn of_detector(
        shape: [usize; 2],
        distance_mm: f64,
        beam_center_px: [f64; 2],
        pixel_size_um: [f64; 2],
        energy_kev: Option<f64>,
        tilt_fast_deg: f64,
        tilt_slow_deg: f64,
    ) -> PyResult<Self> {
        check_shape(shape)?;
        let mut facts = Metadata {
            energy_kev,
            detector_distance_m: Some(distance_mm / 1000.0),
            beam_center_x_px: Some(beam_center_px[0]),
            beam_center_y_px: Some(beam_center_px[1]),
            pixel_size_m: Some(pixel_size_um.map(|size| size * 1e-6)),
            ..Metadata::default()
        };
        facts.experiment.tilt_fast_deg = Some(tilt_fast_deg);
        facts.experiment.tilt_slow_deg = Some(tilt_slow_deg);
        of::Geometry::of_run(shape, &facts).map(Self).map_err(value)
    }

    /// From a `.poni` file of pyFAI.
    #[staticmethod]
    fn of_poni(path: PathBuf, shape: [usize; 2]) -> PyResult<Self> {
        check_shape(shape)?;
        let text = std::fs::read_to_string(&path).map_err(|error| raised(&Failure::io("cannot read", &path, &error)))?;
        let made = text.parse::<Poni>().and_then(|poni| poni.geometry(shape));
        let what = || format!("{} is no geometry for these images", path.display());
        made.map(Self).map_err(|why| raised(&Failure::new(Exit::Configuration, what(), why, "correct the file")))
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.0.rows, self.0.columns)
    }

    #[getter]
    fn origin_mm(&self) -> (f64, f64, f64) {
        self.0.origin_mm().into()
    }

    #[getter]
    fn fast_mm(&self) -> (f64, f64, f64) {
        self.0.fast_mm().into()
    }

    #[getter]
    fn slow_mm(&self) -> (f64, f64, f64) {
        self.0.slow_mm().into()
    }

    #[getter]
    fn wavelength_angstrom(&self) -> Option<f64> {
        self.0.wavelength_angstrom()
    }

    #[getter]
    fn distance_mm(&self) -> f64 {
        self.0.normal_distance_mm()
    }

    #[getter]
    fn beam_center_px(&self) -> Option<(f64, f64)> {
        self.0.beam_center_px().map(Into::into)
    }

    #[getter]
    fn pixel_size_um(&self) -> (f64, f64) {
        self.0.pixel_size_mm().map(|size| size * 1000.0).into()
    }

    /// The scattering angle, degrees, of each pixel.
    fn two_theta_deg<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.map(py, of::Radial::TwoTheta)
    }

    /// q, 1/angstrom, of each pixel.
    fn q_per_angstrom<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.map(py, of::Radial::Q)
    }

    /// d, angstrom, of each pixel.
    fn d_angstrom<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.map(py, of::Radial::D)
    }
}

impl Geometry {
    fn map<'py>(&self, py: Python<'py>, radial: of::Radial) -> PyResult<Bound<'py, PyArray2<f64>>> {
        if self.0.wavelength_angstrom().is_none() && radial != of::Radial::TwoTheta {
            return Err(value("the wavelength is not known; give energy_kev"));
        }
        let values = py.detach(|| self.0.map(|x_px, y_px| self.0.radial(radial, x_px, y_px)));
        values.into_pyarray(py).reshape([self.0.rows, self.0.columns])
    }
}
