//! `konkordia bench roofline`: the rates of each variant of the conversion, compared with the limits of memory and
//! arithmetic on this machine and with the rates that detectors need.

use super::args::BenchRooflineArgs;
use super::mem::{self, Level};
use super::output::Output;
use super::rows::roofline::{Point, REPEATS, Variant, peak_gflop_per_s, points};
use super::spread::Spread;
use super::{caches, frames};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_kernels::Isa;
use konkordia_picture::{Axis, Series};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Detectors of the paper: name, pixels, images per second.
const DETECTORS: [(&str, f64, f64); 2] =
    [("4M at 1.1 kHz", 4.0 * 1048576.0, 1100.0), ("10M at 2.2 kHz", 10.0 * 1048576.0, 2200.0)];
/// Ways to convert a pixel: name, bytes and operations per pixel, and the paper's GB/s for the two detectors, where it
/// gives them.
const NEEDS: [(&str, f64, f64, [Option<f64>; 2]); 4] = [
    ("all constants (192 bit), word, pixel", 28.0, 2.0, [Some(129.0), Some(646.0)]),
    ("the same with drift (noise read, pedestal written)", 36.0, 2.0, [Some(166.0), Some(830.0)]),
    need_of("here: constants of G0 only, word, pixel", Variant::FastPath),
    need_of("here: the same with drift", Variant::Tracking),
];

const fn need_of(name: &'static str, variant: Variant) -> (&'static str, f64, f64, [Option<f64>; 2]) {
    (name, variant.bytes_per_pixel(), variant.flops_per_pixel(), [None, None])
}

/// What was measured.
struct Measured {
    levels: Vec<Level>,
    /// Gflop/s of each instruction set.
    peaks: Vec<(Isa, Spread)>,
    points: Vec<Point>,
    /// Pixels of a frame.
    pixels: usize,
}

/// The most that a roof allows to a point.
struct Limit {
    name: String,
    gpixels_per_s: f64,
}

/// `konkordia bench roofline`
pub fn command(args: &BenchRooflineArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    frames::with_folder(|folder| measure(args, folder))
}

