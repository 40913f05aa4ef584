//! The command line of `konkordia coincide`.

use clap::Args;
use std::path::PathBuf;

/// `konkordia coincide`
#[derive(Debug, Args)]
pub struct CoincideArgs {
    /// Master or data files of detectors that had the same triggers, two or more
    #[arg(value_name = "FILE", num_args = 2.., required = true)]
    pub files: Vec<PathBuf>,
    /// The column that says the number of the trigger: `frame_number`, `pulse_id`, `bunch_id`, `train_id` or another
    /// one of /entry/konkordia/images
    #[arg(long, value_name = "COLUMN", default_value = "frame_number")]
    pub by: String,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
