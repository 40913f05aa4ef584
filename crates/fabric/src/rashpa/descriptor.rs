//! The blocks of the hardware that turn a transfer into packets (EUCALL D5.2, 3.2.5), as software: the block generation
//! unit (BGU) emits descriptors of 256 bits, the address translation unit (ATU) has a table of the local buffers, and
//! the block slicing unit (BSU) cuts descriptors to the size of packets.
//!
//! Published: a descriptor has 256 bits with a source address, an index into the ATU and a number of bytes. The layout
//! is ours, big-endian: source address (8 bytes), offset in the local buffer (8), bytes (4), index into the ATU (2),
//! transfer (1), flags (1), slot (4), generation of the slot, low 32 bits (4).

use super::space::{AddressSpace, LocalBuffer};
use super::transfer::Transfer;

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 32;
/// Flag of the last descriptor of a block: the event follows it.
const IS_LAST: u8 = 1;

/// What the BGU tells the rest of the hardware: so many bytes from here to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Where the bytes are in the memory of the module.
    pub source: u64,
    /// Where they belong in the local buffer.
    pub offset: u64,
    /// How many.
    pub bytes: u32,
    /// The row of the ATU, which says whose buffer it is.
    pub entry: u16,
    /// The transfer.
    pub dtp: u8,
    /// True for the last one of a block.
    pub is_last: bool,
    /// The slot of the block.
    pub slot: u32,
    /// Low 32 bits of how often the slot was filled before.
    pub generation: u32,
}

impl Descriptor {
    /// The 256 bits.
    pub fn to_bytes(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[0..8].copy_from_slice(&self.source.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.entry.to_be_bytes());
        (bytes[22], bytes[23]) = (self.dtp, if self.is_last { IS_LAST } else { 0 });
        bytes[24..28].copy_from_slice(&self.slot.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.generation.to_be_bytes());
        bytes
    }

    /// Reads the 256 bits.
    pub fn from_bytes(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let narrow = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let wide = |at: usize| u64::from(narrow(at)) << 32 | u64::from(narrow(at + 4));
        Self {
            source: wide(0),
            offset: wide(8),
            bytes: narrow(16),
            entry: u16::from_be_bytes([bytes[20], bytes[21]]),
            dtp: bytes[22],
            is_last: bytes[23] & IS_LAST != 0,
            slot: narrow(24),
            generation: narrow(28),
        }
    }
}

/// The BGU: the descriptors of the block at a position of a transfer, in the order of the rows; one more where a row
/// crosses from one local buffer to the next. `space` is the one against which the transfer was checked.
pub fn descriptors(transfer: &Transfer, space: &AddressSpace, position: u64, mut emit: impl FnMut(Descriptor)) {
    let (slot, generation) = transfer.slot(position);
    let mut left = transfer.block_bytes();
    for run in transfer.runs(slot) {
        let mut source = run.source;
        for piece in space.pieces(run.address..run.address + run.bytes).into_iter().flatten() {
            left -= piece.bytes;
            emit(Descriptor {
                source,
                offset: piece.offset,
                // An image has fewer bytes than 2^32, and a space no more entries than the ATU has rows.
                bytes: piece.bytes as u32,
                entry: piece.entry as u16,
                dtp: transfer.dtp().id.0,
                is_last: left == 0,
                slot,
                generation: generation as u32,
            });
            source += piece.bytes;
        }
    }
    debug_assert_eq!(left, 0, "a checked transfer lies in the space");
}

/// What the BSU hands to the link: the payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Where its bytes are in the memory of the module.
    pub source: u64,
    /// Where they belong in the local buffer.
    pub offset: u64,
    /// How many; at most the packet size.
    pub bytes: u32,
    /// The row of the ATU.
    pub entry: u16,
}

/// The BSU: cuts a descriptor into packets of at most `packet_bytes`, which is not 0.
pub fn bursts(descriptor: Descriptor, packet_bytes: u32) -> impl Iterator<Item = Burst> {
    (0..descriptor.bytes).step_by(packet_bytes as usize).map(move |at| Burst {
        source: descriptor.source + u64::from(at),
        offset: descriptor.offset + u64::from(at),
        bytes: packet_bytes.min(descriptor.bytes - at),
        entry: descriptor.entry,
    })
}

