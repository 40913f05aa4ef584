//! Files that get their name when they are whole and on the disk.

use konkordia_core::failure::Failure;
use konkordia_core::output::temporary_path;
use std::fs::{self, File};
use std::path::Path;

/// Writes a small file: temporary name, to the disk, own name.
///
/// # Errors
/// I/O; then the temporary file is gone.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    folder_of(path)?;
    let part = temporary_path(path);
    let done = fs::write(&part, bytes).and_then(|()| File::open(&part)?.sync_all()).and_then(|()| fs::rename(&part, path));
    done.map_err(|error| {
        let _ = fs::remove_file(&part);
        Failure::io("cannot write", path, &error)
    })
}

/// Creates the folder in which a file is to lie.
///
/// # Errors
/// I/O.
pub fn folder_of(path: &Path) -> Result<(), Failure> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|error| Failure::io("cannot create", folder, &error))
}

/// Brings the names in a folder, and in all folders below it, to the disk.
///
/// # Errors
/// I/O.
pub fn sync_folders(folder: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io("cannot bring to the disk", folder, &error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Renames a folder or file to its final name, and brings that to the disk.
///
/// # Errors
/// I/O.
pub fn publish(part: &Path, path: &Path) -> Result<(), Failure> {
    fs::rename(part, path).map_err(|error| Failure::io("cannot rename to", path, &error))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| Failure::io("cannot bring to the disk", folder, &error))
}
