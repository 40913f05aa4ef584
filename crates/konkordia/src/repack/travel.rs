//! A small lossy copy of a run, made when the run is over and its files are closed: nothing that it does can cost data.

use super::{Outcome, Settings, repack};
use crate::config::travel::Travel;
use crate::failure::{Exit, Failure};
use crate::say;
use konkordia_core::plan::Compression;
use konkordia_sinks::hdf5::{Overwrite, data_file_name, master_file_name};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Files of an older copy of this name.
fn older(travel: &Travel) -> Vec<PathBuf> {
    let master = travel.directory.join(master_file_name(&travel.prefix));
    let data = (1..).map(|n| travel.directory.join(data_file_name(&travel.prefix, n))).take_while(|path| path.exists());
    data.chain([master].into_iter().filter(|path| path.exists())).collect()
}

/// Looks before the run whether the copy can be written after it.
///
/// # Errors
/// When its folder does not exist, or it would lie over other files.
pub fn check(travel: &Travel, overwrite: Overwrite) -> Result<(), Failure> {
    if !travel.directory.is_dir() {
        let what = format!("there is no folder {}", travel.directory.display());
        return Err(Failure::new(Exit::Io, what, "travel.directory names it", "create it, or correct the path"));
    }
    match older(travel).first() {
        Some(path) if overwrite == Overwrite::Refuse => {
            let why = "the copy of an earlier run has this name";
            let fix = "choose another travel.prefix, move the old files, or set output.overwrite = \"replace\"";
            Err(Failure::new(Exit::Io, format!("{} exists", path.display()), why, fix))
        }
        _ => Ok(()),
    }
}

/// Makes the copy of the run behind `master`.
///
/// # Errors
/// When it cannot be written; the run is not touched.
pub fn make(travel: &Travel, overwrite: Overwrite, master: &Path, quiet: bool) -> Result<Outcome, Failure> {
    check(travel, overwrite)?;
    for path in older(travel) {
        std::fs::remove_file(&path).map_err(|error| Failure::io("cannot remove", &path, &error))?;
    }
    let settings = Settings {
        compression: Compression::Sz3 { bound: travel.bound },
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        verify: false,
        delete_source: false,
    };
    // A second Ctrl-C ends the program; the first may have ended the run.
    let stop = AtomicBool::new(false);
    repack(master, &travel.directory.join(master_file_name(&travel.prefix)), &settings, &stop, quiet)
}

/// Makes the copy and tells about it. That it failed changes nothing about the run, nor its exit code.
pub fn make_and_tell(travel: &Travel, overwrite: Overwrite, master: &Path, quiet: bool, as_json: bool) {
    let made = make(travel, overwrite, master, quiet || as_json);
    let compression = Compression::Sz3 { bound: travel.bound };
    let event = |rest: Value| {
        let mut event = json!({"event": "travel", "error_bound": travel.bound.value()});
        if let (Some(event), Value::Object(rest)) = (event.as_object_mut(), rest) {
            event.extend(rest);
        }
        say::json(&event, true);
    };
    match made {
        Ok(outcome) if as_json => {
            event(json!({"master": outcome.master, "files": outcome.files, "totals": outcome.totals.to_json(compression)}));
        }
        Ok(outcome) => say::to_stdout(&format!("travel    {}: {}", outcome.master.display(), outcome.totals.loss_text())),
        Err(failure) => {
            if as_json {
                event(json!({"error": failure.what, "why": failure.why}));
            }
            say::to_stderr(&format!("the run is whole, its travel copy was not made\n{failure}"));
        }
    }
}
