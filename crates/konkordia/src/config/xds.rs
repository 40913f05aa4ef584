//! `output.xds`: whether XDS is to read the files, and what its plug-ins would misread in those that are configured.

use super::diagnostics::Diagnostics;
use super::model::Config;
use super::read::Table;
use super::stream::StreamConfig;
use konkordia_core::plan::{Compression, Recipe};
use konkordia_sinks::hdf5::{XdsProblem, xds_problems, xds_problems_of_streams};

/// The key, and what is in its way where it is set to true.
pub(super) fn read(output: &Table, d: &mut Diagnostics, problems: &[XdsProblem]) -> Option<bool> {
    let asked = output.flag("xds");
    for problem in problems.iter().filter(|_| asked == Some(true)) {
        let what = format!("output.xds: XDS would misread the files ({})", problem.key);
        let fix = format!("{}, or remove xds = true", problem.fix);
        d.add(output.span("xds"), what, problem.what.clone(), fix);
    }
    asked
}

/// What XDS would misread; said where nobody has said whether XDS is to read the files.
pub fn notes(config: &Config) -> Vec<String> {
    let problems = xds_problems(config.pixel, config.recipe == Recipe::Raw, config.compression, config.layout);
    said(config.xds, &problems)
}

/// The same of a stream.
pub fn stream_notes(config: &StreamConfig) -> Vec<String> {
    if config.append_dataset.is_some() {
        // The layout of MAX IV, which no plug-in of XDS reads and nobody expects it to.
        return Vec::new();
    }
    said(config.xds, &xds_problems_of_streams(config.layout))
}

fn said(asked: Option<bool>, problems: &[XdsProblem]) -> Vec<String> {
    let said = |problem: &XdsProblem| {
        let XdsProblem { what, fix, .. } = problem;
        format!("XDS would misread these files: {what}; if XDS is to read them, {fix}; if not, set xds = false in [output]")
    };
    if asked.is_some() { Vec::new() } else { problems.iter().map(said).collect() }
}

/// For a run: see [`read`].
pub(super) fn of_run(
    output: &Table,
    d: &mut Diagnostics,
    (recipe, pixel): (Recipe, konkordia_core::pixel::PixelType),
    compression: Compression,
) -> Option<bool> {
    let problems = xds_problems(pixel, recipe == Recipe::Raw, compression, super::model::layout(output));
    read(output, d, &problems)
}

/// For a stream: see [`read`].
pub(super) fn of_stream(output: &Table, d: &mut Diagnostics) -> Option<bool> {
    let mut problems = xds_problems_of_streams(super::model::layout(output));
    if output.text("format") == Some("maxiv") {
        let what = "XDS knows nothing of the layout of MAX IV".to_owned();
        problems.push(XdsProblem { key: "format", what, fix: "remove format = \"maxiv\"" });
    }
    read(output, d, &problems)
}
