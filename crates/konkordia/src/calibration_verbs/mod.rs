//! `konkordia calibration ...`: what is in a calibration file, how two differ, pictures of one, and files from planes
//! of other programs.

pub mod args;
mod compare;
mod file;
mod import;
mod plot;
mod show;

use args::CalibrationCommand;
use konkordia_core::failure::{Exit, Failure};

/// `konkordia calibration ...`
pub fn command(which: &CalibrationCommand) -> Result<Exit, Failure> {
    match which {
        CalibrationCommand::Show(args) => show::command(args),
        CalibrationCommand::Compare(args) => compare::command(args),
        CalibrationCommand::Plot(args) => plot::command(args),
        CalibrationCommand::Import(args) => import::command(args),
    }
}
