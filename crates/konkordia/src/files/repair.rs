//! `konkordia repair`: makes readable what a killed run left behind.

use crate::cli::FileArgs;
use crate::failure::{Exit, Failure};
use crate::say;
use konkordia_sinks::hdf5;
use serde_json::json;

/// `konkordia repair FILE`
pub fn command(args: &FileArgs) -> Result<Exit, Failure> {
    let report = hdf5::repair(&args.file)?;
    if args.json {
        let value = json!({
            "master": report.master, "rebuilt": report.rebuilt, "master_written": report.master_written, "images": report.images,
            "notes": report.notes,
        });
        say::json(&value, false);
        return Ok(Exit::Complete);
    }
    for file in &report.rebuilt {
        say::to_stdout(&format!("rebuilt {}", file.display()));
    }
    for note in &report.notes {
        say::to_stdout(&format!("note: {note}"));
    }
    let what = if report.master_written { "written anew" } else { "was right" };
    say::to_stdout(&format!("{}: {what}; {} images", report.master.display(), say::count(report.images)));
    Ok(Exit::Complete)
}
