//! Files of any format: their failures, their beginnings, and what tells them from others.

use konkordia_core::failure::{Exit, Failure};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A failure of the input itself.
pub fn wrong(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Failure {
    Failure::new(Exit::Configuration, what, why, fix)
}

/// The failure for a file that cannot be read.
pub fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    Failure::io("cannot read the input", path, error)
}

/// The beginning of a file, at most `most` bytes.
pub fn head(path: &Path, most: usize) -> Result<Vec<u8>, Failure> {
    let file = std::fs::File::open(path).map_err(|e| cannot_read(path, &e))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).map_err(|e| cannot_read(path, &e))?;
    Ok(bytes)
}

/// SHA-256 over name, size, modification time and first bytes of each file.
pub fn identity(files: &[PathBuf]) -> Result<String, Failure> {
    const HEAD_BYTES: usize = 4096;
    let mut hasher = Sha256::new();
    for path in files {
        let meta = path.metadata().map_err(|e| cannot_read(path, &e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        hasher.update(format!("{name}\n{}\n{}.{:09}\n", meta.len(), meta.mtime(), meta.mtime_nsec()));
        hasher.update(head(path, HEAD_BYTES)?);
    }
    Ok(format!("sha256:{}", hex(hasher)))
}

/// SHA-256 of all these bytes, as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
