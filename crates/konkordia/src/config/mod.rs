//! The configuration of a run: what it may hold, what is wrong with it, and the plan that follows from it.

mod calibration;
pub mod diagnostics;
pub mod geometry;
pub mod model;
pub mod plan;
pub mod processing;
mod read;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod travel;

use crate::cli::{ConfigAction, ConfigArgs};
use crate::failure::{Exit, Failure};
use crate::{calibration as loading, say};
pub use model::Config;
use std::path::Path;

/// A commented example that is itself valid.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Reads and checks a file. Errors in it are printed here, each with its line; the failure that comes back sums them up.
pub fn load(path: &Path) -> Result<Config, Failure> {
    let text = std::fs::read(path).map_err(|error| Failure {
        exit: Exit::Configuration,
        fix: "check the path; `konkordia config init` writes an example".into(),
        ..Failure::io("cannot read the configuration", path, &error)
    })?;
    let text = String::from_utf8(text).map_err(|error| {
        let why = format!("byte {} is not UTF-8", error.utf8_error().valid_up_to());
        let what = format!("the configuration {} is not text", path.display());
        Failure::new(Exit::Configuration, what, why, "TOML is text; `konkordia config init` writes an example")
    })?;
    parse(&text, path)
}

/// Checks a text as [`load`] does; `path` names it, and relative paths count from its folder.
pub fn parse(text: &str, path: &Path) -> Result<Config, Failure> {
    Config::parse(text, path).map_err(|found| {
        say::to_stderr(&found.to_string());
        let n = found.found.len();
        let what = format!("{} has {n} mistake{}", found.file, if n == 1 { "" } else { "s" });
        Failure::new(Exit::Configuration, what, "see above", "correct the file; docs/configuration.md explains every key")
    })
}

/// `konkordia config ...`
pub fn command(args: &ConfigArgs) -> Result<Exit, Failure> {
    match &args.action {
        ConfigAction::Init { file: None } => say::to_stdout(EXAMPLE.trim_end()),
        ConfigAction::Init { file: Some(path) } => {
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).open(path);
            let mut file = file.map_err(|error| Failure::io("cannot create", path, &error))?;
            let written = std::io::Write::write_all(&mut file, EXAMPLE.as_bytes());
            written.map_err(|error| Failure::io("cannot write", path, &error))?;
            say::to_stderr(&format!("wrote {0}; edit it, then: konkordia config check {0}", path.display()));
        }
        ConfigAction::Schema { markdown: false } => say::json(&schema::json_schema(), false),
        ConfigAction::Schema { markdown: true } => say::to_stdout(schema::markdown().trim_end()),
        ConfigAction::Check { file, json } => return check(file, *json),
    }
    Ok(Exit::Complete)
}

/// Prints the plan, and everything else that can be known before a run.
fn check(path: &Path, json: bool) -> Result<Exit, Failure> {
    let config = load(path)?;
    let plan = plan::plan(&config);
    if json {
        say::json(&plan::to_json(&config, &plan), false);
    } else {
        say::to_stdout(&format!("{} is valid; the plan:\n{}", path.display(), plan::describe(&config, &plan)));
    }
    // What lies outside the file may come later (a folder that is made before the run), but is worth a word now.
    let mut exit = Exit::Complete;
    let mut outside = |failure: Failure| {
        say::to_stderr(&failure.to_string());
        exit = Exit::Configuration;
    };
    if !config.directory.is_dir() {
        let what = format!("the output folder {} does not exist", config.directory.display());
        outside(Failure::new(
            Exit::Configuration,
            what,
            "konkordia creates files, not folders",
            format!("mkdir -p {}", config.directory.display()),
        ));
    }
    if let Some(files) = &config.calibration
        && let Err(failure) = loading::load(&config, files)
    {
        outside(failure);
    }
    Ok(exit)
}
