//! A queue in shared memory, from one program that writes to the one that owns the memory. The reader believes nothing
//! but what it has copied: the number of entries that the writer tells is compared with what there can be, and what an
//! entry says is a matter of the user.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | u64: entries that were written since the beginning | writer |
//! | 64 | u64: entries that were read since the beginning | reader |
//! | 72 | u64: 1 while the reader takes entries | reader |
//! | 128 | entries of 32 bytes, used in turn | writer |
//!
//! The writer holds byte 0 as long as it lives. Order: what was written into the memory before an entry is there when
//! the entry is read.

use super::memory::Memory;
use std::fmt;
use std::io::Result;
use std::sync::atomic::Ordering;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;
const WRITTEN: usize = 0;
const READ: usize = 64;
const IS_OPEN: usize = 72;
const ENTRIES: usize = 128;

/// What is told of a write.
pub type Entry = [u8; ENTRY_BYTES];

/// Bytes of a queue of so many entries.
pub const fn queue_bytes(entries: u32) -> usize {
    ENTRIES + entries as usize * ENTRY_BYTES
}

/// A queue that its writer has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Entries that the writer says it has written.
    pub written: u64,
    /// Those that were read.
    pub read: u64,
    /// Places of the queue.
    pub entries: u32,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, read, entries } = self;
        write!(f, "it says that it has written {written} entries; {read} were read, and the queue has {entries} places")
    }
}

/// Is there a queue at this place?
fn is_place(memory: &Memory, offset_bytes: usize, entries: u32) -> bool {
    let end = offset_bytes.checked_add(queue_bytes(entries));
    entries > 0 && offset_bytes.is_multiple_of(8) && end.is_some_and(|end| end <= memory.length_bytes())
}

fn load(memory: &Memory, offset_bytes: usize) -> u64 {
    memory.word(offset_bytes).map_or(0, |word| word.load(Ordering::Acquire))
}

fn store(memory: &Memory, offset_bytes: usize, value: u64) {
    if let Some(word) = memory.word(offset_bytes) {
        word.store(value, Ordering::Release);
    }
}

/// The end of a queue that writes.
#[derive(Debug)]
pub struct Writer {
    offset_bytes: usize,
    entries: u32,
    written: u64,
    /// What was known to be read.
    read: u64,
}

impl Writer {
    /// The queue at `offset_bytes` of the memory of another program; `None` if there is room for none, or if another
    /// program writes it.
    ///
    /// # Errors
    /// The system does not say whether somebody writes it.
    pub fn new(memory: &Memory, offset_bytes: usize, entries: u32) -> Result<Option<Self>> {
        let is_ours = is_place(memory, offset_bytes, entries) && memory.hold(offset_bytes)?;
        Ok(is_ours.then_some(Self { offset_bytes, entries, written: 0, read: 0 }))
    }

    /// Does the reader take entries? It begins with an empty queue then.
    pub fn is_open(&self, memory: &Memory) -> bool {
        load(memory, self.offset_bytes + IS_OPEN) == 1
    }

    /// Has it room for an entry?
    #[inline]
    pub fn has_room(&mut self, memory: &Memory) -> bool {
        let entries = u64::from(self.entries);
        if self.written - self.read >= entries {
            // A reader that tells nonsense gets entries that it has not asked for, in its own memory.
            self.read = load(memory, self.offset_bytes + READ).min(self.written);
        }
        self.written - self.read < entries
    }

    /// Tells a write; `false` if the queue is full.
    #[inline]
    pub fn push(&mut self, memory: &Memory, entry: &Entry) -> bool {
        if !self.has_room(memory) {
            return false;
        }
        let place = (self.written % u64::from(self.entries)) as usize;
        let is_written = memory.write(self.offset_bytes + ENTRIES + place * ENTRY_BYTES, entry);
        self.written += 1;
        store(memory, self.offset_bytes + WRITTEN, self.written);
        is_written
    }
}

/// The end of a queue that reads: the owner of the memory.
#[derive(Debug)]
pub struct Reader {
    offset_bytes: usize,
    entries: u32,
    read: u64,
    had_writer: bool,
}

impl Reader {
    /// An empty queue; `None` if it does not fit there. Nothing can be written before [`Self::open`].
    pub fn new(memory: &Memory, offset_bytes: usize, entries: u32) -> Option<Self> {
        if !is_place(memory, offset_bytes, entries) {
            return None;
        }
        memory.clear(offset_bytes, ENTRIES);
        Some(Self { offset_bytes, entries, read: 0, had_writer: false })
    }

    /// Lets the writer begin. What is written into memory before is seen by it.
    pub fn open(&self, memory: &Memory) {
        store(memory, self.offset_bytes + IS_OPEN, 1);
    }

    /// Lets no further writer begin.
    pub fn close(&self, memory: &Memory) {
        store(memory, self.offset_bytes + IS_OPEN, 0);
    }