/// The ATU: rows of the table by their index. It is the map of the space without its addresses.
pub fn row(space: &AddressSpace, entry: u16) -> Option<&LocalBuffer> {
    space.entries().get(usize::from(entry)).map(|entry| &entry.local)
}

#[cfg(test)]
mod tests {
    use super::super::terms::*;
    use super::super::transfer::{BadTransfer, Dtp, Layout, Policy};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn space(lengths: &[u64], unit_bytes: u32) -> AddressSpace {
        let mut space = AddressSpace::new(lengths.len());
        for (n, &bytes) in lengths.iter().enumerate() {
            let (receiver, buffer, address) = (ReceiverId(n as u16 % 2), BufferId(n as u16 + 1), n as u64 * 10_000);
            space.append(LocalBuffer { receiver, buffer, bytes, address, key: 0, unit_bytes }).expect("accepted");
        }
        space
    }

    fn dtp(region: Region, layout: Layout, packet_bytes: u32) -> Dtp {
        let slices = Slices { first: 0, count: None, step: 1 };
        let (dataset, policy, buffer) = (Dataset::Image, Policy::FreeRun, ReceiveBufferId(0));
        Dtp { id: DtpId(3), channel: 0, dataset, slices, region, buffer, layout, policy, packet_bytes }
    }

    #[test]
    fn the_256_bits() {
        let descriptor = Descriptor {
            source: 0x0001_0203_0405_0607,
            offset: 0x0809_0A0B_0C0D_0E0F,
            bytes: 0x1011_1213,
            entry: 0x1415,
            dtp: 0x16,
            is_last: true,
            slot: 0x1819_1A1B,
            generation: 0x1C1D_1E1F,
        };
        let mut bytes: [u8; 32] = std::array::from_fn(|n| n as u8);
        bytes[23] = 1;
        assert_eq!(descriptor.to_bytes(), bytes);
        assert_eq!(Descriptor::from_bytes(&bytes), descriptor);
    }

    prop_compose! {
        fn cases()(width in 1_u32..20, height in 1_u32..9, pixel_bytes in 1_u32..5)(
            x in 0..width, y in 0..height, pixel_bytes in Just(pixel_bytes), width in Just(width), height in Just(height),
            fractions in (0.0_f64..1.0, 0.0_f64..1.0), pitch_more in 0_u64..9, offset in 0_u64..9, slot_more in 0_u64..9,
            slots in 1_u32..5, cuts in prop::collection::vec(1_u64..60, 0..6), packet_bytes in 1_u32..40, position in 0_u64..1000,
        ) -> (Geometry, Dtp, Vec<u64>, u64) {
            let geometry = Geometry { width, height, pixel_bytes };
            let part = |of: u32, fraction: f64| 1 + (f64::from(of - 1) * fraction) as u32;
            let region = Region { x, y, width: part(width - x, fractions.0), height: part(height - y, fractions.1) };
            let row_pitch_bytes = u64::from(region.width * pixel_bytes) + pitch_more;
            let slot_bytes = offset + row_pitch_bytes * u64::from(region.height) + slot_more;
            let layout = Layout { slots, slot_bytes, block_offset: offset, row_pitch_bytes };
            let cut: u64 = cuts.iter().sum();
            let lengths = cuts.iter().copied().chain([1 + (slot_bytes * u64::from(slots)).saturating_sub(cut)]).collect();
            (geometry, dtp(region, layout, packet_bytes), lengths, position)
        }
    }

