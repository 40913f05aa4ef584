//! Arguments of `konkordia size`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `--compression`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizeCompression {
    /// Uncompressed pixels; messages as they come
    None,
    /// Bitshuffle and LZ4
    Bslz4,
    /// Bitshuffle and Zstd
    Bszstd,
}

/// `konkordia size`
#[derive(Clone, Debug, Args)]
pub struct SizeArgs {
    /// A detector by name, see --list; all = a summary of all of them
    #[arg(long, value_name = "NAME", required_unless_present_any = ["list", "shape"])]
    pub detector: Option<String>,
    /// Show the detectors that have a name, with shape, rate and source
    #[arg(long, conflicts_with_all = ["detector", "shape", "model"])]
    pub list: bool,
    /// Images per second [default: that of the detector]
    #[arg(long, value_name = "HZ", value_parser = positive)]
    pub rate: Option<f64>,
    /// Rows and columns of an image, for a detector that sends messages and is not in the list; with --bits and --rate
    #[arg(long, value_name = "RxC", value_parser = shape, conflicts_with = "detector", requires = "bits", requires = "rate")]
    pub shape: Option<(u64, u64)>,
    /// With --shape: bits of a pixel as it is sent, without compression
    #[arg(long, value_name = "B", requires = "shape", conflicts_with = "detector", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub bits: Option<u32>,
    /// With --shape: senders, each of one piece of every image
    #[arg(long, value_name = "N", requires = "shape", conflicts_with = "detector", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub upstreams: u32,
    /// Compression of the file [default: bslz4; none for detectors that send messages]
    #[arg(long, value_enum)]
    pub compression: Option<SizeCompression>,
    /// Bits of a pixel in the file [default: as measured, where images like these were]
    #[arg(long, value_name = "B", value_parser = positive)]
    pub bits_per_pixel: Option<f64>,
    /// Figures of your machine: what `konkordia bench ... --json` printed, or files of benches/record
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub record: Vec<PathBuf>,
    /// How many times its load each resource must carry
    #[arg(long, value_name = "X", default_value_t = 1.5, value_parser = positive)]
    pub headroom: f64,
    /// How long a disk or a worker may stand still without loss
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = positive)]
    pub stall: f64,
    /// Speed of a network port
    #[arg(long, value_name = "GBIT", default_value_t = 100.0, value_parser = positive, help_heading = "The hosts")]
    pub port_gbit: f64,
    /// Processor cores of a host
    #[arg(long, value_name = "N", default_value_t = 64.0, value_parser = positive, help_heading = "The hosts")]
    pub host_cores: f64,
    /// Network ports of a host
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = positive, help_heading = "The hosts")]
    pub host_ports: f64,
    /// Memory of a host
    #[arg(long, value_name = "GIB", default_value_t = 512.0, value_parser = positive, help_heading = "The hosts")]
    pub host_memory_gib: f64,
    /// What the memory of a host moves, reading and writing together [default: not considered]
    #[arg(long, value_name = "GB/S", value_parser = positive, help_heading = "The hosts")]
    pub host_memory_gb_per_s: Option<f64>,
    /// What the disk of a host takes [default: not considered]
    #[arg(long, value_name = "GB/S", value_parser = positive, help_heading = "The hosts")]
    pub host_disk_gb_per_s: Option<f64>,
    /// Which stage runs on an FPGA, a GPU or the processor, from the bandwidths of links and memory
    #[arg(long, help_heading = "Stages", conflicts_with_all = ["list", "model"])]
    pub stages: bool,
    /// Links of the machine: power9 (OpenCAPI, NVLink), pcie4 or pcie5
    #[arg(long, value_name = "NAME", default_value = "pcie4", value_parser = ["power9", "pcie4", "pcie5"], help_heading = "Stages", requires = "stages")]
    pub platform: String,
    /// Words that the logic of an FPGA board takes: 64 bytes per clock at 250 MHz
    #[arg(long, value_name = "GB/S", default_value_t = 16.0, value_parser = positive, help_heading = "Stages", requires = "stages")]
    pub fpga_gb_per_s: f64,
    /// Network ports of an FPGA board
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = positive, help_heading = "Stages", requires = "stages")]
    pub fpga_ports: f64,
    /// Run a model of the pipeline: how full the buffers get, and what is lost
    #[arg(long, help_heading = "Model")]
    pub model: bool,
    /// What the model assumes.
    #[command(flatten)]
    pub assumptions: ModelArgs,
    /// For programs: the result as JSON on stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The tables as in docs/sizing.md
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub markdown: bool,
}

