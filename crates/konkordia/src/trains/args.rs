//! The command line of `konkordia trains`.

use clap::{Args, ValueEnum};
use konkordia_core::tile::XfelDetector;
use konkordia_fabric::trains::Policy;
use std::net::SocketAddr;
use std::path::PathBuf;

/// In which order pixels leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderChoice {
    /// Row by row, as European XFEL stores them.
    Image,
    /// As the detector sends them.
    Wire,
}

/// Which output the next train goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyChoice {
    /// Train id modulo the number of outputs.
    RoundRobin,
    /// The next output in turn that has asked for trains.
    Credits,
}

impl From<PolicyChoice> for Policy {
    fn from(choice: PolicyChoice) -> Self {
        match choice {
            PolicyChoice::RoundRobin => Self::RoundRobin,
            PolicyChoice::Credits => Self::Credits,
        }
    }
}

/// `konkordia trains`
#[derive(Clone, Debug, Args)]
pub struct TrainsArgs {
    /// Address and port of the first module; the others follow on consecutive ports
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Modules")]
    pub listen: SocketAddr,
    /// Which detector it is: lpd, dssc or agipd
    #[arg(long, value_name = "MODEL", default_value = "lpd", help_heading = "Modules", value_parser = ["lpd", "dssc", "agipd"])]
    pub model: String,
    /// Number of modules
    #[arg(long, value_name = "M", default_value_t = 16, help_heading = "Modules", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub modules: u32,
    /// Most images of a train; memory is kept for so many
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Modules", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub images_max: u32,
    /// Buffers of one train for each module
    #[arg(long, value_name = "N", default_value_t = 6, help_heading = "Modules", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub buffers: u32,
    /// Receive buffer to ask of the kernel for each module, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, help_heading = "Modules", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub receive_buffer_mib: u32,
    /// Longest time from the first module of a train to its last one, in milliseconds, by default two trains at 10 Hz;
    /// a module with missing packets is handed on when it was silent for half of it
    #[arg(long, value_name = "MS", default_value_t = 200, help_heading = "Trains", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub timeout_ms: u32,
    /// Most trains that wait for modules at the same time
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Trains", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub open_max: u32,
    /// In which order pixels leave
    #[arg(long, value_enum, default_value_t = OrderChoice::Image, help_heading = "Trains")]
    pub order: OrderChoice,
    /// End after so many trains, built or lost [default: at Ctrl-C]
    #[arg(long, value_name = "N", help_heading = "Trains", value_parser = clap::value_parser!(u64).range(1..))]
    pub trains: Option<u64>,
    /// End when no packet has come for so many seconds after the first one
    #[arg(long, value_name = "S", help_heading = "Trains")]
    pub stall_s: Option<f64>,
    /// Name of the detector in files and messages [default: FXE_DET_LPD1M-1, SCS_DET_DSSC1M-1 or SPB_DET_AGIPD1M-1]
    #[arg(long, value_name = "NAME", help_heading = "Outputs")]
    pub name: Option<String>,
    /// Write files for EXtra-data into this folder; it must exist
    #[arg(long, value_name = "DIR", help_heading = "Outputs")]
    pub files: Option<PathBuf>,
    /// Number of the run, in the names of the files
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Outputs")]
    pub run: u32,
    /// Trains of a file
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Outputs", value_parser = clap::value_parser!(u64).range(1..))]
    pub trains_per_file: u64,
    /// Answer clients of karabo-bridge that ask for trains (REQ) at this address: each gets the newest train
    #[arg(long, value_name = "tcp://HOST:PORT", help_heading = "Outputs")]
    pub bridge: Option<String>,
    /// Send to clients of karabo-bridge (PULL) at this address: each train to one of them
    #[arg(long, value_name = "tcp://HOST:PORT", help_heading = "Outputs")]
    pub bridge_push: Option<String>,
    /// Send trains on over UDP: address and port of the first module, once per output
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Outputs")]
    pub ttp: Vec<SocketAddr>,
    /// Which of these outputs the next train goes to
    #[arg(long, value_enum, default_value_t = PolicyChoice::RoundRobin, help_heading = "Outputs")]
    pub ttp_policy: PolicyChoice,
    /// Take requests of outputs for trains at this address (docs/trains.md)
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Outputs", required_if_eq("ttp_policy", "credits"))]
    pub credits: Option<SocketAddr>,
    /// Take numbers about trains as JSON at this address (ZeroMQ PULL); they go with their train
    #[arg(long, value_name = "tcp://HOST:PORT", help_heading = "Trains")]
    pub inject: Option<String>,
    /// Let programs look at each train on its way (ZeroMQ REQ, docs/trains.md): they add numbers, and may reject it
    #[arg(long, value_name = "tcp://HOST:PORT", help_heading = "Trains")]
    pub process: Option<String>,
    /// Most trains that are with programs or wait for one; further ones go on as they are
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Trains", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub process_open: u32,
    /// Longest time that a train waits for programs, in milliseconds; then it goes on as it is
    #[arg(long, value_name = "MS", default_value_t = 200, help_heading = "Trains", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub process_timeout_ms: u32,
    /// For programs: the report as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl TrainsArgs {
    /// Name of the detector in files and messages.
    pub fn detector_name(&self, detector: XfelDetector) -> &str {
        let own = match detector {
            XfelDetector::Lpd => "FXE_DET_LPD1M-1",
            XfelDetector::Dssc => "SCS_DET_DSSC1M-1",
            XfelDetector::Agipd => "SPB_DET_AGIPD1M-1",
        };
        self.name.as_deref().unwrap_or(own)
    }
}
