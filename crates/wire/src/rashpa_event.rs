//! Events of RASHPA: what a detector module tells a data receiver beside the data. ESRF published that there are events
//! (errors, status, progress; EUCALL D5.2, 3.2.3), but no layout: both layouts here are ours. Integers are big-endian.
//! Layout: docs/protocols.md 12.
//!
//! An event is a record of 64 bytes that is written into the receiver's ring of events. Links that can send 32 bits
//! with a write (InfiniBand's immediate data) carry the end of a block as these bits alone: kind (4 bits), data
//! transfer process (8 bits), slot (20 bits).

use crate::packet::array;
use std::ops::Range;

/// Byte ranges of a record; the bytes that are not named are 0.
mod field {
    use std::ops::Range;
    pub const VERSION: usize = 0;
    pub const KIND: usize = 1;
    pub const MODULE: Range<usize> = 2..4;
    pub const DTP: usize = 4;
    pub const LINK: usize = 5;
    pub const SLICE: Range<usize> = 8..16;
    pub const SLOT: Range<usize> = 16..20;
    pub const SEQUENCE: Range<usize> = 20..24;
    pub const BITMASK_OFFSET: Range<usize> = 24..32;
    pub const TIME_NS: Range<usize> = 32..40;
    pub const GENERATION: Range<usize> = 40..48;
    pub const COUNT: Range<usize> = 48..56;
}

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
/// The version of the layout.
pub const VERSION: u8 = 1;
/// Slots that an immediate can name.
pub const SLOTS_MAX: u32 = 1 << 20;

/// What happened. The numbers are those of the wire; 0 is no event, so that a ring of zeros holds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// All packets of a block were sent.
    BlockDone = 1,
    /// The module cannot do what it was told.
    Error = 2,
    /// Packets were lost: `count` of them, from `sequence` on.
    Loss = 3,
    /// The state of the module.
    Status = 4,
    /// The last event of a run: `count` blocks of this process are done or skipped.
    End = 5,
    /// A link of the module came up.
    LinkUp = 6,
    /// A link of the module went down.
    LinkDown = 7,
    /// Free run: the slot is being overwritten from now on.
    BlockBegin = 8,
    /// Credits: no slot was free for the block, and it was not sent.
    BlockSkipped = 9,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::BlockDone,
        Self::Error,
        Self::Loss,
        Self::Status,
        Self::End,
        Self::LinkUp,
        Self::LinkDown,
        Self::BlockBegin,
        Self::BlockSkipped,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Why bytes are no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEvent {
    /// A record has 64 bytes.
    Length,
    /// Another version of the layout.
    Version(u8),
    /// No kind has this number; 0 is a place in the ring where nothing was written.
    Kind(u8),
}

/// The 32 bits that go with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// What happened.
    pub kind: Kind,
    /// The data transfer process.
    pub dtp: u8,
    /// The slot, below [`SLOTS_MAX`].
    pub slot: u32,
}

impl Immediate {
    /// The 32 bits; a slot beyond [`SLOTS_MAX`] has none.
    pub fn to_bits(self) -> Option<u32> {
        (self.slot < SLOTS_MAX).then(|| (self.kind as u32) << 28 | u32::from(self.dtp) << 20 | self.slot)
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`NoEvent::Kind`].
    pub fn from_bits(bits: u32) -> Result<Self, NoEvent> {
        let number = (bits >> 28) as u8;
        let kind = Kind::of(number).ok_or(NoEvent::Kind(number))?;
        Ok(Self { kind, dtp: (bits >> 20) as u8, slot: bits & (SLOTS_MAX - 1) })
    }
}

/// An event. What a kind does not need is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub kind: Kind,
    /// The module that tells it.
    pub module: u16,
    /// The data transfer process.
    pub dtp: u8,
    /// The link, of events of links.
    pub link: u8,
    /// The data slice.
    pub slice: u64,
    /// The slot of the block.
    pub slot: u32,
    /// Sequence number: of the last packet of the block, or of the first lost one.
    pub sequence: u32,
    /// Where the bitmask of the block's packets is in the slot; 0 if there is none.
    pub bitmask_offset: u64,
    /// When, in ns of the module's clock.
    pub time_ns: u64,
    /// How often the slot was filled before. In free run: odd while it is overwritten.
    pub generation: u64,
    /// Packets of the block, lost packets, or blocks of a run.
    pub count: u64,
}

