//! Puts pedestals and gains into a calibration file.

use crate::load::judge_gains;
use crate::planes::{configuration, names, read_gains};
use crate::reasons;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, Keep};
use std::path::{Path, PathBuf};

/// Where the result goes.
pub enum Target {
    /// A new file.
    New(PathBuf),
    /// An existing one, with its content.
    Existing(PathBuf, Box<CalibrationFile>),
}

impl Target {
    /// The target of `--output` and `--into`. It is opened before any frame is taken, so that no frames are taken in
    /// vain.
    pub fn open(output: Option<&Path>, into: Option<&Path>, overwrite: bool) -> Result<Self, Failure> {
        if let Some(path) = into {
            let file = CalibrationFile::read(path).map_err(configuration)?;
            return Ok(Self::Existing(path.to_owned(), Box::new(file)));
        }
        let path = output.unwrap_or(Path::new("calibration.h5"));
        if path.exists() && !overwrite {
            let what = format!("{} exists", path.display());
            let fix = "add to it with --into, give another name, or replace it with --overwrite";
            return Err(Failure::new(Exit::State, what, "a calibration is replaced only with --overwrite", fix));
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            let what = format!("the folder {} does not exist", folder.display());
            return Err(Failure::new(
                Exit::Io,
                what,
                "konkordia creates files, not folders",
                format!("mkdir -p {}", folder.display()),
            ));
        }
        Ok(Self::New(path.to_owned()))
    }

    /// The path, and the file to be filled.
    pub fn into_file(self) -> (PathBuf, CalibrationFile) {
        match self {
            Self::New(path) => (path, CalibrationFile::default()),
            Self::Existing(path, file) => (path, *file),
        }
    }
}

/// Stores module count, serial number and module ids in the file. Refuses to mix two detectors in one file.
pub fn identify(
    file: &mut CalibrationFile,
    path: &Path,
    modules: usize,
    serial: Option<&str>,
    ids: &[Option<u16>],
) -> Result<(), Failure> {
    let other = |why: String| {
        let what = format!("the calibration {} is of another detector", path.display());
        Err(Failure::new(Exit::Configuration, what, why, "give another file, or the frames of this detector"))
    };
    if file.modules != 0 && file.modules != modules {
        return other(format!("it has {} module(s), the frames {modules}", file.modules));
    }
    file.modules = modules;
    if let Some(serial) = serial {
        if !file.detector_serial.is_empty() && file.detector_serial != serial {
            return other(format!("it is of serial number \"{}\", the frames of \"{serial}\"", file.detector_serial));
        }
        file.detector_serial = serial.to_owned();
    }
    if ids.iter().any(Option::is_some) {
        file.module_ids.resize(modules, None);
        for (module, (known, id)) in file.module_ids.iter_mut().zip(ids).enumerate() {
            match (*known, *id) {
                (Some(known), Some(id)) if known != id => {
                    return other(format!("module {module} has id {known} in the file, but {id} in the frames"));
                }
                (None, id) => *known = id,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Reads gains into the file; returns the number of gain planes that the file has then.
pub fn add_gains(file: &mut CalibrationFile, paths: &[PathBuf]) -> Result<usize, Failure> {
    // Plain planes of four stages differ from those of three by their size only, and only the reader of four accepts
    // them.
    let stages =
        read_gains(paths, file.modules, false).or_else(|error| read_gains(paths, file.modules, true).map_err(|_| error))?;
    judge_gains(&stages.low, &names(paths))?;
    // If the new files have no gains of HG0, the file keeps its own, with their source.
    const OLDER: &str = "; HG0: ";
    let keeps = stages.high.is_none() && file.gains[GainStage::Hg0.index()].is_some() && !file.gain_source.is_empty();
    let older = keeps.then(|| file.gain_source.rsplit(OLDER).next().unwrap_or_default().to_owned());
    let [g0, g1, g2] = stages.low;
    for (stage, gain) in GainStage::ALL.into_iter().zip([Some(g0), Some(g1), Some(g2), stages.high]) {
        if gain.is_some() {
            file.gains[stage.index()] = gain;
        }
    }
    file.gain_source = names(paths) + &older.map_or(String::new(), |older| format!("{OLDER}{older}"));
    Ok(file.gains.iter().flatten().count())
}

/// Marks pixels without gain.
pub fn mark(file: &mut CalibrationFile) {
    for ((_, stage), planes) in &mut file.pedestals {
        if let Some(gains) = &file.gains[stage.index()] {
            reasons::mark_gains(&mut planes.mask, gains, *stage);
        }
    }
}

/// Marks pixels without gain, dates the file and writes it. Returns its hash.
pub fn write(file: &mut CalibrationFile, path: &Path, step: String, keep: Keep) -> Result<String, Failure> {
    mark(file);
    file.created = clock::now();
    file.software = konkordia_core::SOFTWARE.into();
    file.reasons = reasons::table();
    file.history.push(format!("{} {step}", file.created));
    Ok(file.write(path, keep)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_sinks::hdf5::calibration::MODULE_PIXELS;

    #[test]
    fn gains_of_hg0_that_stay_keep_their_source() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, gains: &[f32]| {
            let path = folder.path().join(name);
            let planes = gains.iter().flat_map(|gain| gain.to_le_bytes().repeat(MODULE_PIXELS));
            std::fs::write(&path, planes.collect::<Vec<u8>>()).unwrap();
            vec![path]
        };
        let (four, three) = (write("four", &[41.0, -1.44, -0.114, 105.0]), write("three", &[40.0, -1.4, -0.11]));
        let mut file = CalibrationFile { modules: 1, ..CalibrationFile::default() };
        assert_eq!(add_gains(&mut file, &four).unwrap(), 4);
        assert_eq!(file.gain_source, names(&four));
        for _ in 0..2 {
            assert_eq!(add_gains(&mut file, &three).unwrap(), 4);
            assert_eq!(file.gain_source, format!("{}; HG0: {}", names(&three), names(&four)));
        }
        let first = |stage: GainStage| file.gains[stage.index()].as_ref().unwrap()[0];
        assert_eq!((first(GainStage::G0), first(GainStage::Hg0)), (40.0, 105.0));
    }
}
