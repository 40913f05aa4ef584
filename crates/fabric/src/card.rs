//! Memory into which a card writes whole frames, as docs/fpga.md ("A card") describes it: where everything lies, what
//! the host asks for, and what an entry of the card says. The logic is `rtl/src/frame_out.sv`.
//!
//! Numbers are little endian. Registers, at the beginning of the memory:
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | u32: version of the registers, 2 | host |
//! | 4 | u32: type of the pixels, 0 = `int16`, 1 = `uint16` | host |
//! | 8 | u64: number of the first frame | host |
//! | 16 | u64: slots | host |
//! | 24 | u64: bytes from one slot to the next | host |
//! | 32 | u64: offset of slot 0 | host |
//! | 40 | u64: offset of the ring, a queue of `konkordia_links::shm` with as many entries as slots | host |
//! | 48 | u64: bytes of the pixels of a frame | host |
//! | 56 | u64: packets of a tile, and tiles in the upper 32 bits | host |
//! | 64 | u64: table rows | host |
//! | 72 | u64: offset of the table rows, [`ROW_BYTES`] each: u32 table, u32 row, u64 value | host |
//! | 80 | u64: bytes of the constants, [`CONSTANT_BYTES`] for 32 pixels | host |
//! | 88 | u64: offset of the constants | host |
//! | 128 | u64: frames that were given back | host |
//! | 136 | u64: 1 = finish the frames that are open, and end | host |
//! | 256 | u64: 0 = no card yet, 1 = it runs, 2 = it has ended | card |
//! | 264 | u64: clocks of the run | card |
//! | 320 | 9 x u64: verdicts of Ethernet frames | card |
//! | 400 | 10 x u64: verdicts of packets | card |
//! | 512 | 28 x u64: registers of the logic, in the order of [`REGISTERS`] | host |
//!
//! A card writes the table rows to its logic in their order, and reads the constants anew for each frame.
//!
//! Frame *n* of the run, counted from 0 as they were finished, lies in slot *n* modulo the slots: its pixels in blocks
//! of 8192 bytes, each after bitshuffle, and behind them 64 bytes for each tile, of which bit *i* says that packet *i*
//! came. An entry has 32 bytes:
//!
//! | offset | what |
//! |---|---|
//! | 0 | u64: *n* + 1 |
//! | 8 | u64: frames between the first one and this one |
//! | 16 | u64: offset of its slot |
//! | 24 | u32: bytes of its pixels |
//! | 28 | u16: packets that did not come |
//! | 30 | u8: tiles |
//! | 31 | u8: version, 1 |

mod constants;
mod logic;

pub use constants::{CONSTANT_BYTES, packed};
pub use logic::{Front, IMAGE_BYTES_MAX, Logic, REGISTERS, ROW_BYTES, Row, TILE_PACKETS_MAX, TILES_MAX};
use std::ops::Range;

/// Version of the registers.
pub const VERSION: u32 = 2;
/// Version of the entries.
pub const ENTRY_VERSION: u8 = 1;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;
/// Bytes of the mask of a tile.
pub const MASK_BYTES: usize = 64;
/// Bytes of a block of pixels.
pub const BLOCK_BYTES: usize = 8192;
/// Slots at most: as many as the logic can count.
pub const SLOTS_MAX: u32 = 2048;
/// Frames by which the logic steps forward at most; of the first frame, from the one before it.
pub const STEP_MAX: u64 = 64;
/// Offset of the number of frames that were given back.
pub const RELEASED: usize = 128;
/// Offset of the order to end.
pub const STOP: usize = 136;
/// Offset of the state of the card.
pub const STATE: usize = 256;
/// [`STATE`] of a card that has ended: nothing is written any more.
pub const ENDED: u64 = 2;
/// Offset of the clocks of the run.
pub const CLOCKS: usize = 264;
/// Offset of the verdicts of Ethernet frames, in the order of [`FRAME_VERDICTS`].
pub const FRAME_COUNTS: usize = 320;
/// Offset of the verdicts of packets, in the order of [`PACKET_VERDICTS`].
pub const PACKET_COUNTS: usize = 400;
/// Offset of the registers of the logic.
pub const LOGIC: usize = 512;
/// Names of the verdicts of Ethernet frames; the first one is that of frames whose packet is looked at.
pub const FRAME_VERDICTS: [&str; 9] =
    ["taken", "other_traffic", "fragment", "vlan", "length", "checksum", "joined", "no_room", "damaged"];
