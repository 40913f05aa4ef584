//! `konkordia bench kernels`

use super::args::BenchKernelsArgs;
use super::output::Output;
use super::rows::{KernelRow, codecs, run, steps};
use super::{frames, split};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Largest number of rows of the first table (with the widest instruction set). The table gets `--seconds` for each of
/// them.
const ROWS_MAX: f64 = 26.0;
/// The same for the other tables.
const STEPS_MAX: f64 = 12.0;
const CODECS_MAX: f64 = 14.0;
const SPLIT_MAX: f64 = 2.0;

/// `konkordia bench kernels`
pub fn command(args: &BenchKernelsArgs) -> Result<Exit, Failure> {
    frames::with_folder(|folder| measure(args, folder))
}

/// A table of rows that were measured together.
struct Table {
    title: &'static str,
    rows: Vec<KernelRow>,
}

fn measure(args: &BenchKernelsArgs, folder: &Path) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "kernels")?;
    let frames = frames::load(&args.frames, folder)?;
    let view = frames.constants.view();
    let budget = |rows: f64| Duration::from_secs_f64((args.seconds * rows).clamp(0.01, 3600.0));
    let refused = |why: String| {
        Failure::new(Exit::Usage, "the kernels cannot be measured", why, "give frames of one module and its calibration")
    };
    let tables = [
        Table { title: "kernels", rows: run(&frames.raw, &view, budget(ROWS_MAX)).map_err(refused)? },
        Table { title: "steps, strip by strip", rows: steps::run(&frames.raw, &view, budget(STEPS_MAX)).map_err(refused)? },
        Table { title: "double pixels, strip by strip", rows: split::run(&frames.raw, &view, budget(SPLIT_MAX)) },
        Table {
            title: "codecs without transposition",
            rows: codecs::run(&frames.raw, &view, budget(CODECS_MAX)).map_err(refused)?,
        },
    ];
    let verified = tables.iter().flat_map(|t| &t.rows).all(|r| r.verified);
    let row = |r: &KernelRow| {
        json!({
            "name": r.name, "instruction_set": r.isa.name(), "gigabytes_raw_per_second": r.gb_per_s_raw,
            "ratio_to_plain": r.ratio_to_baseline, "bits_per_pixel": r.bits_per_pixel, "verified": r.verified,
        })
    };
    let rows = |t: &Table| json!(t.rows.iter().map(row).collect::<Vec<_>>());
    let [kernels, steps, split, codecs] = &tables;
    let report = json!({
        "machine": machine::facts(), "frames": frames.source, "frame_count": frames.raw.len(), "rows": rows(kernels),
        "steps": rows(steps), "double_pixels": rows(split), "codecs": rows(codecs), "verified": verified,
    });
    let head = format!(
        "{}\n{} frames ({}); GB/s of raw input on one core, medians; ratio: to the row 'plain' of the same work",
        machine::line(),
        frames.raw.len(),
        frames.source
    );
    let parts = tables.iter().map(|t| format!("{}\n{}", t.title, table(&t.rows)));
    output.print(report, &std::iter::once(head).chain(parts).collect::<Vec<_>>().join("\n\n"));
    // A wrong result is a bug in the program, however fast it was.
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

fn table(rows: &[KernelRow]) -> String {
    let head = ["kernel", "instructions", "GB/s", "ratio", "bit/pixel", "output"].map(str::to_string).to_vec();
    let line = |r: &KernelRow| {
        vec![
            r.name.to_string(),
            r.isa.name().to_string(),
            format!("{:.2}", r.gb_per_s_raw),
            format!("{:.2}", r.ratio_to_baseline),
            r.bits_per_pixel.map_or(String::new(), |b| format!("{b:.3}")),
            if r.verified { "equal".into() } else { "WRONG".into() },
        ]
    };
    text::table(&std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>())
}
