//! `konkordia convert`: frames from files pass through the same engine as frames from a detector, into the same kind of
//! files.

pub mod args;
mod kept;
mod progress;
pub mod settings;
mod sources;
mod verify;

use crate::console;
use crate::repack_verb;
use crate::run::signals;
use args::ConvertArgs;
use kept::{Kept, Shift};
use konkordia_acquire::run::arm::{self, RunInputs};
use konkordia_acquire::run::exit_of;
use konkordia_acquire::run::report::{self, Report};
use konkordia_acquire::run::sink::{SharedWriter, extra_columns};
use konkordia_acquire::stopper::Stopper;
use konkordia_calibration::{Loaded, guard};
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{FirstFrame, Plan};
use konkordia_core::setup::SetupRules;
use konkordia_core::text;
use konkordia_engine::run::{RunFailure, RunOutcome};
use konkordia_input::{Input, InputInfo, Options};
use konkordia_kernels::isa::Isa;
use konkordia_repack::archive_copy;
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::{FileSpec, Writer, unknown};
use progress::watch_run;
use serde_json::json;
use settings::Settings;
use sources::sources;
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;
use verify::Verified;

/// `konkordia convert INPUT... -o OUT`
pub fn command(args: &ConvertArgs) -> Result<Exit, Failure> {
    let options = Options {
        format: args.format,
        modules: args.modules,
        detector: args.detector.clone(),
        frames: args.frames,
        in_port_order: settings::places_each_tile(args)?,
    };
    let mut input = Input::open(&args.input, &options)?;
    let settings = settings::settings(args, input.info())?;
    settings.placed.iter().chain(&settings.turned).for_each(|note| input.add_note(note.clone()));
    let config = &settings.config;
    let stopper = signals::stopper()?;
    let run_inputs = plan(config, args, &input)?;
    if let Some(archive_copy) = config.archive_copy.as_ref().filter(|_| !args.resume) {
        archive_copy::check(archive_copy, config.overwrite)?;
    }
    announce(args, config, &input, &run_inputs);
    let done = convert(args, &settings, &input, run_inputs, &stopper)?;
    let (mut exit, mut failure) = exit_of(&done.outcome, false, stopper.is_stopped());
    if let Some(RunFailure::Source(_, error)) = &done.outcome.failure {
        failure = Some(kept::source_failure(error));
    }
    if input.info().incomplete && exit == Exit::Complete {
        exit = Exit::Incomplete;
    }
    let mut verified = None;
    if args.verify && failure.is_none() && exit != Exit::Interrupted {
        let found = verify::verify(args, config, &input, plan(config, args, &input)?, &stopper)?;
        if stopper.is_stopped() {
            exit = Exit::Interrupted;
        }
        if found.different_images > 0 && exit == Exit::Complete {
            exit = Exit::Incomplete;
        }
        verified = Some(found);
    }
    tell(args, input.info(), &done, verified.as_ref(), exit);
    if failure.is_none() {
        travel_copy(args, config, done.report.master(), exit);
    }
    failure.map_or(Ok(exit), Err)
}

/// Makes the archive copy that `[travel]` asks for, as after a run. An interrupted conversion gets none, because the
/// copy would be incomplete.
fn travel_copy(args: &ConvertArgs, config: &Config, master: Option<&Path>, exit: Exit) {
    let (Some(archive_copy), Some(master)) = (&config.archive_copy, master) else { return };
    if exit == Exit::Interrupted {
        return console::to_stderr("note: the archive copy is made when the conversion is complete (--resume)");
    }
    repack_verb::archive_copy(archive_copy, config.overwrite, master, args.quiet, args.json);
}

/// Result of a conversion.
struct Done {
    outcome: RunOutcome,
    report: Report,
    kept_images: u64,
}

