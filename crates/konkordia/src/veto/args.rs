//! The command line of `konkordia veto`.

use crate::help::TEMPLATE;
use clap::{Args, Subcommand};
use konkordia_core::failure::EXIT_CODES;
use std::path::PathBuf;

/// `konkordia veto`
#[derive(Debug, Subcommand)]
pub enum VetoCommand {
    /// Says which images of a file a rule would reject, from the results that are stored with them
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia veto replay run01_master.h5
  konkordia veto replay run01_master.h5 --rule 'spots<10'
  konkordia veto replay results.h5 --rule 'is_hit==0' --json")]
    Replay(ReplayArgs),
}

/// `konkordia veto replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A master or data file of a run whose images were analysed, or a file of `konkordia analyse --output`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The rule (docs/analysis.md) [default: that of the recipe by which the file was made]
    #[arg(long, value_name = "RULE")]
    pub rule: Option<String>,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
