//! Arguments of the benches of fabrics.

use super::args::OutputArgs;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// How `bench rdma` brings a message to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RdmaOperation {
    /// Plain datagrams that say their place and nothing else
    Udp,
    /// RDMA over UDP, with sequence numbers
    RdmaUdp,
    /// WRITE of RoCEv2 (UC); the receiver is not told
    Write,
    /// WRITE of RoCEv2 (UC) with immediate data at the end of each message
    WriteImm,
    /// SEND of RoCEv2 (UC) into receives that are prepared
    Send,
}

impl RdmaOperation {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Udp, Self::RdmaUdp, Self::Write, Self::WriteImm, Self::Send];

    /// Name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::RdmaUdp => "rdma-udp",
            Self::Write => "write",
            Self::WriteImm => "write-imm",
            Self::Send => "send",
        }
    }

    /// Whether it is of RoCEv2.
    pub const fn is_roce(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm | Self::Send)
    }
}

/// Parts of `bench rdma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RdmaPart {
    /// What the protocols cost without sockets: packets made and taken in memory
    Memory,
    /// The iCRC beside a copy
    Icrc,
    /// Bandwidth over sockets by packet size, number of addresses and way of waiting
    Rates,
    /// Bandwidth and latency by message size, and from which size on one is faster than another
    Sizes,
    /// The stages of a message
    Ladder,
    /// Runs as they are shipped, over UDP and written by RoCEv2, with packets of one size
    Shipped,
    /// RASHPA over shared memory beside a copy
    Rashpa,
}

impl RdmaPart {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Memory, Self::Icrc, Self::Rates, Self::Sizes, Self::Ladder, Self::Shipped, Self::Rashpa];
}

/// `konkordia bench rdma`
#[derive(Debug, Args)]
pub struct BenchRdmaArgs {
    /// Parts; with --to, only rates and sizes go to the other end
    #[arg(long, value_enum, num_args = 1.., default_values_t = RdmaPart::ALL)]
    pub parts: Vec<RdmaPart>,
    /// Operations
    #[arg(long, value_enum, num_args = 1.., default_values_t = RdmaOperation::ALL)]
    pub operations: Vec<RdmaOperation>,
    /// Payload of a packet, in bytes, at most 4096; RoCEv2 takes the next larger path MTU
    #[arg(long, value_name = "BYTES", num_args = 1.., default_values_t = [598, 1024, 2048, 4096], value_parser = payload)]
    pub packets: Vec<usize>,
    /// Numbers of addresses to which messages go in turn
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 100_000], value_parser = addresses)]
    pub addresses: Vec<usize>,
    /// Sizes of a message, in bytes [default: 1, 2, 4 ... 4194304]
    #[arg(long, value_name = "BYTES", num_args = 1.., value_parser = message)]
    pub sizes: Vec<usize>,
    /// Packets of each attempt
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub count: u32,
    /// Repeats of each measurement; median, and median of the distances from it, are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Few packets, few repeats: shows that everything works, and measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Draw bandwidth, latency and the ladder of stages into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// Text that ib_write_bw, ib_write_lat, ib_send_bw, ib_send_lat or a program of OSU has printed, beside ours
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub import: Vec<PathBuf>,
    /// Where the other end listens (IPv4) [default: this process, over loopback]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: Option<SocketAddr>,
    /// Be the other end, for one after the other; packets go to any free port
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "to")]
    pub listen: Option<SocketAddr>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

fn payload(text: &str) -> Result<usize, String> {
    number(text, 1, 4096)
}

fn addresses(text: &str) -> Result<usize, String> {
    number(text, 1, 10_000_000)
}

fn message(text: &str) -> Result<usize, String> {
    number(text, 1, 1 << 26)
}

fn number(text: &str, low: usize, high: usize) -> Result<usize, String> {
    let n = text.parse::<usize>().map_err(|_| "not a number")?;
    if (low..=high).contains(&n) { Ok(n) } else { Err(format!("{low} to {high}")) }
}

/// `konkordia bench import`
#[derive(Debug, Args)]
pub struct BenchImportArgs {
    /// Text that ib_write_bw, ib_write_lat, ib_send_bw, ib_send_lat, osu_latency, osu_bw, osu_bibw or osu_mbw_mr has
    /// printed
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    pub files: Vec<PathBuf>,
    /// What `konkordia bench net --json` or `bench rdma --json` has printed, beside it
    #[arg(long, value_name = "REPORT.json")]
    pub ours: Option<PathBuf>,
    /// For programs: the tables as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
