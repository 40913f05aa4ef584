//! The command line of `konkordia calibration`.

use crate::help::TEMPLATE;
use clap::{Args, Subcommand};
use konkordia_core::failure::EXIT_CODES;
use std::path::PathBuf;

/// `konkordia calibration`
#[derive(Debug, Subcommand)]
pub enum CalibrationCommand {
    /// Prints what is in calibration files: origin; pedestal, noise and masked pixels of each module, storage cell and
    /// gain stage
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia calibration show cal.h5
  konkordia calibration show monday.h5 tuesday.h5
  konkordia calibration show cal.h5 --json | jq .[0].rows")]
    Show(ShowArgs),
    /// Prints how two calibrations differ: shift of the pedestals, noise, gains, pixels whose mask changed
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia calibration compare monday.h5 tuesday.h5
  konkordia calibration compare monday.h5 tuesday.h5 --json
  konkordia calibration compare monday.h5 tuesday.h5 | grep G0")]
    Compare(CompareArgs),
    /// Draws maps and histograms of a calibration into PNG files, one for each cell and stage and one for the gains
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia calibration plot cal.h5
  konkordia calibration plot cal.h5 --dir pictures
  konkordia calibration plot cal.h5 --module 3 --dir pictures")]
    Plot(PlotArgs),
    /// Makes a calibration file from pedestals and gains of other programs
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia calibration import --pedestal g0.f32 g1.f32 g2.f32 --gain gain.f32 --cell 15 -o cal.h5
  konkordia calibration import --pedestal JF07T32V02.res.h5 --gain gains.h5 --modules 32 --cell 15 -o cal.h5
  konkordia calibration import --pedestal g0.f32 g1.f32 g2.f32 --rms g0_rms.f32 --noisy-k 3 --cell 0 -o cal.h5")]
    Import(ImportArgs),
}

/// `konkordia calibration show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Calibration files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia calibration compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The older calibration
    pub before: PathBuf,
    /// The newer calibration
    pub after: PathBuf,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia calibration plot`
#[derive(Debug, Args)]
pub struct PlotArgs {
    /// A calibration file
    pub file: PathBuf,
    /// Folder of the pictures; is made if it does not exist [default: that of the file]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Only this module, counted from 0
    #[arg(long, value_name = "M")]
    pub module: Option<usize>,
    /// For programs: the names of the pictures as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia calibration import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Pedestals in ADU: float32 planes (G0 of all modules, then G1, G2 and possibly HG0), or one HDF5 file of
    /// jungfrau_utils
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub pedestal: Vec<PathBuf>,
    /// Noise (RMS) of G0 in ADU: float32 planes of all modules
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub rms: Vec<PathBuf>,
    /// Gains in ADU/keV: PSI `.bin`, HDF5 with `/gains`, or float32 planes
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub gain: Vec<PathBuf>,
    /// Number of modules
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub modules: u32,
    /// Storage cells to which the pedestals belong; a detector that uses one cell uses 15 (chip 1.0) or 3 (chip 1.1)
    #[arg(long, value_name = "N", num_args = 1.., required = true, value_parser = clap::value_parser!(u8).range(0..=15))]
    pub cell: Vec<u8>,
    /// When the pedestals were taken, for example 2026-11-21T05:18:00Z
    #[arg(long, value_name = "TIME")]
    pub taken: Option<String>,
    /// Serial number of the detector
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String>,
    /// Also mask pixels with an RMS above K times the median of their module [default: only what the source marks]
    #[arg(long, value_name = "K", requires = "rms")]
    pub noisy_k: Option<f32>,
    /// The new calibration file
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
