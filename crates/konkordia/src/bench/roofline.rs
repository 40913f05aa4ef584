//! `konkordia bench roofline`: the rates of each variant of the conversion, compared with the limits of memory and
//! arithmetic on this machine and with the rates that detectors need.

use super::args::BenchRooflineArgs;
use super::frames;
use super::output::Output;
use super::rows::roofline::{Point, Variant, copy_gb_per_s, peak_gflop_per_s, points};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_kernels::Isa;
use konkordia_picture::{Axis, Series};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Cache sizes for a processor that does not report its own: first, second and third level.
const CACHES_USUAL: [usize; 3] = [32 << 10, 1 << 20, 32 << 20];
/// Detectors of the paper: name, pixels, images per second.
const DETECTORS: [(&str, f64, f64); 2] =
    [("4M at 1.1 kHz", 4.0 * 1048576.0, 1100.0), ("10M at 2.2 kHz", 10.0 * 1048576.0, 2200.0)];
/// Ways to convert a pixel: name, bytes per pixel, and the paper's GB/s for the two detectors, where it gives them.
const NEEDS: [(&str, f64, [Option<f64>; 2]); 4] = [
    ("all constants (192 bit), word, pixel", 28.0, [Some(129.0), Some(646.0)]),
    ("the same with drift (noise read, pedestal written)", 36.0, [Some(166.0), Some(830.0)]),
    ("here: constants of G0 only, word, pixel", Variant::FastPath.bytes_per_pixel(), [None, None]),
    ("here: the same with drift", Variant::Tracking.bytes_per_pixel(), [None, None]),
];

/// A level of memory and its copy rate.
struct Roof {
    name: &'static str,
    buffer_bytes: usize,
    gb_per_s: f64,
}

/// `konkordia bench roofline`
pub fn command(args: &BenchRooflineArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    frames::with_folder(|folder| measure(args, folder))
}

fn measure(args: &BenchRooflineArgs, folder: &Path) -> Result<Exit, Failure> {
    let output = Output::open(&args.frames.output, "roofline")?;
    let frames = frames::load(&args.frames, folder)?;
    let budget = |parts: f64| Duration::from_secs_f64((args.frames.seconds * parts).clamp(0.0, 3600.0));
    let roofs = roofs(budget(1.0));
    let peaks: Vec<(Isa, f64)> = Isa::available().iter().map(|isa| (*isa, peak_gflop_per_s(*isa, budget(0.25)))).collect();
    let points = points(&frames.raw, &frames.constants.view(), budget(16.0)).map_err(|why| {
        Failure::new(Exit::Usage, "the kernels cannot be measured", why, "give frames of one module and its calibration")
    })?;
    let verified = points.iter().all(|p| p.verified);
    let report = as_json(&roofs, &peaks, &points, (frames.source, frames.raw.len()));
    let head = format!("{}\n{} frames ({}); one core", machine::line(), frames.raw.len(), frames.source);
    output.print(report, &[head, roof_table(&roofs, &peaks), point_table(&points), need_table(&points)].join("\n\n"));
    if let Some(path) = &args.png {
        draw(&roofs, &peaks, &points).write(path)?;
    }
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// Copy rates of each cache, by a buffer that fits into it and not into the one before, and of the memory.
fn roofs(budget: Duration) -> Vec<Roof> {
    let [first, second, third] = caches();
    let sizes = [("L1", first / 2), ("L2", second / 2), ("L3", (third / 4).max(2 * second)), ("memory", 4 * third.max(32 << 20))];
    let roof = |(name, buffer_bytes)| Roof { name, buffer_bytes, gb_per_s: copy_gb_per_s(buffer_bytes, budget) };
    sizes.map(roof).into()
}

/// Bytes of the data caches of the first processor.
fn caches() -> [usize; 3] {
    let mut found = CACHES_USUAL;
    for index in 0..8 {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let text = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default().trim().to_string();
        let (level, kind, size) = (text("level").parse::<usize>(), text("type"), text("size"));
        let kib = size.strip_suffix('K').and_then(|n| n.parse::<usize>().ok());
        if let (Ok(level @ 1..=3), Some(kib), true) = (level, kib, kind != "Instruction") {
            found[level - 1] = kib << 10;
        }
    }
    found
}

fn name(point: &Point) -> String {
    let variant = match point.variant {
        Variant::AllBranches if point.isa == Isa::Scalar => "word by word",
        Variant::AllBranches => "all branches",
        Variant::FastPath => "G0 fast path",
        Variant::Tracking => "with tracking",
    };
    format!("{variant}, {}", order(point))
}

fn order(point: &Point) -> &'static str {
    if point.by_strip { "strip by strip" } else { "frame by frame" }
}

