//! Brings the files of a bag back, each compared with its sum on the way and read again from the disk.

use crate::check::{self, Report};
use crate::hash::{self, Show};
use crate::manifest::{self, MANIFEST};
use crate::paths::{self, PAYLOAD};
use crate::{disk, info};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::temporary_path;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What was restored.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Files written.
    pub files: u64,
    /// Files that an earlier attempt had restored; they were compared again.
    pub kept: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// What of the bag has changed or is missing: these files are not restored.
    pub report: Report,
}

/// Restores the payload of `bag` into `folder`, which is created. Files that are there already with the right bytes are
/// kept; files that are damaged in the bag are named and left out.
///
/// # Errors
/// The folder is no bag; a file is there with other bytes; I/O; `stop`. Finished files stay, nothing is left of an
/// unfinished one.
pub fn restore(bag: &Path, folder: &Path, stop: &AtomicBool, show: Show<'_>) -> Result<Restored, Failure> {
    info::declared(bag)?;
    let payload = manifest::read(bag, MANIFEST)?;
    let mut done = Restored { report: check::check(bag, stop, show)?, ..Restored::default() };
    if done.report.damages.iter().any(|damage| !damage.file.starts_with(&format!("{PAYLOAD}/")) && damage.file != PAYLOAD) {
        return Err(check::not_whole(bag, &done.report));
    }
    for (file, sum) in &payload {
        if done.report.damages.iter().any(|damage| damage.file == *file) {
            continue;
        }
        let relative = file.strip_prefix(&format!("{PAYLOAD}/")).unwrap_or(file);
        let (source, target) = (paths::inside(bag, file)?, paths::inside(folder, relative)?);
        if target.exists() {
            let (found, bytes, _) = hash::of_file(&target, &[], None, stop, show)?;
            if found != *sum {
                let what = format!("{} exists", target.display());
                let fix = "move it away, or restore into another folder";
                return Err(Failure::new(Exit::Io, what, "it is not the file that the bag holds", fix));
            }
            done.kept += 1;
            done.bytes += bytes;
            continue;
        }
        done.bytes += copied(&source, &target, sum, stop, show)?;
        done.files += 1;
    }
    fs::create_dir_all(folder).map_err(|error| Failure::io("cannot create", folder, &error))?;
    disk::sync_folders(folder)?;
    Ok(done)
}

/// Copies one file under its temporary name, reads it again, and gives it its name.
///
/// # Errors
/// I/O, `stop`, or what was read again is not what the manifest says; nothing is left then.
fn copied(source: &Path, target: &Path, sum: &str, stop: &AtomicBool, show: Show<'_>) -> Result<u64, Failure> {
    disk::folder_of(target)?;
    let part = temporary_path(target);
    let done = verified(source, target, &part, sum, stop, show);
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

fn verified(source: &Path, target: &Path, part: &Path, sum: &str, stop: &AtomicBool, show: Show<'_>) -> Result<u64, Failure> {
    let failed = |error| Failure::io("cannot write", target, &error);
    let mut file = File::create(part).map_err(failed)?;
    let (read, bytes, _) = hash::of_file(source, &[], Some((target, &mut file)), stop, show)?;
    file.sync_all().map_err(failed)?;
    drop(file);
    let (written, ..) = hash::of_file(part, &[], None, stop, show)?;
    if read != sum || written != sum {
        let why = if read == sum {
            "what was read back from the disk differs from what was written"
        } else {
            "it has changed since it was checked"
        };
        let what = format!("{} was not restored", target.display());
        return Err(Failure::new(Exit::Incomplete, what, why, "look for a failing disk or memory, and restore again"));
    }
    fs::rename(part, target).map_err(failed)?;
    Ok(bytes)
}