fn measure(args: &BenchRooflineArgs, folder: &Path) -> Result<Exit, Failure> {
    let output = Output::open(&args.frames.output, "roofline")?;
    let frames = frames::load(&args.frames.frames, folder)?;
    let budget = |parts: f64| Duration::from_secs_f64((args.frames.seconds * parts).clamp(0.0, 3600.0));
    let levels = mem::levels(REPEATS, budget(1.0));
    let peaks = Isa::available().iter().map(|isa| (*isa, peak_gflop_per_s(*isa, budget(0.25)))).collect();
    let points = points(&frames.raw, &frames.constants.view(), budget(16.0)).map_err(|why| {
        Failure::new(Exit::Usage, "the kernels cannot be measured", why, "give frames of one module and its calibration")
    })?;
    let measured = Measured { levels, peaks, points, pixels: frames.raw[0].len() };
    let verified = measured.points.iter().all(|p| p.verified);
    let head = format!(
        "{}\n{} frames ({}); one core; median (lowest .. highest) of {REPEATS} parts of the time",
        machine::line(),
        frames.raw.len(),
        frames.source
    );
    let parts = [head, roof_table(&measured), point_table(&measured), need_table(&measured.points)];
    output.print(as_json(&measured, (frames.source, frames.raw.len())), &parts.join("\n\n"));
    if let Some(path) = &args.png {
        draw(&measured).write(path)?;
    }
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

impl Measured {
    /// The roofs above a point, the lowest first: memory or the cache that holds its constants, the caches before, and
    /// arithmetic.
    fn limits(&self, point: &Point) -> Vec<Limit> {
        let constants = point.constants_bytes(self.pixels);
        let caches = caches::levels_bytes();
        let holds = caches.iter().position(|bytes| constants <= *bytes).unwrap_or(caches.len());
        let copy = |level: &Level| Limit {
            name: format!("copy in {}", level.name),
            gpixels_per_s: level.copy_gb_per_s.median / point.variant.bytes_per_pixel(),
        };
        let arithmetic = self.peaks.iter().filter(|(isa, _)| *isa == point.isa).map(|(isa, peak)| Limit {
            name: format!("arithmetic, {isa}"),
            gpixels_per_s: peak.median / point.variant.flops_per_pixel(),
        });
        let mut limits: Vec<Limit> = self.levels[..=holds].iter().map(copy).chain(arithmetic).collect();
        limits.sort_by(|a, b| a.gpixels_per_s.total_cmp(&b.gpixels_per_s));
        limits
    }
}

fn name(point: &Point) -> String {
    let variant = match point.variant {
        Variant::AllBranches if point.isa == Isa::Scalar => "word by word",
        Variant::AllBranches => "all branches",
        Variant::FastPath => "G0 fast path",
        Variant::Tracking => "with tracking",
        Variant::Fused => "fused with bitshuffle, LZ4",
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

fn roof_table(measured: &Measured) -> String {
    let peak = |(isa, peak): &(Isa, Spread)| {
        vec![format!("arithmetic, {isa}"), "registers".into(), format!("{} Gflop/s", peak.to_text(1))]
    };
    let roofs = measured.levels.iter().map(Level::row).chain(measured.peaks.iter().map(peak));
    with_head(&["roof", "buffer", "rate"], roofs.collect())
}

fn point_table(measured: &Measured) -> String {
    let line = |p: &Point| {
        let number = |value: f64| format!("{value:.2}");
        let limits = measured.limits(p);
        vec![
            name(p),
            p.isa.name().into(),
            format!("{}", p.variant.bytes_per_pixel()),
            format!("{}", p.variant.flops_per_pixel()),
            p.gpixels_per_s.to_text(2),
            number(p.gb_per_s()),
            number(p.gflop_per_s()),
            format!("{:.0} % of {}", 100.0 * p.gpixels_per_s.median / limits[0].gpixels_per_s, limits[0].name),
            format!("{:.2}, {}", limits[1].gpixels_per_s, limits[1].name),
            if p.verified { "equal".into() } else { "WRONG".into() },
        ]
    };
    let head = [
        "conversion",
        "instructions",
        "byte/pixel",
        "flop/pixel",
        "Gpixel/s",
        "GB/s",
        "Gflop/s",
        "reaches",
        "next limit, Gpixel/s",
        "output",
    ];
    let table = with_head(&head, measured.points.iter().map(line).collect());
    format!(
        "{table}\n\na conversion far below its limit is held up by its other instructions: gain bits, rounding, saturation; the fused kernel by \
         bitshuffle and LZ4"
    )
}

/// GB/s or Gflop/s that a detector needs with so many bytes or operations per pixel.
fn need(detector: usize, per_pixel: f64) -> f64 {
    DETECTORS[detector].1 * DETECTORS[detector].2 * per_pixel / 1e9
}

fn need_table(points: &[Point]) -> String {
    let mut lines = Vec::new();
    for (name, bytes, flops, paper) in NEEDS {
        for (detector, paper) in paper.into_iter().enumerate() {
            let paper = paper.map_or("".into(), |p| format!("{p:.0}"));
            lines.push(vec![
                name.into(),
                DETECTORS[detector].0.into(),
                format!("{bytes}"),
                format!("{:.0}", need(detector, flops)),
                format!("{:.0}", need(detector, bytes)),
                paper,
            ]);
        }
    }
    let best = points
        .iter()
        .filter(|p| p.variant == Variant::Tracking && p.by_strip)
        .map(|p| p.gpixels_per_s.median)
        .fold(0.0, f64::max);
    let cores = DETECTORS.map(|(name, pixels, hz)| format!("{name} {:.1}", pixels * hz / 1e9 / best));
    let table = with_head(&["memory traffic", "detector", "byte/pixel", "Gflop/s", "GB/s", "paper, GB/s"], lines);
    format!("{table}\n\ncores for conversion with tracking alone, at the rate above: {}", cores.join(", "))
}

fn as_json(measured: &Measured, frames: (&str, usize)) -> serde_json::Value {
    let roof = |l: &Level| {
        let rate = l.copy_gb_per_s;
        json!({ "name": l.name, "buffer_bytes": l.buffer_bytes, "gigabytes_per_second": rate.median, "spread": rate.to_json() })
    };
    let peak = |(isa, peak): &(Isa, Spread)| json!({ "instruction_set": isa.name(), "gigaflops": peak.median, "spread": peak.to_json() });
    let limit = |p: &Point, limit: &Limit| {
        let reached = p.gpixels_per_s.median / limit.gpixels_per_s;
        json!({ "name": limit.name, "gigapixels_per_second": limit.gpixels_per_s, "reached": reached })
    };
    let point = |p: &Point| {
        let limits = measured.limits(p);
        json!({
            "name": name(p), "instruction_set": p.isa.name(), "bytes_per_pixel": p.variant.bytes_per_pixel(),
            "flops_per_pixel": p.variant.flops_per_pixel(), "gigapixels_per_second": p.gpixels_per_s.median,
            "spread": p.gpixels_per_s.to_json(), "gigabytes_per_second": p.gb_per_s(), "gigaflops": p.gflop_per_s(),
            "limit": limit(p, &limits[0]), "next_limit": limit(p, &limits[1]), "verified": p.verified,
        })
    };
    let mut needs = Vec::new();
    for (name, bytes, flops, paper) in NEEDS {
        for (detector, paper) in paper.into_iter().enumerate() {
            let name = format!("{name}, {}", DETECTORS[detector].0);
            let (gb_per_s, gflops) = (need(detector, bytes), need(detector, flops));
            needs.push(json!({ "name": name, "gigabytes_per_second": gb_per_s, "gigaflops": gflops, "paper": paper }));
        }
    }
    json!({
        "machine": machine::facts(), "frames": frames.0, "frame_count": frames.1, "repeats": REPEATS,
        "roofs": measured.levels.iter().map(roof).collect::<Vec<_>>(), "peaks": measured.peaks.iter().map(peak).collect::<Vec<_>>(),
        "rows": measured.points.iter().map(point).collect::<Vec<_>>(), "needs": needs,
        "verified": measured.points.iter().all(|p| p.verified),
    })
}

/// Operations per byte against operations per second: roofs as lines, variants as dots.
fn draw(measured: &Measured) -> konkordia_picture::Picture {
    let (low, high) = (0.03, 30.0);
    let peak = measured.peaks.iter().map(|(_, peak)| peak.median).fold(0.0, f64::max);
    let line = |gb_per_s: f64| {
        let bend = (peak / gb_per_s).clamp(low, high);
        vec![(low, low * gb_per_s), (bend, (bend * gb_per_s).min(peak)), (high, (high * gb_per_s).min(peak))]
    };
    let roofs = || measured.levels.iter().map(|level| (level.name, level.copy_gb_per_s.median));
    let mut names: Vec<String> = roofs().map(|(name, rate)| format!("copy in {name}, {rate:.0} GB/s")).collect();
    names.extend(measured.points.iter().map(|p| format!("{}, {}: {:.1}", name(p), p.isa, p.gflop_per_s())));
    let lines = roofs().map(|(_, rate)| (line(rate), true));
    let dots = measured.points.iter().map(|p| (vec![(p.gflop_per_s() / p.gb_per_s(), p.gflop_per_s())], false));
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
    fn the_memory_traffic_is_that_of_the_paper() {
        for (_, bytes, _, paper) in NEEDS {
            for (detector, paper) in paper.into_iter().enumerate().filter_map(|(d, p)| Some((d, p?))) {
                assert!((need(detector, bytes) - paper).abs() < 0.6, "{} not {paper}", need(detector, bytes));
            }
        }
    }

    #[test]
    fn a_point_stands_below_the_cache_that_holds_its_constants() {
        let spread = |value: f64| Spread::of([value]);
        let level = |(name, rate)| Level { name, buffer_bytes: 1, copy_gb_per_s: spread(rate) };
        let levels = [("L1", 240.0), ("L2", 120.0), ("L3", 60.0), ("memory", 12.0)].map(level).into();
        let peaks = vec![(Isa::Scalar, spread(4.0)), (Isa::Avx2, spread(100.0))];
        let pixels = 1 << 40;
        let measured = Measured { levels, peaks, points: Vec::new(), pixels };
        let point = |isa| Point { variant: Variant::FastPath, isa, by_strip: false, gpixels_per_s: spread(0.5), verified: true };
        // 12 bytes of each pixel from memory.
        let limits = measured.limits(&point(Isa::Avx2));
        assert_eq!((limits[0].name.as_str(), limits[0].gpixels_per_s), ("copy in memory", 1.0));
        assert_eq!((limits[1].name.as_str(), limits[1].gpixels_per_s), ("copy in L3", 5.0));
        assert_eq!(measured.limits(&point(Isa::Scalar))[1].name, "arithmetic, scalar");
        // One pixel fits into every cache.
        let small = Measured { pixels: 1, ..measured };
        assert_eq!(small.limits(&point(Isa::Avx2))[0].name, "copy in L1");
    }
}
