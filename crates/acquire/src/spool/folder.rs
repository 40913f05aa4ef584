//! The folder of one run in the spool. What has to be done next is read from the files themselves, so it is the same
//! while the run goes on and after a crash: a file that was moved is a link to where it is now. So every reader of the
//! folder finds the whole run, also the writer of the master.

use super::note::{Locked, NAME, Note};
use konkordia_core::failure::Failure;
use konkordia_sinks::hdf5::{data_file_name, journal_path, master_file_name, pedestal_file_name};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folder of the repacked files that did not move yet.
const PACKED: &str = "packed";

/// What has to be done next for a run.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// This file moves.
    Move(PathBuf),
    /// Nothing, until a data file is finished.
    Wait,
    /// This file was never closed: the run has to be repaired.
    Unfinished(PathBuf),
    /// All files have moved.
    Done,
}

/// What became of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataFile {
    /// It grows, or was never closed: it has a journal.
    Growing,
    Closed,
    Moved,
}

/// The folder of one run.
#[derive(Debug)]
pub struct RunFolder {
    /// Where it is.
    pub path: PathBuf,
    /// Where its files belong.
    pub note: Note,
    lock: File,
}

impl RunFolder {
    /// Makes the folder of a new run in the spool `root`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(root: &Path, note: Note) -> Result<Self, Failure> {
        for number in 1.. {
            let path = root.join(format!("{}-{number}", note.prefix));
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io("cannot make a folder in the spool:", &path, &error)),
                Ok(()) => {
                    let lock = note.create(&path).inspect_err(|_| drop(std::fs::remove_dir_all(&path)))?;
                    return Ok(Self { path, note, lock });
                }
            }
        }
        unreachable!("the numbers do not end")
    }

    /// Opens the folder of a run that another program has left; `None` if a program works on it.
    ///
    /// # Errors
    /// Its note cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>, Failure> {
        let Locked::Yes(lock) = Note::lock(path)? else { return Ok(None) };
        Ok(Some(Self { path: path.to_owned(), note: Note::read(path)?, lock }))
    }

    /// The folders of the runs in the spool, by name; none if there is no spool.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn all(root: &Path) -> Result<Vec<PathBuf>, Failure> {
        let entries = match std::fs::read_dir(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| Failure::io("cannot read the spool", root, &error))?,
        };
        let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        folders.retain(|path| path.join(NAME).exists());
        folders.sort();
        Ok(folders)
    }

    /// From now on the files belong to `target`. Those that have moved elsewhere are copied from there.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn belongs_to(&mut self, target: &Path) -> Result<(), Failure> {
        target.clone_into(&mut self.note.target);
        self.note.replace(&self.path, &self.lock)
    }

    /// The master while it is in the spool.
    pub fn master(&self) -> PathBuf {
        self.path.join(master_file_name(&self.note.prefix))
    }

    /// The master in the end.
    pub fn target_master(&self) -> PathBuf {
        self.target_of(&self.master())
    }

    /// Where a file belongs.
    pub fn target_of(&self, file: &Path) -> PathBuf {
        self.note.target.join(file.file_name().unwrap_or_default())
    }

    /// Where a file lies after it was repacked and before it moves.
    pub fn packed(&self, file: &Path) -> PathBuf {
        self.path.join(PACKED).join(file.file_name().unwrap_or_default())
    }

    /// What has to be done next. `is_over`: the files of the run are closed.
    pub fn next(&self, is_over: bool) -> Step {
        let data = self.data_files();
        // The last data file may grow or be discarded while the run goes on.
        let finished = if is_over { data.len() } else { data.len().saturating_sub(1) };
        if let Some(n) = data[..finished].iter().position(|file| *file == DataFile::Closed) {
            return Step::Move(self.data_file(n));
        }
        if !is_over {
            return Step::Wait;
        }
        if let Some(n) = data.iter().position(|file| *file == DataFile::Growing) {
            return Step::Unfinished(self.data_file(n));
        }
        let pedestals = self.path.join(pedestal_file_name(&self.note.prefix));
        match (self.has_moved(&pedestals), self.has_moved(&self.master())) {
            (Some(false), _) => Step::Move(pedestals),
            (_, Some(false)) => Step::Move(self.master()),
            (_, Some(true)) => Step::Done,
            (_, None) => Step::Unfinished(self.master()),
        }
    }

    /// Files that are still to move, also those that are not finished.
    pub fn waiting(&self) -> u64 {
        let data = self.data_files().iter().filter(|file| **file != DataFile::Moved).count();
        let others = [pedestal_file_name(&self.note.prefix), master_file_name(&self.note.prefix)];
        let others = others.iter().filter(|name| self.has_moved(&self.path.join(name)) == Some(false)).count();
        (data + others) as u64
    }

    /// Positions before this one lie in data files that have moved.
    pub fn moved_positions(&self) -> u64 {
        let files = self.data_files().iter().take_while(|file| **file == DataFile::Moved).count();
        files as u64 * u64::from(self.note.images_per_file)
    }

    fn data_file(&self, n: usize) -> PathBuf {
        self.path.join(data_file_name(&self.note.prefix, n as u64 + 1))
    }

    /// The data files in order; their numbers have no gaps.
    fn data_files(&self) -> Vec<DataFile> {
        let look = |n: usize| {
            let path = self.data_file(n);
            match (journal_path(&path).exists(), self.has_moved(&path)) {
                (true, _) => Some(DataFile::Growing),
                (false, Some(true)) => Some(DataFile::Moved),
                (false, Some(false)) => Some(DataFile::Closed),
                (false, None) => None,
            }
        };
        (0..).map_while(look).collect()
    }

    /// `None` if there is no file of this name. A link that leads to another folder than the target has not moved.
    fn has_moved(&self, path: &Path) -> Option<bool> {
        if !path.symlink_metadata().ok()?.is_symlink() {
            return Some(false);
        }
        Some(std::fs::read_link(path).is_ok_and(|leads| leads == self.target_of(path)))
    }

    /// Removes the folder after its last file has moved. What does not belong to the run stays, and the folder with it.
    ///
    /// # Errors
    /// Something else lies in the folder, or it cannot be removed.
    pub fn remove(&self) -> Result<(), Failure> {
        let remove = || -> io::Result<()> {
            // First, so that a crash leaves no run that looks as if its files were lost.
            std::fs::remove_file(self.path.join(NAME))?;
            for entry in std::fs::read_dir(&self.path)? {
                let entry = entry?;
                // Hidden files are temporary ones of a writer that was killed.
                if entry.file_type()?.is_symlink() || entry.file_name().as_encoded_bytes().starts_with(b".") {
                    std::fs::remove_file(entry.path())?;
                }
            }
            let _ = std::fs::remove_dir(self.path.join(PACKED));
            std::fs::remove_dir(&self.path)
        };
        remove().map_err(|error| Failure::io("the run has moved, but cannot remove its folder in the spool:", &self.path, &error))
    }

    /// Removes the folder with all files in it.
    pub fn abandon(&self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Bytes that the files in a folder take, those in its folders included. Links count nothing.
pub fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(facts) if facts.is_dir() => bytes_in(&entry.path()),
        Ok(facts) if facts.is_file() => facts.len().max(facts.blocks() * 512),
        _ => 0,
    };
    entries.filter_map(Result::ok).map(bytes).sum()
}
