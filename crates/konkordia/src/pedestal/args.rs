//! The command line of `konkordia pedestal`.

use crate::choice::one_of;
use clap::Args;
use clap::builder::TypedValueParser;
use konkordia_acquire::dark::{DarkOptions, StageChoice};
use konkordia_calibration::dark::MakeOptions;
use konkordia_calibration::reasons::Thresholds;
use konkordia_input::Format;
use std::path::PathBuf;

/// `konkordia pedestal`
#[derive(Debug, Args)]
pub struct PedestalArgs {
    /// Configuration (.toml) to take dark frames from the detector, or files with dark frames of one acquisition; leave
    /// it out to add only gains (--gain)
    #[arg(value_name = "CONFIG.toml|FILE")]
    pub input: Vec<PathBuf>,
    /// A new calibration file
    #[arg(short, long, value_name = "FILE", help_heading = "Output", required_unless_present = "into")]
    pub output: Option<PathBuf>,
    /// An existing calibration file; new pedestals are added, or replace those of the same stage and cell
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with = "output")]
    pub into: Option<PathBuf>,
    /// Replace the file of --output
    #[arg(long, help_heading = "Output")]
    pub overwrite: bool,
    /// Gain stage of the frames; frames of another stage are refused
    #[arg(long, value_parser = stages(), default_value = "auto", help_heading = "Frames")]
    pub stage: StageChoice,
    /// Number of frames per stage, all storage cells together [default: 1000 from a detector, all frames of files]
    #[arg(long, value_name = "N", help_heading = "Frames", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub frames: Option<u64>,
    /// Number of frames at the beginning that are not used
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Frames")]
    pub skip: u64,
    /// Format of the files [default: recognised from their content]
    #[arg(long, value_parser = one_of(Format::ALL), help_heading = "Frames")]
    pub format: Option<Format>,
    /// Number of modules in files of plain 16-bit words [default: 1]
    #[arg(long, value_name = "M", help_heading = "Frames", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub modules: Option<u32>,
    /// Use frames even if they do not look dark; this is recorded in the file
    #[arg(long, help_heading = "Frames")]
    pub force: bool,
    /// Gains to store with the pedestals: PSI `.bin` (one per module), HDF5 with `/gains`, or float32 planes G0, G1, G2
    /// (and HG0)
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Calibration")]
    pub gain: Vec<PathBuf>,
    /// Serial number of the detector [default: detector.serial_number of the configuration]
    #[arg(long, value_name = "TEXT", help_heading = "Calibration")]
    pub serial: Option<String>,
    /// A pixel is noisy if its RMS is above K times the median of its module
    #[arg(long, value_name = "K", default_value_t = Thresholds::default().noisy_k, help_heading = "Mask", value_parser = positive)]
    pub noisy_k: f32,
    /// A pixel is stuck if its RMS is below this fraction of the median of its module
    #[arg(long, value_name = "F", default_value_t = Thresholds::default().stuck_fraction, help_heading = "Mask", value_parser = fraction)]
    pub stuck_fraction: f32,
    /// A pixel is unstable if more than this fraction of its words is far from its pedestal
    #[arg(long, value_name = "F", default_value_t = Thresholds::default().outside_max, help_heading = "Mask", value_parser = fraction)]
    pub outside_max: f32,
    /// A pixel is in the wrong stage if more than this fraction of its words belongs to another stage
    #[arg(long, value_name = "F", default_value_t = Thresholds::default().wrong_stage_max, help_heading = "Mask", value_parser = fraction)]
    pub wrong_stage_max: f32,
    /// For programs: the table as JSON on stdout
    #[arg(long, help_heading = "Report")]
    pub json: bool,
    /// No progress line
    #[arg(long, short, help_heading = "Report")]
    pub quiet: bool,
}

impl PedestalArgs {
    /// Which frames are taken from a detector.
    pub fn dark(&self) -> DarkOptions {
        DarkOptions { stage: self.stage, frames: self.frames, skip: self.skip }
    }

    /// What becomes of the frames.
    pub fn options(&self) -> MakeOptions {
        let thresholds = Thresholds {
            noisy_k: self.noisy_k,
            stuck_fraction: self.stuck_fraction,
            outside_max: self.outside_max,
            wrong_stage_max: self.wrong_stage_max,
            ..Thresholds::default()
        };
        MakeOptions { thresholds, force: self.force, serial: self.serial.clone(), gain: self.gain.clone() }
    }
}

/// True if the input is a configuration.
pub fn is_live(input: &[PathBuf]) -> bool {
    matches!(input, [path] if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")))
}

/// The names of the stages, with their help.
fn stages() -> impl TypedValueParser<Value = StageChoice> {
    let help = |stage| match stage {
        StageChoice::Auto => "As the headers and the gain bits of each frame say",
        StageChoice::G0 => "Dark frames of the normal mode",
        StageChoice::G1 => "Gain forced to stage 1",
        StageChoice::G2 => "Gain forced to stage 2",
        StageChoice::Hg0 => "Dark frames of the high gain mode",
        StageChoice::All => "From a detector: G0, then G1, then G2, one after the other",
    };
    one_of(StageChoice::ALL.map(|stage| (stage, stage.name(), help(stage))))
}

fn positive(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|k: &f32| *k > 1.0 && k.is_finite()).ok_or("a number above 1 is expected".into())
}

fn fraction(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|f: &f32| (0.0..=1.0).contains(f)).ok_or("a number from 0 to 1 is expected".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// Wraps the arguments as the command line does.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: PedestalArgs,
    }

    #[test]
    fn thresholds_come_from_the_command_line() {
        let parse = |words: &[&str]| Line::try_parse_from([&["pedestal", "a.u16"][..], words].concat()).map(|line| line.args);
        let args = parse(&["-o", "cal.h5", "--noisy-k", "5", "--outside-max", "0.1"]).unwrap();
        assert_eq!((args.options().thresholds.noisy_k, args.options().thresholds.outside_max), (5.0, 0.1));
        assert!(
            parse(&[]).is_err()
                && parse(&["-o", "a", "--into", "b"]).is_err()
                && parse(&["-o", "a", "--noisy-k", "0.5"]).is_err()
        );
    }
}
