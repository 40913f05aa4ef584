//! Files that get their name when they are whole and on the disk. Until then they have a temporary one, under which
//! nothing stays, except after a kill.

use konkordia_core::output::temporary_path;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hdf5::File;

use super::error::{Context, Error, ErrorKind};
use super::low::{self, Format};

/// A file while it is written, under its temporary name. It is removed unless it gets its own name.
pub(crate) struct Part {
    target: PathBuf,
    path: PathBuf,
    /// Identity of that file: device and inode. Another program may have put another file there.
    file: (u64, u64),
    doing: &'static str,
}

impl Part {
    /// Creates a file that is to become `target`. `doing` is what errors call it.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], I/O errors; nothing is left behind then.
    pub(crate) fn create(target: &Path, format: Format, doing: &'static str) -> Result<(Self, File), Error> {
        if target.exists() {
            return Err(exists(target, doing, "the file exists"));
        }
        let path = temporary_path(target);
        if path.exists() {
            std::fs::remove_file(&path).context(doing, &path)?;
        }
        let file = low::create_file(&path, format).context(doing, target)?;
        let facts = std::fs::metadata(&path).context(doing, &path)?;
        Ok((Self { target: target.to_owned(), path, file: (facts.dev(), facts.ino()), doing }, file))
    }

    /// What it is to become.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Where it is until then.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Brings the closed file to the disk.
    ///
    /// # Errors
    /// I/O errors; nothing is left behind then.
    pub(crate) fn seal(self) -> Result<Sealed, Error> {
        std::fs::File::open(&self.path).and_then(|bytes| bytes.sync_all()).context(self.doing, &self.path)?;
        Ok(Sealed(self))
    }

    fn is_ours(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|facts| (facts.dev(), facts.ino()) == self.file)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A file that is whole and on the disk, but does not have its name yet.
pub struct Sealed(Part);

impl Sealed {
    /// Where the file is until [`Sealed::publish`]; it is removed if it is dropped before that.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], I/O errors; nothing is left behind then.
    pub fn publish(self) -> Result<(), Error> {
        let Part { target, path, doing, .. } = &self.0;
        if target.exists() {
            return Err(exists(target, doing, "the file exists now"));
        }
        if !self.0.is_ours() {
            let cause = "another process is writing the same file";
            return Err(Error::new(ErrorKind::Exists, doing, target, cause).with_hint("let one program write it at a time"));
        }
        std::fs::rename(path, target).context(doing, target)?;
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Makes the name durable; on a file system that cannot do this it becomes durable with the next sync.
        let _ = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

fn exists(target: &Path, doing: &'static str, cause: &str) -> Error {
    Error::new(ErrorKind::Exists, doing, target, cause).with_hint("choose another name, or remove the old file")
}
