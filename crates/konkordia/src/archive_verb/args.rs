//! The command line of `konkordia archive`.

use clap::Args;
use std::path::PathBuf;

/// `konkordia archive`
#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// The folder to archive; with --check or --restore the bag
    #[arg(value_name = "FOLDER")]
    pub from: PathBuf,
    /// The bag to make (a new folder); with --restore the folder for the files
    #[arg(short, long, value_name = "OUT", required_unless_present = "check", conflicts_with = "check")]
    pub output: Option<PathBuf>,
    /// Check a bag: name each file that is missing or changed, down to the image
    #[arg(long, conflicts_with = "restore")]
    pub check: bool,
    /// Bring the files of a bag back, each compared with its sum and read again
    #[arg(long)]
    pub restore: bool,
    /// Compression of images: bszstd, bslz4, lz4, zstd, gzip or none, with options as in bszstd,level=5,block=64k
    #[arg(long, value_name = "NAME", default_value = "bszstd")]
    pub compression: String,
    /// Compression level; higher = smaller files, slower: bszstd and zstd 1 to 22, gzip 1 to 9 [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "cpu_s_per_gb")]
    pub level: Option<u8>,
    /// Choose the highest level of bszstd that takes at most so many seconds of one processor for 10^9 bytes of
    /// pixels, measured here on images of the first run
    #[arg(long, value_name = "S")]
    pub cpu_s_per_gb: Option<f64>,
    /// Date of the bag, YYYY-MM-DD [default: that of the newest file]
    #[arg(long, value_name = "DATE")]
    pub date: Option<String>,
    /// Licence of the data, by its SPDX name, for example CC-BY-4.0: in the bag and in each file
    #[arg(long, value_name = "NAME")]
    pub license: Option<String>,
    /// Until when the data are to be kept, YYYY-MM-DD: in the bag and in each file
    #[arg(long, value_name = "DATE")]
    pub keep_until: Option<String>,
    /// A further field of bag-info.txt, for example "Source-Organization: MAX IV"; may be given several times
    #[arg(long, value_name = "LABEL: VALUE")]
    pub info: Vec<String>,
    /// Threads that compress [default: all processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// No progress line
    #[arg(short, long)]
    pub quiet: bool,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
