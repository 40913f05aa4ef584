//! `output.xds`: whether XDS is to read the files.

use super::diagnostics::Diagnostics;
use super::read::Table;
use super::shared_keys::layout;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Recipe};
use konkordia_core::xds::{self, XdsProblem};

/// Reads the key. If it is true, each of `problems` is reported as an error.
fn read(output: &Table, d: &mut Diagnostics, problems: &[XdsProblem]) -> Option<bool> {
    let asked = output.flag("xds");
    for problem in problems.iter().filter(|_| asked == Some(true)) {
        let what = format!("output.xds: XDS would misread the files ({})", problem.key);
        let fix = format!("{}, or remove xds = true", problem.fix);
        d.add(output.span("xds"), what, problem.what.clone(), fix);
    }
    asked
}

/// [`read`] for a UDP run.
pub(super) fn of_run(
    output: &Table,
    d: &mut Diagnostics,
    (recipe, pixel): (Recipe, PixelType),
    compression: Compression,
) -> Option<bool> {
    let problems = xds::of_run(pixel, recipe == Recipe::Raw, compression, layout(output));
    read(output, d, &problems)
}

/// [`read`] for a stream.
pub(super) fn of_stream(output: &Table, d: &mut Diagnostics) -> Option<bool> {
    let mut problems = xds::of_streams(layout(output));
    if output.text("format") == Some("maxiv") {
        let what = "XDS cannot read the layout of MAX IV".to_owned();
        problems.push(XdsProblem { key: "format", what, fix: "remove format = \"maxiv\"" });
    }
    read(output, d, &problems)
}
