//! `konkordia calibration ...`: what is in a calibration file, how two differ, pictures of one, and files from planes
//! of other programs.

pub mod args;
mod compare;
mod import;
mod plot;
mod show;

use args::CalibrationCommand;
use konkordia_calibration::planes::configuration;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::calibration::CalibrationFile;
use std::path::Path;

/// `konkordia calibration ...`
pub fn command(which: &CalibrationCommand) -> Result<Exit, Failure> {
    match which {
        CalibrationCommand::Show(args) => show::command(args),
        CalibrationCommand::Compare(args) => compare::command(args),
        CalibrationCommand::Plot(args) => plot::command(args),
        CalibrationCommand::Import(args) => import::command(args),
    }
}

fn read(path: &Path) -> Result<CalibrationFile, Failure> {
    CalibrationFile::read(path).map_err(configuration)
}
