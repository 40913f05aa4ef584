//! The directories of a TIFF file, classic or big: one for each page, each with the place of the next.

use crate::blob::Blob;
use std::collections::HashSet;

/// How files begin: classic ones, little-endian and big-endian, and big ones (BigTIFF).
pub const MAGICS: [&[u8]; 4] = [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"];
/// Pages of one file.
const PAGES_MAX: usize = 1 << 20;
/// Bytes of one table of numbers, of strips for example.
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Entries of one directory.
const ENTRIES_MAX: u64 = 4096;

/// How numbers and places are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) is_big_endian: bool,
    /// Places have 8 bytes.
    is_big: bool,
}

impl Form {
    fn number(self, bytes: &[u8]) -> u64 {
        let step = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big_endian { bytes.iter().fold(0, step) } else { bytes.iter().rev().fold(0, step) }
    }

    fn place_bytes(self) -> u64 {
        if self.is_big { 8 } else { 4 }
    }

    fn count_bytes(self) -> u64 {
        if self.is_big { 8 } else { 2 }
    }

    fn entry_bytes(self) -> u64 {
        4 + 2 * self.place_bytes()
    }
}

/// Bytes of one value of a type, of those that are read here.
fn value_bytes(kind: u64) -> Option<u64> {
    match kind {
        1 | 2 => Some(1),
        3 => Some(2),
        4 | 13 => Some(4),
        16 | 18 => Some(8),
        _ => None,
    }
}

/// One entry: its tag, and its values.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u16,
    /// Bytes of one value, `None` for types that are not read.
    each: Option<u64>,
    count: u64,
    /// Where the values are.
    at: u64,
}

/// The entries of one page.
pub(super) struct Directory<'b, B: Blob + ?Sized> {
    blob: &'b B,
    pub(super) form: Form,
    entries: Vec<Entry>,
    /// Place of the next directory; 0 = there is none.
    pub(super) next: u64,
}

impl<B: Blob + ?Sized> Directory<'_, B> {
    /// The numbers of an entry; `None` if there is no such entry.
    pub(super) fn numbers(&self, tag: u16) -> Result<Option<Vec<u64>>, String> {
        let Some((each, values)) = self.values(tag, TABLE_BYTES_MAX)? else { return Ok(None) };
        Ok(Some(values.chunks_exact(each).map(|value| self.form.number(value)).collect()))
    }

    /// The first number of an entry.
    pub(super) fn number(&self, tag: u16) -> Result<Option<u64>, String> {
        let Some(numbers) = self.numbers(tag)? else { return Ok(None) };
        numbers.first().map(|number| Some(*number)).ok_or_else(|| "an entry of its directory has no value".to_owned())
    }

    /// A text up to its first zero; `name` is what it is called.
    pub(super) fn text(&self, tag: u16, name: &str, bytes_max: usize) -> Result<Option<String>, String> {
        if let Some(entry) = self.entry(tag)
            && entry.count > bytes_max as u64
        {
            return Err(format!("its {name} has {} bytes; a text may have {bytes_max}", entry.count));
        }
        let values = self.values(tag, bytes_max as u64)?;
        Ok(values.map(|(_, bytes)| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        }))
    }

    /// True if there is an entry of this tag.
    pub(super) fn has(&self, tag: u16) -> bool {
        self.entry(tag).is_some()
    }

    fn entry(&self, tag: u16) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.tag == tag && entry.each.is_some())
    }

    /// Bytes of one value, and all values of an entry.
    fn values(&self, tag: u16, bytes_max: u64) -> Result<Option<(usize, Vec<u8>)>, String> {
        let Some(Entry { each: Some(each), count, at, .. }) = self.entry(tag).copied() else { return Ok(None) };
        let bytes = count.checked_mul(each).filter(|bytes| *bytes <= bytes_max);
        let bytes = bytes.ok_or_else(|| format!("entry {tag} of its directory claims {count} values"))?;
        Ok(Some((each as usize, self.blob.read(at, bytes as usize)?.into_owned())))
    }
}

/// Walks over the directories of a file.
pub(super) struct Directories<'b, B: Blob + ?Sized> {
    blob: &'b B,
    form: Form,
    next: u64,
    seen: HashSet<u64>,
}

impl<'b, B: Blob + ?Sized> Directories<'b, B> {
    pub(super) fn open(blob: &'b B) -> Result<Self, String> {
        let no_tiff = "it does not begin as a TIFF file does";
        let head = blob.read(0, 4).map_err(|_| no_tiff.to_owned())?;
        let order = MAGICS.iter().position(|magic| **magic == *head).ok_or(no_tiff)?;
        let form = Form { is_big_endian: order % 2 == 1, is_big: order >= 2 };
        let cut = |_| "it ends in its header".to_owned();
        let mut at = 4;
        if form.is_big {
            let sizes = blob.read(4, 4).map_err(cut)?;
            if (form.number(&sizes[..2]), form.number(&sizes[2..])) != (8, 0) {
                return Err("its header is not that of a BigTIFF file with places of 8 bytes".into());
            }
            at = 8;
        }
        let next = form.number(&blob.read(at, form.place_bytes() as usize).map_err(cut)?);
        Ok(Self { blob, form, next, seen: HashSet::new() })
    }

    /// The next directory; `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<Directory<'b, B>>, String> {
        let (at, form) = (self.next, self.form);
        if at == 0 && !self.seen.is_empty() {
            return Ok(None);
        }
        if !self.seen.insert(at) {
            return Err(format!("its pages go round in a circle: the page after page {} is at byte {at} again", self.seen.len()));
        }
        if self.seen.len() > PAGES_MAX {
            return Err(format!("it has more than {PAGES_MAX} pages"));
        }
        let cut = |_| format!("it ends inside its directory, which begins at byte {at}");
        let count = form.number(&self.blob.read(at, form.count_bytes() as usize).map_err(cut)?);
        if count > ENTRIES_MAX {
            return Err(cut(String::new()));
        }
        let first = at + form.count_bytes();
        let table = self.blob.read(first, (count * form.entry_bytes()) as usize).map_err(cut)?;
        let end = first + table.len() as u64;
        let entries = table.chunks_exact(form.entry_bytes() as usize).enumerate().map(|(n, entry)| {
            let place = form.place_bytes() as usize;
            let (count, value) = (form.number(&entry[4..4 + place]), &entry[4 + place..]);
            let each = value_bytes(form.number(&entry[2..4]));
            let is_inside = each.and_then(|each| each.checked_mul(count)).is_some_and(|bytes| bytes <= form.place_bytes());
            let own = first + n as u64 * form.entry_bytes() + 4 + form.place_bytes();
            Entry { tag: form.number(&entry[..2]) as u16, each, count, at: if is_inside { own } else { form.number(value) } }
        });
        let entries = entries.collect();
        self.next = match self.blob.read(end, form.place_bytes() as usize) {
            Ok(next) => form.number(&next),
            // Some writers end the file with the directory.
            Err(_) if end == self.blob.bytes() => 0,
            Err(why) => return Err(cut(why)),
        };
        Ok(Some(Directory { blob: self.blob, form, entries, next: self.next }))
    }
}
