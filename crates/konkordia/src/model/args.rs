//! The command line of `konkordia model`.

use clap::Args;
use std::path::PathBuf;

/// `konkordia model`
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// The model (ONNX)
    #[arg(value_name = "FILE.onnx")]
    pub file: PathBuf,
    /// Which of its outputs is the score [default: its only one]
    #[arg(long, value_name = "NAME")]
    pub output: Option<String>,
    /// SHA-256 that the file must have, hexadecimal
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,
}
