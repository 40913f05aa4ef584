//! Receivers into whose memory a module writes: memory that both programs share.

use konkordia_core::failure::reason;
use konkordia_fabric::rashpa::sender::{EventRing, Sender, ring_bytes};
use konkordia_fabric::rashpa::shared;
use konkordia_fabric::rashpa::terms::BufferId;
use konkordia_links::shm::{Memory, Writer};
use konkordia_wire::rdma_udp::Header;

/// Payloads of pixels have at least so many bytes, unless packets are very small; those of events are shorter.
const PIXELS_BYTES_MIN: usize = 1024;

/// The memory of a receiver.
pub struct Direct {
    memory: Memory,
    queue: Writer,
    /// Id, address, and bytes of a unit.
    buffers: Vec<(BufferId, u64, u32)>,
}

/// Why a packet was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// The receiver has not yet taken what was written before.
    Full,
    /// It has no such place.
    NoPlace,
}

impl Direct {
    /// Opens the memory at `address` of the receiver of this ring.
    pub fn open(address: &str, ring: &EventRing, sender: &Sender) -> Result<Self, String> {
        let opened = Memory::open(address).and_then(|memory| memory.populate().map(|()| memory));
        let memory = opened.map_err(|error| format!("its memory cannot be opened: {}", reason(&error)))?;
        let place = ring.address.checked_add(ring_bytes(ring.records)).and_then(|at| usize::try_from(at).ok());
        let place = place.ok_or("its queue is beyond all addresses")?;
        let queue = Writer::new(&memory, place, ring.records).map_err(|error| reason(&error))?;
        let queue = queue.ok_or("its memory has no room for the queue of this module, or another program writes that")?;
        Ok(Self { memory, queue, buffers: sender.buffers(ring.receiver).collect() })
    }

    /// Is the receiver ready for this run?
    pub fn is_ready(&self) -> bool {
        self.queue.is_open(&self.memory)
    }

    /// Has the program of the receiver ended? Not if the system cannot say it.
    pub fn is_gone(&self) -> bool {
        self.memory.is_owner_gone().unwrap_or(false)
    }

    /// Writes a payload to its place, and tells it.
    pub fn write(&mut self, header: &Header, payload: &[u8]) -> Result<(), NotWritten> {
        let buffer = self.buffers.iter().find(|(id, ..)| id.0 == header.buffer).ok_or(NotWritten::NoPlace)?;
        let offset = header.offset_units.checked_mul(buffer.2.into()).and_then(|offset| offset.checked_add(buffer.1));
        let place = offset.and_then(|at| usize::try_from(at).ok()).ok_or(NotWritten::NoPlace)?;
        if !self.queue.has_room(&self.memory) {
            return Err(NotWritten::Full);
        }
        // The receiver looks at an image when all of it is there, which is later than a cache keeps it.
        let write = if payload.len() < PIXELS_BYTES_MIN { Memory::write } else { Memory::write_past_caches };
        let is_written = write(&self.memory, place, payload);
        if is_written && self.queue.push(&self.memory, &shared::entry(header, payload.len())) {
            return Ok(());
        }
        Err(NotWritten::NoPlace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_links::shm;

    #[test]
    fn the_plan_has_room_for_the_queues_of_the_links() {
        for entries in [1, 7, shared::ENTRIES_MIN] {
            assert_eq!(shared::queue_bytes(entries), shm::queue_bytes(entries) as u64);
        }
        assert_eq!(shared::ENTRY_BYTES, shm::ENTRY_BYTES);
    }
}
