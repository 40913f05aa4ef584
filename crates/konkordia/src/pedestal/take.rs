//! Takes the dark frames that the command line asks for, from the detector or from files.

use super::args::{PedestalArgs, is_live};
use crate::console;
use crate::run::signals;
use konkordia_acquire::control_driver::ControlDriver;
use konkordia_acquire::dark::{Listener, Progress, StageChoice, from_detector, from_files};
use konkordia_calibration::dark::Taken;
use konkordia_config::service::DetectorConfig;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_input::Options;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes the frames that the command line asks for, one gain stage after the other.
pub fn take(args: &PedestalArgs) -> Result<Vec<Taken>, Failure> {
    let stopper = signals::stopper()?;
    if is_live(&args.input) {
        let note = |line: &str| {
            if !args.quiet {
                console::to_stderr(line);
            }
        };
        let listener = Listener { ask: &console::to_stderr, note: &note, progress: progress(args) };
        let detector = load(&args.input[0])?;
        let control = ControlDriver::open(&detector.name, &detector.hooks)?;
        return from_detector(&args.dark(), (detector, 0, control), &stopper, &listener);
    }
    if args.stage == StageChoice::All {
        let why = "each frame of a file goes to the stage of its gain bits";
        let fix = "leave --stage out, or give a configuration (.toml) to take the frames from the detector";
        return Err(Failure::new(Exit::Usage, "--stage all is for a detector", why, fix));
    }
    let options = Options { format: args.format, modules: args.modules, ..Options::default() };
    Ok(vec![from_files(&args.input, &options, &args.dark(), &stopper, progress(args))?])
}

/// The configuration of the only detector in this file.
fn load(path: &Path) -> Result<DetectorConfig, Failure> {
    let mut service = konkordia_config::service::load(path)?;
    if let (Some(only), true) = (service.detectors.pop(), service.detectors.is_empty()) {
        return Ok(only);
    }
    let what = format!("{} has several detectors", path.display());
    Err(Failure::new(Exit::Configuration, what, "", "give the configuration of one of them"))
}

/// A progress line of dark frames.
fn progress(args: &PedestalArgs) -> Progress {
    let line = Mutex::new(console::Progress::new(args.quiet || args.json));
    Arc::new(move |frames, planned| {
        let of = planned.map_or(String::new(), |n| format!(" of {}", text::count(n)));
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        line.update(|| format!("{}{of} dark frames", text::count(frames)));
    })
}
