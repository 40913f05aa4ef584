//! The RASHPA address space (EUCALL D5.2, 3.2.2): one contiguous range of virtual addresses over the memory of all
//! receivers. Modules calculate addresses in it and know nothing of receivers; [`AddressSpace::pieces`] says whose
//! memory an address is. Entries follow each other without gaps and overlaps, and their memory is not shared.

use super::terms::{BufferId, ReceiverId};
use std::ops::Range;

/// A local buffer as its receiver registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalBuffer {
    /// Whose memory it is.
    pub receiver: ReceiverId,
    /// Its id there.
    pub buffer: BufferId,
    /// Its length; not 0.
    pub bytes: u64,
    /// Where it begins in the receiver's memory, as the link addresses it.
    pub address: u64,
    /// The key that lets one write it, on links that have keys.
    pub key: u32,
    /// Bytes of a unit of offsets, with RDMA over UDP; not 0.
    pub unit_bytes: u32,
}

/// A local buffer and its place in the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its first address in the space.
    pub base: u64,
    /// The memory behind it.
    pub local: LocalBuffer,
}

impl Entry {
    /// The address behind its last one.
    pub const fn end(&self) -> u64 {
        self.base + self.local.bytes
    }
}

/// Why a buffer or a map is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMap {
    /// More entries than the hardware's table has.
    #[error("the map has more than {0} entries, which the translation table of the module has; join buffers")]
    TooMany(usize),
    /// A buffer with id 0, no bytes or units of no bytes.
    #[error("{buffer} of {receiver} has id 0, no bytes, or units of no bytes")]
    Empty {
        /// Whose it is.
        receiver: ReceiverId,
        /// Which one.
        buffer: BufferId,
    },
    /// More bytes than there are addresses, in the space or at the receiver.
    #[error("{buffer} of {receiver} ends beyond the last address")]
    TooLong {
        /// Whose it is.
        receiver: ReceiverId,
        /// Which one.
        buffer: BufferId,
    },
    /// Two entries write the same memory.
    #[error("{buffer} of {receiver} is in the map already, or shares memory with a buffer that is; define it once")]
    Shared {
        /// Whose it is.
        receiver: ReceiverId,
        /// Which one.
        buffer: BufferId,
    },
    /// An entry does not begin where the one before ends.
    #[error("entry {index} begins at {base:#x}, but the entries before end at {end:#x}; a map has no gaps and no overlaps")]
    NotContiguous {
        /// Which entry, from 0.
        index: usize,
        /// Where it begins.
        base: u64,
        /// Where it should.
        end: u64,
    },
    /// The entries do not add up to the size.
    #[error("the entries have {entries} bytes, but the map says {said}")]
    Size {
        /// Sum of the entries.
        entries: u64,
        /// What the map says.
        said: u64,
    },
}

/// Part of a range of addresses that lies in one local buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the entry: of the row in the module's translation table.
    pub entry: usize,
    /// Where it begins in the local buffer.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// The space: its entries, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    entries: Vec<Entry>,
    entries_max: usize,
}

impl AddressSpace {
    /// An empty space with room for `entries_max` entries.
    pub const fn new(entries_max: usize) -> Self {
        Self { entries: Vec::new(), entries_max }
    }

    /// Takes a map as it comes in a telegram.
    ///
    /// # Errors
    /// [`BadMap`] of the first entry that is wrong.
    pub fn from_map(bytes: u64, entries: &[Entry], entries_max: usize) -> Result<Self, BadMap> {
        let mut space = Self::new(entries_max);
        for (index, entry) in entries.iter().enumerate() {
            let end = space.bytes();
            if entry.base != end {
                return Err(BadMap::NotContiguous { index, base: entry.base, end });
            }
            space.append(entry.local)?;
        }
        let entries = space.bytes();
        if entries == bytes { Ok(space) } else { Err(BadMap::Size { entries, said: bytes }) }
    }

    /// Appends a local buffer and returns its first address.
    ///
    /// # Errors
    /// [`BadMap`]; the space is as before.
    pub fn append(&mut self, local: LocalBuffer) -> Result<u64, BadMap> {
        let LocalBuffer { receiver, buffer, .. } = local;
        if local.bytes == 0 || local.unit_bytes == 0 || buffer.0 == 0 {
            return Err(BadMap::Empty { receiver, buffer });
        }
        if self.entries.len() >= self.entries_max {
            return Err(BadMap::TooMany(self.entries_max));
        }
        let base = self.bytes();
        let (Some(_), Some(local_end)) = (base.checked_add(local.bytes), local.address.checked_add(local.bytes)) else {
            return Err(BadMap::TooLong { receiver, buffer });
        };
        let is_same_memory = |other: &LocalBuffer| {
            let touch = other.address < local_end && local.address < other.address + other.bytes;
            other.buffer == buffer || (other.key == local.key && touch)
        };
        if self.entries.iter().any(|entry| entry.local.receiver == receiver && is_same_memory(&entry.local)) {
            return Err(BadMap::Shared { receiver, buffer });
        }
        self.entries.push(Entry { base, local });
        Ok(base)
    }

