//! Arguments of the verbs that talk to a running service.

use clap::Args;
use std::path::PathBuf;

/// Which service, which detector.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// Name of the detector; needed if the service has several
    #[arg(long, value_name = "NAME", env = "KONKORDIA_DETECTOR")]
    pub detector: Option<String>,
    /// URL of the service
    #[arg(long, value_name = "URL", env = "KONKORDIA_URL", default_value = "http://127.0.0.1:8090", help_heading = "Service")]
    pub url: String,
    /// Token, if the service needs one (`konkordia token create` makes it)
    #[arg(long, value_name = "TOKEN", env = "KONKORDIA_TOKEN", hide_env_values = true, help_heading = "Service")]
    pub token: Option<String>,
    /// PEM file with the certificate of an https service, or of the authority that signed it [default: the certificates
    /// that this system trusts]
    #[arg(long, value_name = "FILE", env = "KONKORDIA_CA", help_heading = "Service")]
    pub ca: Option<PathBuf>,
    /// For programs: JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `konkordia arm` and `konkordia start`
#[derive(Debug, Args)]
pub struct ArmArgs {
    /// Images of the run; 0 = until stopped [default: as configured]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub images: Option<u64>,
    /// Start of the file names, may have folders below the output folder [default: as configured]
    #[arg(long, value_name = "NAME", help_heading = "Run")]
    pub prefix: Option<String>,
    /// Value for the file, by its name in the configuration, for example energy_kev=12.4 or sample_name=lysozyme
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Run")]
    pub set: Vec<String>,
    /// Write no files
    #[arg(long, help_heading = "Run")]
    pub no_write: bool,
    /// Leave the file open behind the run: the images of the next run with --append come behind them, until
    /// `konkordia close`
    #[arg(long, help_heading = "Run")]
    pub append: bool,
    /// Wait for the end of the run
    #[arg(long, help_heading = "Run")]
    pub wait: bool,
    /// With --wait: longest time to wait
    #[arg(long, value_name = "S", help_heading = "Run", requires = "wait")]
    pub timeout: Option<f64>,
    /// Which service.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `konkordia drain`
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Longest time to wait for the end of the runs; after it the exit code is 7 [default: no limit]
    #[arg(long, value_name = "S")]
    pub timeout: Option<f64>,
    /// Do not wait for the end of the runs
    #[arg(long, conflicts_with = "timeout")]
    pub no_wait: bool,
    /// Which service.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `konkordia wait`
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Longest time to wait; after it the exit code is 7 [default: no limit]
    #[arg(long, value_name = "S")]
    pub timeout: Option<f64>,
    /// Which service.
    #[command(flatten)]
    pub target: TargetArgs,
}
