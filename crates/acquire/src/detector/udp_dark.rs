//! Pedestals of a detector that sends packets: a run in a thread of its own, which makes a calibration file instead of
//! images.

use super::base::Base;
use super::status::{Live, Look, StatusMessage};
use crate::control_driver::ControlDriver;
use crate::dark::{DarkOptions, Listener, StageChoice, frames_of_stage, from_detector};
use crate::handle::{DarkFrames, PedestalRequest, Severity};
use crate::hooks::About;
use crate::paths::Place;
use crate::stopper::Stopper;
use konkordia_calibration::dark::store::Target;
use konkordia_calibration::dark::{Made, MakeOptions, make};
use konkordia_config::Config;
use konkordia_config::model::CalibrationKind;
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::state::{Event, State};
use konkordia_core::text;
use konkordia_engine::contain::contain;
use konkordia_sinks::hdf5::calibration::GainStage;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;

/// Most frames of a stage, as on the command line.
const FRAMES_MAX: u64 = 1_000_000;

/// The outcome; `None` = it was stopped, and nothing was written.
pub type DarkEnd = Result<Option<DarkFile>, Failure>;

/// The calibration file, for people and programs.
pub struct DarkFile {
    path: PathBuf,
    /// Modules that are worth a look.
    remarks: Vec<String>,
    /// Not all frames came.
    is_incomplete: bool,
    table: Value,
}

/// Dark frames that are being taken.
pub struct Dark {
    run: u64,
    stopper: Stopper,
    options: DarkOptions,
    frames: u64,
}

/// The progress, for the status.
struct Taking {
    stopper: Stopper,
    frames: u64,
}

impl Live for Taking {
    fn look(&self) -> Look {
        Look { expected: Some(self.frames), committed: self.stopper.images(), ..Look::default() }
    }
}

impl Dark {
    /// Begins the run; `report` is called at its end.
    ///
    /// # Errors
    /// The request cannot be carried out.
    pub fn begin(
        base: &mut Base,
        request: &PedestalRequest,
        report: impl FnOnce(u64, DarkEnd) + Send + 'static,
    ) -> Result<Self, Failure> {
        let (options, file) = arguments(base, request)?;
        let detector = base.config.as_ref().clone();
        let (run, stopper) = (base.runs + 1, Stopper::default());
        let frames = frames_of_stage(&options).saturating_mul(options.stage.wanted().len() as u64);
        let taking = Arc::new(Taking { stopper: stopper.clone(), frames });
        let (of_run, force) = (stopper.clone(), request.force);
        let control = base.driven.as_ref().map(|driven| Arc::clone(&driven.control));
        let work = move || {
            let detector = (detector, run, control);
            let taken = contain(|| take(&options, detector, &file, force, &of_run)).unwrap_or_else(|panic| Err((&panic).into()));
            let dark_file = |made: Made| DarkFile {
                path: made.path().to_owned(),
                remarks: made.remarks(),
                is_incomplete: made.exit != Exit::Complete,
                table: made.to_json(),
            };
            report(run, taken.map(|made| made.map(dark_file)));
        };
        let spawned = Builder::new().name(format!("dark-{}", base.config.name)).spawn(work);
        spawned.map_err(|e| Failure::new(Exit::Io, "cannot start a thread for the run", reason(&e), "end other programs"))?;
        base.runs = run;
        base.machine.shared.begin(taking);
        let dark_frames = Some(dark_frames(&options, &stopper));
        base.machine
            .publish(|status| (status.run, status.file, status.ended, status.dark_frames) = (run, None, None, dark_frames));
        let status_message = StatusMessage::info(format!("run {run} waits for {} dark frames", text::count(frames)));
        base.machine.apply(Event::Arm, Some(status_message));
        Ok(Self { run, stopper, options, frames })
    }

    /// The number of the run.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Ends the run; nothing is written.
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Publishes the progress.
    pub fn tick(&self, base: &mut Base) {
        let frames = self.stopper.images();
        if frames == 0 || self.stopper.is_stopped() {
            return;
        }
        let status_message =
            StatusMessage::info(format!("run {}: {} of {} dark frames", self.run, text::count(frames), text::count(self.frames)));
        let dark_frames = Some(dark_frames(&self.options, &self.stopper));
        base.machine.publish(|status| status.dark_frames = dark_frames);
        match base.machine.state() {
            State::Armed => {
                base.machine.apply(Event::Data, Some(status_message));
            }
            _ => base.machine.set_message(status_message),
        }
    }

