//! Arguments of the benches that reproduce tables and figures of papers.

use crate::cli::BenchKernelsArgs;
use clap::Args;
use std::path::PathBuf;

/// `konkordia bench roofline`
#[derive(Debug, Args)]
pub struct BenchRooflineArgs {
    /// Frames and time.
    #[command(flatten)]
    pub frames: BenchKernelsArgs,
    /// Draw the figure into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
}

/// `konkordia bench disk`
#[derive(Debug, Args)]
pub struct BenchDiskArgs {
    /// Folder of the files [default: /dev/shm where it is, otherwise the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Edges of the frames, pixels
    #[arg(long, value_name = "PIXELS", num_args = 1.., default_values_t = [1024, 2048, 4096], value_parser = edge)]
    pub sizes: Vec<usize>,
    /// Bits of noise in the frames that are compressed
    #[arg(long, value_name = "BITS", num_args = 1.., default_values_t = [0, 1, 2, 4, 8, 12], value_parser = clap::value_parser!(u32).range(0..=16))]
    pub noise_bits: Vec<u32>,
    /// Data of each measurement
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub mib: usize,
    /// Measurements; the middle one counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: usize,
    /// Count until the data are on the disk, not only with the kernel
    #[arg(long)]
    pub sync: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `konkordia bench stream`
#[derive(Debug, Args)]
pub struct BenchStreamArgs {
    /// Folder of the files [default: /dev/shm where it is, otherwise the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Bytes of an image
    #[arg(long, value_name = "BYTES", num_args = 1.., default_values_t = [20_000, 200_000, 2_000_000, 20_000_000], value_parser = clap::value_parser!(u64).range(2..=1 << 29))]
    pub sizes: Vec<u64>,
    /// Upstreams, each with a thread of its own
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 2, 4], value_parser = upstreams)]
    pub workers: Vec<usize>,
    /// Threads of ZeroMQ
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 2], value_parser = upstreams)]
    pub io_threads: Vec<usize>,
    /// Bytes of an image for which upstreams and threads are varied, without file
    #[arg(long, value_name = "BYTES", num_args = 0.., default_values_t = [200_000, 20_000_000], value_parser = clap::value_parser!(u64).range(2..=1 << 29))]
    pub matrix_sizes: Vec<u64>,
    /// Data of each measurement
    #[arg(long, value_name = "MIB", default_value_t = 1500)]
    pub mib: u64,
    /// Images of each measurement, at most
    #[arg(long, value_name = "N", default_value_t = 30_000)]
    pub images_max: u64,
    /// Measurements of each setting
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub repeats: usize,
    /// Draw images per second against bytes of an image into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `konkordia bench idle`
#[derive(Debug, Args)]
pub struct BenchIdleArgs {
    /// Detectors in one process
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub detectors: usize,
    /// How long to look
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    pub seconds: f64,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

fn upstreams(text: &str) -> Result<usize, String> {
    let n = text.parse::<usize>().map_err(|_| "not a number")?;
    if (1..=64).contains(&n) { Ok(n) } else { Err("1 to 64".into()) }
}

fn edge(text: &str) -> Result<usize, String> {
    let pixels = text.parse::<usize>().map_err(|_| "not a number")?;
    if (8..=16384).contains(&pixels) { Ok(pixels) } else { Err("8 to 16384 pixels".into()) }
}
