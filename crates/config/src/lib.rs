//! The configuration of a run and of the service: its keys, the checks of a file, and the plan that follows from it.
//! A wrong file is answered with all of its errors, each with its line and what to do.
//! Read [`Config`] first, then [`plan::plan`]; for the service [`ServiceConfig`].
//!
//! ```
//! let text = konkordia_config::EXAMPLE;
//! let config = konkordia_config::parse(text, "example.toml".as_ref())?;
//! let plan = konkordia_config::plan::plan(&config);
//! assert!(plan.packets_per_image() > 0);
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
#![forbid(unsafe_code)]

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
pub mod settings;
mod setup;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod transform;
pub mod xds;

use konkordia_core::failure::{Exit, Failure};
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
