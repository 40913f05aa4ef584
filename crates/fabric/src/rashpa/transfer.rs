//! A data transfer process (EUCALL D5.2, 3.2.2): what a module sends (dataset, slices, region), where to (a receive
//! buffer and the place of the module's block in it) and how (channel, packets, credits or free run).
//!
//! The address rule is ours, with the published terms: the n-th slice of a transfer goes to slot n mod slots, and pixel
//! (column, row) of the region to `slot * slot_bytes + block_offset + row * row_pitch + column * pixel_bytes`, counted
//! from the beginning of the receive buffer.

use super::space::AddressSpace;
use super::terms::{Dataset, DtpId, Geometry, ReceiveBufferId, Region, Slices};
use konkordia_wire::rashpa_event::SLOTS_MAX;
use std::ops::Range;

/// May a module overwrite what was not read?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// No: it fills a slot only when the receiver gave a credit for it.
    Credit,
    /// Yes: the slots are filled in turn, and readers notice that theirs was overwritten.
    FreeRun,
}

/// The slots of a receive buffer, and the place of a module's block in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Number of slots.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Where the block begins in its slot.
    pub block_offset: u64,
    /// Bytes from one row to the next.
    pub row_pitch_bytes: u64,
}

/// A data transfer process of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dtp {
    /// Its id in the module.
    pub id: DtpId,
    /// The data channel that executes it.
    pub channel: u8,
    /// What is sent.
    pub dataset: Dataset,
    /// Of which slices.
    pub slices: Slices,
    /// Which pixels of the module.
    pub region: Region,
    /// Where to.
    pub buffer: ReceiveBufferId,
    /// Where in it.
    pub layout: Layout,
    /// May it overwrite?
    pub policy: Policy,
    /// Payload of a packet at most.
    pub packet_bytes: u32,
}

/// Why a transfer cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTransfer {
    /// The region has no pixels or is not in the module.
    #[error("{0}: its region has no pixels, or pixels that the module does not have")]
    Region(DtpId),
    /// Every 0th slice.
    #[error("{0}: the step of its slices is 0; write 1 to send each of them")]
    Slices(DtpId),
    /// No slots, too many, or more than the receive buffer has room for.
    #[error("{0}: its slots do not fit into {1}; they have to end inside of it, and their number is 1 to 1048576")]
    Slots(DtpId, ReceiveBufferId),
    /// Rows overlap, or the block ends beyond its slot.
    #[error("{0}: its rows overlap, or its block ends beyond the slot")]
    Block(DtpId),
    /// No payload, or more than a UDP datagram has.
    #[error("{0}: packets have 1 to 65511 bytes of payload")]
    Packet(DtpId),
    /// An address that the packets cannot say.
    #[error("{dtp}: a local buffer of {unit_bytes} bytes a unit cannot hold it; rows, slots and packets have to be multiples")]
    Unit {
        /// Which transfer.
        dtp: DtpId,
        /// The unit of the local buffer.
        unit_bytes: u32,
    },
    /// Two transfers of one module have the same id.
    #[error("{0} is defined twice")]
    Twice(DtpId),
    /// The receive buffer is not in the map.
    #[error("{0} writes into {1}, which the map does not have; upload the map (R3) with it")]
    NoBuffer(DtpId, ReceiveBufferId),
}

/// Payload that a UDP datagram with the headers of RDMA over UDP can have.
pub const PACKET_BYTES_MAX: u32 = 65_535 - 8 - 16;

/// Units that the 48 bits of an offset can count.
const OFFSET_UNITS_MAX: u64 = 1 << 48;

/// A transfer that was checked against its module and the space: all its addresses are inside of its receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    dtp: Dtp,
    base: u64,
    pixel_bytes: u32,
    module_width: u32,
}

/// Bytes of the image of a module and where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they begin in the image of the module.
    pub source: u64,
    /// Where they belong in the space.
    pub address: u64,
    /// How many.
    pub bytes: u64,
}