/// The plan of the conversion. It covers every frame from the lowest to the highest number, and a frame waits instead
/// of being dropped.
fn plan(config: &Config, args: &ConvertArgs, input: &Input) -> Result<RunInputs, Failure> {
    let info = input.info();
    let mut run_inputs = arm::run_inputs(config)?;
    refuse_other_detector(&run_inputs.loaded, input)?;
    let plan = &mut run_inputs.plan;
    plan.lossless_source = true;
    plan.setup = SetupRules::default();
    plan.first_frame = FirstFrame::Number(info.first_frame);
    plan.frames = Some(info.last_frame - info.first_frame + 1);
    // A thread that reads files mostly waits for the workers, so every processor gets a worker. A thread that reads
    // sockets needs a processor of its own.
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    plan.workers = args.workers.map(|n| n as usize).or(config.workers).unwrap_or(all);
    if !info.has_module_ids() && run_inputs.loaded.module_ids.iter().any(Option::is_some) {
        run_inputs.loaded.module_ids.clear();
        run_inputs.notes.push("the input has no module ids: cannot check that the calibration belongs to these modules".into());
    }
    Ok(run_inputs)
}

/// Refuses input of another detector before older files are replaced. It compares the module ids, and the high-gain
/// flag of the first frame, with the calibration. The run repeats this for every image.
fn refuse_other_detector(loaded: &Loaded, input: &Input) -> Result<(), Failure> {
    let refuse = |error| Failure { exit: Exit::Configuration, ..Failure::from(error) };
    if let Some(error) = guard::other_module(&loaded.module_ids, &input.info().module_ids) {
        return Err(refuse(error));
    }
    let Some(high_gain) = loaded.high_gain else { return Ok(()) };
    let mut pixels = vec![0; input.info().format.tile_bytes() as usize];
    let mut readers = (0..input.tiles()).map(|tile| input.open_tile(tile));
    // A read error is ignored here: the run reports it in more detail.
    let first = readers.find(|r| !r.is_empty()).and_then(|mut r| r.read_into(0, &mut [IoSliceMut::new(&mut pixels)]).ok());
    match first.and_then(|first| guard::other_gain(high_gain, first.header.daq_info, "the first frame")) {
        Some(error) => Err(refuse(error)),
        None => Ok(()),
    }
}

/// True if frame n of the run is image n of the file and does not depend on earlier frames. The run can then begin at
/// any frame.
fn can_begin_anywhere(plan: &Plan) -> bool {
    plan.processing.selection.is_plain() && plan.processing.tracking.is_none()
}

fn file_spec(config: &Config, input: &Input, run_inputs: &RunInputs) -> FileSpec {
    let info = input.info();
    let mut spec = arm::file_spec(config, &run_inputs.plan, &run_inputs.loaded);
    // Only values that are the same in each conversion of this input: a resumed conversion must match its files.
    let times = info.times();
    spec.metadata.start_time = times.start.cloned();
    spec.metadata.end_time_estimated = times.end_estimated.cloned();
    if kept::has_gaps(info) {
        spec.extra_columns = extra_columns(&run_inputs.plan, true);
    }
    let names: Vec<String> = info.files.iter().filter_map(|f| Some(f.file_name()?.to_string_lossy().into_owned())).collect();
    spec.conversion.extend([
        ("input".into(), info.kind.clone()),
        ("input_files".into(), names.join(" ")),
        ("input_identity".into(), info.identity.clone()),
        ("input_frames".into(), format!("{} to {}, {} found", info.first_frame, info.last_frame, info.frames_found)),
    ]);
    spec
}