    /// The next entry, if there is one.
    ///
    /// # Errors
    /// [`Broken`]: nothing in the queue can be believed any more.
    #[inline]
    pub fn next(&mut self, memory: &Memory) -> std::result::Result<Option<Entry>, Broken> {
        let written = load(memory, self.offset_bytes + WRITTEN);
        match written.checked_sub(self.read) {
            Some(0) => Ok(None),
            Some(waiting) if waiting <= self.entries.into() => {
                let place = (self.read % u64::from(self.entries)) as usize;
                let mut entry = [0; ENTRY_BYTES];
                memory.read(self.offset_bytes + ENTRIES + place * ENTRY_BYTES, &mut entry);
                self.read += 1;
                store(memory, self.offset_bytes + READ, self.read);
                Ok(Some(entry))
            }
            _ => Err(Broken { written, read: self.read, entries: self.entries }),
        }
    }

    /// Is nothing there?
    pub fn is_empty(&self, memory: &Memory) -> bool {
        load(memory, self.offset_bytes + WRITTEN) == self.read
    }

    /// Has a program that wrote this queue ended, or let it go? Entries may still be there.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_writer_gone(&mut self, memory: &Memory) -> Result<bool> {
        let is_held = memory.is_held(self.offset_bytes)?;
        self.had_writer |= is_held || load(memory, self.offset_bytes + WRITTEN) > 0;
        Ok(self.had_writer && !is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(entries: u32) -> (Memory, Reader, Memory, Writer) {
        let here = Memory::create(64 + queue_bytes(entries)).unwrap();
        let reader = Reader::new(&here, 64, entries).unwrap();
        let there = Memory::open(&here.address()).unwrap();
        let writer = Writer::new(&there, 64, entries).unwrap().unwrap();
        (here, reader, there, writer)
    }

    #[test]
    fn entries_come_in_order_behind_what_was_written() {
        const COUNT: u64 = 20_000;
        let (here, mut reader, there, mut writer) = pair(7);
        assert!(!writer.is_open(&there));
        reader.open(&here);
        assert!(writer.is_open(&there));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..COUNT {
                    while !writer.has_room(&there) {
                        std::thread::yield_now();
                    }
                    // The place is written again only when the entry before was read.
                    if n % 7 == 0 {
                        there.write(8 * (n as usize / 7 % 8), &n.to_le_bytes());
                    }
                    let mut entry = [0; ENTRY_BYTES];
                    entry[..8].copy_from_slice(&n.to_le_bytes());
                    assert!(writer.push(&there, &entry));
                }
            });
            let mut n = 0;
            while n < COUNT {
                let Some(entry) = reader.next(&here).unwrap() else {
                    std::thread::yield_now();
                    continue;
                };
                assert_eq!(entry[..8], n.to_le_bytes());
                if n % 7 == 0 {
                    let mut word = [0; 8];
                    assert!(here.read(8 * (n as usize / 7 % 8), &mut word) && word == n.to_le_bytes());
                }
                n += 1;
            }
        });
        assert_eq!(reader.next(&here), Ok(None));
        reader.close(&here);
        assert!(!writer.is_open(&there));
    }

    #[test]
    fn a_full_queue_takes_nothing() {
        let (here, mut reader, there, mut writer) = pair(2);
        assert!(writer.push(&there, &[1; 32]) && writer.push(&there, &[2; 32]) && !writer.push(&there, &[3; 32]));
        assert_eq!(reader.next(&here), Ok(Some([1; 32])));
        assert!(writer.push(&there, &[4; 32]) && !writer.has_room(&there));
        assert_eq!(reader.next(&here), Ok(Some([2; 32])));
        assert_eq!(reader.next(&here), Ok(Some([4; 32])));
    }

    #[test]
    fn a_writer_that_tells_nonsense_is_found_out() {
        let (here, mut reader, there, mut writer) = pair(2);
        writer.push(&there, &[1; 32]);
        assert!(!reader.is_empty(&here));
        for nonsense in [3, u64::MAX, 1 << 63] {
            store(&there, 64, nonsense);
            assert_eq!(reader.next(&here), Err(Broken { written: nonsense, read: 0, entries: 2 }));
        }
        store(&there, 64, 2);
        reader.next(&here).unwrap();
        store(&there, 64, 0);
        let why = reader.next(&here).unwrap_err().to_string();
        assert!(why.contains("written 0 entries; 1 were read"), "{why}");
        // A reader that tells nonsense, too: nothing is written outside of the queue.
        store(&there, 64 + READ, u64::MAX);
        writer.push(&there, &[1; 32]);
        assert!(writer.has_room(&there) && writer.push(&there, &[1; 32]));
    }

    #[test]
    fn a_queue_has_one_writer_and_its_end_is_seen() {
        let (here, mut reader, there, writer) = pair(2);
        let second = Memory::open(&here.address()).unwrap();
        assert!(Writer::new(&second, 64, 2).unwrap().is_none());
        assert!(!reader.is_writer_gone(&here).unwrap());
        assert!(reader.is_empty(&here));
        drop((there, writer));
        assert!(reader.is_writer_gone(&here).unwrap());
        assert!(Writer::new(&second, 64, 2).unwrap().is_some());
        for (offset, entries) in [(64, 3), (usize::MAX, 2), (63, 2), (64, 0), (1 << 40, u32::MAX)] {
            assert!(Writer::new(&second, offset, entries).unwrap().is_none(), "{offset} {entries}");
            assert!(Reader::new(&here, offset, entries).is_none(), "{offset} {entries}");
        }
    }
}
