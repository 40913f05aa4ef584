//! `output.xds`: whether XDS is to read the files, and what its plug-ins would misread in them.

use super::diagnostics::Diagnostics;
use super::model::Config;
use super::read::Table;
use super::stream::StreamConfig;
use konkordia_core::plan::{Compression, Recipe};
use konkordia_core::xds::{self, XdsProblem};

/// Reads the key. If it is true, each of `problems` is reported as an error.
pub(super) fn read(output: &Table, d: &mut Diagnostics, problems: &[XdsProblem]) -> Option<bool> {
    let asked = output.flag("xds");
    for problem in problems.iter().filter(|_| asked == Some(true)) {
        let what = format!("output.xds: XDS would misread the files ({})", problem.key);
        let fix = format!("{}, or remove xds = true", problem.fix);
        d.add(output.span("xds"), what, problem.what.clone(), fix);
    }
    asked
}

/// Notes on what XDS would misread; empty if `output.xds` is set.
pub fn notes(config: &Config) -> Vec<String> {
    let problems = xds::of_run(config.pixel, config.recipe == Recipe::Raw, config.compression, config.layout);
    said(config.xds, &problems)
}

/// As [`notes`], for a stream.
pub fn stream_notes(config: &StreamConfig) -> Vec<String> {
    if config.append_dataset.is_some() {
        // No plug-in of XDS reads the layout of MAX IV, and nobody expects it.
        return Vec::new();
    }
    said(config.xds, &xds::of_streams(config.layout))
}

fn said(asked: Option<bool>, problems: &[XdsProblem]) -> Vec<String> {
    let said = |problem: &XdsProblem| {
        let XdsProblem { what, fix, .. } = problem;
        format!("XDS would misread these files: {what}; if XDS is to read them, {fix}; if not, set xds = false in [output]")
    };
    if asked.is_some() { Vec::new() } else { problems.iter().map(said).collect() }
}

/// [`read`] for a UDP run.
pub(super) fn of_run(
    output: &Table,
    d: &mut Diagnostics,
    (recipe, pixel): (Recipe, konkordia_core::pixel::PixelType),
    compression: Compression,
) -> Option<bool> {
    let problems = xds::of_run(pixel, recipe == Recipe::Raw, compression, super::model::layout(output));
    read(output, d, &problems)
}

/// [`read`] for a stream.
pub(super) fn of_stream(output: &Table, d: &mut Diagnostics) -> Option<bool> {
    let mut problems = xds::of_streams(super::model::layout(output));
    if output.text("format") == Some("maxiv") {
        let what = "XDS cannot read the layout of MAX IV".to_owned();
        problems.push(XdsProblem { key: "format", what, fix: "remove format = \"maxiv\"" });
    }
    read(output, d, &problems)
}
