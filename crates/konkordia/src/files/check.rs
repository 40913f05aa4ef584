//! `konkordia check`: is a file whole and valid?

use super::decode;
use crate::cli::FileArgs;
use crate::failure::{Exit, Failure};
use crate::say;
use konkordia_sinks::hdf5::{self, Reader, Severity};
use serde_json::json;

/// `konkordia check FILE`
pub fn command(args: &FileArgs) -> Result<Exit, Failure> {
    // A path with a typo is not a damaged file.
    std::fs::metadata(&args.file).map_err(|e| Failure::io("cannot read", &args.file, &e))?;
    let findings = hdf5::check(&args.file, &decode);
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let images = Reader::open(&args.file).ok().map(|r| r.summary().images);
    if args.json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| {
                let severity = if f.severity == Severity::Error { "error" } else { "warning" };
                json!({ "severity": severity, "what": f.what, "place": f.place, "fix": f.fix })
            })
            .collect();
        say::json(&json!({ "file": args.file, "valid": errors == 0, "images": images, "findings": list }), false);
    } else {
        for f in &findings {
            let severity = if f.severity == Severity::Error { "error" } else { "warning" };
            say::to_stdout(&format!("{severity}: {}\n  in:  {}\n  fix: {}", f.what, f.place, f.fix));
        }
        let warnings = findings.len() - errors;
        let images = images.map_or(String::new(), |n| format!(", {} images", say::count(n)));
        let verdict = if errors == 0 { "whole and valid" } else { "NOT whole and valid" };
        say::to_stdout(&format!("{} is {verdict}: {errors} error(s), {warnings} warning(s){images}", args.file.display()));
    }
    Ok(if errors == 0 { Exit::Complete } else { Exit::Incomplete })
}
