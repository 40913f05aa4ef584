//! What a program that was killed has left in a spool, and how it gets to its target.

use super::folder::{RunFolder, Step, bytes_in};
use super::moving::move_file;
use super::note::Note;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sinks::hdf5;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A run in a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOver {
    /// Its folder in the spool.
    pub folder: PathBuf,
    /// Its master in the end.
    pub master: PathBuf,
    /// Bytes of its files in the spool.
    pub bytes: u64,
}

/// What was done for a run in a spool.
pub struct Finished {
    /// Its folder in the spool.
    pub folder: PathBuf,
    /// Its master where it is now; `None` if a program works on the run, which was left alone.
    pub master: Option<PathBuf>,
    /// Files that were moved.
    pub files: Vec<PathBuf>,
    /// What was repaired before, if that was necessary.
    pub repaired: Option<hdf5::RepairReport>,
}

/// The runs in a spool on which no program works.
///
/// # Errors
/// The spool cannot be read.
pub fn list(directory: &Path) -> Result<Vec<LeftOver>, Failure> {
    let mut found = Vec::new();
    for folder in RunFolder::all(directory)? {
        let Ok(run) = RunFolder::open(&folder) else {
            // It is shown, because somebody has to look at it.
            found.push(LeftOver { master: folder.clone(), bytes: bytes_in(&folder), folder });
            continue;
        };
        found.extend(run.map(|run| LeftOver { master: run.target_master(), bytes: bytes_in(&folder), folder }));
    }
    Ok(found)
}

/// Says that a run was left in a spool, and what to do.
pub fn words(left: &LeftOver, directory: &Path) -> String {
    format!(
        "{} of the run {} are still in the spool {}: if no other program works on it, run: konkordia repair --spool {}",
        text::bytes(left.bytes),
        left.master.display(),
        left.folder.display(),
        directory.display()
    )
}

/// Repairs the runs in a spool where that is necessary, and moves their files: to `to`, or to where they belong. `show`
/// gets every file before it moves. The outcome of each run stands for itself.
///
/// # Errors
/// The spool cannot be read, or `to` is not a folder.
pub fn finish(
    directory: &Path,
    to: Option<&Path>,
    stop: &AtomicBool,
    show: &mut dyn FnMut(&Path),
) -> Result<Vec<Result<Finished, Failure>>, Failure> {
    if !directory.is_dir() {
        let what = format!("there is no spool {}", directory.display());
        return Err(Failure::new(Exit::Io, what, "", "give the folder of [output] spool_directory"));
    }
    let to = to.map(|to| to.canonicalize().map_err(|error| Failure::io("cannot use the folder", to, &error))).transpose()?;
    let runs = RunFolder::all(directory)?;
    Ok(runs.iter().map(|folder| finish_one(folder, to.as_deref(), stop, show)).collect())
}

fn finish_one(folder: &Path, to: Option<&Path>, stop: &AtomicBool, show: &mut dyn FnMut(&Path)) -> Result<Finished, Failure> {
    let mut done = Finished { folder: folder.to_owned(), master: None, files: Vec::new(), repaired: None };
    let Some(mut run) = RunFolder::open(folder)? else { return Ok(done) };
    if let Some(to) = to {
        run.belongs_to(to)?;
    }
    // Without its target, the files that have moved look as if they were lost.
    let Note { target, .. } = &run.note;
    if !target.is_dir() {
        let what = format!("there is no folder {}", target.display());
        let fix = "bring it back (is its disk mounted?), or give another one: konkordia repair --spool DIR --to FOLDER";
        return Err(Failure::new(Exit::Io, what, "the files of the run belong there", fix));
    }
    if run.next(true) != Step::Done {
        // A program that ended while it closed the files has left a journal, or a master without the last images.
        done.repaired = Some(hdf5::repair(&run.master())?);
        // It may have been repacked before the repair wrote it again.
        let _ = std::fs::remove_file(run.packed(&run.master()));
    }
    loop {
        match run.next(true) {
            Step::Move(file) => {
                show(&file);
                if move_file(&run, &file, stop)?.is_none() {
                    let why = "it was stopped; the same command goes on";
                    return Err(Failure::new(Exit::Interrupted, "files are still in the spool", why, "run it again"));
                }
                done.files.push(run.target_of(&file));
            }
            Step::Done => break,
            Step::Unfinished(file) => {
                let what = format!("{} cannot be moved", file.display());
                return Err(Failure::new(
                    Exit::Incomplete,
                    what,
                    "it is not whole after the repair",
                    "konkordia check says more",
                ));
            }
            Step::Wait => unreachable!("a run that is over waits for nothing"),
        }
    }
    done.master = Some(run.target_master());
    run.remove()?;
    Ok(done)
}
