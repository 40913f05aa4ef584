//! The frames and calibration constants of the kernel benches: from files, or of the synthetic detector.

use super::args::BenchFramesArgs;
use super::module_files::{calibration_of, raw_frames};
use crate::simulate::detector::jungfrau;
use crate::simulate::setup::{Beam, RunText, write_files};
use konkordia_calibration as calibration;
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_engine::run::{ConstantPlanes, PixelConstants};
use konkordia_sim::jungfrau::raw_bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Number of synthetic frames, when no real ones are given.
const FRAMES: u64 = 10;

/// Frames of one module.
pub struct Frames {
    /// Raw words, 512 x 1024 each.
    pub raw: Vec<Vec<u16>>,
    /// Their constants.
    pub constants: ConstantPlanes,
    /// Where they come from, for the output.
    pub source: &'static str,
}

/// Runs `work` with a new folder, which is removed afterwards, also on Ctrl-C.
pub fn with_folder<T>(work: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
    in_folder(None, work)
}

/// The same in `parent`; `None` = in memory where that is possible.
pub fn in_folder<T>(parent: Option<&Path>, work: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
    in_folders(&[parent.map_or_else(usual_parent, Path::to_path_buf)], |folders| work(&folders[0]))
}

/// Where benches write if they are not told: in memory where that is possible.
pub fn usual_parent() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() }
}

/// As [`in_folder`], with a new folder in each of `parents`.
pub fn in_folders<T>(parents: &[PathBuf], work: impl FnOnce(&[PathBuf]) -> Result<T, Failure>) -> Result<T, Failure> {
    let own = |parent: &PathBuf| parent.join(format!("konkordia-bench-{}", std::process::id()));
    let folders: Vec<PathBuf> = parents.iter().map(own).collect();
    crate::run::signals::remove_folders_on_signal(folders.clone())?;
    let made = folders
        .iter()
        .try_for_each(|folder| std::fs::create_dir_all(folder).map_err(|e| Failure::io("cannot make the folder", folder, &e)));
    let result = made.and_then(|()| work(&folders));
    folders.iter().for_each(|folder| drop(std::fs::remove_dir_all(folder)));
    result
}

/// The frames that the command line names, or synthetic ones.
///
/// # Errors
/// If files cannot be read or have a wrong size.
pub fn load(args: &BenchFramesArgs, folder: &Path) -> Result<Frames, Failure> {
    load_some(args, usize::MAX, folder)
}

/// The first frames that the command line names, or synthetic ones; at most `count_max`.
///
/// # Errors
/// As [`load`].
pub fn load_some(args: &BenchFramesArgs, count_max: usize, folder: &Path) -> Result<Frames, Failure> {
    let (frames, source) = if args.raw.is_empty() {
        let detector = jungfrau(1)?;
        write_files(folder, &detector.calibration_files(true))?;
        ((0..FRAMES).take(count_max).map(|n| raw_bytes(&detector.image(n).raw)).collect(), "synthetic")
    } else {
        let calibration = args.calibration.as_deref().unwrap_or(folder);
        write_files(folder, &calibration_of(calibration, 1)?)?;
        (raw_frames(&args.raw[..args.raw.len().min(count_max)])?, "files")
    };
    let words = |frame: &Vec<u8>| frame.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    let raw = frames.iter().map(words).collect();
    Ok(Frames { raw, constants: constants(folder, f64::from(args.energy_kev))?, source })
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
