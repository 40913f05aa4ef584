//! The command line of `konkordia writer`.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `konkordia writer`
#[derive(Debug, Args)]
pub struct WriterArgs {
    /// Address and port at which senders connect; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Folder of the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// Memory into which senders write, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub memory: u64,
    /// How long the files of a run stay open for a sender whose link has broken, in s
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub patience: u64,
    /// How often images are brought to the disk, in ms
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub sync_ms: u64,
    /// Ends after so many runs
    #[arg(long, value_name = "N")]
    pub runs: Option<u64>,
    /// Replaces older files of the same prefix
    #[arg(long)]
    pub overwrite: bool,
    /// Writes events as JSON, one per line
    #[arg(long)]
    pub json: bool,
}
