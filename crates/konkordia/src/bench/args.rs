//! Arguments of the benches that reproduce tables and figures of Leonarski et al. 2020.

use crate::cli::BenchKernelsArgs;
use clap::Args;
use std::path::PathBuf;

/// `konkordia bench roofline`
#[derive(Debug, Args)]
pub struct BenchRooflineArgs {
    /// Frames and time.
    #[command(flatten)]
    pub frames: BenchKernelsArgs,
    /// Draw the figure into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
}
