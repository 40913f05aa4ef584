//! The command line of `konkordia join`.

use clap::Args;
use konkordia_core::failure::EXIT_CODES;
use std::path::PathBuf;

/// `konkordia join`
#[derive(Debug, Args)]
#[command(help_template = crate::help::TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia join join.toml
  konkordia join join.toml --file /data/run_0012_joined.h5 --overwrite
  konkordia join join.toml --stall-s 30 --json")]
pub struct JoinArgs {
    /// The file that names the sources, the time-out and the outputs (docs/join.md)
    #[arg(value_name = "JOIN")]
    pub join: PathBuf,
    /// Write the table into this file, and not into the one that JOIN names
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Replace the table if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// End when nothing came for so many seconds after the first part, and not as JOIN says
    #[arg(long, value_name = "S")]
    pub stall_s: Option<f64>,
    /// For programs: the report as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
