//! Conversion: frames from files pass through the same engine as frames from a detector, into the same kind of files. A
//! frame waits until there is room for it instead of being dropped.
//!
//! [`Conversion::open`] reads the headers of the input, [`Conversion::plan`] checks what can be known before,
//! [`Conversion::arm`] makes or continues the files, and [`Ready::run`] converts. [`Conversion::verify`] compares the
//! files with a second conversion. Who shows the progress runs [`Ready::armed`] and calls [`Ready::close`] instead.

mod frames;
mod kept;
mod request;
mod settings;
mod verify;

pub use frames::{constants_of, of_frames};
pub use request::{Request, Setting};
pub use settings::folders;
pub(crate) use settings::{facts_of_words, of_words};
pub use verify::{Comparison, Verified};

use crate::run::arm::{self, RunInputs};
use crate::run::exit_of;
use crate::run::report::{self, Report};
use kept::{Kept, Shift};
use konkordia_calibration::Loaded;
use konkordia_calibration::guard::{self, Note};
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{FirstFrame, Plan};
use konkordia_core::setup::SetupRules;
use konkordia_engine::run::{Armed, RunFailure, RunOutcome};
use konkordia_input::{Input, InputInfo, Options};
use konkordia_kernels::isa::Isa;
use konkordia_repack::archive_copy;
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::{FileSpec, RunFiles, Writer, unknown};
use settings::Settings;
use std::io::IoSliceMut;
use std::sync::Arc;

/// A conversion whose input was opened and understood.
pub struct Conversion {
    request: Request,
    input: Input,
    settings: Settings,
}

impl Conversion {
    /// Opens the input, and makes the configuration. Nothing is written.
    ///
    /// # Errors
    /// The input cannot be read, or does not fit the request or its configuration.
    pub fn open(request: Request) -> Result<Self, Failure> {
        let options = Options {
            format: request.format,
            modules: request.modules,
            detector: request.detector.clone(),
            frames: request.frames,
            in_port_order: settings::places_each_tile(&request)?,
        };
        let mut input = Input::open(&request.input, &options)?;
        let settings = settings::settings(&request, input.info())?;
        settings.placed.iter().chain(&settings.turned).for_each(|note| input.add_note(note.clone()));
        Ok(Self { request, input, settings })
    }

    /// The configuration: what a user would have written for the same run.
    pub fn config(&self) -> &Config {
        &self.settings.config
    }

    /// What was found in the input, with notes for the user.
    pub fn input(&self) -> &InputInfo {
        self.input.info()
    }

    /// Makes the plan and loads the calibration. Checks everything that can be known before files are made.
    ///
    /// # Errors
    /// There is not enough memory, the calibration cannot be read or is of another detector, or the archive copy could
    /// not be made afterwards.
    pub fn plan(&self) -> Result<RunInputs, Failure> {
        let run_inputs = self.run_inputs()?;
        if let Some(archive_copy) = self.config().archive_copy.as_ref().filter(|_| !self.request.resume) {
            archive_copy::check(archive_copy, self.config().overwrite)?;
        }
        Ok(run_inputs)
    }

    /// The plan covers every frame from the lowest to the highest number, and a frame waits instead of being dropped.
    fn run_inputs(&self) -> Result<RunInputs, Failure> {
        let (config, info) = (self.config(), self.input());
        let mut run_inputs = arm::run_inputs(config)?;
        self.refuse_other_detector(&run_inputs.loaded)?;
        let plan = &mut run_inputs.plan;
        plan.lossless_source = true;
        plan.fills_slots = true;
        plan.setup = SetupRules::default();
        plan.first_frame = FirstFrame::Number(info.first_frame);
        plan.frames = Some(info.last_frame - info.first_frame + 1);
        // A thread that reads files mostly waits for the workers, so every processor gets a worker. A thread that reads
        // sockets needs a processor of its own.
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        // A number of workers is one of threads of the processor.
        plan.gpu = config.gpu.filter(|_| self.request.workers.is_none());
        if plan.gpu.is_none() {
            plan.workers = self.request.workers.map(|n| n as usize).or(config.workers).unwrap_or(all);
        }
        if !info.has_module_ids() && run_inputs.loaded.module_ids.iter().any(Option::is_some) {
            run_inputs.loaded.module_ids.clear();
            let note = "the input has no module ids: cannot check that the calibration belongs to these modules";
            run_inputs.notes.push(note.into());
        }
        Ok(run_inputs)
    }

    /// Refuses input of another detector before older files are replaced. It compares the module ids, and the high-gain
    /// flag of the first frame, with the calibration. The run repeats this for every image.
    fn refuse_other_detector(&self, loaded: &Loaded) -> Result<(), Failure> {
        let refuse = |error| Failure { exit: Exit::Configuration, ..Failure::from(error) };
        if let Some(error) = guard::other_module(&loaded.module_ids, &self.input().module_ids) {
            return Err(refuse(error));
        }
        let Some(high_gain) = loaded.high_gain else { return Ok(()) };
        let mut pixels = vec![0; self.input().format.tile_bytes() as usize];
        let mut readers = (0..self.input.tiles()).map(|tile| self.input.open_tile(tile));
        // A read error is ignored here: the run reports it in more detail.
        let first = readers.find(|r| !r.is_empty()).and_then(|mut r| r.read_into(0, &mut [IoSliceMut::new(&mut pixels)]).ok());
        match first.and_then(|first| guard::other_gain(high_gain, first.header.daq_info, "the first frame")) {
            Some(error) => Err(refuse(error)),
            None => Ok(()),
        }
    }