/// Names of the verdicts of packets; the first one is that of packets that are in a frame.
pub const PACKET_VERDICTS: [&str; 10] = [
    "placed",
    "duplicate",
    "late",
    "no_slot",
    "foreign",
    "ahead",
    "unknown",
    "malformed_length",
    "malformed_required",
    "malformed_packet_number",
];
/// Table rows at most: 16 of required values, 4 x (512 + 4 x 16) of places, 2 x 16 of tiles, 2048 of owners.
const ROWS_MAX: u32 = 16 + 4 * (512 + 4 * 16) + 2 * 16 + 2048;
/// Everything is aligned to this.
const PAGE_BYTES: u64 = 4096;
/// Bytes of a ring before its entries.
const RING_HEAD_BYTES: u64 = 128;

/// What a run needs of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Bytes of the pixels of a frame: whole blocks.
    pub image_bytes: u32,
    /// Pixels are `uint16`, else `int16`.
    pub is_unsigned: bool,
    /// Tiles of a frame.
    pub tiles: u8,
    /// Packets of each.
    pub tile_packets: u16,
    /// Frames that the memory holds.
    pub slots: u32,
    /// Number of the first frame of the run.
    pub first_frame: u64,
    /// Table rows that the logic is told.
    pub rows: u32,
}

/// Where everything lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    form: Form,
    slot_bytes: u64,
    rows_start: u64,
    constants_start: u64,
    slots_start: u64,
}

/// A frame that a card has finished, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Frames between the first one of the run and this one.
    pub image: u64,
    /// Where its slot begins in the memory.
    pub slot_start: u64,
    /// Packets that did not come.
    pub missing: u16,
}

/// Why an entry, or the masks behind its frame, cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// An entry of another version.
    #[error("the entry has version {0}, and this program reads version {ENTRY_VERSION}")]
    Version(u8),
    /// Not the next entry.
    #[error("the entry says that it is number {found}, and number {expected} comes next")]
    Sequence {
        /// What the entry says.
        found: u64,
        /// What comes next.
        expected: u64,
    },
    /// A frame that does not come behind the one before.
    #[error("frame {image} does not come behind frame {before}")]
    Order {
        /// The frame.
        image: u64,
        /// The one before.
        before: u64,
    },
    /// A frame farther ahead than the logic takes one.
    #[error("frame {image} is more than {STEP_MAX} frames ahead of the one before")]
    Ahead {
        /// The frame.
        image: u64,
    },
    /// Another place, size or number of tiles than the layout has for it.
    #[error("the entry says that {what} is {found}, and it is {expected}")]
    Form {
        /// Of what.
        what: &'static str,
        /// What the entry says.
        found: u64,
        /// What the layout says.
        expected: u64,
    },
    /// More packets are missing than a frame has.
    #[error("{missing} packets are missing in a frame of {packets}")]
    Missing {
        /// Packets.
        missing: u16,
        /// Of the frame.
        packets: u32,
    },
    /// A mask has a bit of a packet that no tile has.
    #[error("the mask of tile {tile} names packet {packet}, and a tile has {packets} packets")]
    Packet {
        /// The tile.
        tile: usize,
        /// The packet.
        packet: usize,
        /// Of a tile.
        packets: u16,
    },
    /// The masks contradict the entry.
    #[error("the masks say that {masks} packets are missing, and the entry says {entry}")]
    Masks {
        /// By the masks.
        masks: u32,
        /// By the entry.
        entry: u16,
    },
}

/// Bytes of the constants of all pixels.
const fn constants_bytes(form: &Form) -> u64 {
    form.image_bytes as u64 / 2 / constants::PIXELS as u64 * CONSTANT_BYTES as u64
}