    proptest! {
        /// Against the address rule pixel by pixel: each byte of the region goes to its place, once, and nothing else
        /// is written.
        #[test]
        fn packets_bring_each_byte_to_its_place((geometry, dtp, lengths, position) in cases()) {
            let space = space(&lengths, 1);
            let transfer = Transfer::new(dtp, geometry, &space, 0..space.bytes()).expect("a transfer");
            let mut places = BTreeMap::new();
            let mut last = 0;
            descriptors(&transfer, &space, position, |descriptor| {
                last += u32::from(descriptor.is_last);
                assert_eq!(Descriptor::from_bytes(&descriptor.to_bytes()), descriptor);
                for burst in bursts(descriptor, dtp.packet_bytes) {
                    assert!(burst.bytes > 0 && burst.bytes <= dtp.packet_bytes);
                    let local = row(&space, burst.entry).expect("a row");
                    assert!(burst.offset + u64::from(burst.bytes) <= local.bytes);
                    for at in 0..u64::from(burst.bytes) {
                        let place = (local.receiver.0, local.buffer.0, burst.offset + at);
                        assert_eq!(places.insert(place, burst.source + at), None, "written twice");
                    }
                }
            });
            prop_assert_eq!(last, 1, "the last descriptor is marked");
            let mut expected = BTreeMap::new();
            let all: Vec<_> = lengths.iter().enumerate().flat_map(|(n, &bytes)| (0..bytes).map(move |at| (n as u16 % 2, n as u16 + 1, at))).collect();
            let slot = position % u64::from(dtp.layout.slots);
            for row in 0..u64::from(dtp.region.height) {
                for column in 0..u64::from(dtp.region.width) {
                    for byte in 0..u64::from(geometry.pixel_bytes) {
                        let to = slot * dtp.layout.slot_bytes + dtp.layout.block_offset + row * dtp.layout.row_pitch_bytes
                            + column * u64::from(geometry.pixel_bytes) + byte;
                        let pixel = (row + u64::from(dtp.region.y)) * u64::from(geometry.width) + column + u64::from(dtp.region.x);
                        expected.insert(all[to as usize], pixel * u64::from(geometry.pixel_bytes) + byte);
                    }
                }
            }
            prop_assert_eq!(places, expected);
        }
    }

    #[test]
    fn what_is_no_transfer() {
        let geometry = Geometry { width: 16, height: 4, pixel_bytes: 2 };
        let region = Region { x: 0, y: 0, width: 16, height: 4 };
        let layout = Layout { slots: 2, slot_bytes: 128, block_offset: 0, row_pitch_bytes: 32 };
        let good = dtp(region, layout, 64);
        let space = space(&[256], 8);
        let tried = |dtp: Dtp| Transfer::new(dtp, geometry, &space, 0..256).err();
        assert_eq!(tried(good), None);
        let id = good.id;
        assert_eq!(tried(Dtp { region: Region { x: 1, ..region }, ..good }), Some(BadTransfer::Region(id)));
        assert_eq!(tried(Dtp { slices: Slices { first: 0, count: None, step: 0 }, ..good }), Some(BadTransfer::Slices(id)));
        assert_eq!(tried(Dtp { packet_bytes: 0, ..good }), Some(BadTransfer::Packet(id)));
        assert_eq!(tried(Dtp { packet_bytes: 65_512, ..good }), Some(BadTransfer::Packet(id)));
        let with = |layout: Layout| tried(Dtp { layout, ..good });
        let slots = Some(BadTransfer::Slots(id, ReceiveBufferId(0)));
        assert_eq!(with(Layout { slots: 0, ..layout }), slots);
        assert_eq!(with(Layout { slots: 3, ..layout }), slots, "beyond the receive buffer");
        assert_eq!(with(Layout { slot_bytes: u64::MAX, ..layout }), slots);
        assert_eq!(with(Layout { slot_bytes: 120, ..layout }), Some(BadTransfer::Block(id)));
        assert_eq!(with(Layout { block_offset: u64::MAX, ..layout }), Some(BadTransfer::Block(id)));
        assert_eq!(with(Layout { row_pitch_bytes: 31, ..layout }), Some(BadTransfer::Block(id)));
        let unit = Some(BadTransfer::Unit { dtp: id, unit_bytes: 8 });
        assert_eq!(tried(Dtp { packet_bytes: 60, ..good }), unit);
        assert_eq!(with(Layout { slots: 1, slot_bytes: 252, row_pitch_bytes: 36, ..layout }), unit);
    }
}
