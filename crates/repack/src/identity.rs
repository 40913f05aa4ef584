//! Identifies the file that was copied. Its name and shape are not enough to decide that an original may be deleted.

use konkordia_core::failure::{Exit, Failure};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes read at the beginning and at the end of a file: all known writers put times, sums and the index of chunks
/// there.
const SAMPLE_BYTES: u64 = 1 << 20;

/// The identity of a file, as "sha256:" and 64 digits: a hash over its size, modification time (ns), first and last
/// bytes.
///
/// # Errors
/// When it cannot be read.
pub fn of(path: &Path) -> Result<String, Failure> {
    let doing = || -> std::io::Result<String> {
        let file = File::open(path)?;
        let facts = file.metadata()?;
        let sample_bytes = SAMPLE_BYTES.min(facts.len());
        let mut hasher = Sha256::new();
        for number in [facts.len() as i64, facts.mtime(), facts.mtime_nsec()] {
            hasher.update(number.to_le_bytes());
        }
        let mut bytes = vec![0; sample_bytes as usize];
        for start in [0, facts.len() - sample_bytes] {
            file.read_exact_at(&mut bytes, start)?;
            hasher.update(&bytes);
        }
        let mut text = String::from("sha256:");
        for byte in hasher.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(text)
    };
    doing().map_err(|error| Failure::io("cannot read", path, &error))
}

/// Makes sure that a file is still the one that was read.
///
/// # Errors
/// When it has changed.
pub fn unchanged(path: &Path, identity: &str) -> Result<(), Failure> {
    if of(path)? == identity {
        return Ok(());
    }
    let what = format!("{} changed while it was repacked", path.display());
    Err(Failure::new(Exit::Incomplete, what, "another program writes to it", "wait until it is finished, then repack it again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_small_file_and_its_time_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.h5");
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let put = |bytes: &[u8], time| {
            std::fs::write(&path, bytes).expect("it is written");
            File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("its time is set");
            of(&path).expect("it is read")
        };
        let first = put(b"12345", time);
        assert_eq!(first, put(b"12345", time));
        assert!(unchanged(&path, &first).is_ok());
        for other in [&b"12346"[..], b"02345", b"123450", b""] {
            assert_ne!(first, put(other, time));
        }
        assert!(unchanged(&path, &first).is_err());
        assert_ne!(first, put(b"12345", time + std::time::Duration::from_nanos(1)));
    }
}