    /// Publishes the outcome.
    pub fn end(self, base: &mut Base, end: DarkEnd) {
        let (run, machine) = (self.run, &mut base.machine);
        machine.shared.end(Look { expected: Some(self.frames), committed: self.stopper.images(), ..Look::default() });
        let (ended, event, status_message, data) = match end {
            Ok(Some(file)) => {
                let ended = if file.is_incomplete { "incomplete" } else { "complete" };
                let (event, status_message) = (Event::Closed, file.set_message(run));
                (ended, event, status_message, file.table)
            }
            Ok(None) => {
                let status_message =
                    StatusMessage::info(format!("run {run}: taking the pedestals was stopped; no calibration file was written"));
                ("stopped", Event::Closed, status_message, Value::Null)
            }
            Err(failure) => {
                let data = json!({ "why": failure.why, "fix": failure.fix });
                ("failed", Event::Fault, StatusMessage::failure(&failure), data)
            }
        };
        machine.publish(|status| (status.ended, status.dark_frames) = (Some(ended.into()), None));
        machine.report(
            "pedestal",
            status_message.severity,
            status_message.message.clone(),
            json!({ "run": run, "ended": ended, "pedestal": data }),
        );
        machine.apply(Event::EndOfData, None);
        machine.apply(event, Some(status_message));
        if ended == "stopped" {
            base.run_on_stop(About { detector: base.config.name.clone(), run, ..About::default() });
        }
    }
}

/// Frames of each stage so far.
fn dark_frames(options: &DarkOptions, stopper: &Stopper) -> Vec<DarkFrames> {
    let came = stopper.images_of_runs();
    let stages = options.stage.wanted().into_iter().enumerate();
    let of_stage = |(place, stage): (usize, Option<GainStage>)| DarkFrames {
        stage: stage.map_or("auto", GainStage::name).into(),
        frames: came.get(place).copied().unwrap_or(0),
        expected: frames_of_stage(options),
    };
    stages.map(of_stage).collect()
}

impl DarkFile {
    fn set_message(&self, run: u64) -> StatusMessage {
        let mut message = format!("run {run}: {} has new pedestals", self.path.display());
        if self.is_incomplete {
            message += "; not all dark frames came";
        }
        if self.remarks.is_empty() && !self.is_incomplete {
            return StatusMessage { message, severity: Severity::Success, hint: None };
        }
        if !self.remarks.is_empty() {
            message = format!("{message}; look at {}", self.remarks.join(", "));
        }
        let hint = Some(format!("konkordia calibration plot {}", self.path.display()));
        StatusMessage { message, severity: Severity::Warning, hint }
    }
}

/// Takes the frames and makes pedestals of them, in a new or an existing file. `None` if it was stopped; nothing is
/// written then.
fn take(
    options: &DarkOptions,
    (detector, run, control): (DetectorConfig, u64, Option<Arc<ControlDriver>>),
    file: &Path,
    force: bool,
    stopper: &Stopper,
) -> Result<Option<Made>, Failure> {
    let (output, into) = if file.exists() { (None, Some(file)) } else { (Some(file), None) };
    let target = Target::open(output, into, false)?;
    // The status shows the progress, and a program sets the gain.
    let silent = Listener { ask: &|_| (), note: &|_| (), progress: Arc::new(|_, _| ()) };
    let taken = from_detector(options, (detector, run, control), stopper, &silent)?;
    make(&MakeOptions { force, ..MakeOptions::default() }, target, taken)
}

/// What the request asks for, and the calibration file for it.
fn arguments(base: &Base, request: &PedestalRequest) -> Result<(DarkOptions, PathBuf), Failure> {
    let DetectorKindConfig::Udp(own) = &base.config.kind else {
        return Err(Failure::new(Exit::Bug, "a stream has no run over UDP", "", "please report this"));
    };
    let number = |name: &str, value: Option<u64>, least: u64| match value {
        Some(n) if n < least || n > FRAMES_MAX => {
            let what = format!("{n} {name} are not possible");
            Err(Failure::new(Exit::Configuration, what, format!("{least} to {FRAMES_MAX} are possible"), "give another number"))
        }
        value => Ok(value),
    };
    if request.stage == StageChoice::All && base.config.hooks.on_stage.is_empty() && base.driven.is_none() {
        let why = "no program that sets the gain of the detector is configured";
        let fix = "set [control] driver, or on_stage and on_trigger, or take one stage after the other (\"stage\": \"g0\") and set the detector yourself";
        return Err(Failure::new(Exit::Configuration, "all gain stages cannot be taken in one go", why, fix));
    }
    let file = file(base, own, request)?;
    let frames = number("frames", request.frames, 1)?;
    let skip = number("frames to skip", request.skip, 0)?.unwrap_or(0);
    Ok((DarkOptions { stage: request.stage, frames, skip }, file))
}

/// The calibration file for the pedestals.
fn file(base: &Base, own: &Config, request: &PedestalRequest) -> Result<PathBuf, Failure> {
    if let Some(name) = &request.file {
        let target = Place::of(&base.config, &own.directory, base.settings.data_root.as_ref()).target(name)?;
        return Ok(target.directory.join(format!("{}.h5", target.prefix)));
    }
    let configured = own.calibration.as_ref().filter(|files| files.kind == CalibrationKind::Konkordia);
    configured.and_then(|files| files.pedestal.first()).cloned().ok_or_else(|| {
        let why = "the configuration names no calibration file of Konkordia ([calibration] kind = \"konkordia\")";
        Failure::new(Exit::Configuration, "there is no file for the pedestals", why, "give one: \"file\": \"calibration/today\"")
    })
}
