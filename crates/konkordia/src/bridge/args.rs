//! The command line of `konkordia bridge`.

use crate::help::TEMPLATE;
use clap::{Args, Subcommand, ValueEnum};
use konkordia_core::failure::EXIT_CODES;
use std::net::IpAddr;
use std::path::PathBuf;

/// `konkordia bridge`
#[derive(Debug, Subcommand)]
pub enum BridgeCommand {
    /// Checks programs: every key in its header, every address in its slot, every byte written once
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bridge check eiger-16bit
  konkordia bridge check mine.toml
  konkordia bridge check jungfrau-1 jungfrau-2 mine.toml --json")]
    Check(CheckArgs),
    /// Shows the address table of a program, its size, and what it writes
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bridge show eiger-16bit
  konkordia bridge show mine.toml --tile 3 --all
  konkordia bridge show jungfrau-2 --toml > mine.toml")]
    Show(ShowArgs),
    /// Makes the program of the detector of a configuration
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bridge make run.toml
  konkordia bridge make run.toml --slots 256 --window 16 > mine.toml
  konkordia bridge make run.toml | konkordia bridge check /dev/stdin")]
    Make(MakeArgs),
    /// Receives packets and places them into the slots of a file by a program (in software, on one thread)
    #[command(help_template = TEMPLATE, after_help = EXIT_CODES, before_help = "Examples:
  konkordia bridge run jungfrau-1 --store /dev/shm/frames --frames 100
  konkordia bridge run eiger-16bit --store frames.bin --missing pad --interrupt 8
  konkordia bridge run jungfrau-1 --store frames.bin --receive xdp --address 10.1.2.3")]
    Run(RunArgs),
}

/// `konkordia bridge check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Programs: files, or names of those that come with Konkordia (jungfrau-1, jungfrau-2, eiger-4bit, eiger-8bit,
    /// eiger-16bit, eiger-32bit)
    #[arg(value_name = "PROGRAM", required = true)]
    pub programs: Vec<String>,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia bridge show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The program: a file, or the name of one that comes with Konkordia
    #[arg(value_name = "PROGRAM")]
    pub program: String,
    /// Only this tile
    #[arg(long, value_name = "N")]
    pub tile: Option<usize>,
    /// All packets, instead of the first two and the last one of each tile
    #[arg(long)]
    pub all: bool,
    /// The program itself, as text
    #[arg(long, conflicts_with_all = ["tile", "all", "json"])]
    pub toml: bool,
    /// Write the instructions for XDP into this file, 8 bytes each, for frames of Ethernet and IPv4 without tags and
    /// options
    #[arg(long, value_name = "FILE")]
    pub ebpf: Option<PathBuf>,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia bridge make`
#[derive(Debug, Args)]
pub struct MakeArgs {
    /// The configuration of a JUNGFRAU or EIGER detector
    #[arg(value_name = "RUN.toml")]
    pub config: PathBuf,
    /// Frames that the store has room for, a power of two
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub slots: u32,
    /// Frames that may be incomplete at a time
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub window: u32,
}

/// `--missing`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MissingArg {
    /// Frames with missing packets are thrown away
    Discard,
    /// They are kept, and the places of missing packets have what was there before
    Keep,
    /// They are kept, and missing pixels get the value "missing" of their type
    Pad,
}

/// `--receive`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReceiveArg {
    /// Ordinary sockets; this program looks up the address of each packet
    Socket,
    /// AF_XDP; the kernel looks up the addresses, before its network stack (docs/bridge.md, In the kernel)
    Xdp,
}

/// `konkordia bridge run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The program: a file, or the name of one that comes with Konkordia
    #[arg(value_name = "PROGRAM")]
    pub program: String,
    /// The file with the slots; masks of packets go into the file of this name with .masks behind it. Both are
    /// overwritten
    #[arg(long, value_name = "FILE")]
    pub store: PathBuf,
    /// Address at which packets arrive
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// How packets are received
    #[arg(long, value_enum, default_value_t = ReceiveArg::Socket)]
    pub receive: ReceiveArg,
    /// End when so many frames are finished [default: at Ctrl-C]
    #[arg(long, value_name = "N")]
    pub frames: Option<u64>,
    /// End when nothing has come for so long after the first packet
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub silence: f64,
    /// Frames with missing packets
    #[arg(long, value_enum, default_value_t = MissingArg::Keep)]
    pub missing: MissingArg,
    /// Finished frames are written after so many of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub interrupt: u32,
    /// Number of the first frame [default: that of the first packet]
    #[arg(long, value_name = "N")]
    pub first_frame: Option<u64>,
    /// Receive buffer to ask of the kernel, per port; with xdp also for each queue of the interface, and locked
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub receive_buffer_mib: usize,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
