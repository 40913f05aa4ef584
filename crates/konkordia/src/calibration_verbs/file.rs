//! Reads the calibration files of the command line.

use konkordia_calibration::planes::configuration;
use konkordia_core::failure::Failure;
use konkordia_sinks::hdf5::calibration::CalibrationFile;
use std::path::Path;

/// The calibration file at this path.
pub fn read(path: &Path) -> Result<CalibrationFile, Failure> {
    CalibrationFile::read(path).map_err(configuration)
}
