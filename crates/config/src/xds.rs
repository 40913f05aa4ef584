//! What the plug-ins of XDS would misread in the files.

use super::model::Config;
use super::stream::StreamConfig;
use konkordia_core::plan::Recipe;
use konkordia_core::xds::{self, XdsProblem};

/// Notes on what XDS would misread; empty if `output.xds` is set.
pub fn notes(config: &Config) -> Vec<String> {
    let compression = config.spool.as_ref().and_then(|spool| spool.repack_to).unwrap_or(config.compression);
    let problems = xds::of_run(config.pixel, config.recipe == Recipe::Raw, compression, config.layout);
    notes_on(config.xds, &problems)
}

/// As [`notes`], for a stream.
pub fn stream_notes(config: &StreamConfig) -> Vec<String> {
    if config.append_dataset.is_some() {
        // No plug-in of XDS reads the layout of MAX IV, and nobody expects it.
        return Vec::new();
    }
    notes_on(config.xds, &xds::of_streams(config.layout))
}

fn notes_on(asked: Option<bool>, problems: &[XdsProblem]) -> Vec<String> {
    let note = |problem: &XdsProblem| {
        let XdsProblem { what, fix, .. } = problem;
        format!("XDS would misread these files: {what}; if XDS is to read them, {fix}; if not, set xds = false in [output]")
    };
    if asked.is_some() { Vec::new() } else { problems.iter().map(note).collect() }
}
