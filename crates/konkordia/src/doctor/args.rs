//! The options of `konkordia doctor`.

use clap::Args;
use std::path::PathBuf;

/// `konkordia doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Network interface to look at; may be given several times [default: those of the addresses in --config, otherwise
    /// all that are up]
    #[arg(long = "iface", value_name = "IF", help_heading = "What to look at")]
    pub interfaces: Vec<String>,
    /// Configuration that the host is to serve: its addresses, streams, buffers, memory, processors and folder
    #[arg(long, value_name = "FILE", help_heading = "What to look at")]
    pub config: Option<PathBuf>,
    /// Folder for files; a file is written there and removed again [default: that of --config]
    #[arg(long, value_name = "DIR", help_heading = "What to look at")]
    pub dir: Option<PathBuf>,
    /// Seconds of the write test in the folder; 0 = none
    #[arg(long, value_name = "S", default_value_t = 3, help_heading = "What to look at", value_parser = clap::value_parser!(u64).range(0..=600))]
    pub write_seconds: u64,
    /// Says where the packets of this run went instead (its master file); the host is not looked at
    #[arg(long, value_name = "FILE", help_heading = "What to look at", conflicts_with_all = ["interfaces", "config", "dir", "write_seconds", "fix_script"])]
    pub run: Option<PathBuf>,
    /// Print a shell script that mends what was found, instead of the findings
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub fix_script: bool,
    /// For programs: the result as JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
