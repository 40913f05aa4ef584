//! The command line of `konkordia simulate xfel-train`.

use super::fault_args::FaultArgs;
use clap::Args;

/// `konkordia simulate xfel-train`
#[derive(Debug, Args)]
pub struct XfelTrainArgs {
    /// Where to send: address and port of the first module; the others follow on consecutive ports
    #[arg(long, value_name = "HOST:PORT", help_heading = "What to send")]
    pub to: String,
    /// Trains to send
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "What to send", value_parser = clap::value_parser!(u64).range(1..))]
    pub trains: u64,
    /// Trains per second; 0 = as fast as possible
    #[arg(long, value_name = "HZ", default_value_t = 10.0, help_heading = "What to send")]
    pub rate: f64,
    /// Number of modules
    #[arg(long, value_name = "M", default_value_t = 1, help_heading = "What to send", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub modules: u32,
    /// Which detector it is: lpd, dssc or agipd
    #[arg(long, value_name = "MODEL", default_value = "lpd", help_heading = "What to send", value_parser = ["lpd", "dssc", "agipd"])]
    pub model: String,
    /// Images of a train
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What to send")]
    pub images_per_train: u32,
    /// Frame number of the first train
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What to send")]
    pub first_frame: u32,
    #[command(flatten)]
    pub faults: FaultArgs,
    /// For programs: what was sent, as JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No progress line
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}