    /// Makes the files, or continues those of an interrupted conversion, and arms the run. `note` gets remarks on the
    /// images while it goes on.
    ///
    /// # Errors
    /// The files cannot be made or continued, or the run cannot be armed.
    pub fn arm(&self, run_inputs: RunInputs, note: Note) -> Result<Ready<'_>, Failure> {
        let spec = self.file_spec(&run_inputs);
        let RunInputs { mut plan, loaded, .. } = run_inputs;
        if let Some(numbers) = self.request.data_files {
            return self.arm_single_files(spec, plan, loaded, numbers, note);
        }
        let (writer, images_kept) = if self.request.resume { Writer::resume(spec)? } else { (Writer::create(spec)?, 0) };
        let (mut kept, mut shift) = (Kept::default(), Shift::none());
        let mut first_frame = self.input().first_frame;
        if images_kept > 0 {
            if can_begin_anywhere(&plan) {
                kept = Kept::read(self.config(), images_kept, &plan)?;
                first_frame += images_kept;
                plan.first_frame = FirstFrame::Number(first_frame);
                plan.frames = plan.frames.map(|n| n - images_kept);
                shift = Shift::onwards(images_kept);
            } else {
                shift = Shift::skip(images_kept);
            }
        }
        let space = arm::space_note(&writer);
        let (plan, files) = (Arc::new(plan), RunFiles::new(writer));
        let armed = self.armed(&plan, loaded, &files, (first_frame, shift), note)?;
        let (unknown, single_files) = (unknown::notes(&self.config().metadata), None);
        let computes_again = shift.skips();
        Ok(Ready { armed, plan, images_kept, computes_again, space, unknown, conversion: self, kept, files, single_files })
    }

    /// Arms the run from this frame on; `None` if no frame is left.
    fn armed(
        &self,
        plan: &Arc<Plan>,
        loaded: Loaded,
        files: &RunFiles,
        (first_frame, shift): (u64, Shift),
        note: Note,
    ) -> Result<Option<Armed>, Failure> {
        if plan.frames == Some(0) {
            return Ok(None);
        }
        let sinks = (kept::sink(files, self.input(), shift), Vec::new());
        arm::arm_with(plan, loaded, self.input.sources(first_frame), sinks, Isa::detect(), note).map(Some)
    }

    /// Makes some data files only, for a conversion that several processes share.
    fn arm_single_files(
        &self,
        spec: FileSpec,
        mut plan: Plan,
        loaded: Loaded,
        (from, to): (u64, u64),
        note: Note,
    ) -> Result<Ready<'_>, Failure> {
        let (per_file, images) = (u64::from(spec.images_per_file), plan.frames.unwrap_or(0));
        if !can_begin_anywhere(&plan) {
            return Err(Failure::new(
                Exit::Configuration,
                "this conversion cannot be shared by several processes",
                "with tracked pedestals, sums or selected frames each image depends on frames before it",
                "convert in one process, without --data-files",
            ));
        }
        let (begin, end) = ((from - 1).saturating_mul(per_file), to.saturating_mul(per_file).min(images));
        if begin >= images {
            return Err(Failure::new(
                Exit::Usage,
                format!("there is no data file {from}"),
                format!("{images} images make {} data files of {per_file} images", images.div_ceil(per_file)),
                "give other numbers with --data-files",
            ));
        }
        let (writer, next) = Writer::single_files(spec, &(from..=to))?;
        let first_frame = self.input().first_frame + next;
        plan.first_frame = FirstFrame::Number(first_frame);
        plan.frames = Some(end - next);
        let (plan, files) = (Arc::new(plan), RunFiles::new(writer));
        let armed = self.armed(&plan, loaded, &files, (first_frame, Shift::onwards(next)), note)?;
        Ok(Ready {
            armed,
            plan,
            images_kept: next - begin,
            computes_again: false,
            space: None,
            unknown: Vec::new(),
            conversion: self,
            kept: Kept::default(),
            files,
            single_files: Some(next),
        })
    }

    fn file_spec(&self, run_inputs: &RunInputs) -> FileSpec {
        let info = self.input();
        let mut spec = arm::file_spec(self.config(), &run_inputs.plan, &run_inputs.loaded);
        // Only values that are the same in each conversion of this input: a resumed conversion must match its files.
        let times = info.times();
        // The names of conversions are the user's, so no master of a whole image is made of them.
        spec.part = None;
        spec.metadata.start_time = times.start.cloned();
        spec.metadata.end_time_estimated = times.end_estimated.cloned();
        if kept::has_gaps(info) {
            spec.extra_columns = arm::extra_columns(&run_inputs.plan, true);
        }
        let names: Vec<String> = info.files.iter().filter_map(|f| Some(f.file_name()?.to_string_lossy().into_owned())).collect();
        spec.conversion.extend([
            ("input".into(), info.kind.clone()),
            ("input_files".into(), names.join(" ")),
            ("input_identity".into(), info.identity.clone()),
            ("input_frames".into(), format!("{} to {}, {} found", info.first_frame, info.last_frame, info.frames_found)),
        ]);
        spec.conversion.extend(self.settings.placed.iter().map(|placed| ("placement".to_string(), placed.clone())));
        spec
    }

    /// Arms a second conversion, without vector instructions, without compression and with one worker, and compares its
    /// images with those of the closed files: run the first, then close the second.
    ///
    /// # Errors
    /// As of [`Conversion::plan`] and [`Conversion::arm`], or the files cannot be read.
    pub fn verify(&self) -> Result<(Armed, Comparison), Failure> {
        verify::begin(self.config(), self.run_inputs()?, self.input.sources(self.input().first_frame))
    }
}

