//! Frames of raw files, for Python.

use super::errors::{raised, value};
use super::images::closed;
use super::pixels;
use konkordia_acquire::raw_frames::{FrameFacts, RawFrames as Opened};
use konkordia_core::failure::Failure;
use konkordia_core::tile::DetectorKind;
use konkordia_input::{Format, InputInfo, Options};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Raw files that were opened and belong together; `None` when they are closed.
#[pyclass(frozen, module = "konkordia._native")]
pub struct RawFrames {
    opened: Mutex<Option<Opened>>,
    info: InputInfo,
    numbers: Vec<u64>,
    shape: [usize; 2],
    dtype: &'static str,
}

/// True if files hold raw frames, and not images.
#[pyfunction]
pub fn is_raw(py: Python<'_>, paths: Vec<PathBuf>) -> bool {
    py.detach(|| konkordia_input::is_raw(&paths))
}

#[pymethods]
impl RawFrames {
    #[new]
    fn new(
        py: Python<'_>,
        files: Vec<PathBuf>,
        format: Option<&str>,
        modules: Option<u32>,
        detector: Option<String>,
    ) -> PyResult<Self> {
        let known = |name: &str| Format::ALL.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format);
        let names = || Format::ALL.map(|(_, name, _)| name).join(", ");
        let format = match format {
            Some(name) => {
                Some(known(name).ok_or_else(|| value(format!("format {name:?} is not known; there are: {}", names())))?)
            }
            None => None,
        };
        if modules.is_some_and(|modules| !(1..=256).contains(&modules)) {
            return Err(value("a detector has 1 to 256 modules"));
        }
        let options = Options { format, modules, detector, ..Options::default() };
        let opened = py.detach(|| Opened::open(&files, &options)).map_err(|failure| raised(&failure))?;
        let (info, numbers) = (opened.info().clone(), opened.numbers().to_vec());
        let (shape, dtype) = (opened.shape(), opened.pixel().name());
        Ok(Self { opened: Mutex::new(Some(opened)), info, numbers, shape, dtype })
    }

    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        (self.numbers.len(), self.shape[0], self.shape[1])
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype
    }

    #[getter]
    fn modules(&self) -> u32 {
        self.info.modules
    }

    #[getter]
    fn is_jungfrau(&self) -> bool {
        self.info.format.kind == DetectorKind::Jungfrau
    }

    /// Of each module; `None` where the files have none.
    #[getter]
    fn module_ids(&self) -> Option<Vec<u16>> {
        let each = self.info.interfaces.max(1) as usize;
        self.info.has_module_ids().then(|| self.info.module_ids.iter().step_by(each).copied().collect())
    }

    #[getter]
    fn kind(&self) -> &str {
        &self.info.kind
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.info.notes.clone()
    }

    /// When the data were taken; empty if that is not known. The names of the files.
    #[getter]
    fn taken(&self) -> (String, String) {
        let names = self.info.files.iter().filter_map(|f| Some(f.file_name()?.to_string_lossy().into_owned()));
        let source = format!("{}: {}", self.info.kind, names.collect::<Vec<_>>().join(" "));
        (self.info.taken().cloned().unwrap_or_default(), source)
    }

    /// The number of each frame.
    fn frame_numbers<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        self.numbers.clone().into_pyarray(py)
    }

    /// Reads a frame into an array of its size and type, and says what is known of it.
    fn read<'py>(&self, py: Python<'py>, nth: usize, out: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let facts = pixels::write(out, |pixel, shape, bytes| {
            if pixel.name() != self.dtype || shape != self.shape {
                let [rows, columns] = self.shape;
                return Err(value(format!("out must be a {} array of shape ({rows}, {columns})", self.dtype)));
            }
            py.detach(|| self.read_into(nth, bytes)).map_err(|failure| raised(&failure))
        })?;
        let (header, found) = (facts.header, PyDict::new(py));
        found.set_item("frame_number", facts.number)?;
        found.set_item("packets", facts.packets)?;
        found.set_item("packets_missing", facts.packets_missing())?;
        found.set_item("timestamp_s", header.timestamp_100ns as f64 * 1e-7)?;
        if self.is_jungfrau() {
            found.set_item("storage_cell", header.daq_info >> 8 & 15)?;
            found.set_item("high_gain", header.daq_info & 1 == 1)?;
            found.set_item("bunch_id", header.bunch_id)?;
            found.set_item("exposure_s", f64::from(header.exposure_length) * 1e-7)?;
        }
        Ok(found)
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

impl RawFrames {
    /// What was found in the files.
    pub fn info(&self) -> &InputInfo {
        &self.info
    }

    /// Reads the `nth` frame.
    pub fn read_into(&self, nth: usize, out: &mut [u8]) -> Result<FrameFacts, Failure> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.as_mut().ok_or_else(closed)?.read(nth, out)
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.numbers.len()
    }
}
