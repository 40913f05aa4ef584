//! Options of a simulated detector that writes its frames by RoCEv2.

use clap::Args;

/// The memory that a simulated detector writes to.
#[derive(Clone, Debug, Args)]
pub struct RoceArgs {
    /// Write the frames by RoCEv2 into the pages of a receiver whose source has kind = "roce", all modules to one port
    #[arg(long, help_heading = "RoCEv2")]
    pub roce: bool,
    /// Number of the queue pair of the first stream
    #[arg(long, value_name = "N", default_value_t = 256, requires = "roce", help_heading = "RoCEv2", value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    pub queue_pair: u32,
    /// Key of the memory
    #[arg(long, value_name = "KEY", default_value_t = 1, requires = "roce", help_heading = "RoCEv2")]
    pub memory_key: u32,
    /// Address of page 0
    #[arg(long, value_name = "ADDRESS", default_value_t = 0, requires = "roce", help_heading = "RoCEv2")]
    pub memory_address: u64,
    /// Pages that the frames take in turn
    #[arg(long, value_name = "N", default_value_t = 256, requires = "roce", help_heading = "RoCEv2", value_parser = clap::value_parser!(u16).range(2..=4096))]
    pub pages: u16,
    /// Payload bytes of a packet: 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 4096, requires = "roce", help_heading = "RoCEv2")]
    pub path_mtu: u32,
    /// Sequence number of the first packet
    #[arg(long, value_name = "PSN", default_value_t = 0, requires = "roce", help_heading = "RoCEv2", value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    pub first_psn: u32,
}
