//! Which files may be asked for: masters that the detector wrote since the service began, and files below its output
//! folder. Links are followed first.

use crate::http::problem::Problem;
use konkordia_acquire::handle::{Detector, FileIdentity, FileImages, FileState};
use konkordia_core::failure::{Exit, Failure};
use std::path::{Path, PathBuf};

/// Longest path that is looked at.
const PATH_BYTES_MAX: usize = 4096;
const HINT: &str = "GET /api/v1/files lists the files of the last runs; others may be named if they lie below the output folder";

/// The file, without links, at a path that counts from the output folder of the detector. Asks the file system: not for
/// async threads.
///
/// # Errors
/// There is no such file, or it is none of this detector. Which of them is not said.
pub fn find(detector: &dyn Detector, path: &str) -> Result<(PathBuf, FileIdentity), Problem> {
    let name = detector.name();
    let none = || Problem::new("no_file", format!("{path:?} is no file of '{name}'"), HINT);
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains('\0') {
        return Err(none());
    }
    let folder = detector.configuration()["output"]["directory"].as_str().map(PathBuf::from);
    let named = folder.as_deref().map_or_else(|| PathBuf::from(path), |folder| folder.join(path));
    let master = named.canonicalize().map_err(|_| none())?;
    let entries = detector.files();
    let entry = entries.iter().rev().find(|entry| {
        let listed = Path::new(&entry.master);
        listed == named || listed == master || listed.canonicalize().is_ok_and(|listed| listed == master)
    });
    let is_below =
        || folder.as_deref().and_then(|folder| folder.canonicalize().ok()).is_some_and(|folder| master.starts_with(folder));
    if entry.is_none() && !is_below() {
        return Err(none());
    }
    if entry.is_some_and(|entry| entry.state == FileState::Writing) {
        return Err(unfinished(path));
    }
    let identity = FileIdentity::at(&master).ok_or_else(none)?;
    Ok((master, identity))
}

fn unfinished(path: &str) -> Problem {
    let detail = format!("{path} is still being written");
    Problem::new("unfinished_file", detail, "wait for the end of the run; GET /api/v1/images has its newest images")
}

/// Refuses a file whose images lie in other folders than itself: a link led out.
pub fn inside(images: FileImages) -> Result<FileImages, Problem> {
    let index = images.index();
    let folder = index.master.parent();
    let stray = index.parts.iter().find(|part| !folder.is_some_and(|folder| part.path.starts_with(folder)));
    match stray {
        None => Ok(images),
        Some(_) => {
            let detail = format!("{} names files outside of its folder", index.master.display());
            Err(Problem::new("bad_file", detail, "put the data files beside the master"))
        }
    }
}

/// Why a file cannot be read, for a client.
pub fn problem(failure: &Failure) -> Problem {
    let code = if failure.exit == Exit::State { "unfinished_file" } else { "bad_file" };
    Problem::new(code, failure.detail(), failure.fix.clone())
}
