//! The command line of `konkordia rashpa`.

use crate::help::TEMPLATE;
use crate::simulate::fault_args::probability;
use clap::{Args, Subcommand};
use konkordia_core::failure::EXIT_CODES;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// `konkordia rashpa`
#[derive(Debug, Subcommand)]
pub enum RashpaCommand {
    /// Sets up a system in the order of RASHPA, starts it, and stops it when all slices are sent
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia rashpa manager system.toml
  konkordia rashpa manager system.toml --seconds 60 --json
  konkordia rashpa manager system.toml --timeout 30")]
    Manager(ManagerArgs),
    /// A detector module with images of known pixels, that writes into the memory of receivers
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia rashpa module --id 0 --listen 127.0.0.1:7100 --once
  konkordia rashpa module --id 0 --listen 10.0.0.1:7100 --link 10.0.1.1 --link 10.0.2.1 --width 1024 --height 512 --rate 100
  konkordia rashpa module --id 0 --link 127.0.0.1 --link 127.0.0.2 --loss 0.002 --pull 1@100 --plug 1@200 --once --json")]
    Module(ModuleArgs),
    /// A data receiver: checks its images, or writes them into files
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia rashpa receiver --id 0 --listen 127.0.0.1:7200 --once
  konkordia rashpa receiver --id 0 --link 127.0.0.1 --link 127.0.0.2 --check 1 --once --json
  konkordia rashpa receiver --id 0 --listen 10.0.0.9:7200 --link 10.0.1.9 --memory-mib 4096 --output images")]
    Receiver(ReceiverArgs),
    /// Asks modules and receivers how they are
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia rashpa status 127.0.0.1:7100
  konkordia rashpa status 127.0.0.1:7100 127.0.0.1:7200
  konkordia rashpa status 127.0.0.1:7200 --json")]
    Status(StatusArgs),
}

/// `konkordia rashpa manager`
#[derive(Debug, Args)]
pub struct ManagerArgs {
    /// The system: modules, receivers and transfers (docs/rashpa.md)
    #[arg(value_name = "SYSTEM.toml")]
    pub system: PathBuf,
    /// Longest time until a member can be reached, and until it answers
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// Stop after so many seconds [default: when all slices are sent, or at Ctrl-C]
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
    /// For programs: the account as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// A link at a slice: `LINK@SLICE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAt {
    /// The link.
    pub link: u8,
    /// The slice.
    pub slice: u64,
}

fn link_at(text: &str) -> Result<LinkAt, String> {
    let parts = text.split_once('@').and_then(|(link, slice)| Some((link.parse().ok()?, slice.parse().ok()?)));
    parts.map(|(link, slice)| LinkAt { link, slice }).ok_or_else(|| "LINK@SLICE is expected, for example 1@100".into())
}

/// `konkordia rashpa module`
#[derive(Debug, Args)]
pub struct ModuleArgs {
    /// Number of the module
    #[arg(long, value_name = "N")]
    pub id: u16,
    /// Address at which it takes telegrams; port 0 = any free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Address of a link from which it sends, once for each link [default: 127.0.0.1]; receivers of this host may share
    /// their memory instead (link = "shm" in the system)
    #[arg(long, value_name = "ADDRESS")]
    pub link: Vec<IpAddr>,
    /// Bytes of a packet on the links at most
    #[arg(long, value_name = "BYTES", default_value_t = 9000)]
    pub mtu: u32,
    /// Columns
    #[arg(long, value_name = "PIXELS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 14))]
    pub width: u32,
    /// Rows
    #[arg(long, value_name = "PIXELS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 14))]
    pub height: u32,
    /// Bytes of a pixel
    #[arg(long, value_name = "BYTES", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub pixel_bytes: u32,
    /// Slices per second
    #[arg(long, value_name = "HZ", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Packets per second at most, over all links [default: as fast as they can be sent]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..))]
    pub packet_rate: Option<u32>,
    /// End after the first run
    #[arg(long)]
    pub once: bool,
    /// Probability that a packet is lost
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub loss: f64,
    /// Probability that a packet is sent twice
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub duplicate: f64,
    /// Probability that a packet is delayed by up to 16 others
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub reorder: f64,
    /// Pull a link in the middle of a slice; the module notices it at the next slice
    #[arg(long, value_name = "LINK@SLICE", help_heading = "Faults", value_parser = link_at)]
    pub pull: Vec<LinkAt>,
    /// Plug it in again at a slice
    #[arg(long, value_name = "LINK@SLICE", help_heading = "Faults", value_parser = link_at)]
    pub plug: Vec<LinkAt>,
    /// Seed of the pixels and of the faults
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// For programs: the account of each run as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia rashpa receiver`
#[derive(Debug, Args)]
pub struct ReceiverArgs {
    /// Number of the receiver
    #[arg(long, value_name = "N")]
    pub id: u16,
    /// Address at which it takes telegrams; port 0 = any free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Address of a link at which packets arrive, once for each link [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub link: Vec<IpAddr>,
    /// Bytes of a packet on the links at most
    #[arg(long, value_name = "BYTES", default_value_t = 9000)]
    pub mtu: u32,
    /// Memory for slots and events
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub memory_mib: u32,
    /// Compare all pixels with those that modules of this seed send
    #[arg(long, value_name = "SEED")]
    pub check: Option<u64>,
    /// Write each image as transfer-TRANSFER-SLICE.npy into this folder; it is made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// What a module sent before it was silent for so long is lost if it did not come
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub silence: f64,
    /// Receive buffer to ask of the kernel for each link
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub receive_buffer_mib: u32,
    /// End after the first run
    #[arg(long)]
    pub once: bool,
    /// For programs: the account of each run as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia rashpa status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where they take telegrams
    #[arg(value_name = "ADDRESS:PORT", required = true)]
    pub members: Vec<String>,
    /// Longest time until one answers
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// For programs: the answers as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_at_a_slice() {
        assert_eq!(link_at("1@100"), Ok(LinkAt { link: 1, slice: 100 }));
        assert!(["1", "1@", "@2", "a@2", "256@2"].iter().all(|text| link_at(text).is_err()));
    }
}