/// What the model of the pipeline assumes.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// Headrooms to run: each step has so many times the capacity that it needs
    #[arg(
        long,
        value_name = "X",
        num_args = 1..=8,
        default_values_t = [0.9, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0],
        value_parser = positive,
        help_heading = "Model",
        requires = "model"
    )]
    pub at_headroom: Vec<f64>,
    /// Time in which images are sent
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = positive, help_heading = "Model", requires = "model")]
    pub seconds: f64,
    /// Standard deviation of the time of a step for an image, as a part of its mean
    #[arg(long, value_name = "PART", default_value_t = 0.0, value_parser = part, help_heading = "Model", requires = "model")]
    pub spread: f64,
    /// How long a thread does not run when the scheduler takes its processor away
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative, help_heading = "Model", requires = "model")]
    pub pause_ms: f64,
    /// Mean time between two such pauses of a thread
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = positive, help_heading = "Model", requires = "model")]
    pub pause_every: f64,
    /// How long the disk stalls
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative, help_heading = "Model", requires = "model")]
    pub disk_stall_ms: f64,
    /// Mean time between two stalls of the disk
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = positive, help_heading = "Model", requires = "model")]
    pub disk_stall_every: f64,
    /// Seconds of images that the kernel keeps before they are on the disk
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = not_negative, help_heading = "Model", requires = "model")]
    pub kernel_cache: f64,
    /// Receive buffer of each stream, as in the configuration
    #[arg(long, value_name = "MIB", default_value_t = 256.0, value_parser = positive, help_heading = "Model", requires = "model")]
    pub receive_buffer_mib: f64,
    /// Frames in the ring [default: those of --stall]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..=4096), help_heading = "Model", requires = "model")]
    pub slots: Option<u64>,
    /// Worker threads [default: the cores of the line "work"]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Model", requires = "model")]
    pub workers: Option<u64>,
    /// Runs that share the modules; the model is of one of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256), help_heading = "Model", requires = "model")]
    pub runs: u64,
    /// Processors that the threads of the case "as measured" share with the simulated detector, as in `bench pipeline`
    /// [default: each thread has its own]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Model", requires = "model")]
    pub processors: Option<f64>,
    /// Images at random times, as with independent triggers, instead of a fixed rate
    #[arg(long, help_heading = "Model", requires = "model")]
    pub random: bool,
    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = "Model", requires = "model")]
    pub seed: u64,
    /// Draw the buffers over time, and the loss against the headroom, into this file
    #[arg(long, value_name = "FILE.png", help_heading = "Model", requires = "model")]
    pub png: Option<PathBuf>,
}

fn shape(text: &str) -> Result<(u64, u64), String> {
    let side = |text: &str| text.parse::<u64>().ok().filter(|pixels| (1..=1 << 20).contains(pixels));
    let sides = text.split_once(['x', 'X']).and_then(|(rows, columns)| side(rows).zip(side(columns)));
    sides.ok_or_else(|| "rows and columns joined by x are expected, such as 512x1024".into())
}

fn number(text: &str, from: f64, to: f64) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| (from..=to).contains(number))
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, 1e-9, 1e9).ok_or_else(|| "a number above 0 is expected".into())
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1e9).ok_or_else(|| "a number from 0 on is expected".into())
}

fn part(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0).ok_or_else(|| "a number from 0 to 1 is expected".into())
}