    /// Its entries, in ascending order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.entries.last().map_or(0, Entry::end)
    }

    /// Whose memory a range is, piece by piece; `None` if it is not inside of the space.
    pub fn pieces(&self, range: Range<u64>) -> Option<impl Iterator<Item = Piece> + use<'_>> {
        if range.start > range.end || range.end > self.bytes() {
            return None;
        }
        let first = self.entries.partition_point(|entry| entry.end() <= range.start);
        let Range { start, end } = range;
        // An empty range has no first piece either.
        let inside = self.entries[first..].iter().take_while(move |entry| start < end && entry.base < end).enumerate();
        Some(inside.map(move |(n, entry)| {
            let start = start.max(entry.base);
            Piece { entry: first + n, offset: start - entry.base, bytes: end.min(entry.end()) - start }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn local(receiver: u16, buffer: u16, bytes: u64, address: u64) -> LocalBuffer {
        LocalBuffer { receiver: ReceiverId(receiver), buffer: BufferId(buffer), bytes, address, key: 0, unit_bytes: 1 }
    }

    proptest! {
        /// Each address belongs to exactly one byte of one buffer: against a list with one element for each address.
        #[test]
        fn addresses_and_bytes_of_buffers_are_a_bijection(
            lengths in prop::collection::vec((0_u16..4, 1_u64..40), 1..20), cuts in prop::collection::vec(0_u64..800, 2)
        ) {
            let mut space = AddressSpace::new(20);
            let mut oracle = Vec::new();
            for (n, (receiver, bytes)) in lengths.iter().enumerate() {
                let base = space.append(local(*receiver, n as u16 + 1, *bytes, n as u64 * 100)).expect("accepted");
                prop_assert_eq!(base, oracle.len() as u64);
                oracle.extend((0..*bytes).map(|offset| (n, offset)));
            }
            prop_assert_eq!(space.bytes(), oracle.len() as u64);
            let (start, end) = (cuts[0].min(cuts[1]), cuts[0].max(cuts[1]));
            match space.pieces(start..end) {
                None => prop_assert!(end > space.bytes()),
                Some(pieces) => {
                    let found: Vec<_> = pieces.flat_map(|p| (p.offset..p.offset + p.bytes).map(move |at| (p.entry, at))).collect();
                    prop_assert_eq!(&found[..], &oracle[start as usize..end as usize]);
                }
            }
            let again = AddressSpace::from_map(space.bytes(), space.entries(), 20);
            prop_assert_eq!(again, Ok(space));
        }
    }

    #[test]
    fn what_is_no_map() {
        let mut space = AddressSpace::new(3);
        space.append(local(0, 1, 100, 1000)).expect("accepted");
        let (receiver, buffer) = (ReceiverId(0), BufferId(2));
        assert_eq!(space.append(local(0, 2, 100, 1099)), Err(BadMap::Shared { receiver, buffer }));
        assert_eq!(space.append(local(0, 1, 100, 5000)), Err(BadMap::Shared { receiver, buffer: BufferId(1) }));
        assert_eq!(space.append(local(0, 2, 0, 0)), Err(BadMap::Empty { receiver, buffer }));
        assert_eq!(space.append(local(0, 2, 100, u64::MAX - 99)), Err(BadMap::TooLong { receiver, buffer }));
        assert_eq!(space.append(local(0, 2, u64::MAX, 0)), Err(BadMap::TooLong { receiver, buffer }));
        assert_eq!(space.append(LocalBuffer { key: 1, ..local(0, 2, 100, 1000) }), Ok(100), "other memory by its key");
        assert_eq!(space.append(local(1, 1, 100, 1000)), Ok(200), "of another receiver");
        assert_eq!(space.append(local(1, 2, 1, 0)), Err(BadMap::TooMany(3)));
        let mut entries = space.entries().to_vec();
        assert_eq!(AddressSpace::from_map(299, &entries, 3), Err(BadMap::Size { entries: 300, said: 299 }));
        assert_eq!(AddressSpace::from_map(300, &entries, 2), Err(BadMap::TooMany(2)));
        entries[1].base = 101;
        assert_eq!(AddressSpace::from_map(300, &entries, 3), Err(BadMap::NotContiguous { index: 1, base: 101, end: 100 }));
    }

    #[test]
    fn the_ends_of_the_space() {
        let mut space = AddressSpace::new(1);
        assert_eq!(space.pieces(0..0).map(Iterator::count), Some(0));
        space.append(local(0, 1, 10, 0)).expect("accepted");
        assert_eq!(space.pieces(10..10).map(Iterator::count), Some(0));
        assert!(space.pieces(10..11).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let reversed = 5..4;
        assert!(space.pieces(reversed).is_none());
    }
}
