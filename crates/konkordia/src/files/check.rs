//! `konkordia check`: is a file whole and valid?

use super::decode;
use crate::cli::FileArgs;
use crate::failure::{Exit, Failure};
use crate::say;
use konkordia_sinks::hdf5::{self, Reader, Severity, Summary};
use serde_json::json;

/// `konkordia check FILE`
pub fn command(args: &FileArgs) -> Result<Exit, Failure> {
    // A path with a typo is not a damaged file.
    std::fs::metadata(&args.file).map_err(|e| Failure::io("cannot read", &args.file, &e))?;
    let findings = hdf5::check(&args.file, &decode);
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let summary = Reader::open(&args.file).ok().map(|r| r.summary().clone());
    let whole = errors == 0 && summary.as_ref().is_some_and(is_whole);
    if args.json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| {
                let severity = if f.severity == Severity::Error { "error" } else { "warning" };
                json!({ "severity": severity, "what": f.what, "place": f.place, "fix": f.fix })
            })
            .collect();
        let counts = summary.as_ref().map(|s| s.image_counts().into_iter().map(|(name, n)| (name.replace(' ', "_"), json!(n))));
        let counts = counts.map(|counts| counts.collect::<serde_json::Map<_, _>>());
        let images = summary.as_ref().map(|s| s.images);
        let value = json!({
            "file": args.file, "valid": errors == 0, "whole": whole, "images": images, "images_by_status": counts, "findings": list,
        });
        say::json(&value, false);
    } else {
        for f in &findings {
            let severity = if f.severity == Severity::Error { "error" } else { "warning" };
            say::to_stdout(&format!("{severity}: {}\n  in:  {}\n  fix: {}", f.what, f.place, f.fix));
        }
        if let Some(summary) = summary.as_ref().filter(|summary| summary.images > 0) {
            say::to_stdout(&format!("images: {}", counts(summary)));
        }
        let warnings = findings.len() - errors;
        let images = summary.map_or(String::new(), |s| format!(", {} images", say::count(s.images)));
        let verdict = match (errors, whole) {
            (0, true) => "whole and valid",
            (0, false) => "valid, but NOT every image is complete",
            _ => "NOT whole and valid",
        };
        say::to_stdout(&format!("{} is {verdict}: {errors} error(s), {warnings} warning(s){images}", args.file.display()));
    }
    Ok(if errors == 0 { Exit::Complete } else { Exit::Incomplete })
}

/// Whether every image that the run was to have is complete, as far as the file says.
fn is_whole(summary: &Summary) -> bool {
    summary.image_counts().iter().all(|(name, n)| *n == 0 || matches!(*name, "complete" | "not taken"))
}

/// Images by what became of them, in words.
pub fn counts(summary: &Summary) -> String {
    let always = ["complete", "partial", "lost", "discarded"];
    let shown = summary.image_counts().into_iter().filter(|(name, n)| *n > 0 || always.contains(name));
    shown.map(|(name, n)| format!("{} {name}", say::count(n))).collect::<Vec<_>>().join(", ")
}
