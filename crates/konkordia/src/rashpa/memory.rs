//! The memory of a receiver: its own for packets that come by sockets, or memory that it shares with modules of the
//! same host. Which one a run uses is what the manager says. Pages are taken when they are used first.

use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_links::shm;

/// The memory of a receiver.
pub struct Memory {
    own: Vec<u8>,
    shared: shm::Memory,
    is_shared: bool,
    /// A slot of shared memory, as it was when it was looked at: modules could write it meanwhile.
    slot: Vec<u8>,
}

impl Memory {
    /// Memory of so many bytes.
    pub fn new(bytes: usize) -> Result<Self, Failure> {
        let shared = shm::Memory::create(bytes).map_err(|error| {
            Failure::new(Exit::Io, "cannot make shared memory", reason(&error), "look at the limits of memory (ulimit -a)")
        })?;
        Ok(Self { own: vec![0; bytes], shared, is_shared: false, slot: Vec::new() })
    }

    /// Begins a run with zeros everywhere: what an older run left is not taken for pixels of this one.
    pub fn begin(&mut self, is_shared: bool) -> Result<(), Failure> {
        self.is_shared = is_shared;
        if !is_shared {
            self.own.fill(0);
            return Ok(());
        }
        self.shared.populate().map_err(|error| {
            Failure::new(Exit::Io, "there is not enough memory to share", reason(&error), "give a smaller --memory-mib")
        })?;
        self.shared.clear(0, self.shared.length_bytes());
        Ok(())
    }

    /// The own memory.
    pub fn own(&mut self) -> &mut [u8] {
        &mut self.own
    }

    /// The shared memory.
    pub const fn shared(&self) -> &shm::Memory {
        &self.shared
    }

    /// The bytes of a slot, which lies in the memory.
    pub fn slot(&mut self, begin: usize, bytes: usize) -> &[u8] {
        if !self.is_shared {
            return &self.own[begin..begin + bytes];
        }
        self.slot.resize(bytes, 0);
        let is_read = self.shared.read(begin, &mut self.slot);
        debug_assert!(is_read, "slots lie in the memory");
        &self.slot
    }

    /// Empties a slot.
    pub fn clear(&mut self, begin: usize, bytes: usize) {
        if self.is_shared {
            self.shared.clear(begin, bytes);
        } else {
            self.own[begin..begin + bytes].fill(0);
        }
    }
}