impl Layout {
    /// The layout of a form.
    ///
    /// # Errors
    /// The logic of the card cannot do that; says what it can do.
    pub fn new(form: Form) -> Result<Self, String> {
        let in_bounds = |what: &str, value: u64, most: u64| match value {
            0 => Err(format!("there are no {what}")),
            value if value > most => Err(format!("{value} {what}; the card has at most {most}")),
            _ => Ok(()),
        };
        in_bounds("tiles", form.tiles.into(), TILES_MAX.into())?;
        in_bounds("packets of a tile", form.tile_packets.into(), TILE_PACKETS_MAX.into())?;
        in_bounds("slots", form.slots.into(), SLOTS_MAX.into())?;
        in_bounds("bytes of a frame", form.image_bytes.into(), IMAGE_BYTES_MAX.into())?;
        in_bounds("table rows", form.rows.into(), ROWS_MAX.into())?;
        if !(form.image_bytes as usize).is_multiple_of(BLOCK_BYTES) {
            return Err(format!("a frame of {} bytes; the card has whole blocks of {BLOCK_BYTES}", form.image_bytes));
        }
        let slot_bytes = (u64::from(form.image_bytes) + u64::from(form.tiles) * MASK_BYTES as u64).next_multiple_of(PAGE_BYTES);
        let ring_bytes = RING_HEAD_BYTES + u64::from(form.slots) * ENTRY_BYTES as u64;
        let rows_start = PAGE_BYTES + ring_bytes.next_multiple_of(PAGE_BYTES);
        let rows_bytes = u64::from(form.rows) * ROW_BYTES as u64;
        let constants_start = rows_start + rows_bytes.next_multiple_of(PAGE_BYTES);
        let slots_start = constants_start + constants_bytes(&form).next_multiple_of(PAGE_BYTES);
        Ok(Self { form, slot_bytes, rows_start, constants_start, slots_start })
    }

    /// What it was made for.
    pub const fn form(&self) -> &Form {
        &self.form
    }

    /// Packets of a frame.
    pub const fn frame_packets(&self) -> u32 {
        self.form.tiles as u32 * self.form.tile_packets as u32
    }

    /// Bytes of the memory.
    pub const fn memory_bytes(&self) -> u64 {
        self.slots_start + self.slot_bytes * self.form.slots as u64
    }

    /// Where the ring begins.
    pub const fn ring_start(&self) -> u64 {
        PAGE_BYTES
    }

    /// Where the table rows begin.
    pub const fn rows_start(&self) -> u64 {
        self.rows_start
    }

    /// Where the constants begin.
    pub const fn constants_start(&self) -> u64 {
        self.constants_start
    }

    /// Bytes of the constants.
    pub const fn constants_bytes(&self) -> u64 {
        constants_bytes(&self.form)
    }

    /// Bytes of a frame and its masks, from the beginning of its slot.
    pub const fn frame_bytes(&self) -> usize {
        self.form.image_bytes as usize + self.form.tiles as usize * MASK_BYTES
    }

    /// The masks in these bytes.
    pub const fn masks(&self) -> Range<usize> {
        self.form.image_bytes as usize..self.frame_bytes()
    }

    /// The registers that the host writes before a card begins.
    pub fn registers(&self) -> [u8; 96] {
        let mut registers = [0; 96];
        let words = [
            u64::from(VERSION) | u64::from(self.form.is_unsigned) << 32,
            self.form.first_frame,
            self.form.slots.into(),
            self.slot_bytes,
            self.slots_start,
            self.ring_start(),
            self.form.image_bytes.into(),
            u64::from(self.form.tile_packets) | u64::from(self.form.tiles) << 32,
            self.form.rows.into(),
            self.rows_start,
            self.constants_bytes(),
            self.constants_start,
        ];
        for (place, word) in registers.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        registers
    }

