//! Calibrations of a JUNGFRAU, and images of its frames, for Python.

use super::errors::{raised, value};
use super::pixels;
use konkordia_acquire::frame_images::FrameImages as Own;
use konkordia_calibration as calibration;
use konkordia_config::Config;
use konkordia_config::model::CalibrationFiles;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, MODULE_COLUMNS, MODULE_ROWS};
use konkordia_sinks::hdf5::calibration_reader::CalibrationReader;
use konkordia_sinks::hdf5::foreign::ForeignFile;
use numpy::{IntoPyArray, PyArray2, PyArray3, PyArrayMethods};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// Pedestals and gains of each pixel, judged.
#[pyclass(frozen, module = "konkordia._native")]
pub struct Calibration {
    own: calibration::Calibration,
    /// The table `[calibration]` that stands for it in configurations.
    table: String,
    modules: usize,
}

/// What a configuration says of frames with these tables, and the files of its calibration.
pub fn configuration(modules: usize, table: &str, tables: &str) -> Result<(Config, CalibrationFiles), Failure> {
    let text = format!(
        "[output]\ndirectory = \".\"\nprefix = \"images\"\n[calibration]\n{table}\n{}",
        tables.replacen("[detector]\n", &format!("[detector]\ntype = \"jungfrau\"\nmodules = {modules}\ninterfaces = 1\n"), 1)
    );
    let config = konkordia_config::parse(&text, Path::new("(options of konkordia.convert)"))?;
    let files = config.calibration.clone();
    let files = files.ok_or_else(|| Failure::new(Exit::Configuration, "there is no calibration", "", "give one"))?;
    Ok((config, files))
}

/// Tables that need nothing but the calibration.
const ANY: &str = "[detector]\nenergy_kev = 1.0\n";

impl Calibration {
    pub fn of_file(file: CalibrationFile, table: String) -> Result<Self, Failure> {
        let (config, files) = configuration(file.modules, &table, ANY)?;
        let modules = file.modules;
        Ok(Self { own: calibration::load::of_file(&config, &files, file)?, table, modules })
    }
}

#[pymethods]
impl Calibration {
    /// From the keys of `[calibration]`. `modules` 0: as the file of `konkordia pedestal` says.
    #[staticmethod]
    fn of_files(py: Python<'_>, table: String, modules: usize) -> PyResult<Self> {
        let load = || {
            if modules == 0 {
                let (_, files) = configuration(1, &table, ANY)?;
                let file = CalibrationFile::read(&files.pedestal[0]).map_err(calibration::planes::configuration)?;
                return Self::of_file(file, table);
            }
            let (config, files) = configuration(modules, &table, ANY)?;
            Ok(Self { own: calibration::load(&config, &files)?, table, modules })
        };
        py.detach(load).map_err(|failure| raised(&failure))
    }

