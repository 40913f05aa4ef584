//! Keys that packets and streams share.

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use super::schema;
use konkordia_core::geometry::{Orientation, Quarter};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::output::{Layout, Overwrite};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `flip_rows`, `flip_columns` and `rotate_deg` of `t`; messages call it `table`.
pub(super) fn quarter_turns(t: &Table, d: &mut Diagnostics, table: &str) -> Option<Orientation> {
    let degrees = t.integer("rotate_deg").unwrap_or(0);
    let Some(rotate) = u32::try_from(degrees).ok().and_then(Quarter::from_deg) else {
        let what = format!("{table}.rotate_deg: {degrees} is not a quarter turn");
        let fix = "give 0, 90, 180 or 270, clockwise as seen in the image";
        d.add(t.span("rotate_deg"), what, "images are turned without interpolation", fix);
        return None;
    };
    let flip = |name| t.flag(name).unwrap_or(false);
    Some(Orientation::new(flip("flip_rows"), flip("flip_columns"), rotate))
}

/// A required text key; reports it if it is missing. The reader has already reported a key with a wrong value.
pub(super) fn required(document: &Document, d: &mut Diagnostics, table: &str, name: &str) -> Option<String> {
    let t = document.table(table);
    if let Some(text) = t.text(name) {
        return Some(text.to_string());
    }
    let key = schema::find(table, name)?;
    if !d.found.iter().any(|f| f.what.starts_with(&format!("{table}.{name}:"))) {
        let what = format!("[{table}] has no '{name}'");
        d.add(t.span.clone(), what, "", format!("add {name} = ... ({})", key.doc));
    }
    None
}

/// Reports an `output.prefix` that is not a plain file name.
pub(super) fn check_prefix(output: &Table, d: &mut Diagnostics) {
    let bad = |p: &str| p.starts_with('.') || p.contains(['/', '\0']) || p.len() > 200;
    if let Some(prefix) = output.text("prefix").filter(|p| bad(p)) {
        let what = format!("output.prefix: \"{prefix}\" is not a plain file name of at most 200 bytes");
        d.add(output.span("prefix"), what, "", "put the folder into output.directory");
    }
}

/// `processing.missing`
pub(super) fn missing(processing: &Table) -> MissingPolicy {
    match processing.text("missing") {
        Some("discard") => MissingPolicy::Discard,
        Some("complete-only") => MissingPolicy::CompleteOnly,
        _ => MissingPolicy::Keep,
    }
}

/// `output.overwrite`
pub(super) fn overwrite(output: &Table) -> Overwrite {
    if output.text("overwrite") == Some("replace") { Overwrite::Replace } else { Overwrite::Refuse }
}

/// `output.sync_interval_s`
pub(super) fn sync_interval(output: &Table) -> Option<Duration> {
    let seconds = output.number("sync_interval_s").unwrap_or(2.0);
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
}

/// `output.layout`
pub(super) fn layout(output: &Table) -> Layout {
    match output.text("layout") {
        Some("virtual") => Layout::Virtual,
        Some("links") => Layout::Links,
        _ => Layout::Both,
    }
}

/// `run.start_timeout_s` in nanoseconds; a key of 0 means no limit.
pub(super) fn start_timeout_ns(run: &Table) -> u64 {
    match run.number("start_timeout_s").unwrap_or(60.0) {
        0.0 => u64::MAX,
        seconds => (seconds * 1e9) as u64,
    }
}

/// The path, relative to the folder of the configuration file.
pub fn resolve(file: &Path, path: &str) -> PathBuf {
    let joined = file.parent().unwrap_or(Path::new("")).join(path);
    // Removes the "." from "folder/./file".
    let clean: PathBuf = joined.components().collect();
    if clean.as_os_str().is_empty() { PathBuf::from(".") } else { clean }
}
