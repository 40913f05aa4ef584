//! `konkordia convert`: frames from files pass through the same engine as frames from a detector, into the same kind of
//! files. `konkordia_acquire::convert` does it.

pub mod args;
mod progress;

use crate::console;
use crate::repack_verb;
use crate::run::signals;
use args::ConvertArgs;
use konkordia_acquire::convert::{Conversion, Done, Ready, Verified};
use konkordia_acquire::run::arm::RunInputs;
use konkordia_acquire::stopper::Stopper;
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Plan;
use konkordia_core::text;
use konkordia_input::InputInfo;
use konkordia_sinks::hdf5::master_path;
use progress::watch_run;
use serde_json::json;
use std::path::Path;

/// `konkordia convert INPUT... -o OUT`
pub fn command(args: &ConvertArgs) -> Result<Exit, Failure> {
    let conversion = Conversion::open(args.request())?;
    let stopper = signals::stopper()?;
    let run_inputs = conversion.plan()?;
    announce(args, &conversion, &run_inputs);
    if args.dry_run {
        return Ok(Exit::Complete);
    }
    let mut ready = conversion.arm(run_inputs, Box::new(console::note))?;
    notes(args, &ready);
    let outcome = ready.armed.take().map(|armed| {
        stopper.follow(armed.control());
        watch_run(armed, &ready.plan, args, ready.images_kept)
    });
    let done = ready.close(outcome)?;
    let (mut exit, failure) = done.exit(stopper.is_stopped());
    let mut verified = None;
    if args.verify && failure.is_none() && exit != Exit::Interrupted {
        let found = verify(args, &conversion, &stopper)?;
        if stopper.is_stopped() {
            exit = Exit::Interrupted;
        }
        if found.different_images > 0 && exit == Exit::Complete {
            exit = Exit::Incomplete;
        }
        verified = Some(found);
    }
    report(args, conversion.input(), &done, verified.as_ref(), exit);
    if failure.is_none() && args.data_files.is_none() {
        archive_copy(args, conversion.config(), done.report.master(), exit);
    }
    failure.map_or(Ok(exit), Err)
}

/// Compares the files with a second conversion, as `--verify` asks.
fn verify(args: &ConvertArgs, conversion: &Conversion, stopper: &Stopper) -> Result<Verified, Failure> {
    let (armed, comparison) = conversion.verify()?;
    stopper.follow(armed.control());
    if !args.quiet {
        console::to_stderr("verifying: every image is decoded and compared with a second conversion");
    }
    let outcome = watch_run(armed, &comparison.plan, args, 0);
    comparison.close(&outcome)
}

/// Makes the archive copy that `[travel]` asks for, as after a run. An interrupted conversion gets none, because the
/// copy would be incomplete.
fn archive_copy(args: &ConvertArgs, config: &Config, master: Option<&Path>, exit: Exit) {
    let (Some(archive_copy), Some(master)) = (&config.archive_copy, master) else { return };
    if exit == Exit::Interrupted {
        return console::to_stderr("note: the archive copy is made when the conversion is complete (--resume)");
    }
    repack_verb::archive_copy(archive_copy, config.overwrite, master, args.quiet, args.json);
}

/// Prints what is known of the files before the first image.
fn notes(args: &ConvertArgs, ready: &Ready<'_>) {
    if ready.images_kept > 0 {
        let how = if ready.computes_again {
            "; pedestals, sums and selections depend on all frames: these images are computed again, but not written"
        } else {
            ""
        };
        let note = format!("{} images are already in the files and are kept{how}", text::count(ready.images_kept));
        if args.json {
            console::json(&json!({ "event": "resumed", "images_kept": ready.images_kept }), true);
        }
        console::note(&note);
    }
    let unknown = ready.unknown.iter().filter(|_| !args.quiet);
    ready.space.iter().chain(unknown).for_each(|note| console::note(note));
}

/// Prints the input, the plan and the notes.
fn announce(args: &ConvertArgs, conversion: &Conversion, run_inputs: &RunInputs) {
    let (config, info, plan) = (conversion.config(), conversion.input(), &run_inputs.plan);
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
                "{} x {} pixels, {}, {}",
                plan.geometry.rows(),
                plan.geometry.columns(),
                plan.pixel,
                plan.compression.words()
            ),
        ),
        ("file", master_path(&config.directory, &config.prefix).display().to_string()),
        ("threads", format!("{} reader(s), {} worker(s)", plan.streams(), plan.workers)),
        ("memory", text::bytes(memory)),
    ];
    rows.map(|(name, value)| format!("  {name:<9} {value}")).join("\n")
}

/// Prints the report and the result of the comparison.
fn report(args: &ConvertArgs, info: &InputInfo, done: &Done, verified: Option<&Verified>, exit: Exit) {
    if args.json {
        let mut json = done.report.to_json(exit);
        json["input"] = info.to_json();
        json["images_kept"] = json!(done.images_kept);
        json["verified"] = verified.map_or(serde_json::Value::Null, Verified::to_json);
        return console::json(&json, true);
    }
    console::to_stdout(&done.report.to_text());
    if let Some(verified) = verified {
        console::to_stdout(&verified.to_text());
    }
}
