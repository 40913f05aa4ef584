//! Dark frames and the pedestals that are made of them, for Python.

use super::calibration::Calibration;
use super::errors::{raised, value};
use super::pixels;
use super::raw_frames::RawFrames;
use konkordia_acquire::dark::{StageChoice, whole_modules};
use konkordia_calibration::dark::collect::Collector;
use konkordia_calibration::dark::store::{self, Target};
use konkordia_calibration::dark::{MakeOptions, Taken, add, judge};
use konkordia_calibration::reasons::Thresholds;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::TileRecord;
use konkordia_core::pixel::PixelType;
use konkordia_core::sls_header::SlsHeader;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, Keep, MODULE_COLUMNS, MODULE_PIXELS, MODULE_ROWS};
use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Stands for the file where there is none.
const NO_FILE: &str = "(konkordia.pedestal)";

/// Sums of dark frames; `None` when pedestals were made of them.
#[pyclass(frozen, module = "konkordia._native")]
pub struct Darks {
    sums: Mutex<Option<Sums>>,
    modules: usize,
    wanted: Option<GainStage>,
}

struct Sums {
    collector: Collector,
    incomplete_frames: u64,
    has_module_ids: bool,
}

#[pymethods]
impl Darks {
    #[new]
    fn new(modules: usize, stage: &str, skip: u64) -> PyResult<Self> {
        let choice = StageChoice::ALL.into_iter().find(|choice| choice.name() == stage && *choice != StageChoice::All);
        let choice = choice.ok_or_else(|| value(format!("stage {stage:?} is not known; there are: auto, g0, g1, g2, hg0")))?;
        if !(1..=256).contains(&modules) {
            return Err(value(format!("a detector has 1 to 256 modules, not {modules}")));
        }
        let wanted = choice.wanted().first().copied().flatten();
        let collector = Collector::new(modules, wanted, skip);
        Ok(Self { sums: Mutex::new(Some(Sums { collector, incomplete_frames: 0, has_module_ids: false })), modules, wanted })
    }

    /// Adds frames in memory: modules x 512 rows, or frames before that. Nothing is known of them but their storage
    /// cell.
    fn add(&self, py: Python<'_>, words: &Bound<'_, PyAny>, cell: u8) -> PyResult<()> {
        pixels::read(words, |pixel, shape, bytes| {
            let rows = self.modules * MODULE_ROWS;
            if pixel != PixelType::Uint16 || !matches!(*shape, [its, MODULE_COLUMNS] | [_, its, MODULE_COLUMNS] if its == rows) {
                let found = format!("not {pixel} of shape {shape:?}");
                return Err(value(format!(
                    "dark frames are uint16 of shape ({rows}, {MODULE_COLUMNS}), or frames before that, {found}"
                )));
            }
            // A header without bits says nothing of the gain; one that names a cell must say it.
            let is_high = self.wanted == Some(GainStage::Hg0);
            let header = SlsHeader { daq_info: u32::from(cell & 15) << 8 | u32::from(is_high), ..SlsHeader::default() };
            let record = TileRecord { header: header.into(), packets: 128, ..TileRecord::default() };
            py.detach(|| {
                self.with(|sums| {
                    for frame in bytemuck::cast_slice::<u8, u16>(bytes).chunks_exact(self.modules * MODULE_PIXELS) {
                        sums.collector.add(frame, &vec![record; self.modules]);
                    }
                    Ok(())
                })
            })
            .map_err(|failure| raised(&failure))
        })
    }

    /// Adds frames of raw files.
    fn add_raw(&self, py: Python<'_>, frames: &Bound<'_, RawFrames>, first: usize, end: usize) -> PyResult<()> {
        let frames = frames.get();
        let add = || {
            whole_modules(&frames.info().format)?;
            let mut words = vec![0u16; self.modules * MODULE_PIXELS];
            for nth in first..end.min(frames.frames()) {
                let facts = frames.read_into(nth, bytemuck::cast_slice_mut(&mut words))?;
                self.with(|sums| {
                    sums.collector.add(&words, &facts.tiles);
                    sums.incomplete_frames += u64::from(facts.packets_missing() > 0);
                    sums.has_module_ids = frames.info().has_module_ids();
                    Ok(())
                })?;
            }
            Ok(())
        };
        py.detach(add).map_err(|failure: Failure| raised(&failure))
    }

