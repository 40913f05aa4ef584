//! `[output] spool_...`: a place in memory or on a fast disk, from which finished files move to the output folder.

use super::diagnostics::Diagnostics;
use super::read::Table;
use konkordia_core::plan::Compression;
use konkordia_core::text;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where files are written before they move to the output folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Spool {
    /// Its folder, resolved.
    pub directory: PathBuf,
    /// Most bytes that lie in it.
    pub limit_bytes: u64,
    /// How images are packed when they leave it; `None` = as they are.
    pub repack_to: Option<Compression>,
}

impl Spool {
    /// In words.
    pub fn to_text(&self) -> String {
        let repacked = self.repack_to.map_or(String::new(), |to| format!(", repacked to {} on the way out", to.text()));
        format!("at most {} in {}{repacked}", text::bytes(self.limit_bytes), self.directory.display())
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let repack_to = self.repack_to.map(Compression::text);
        json!({ "directory": self.directory, "limit_bytes": self.limit_bytes, "repack_to": repack_to })
    }
}

/// Reads the keys; `directory` is the output folder. `compression` is that of the files in the end.
pub(super) fn read(
    output: &Table,
    d: &mut Diagnostics,
    resolve: &dyn Fn(&str) -> PathBuf,
    directory: &Path,
    compression: Option<Compression>,
) -> Option<Spool> {
    let (folder, gib) = (output.text("spool_directory"), output.number("spool_gib"));
    let (folder, gib) = match (folder, gib) {
        (Some(folder), Some(gib)) => (resolve(folder), gib),
        (None, None) => {
            if output.has("spool_codec") {
                let fix = "add spool_directory and spool_gib, or remove the line";
                d.add(output.span("spool_codec"), "output.spool_codec without a spool", "", fix);
            }
            return None;
        }
        (Some(_), None) => {
            // The reader has reported a limit with a wrong value.
            if !output.has("spool_gib") {
                let why = "the limit keeps the spool from taking all memory or the whole disk";
                let fix = "add spool_gib = ... (GiB)";
                d.add(output.span("spool_directory"), "output.spool_directory without spool_gib", why, fix);
            }
            return None;
        }
        (None, Some(_)) => {
            let fix = "add spool_directory = ..., such as \"/dev/shm/konkordia\", or remove the line";
            d.add(output.span("spool_gib"), "output.spool_gib without spool_directory", "", fix);
            return None;
        }
    };
    if folder == directory {
        let what = "output.spool_directory is the output folder";
        let fix = "give a folder in memory (/dev/shm/...) or on a faster disk, or remove the spool";
        d.add(output.span("spool_directory"), what, "files would move to where they are", fix);
    }
    if output.flag("keep_raw").unwrap_or(false) {
        let what = "output.keep_raw does not go with a spool";
        let why = "raw frames are written straight to the output folder, which is too slow for them if it needs a spool";
        d.add(output.span("keep_raw"), what, why, "remove keep_raw or the spool");
    }
    if output.text("format") == Some("maxiv") {
        let what = "output.spool_directory does not go with format = \"maxiv\"";
        let why = "that layout is one file, which grows until the end: nothing of it could move before";
        d.add(output.span("spool_directory"), what, why, "remove the spool, or the format");
    }
    let repack_to = compression.filter(|_| output.has("spool_codec"));
    Some(Spool { directory: folder, limit_bytes: (gib * f64::from(1 << 30)) as u64, repack_to })
}

/// The compression with which images are written: that of the spool, if it has one of its own.
pub(super) fn codec(output: &Table, compression: Compression) -> Compression {
    output.text("spool_codec").and_then(|text| Compression::parse(text, None).ok()).unwrap_or(compression)
}
