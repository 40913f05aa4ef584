//! `konkordia check`: is a file whole and valid?

use super::args::FileArgs;
use super::looked::Looked;
use super::others;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_kernels::codec::decode;
use konkordia_sinks::hdf5::others::is_ours;
use konkordia_sinks::hdf5::{self, Reader, Severity};
use serde_json::json;

/// `konkordia check FILE`
pub fn command(args: &FileArgs) -> Result<Exit, Failure> {
    // A path that does not exist is not a damaged file.
    std::fs::metadata(&args.file).map_err(|e| Failure::io("cannot read", &args.file, &e))?;
    let (findings, looked) = if is_ours(&args.file) == Some(false) {
        others::check(&args.file, args.structure)?
    } else {
        let findings = if args.structure { hdf5::check_structure(&args.file) } else { hdf5::check(&args.file, &decode) };
        (findings, Reader::open(&args.file).map_or_else(|_| Looked::default(), |reader| Looked::at(reader.summary())))
    };
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let whole = errors == 0 && looked.is_complete;
    if args.json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| {
                let severity = if f.severity == Severity::Error { "error" } else { "warning" };
                json!({ "severity": severity, "what": f.what, "place": f.place, "fix": f.fix })
            })
            .collect();
        let counts = looked.by_status.map(|counts| counts.into_iter().map(|(name, n)| (name.replace(' ', "_"), json!(n))));
        let counts = counts.map(|counts| counts.collect::<serde_json::Map<_, _>>());
        let value = json!({
            "file": args.file, "valid": errors == 0, "whole": whole, "images": looked.images, "images_by_status": counts, "findings": list,
        });
        console::json(&value, false);
    } else {
        for f in &findings {
            let severity = if f.severity == Severity::Error { "error" } else { "warning" };
            console::to_stdout(&format!("{severity}: {}\n  in:  {}\n  fix: {}", f.what, f.place, f.fix));
        }
        if let Some(by_status) = looked.by_status.as_ref().filter(|_| looked.images.is_some_and(|n| n > 0)) {
            console::to_stdout(&format!("images: {}", counts(by_status)));
        }
        let warnings = findings.len() - errors;
        let images = looked.images.map_or(String::new(), |n| format!(", {} images", text::count(n)));
        let verdict = match (errors, whole) {
            (0, true) if args.structure => "whole and valid in its structure (no image was read)",
            (0, true) => "whole and valid",
            (0, false) => "valid, but NOT every image is complete",
            _ => "NOT whole and valid",
        };
        console::to_stdout(&format!("{} is {verdict}: {errors} error(s), {warnings} warning(s){images}", args.file.display()));
    }
    Ok(if errors == 0 { Exit::Complete } else { Exit::Incomplete })
}

/// Number of images by status, as text.
fn counts(by_status: &[(&'static str, u64)]) -> String {
    let always = ["complete", "partial", "lost", "discarded"];
    let shown = by_status.iter().filter(|(name, n)| *n > 0 || always.contains(name));
    shown.map(|(name, n)| format!("{} {name}", text::count(*n))).collect::<Vec<_>>().join(", ")
}
