//! Arguments of `konkordia bench hdf5`.

use crate::bench::args::{OutputArgs, edge, thread_count};
use clap::Args;
use konkordia_core::plan::Compression;
use std::path::PathBuf;

/// `konkordia bench hdf5`
#[derive(Debug, Args)]
pub struct BenchHdf5Args {
    /// Folders for the files, each on a disk, in memory or on a network file system: the frames uncompressed are
    /// written to each of them, all others to the first [default: /dev/shm if it exists, otherwise the folder for
    /// temporary files]
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub dir: Vec<PathBuf>,
    /// Edge lengths of the square frames, in pixels
    #[arg(long, value_name = "PIXELS", num_args = 1.., default_values_t = [1024, 2048, 4096], value_parser = edge)]
    pub sizes: Vec<usize>,
    /// Bits of noise in the frames that are compressed; none = leave this table out
    #[arg(long, value_name = "BITS", num_args = 0.., default_values_t = [0, 1, 2, 4, 8, 12], value_parser = clap::value_parser!(u32).range(0..=16))]
    pub noise_bits: Vec<u32>,
    /// How these frames are compressed
    #[arg(long, value_name = "CODEC", num_args = 1.., default_values = ["none", "gzip,level=3", "lz4", "bslz4", "bszstd"], value_parser = codec)]
    pub compression: Vec<Compression>,
    /// Numbers of threads that compress: frames, and strips of one frame
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 2], value_parser = thread_count)]
    pub threads: Vec<usize>,
    /// Numbers of runs that are written at the same time, each by a thread of its own
    #[arg(long, value_name = "N", num_args = 0.., default_values_t = [1, 2, 4], value_parser = clap::value_parser!(u32).range(1..=64))]
    pub writers: Vec<u32>,
    /// Amount of data of each measurement, in MiB; 20000 = the files of 20 GB of Wintersberger 2011
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = mib)]
    pub mib: usize,
    /// Repeats of each measurement; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: usize,
    /// Measure until the data are on the disk, not only in the memory of the kernel
    #[arg(long)]
    pub sync: bool,
    /// Draw the rates by frame size and by noise into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// JSON and comparison.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl BenchHdf5Args {
    /// Bytes of each measurement.
    pub const fn bytes(&self) -> usize {
        self.mib << 20
    }

    /// Repeats, at least one.
    pub fn rounds(&self) -> usize {
        self.repeats.max(1)
    }
}

fn codec(text: &str) -> Result<Compression, String> {
    Compression::parse(text, None).map_err(|wrong| wrong.to_string())
}

fn mib(text: &str) -> Result<usize, String> {
    let mib = text.parse::<usize>().map_err(|_| "not a number")?;
    if (1..=1 << 24).contains(&mib) { Ok(mib) } else { Err(format!("1 to {}", 1 << 24)) }
}