    /// Makes pedestals of them. `limits`: of the mask, see `Thresholds`.
    fn finish(
        &self,
        py: Python<'_>,
        limits: (f32, f32, f32, f32),
        force: bool,
        gain: Vec<PathBuf>,
        serial: Option<String>,
        taken: (String, String),
    ) -> PyResult<Pedestals> {
        let (noisy_k, stuck_fraction, outside_max, wrong_stage_max) = limits;
        let thresholds = Thresholds { noisy_k, stuck_fraction, outside_max, wrong_stage_max, ..Thresholds::default() };
        let options = MakeOptions { thresholds, force, serial, gain };
        py.detach(|| self.made(&options, taken)).map_err(|failure| raised(&failure))
    }
}

impl Darks {
    fn with<R>(&self, work: impl FnOnce(&mut Sums) -> Result<R, Failure>) -> Result<R, Failure> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        work(sums.as_mut().ok_or_else(spent)?)
    }

    fn made(&self, options: &MakeOptions, (taken, source): (String, String)) -> Result<Pedestals, Failure> {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Sums { mut collector, incomplete_frames, has_module_ids } = sums.ok_or_else(spent)?;
        if !has_module_ids {
            collector.module_ids.fill(None);
        }
        let refused = collector.refused.iter().map(|(why, frames)| (why.words(), *frames)).collect();
        let (serial, notes) = (None, Vec::new());
        let mut taken = [Taken { collector, taken, source, serial, incomplete_frames, notes, exit: Exit::Complete }];
        let mut file = CalibrationFile::default();
        let (rows, step) = add(options, Path::new(NO_FILE), &mut file, &mut taken)?;
        let remarks = rows.iter().map(|row| row.to_json().to_string()).collect();
        let [Taken { notes, .. }] = taken;
        Ok(Pedestals {
            file: Mutex::new(file),
            table: judge::table(&rows),
            rows: remarks,
            step,
            notes,
            refused,
            incomplete_frames,
        })
    }
}

fn spent() -> Failure {
    Failure::new(Exit::State, "pedestals were already made of these frames", "", "begin anew: konkordia.pedestal(...)")
}

/// Pedestals of dark frames.
#[pyclass(frozen, module = "konkordia._native")]
pub struct Pedestals {
    file: Mutex<CalibrationFile>,
    #[pyo3(get)]
    table: String,
    /// One JSON object for each cell, stage and module.
    #[pyo3(get)]
    rows: Vec<String>,
    step: String,
    #[pyo3(get)]
    notes: Vec<String>,
    #[pyo3(get)]
    refused: Vec<(String, u64)>,
    #[pyo3(get)]
    incomplete_frames: u64,
}

#[pymethods]
impl Pedestals {
    /// Stages and storage cells.
    fn keys(&self) -> Vec<(&'static str, u8)> {
        self.locked().pedestals.keys().map(|(cell, stage)| (stage.name(), *cell)).collect()
    }

    /// The planes of a stage and storage cell.
    fn planes<'py>(&self, py: Python<'py>, stage: &str, cell: u8) -> PyResult<Option<Bound<'py, PyDict>>> {
        let file = self.locked();
        let Some(planes) = GainStage::from_name(stage).and_then(|stage| file.pedestals.get(&(cell, stage))) else {
            return Ok(None);
        };
        let (shape, found) = ([file.modules * MODULE_ROWS, MODULE_COLUMNS], PyDict::new(py));
        found.set_item("mean_adu", planes.mean_adu.clone().into_pyarray(py).reshape(shape)?)?;
        found.set_item("rms_adu", planes.rms_adu.clone().into_pyarray(py).reshape(shape)?)?;
        found.set_item("count", planes.count.clone().into_pyarray(py).reshape(shape)?)?;
        found.set_item("mask", planes.mask.clone().into_pyarray(py).reshape(shape)?)?;
        found.set_item("frames", planes.frames)?;
        Ok(Some(found))
    }

    /// Writes a calibration file; returns its hash.
    fn save(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<String> {
        let save = || {
            let (path, _) = Target::open(Some(&path), None, overwrite)?.into_file();
            store::write(&mut self.locked(), &path, self.step.clone(), Keep::Previous)
        };
        py.detach(save).map_err(|failure| raised(&failure))
    }

    /// The calibration with these pedestals; `table` are the keys of `[calibration]`.
    fn calibration(&self, py: Python<'_>, table: String) -> PyResult<Calibration> {
        let file = self.locked().clone();
        py.detach(|| Calibration::of_file(file, table)).map_err(|failure| raised(&failure))
    }
}

impl Pedestals {
    fn locked(&self) -> std::sync::MutexGuard<'_, CalibrationFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
