//! The command line of `konkordia convert`.

use crate::choice::one_of;
use clap::Args;
use konkordia_acquire::convert::{Request, Setting};
use konkordia_input::Format;
use std::path::PathBuf;

/// `konkordia convert`
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Files of one acquisition: a run of Konkordia with dtype = "raw", the master of the slsReceiver, or data files
    #[arg(required = true, value_name = "INPUT")]
    pub input: Vec<PathBuf>,
    /// Folder and first part of the file names: OUT_master.h5, OUT_data_000001.h5 and so on
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Calibration file of `konkordia pedestal`, or a folder with pedestal_g0.f32, pedestal_g1.f32, pedestal_g2.f32 and
    /// gain_adu_per_kev.f32
    #[arg(long, value_name = "FILE|DIR", help_heading = "Pixels")]
    pub calibration: Option<PathBuf>,
    /// Photon energy in keV
    #[arg(long, value_name = "KEV", help_heading = "Pixels")]
    pub energy_kev: Option<f64>,
    /// Pixel type; "raw" = detector words unchanged, without calibration [default: int16; EIGER: uint16 or uint32]
    #[arg(long, value_name = "TYPE", help_heading = "Pixels")]
    pub dtype: Option<String>,
    /// Convert only frames with these numbers, both ends included; either end may be left out
    #[arg(long, value_name = "FROM:TO", value_parser = frame_range, help_heading = "Input")]
    pub frames: Option<(u64, u64)>,
    /// Format of the input [default: detected from its content]
    #[arg(long, value_parser = one_of(Format::ALL), help_heading = "Input")]
    pub format: Option<Format>,
    /// Number of modules, for files of plain words without headers [default: 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Input")]
    pub modules: Option<u32>,
    /// Arrangement of the modules, for example jungfrau-4m or eiger-500k; docs/configuration.md lists all [default: as
    /// the input says]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    pub geometry: Option<String>,
    /// Name of the detector to convert, if a SwissFEL file holds several
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    pub detector: Option<String>,
    /// Compression: bslz4, bszstd, lz4, zstd, gzip or none, with options as in bszstd,level=5,block=64k [default:
    /// bslz4]
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    pub compression: Option<String>,
    /// Compression level; higher = smaller files, slower
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub compression_level: Option<u8>,
    /// Images per data file [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub images_per_file: Option<u32>,
    /// Replace existing files of this name
    #[arg(long, conflicts_with = "resume", help_heading = "Output")]
    pub overwrite: bool,
    /// Continue an interrupted conversion with the same input and options
    #[arg(long, help_heading = "Output")]
    pub resume: bool,
    /// Write only the data files with these numbers, and no master, for a conversion that several processes share; when
    /// all are there, the same command with --resume instead makes the master
    #[arg(long, value_name = "FROM:TO", value_parser = file_range, conflicts_with_all = ["resume", "overwrite", "verify"])]
    #[arg(help_heading = "Output")]
    pub data_files: Option<(u64, u64)>,
    /// Read every image back and compare it with a second conversion (one worker, no vector instructions)
    #[arg(long, help_heading = "Output")]
    pub verify: bool,
    /// Configuration to start from; input, output and frames come from the command line
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Set any key of the configuration, for example detector.geometry=jungfrau-4m
    #[arg(long, value_name = "TABLE.KEY=VALUE", value_parser = clap::value_parser!(Setting), help_heading = "Configuration")]
    pub set: Vec<Setting>,
    /// Threads that convert and compress [default: as configured, otherwise one per processor]
    #[arg(long, value_name = "N", help_heading = "Configuration")]
    pub workers: Option<u32>,
    /// Read the headers, check the options, print the plan, and write nothing
    #[arg(long, help_heading = "Report")]
    pub dry_run: bool,
    /// For programs: write events as JSON to stdout, one per line
    #[arg(long, help_heading = "Report")]
    pub json: bool,
    /// No progress
    #[arg(long, short, help_heading = "Report")]
    pub quiet: bool,
}

impl ConvertArgs {
    /// What the library is asked to do.
    pub fn request(&self) -> Request {
        Request {
            input: self.input.clone(),
            format: self.format,
            modules: self.modules,
            detector: self.detector.clone(),
            frames: self.frames,
            output: self.output.clone(),
            overwrite: self.overwrite,
            resume: self.resume,
            data_files: self.data_files,
            compression: self.compression.clone(),
            compression_level: self.compression_level,
            images_per_file: self.images_per_file,
            calibration: self.calibration.clone(),
            energy_kev: self.energy_kev,
            dtype: self.dtype.clone(),
            geometry: self.geometry.clone(),
            config: self.config.clone(),
            set: self.set.clone(),
            workers: self.workers,
        }
    }
}

/// Two numbers with a colon between; the first may be left out, and the last.
///
/// # Errors
/// What is expected.
pub fn frame_range(text: &str) -> Result<(u64, u64), String> {
    let expected = "two frame numbers with a colon between are expected, for example 100:199, 100: or :199";
    let (from, to) = text.split_once(':').ok_or(expected)?;
    let number = |part: &str, default| if part.is_empty() { Ok(default) } else { part.parse().map_err(|_| expected) };
    let (from, to) = (number(from, 0)?, number(to, u64::MAX)?);
    if from > to { Err(format!("the range ends before it begins: {from} is after {to}")) } else { Ok((from, to)) }
}

/// Numbers of data files, from 1.
fn file_range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = frame_range(text).map_err(|why| why.replace("frame numbers", "numbers of data files"))?;
    if to == 0 { Err("data files are numbered from 1".into()) } else { Ok((from.max(1), to)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!((frame_range("3:5"), frame_range(":5"), frame_range("3:")), (Ok((3, 5)), Ok((0, 5)), Ok((3, u64::MAX))));
        assert_eq!((file_range(":2"), file_range("2:")), (Ok((1, 2)), Ok((2, u64::MAX))));
        assert!(file_range("0:0").unwrap_err().contains("from 1") && file_range("a").unwrap_err().contains("data files"));
        assert!(frame_range("5:3").is_err() && frame_range("5").is_err() && frame_range("a:b").is_err());
    }
}
