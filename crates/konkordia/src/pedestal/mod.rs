//! `konkordia pedestal`: from dark frames to a calibration file.

pub mod args;
mod take;

use crate::console;
use args::PedestalArgs;
use konkordia_calibration::dark::store::{self, Target};
use konkordia_calibration::dark::{Made, judge, make};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sinks::hdf5::calibration::Keep;
use serde_json::json;

/// `konkordia pedestal ...`
pub fn command(args: &PedestalArgs) -> Result<Exit, Failure> {
    let target = Target::open(args.output.as_deref(), args.into.as_deref(), args.overwrite)?;
    if args.input.is_empty() {
        return only_gains(args, target);
    }
    let Some(made) = make(&args.options(), target, take::take(args)?)? else {
        console::to_stderr("stopped: nothing was written");
        return Ok(Exit::Interrupted);
    };
    report(args, &made);
    Ok(made.exit)
}

fn only_gains(args: &PedestalArgs, target: Target) -> Result<Exit, Failure> {
    if args.gain.is_empty() || args.into.is_none() {
        let why = "without dark frames only gains can be added, and only to a file that exists";
        let fix = "give a configuration or files with dark frames, or --into FILE --gain FILES";
        return Err(Failure::new(Exit::Usage, "there is nothing to do", why, fix));
    }
    let (path, mut file) = target.into_file();
    let planes = store::add_gains(&mut file, &args.gain)?;
    let step = format!("gains from {}", file.gain_source);
    let hash = store::write(&mut file, &path, step, Keep::Nothing)?;
    if args.json {
        console::json(&json!({ "file": path, "hash": hash, "gain_planes": planes }), true);
    } else {
        console::to_stdout(&format!("{}: {planes} planes of gains\n{hash}", path.display()));
    }
    Ok(Exit::Complete)
}

fn report(args: &PedestalArgs, made: &Made) {
    if args.json {
        console::json(&made.to_json(), true);
        return;
    }
    console::to_stdout(&judge::table(made.rows()));
    for (why, n) in &made.refused() {
        console::to_stdout(&format!("refused: {} frames {why}", text::count(*n)));
    }
    made.notes().iter().for_each(|note| console::to_stdout(&format!("note: {note}")));
    console::to_stdout(&format!("{}\n{}", made.path().display(), made.hash()));
}
