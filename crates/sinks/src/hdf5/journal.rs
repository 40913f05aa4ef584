//! The journal of a growing data file: one record per image with the place of its chunk and its row of columns,
//! appended by one plain `write` after the chunk. So the journal holds everything that libhdf5 had not yet put into the
//! file when the process was killed. It is locked while its writer lives, and removed once the data file is closed.
//!
//! Layout, little endian: header = magic "KONKJRN1", u32 length of text, u32 bytes per row, u64 file number, u64 first
//! image, text (the run description), u32 CRC-32 of all before. Record = u64 image, u64 offset, u64 size (offset and
//! size all ones: no chunk), row, u32 CRC-32 of the record. Where an image has several chunks, offset and size of the
//! second and further ones begin the row.

use konkordia_core::output::temporary_path;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::hash as crc32;

use super::error::{Context, Error, ErrorKind};

const MAGIC: &[u8; 8] = b"KONKJRN1";
const FIXED_HEADER: usize = 32;
/// A longer text is not a run description.
const MOST_TEXT: usize = 64 << 20;
/// Offset and size of an image without a chunk.
pub(crate) const NO_CHUNK: u64 = u64::MAX;

/// Offset and size of a chunk.
pub(crate) type Place = (u64, u64);

/// Bytes that a record needs before the row, beyond those of an image with one chunk.
pub(crate) fn places_bytes(pieces: usize) -> usize {
    16 * (pieces - 1)
}

/// A journal being written.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    record: Vec<u8>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) image: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) row: Vec<u8>,
    /// Damaged records between the previous good record and this one.
    pub(crate) bad_before: u64,
}

impl Entry {
    /// Offset and size of each of `pieces` chunks, and the row of columns; `None` if the record is shorter.
    pub(crate) fn parts(&self, pieces: usize) -> Option<(Vec<Place>, &[u8])> {
        let (further, row) = self.row.split_at_checked(places_bytes(pieces))?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let further = further.chunks_exact(16).map(|pair| (number(&pair[..8]), number(&pair[8..])));
        Some((std::iter::once((self.offset, self.size)).chain(further).collect(), row))
    }
}

/// A journal read back: every good record, and how many are damaged. An unfinished last record does not count.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) text: String,
    pub(crate) number: u64,
    pub(crate) first: u64,
    pub(crate) entries: Vec<Entry>,
    /// Damaged records: all of them, and those after the last good one.
    pub(crate) bad: u64,
    pub(crate) bad_behind: u64,
    /// True if it ends exactly at its header.
    pub(crate) is_empty: bool,
    /// CRC-32 of the whole journal.
    pub(crate) crc32: u32,
    /// Keeps the lock while the data file is rebuilt.
    _lock: File,
}

impl Journal {
    pub(crate) fn create(path: &Path, text: &str, row_bytes: usize, number: u64, first: u64) -> Result<Self, Error> {
        let doing = "create the journal";
        // The file gets its name when it has its header, so under its name it lacks the header only if a power cut took
        // it.
        let part = temporary_path(path);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&part).context(doing, &part)?;
        file.try_lock().map_err(|error| Error::new(ErrorKind::InUse, doing, path, error.to_string()))?;
        file.set_len(0).context(doing, &part)?;
        let mut header = Vec::with_capacity(FIXED_HEADER + text.len() + 4);
        header.extend(MAGIC);
        header.extend((text.len() as u32).to_le_bytes());
        header.extend((row_bytes as u32).to_le_bytes());
        header.extend(number.to_le_bytes());
        header.extend(first.to_le_bytes());
        header.extend(text.as_bytes());
        header.extend(crc32(&header).to_le_bytes());
        let put = || -> std::io::Result<()> {
            (&file).write_all(&header)?;
            // The holder of the lock on this name has no competitor.
            if path.exists() { Err(std::io::ErrorKind::AlreadyExists.into()) } else { std::fs::rename(&part, path) }
        };
        put().inspect_err(|_| drop(std::fs::remove_file(&part))).context(doing, path)?;
        let record = Vec::with_capacity(28 + row_bytes);
        Ok(Self { path: path.to_owned(), file: Arc::new(file), length: header.len() as u64, record })
    }

    /// Appends one record. After an error the journal ends where it ended before.
    pub(crate) fn append(&mut self, image: u64, places: &[Place], row: &[u8]) -> Result<(), Error> {
        self.record.clear();
        self.record.extend(image.to_le_bytes());
        for (offset, size) in places {
            self.record.extend(offset.to_le_bytes());
            self.record.extend(size.to_le_bytes());
        }
        self.record.extend(row);
        let sum = crc32(&self.record);
        self.record.extend(sum.to_le_bytes());
        let written = (&*self.file).write_all(&self.record);
        if written.is_err() {
            // The reader skips a record cut short anyway; this only keeps later records readable.
            let _ = self.file.set_len(self.length);
            let _ = (&*self.file).seek(std::io::SeekFrom::Start(self.length));
        }
        written.context("write the journal", &self.path)?;
        self.length += self.record.len() as u64;
        Ok(())
    }

    /// The file, for the thread that brings it to the disk.
    pub(crate) fn file(&self) -> (PathBuf, Arc<File>) {
        (self.path.clone(), Arc::clone(&self.file))
    }

    pub(crate) fn remove(self) -> Result<(), Error> {
        std::fs::remove_file(&self.path).context("remove the journal", &self.path)
    }
}