fn with_head(head: &[&str], lines: Vec<Vec<String>>) -> String {
    let head = head.iter().map(ToString::to_string).collect();
    text::table(&std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

fn roof_table(roofs: &[Roof], peaks: &[(Isa, f64)]) -> String {
    let roof =
        |r: &Roof| vec![format!("copy in {}", r.name), text::bytes(r.buffer_bytes as u64), format!("{:.1} GB/s", r.gb_per_s)];
    let peak = |(isa, peak): &(Isa, f64)| vec![format!("arithmetic, {isa}"), "registers".into(), format!("{peak:.1} Gflop/s")];
    with_head(&["roof", "buffer", "rate"], roofs.iter().map(roof).chain(peaks.iter().map(peak)).collect())
}

fn point_table(points: &[Point]) -> String {
    let line = |p: &Point| {
        let number = |value: f64| format!("{value:.2}");
        vec![
            name(p),
            p.isa.name().into(),
            format!("{}", p.variant.bytes_per_pixel()),
            format!("{}", p.variant.flops_per_pixel()),
            number(p.gpixels_per_s),
            number(p.gb_per_s()),
            number(p.gflop_per_s()),
            if p.verified { "equal".into() } else { "WRONG".into() },
        ]
    };
    let head = ["conversion", "instructions", "byte/pixel", "flop/pixel", "Gpixel/s", "GB/s", "Gflop/s", "output"];
    with_head(&head, points.iter().map(line).collect())
}

/// Memory traffic in GB/s that a detector needs with so many bytes per pixel.
fn need(detector: usize, bytes_per_pixel: f64) -> f64 {
    DETECTORS[detector].1 * DETECTORS[detector].2 * bytes_per_pixel / 1e9
}

fn need_table(points: &[Point]) -> String {
    let mut lines = Vec::new();
    for (name, bytes, paper) in NEEDS {
        for (detector, paper) in paper.into_iter().enumerate() {
            let paper = paper.map_or("".into(), |p| format!("{p:.0}"));
            lines.push(vec![
                name.into(),
                DETECTORS[detector].0.into(),
                format!("{bytes}"),
                format!("{:.0}", need(detector, bytes)),
                paper,
            ]);
        }
    }
    let best =
        points.iter().filter(|p| p.variant == Variant::Tracking && p.by_strip).map(|p| p.gpixels_per_s).fold(0.0, f64::max);
    let cores = DETECTORS.map(|(name, pixels, hz)| format!("{name} {:.1}", pixels * hz / 1e9 / best));
    let table = with_head(&["memory traffic", "detector", "byte/pixel", "GB/s", "paper"], lines);
    format!("{table}\n\ncores for conversion with tracking alone, at the rate above: {}", cores.join(", "))
}

fn as_json(roofs: &[Roof], peaks: &[(Isa, f64)], points: &[Point], frames: (&str, usize)) -> serde_json::Value {
    let roof = |r: &Roof| json!({ "name": r.name, "buffer_bytes": r.buffer_bytes, "gigabytes_per_second": r.gb_per_s });
    let peak = |(isa, peak): &(Isa, f64)| json!({ "instruction_set": isa.name(), "gigaflops": peak });
    let point = |p: &Point| {
        json!({
            "name": name(p), "instruction_set": p.isa.name(), "bytes_per_pixel": p.variant.bytes_per_pixel(),
            "flops_per_pixel": p.variant.flops_per_pixel(), "gigapixels_per_second": p.gpixels_per_s,
            "gigabytes_per_second": p.gb_per_s(), "gigaflops": p.gflop_per_s(), "verified": p.verified,
        })
    };
    let mut needs = Vec::new();
    for (name, bytes, paper) in NEEDS {
        for (detector, paper) in paper.into_iter().enumerate() {
            let gb_per_s = need(detector, bytes);
            let detector = DETECTORS[detector].0;
            needs.push(json!({ "name": format!("{name}, {detector}"), "gigabytes_per_second": gb_per_s, "paper": paper }));
        }
    }
    json!({
        "machine": machine::facts(), "frames": frames.0, "frame_count": frames.1, "roofs": roofs.iter().map(roof).collect::<Vec<_>>(),
        "peaks": peaks.iter().map(peak).collect::<Vec<_>>(), "rows": points.iter().map(point).collect::<Vec<_>>(), "needs": needs,
        "verified": points.iter().all(|p| p.verified),
    })
}

/// Operations per byte against operations per second: roofs as lines, variants as dots.
fn draw(roofs: &[Roof], peaks: &[(Isa, f64)], points: &[Point]) -> konkordia_picture::Picture {
    let (low, high) = (0.03, 30.0);
    let peak = peaks.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
    let line = |r: &Roof| {
        let bend = (peak / r.gb_per_s).clamp(low, high);
        vec![(low, low * r.gb_per_s), (bend, (bend * r.gb_per_s).min(peak)), (high, (high * r.gb_per_s).min(peak))]
    };
    let mut names: Vec<String> = roofs.iter().map(|r| format!("copy in {}, {:.0} GB/s", r.name, r.gb_per_s)).collect();
    names.extend(points.iter().map(|p| format!("{}, {}: {:.1}", name(p), p.isa, p.gflop_per_s())));
    let lines = roofs.iter().map(|r| (line(r), true));
    let dots = points.iter().map(|p| (vec![(p.gflop_per_s() / p.gb_per_s(), p.gflop_per_s())], false));
    let series: Vec<Series<'_>> =
        names.iter().zip(lines.chain(dots)).map(|(name, (points, line))| Series { name, points, line }).collect();
    let axis = |label| Axis { label, log: true };
    konkordia_picture::chart("Conversion of JUNGFRAU words, one core", &axis("flop per byte"), &axis("Gflop/s"), &series)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the paper follow from bits per pixel and rates alone.
    #[test]
    fn the_traffic_is_that_of_the_paper() {
        for (_, bytes, paper) in NEEDS {
            for (detector, paper) in paper.into_iter().enumerate().filter_map(|(d, p)| Some((d, p?))) {
                assert!((need(detector, bytes) - paper).abs() < 0.6, "{} not {paper}", need(detector, bytes));
            }
        }
    }

    #[test]
    fn caches_grow() {
        let [first, second, third] = caches();
        assert!(first >= 8 << 10 && second >= first && third >= second);
    }
}
