//! The command lines of `konkordia import` and `konkordia export`.

use crate::choice::one_of;
use crate::repack_args::lossless;
use clap::Args;
use konkordia_core::failure::Failure;
use konkordia_exchange::export::{self, Format};
use konkordia_exchange::files::{Order, RawForm};
use konkordia_exchange::import::{self, Watch, WatchEnd};
use std::path::PathBuf;
use std::time::Duration;

/// `konkordia import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Files of one series, or folders with such files: CBF, TIFF, EDF, SPE, also packed by gzip
    #[arg(required = true, value_name = "INPUT")]
    pub input: Vec<PathBuf>,
    /// Folder and first part of the file names: OUT_master.h5, OUT_data_000001.h5 and so on
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Files are plain pixels: rows, columns and type, if need be :big (big-endian) and :skip=BYTES
    #[arg(long, value_name = "ROWSxCOLUMNS:TYPE", help_heading = "Input")]
    pub raw: Option<RawForm>,
    /// Position of an image: by the number in the name of its file, or one after the other [default: number, if each
    /// file has one image]
    #[arg(long, value_parser = one_of(ORDERS), help_heading = "Input")]
    pub order: Option<Order>,
    /// A file that cannot be read is a lost image, and not the end
    #[arg(long, help_heading = "Input")]
    pub skip_unreadable: bool,
    /// Which columns, keys of headers and constants become which fields, with units (docs/import.md)
    #[arg(long, value_name = "FILE.toml", help_heading = "Metadata")]
    pub mapping: Option<PathBuf>,
    /// Table of text with a row for each image, if the mapping names no other
    #[arg(long, value_name = "FILE.csv", requires = "mapping", help_heading = "Metadata")]
    pub table: Option<PathBuf>,
    /// Watch one folder: import what is there and what comes, until Ctrl-C or an end below
    #[arg(long, conflicts_with = "verify", help_heading = "Folder")]
    pub watch: bool,
    /// End the watch when so many images are done
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Folder")]
    pub images: Option<u64>,
    /// End the watch when no file has come for so long
    #[arg(long, value_name = "S", requires = "watch", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Folder")]
    pub idle: Option<u64>,
    /// How long an image waits for those with lower numbers; then they are lost
    #[arg(long, value_name = "S", requires = "watch", default_value_t = 10, help_heading = "Folder")]
    pub wait: u64,
    /// Compression: bslz4, bszstd, lz4, zstd, gzip or none, with options as in bszstd,level=5,block=64k
    #[arg(long, value_name = "NAME", default_value = "bslz4", help_heading = "Output")]
    pub compression: String,
    /// Compression level; higher = smaller files, slower: bszstd and zstd 1 to 22, gzip 1 to 9 [default: 1]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub compression_level: Option<u8>,
    /// Images per data file
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(help_heading = "Output")]
    pub images_per_file: u32,
    /// Replace existing files of this name
    #[arg(long, conflicts_with = "resume", help_heading = "Output")]
    pub overwrite: bool,
    /// Continue an interrupted import with the same input and options
    #[arg(long, help_heading = "Output")]
    pub resume: bool,
    /// Read every image back and compare each pixel with the original
    #[arg(long, help_heading = "Output")]
    pub verify: bool,
    /// Threads that read and compress [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Find the images, read the first one and the mapping, print what was found, and write nothing
    #[arg(long, conflicts_with = "watch", help_heading = "Report")]
    pub dry_run: bool,
    /// For programs: write the result as JSON to stdout
    #[arg(long, help_heading = "Report")]
    pub json: bool,
    /// No progress
    #[arg(short, long, help_heading = "Report")]
    pub quiet: bool,
}

const ORDERS: [(Order, &str, &str); 2] = [
    (Order::Number, "number", "by the last number in the name; missing numbers are lost images"),
    (Order::Files, "files", "one after the other, as the files are given; those of a folder by their names"),
];

impl ImportArgs {
    /// What the library is asked to do.
    ///
    /// # Errors
    /// There is no such compression.
    pub fn request(&self) -> Result<import::Request, Failure> {
        Ok(import::Request {
            input: self.input.clone(),
            output: self.output.clone(),
            raw: self.raw,
            order: self.order,
            mapping: self.mapping.clone(),
            table: self.table.clone(),
            compression: lossless(&self.compression, self.compression_level, "")?,
            images_per_file: self.images_per_file,
            workers: self.workers.map(usize::from),
            overwrite: self.overwrite,
            resume: self.resume,
            skip_unreadable: self.skip_unreadable,
        })
    }

    /// How the folder is watched.
    pub fn watched(&self) -> Watch {
        let end = WatchEnd { images: self.images, idle: self.idle.map(Duration::from_secs) };
        Watch { end, wait: Duration::from_secs(self.wait), ..Watch::default() }
    }
}

/// `konkordia export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Master, data file, or HDF5 file of another program with images
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder and first part of the names: OUT_000001.cbf and so on
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Kind of the files
    #[arg(long, value_parser = one_of(FORMATS))]
    pub format: Format,
    /// Only images with these numbers, from 0, both ends included; either end may be left out
    #[arg(long, value_name = "FROM:TO", value_parser = crate::convert::args::frame_range)]
    pub images: Option<(u64, u64)>,
    /// Of images with several channels: the one to export [default: the first]
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    /// Number in the name of the file of image 0
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub first_number: u64,
    /// All images in one TIFF file, OUT.tif, with one page for each
    #[arg(long)]
    pub one_file: bool,
    /// BigTIFF also where classic TIFF is enough
    #[arg(long)]
    pub big: bool,
    /// Go on: files that are there are compared with their images, and kept
    #[arg(long)]
    pub resume: bool,
    /// Read each file back and compare each pixel
    #[arg(long)]
    pub verify: bool,
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// For programs: write the result as JSON to stdout
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

const FORMATS: [(Format, &str, &str); 3] = [
    (Format::Cbf, "cbf", "miniCBF, byte offset, signed 32-bit; what is no measurement is -1 or -2"),
    (Format::Tiff, "tiff", "pixels as they are; header lines in the description"),
    (Format::Edf, "edf", "pixels as they are; header with the names of the ESRF"),
];

impl ExportArgs {
    /// What the library is asked to do.
    pub fn request(&self) -> export::Request {
        export::Request {
            input: self.file.clone(),
            output: self.output.clone(),
            format: self.format,
            channel: self.channel.clone(),
            images: self.images,
            first_number: self.first_number,
            one_file: self.one_file,
            big: self.big,
            resume: self.resume,
            verify: self.verify,
            workers: self.workers.map(usize::from),
        }
    }
}
