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

mod adapters;
pub mod alarms;
pub mod archive_copy;
mod calibration;
pub mod control;
pub mod diagnostics;
mod excalibur;
mod facts;
pub mod geometry;
mod gpu;
pub mod image_metadata;
pub mod live_analysis;
pub mod model;
mod not_sls;
pub mod overrides;
mod part;
pub mod plan;
pub mod processing;
mod read;
pub mod recipe;
mod roce;
pub mod schema;
mod schema_analysis;
mod schema_experiment;
mod schema_gpu;
mod schema_images;
mod schema_key;
mod schema_service;
mod schema_source;
pub mod service;
pub mod settings;
mod setup;
mod shared_keys;
pub mod spool;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod transform;
mod values;
pub mod words;
pub mod writers;
pub mod xds;
mod xds_key;
mod xfel_train;

use konkordia_core::failure::{Exit, Failure};
pub use model::Config;
pub use service::{DetectorKindConfig, ServiceConfig};
use std::path::Path;

/// A commented example that is itself valid.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Reads and checks the configuration of one run over UDP. Relative paths in it start at the folder of the file.
///
/// # Errors
/// The file cannot be read, or is wrong: then the failure lists all errors, each with its line.
pub fn load(path: &Path) -> Result<Config, Failure> {
    parse(&read::text_of(path)?, path)
}

/// Checks a text as [`load`] does. `path` names it in messages; relative paths in it start at the folder of `path`.
///
/// # Errors
/// The text is wrong: the failure lists all errors, each with its line.
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