/// True if frame n of the run is image n of the file and does not depend on earlier frames. The run can then begin at
/// any frame.
fn can_begin_anywhere(plan: &Plan) -> bool {
    plan.processing.selection.is_plain() && plan.processing.tracking.is_none()
}

/// A conversion whose files are open.
pub struct Ready<'a> {
    /// The run, to which [`Ready::close`] takes the outcome; `None` if no frame is left to convert.
    pub armed: Option<Armed>,
    /// Its plan.
    pub plan: Arc<Plan>,
    /// Images that are already in the files and are kept.
    pub images_kept: u64,
    /// Pedestals, sums and selections depend on all frames, so the images that are kept are computed again.
    pub computes_again: bool,
    /// A note if the disk may be too small.
    pub space: Option<String>,
    /// Notes on metadata that readers need and nothing says.
    pub unknown: Vec<String>,
    conversion: &'a Conversion,
    kept: Kept,
    files: RunFiles,
    /// If only single data files are written: the position of the first image that was not there yet.
    single_files: Option<u64>,
}

impl Ready<'_> {
    /// Converts to the end of the input, and closes the files.
    ///
    /// # Errors
    /// The files cannot be closed. What ended the run before its end is in the result ([`Done::exit`]).
    pub fn run(mut self) -> Result<Done, Failure> {
        let outcome = self.armed.take().map(Armed::run);
        self.close(outcome)
    }

    /// Closes the files; `outcome` is that of the run, if there was one.
    ///
    /// # Errors
    /// As of [`Ready::run`].
    pub fn close(self, outcome: Option<RunOutcome>) -> Result<Done, Failure> {
        let (config, info) = (self.conversion.config(), self.conversion.input());
        let mut outcome = outcome.unwrap_or_else(|| kept::nothing_to_do(&self.plan, info.first_frame));
        self.kept.add_to(&mut outcome);
        if self.images_kept > 0 {
            kept::add_ports(&mut outcome, &self.conversion.input);
        }
        let names = info.tile_names.iter().map(|n| format!("file://{n}")).collect::<Vec<_>>();
        let mut record = report::ledger_record(config, &names, &outcome, clock::now());
        // The end time is that of the measurement, not of the conversion. A wrong set-up of the measurement stays
        // recorded.
        record.end_time = info.times().end.cloned();
        let wrong_setup = info.own.as_ref().and_then(|own| own.wrong_setup.as_deref());
        record.ended = report::ended_of_conversion(record.ended, wrong_setup);
        let file = match self.single_files {
            Some(first) => self.files.finish_single_files(first + record.images_expected),
            None => self.files.finish(&record),
        };
        let mut notes = info.notes.clone();
        if self.single_files.is_some() {
            notes.push(
                "only some data files were asked for: when all are there, the same command with --resume makes the master".into(),
            );
        }
        let report = Report::new(config, &names, &outcome, file.transpose()?).with_notes(notes);
        Ok(Done { outcome, report, images_kept: self.images_kept, input_is_incomplete: info.incomplete })
    }
}

/// The result of a conversion, whose files are closed.
pub struct Done {
    /// The outcome of the run, with the images that were kept.
    pub outcome: RunOutcome,
    /// Its report.
    pub report: Report,
    /// Images that were in the files before.
    pub images_kept: u64,
    input_is_incomplete: bool,
}

impl Done {
    /// The exit code, and the failure that ended the conversion, if there is one. `is_stopped`: the user ended it.
    pub fn exit(&self, is_stopped: bool) -> (Exit, Option<Failure>) {
        let (mut exit, mut failure) = exit_of(&self.outcome, false, is_stopped);
        if let Some(RunFailure::Source(_, error)) = &self.outcome.failure {
            failure = Some(kept::source_failure(error));
        }
        if self.input_is_incomplete && exit == Exit::Complete {
            exit = Exit::Incomplete;
        }
        (exit, failure)
    }
}