/// Creates or continues the files, runs, closes the files.
fn convert(
    args: &ConvertArgs,
    Settings { config, placed, .. }: &Settings,
    input: &Input,
    run_inputs: RunInputs,
    stopper: &Stopper,
) -> Result<Done, Failure> {
    let mut spec = file_spec(config, input, &run_inputs);
    spec.conversion.extend(placed.iter().map(|placed| ("placement".to_string(), placed.clone())));
    let RunInputs { mut plan, loaded, .. } = run_inputs;
    let (writer, first_image) = if args.resume { Writer::resume(spec)? } else { (Writer::create(spec)?, 0) };
    let mut kept = Kept::default();
    let mut shift = Shift::none();
    if first_image > 0 {
        if can_begin_anywhere(&plan) {
            kept = Kept::read(config, first_image, &plan)?;
            plan.first_frame = FirstFrame::Number(input.info().first_frame + first_image);
            plan.frames = plan.frames.map(|n| n - first_image);
            shift = Shift::onwards(first_image);
        } else {
            shift = Shift::skip(first_image);
        }
        resumed_note(args, first_image, &shift);
    }
    let unknown = if args.quiet { Vec::new() } else { unknown::notes(&config.metadata) };
    let notes = arm::space_note(&writer).into_iter().chain(unknown);
    notes.for_each(|note| console::note(&note));
    let plan = Arc::new(plan);
    let writer = SharedWriter::new(writer);
    let sink = kept::sink(writer.clone(), &plan, input.info(), shift);
    let mut outcome = if plan.frames == Some(0) {
        kept::nothing_to_do(&plan, input.info().first_frame)
    } else {
        let armed =
            arm::arm_with(&plan, loaded, sources(input, &plan), (sink, Vec::new()), Isa::detect(), Box::new(console::note))?;
        stopper.follow(armed.control());
        watch_run(armed, &plan, args, first_image)
    };
    kept.add_to(&mut outcome);
    let names = input.info().tile_names.iter().map(|n| format!("file://{n}")).collect::<Vec<_>>();
    let mut record = report::ledger_record(config, &names, &outcome, clock::now());
    // The end time is that of the measurement, not of the conversion. A wrong set-up of the measurement stays recorded.
    record.end_time = input.info().times().end.cloned();
    let wrong_setup = input.info().own.as_ref().and_then(|own| own.wrong_setup.as_deref());
    record.ended = report::ended_of_conversion(record.ended, wrong_setup);
    let file = writer.finish(&record).transpose()?;
    let report = Report::new(config, &names, &outcome, file).with_notes(input.info().notes.clone());
    Ok(Done { outcome, report, kept_images: first_image })
}

fn resumed_note(args: &ConvertArgs, first_image: u64, shift: &Shift) {
    let how = if shift.skips() {
        "; pedestals, sums and selections depend on all frames: these images are computed again, but not written"
    } else {
        ""
    };
    let note = format!("{} images are already in the files and are kept{how}", text::count(first_image));
    if args.json {
        console::json(&json!({ "event": "resumed", "images_kept": first_image }), true);
    }
    console::note(&note);
}

/// Prints the input, the plan and the notes.
fn announce(args: &ConvertArgs, config: &Config, input: &Input, run_inputs: &RunInputs) {
    let (info, plan) = (input.info(), &run_inputs.plan);
    if args.json {
        let event = json!({
            "event": "armed", "input": info.to_json(), "plan": konkordia_config::plan::to_json(config, plan), "notes": info.notes,
        });
        console::json(&event, true);
    }
    if !args.quiet {
        console::to_stderr(&describe(config, info, plan));
    }
    for note in info.notes.iter().chain(&run_inputs.notes) {
        console::note(note);
    }
}

fn describe(config: &Config, info: &InputInfo, plan: &Plan) -> String {
    let images = info.last_frame - info.first_frame + 1;
    let memory: u64 = plan.memory().iter().map(|m| m.bytes).sum();
    let level = plan.compression.level().map_or(String::new(), |l| format!(" level {l}"));
    let rows = [
        ("input", info.kind.clone()),
        ("detector", format!("{} {} module(s), {} tile(s)", info.modules, info.format.kind.name(), info.tile_names.len())),
        (
            "frames",
            format!(
                "{} to {}, {} of {} found, {}",
                info.first_frame,
                info.last_frame,
                info.frames_found,
                images,
                text::bytes(info.raw_bytes)
            ),
        ),
        (
            "image",
            format!(
                "{} x {} pixels, {}, {}{level}",
                plan.geometry.rows(),
                plan.geometry.columns(),
                plan.pixel,
                plan.compression.name()
            ),
        ),
        ("file", config.directory.join(format!("{}_master.h5", config.prefix)).display().to_string()),
        ("threads", format!("{} reader(s), {} worker(s)", plan.streams(), plan.workers)),
        ("memory", text::bytes(memory)),
    ];
    rows.map(|(name, value)| format!("  {name:<9} {value}")).join("\n")
}

/// Prints the report and the result of the comparison.
fn tell(args: &ConvertArgs, info: &InputInfo, done: &Done, verified: Option<&Verified>, exit: Exit) {
    if args.json {
        let mut json = done.report.to_json(exit);
        json["input"] = info.to_json();
        json["images_kept"] = json!(done.kept_images);
        json["verified"] = verified.map_or(serde_json::Value::Null, Verified::to_json);
        return console::json(&json, true);
    }
    console::to_stdout(&done.report.to_text());
    if let Some(verified) = verified {
        console::to_stdout(&verified.to_text());
    }
}