impl Record {
    /// The record as it is written.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut set = |range: Range<usize>, value: &[u8]| bytes[range].copy_from_slice(value);
        set(field::VERSION..field::VERSION + 1, &[VERSION]);
        set(field::KIND..field::KIND + 1, &[self.kind as u8]);
        set(field::MODULE, &self.module.to_be_bytes());
        set(field::DTP..field::DTP + 1, &[self.dtp]);
        set(field::LINK..field::LINK + 1, &[self.link]);
        set(field::SLICE, &self.slice.to_be_bytes());
        set(field::SLOT, &self.slot.to_be_bytes());
        set(field::SEQUENCE, &self.sequence.to_be_bytes());
        set(field::BITMASK_OFFSET, &self.bitmask_offset.to_be_bytes());
        set(field::TIME_NS, &self.time_ns.to_be_bytes());
        set(field::GENERATION, &self.generation.to_be_bytes());
        set(field::COUNT, &self.count.to_be_bytes());
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The first check that fails, in the order of [`NoEvent`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NoEvent> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().map_err(|_| NoEvent::Length)?;
        let number = bytes[field::KIND];
        if number != 0 && bytes[field::VERSION] != VERSION {
            return Err(NoEvent::Version(bytes[field::VERSION]));
        }
        let wide = |range: Range<usize>| u64::from_be_bytes(array(bytes, range));
        Ok(Self {
            kind: Kind::of(number).ok_or(NoEvent::Kind(number))?,
            module: u16::from_be_bytes(array(bytes, field::MODULE)),
            dtp: bytes[field::DTP],
            link: bytes[field::LINK],
            slice: wide(field::SLICE),
            slot: u32::from_be_bytes(array(bytes, field::SLOT)),
            sequence: u32::from_be_bytes(array(bytes, field::SEQUENCE)),
            bitmask_offset: wide(field::BITMASK_OFFSET),
            time_ns: wide(field::TIME_NS),
            generation: wide(field::GENERATION),
            count: wide(field::COUNT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes of docs/protocols.md 12.2, written by hand from its table.
    #[test]
    fn the_vectors_of_the_documentation() {
        let record = Record {
            kind: Kind::BlockDone,
            module: 0x0203,
            dtp: 4,
            link: 5,
            slice: 0x0809_0A0B_0C0D_0E0F,
            slot: 0x1011_1213,
            sequence: 0x1415_1617,
            bitmask_offset: 0x1819_1A1B_1C1D_1E1F,
            time_ns: 0x2021_2223_2425_2627,
            generation: 0x2829_2A2B_2C2D_2E2F,
            count: 0x3031_3233_3435_3637,
        };
        let mut bytes: Vec<u8> = (0..64).collect();
        (bytes[0], bytes[1], bytes[6], bytes[7]) = (1, 1, 0, 0);
        bytes[56..].fill(0);
        assert_eq!(&record.to_bytes()[..], &bytes[..]);
        assert_eq!(Immediate { kind: Kind::BlockDone, dtp: 0xAB, slot: 0xC_DEF0 }.to_bits(), Some(0x1ABC_DEF0));
    }

    #[test]
    fn what_is_no_event() {
        assert_eq!(Record::from_bytes(&[0; 64]), Err(NoEvent::Kind(0)), "a ring before its first event");
        assert_eq!(Record::from_bytes(&[1; 63]), Err(NoEvent::Length));
        assert_eq!(Record::from_bytes(&[2; 64]), Err(NoEvent::Version(2)));
        assert_eq!(Record::from_bytes(&[1, 10].repeat(32)), Err(NoEvent::Kind(10)));
        assert_eq!(Immediate::from_bits(0xF000_0000), Err(NoEvent::Kind(15)));
        assert_eq!(Immediate { kind: Kind::End, dtp: 0, slot: SLOTS_MAX }.to_bits(), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(kind in prop::sample::select(&Kind::ALL[..]), n: [u64; 5], few: (u16, u8, u8, u32, u32)) {
            let record = Record {
                kind, module: few.0, dtp: few.1, link: few.2, slice: n[0], slot: few.3, sequence: few.4,
                bitmask_offset: n[1], time_ns: n[2], generation: n[3], count: n[4],
            };
            prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
            let immediate = Immediate { kind, dtp: few.1, slot: few.3 % SLOTS_MAX };
            prop_assert_eq!(Immediate::from_bits(immediate.to_bits().expect("a small slot")), Ok(immediate));
        }
    }
}
