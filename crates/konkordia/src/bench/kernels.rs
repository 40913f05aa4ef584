//! `konkordia bench kernels`

use super::{calibration_of, raw_frames};
use crate::calibration;
use crate::cli::BenchKernelsArgs;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::simulate::setup::{Beam, RunText, write_files};
use crate::{machine, say, simulate};
use konkordia_engine::run::{ConstantPlanes, PixelConstants};
use konkordia_kernels::bench::{KernelRow, run};
use konkordia_sim::jungfrau::raw_bytes;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Synthetic frames, when no real ones are given.
const FRAMES: u64 = 10;
/// Rows of the table for the widest instruction set; the time is shared among all.
const ROWS_MAX: f64 = 25.0;

/// `konkordia bench kernels`
pub fn command(args: &BenchKernelsArgs) -> Result<Exit, Failure> {
    let folder = tempdir()?;
    crate::run::signals::remove_folder_on_signal(folder.clone())?;
    let result = measure(args, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// A folder of our own for the calibration of the synthetic detector.
fn tempdir() -> Result<std::path::PathBuf, Failure> {
    let path = std::env::temp_dir().join(format!("konkordia-bench-{}", std::process::id()));
    std::fs::create_dir_all(&path).map_err(|e| Failure::io("cannot make the folder", &path, &e))?;
    Ok(path)
}

fn measure(args: &BenchKernelsArgs, folder: &Path) -> Result<Exit, Failure> {
    let (frames, source) = if args.raw.is_empty() {
        let detector = simulate::jungfrau(1)?;
        write_files(folder, &detector.calibration_files(true))?;
        ((0..FRAMES).map(|n| raw_bytes(&detector.image(n).raw)).collect(), "synthetic")
    } else {
        let calibration = args.calibration.as_deref().unwrap_or(folder);
        write_files(folder, &calibration_of(calibration, 1)?)?;
        (raw_frames(&args.raw)?, "files")
    };
    let frames: Vec<Vec<u16>> =
        frames.iter().map(|frame| frame.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()).collect();
    let constants = constants(folder, f64::from(args.energy_kev))?;
    let budget = Duration::from_secs_f64((args.seconds * ROWS_MAX).clamp(0.01, 3600.0));
    let rows = run(&frames, &constants.view(), budget).map_err(|why| {
        Failure::new(Exit::Usage, "the kernels cannot be measured", why, "give frames of one module and its calibration")
    })?;
    let verified = rows.iter().all(|r| r.verified);
    if args.json {
        let list: Vec<_> = rows
            .iter()
            .map(|r| {
                json!({
                    "name": r.name, "instruction_set": r.isa.name(), "gigabytes_raw_per_second": r.gb_per_s_raw,
                    "ratio_to_plain": r.ratio_to_baseline, "bits_per_pixel": r.bits_per_pixel, "verified": r.verified,
                })
            })
            .collect();
        say::json(
            &json!({ "machine": machine::facts(), "frames": source, "frame_count": frames.len(), "rows": list, "verified": verified }),
            false,
        );
    } else {
        say::to_stdout(&format!(
            "{}\n{} frames ({source}); GB/s of raw input on one core, medians\n\n{}",
            machine::line(),
            frames.len(),
            table(&rows)
        ));
    }
    // A fast wrong answer is a mistake in the program.
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// The constants of one module, loaded as a run loads them.
fn constants(folder: &Path, energy_kev: f64) -> Result<ConstantPlanes, Failure> {
    let text = RunText {
        modules: 1,
        interfaces: 1,
        beam: Beam { energy_kev, distance_mm: None, center_px: None },
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 50010)),
        calibration: folder,
        directory: folder,
        prefix: "bench",
        run: String::new(),
        more: String::new(),
    }
    .text();
    let config = Config::parse(&text, Path::new("bench.toml"))
        .map_err(|d| Failure::new(Exit::Usage, "these frames cannot be converted", d.to_string(), "check --energy-kev"))?;
    match calibration::for_config(&config)?.constants {
        PixelConstants::Jungfrau(mut calibration) => Ok(calibration.sets.swap_remove(0)),
        _ => Err(Failure::new(
            Exit::Bug,
            "a JUNGFRAU without constants",
            "the configuration asks for photons",
            "please report this",
        )),
    }
}

fn table(rows: &[KernelRow]) -> String {
    let head = ["kernel", "instructions", "GB/s", "x plain", "bit/pixel", "output"].map(str::to_string).to_vec();
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
    say::table(&std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>())
}
