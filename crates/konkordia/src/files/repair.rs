//! `konkordia repair`: makes readable what a killed run left behind, and what can still be read of damaged files.

use super::args::RepairArgs;
use crate::console;
use crate::run::signals;
use konkordia_acquire::spool::left_over::{self, Finished};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sinks::hdf5;
use serde_json::{Value, json};
use std::path::Path;

/// Largest number of ranges of images that are listed.
const LISTED_MAX: usize = 10;

/// `konkordia repair FILE` or `konkordia repair --spool DIR`
pub fn command(args: &RepairArgs) -> Result<Exit, Failure> {
    match (&args.spool, &args.file) {
        (Some(spool), _) => of_spool(spool, args),
        (None, Some(file)) => of_file(file, args.json),
        (None, None) => Err(Failure::new(Exit::Usage, "there is nothing to repair", "", "give a file, or --spool DIR")),
    }
}

fn of_file(file: &Path, as_json: bool) -> Result<Exit, Failure> {
    let report = hdf5::repair(file)?;
    if as_json {
        console::json(&to_json(&report), false);
    } else {
        show(&report);
    }
    Ok(exit_of(&report))
}

/// Repairs and moves what was left in a spool.
fn of_spool(spool: &Path, args: &RepairArgs) -> Result<Exit, Failure> {
    let stop = signals::stop_flag()?;
    let mut show_file = |file: &Path| {
        if !args.json {
            console::to_stderr(&format!("moving {}", file.display()));
        }
    };
    let runs = left_over::finish(spool, args.to.as_deref(), &stop, &mut show_file)?;
    let exits = runs.iter().map(|run| match run {
        Ok(done) => done.repaired.as_ref().map_or(Exit::Complete, exit_of),
        Err(failure) => failure.exit,
    });
    let exit = exits.fold(Exit::Complete, |worst, exit| if worst == Exit::Complete { exit } else { worst });
    if args.json {
        let run = |run: &Result<Finished, Failure>| match run {
            Ok(Finished { folder, master, files, repaired }) => json!({
                "folder": folder, "master": master, "files": files, "in_use": master.is_none(),
                "repair": repaired.as_ref().map(to_json),
            }),
            Err(failure) => json!({ "error": failure.what, "why": failure.why, "fix": failure.fix }),
        };
        console::json(&json!({ "spool": spool, "runs": runs.iter().map(run).collect::<Vec<_>>() }), false);
        return Ok(exit);
    }
    for run in &runs {
        match run {
            Ok(Finished { folder, master: None, .. }) => {
                console::to_stdout(&format!("{}: a program works on it", folder.display()));
            }
            Ok(Finished { master: Some(master), files, repaired, .. }) => {
                repaired.iter().for_each(show);
                console::to_stdout(&format!("{}: {} file(s) moved out of the spool", master.display(), files.len()));
            }
            Err(failure) => console::to_stderr(&failure.to_string()),
        }
    }
    if runs.is_empty() {
        console::to_stdout(&format!("{}: no run is left in this spool", spool.display()));
    }
    Ok(exit)
}

fn exit_of(report: &hdf5::RepairReport) -> Exit {
    if report.missing.is_empty() && !report.mask_missing { Exit::Complete } else { Exit::Incomplete }
}

fn to_json(report: &hdf5::RepairReport) -> Value {
    let missing = |m: &hdf5::MissingImages| {
        let ranges: Vec<_> = m.ranges.iter().map(|range| [range.start, range.end - 1]).collect();
        json!({ "images": m.images, "first_and_last": ranges, "why": m.why, "fix": m.fix })
    };
    json!({
        "master": report.master, "rebuilt": report.rebuilt, "rescued": report.rescued, "master_written": report.master_written,
        "images": report.images, "images_missing": report.images_missing(),
        "missing": report.missing.iter().map(missing).collect::<Vec<_>>(), "mask_missing": report.mask_missing, "notes": report.notes,
    })
}

/// Prints what was repaired.
fn show(report: &hdf5::RepairReport) {
    for (what, files) in [("rebuilt", &report.rebuilt), ("rescued", &report.rescued)] {
        files.iter().for_each(|file| console::to_stdout(&format!("{what} {}", file.display())));
    }
    for note in &report.notes {
        console::to_stdout(&format!("note: {note}"));
    }
    for missing in &report.missing {
        let which = ranges_text(&missing.ranges);
        let images = if missing.images == 1 { "image is" } else { "images are" };
        let number = if missing.images == 0 { "an unknown number of".into() } else { text::count(missing.images) };
        console::to_stdout(&format!("error: {number} {images} missing{which}: {}\n  fix: {}", missing.why, missing.fix));
    }
    if report.mask_missing {
        let fix = "bring back a whole copy of the master or of data file 1, and run repair again";
        console::to_stdout(&format!(
            "error: the pixel mask is in none of the files; no pixel is masked in the master\n  fix: {fix}"
        ));
    }
    let what = if report.master_written { "rewritten" } else { "needed no change" };
    let missing = match report.images_missing() {
        0 => String::new(),
        n => format!(", {} of them missing", text::count(n)),
    };
    console::to_stdout(&format!("{}: {what}; {} images{missing}", report.master.display(), text::count(report.images)));
}

/// Which images, counted from 0.
fn ranges_text(ranges: &[std::ops::Range<u64>]) -> String {
    if ranges.is_empty() {
        return String::new();
    }
    let one = |range: &std::ops::Range<u64>| match range.end - range.start {
        1 => range.start.to_string(),
        _ => format!("{} to {}", range.start, range.end - 1),
    };
    let list: Vec<String> = ranges.iter().take(LISTED_MAX).map(one).collect();
    let more = if ranges.len() > LISTED_MAX { ", ..." } else { "" };
    format!(" ({}{more}, counted from 0)", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::ranges_text;

    #[test]
    fn images_are_named_as_ranges() {
        assert_eq!(ranges_text(&[]), "");
        assert_eq!(ranges_text(&[3..4, 7..10]), " (3, 7 to 9, counted from 0)");
        let many: Vec<_> = (0..12).map(|n| 2 * n..2 * n + 1).collect();
        assert!(ranges_text(&many).ends_with("18, ..., counted from 0)"));
    }
}
