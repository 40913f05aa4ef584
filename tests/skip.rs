//! How a Rust test says that it does not run on this machine: `cargo test` itself knows only "passed" and "failed".
//! Each such test adds one line to the file that KONKORDIA_SKIPPED names; `scripts/test` shows these lines, counts them
//! as skipped, and subtracts them from the passed tests. Used with `#[path = ".../tests/skip.rs"] mod skip;`.
#![allow(dead_code)]

use std::io::Write;
use std::path::PathBuf;

/// The real detector data beside the checkout, or the folder that KONKORDIA_DATA names.
pub fn data_root() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    std::env::var_os("KONKORDIA_DATA").map_or_else(|| beside.into(), PathBuf::from)
}

/// A file or folder of the real data; where it is absent the calling test counts as skipped and must return.
#[track_caller]
pub fn data(name: &str) -> Option<PathBuf> {
    let path = data_root().join(name);
    if path.exists() {
        return Some(path);
    }
    skipped(&format!("no real data in {}", path.display()));
    None
}

/// Counts the calling test as skipped, because of `why`; it must return then.
#[track_caller]
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let place = std::panic::Location::caller().to_string();
    // A test runs in a thread of its name, except where there is one thread only.
    let test = thread.name().filter(|name| *name != "main").unwrap_or(&place);
    let line = format!("skipped: {} {test}: {why}\n", env!("CARGO_PKG_NAME"));
    print!("{line}");
    if let Some(path) = std::env::var_os("KONKORDIA_SKIPPED") {
        let opened = std::fs::File::options().append(true).create(true).open(&path);
        // One write for the line: several programs append to the file.
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|why| panic!("KONKORDIA_SKIPPED={}: {why}", path.display()));
    }
}