    /// Checks an entry: `taken` entries came before, and the last one was of frame `before`.
    ///
    /// # Errors
    /// The first thing that cannot be. Nothing that the card writes later can be believed then.
    pub fn check(&self, entry: &[u8; ENTRY_BYTES], taken: u64, before: Option<u64>) -> Result<Frame, Refused> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| entry[at + n]));
        let (found, image, slot_start) = (word(0), word(8), word(16));
        let (bytes, missing) = (word(24) & 0xFFFF_FFFF, u16::from_le_bytes([entry[28], entry[29]]));
        if entry[31] != ENTRY_VERSION {
            return Err(Refused::Version(entry[31]));
        }
        let expected = taken + 1;
        if found != expected {
            return Err(Refused::Sequence { found, expected });
        }
        if let Some(before) = before.filter(|before| image <= *before) {
            return Err(Refused::Order { image, before });
        }
        if image >= before.map_or(0, |before| before + 1).saturating_add(STEP_MAX) {
            return Err(Refused::Ahead { image });
        }
        let slot = self.slots_start + taken % u64::from(self.form.slots) * self.slot_bytes;
        let form = [
            ("the offset of the slot", slot_start, slot),
            ("the bytes of the pixels", bytes, self.form.image_bytes.into()),
            ("the number of tiles", entry[30].into(), self.form.tiles.into()),
        ];
        if let Some((what, found, expected)) = form.into_iter().find(|(_, found, expected)| found != expected) {
            return Err(Refused::Form { what, found, expected });
        }
        let packets = self.frame_packets();
        if u32::from(missing) > packets {
            return Err(Refused::Missing { missing, packets });
        }
        Ok(Frame { image, slot_start, missing })
    }

    /// Checks the masks of a frame: 64 bytes for each tile.
    ///
    /// # Errors
    /// They name packets that do not exist, or others are missing than the entry says.
    ///
    /// # Panics
    /// If `masks` has not as many bytes as [`Self::masks`].
    pub fn check_masks(&self, frame: &Frame, masks: &[u8]) -> Result<(), Refused> {
        assert_eq!(masks.len(), self.masks().len());
        let packets = self.form.tile_packets;
        let mut came = 0;
        for (tile, mask) in masks.chunks_exact(MASK_BYTES).enumerate() {
            let names = |packet: usize| mask[packet / 8] >> (packet % 8) & 1 == 1;
            if let Some(packet) = (usize::from(packets)..8 * MASK_BYTES).find(|packet| names(*packet)) {
                return Err(Refused::Packet { tile, packet, packets });
            }
            came += mask.iter().map(|byte| byte.count_ones()).sum::<u32>();
        }
        let masks = self.frame_packets() - came;
        if masks != u32::from(frame.missing) {
            return Err(Refused::Masks { masks, entry: frame.missing });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORM: Form = Form {
        image_bytes: 2 * 8192,
        is_unsigned: false,
        tiles: 2,
        tile_packets: 3,
        slots: 4,
        first_frame: 0x0102_0304,
        rows: 300,
    };

    fn entry(sequence: u64, image: u64, slot_start: u64, missing: u16) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&sequence.to_le_bytes());
        entry[8..16].copy_from_slice(&image.to_le_bytes());
        entry[16..24].copy_from_slice(&slot_start.to_le_bytes());
        entry[24..28].copy_from_slice(&16_384_u32.to_le_bytes());
        entry[28..30].copy_from_slice(&missing.to_le_bytes());
        entry[30..].copy_from_slice(&[2, 1]);
        entry
    }

    /// The numbers of docs/fpga.md, by hand: a page of registers, one with the ring, two with 300 x 16 bytes of rows,
    /// 26 with 256 x 408 bytes of constants, slots of 16384 + 128 bytes in pages.
    #[test]
    fn where_everything_lies() {
        let layout = Layout::new(FORM).unwrap();
        assert_eq!((layout.ring_start(), layout.slots_start, layout.slot_bytes), (4096, 122_880, 20_480));
        assert_eq!((layout.rows_start(), layout.constants_start(), layout.constants_bytes()), (8192, 16_384, 104_448));
        assert_eq!((layout.memory_bytes(), layout.frame_bytes(), layout.masks()), (204_800, 16_512, 16_384..16_512));
        let registers = layout.registers();
        assert_eq!(registers[..16], [2, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(registers[16..40], [4, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0, 0xE0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(registers[40..64], [0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(registers[64..80], [44, 1, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        assert_eq!(registers[80..], [0, 0x98, 1, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0]);
        let unsigned = Layout::new(Form { is_unsigned: true, ..FORM }).unwrap();
        assert_eq!(unsigned.registers()[..8], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(Layout::new(Form { slots: 125, ..FORM }).unwrap().slots_start, 31 * 4096, "a ring of 4128 bytes");
    }

    #[test]
    fn what_the_card_cannot_do() {
        let says = |form: Form, part: &str| {
            let why = Layout::new(form).expect_err(part);
            assert!(why.contains(part), "{why}");
        };
        says(Form { image_bytes: 8192 + 64, ..FORM }, "whole blocks");
        says(Form { image_bytes: 0, ..FORM }, "no bytes");
        says(Form { image_bytes: 1 << 27, ..FORM }, "at most 134209536");
        says(Form { rows: 4401, ..FORM }, "at most 4400");
        says(Form { tiles: 17, ..FORM }, "at most 16");
        says(Form { tile_packets: 513, ..FORM }, "at most 512");
        says(Form { slots: 0, ..FORM }, "no slots");
        says(Form { slots: 2049, ..FORM }, "at most 2048");
    }

    #[test]
    fn an_entry_is_believed_only_if_it_can_be() {
        let layout = Layout::new(FORM).unwrap();
        let right = entry(6, 9, 122_880 + 20_480, 2);
        let frame = Frame { image: 9, slot_start: 143_360, missing: 2 };
        assert_eq!(layout.check(&right, 5, Some(8)), Ok(frame));
        assert_eq!(layout.check(&right, 5, None), Ok(frame));
        assert_eq!(layout.check(&right, 6, Some(8)), Err(Refused::Sequence { found: 6, expected: 7 }));
        assert_eq!(layout.check(&right, 5, Some(9)), Err(Refused::Order { image: 9, before: 9 }));
        assert_eq!(layout.check(&entry(6, 72, 143_360, 0), 5, Some(8)).map(|frame| frame.image), Ok(72));
        assert_eq!(layout.check(&entry(6, 73, 143_360, 0), 5, Some(8)), Err(Refused::Ahead { image: 73 }));
        assert_eq!(layout.check(&entry(6, 64, 143_360, 0), 5, None), Err(Refused::Ahead { image: 64 }));
        assert_eq!(layout.check(&entry(6, u64::MAX, 143_360, 0), 5, Some(8)), Err(Refused::Ahead { image: u64::MAX }));
        let changed = |at: usize, to: u8| {
            let mut entry = right;
            entry[at] = to;
            layout.check(&entry, 5, Some(8)).unwrap_err()
        };
        let form = |what, found, expected| Refused::Form { what, found, expected };
        assert_eq!(changed(31, 2), Refused::Version(2));
        assert_eq!(changed(7, 1), Refused::Sequence { found: 6 + (1 << 56), expected: 6 });
        assert_eq!(changed(17, 0x20), form("the offset of the slot", 0x2_2000, 143_360));
        assert_eq!(changed(23, 0x80), form("the offset of the slot", 143_360 + (1 << 63), 143_360));
        assert_eq!(changed(24, 64), form("the bytes of the pixels", 16_448, 16_384));
        assert_eq!(changed(30, 3), form("the number of tiles", 3, 2));
        assert_eq!(changed(28, 7), Refused::Missing { missing: 7, packets: 6 });
        assert!(
            layout.check(&entry(6, 9, 143_360, 6), 5, None).is_ok(),
            "a frame may have lost all packets but none of its slot"
        );
    }

    #[test]
    fn masks_agree_with_the_entry() {
        let layout = Layout::new(FORM).unwrap();
        let mut masks = [0; 128];
        (masks[0], masks[64]) = (0b101, 0b111);
        let frame = Frame { image: 0, slot_start: 8192, missing: 1 };
        assert_eq!(layout.check_masks(&frame, &masks), Ok(()));
        assert_eq!(layout.check_masks(&Frame { missing: 0, ..frame }, &masks), Err(Refused::Masks { masks: 1, entry: 0 }));
        masks[127] = 0x80;
        assert_eq!(layout.check_masks(&frame, &masks), Err(Refused::Packet { tile: 1, packet: 511, packets: 3 }));
        masks[64] |= 8;
        assert_eq!(layout.check_masks(&frame, &masks), Err(Refused::Packet { tile: 1, packet: 3, packets: 3 }));
    }

    proptest! {
        /// Whatever a card writes, a frame that is believed lies in a slot, and its masks name only packets that it
        /// has.
        #[test]
        fn any_bytes(
            bytes: [u8; ENTRY_BYTES], masks in prop::collection::vec(0_u8..8, 128), taken in 0_u64..20, missing in 0_u16..8, near: bool
        ) {
            let layout = Layout::new(FORM).unwrap();
            let slot = layout.slots_start + taken % 4 * layout.slot_bytes;
            let bytes = if near { entry(taken + 1, taken, slot, missing) } else { bytes };
            if let Ok(frame) = layout.check(&bytes, taken, taken.checked_sub(1)) {
                let end = frame.slot_start + layout.frame_bytes() as u64;
                prop_assert!(frame.slot_start >= layout.slots_start && end <= layout.memory_bytes());
                prop_assert!(frame.missing <= 6);
                if layout.check_masks(&frame, &masks).is_ok() {
                    let came: u32 = masks.iter().map(|byte| byte.count_ones()).sum();
                    prop_assert_eq!(came + u32::from(frame.missing), 6);
                }
            } else {
                prop_assert!(!near || missing > 6);
            }
        }
    }
}
