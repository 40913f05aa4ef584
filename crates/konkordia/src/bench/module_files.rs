//! The files of a module that a user gives to the benches: raw frames and calibration.

use konkordia_core::failure::{Exit, Failure};
use std::path::{Path, PathBuf};

/// Names of the calibration files in a folder: pedestals of G0, G1, G2, and three planes of gains.
const CALIBRATION_FILES: [&str; 4] = ["pedestal_g0.f32", "pedestal_g1.f32", "pedestal_g2.f32", "gain_adu_per_kev.f32"];

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| Failure::io("cannot read", path, &e))
}

/// Raw frames of one module.
pub fn raw_frames(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, Failure> {
    const FRAME_BYTES: usize = 512 * 1024 * 2;
    let mut frames = Vec::new();
    for path in files {
        let bytes = read(path)?;
        if bytes.is_empty() || bytes.len() % FRAME_BYTES != 0 {
            let why = format!("it has {} bytes; a frame of a module has {FRAME_BYTES} (uint16, 512 x 1024)", bytes.len());
            return Err(Failure::new(Exit::Usage, format!("{} holds no whole frames", path.display()), why, "give another file"));
        }
        frames.extend(bytes.chunks_exact(FRAME_BYTES).map(<[u8]>::to_vec));
    }
    Ok(frames)
}

/// The calibration files of one module, repeated for `modules` modules.
pub fn calibration_of(folder: &Path, modules: u32) -> Result<[(&'static str, Vec<u8>); 4], Failure> {
    let repeat = |plane: &[u8]| plane.repeat(modules as usize);
    let mut files = CALIBRATION_FILES.map(|name| (name, Vec::new()));
    for (name, bytes) in &mut files {
        let one = read(&folder.join(*name))?;
        *bytes = one.chunks(512 * 1024 * 4).flat_map(repeat).collect();
    }
    Ok(files)
}
