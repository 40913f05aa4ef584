//! Arguments of `konkordia bench table3`.

use crate::bench::args::OutputArgs;
use clap::Args;
use std::path::PathBuf;

/// `konkordia bench table3`
#[derive(Debug, Args)]
pub struct BenchTable3Args {
    /// Images of the crystal; with 100 of the usual size, about 10 000 reflections are recorded 6 times each
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub images: u32,
    /// Rows and columns of an image; a larger image has more reflections
    #[arg(long, value_name = "PIXELS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..=8192))]
    pub edge: u32,
    /// Everything that is random follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Draw Rmeas against bits per pixel into this file, beside the paper's
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}
