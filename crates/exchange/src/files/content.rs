//! The bytes of a file: read from the disk where they are wanted, or in memory.

use super::failures::wrong;
use bytes::Bytes;
use konkordia_core::failure::{Failure, reason};
use konkordia_wire::blob::{Blob, beyond};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How files begin that gzip has packed as a whole.
const GZIP: &[u8] = &[0x1F, 0x8B];
/// Bytes of such a file, unpacked.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;

/// The bytes of a file.
pub enum Content {
    /// On the disk.
    File {
        /// The open file.
        file: File,
        /// Its length.
        bytes: u64,
    },
    /// In memory.
    Memory(Bytes),
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Memory(bytes)
    }
}

impl Content {
    /// Opens a file. What gzip has packed as a whole is unpacked into memory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| Failure::io("cannot read the input", path, &error);
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if !metadata.is_file() {
            return Err(wrong(path, "it is not a plain file"));
        }
        let mut head = [0; 2];
        if metadata.len() > 2 && file.read_exact_at(&mut head, 0).is_ok() && head == GZIP {
            return unzip(&file).map(Self::Memory).map_err(|why| wrong(path, why));
        }
        Ok(Self::File { file, bytes: metadata.len() })
    }

    /// As [`Self::open`] for bytes that are in memory.
    ///
    /// # Errors
    /// They are packed, and cannot be unpacked; in words.
    pub fn of_bytes(bytes: Bytes) -> Result<Self, String> {
        if bytes.starts_with(GZIP) { unzip(&bytes[..]).map(Self::Memory) } else { Ok(Self::Memory(bytes)) }
    }

    /// All bytes.
    ///
    /// # Errors
    /// There are more than `bytes_max`, or they cannot be read.
    pub fn whole(&self, bytes_max: u64) -> Result<Bytes, String> {
        if self.bytes() > bytes_max {
            return Err(format!("it has {} bytes; files up to {bytes_max} bytes are read", self.bytes()));
        }
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File { bytes, .. } => Ok(self.read(0, *bytes as usize)?.into_owned().into()),
        }
    }
}

impl Blob for Content {
    fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Self::Memory(all) => all[..].read(at, bytes),
            Self::File { file, bytes: all } => {
                if at.checked_add(bytes as u64).is_none_or(|end| end > *all) {
                    return Err(beyond(at, bytes as u64, *all));
                }
                let mut out = vec![0; bytes];
                file.read_exact_at(&mut out, at).map_err(|error| reason(&error))?;
                Ok(Cow::Owned(out))
            }
        }
    }
}

fn unzip(packed: impl Read) -> Result<Bytes, String> {
    let mut out = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(packed).take(UNPACKED_BYTES_MAX + 1).read_to_end(&mut out);
    read.map_err(|error| format!("it is packed by gzip, and cannot be unpacked: {}", reason(&error)))?;
    if out.len() as u64 > UNPACKED_BYTES_MAX {
        return Err(format!("it is packed by gzip, and has more than {UNPACKED_BYTES_MAX} bytes inside"));
    }
    Ok(out.into())
}
