//! Takes the dark frames that the command line asks for, from the detector or from files.

use super::args::{PedestalArgs, is_live};
use crate::console;
use crate::run::signals;
use konkordia_acquire::dark::{
    Listener, Progress, StageChoice, Words, as_words, from_detector, take as take_words, whole_modules,
};
use konkordia_acquire::stopper::Stopper;
use konkordia_calibration::dark::Taken;
use konkordia_config::service::DetectorConfig;
use konkordia_config::{Config, plan};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::FirstFrame;
use konkordia_core::ports::Source;
use konkordia_core::text;
use konkordia_core::tile::DetectorKind;
use konkordia_input::source::FileSource;
use konkordia_input::{Input, Options};
use konkordia_sinks::hdf5::calibration::GainStage;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes the frames that the command line asks for, one gain stage after the other.
pub fn take(args: &PedestalArgs) -> Result<Vec<Taken>, Failure> {
    let stopper = signals::stopper()?;
    if is_live(&args.input) {
        let tell = |line: &str| {
            if !args.quiet {
                console::to_stderr(line);
            }
        };
        let listener = Listener { ask: &console::to_stderr, tell: &tell, progress: progress(args) };
        return from_detector(&args.dark(), load(&args.input[0])?, &stopper, &listener);
    }
    if args.stage == StageChoice::All {
        let why = "each frame of a file goes to the stage of its gain bits";
        let fix = "leave --stage out, or give a configuration (.toml) to take the frames from the detector";
        return Err(Failure::new(Exit::Usage, "--stage all is for a detector", why, fix));
    }
    let wanted = args.stage.wanted().first().copied().flatten();
    Ok(vec![files(args, wanted, &stopper)?])
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

fn files(args: &PedestalArgs, wanted: Option<GainStage>, stopper: &Stopper) -> Result<Taken, Failure> {
    let options = Options { format: args.format, modules: args.modules, ..Options::default() };
    let input = Input::open(&args.input, &options)?;
    let info = input.info();
    if info.format.kind != DetectorKind::Jungfrau {
        let why = format!("the files are of an {}, which counts photons itself", info.format.kind.name());
        return Err(Failure::new(Exit::Configuration, "only a JUNGFRAU has pedestals", why, "give dark frames of a JUNGFRAU"));
    }
    whole_modules(&info.format)?;
    let text = format!(
        "[detector]\ntype = \"jungfrau\"\nmodules = {}\ninterfaces = {}\n[processing]\ndtype = \"raw\"\n[output]\ndirectory = \".\"\nprefix = \"dark\"\n",
        info.modules, info.interfaces
    );
    let config = Config::parse(&text, Path::new("dark.toml")).map_err(|d| {
        Failure::new(Exit::Configuration, "these files cannot be read as one detector", d.to_string(), "check the files")
    })?;
    let mut config = as_words(config)?;
    let all = info.last_frame - info.first_frame + 1;
    config.images = Some(args.frames.map_or(all, |n| n.saturating_add(args.skip).min(all)));
    config.first_frame = FirstFrame::Number(info.first_frame);
    let mut plan = plan::plan(&config);
    plan.lossless_source = true;
    let sources: Vec<Box<dyn Source>> =
        (0..input.tiles()).map(|tile| Box::new(FileSource::new(input.open_tile(tile), info.format)) as Box<dyn Source>).collect();
    let words = Words { wanted, skip: args.skip, progress: progress(args) };
    let mut done = take_words(&config, plan, sources, words, stopper, || ())?;
    if !info.has_module_ids() {
        done.collector.module_ids.fill(None);
    }
    let names: Vec<String> = info.files.iter().filter_map(|f| Some(f.file_name()?.to_string_lossy().into_owned())).collect();
    let source = format!("{}: {}", info.kind, names.join(" "));
    done.notes.splice(0..0, info.notes.iter().cloned());
    if info.incomplete && done.exit == Exit::Complete {
        done.exit = Exit::Incomplete;
    }
    Ok(Taken { taken: info.taken().cloned().unwrap_or_default(), source, ..done })
}
