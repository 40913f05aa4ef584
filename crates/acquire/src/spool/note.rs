//! The note in the folder of a run in the spool. It says where the files belong, so that what a killed program leaves
//! behind can be finished. It is locked while a program works on the run.

use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// Its name.
pub const NAME: &str = "spool.json";
const VERSION: u32 = 1;

/// Where the files of a run belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Of this form.
    konkordia_spool: u32,
    /// First part of the file names.
    pub prefix: String,
    /// Folder of the files in the end, absolute.
    pub target: PathBuf,
    /// Positions in one data file.
    pub images_per_file: u32,
    /// The compression of the images in the end; `None` = as they are.
    compression: Option<String>,
    compression_level: Option<u8>,
}

/// What became of an attempt to lock a note.
pub enum Locked {
    /// It is locked as long as the file is open.
    Yes(File),
    /// Another program works on the run.
    InUse,
}

impl Note {
    /// For a run whose files belong to `target`.
    pub fn new(prefix: &str, target: &Path, images_per_file: u32, repack_to: Option<Compression>) -> Self {
        Self {
            konkordia_spool: VERSION,
            prefix: prefix.into(),
            target: target.to_owned(),
            images_per_file,
            compression: repack_to.map(Compression::text),
            compression_level: None,
        }
    }

    /// How images are to be packed in the end; `None` = as they are.
    pub fn repack_to(&self) -> Option<Compression> {
        // Notes of earlier versions have the level beside the name.
        Compression::parse(self.compression.as_deref()?, self.compression_level.map(i64::from)).ok()
    }

    /// Writes the note of a new run into its folder, and locks it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(&self, folder: &Path) -> Result<File, Failure> {
        let path = folder.join(NAME);
        let make = || -> std::io::Result<File> {
            let file = File::create_new(&path)?;
            // A file system without locks protects nobody, and is no reason to refuse a run.
            let _ = file.try_lock();
            self.fill(&file)?;
            Ok(file)
        };
        make().map_err(|error| Failure::io("cannot write into the spool:", &path, &error))
    }

    /// Replaces the text of a note that is locked.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn replace(&self, folder: &Path, lock: &File) -> Result<(), Failure> {
        let mut file = lock;
        let done = lock.set_len(0).and_then(|()| file.rewind());
        done.and_then(|()| self.fill(lock)).map_err(|error| Failure::io("cannot write", &folder.join(NAME), &error))
    }

    fn fill(&self, mut file: &File) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Reads the note of a run.
    ///
    /// # Errors
    /// It cannot be read, or is not a note of this form.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(NAME);
        let text = std::fs::read_to_string(&path).map_err(|error| Failure::io("cannot read", &path, &error))?;
        let fix = "move the files of this folder by hand: `konkordia repair` makes them readable where they are";
        let refuse = |why: String| Failure::new(Exit::Io, format!("{} is not the note of a run", path.display()), why, fix);
        let note: Self = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        if note.konkordia_spool != VERSION || note.images_per_file == 0 || note.prefix.contains('/') {
            return Err(refuse(format!("it is of form {}", note.konkordia_spool)));
        }
        Ok(note)
    }

    /// Locks the note of a run.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn lock(folder: &Path) -> Result<Locked, Failure> {
        let path = folder.join(NAME);
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|error| Failure::io("cannot open", &path, &error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(Locked::InUse),
            // Without locks it is not known whether another program lives, and refusing would make repair impossible.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Locked::Yes(file)),
        }
    }
}
