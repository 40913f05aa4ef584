//! Moves one finished file to its target. At every moment the file is whole in the spool or in the target: it is copied
//! to a temporary name, brought to the disk, and gets its name; then a link takes its place in the spool.
//!
//! A file that is repacked is first written anew in the spool. So libhdf5, which takes one thread at a time, never
//! waits for the target, and the writer of the run never waits for libhdf5 because of it.

use super::folder::RunFolder;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::temporary_path;
use konkordia_repack::{Settings, repack_alone};
use konkordia_sinks::hdf5::pedestal_file_name;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK_BYTES: usize = 4 << 20;

/// Moves a file, and returns how many bytes it took in the spool; `None` after `stop`. Then, and after an error, the
/// file is still in the spool, and the same call tries again.
///
/// # Errors
/// It cannot be read, repacked or written, or another file has its name.
pub fn move_file(folder: &RunFolder, file: &Path, stop: &AtomicBool) -> Result<Option<u64>, Failure> {
    let bytes = std::fs::metadata(file).map_err(|error| Failure::io("cannot read", file, &error))?.len();
    let Some(from) = packed(folder, file, stop)? else { return Ok(None) };
    let target = folder.target_of(file);
    if !copy(&from, &target, stop)? {
        return Ok(None);
    }
    leave_link(file, &target)?;
    if from != file {
        std::fs::remove_file(&from).map_err(|error| Failure::io("cannot remove", &from, &error))?;
    }
    Ok(Some(bytes))
}

/// The file to copy: the file itself, or what it becomes when it is repacked.
fn packed(folder: &RunFolder, file: &Path, stop: &AtomicBool) -> Result<Option<PathBuf>, Failure> {
    let is_plain = file.file_name() == Some(pedestal_file_name(&folder.note.prefix).as_ref());
    let Some(compression) = folder.note.repack_to().filter(|_| !is_plain) else { return Ok(Some(file.to_owned())) };
    let packed = folder.packed(file);
    let place = packed.parent().unwrap_or(&folder.path);
    std::fs::create_dir_all(place).map_err(|error| Failure::io("cannot make the folder", place, &error))?;
    // The receivers and workers of a run need the other processors.
    let workers = std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 4).max(1));
    let settings = Settings { compression, spots: None, workers, verify: true, delete_source: false, notes: Vec::new() };
    Ok(repack_alone(file, place, &settings, stop)?.then_some(packed))
}

/// Copies a file to the disk of the target. False after `stop`, when nothing is left of the copy.
fn copy(from: &Path, target: &Path, stop: &AtomicBool) -> Result<bool, Failure> {
    if target.exists() {
        // A program that ended between the copy and the link has left it.
        if is_same(from, target).map_err(|error| Failure::io("cannot compare with", target, &error))? {
            return Ok(true);
        }
        let why = "another file has its name: a later run, or one of an earlier attempt with other settings";
        let fix = "move that file away, or give another folder: konkordia repair --spool DIR --to FOLDER";
        return Err(Failure::new(Exit::Io, format!("{} exists", target.display()), why, fix));
    }
    let part = temporary_path(target);
    let done = write(from, &part, target, stop);
    if !matches!(done, Ok(true)) {
        let _ = std::fs::remove_file(&part);
    }
    done.map_err(|error| Failure::io("cannot move a file from the spool to", target, &error))
}

fn write(from: &Path, part: &Path, target: &Path, stop: &AtomicBool) -> io::Result<bool> {
    let (mut source, mut copy) = (File::open(from)?, File::create(part)?);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        if stop.load(Ordering::Acquire) {
            return Ok(false);
        }
        match source.read(&mut block)? {
            0 => break,
            many => copy.write_all(&block[..many])?,
        }
    }
    copy.sync_all()?;
    std::fs::rename(part, target)?;
    // Makes the name durable; on a file system that cannot do this it becomes durable with the next sync.
    let _ = target.parent().map(|folder| File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(true)
}

fn is_same(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let mut blocks = [vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]];
    loop {
        let many = a.read(&mut blocks[0])?;
        b.read_exact(&mut blocks[1][..many])?;
        if blocks[0][..many] != blocks[1][..many] {
            return Ok(false);
        }
        if many == 0 {
            return Ok(true);
        }
    }
}

/// Replaces the file in the spool by a link to the target, in one step.
fn leave_link(file: &Path, target: &Path) -> Result<(), Failure> {
    let link = file.with_extension("link");
    let _ = std::fs::remove_file(&link);
    let done = std::os::unix::fs::symlink(target, &link).and_then(|()| std::fs::rename(&link, file));
    done.map_err(|error| Failure::io("cannot replace by a link", file, &error))
}
