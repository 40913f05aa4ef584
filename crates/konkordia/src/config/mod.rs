//! The configuration: its keys, the checks of a file, and the plan of a run that follows from it.

pub mod archive_copy;
mod calibration;
pub mod diagnostics;
pub mod geometry;
pub mod model;
pub mod overrides;
pub mod plan;
pub mod processing;
mod read;
pub mod schema;
mod schema_experiment;
mod schema_service;
pub mod service;
mod setup;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod transform;
pub mod xds;

use crate::cli::{ConfigAction, ConfigArgs};
use crate::failure::{Exit, Failure};
use crate::{calibration as loading, console};
pub use model::Config;
pub use service::{DetectorKindConfig, ServiceConfig};
use std::path::Path;

/// A commented example that is itself valid.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Reads and checks a file. The failure lists all errors, each with its line.
pub fn load(path: &Path) -> Result<Config, Failure> {
    parse(&text_of(path)?, path)
}

/// The text of a configuration.
fn text_of(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read(path).map_err(|error| Failure {
        exit: Exit::Configuration,
        fix: "check the path; `konkordia config init` writes an example".into(),
        ..Failure::io("cannot read the configuration", path, &error)
    })?;
    String::from_utf8(text).map_err(|error| {
        let why = format!("byte {} is not UTF-8", error.utf8_error().valid_up_to());
        let what = format!("the configuration {} is not text", path.display());
        Failure::new(Exit::Configuration, what, why, "TOML is text; `konkordia config init` writes an example")
    })
}

/// Checks a text as [`load`] does. `path` names it in messages; relative paths in it start at the folder of `path`.
pub fn parse(text: &str, path: &Path) -> Result<Config, Failure> {
    Config::parse(text, path).map_err(Failure::from)
}

impl From<diagnostics::Diagnostics> for Failure {
    fn from(all: diagnostics::Diagnostics) -> Self {
        let n = all.found.len();
        let what = format!("{} has {n} error{}", all.file, if n == 1 { "" } else { "s" });
        let why: Vec<String> = all.found.iter().map(|one| format!("{}: {}; {}", all.place(one), one.what, one.fix)).collect();
        let fix = "correct the file; docs/configuration.md explains every key";
        Self { excerpts: all.to_string(), ..Self::new(Exit::Configuration, what, why.join("\n"), fix) }
    }
}

/// `konkordia config ...`
pub fn command(args: &ConfigArgs) -> Result<Exit, Failure> {
    match &args.action {
        ConfigAction::Init { file: None } => console::to_stdout(EXAMPLE.trim_end()),
        ConfigAction::Init { file: Some(path) } => {
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).open(path);
            let mut file = file.map_err(|error| Failure::io("cannot create", path, &error))?;
            let written = std::io::Write::write_all(&mut file, EXAMPLE.as_bytes());
            written.map_err(|error| Failure::io("cannot write", path, &error))?;
            console::to_stderr(&format!("wrote {0}; edit it, then: konkordia config check {0}", path.display()));
        }
        ConfigAction::Openapi => console::to_stdout(crate::serve::http::openapi::text().trim_end()),
        ConfigAction::Schema { markdown: false } => console::json(&schema::json_schema(), false),
        ConfigAction::Schema { markdown: true } => console::to_stdout(schema::markdown().trim_end()),
        ConfigAction::Check { file, json } => return check(file, *json),
    }
    Ok(Exit::Complete)
}

/// Prints the plan and notes, and reports problems outside the file: missing folders, unusable calibrations.
fn check(path: &Path, json: bool) -> Result<Exit, Failure> {
    let service = service::load(path)?;
    // A configuration of one UDP detector may be meant for `receive`: then only its plan is printed.
    if let [only] = &service.detectors[..]
        && let DetectorKindConfig::Udp(config) = &only.kind
    {
        let plan = plan::plan(config);
        if json {
            console::json(&plan::to_json(config, &plan), false);
        } else {
            console::to_stdout(&format!("{} is valid; the plan:\n{}", path.display(), plan::describe(config, &plan)));
        }
    } else {
        describe_service(path, &service, json);
    }
    for detector in &service.detectors {
        let notes = match &detector.kind {
            DetectorKindConfig::Udp(config) => xds::notes(config),
            DetectorKindConfig::Stream(config) => xds::stream_notes(config),
        };
        notes.iter().for_each(|note| console::to_stderr(&format!("note: {note}")));
    }
    // Folders and calibration files may still be made before the run, but it helps to report missing ones now.
    let mut exit = Exit::Complete;
    let mut outside = |failure: Failure| {
        console::to_stderr(&failure.to_string());
        exit = Exit::Configuration;
    };
    for detector in &service.detectors {
        let directory = detector.directory();
        if !directory.is_dir() {
            let what = format!("the output folder {} does not exist", directory.display());
            let fix = format!("mkdir -p {}", directory.display());
            outside(Failure::new(Exit::Configuration, what, "konkordia creates files, not folders", fix));
        }
        if let DetectorKindConfig::Udp(config) = &detector.kind
            && let Some(files) = &config.calibration
            && let Err(failure) = loading::load(config, files)
        {
            outside(failure);
        }
    }
    Ok(exit)
}

fn describe_service(path: &Path, service: &ServiceConfig, json: bool) {
    let describe = |detector: &service::DetectorConfig| match &detector.kind {
        DetectorKindConfig::Udp(config) => plan::describe(config, &plan::plan(config)),
        DetectorKindConfig::Stream(config) => stream::describe(config),
    };
    if json {
        let detectors: serde_json::Map<String, serde_json::Value> =
            service.detectors.iter().map(|d| (d.name.clone(), d.to_json())).collect();
        let http = &service.settings.http;
        console::json(&serde_json::json!({ "listen": http.listen.to_string(), "detectors": detectors }), false);
        return;
    }
    console::to_stdout(&format!("{} is valid; the service listens on {}", path.display(), service.settings.http.listen));
    for detector in &service.detectors {
        console::to_stdout(&format!("\n{} ({})\n{}", detector.name, detector.file.display(), describe(detector)));
    }
}
