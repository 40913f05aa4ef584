//! How fast a disk takes data: a file is written for some seconds and removed.

use konkordia_core::failure::reason;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of one write.
const BLOCK_BYTES: usize = 8 << 20;
/// Alignment that every disk accepts past the page cache.
const ALIGNMENT: usize = 4096;
/// Most bytes of a test.
const TEST_BYTES_MAX: u64 = 16 << 30;

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written {
    /// Bytes that were written and are on the disk.
    pub bytes: u64,
    /// Time for it, with the flush at the end.
    pub seconds: f64,
    /// The longest of all writes, ms.
    pub slowest_ms: f64,
    /// Past the page cache (`O_DIRECT`).
    pub is_direct: bool,
}

impl Written {
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

/// The file of the test; it is removed at the end, whatever happens.
struct Scratch {
    path: PathBuf,
    file: File,
    is_direct: bool,
}

impl Scratch {
    fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!(".konkordia-doctor-{}", std::process::id()));
        let open = |flags| OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(&path);
        match open(libc::O_DIRECT) {
            Ok(file) => Ok(Self { path, file, is_direct: true }),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // Some kernels make the file before they notice that its file system has no O_DIRECT.
                let _ = std::fs::remove_file(&path);
                let file = open(0)?;
                Ok(Self { path, file, is_direct: false })
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes to `folder` for `time`, at most a quarter of the `free_bytes`.
///
/// # Errors
/// The folder cannot be written, or the disk failed; the reason in words.
pub fn write(folder: &Path, free_bytes: u64, time: Duration) -> Result<Written, String> {
    let most = (free_bytes / 4).min(TEST_BYTES_MAX) / BLOCK_BYTES as u64;
    if most == 0 {
        return Err("there is too little free space for a test".into());
    }
    write_blocks(folder, most, time).map_err(|error| reason(&error))
}

fn write_blocks(folder: &Path, most: u64, time: Duration) -> io::Result<Written> {
    let mut scratch = Scratch::create(folder)?;
    let memory = noise(BLOCK_BYTES + ALIGNMENT);
    let offset = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let block = &memory[offset..][..BLOCK_BYTES];
    let (began, mut slowest, mut blocks) = (Instant::now(), Duration::ZERO, 0);
    while blocks < most && (blocks == 0 || began.elapsed() < time) {
        let at = Instant::now();
        scratch.file.write_all(block)?;
        slowest = slowest.max(at.elapsed());
        blocks += 1;
    }
    scratch.file.sync_data()?;
    Ok(Written {
        bytes: blocks * BLOCK_BYTES as u64,
        seconds: began.elapsed().as_secs_f64(),
        slowest_ms: slowest.as_secs_f64() * 1e3,
        is_direct: scratch.is_direct,
    })
}

/// Bytes that no file system can compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let written = write(folder.path(), 128 << 20, Duration::from_secs(60)).unwrap();
        assert_eq!(written.bytes, 32 << 20);
        assert!(written.rate() > 0.0 && written.slowest_ms > 0.0 && written.seconds < 60.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(write(folder.path(), 1 << 20, Duration::ZERO).unwrap_err().contains("too little free space"));
        assert!(write(Path::new("/no/such/folder"), 1 << 30, Duration::ZERO).unwrap_err().contains("No such file"));
    }
}
