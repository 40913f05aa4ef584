//! `konkordia repair`: makes readable what a killed run left behind, and what can still be read of damaged files.

use crate::cli::FileArgs;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sinks::hdf5;
use serde_json::json;

/// Largest number of ranges of images that are listed.
const LISTED_MAX: usize = 10;

/// `konkordia repair FILE`
pub fn command(args: &FileArgs) -> Result<Exit, Failure> {
    let report = hdf5::repair(&args.file)?;
    let exit = if report.missing.is_empty() && !report.mask_missing { Exit::Complete } else { Exit::Incomplete };
    if args.json {
        let missing = |m: &hdf5::MissingImages| {
            let ranges: Vec<_> = m.ranges.iter().map(|range| [range.start, range.end - 1]).collect();
            json!({ "images": m.images, "first_and_last": ranges, "why": m.why, "fix": m.fix })
        };
        let value = json!({
            "master": report.master, "rebuilt": report.rebuilt, "rescued": report.rescued, "master_written": report.master_written,
            "images": report.images, "images_missing": report.images_missing(),
            "missing": report.missing.iter().map(missing).collect::<Vec<_>>(), "mask_missing": report.mask_missing, "notes": report.notes,
        });
        console::json(&value, false);
        return Ok(exit);
    }
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
    Ok(exit)
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