impl Transfer {
    /// Checks a transfer of a module; `buffer` is the range of its receive buffer in `space`.
    ///
    /// # Errors
    /// [`BadTransfer`], the first that applies.
    pub fn new(dtp: Dtp, geometry: Geometry, space: &AddressSpace, buffer: Range<u64>) -> Result<Self, BadTransfer> {
        let (id, layout) = (dtp.id, dtp.layout);
        if !geometry.contains(&dtp.region) {
            return Err(BadTransfer::Region(id));
        }
        if dtp.slices.step == 0 {
            return Err(BadTransfer::Slices(id));
        }
        if dtp.packet_bytes == 0 || dtp.packet_bytes > PACKET_BYTES_MAX {
            return Err(BadTransfer::Packet(id));
        }
        let room = buffer.end.saturating_sub(buffer.start);
        let is_inside = layout.slot_bytes.checked_mul(layout.slots.into()).is_some_and(|bytes| bytes <= room);
        if layout.slots == 0 || layout.slots > SLOTS_MAX || layout.slot_bytes == 0 || !is_inside || buffer.end > space.bytes() {
            return Err(BadTransfer::Slots(id, dtp.buffer));
        }
        let row_bytes = u128::from(dtp.region.width) * u128::from(geometry.pixel_bytes);
        let last_row = u128::from(dtp.region.height - 1) * u128::from(layout.row_pitch_bytes);
        let block_end = u128::from(layout.block_offset) + last_row + row_bytes;
        let overlaps = dtp.region.height > 1 && u128::from(layout.row_pitch_bytes) < row_bytes;
        if row_bytes == 0 || overlaps || block_end > layout.slot_bytes.into() || geometry.image_bytes() > u32::MAX.into() {
            return Err(BadTransfer::Block(id));
        }
        let transfer = Self { dtp, base: buffer.start, pixel_bytes: geometry.pixel_bytes, module_width: geometry.width };
        transfer.check_units(space, buffer)?;
        Ok(transfer)
    }

    /// All packets begin at a multiple of the unit of their local buffer: the beginning of the buffer, the steps by
    /// which addresses grow, and the parts into which a run is cut.
    fn check_units(&self, space: &AddressSpace, buffer: Range<u64>) -> Result<(), BadTransfer> {
        let Layout { slot_bytes, block_offset, row_pitch_bytes, .. } = self.dtp.layout;
        let pieces = space.pieces(buffer.clone()).into_iter().flatten();
        for entry in pieces.map(|piece| &space.entries()[piece.entry]) {
            let unit = u64::from(entry.local.unit_bytes);
            let shift = self.base.abs_diff(entry.base);
            let steps = [shift, slot_bytes, block_offset, row_pitch_bytes, self.dtp.packet_bytes.into()];
            if steps.iter().any(|step| step % unit != 0) || (entry.local.bytes - 1) / unit >= OFFSET_UNITS_MAX {
                return Err(BadTransfer::Unit { dtp: self.dtp.id, unit_bytes: entry.local.unit_bytes });
            }
        }
        Ok(())
    }

    /// The transfer as it was configured.
    pub const fn dtp(&self) -> &Dtp {
        &self.dtp
    }

    /// Bytes of a block.
    pub const fn block_bytes(&self) -> u64 {
        self.row_bytes() * self.dtp.region.height as u64
    }

    const fn row_bytes(&self) -> u64 {
        self.dtp.region.width as u64 * self.pixel_bytes as u64
    }

    /// The slot of the n-th slice, and how often it was filled before.
    pub const fn slot(&self, position: u64) -> (u32, u64) {
        let slots = self.dtp.layout.slots as u64;
        ((position % slots) as u32, position / slots)
    }

    /// The bytes of a block and their places in a slot: one run for each row, or one for all where rows follow each
    /// other on both sides.
    pub fn runs(&self, slot: u32) -> impl Iterator<Item = Run> + use<> {
        let Dtp { region, layout, .. } = self.dtp;
        let line_bytes = u64::from(self.module_width) * u64::from(self.pixel_bytes);
        let source = u64::from(region.y) * line_bytes + u64::from(region.x) * u64::from(self.pixel_bytes);
        let address = self.base + u64::from(slot) * layout.slot_bytes + layout.block_offset;
        let row_bytes = self.row_bytes();
        let is_one = row_bytes == line_bytes && row_bytes == layout.row_pitch_bytes;
        let (runs, bytes) = if is_one { (1, self.block_bytes()) } else { (u64::from(region.height), row_bytes) };
        (0..runs).map(move |row| Run {
            source: source + row * line_bytes,
            address: address + row * layout.row_pitch_bytes,
            bytes,
        })
    }
}