    /// The `[calibration] kind` of an HDF5 file of pedestals.
    #[staticmethod]
    fn kind_of(py: Python<'_>, path: PathBuf) -> PyResult<&'static str> {
        let kind = || match CalibrationReader::open(&path) {
            Ok(_) => Ok("konkordia"),
            Err(_) if ForeignFile::open(&path).is_ok_and(|file| file.has("/gains")) => Ok("jungfrau_utils"),
            Err(error) => Err(calibration::planes::configuration(error)),
        };
        py.detach(kind).map_err(|failure| raised(&failure))
    }

    #[getter]
    fn modules(&self) -> usize {
        self.modules
    }

    /// The storage cells; one `None` if the planes are for all.
    #[getter]
    fn cells(&self) -> Vec<Option<u8>> {
        self.own.cells.iter().map(|cell| cell.cell).collect()
    }

    #[getter]
    fn high_gain(&self) -> bool {
        self.own.high_gain
    }

    #[getter]
    fn hash(&self) -> &str {
        &self.own.hash
    }

    #[getter]
    fn report(&self) -> &str {
        &self.own.report
    }

    #[getter]
    fn module_ids(&self) -> Vec<Option<u16>> {
        self.own.module_ids.clone()
    }

    /// Seconds since 1970.
    #[getter]
    fn taken_s(&self) -> Option<u64> {
        self.own.taken_s
    }

    /// ADU: stages x rows x columns.
    fn pedestal<'py>(&self, py: Python<'py>, nth: usize) -> PyResult<Bound<'py, PyArray3<f32>>> {
        self.stages(py, &self.cell(nth)?.pedestals)
    }

    /// ADU/keV: stages x rows x columns.
    fn gain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f32>>> {
        self.stages(py, &self.own.gains)
    }

    /// ADU, of the first stage.
    fn noise<'py>(&self, py: Python<'py>, nth: usize) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let rms = self.cell(nth)?.rms_g0.clone();
        rms.map(|rms| rms.into_pyarray(py).reshape(self.shape())).transpose()
    }

    /// Bit s: stage s is not usable.
    fn unusable<'py>(&self, py: Python<'py>, nth: usize) -> PyResult<Bound<'py, PyArray2<u8>>> {
        self.cell(nth)?.unusable.clone().into_pyarray(py).reshape(self.shape())
    }

    /// Bits of the NXmx pixel mask.
    fn mask<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u32>>> {
        self.own.mask.clone().into_pyarray(py).reshape(self.shape())
    }

    /// What makes images of frames, by the tables `[detector]` and `[processing]`.
    fn images(&self, py: Python<'_>, tables: &str) -> PyResult<FrameImages> {
        let made = || {
            let (config, _) = configuration(self.modules, &self.table, tables)?;
            Own::new(&config, &self.own)
        };
        py.detach(made).map(FrameImages).map_err(|failure| raised(&failure))
    }
}

impl Calibration {
    fn shape(&self) -> [usize; 2] {
        [self.modules * MODULE_ROWS, MODULE_COLUMNS]
    }

    fn cell(&self, nth: usize) -> PyResult<&calibration::CellPlanes> {
        self.own.cells.get(nth).ok_or_else(|| value(format!("there are {} storage cells", self.own.cells.len())))
    }

    fn stages<'py>(&self, py: Python<'py>, planes: &[Vec<f32>; 3]) -> PyResult<Bound<'py, PyArray3<f32>>> {
        let [rows, columns] = self.shape();
        planes.concat().into_pyarray(py).reshape([3, rows, columns])
    }
}

/// Makes images of frames.
#[pyclass(frozen, module = "konkordia._native")]
pub struct FrameImages(Own);

#[pymethods]
impl FrameImages {
    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.0.shape().into()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.pixel().name()
    }

    /// Bits of the NXmx pixel mask.
    fn mask<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u32>>> {
        self.0.mask().to_vec().into_pyarray(py).reshape(self.0.shape())
    }

    /// Converts a frame or a stack of them, with 1024 columns, into an array of as many images.
    fn convert(&self, py: Python<'_>, raw: &Bound<'_, PyAny>, cell: u8, first: u64, out: &Bound<'_, PyAny>) -> PyResult<()> {
        pixels::read(raw, |pixel, shape, words| {
            let rows = self.0.frame_words() / MODULE_COLUMNS;
            let frames = match *shape {
                [its, MODULE_COLUMNS] if its == rows => vec![],
                [frames, its, MODULE_COLUMNS] if its == rows => vec![frames],
                _ => {
                    return Err(value(format!(
                        "raw frames have shape ({rows}, {MODULE_COLUMNS}), or frames before that, not {shape:?}"
                    )));
                }
            };
            if pixel != PixelType::Uint16 {
                return Err(value(format!("raw words are uint16, not {pixel}")));
            }
            let wanted = [frames, self.0.shape().to_vec()].concat();
            pixels::write(out, |its, shape, bytes| {
                if its != self.0.pixel() || shape != wanted {
                    return Err(value(format!("out must be a {} array of shape {wanted:?}", self.0.pixel())));
                }
                py.detach(|| self.0.convert(bytemuck::cast_slice(words), cell, first, bytes));
                Ok(())
            })
        })
    }
}
