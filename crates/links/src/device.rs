//! What links by libfabric and by verbs need of the library below them.

/// A region as the library knows it: what is named in a write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Key of the library.
    pub(crate) key: u64,
    /// What is added to offsets: the address of the first byte, or 0.
    pub(crate) base: u64,
}

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The write from this slot is done; the slot is free.
    Written(usize),
    /// The other side has written with this event.
    Event(u32),
    /// Something went wrong; the link is of no further use.
    Failed(String),
}

/// One end of a way to write into memory of another host. Errors are sentences that say which call failed, and why.
pub(crate) trait Device: Send {
    /// Slots from which can be written at the same time.
    const SLOTS: usize;
    /// Bytes of a slot.
    const SLOT_BYTES: usize;

    /// What the other side has to know before it can write here.
    fn address(&self) -> &[u8];

    /// Takes [`Device::address`] of the other side.
    fn meet(&mut self, address: &[u8]) -> Result<(), String>;

    /// Registers memory filled with zeros. Regions are counted from 0 in the order of these calls.
    fn register(&mut self, length_bytes: usize) -> Result<Place, String>;

    /// Copies bytes of a region of this side; `false` if they do not lie in it.
    fn read(&self, region: usize, offset_bytes: usize, into: &mut [u8]) -> bool;

    /// Begins to write at most [`Device::SLOT_BYTES`] from a slot that is free, to an address of the other side.
    /// `false` if that is not possible now.
    fn write(&mut self, slot: usize, bytes: &[u8], event: Option<u32>, to: Place) -> Result<bool, String>;

    /// Adds what has happened since the last call, and makes progress.
    fn completions(&mut self, happened: &mut Vec<Completion>) -> Result<(), String>;

    /// Does the other side find writes in the order in which they began here? If not, one waits for the other.
    fn keeps_order(&self) -> bool;

    /// How many writes with events the other side takes before it says that it has seen some of them, if that is
    /// limited.
    fn events_ahead_max(&self) -> Option<u64>;
}
