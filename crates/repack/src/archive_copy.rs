//! The archive copy: a small lossy copy of a run. It is made when the run is over and its files are closed, so that it
//! can never cost data.

use super::spots::SpotCopy;
use super::{Outcome, Progress, Settings, repack};
use konkordia_config::archive_copy::{ArchiveCopy, ArchiveLoss};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_sinks::hdf5::{Overwrite, data_file_name, master_path};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Files of an older copy of this name.
fn older(archive_copy: &ArchiveCopy) -> Vec<PathBuf> {
    let master = master_path(&archive_copy.directory, &archive_copy.prefix);
    let data =
        (1..).map(|n| archive_copy.directory.join(data_file_name(&archive_copy.prefix, n))).take_while(|path| path.exists());
    data.chain([master].into_iter().filter(|path| path.exists())).collect()
}

/// Checks before the run whether the copy can be written after it.
///
/// # Errors
/// When its folder does not exist, or files of an older copy may not be replaced.
pub fn check(archive_copy: &ArchiveCopy, overwrite: Overwrite) -> Result<(), Failure> {
    if !archive_copy.directory.is_dir() {
        let what = format!("there is no folder {}", archive_copy.directory.display());
        return Err(Failure::new(Exit::Io, what, "travel.directory names it", "create it, or correct the path"));
    }
    match older(archive_copy).first() {
        Some(path) if overwrite == Overwrite::Refuse => {
            let why = "the copy of an earlier run has this name";
            let fix = "choose another travel.prefix, move the old files, or set output.overwrite = \"replace\"";
            Err(Failure::new(Exit::Io, format!("{} exists", path.display()), why, fix))
        }
        _ => Ok(()),
    }
}

/// How the copy is packed.
pub fn compression(archive_copy: &ArchiveCopy) -> Compression {
    match archive_copy.loss {
        ArchiveLoss::Sz3(bound) => Compression::Sz3 { bound },
        ArchiveLoss::Spots(_) => Compression::BSZSTD,
    }
}

/// Makes the copy of the run of `master`.
///
/// # Errors
/// When it cannot be written; the run is not touched.
pub fn make(
    archive_copy: &ArchiveCopy,
    overwrite: Overwrite,
    master: &Path,
    show: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Failure> {
    check(archive_copy, overwrite)?;
    for path in older(archive_copy) {
        std::fs::remove_file(&path).map_err(|error| Failure::io("cannot remove", &path, &error))?;
    }
    let spots = match archive_copy.loss {
        ArchiveLoss::Sz3(_) => None,
        ArchiveLoss::Spots(sigma) => Some(SpotCopy::of_run(master, sigma)?),
    };
    let settings = Settings {
        compression: compression(archive_copy),
        spots,
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        verify: false,
        delete_source: false,
        notes: Vec::new(),
    };
    // Never set: the first Ctrl-C may have ended the run, and a second one ends the program.
    let stop = AtomicBool::new(false);
    repack(master, &master_path(&archive_copy.directory, &archive_copy.prefix), &settings, &stop, show)
}