/// Fails with `InUse` if the writer of this journal is alive; it is not an error if the journal does not exist.
pub(crate) fn refuse_if_alive(path: &Path) -> Result<(), Error> {
    match File::open(path) {
        Ok(file) => lock(&file, path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("open the journal", path, &error)),
    }
}

fn lock(file: &File, path: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(Error::new(ErrorKind::InUse, "change this run", path, "another process is writing it"))
        }
        // A file system without locks: whether the writer lives is not known, and refusing would make repair impossible
        // there.
        Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Reads a journal. `Ok(None)` if its header is absent: it did not reach the disk. (A writer of an earlier version may
/// have died before the first image.)
pub(crate) fn replay(path: &Path) -> Result<Option<Replay>, Error> {
    let doing = "read the journal";
    let mut file = File::open(path).context(doing, path)?;
    lock(&file, path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).context(doing, path)?;
    let number = |at: usize, n: usize| bytes.get(at..at + n).map(|b| b.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b)));
    let (Some(text_len), Some(row_bytes), Some(file_number), Some(first)) =
        (number(8, 4), number(12, 4), number(16, 8), number(24, 8))
    else {
        return Ok(None);
    };
    // Where data did not reach the disk, some file systems return zeros.
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if &bytes[..8] != MAGIC || text_len as usize > MOST_TEXT {
        return Err(Error::new(ErrorKind::Damaged, doing, path, "this is not a journal").with_hint("move the file away"));
    }
    let header = FIXED_HEADER + text_len as usize;
    let (Some(head), Some(sum)) = (bytes.get(..header), number(header, 4)) else { return Ok(None) };
    if u64::from(crc32(head)) != sum {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&head[FIXED_HEADER..]).into_owned();
    let record = 24 + row_bytes as usize;
    let (mut entries, mut bad, mut bad_before) = (Vec::new(), 0, 0);
    for chunk in bytes[header + 4..].chunks_exact(record + 4) {
        let (body, sum) = chunk.split_at(record);
        if crc32(body).to_le_bytes() != sum {
            (bad, bad_before) = (bad + 1, bad_before + 1);
            continue;
        }
        let field = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| body[8 * i + k]));
        entries.push(Entry { image: field(0), offset: field(1), size: field(2), row: body[24..].to_vec(), bad_before });
        bad_before = 0;
    }
    let (is_empty, crc32) = (bytes.len() == header + 4, crc32(&bytes));
    Ok(Some(Replay { text, number: file_number, first, entries, bad, bad_behind: bad_before, is_empty, crc32, _lock: file }))
}

/// Whether a file holds more than the header of a journal, damaged or not.
pub(crate) fn has_records(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let text = bytes.get(8..12).map_or(0, |length| u32::from_le_bytes(std::array::from_fn(|k| length[k])));
    bytes.starts_with(MAGIC) && bytes.len() > FIXED_HEADER + text as usize + 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_check_string() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn every_truncation_gives_a_prefix_of_the_records() {
        let dir = std::env::temp_dir().join(format!("konkordia-journal-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a.journal");
        let mut journal = Journal::create(&path, "text", 3, 2, 10).unwrap();
        assert_eq!(replay(&path).unwrap_err().kind, ErrorKind::InUse);
        for i in 0..4 {
            journal.append(10 + i, &[(100 * i, 50)], &[i as u8; 3]).unwrap();
        }
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        let header = FIXED_HEADER + 4 + 4;
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let got = replay(&path).unwrap();
            assert_eq!(got.is_some(), length >= header);
            if let Some(got) = got {
                assert_eq!((got.text.as_str(), got.number, got.first), ("text", 2, 10));
                assert_eq!(got.entries.len(), (length - header) / 31);
                assert!(got.entries.iter().enumerate().all(|(i, e)| e.image == 10 + i as u64 && e.row == [i as u8; 3]));
            }
        }
        let mut damaged = whole.clone();
        damaged[header + 31 + 5] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let got = replay(&path).unwrap().unwrap();
        let found: Vec<_> = got.entries.iter().map(|entry| (entry.image, entry.bad_before)).collect();
        assert_eq!((found.as_slice(), got.bad, got.bad_behind), (&[(10, 0), (12, 1), (13, 0)][..], 1, 0));
        drop(got);
        damaged[header + 3 * 31 + 5] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let got = replay(&path).unwrap().unwrap();
        assert_eq!((got.entries.len(), got.bad, got.bad_behind), (2, 2, 1));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
