//! Shared memory as a device of links: each side has memory with the queue of its events, and one more for each region.

use super::memory::Memory;
use super::queue::{ENTRY_BYTES, Reader, Writer, queue_bytes};
use crate::device::{Completion, Device, Place};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

/// Events that are on their way at most.
const ENTRIES: u32 = 4096;
/// Events that are taken at a time.
const TAKEN_MAX: usize = 256;

/// The device of one side.
pub(super) struct SharedMemory {
    own: Memory,
    address: Vec<u8>,
    events: Reader,
    regions: Vec<Memory>,
    /// Memory of the other side, and the queue of its events.
    other: Option<(Memory, Writer)>,
    /// Regions of the other side that were written.
    theirs: HashMap<u64, Memory>,
    /// Process of the other side, of which all its regions are.
    process: String,
    done: Vec<usize>,
}

impl SharedMemory {
    pub(super) fn new() -> io::Result<Self> {
        let own = Memory::create(queue_bytes(ENTRIES))?;
        let events = Reader::new(&own, 0, ENTRIES).ok_or_else(|| io::Error::other("there is no room for a queue"))?;
        events.open(&own);
        let address = own.address().into_bytes();
        let (regions, theirs, done) = (Vec::new(), HashMap::new(), Vec::new());
        Ok(Self { own, address, events, regions, other: None, theirs, process: String::new(), done })
    }
}

impl Device for SharedMemory {
    const SLOTS: usize = 16;
    const SLOT_BYTES: usize = 1 << 30;

    fn address(&self) -> &[u8] {
        &self.address
    }

    fn meet(&mut self, address: &[u8]) -> Result<(), String> {
        let address = std::str::from_utf8(address).map_err(|_| "it told an address that is no text")?;
        let memory = Memory::open(address).map_err(|error| format!("its memory cannot be opened: {error}"))?;
        let writer = Writer::new(&memory, 0, ENTRIES).map_err(|error| format!("its queue cannot be held: {error}"))?;
        let writer = writer.ok_or("its memory has no queue of events, or another program writes it")?;
        self.process = address.split('/').next().unwrap_or_default().to_owned();
        self.other = Some((memory, writer));
        Ok(())
    }

    fn register(&mut self, length_bytes: usize) -> Result<Place, String> {
        let memory = Memory::create(length_bytes).map_err(|error| format!("{length_bytes} bytes: {error}"))?;
        // The file goes with the base, its number is the key.
        let place = Place { key: memory.address.number, base: (memory.address.file as u64) << 40 };
        self.regions.push(memory);
        Ok(place)
    }

    fn read(&self, region: usize, offset_bytes: usize, into: &mut [u8]) -> bool {
        self.regions.get(region).is_some_and(|memory| memory.read(offset_bytes, into))
    }

    fn write(&mut self, slot: usize, bytes: &[u8], event: Option<u32>, to: Place) -> Result<bool, String> {
        let Self { other, theirs, process, done, .. } = self;
        let (memory, queue) = other.as_mut().ok_or("the other side is not known")?;
        if event.is_some() && !queue.has_room(memory) {
            return Ok(false);
        }
        let (file, offset_bytes) = (to.base >> 40, (to.base & ((1 << 40) - 1)) as usize);
        let region = match theirs.entry(to.key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let region = Memory::open(&format!("{process}/{file}/{:016x}", to.key)).map_err(|error| error.to_string())?;
                place.insert(region)
            }
        };
        if !region.write(offset_bytes, bytes) {
            return Err(format!("{} bytes at {offset_bytes} do not lie in its region", bytes.len()));
        }
        if let Some(event) = event {
            let mut entry = [0; ENTRY_BYTES];
            entry[..4].copy_from_slice(&event.to_le_bytes());
            queue.push(memory, &entry);
        }
        done.push(slot);
        Ok(true)
    }

    fn completions(&mut self, happened: &mut Vec<Completion>) -> Result<(), String> {
        happened.extend(self.done.drain(..).map(Completion::Written));
        for _ in 0..TAKEN_MAX {
            match self.events.next(&self.own).map_err(|why| why.to_string())? {
                Some([a, b, c, d, ..]) => happened.push(Completion::Event(u32::from_le_bytes([a, b, c, d]))),
                None => break,
            }
        }
        Ok(())
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn events_ahead_max(&self) -> Option<u64> {
        None
    }
}
