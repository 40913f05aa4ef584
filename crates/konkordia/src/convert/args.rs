//! The command line of `konkordia convert`.

use crate::input::Format;
use clap::Args;
use std::path::PathBuf;

/// `konkordia convert`
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// One acquisition: a run with dtype = "raw", the master of the slsReceiver, or data files
    #[arg(required = true, value_name = "INPUT")]
    pub input: Vec<PathBuf>,
    /// Folder and first part of the names: OUT_master.h5, OUT_data_000001.h5 and so on
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Calibration file of `konkordia pedestal`, or a folder with pedestal_g0.f32, pedestal_g1.f32, pedestal_g2.f32 and gain_adu_per_kev.f32
    #[arg(long, value_name = "FILE|DIR", help_heading = "Pixels")]
    pub calibration: Option<PathBuf>,
    /// Photon energy
    #[arg(long, value_name = "KEV", help_heading = "Pixels")]
    pub energy_kev: Option<f64>,
    /// Type of the pixels; "raw" = words unchanged, without calibration [default: int16]
    #[arg(long, value_name = "TYPE", help_heading = "Pixels")]
    pub dtype: Option<String>,
    /// Only frames with these numbers, both included; either may be left out
    #[arg(long, value_name = "FROM:TO", value_parser = frame_range, help_heading = "Input")]
    pub frames: Option<(u64, u64)>,
    /// What the input is [default: as its content says]
    #[arg(long, value_enum, help_heading = "Input")]
    pub format: Option<Format>,
    /// Modules of plain words [default: 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Input")]
    pub modules: Option<u32>,
    /// How the modules lie, for example jungfrau-4m or eiger-500k; docs/configuration.md lists them [default: as the input says]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    pub geometry: Option<String>,
    /// Detector of a SwissFEL file that holds several
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    pub detector: Option<String>,
    /// bslz4, bszstd, lz4, zstd, gzip, none and others of docs/configuration.md [default: bslz4]
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    pub compression: Option<String>,
    /// More = smaller and slower
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub compression_level: Option<u8>,
    /// Images in one data file [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub images_per_file: Option<u32>,
    /// Replace files of this name
    #[arg(long, conflicts_with = "resume", help_heading = "Output")]
    pub overwrite: bool,
    /// Go on where a conversion with the same input and options was interrupted
    #[arg(long, help_heading = "Output")]
    pub resume: bool,
    /// Read every image back and compare it with a second conversion, without vector instructions and in one thread
    #[arg(long, help_heading = "Output")]
    pub verify: bool,
    /// Configuration to start from; input, output and frames come from the command line
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Any key of the configuration, for example detector.geometry=jungfrau-4m
    #[arg(long, value_name = "TABLE.KEY=VALUE", value_parser = setting, help_heading = "Configuration")]
    pub set: Vec<Setting>,
    /// Threads that convert and compress [default: all processors]
    #[arg(long, value_name = "N", help_heading = "Configuration")]
    pub workers: Option<u32>,
    /// For programs: events as JSON, one a line, on stdout
    #[arg(long, help_heading = "Report")]
    pub json: bool,
    /// No progress
    #[arg(long, short, help_heading = "Report")]
    pub quiet: bool,
}

impl ConvertArgs {
    /// The master that the conversion writes, as OUT names it.
    pub fn master(&self) -> PathBuf {
        let name = self.output.file_name().unwrap_or_default().to_string_lossy();
        let prefix = name.strip_suffix("_master.h5").unwrap_or(&name);
        self.output.with_file_name(format!("{prefix}_master.h5"))
    }
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Table of the configuration.
    pub table: String,
    /// Key in it.
    pub key: String,
    /// Its value; what is no TOML is text.
    pub value: toml::Value,
}

fn setting(text: &str) -> Result<Setting, String> {
    let parts = text.split_once('=').and_then(|(name, value)| Some((name.trim().rsplit_once('.')?, value.trim())));
    let ((table, key), value) = parts.ok_or("TABLE.KEY=VALUE is expected, for example output.layout=links")?;
    let parsed = format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut t| t.remove("value"));
    Ok(Setting {
        table: table.to_owned(),
        key: key.to_owned(),
        value: parsed.unwrap_or_else(|| toml::Value::String(value.to_owned())),
    })
}

fn frame_range(text: &str) -> Result<(u64, u64), String> {
    let expected = "two frame numbers with a colon between are expected, for example 100:199, 100: or :199";
    let (from, to) = text.split_once(':').ok_or(expected)?;
    let number = |part: &str, default| if part.is_empty() { Ok(default) } else { part.parse().map_err(|_| expected) };
    let (from, to) = (number(from, 0)?, number(to, u64::MAX)?);
    if from > to { Err(format!("the range ends before it begins: {from} is after {to}")) } else { Ok((from, to)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_ranges_are_read() {
        let value = |text: &str| setting(text).unwrap().value;
        assert_eq!(value("detector.modules=8"), toml::Value::Integer(8));
        assert_eq!(value("output.layout=links"), toml::Value::String("links".into()));
        assert_eq!(value("output.layout = \"links\""), toml::Value::String("links".into()));
        assert_eq!(value("run.pin_workers=[1,2]"), toml::Value::Array(vec![1.into(), 2.into()]));
        assert!(setting("modules=8").is_err() && setting("detector.modules").is_err());
        assert_eq!((frame_range("3:5"), frame_range(":5"), frame_range("3:")), (Ok((3, 5)), Ok((0, 5)), Ok((3, u64::MAX))));
        assert!(frame_range("5:3").is_err() && frame_range("5").is_err() && frame_range("a:b").is_err());
    }
}
