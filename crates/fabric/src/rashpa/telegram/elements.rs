//! The table of elements and attributes, which reader and writer go through alike.

use super::error::BadTelegram;
use super::text::{Name, PeerKind, Text, Transform};
use crate::rashpa::sender::{EventRing, ReceiveBuffer};
use crate::rashpa::space::{Entry, LocalBuffer};
use crate::rashpa::terms::{
    BufferId, Dataset, DtpId, LinkId, LinkKind, MemoryKind, ModuleId, ReceiveBufferId, ReceiverId, Region, Slices,
};
use crate::rashpa::transfer::{Dtp, Layout, Policy};

/// Elements of one kind in a telegram at most.
pub const LIST_MAX: usize = 4096;

/// Goes through the attributes and elements of one element: the reader changes the values, the writer leaves them.
pub trait Pass {
    /// An attribute.
    fn value<T: Text>(&mut self, name: &'static str, value: &mut T) -> Result<(), BadTelegram>;
    /// All elements of one name.
    fn list<T: Element>(&mut self, list: &mut Vec<T>) -> Result<(), BadTelegram>;
}

/// An element that may come several times.
pub trait Element: Default {
    /// Its name.
    const NAME: &'static str;
    /// Its attributes and elements.
    fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram>;
}

macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident $element:literal {
        $($(#[$field_doc:meta])* $field:ident: $kind:ty = $attribute:literal,)+
    })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)+
        }
        impl Element for $name {
            const NAME: &'static str = $element;
            fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
                $(pass.value($attribute, &mut self.$field)?;)+
                Ok(())
            }
        }
    )+};
}

elements! {
    /// A link of a module or receiver.
    Link "link" {
        /// Its id there.
        id: LinkId = "id",
        /// How it carries writes.
        kind: LinkKind = "kind",
        /// Its address, in the form of its kind.
        address: Name = "address",
        /// Bytes of a packet at most.
        mtu_bytes: u32 = "mtu-bytes",
        /// Is it up?
        is_up: bool = "up",
    }
    /// Memory of a receiver.
    Memory "memory" {
        /// What kind.
        kind: MemoryKind = "kind",
        /// How much.
        bytes: u64 = "bytes",
    }
    /// Something that a module can do with images.
    Capability "transform" {
        /// What.
        kind: Transform = "kind",
    }
    /// A member of the system and how one link of it is reached.
    Peer "peer" {
        /// Module or receiver.
        kind: PeerKind = "kind",
        /// Its id.
        id: u16 = "id",
        /// Its link.
        link: LinkId = "link",
        /// How the link carries writes.
        link_kind: LinkKind = "link-kind",
        /// Its address.
        address: Name = "address",
        /// RoCEv2: number of the queue pair, 24 bits.
        queue_pair: Option<u32> = "queue-pair",
        /// RoCEv2: first packet sequence number, 24 bits.
        sequence: Option<u32> = "sequence",
        /// RoCEv2: partition key.
        partition_key: Option<u16> = "partition-key",
        /// Where it takes telegrams.
        telegrams: Option<Name> = "telegrams",
    }
    /// A local buffer that a receiver is to make.
    BufferWish "local-buffer" {
        /// Its id.
        id: BufferId = "id",
        /// Its length.
        bytes: u64 = "bytes",
        /// Its address is to be a multiple of this.
        align_bytes: u32 = "align-bytes",
        /// Where.
        kind: MemoryKind = "kind",
        /// Bytes of a unit of offsets.
        unit_bytes: u32 = "unit-bytes",
    }
    /// A local buffer that a receiver has made.
    BufferPlace "local-buffer" {
        /// Its id.
        id: BufferId = "id",
        /// Where it begins.
        address: u64 = "address",
        /// The key that lets one write it.
        key: u32 = "key",
    }
    /// The slots of a transfer that are in one local buffer of a receiver. A slot has the pixels of the region of the
    /// transfer, row by row without gaps.
    ReceivedSlots "slots" {
        /// The transfer.
        transfer: DtpId = "transfer",
        /// The receive buffer, of which these slots are a part.
        buffer: ReceiveBufferId = "receive-buffer",
        /// The local buffer.
        local: BufferId = "local-buffer",
        /// Slots of the receive buffer, of all receivers.
        slots: u32 = "slots",
        /// The first one here.
        first_slot: u32 = "first-slot",
        /// How many are here.
        slots_here: u32 = "slots-here",
        /// Columns of a slot.
        width: u32 = "width",
        /// Rows of a slot.
        height: u32 = "height",
        /// Bytes of a pixel.
        pixel_bytes: u32 = "pixel-bytes",
        /// The first slice of the transfer.
        first_slice: u64 = "first-slice",
        /// Its slices; none if it does not end.
        slices: Option<u64> = "slices",
        /// Each how many-th slice.
        step: u32 = "step",
        /// May modules overwrite?
        policy: Policy = "policy",
    }
    /// What a module brings into each slot of a transfer.
    ReceivedPart "part" {
        /// The transfer.
        transfer: DtpId = "transfer",
        /// The module.
        module: ModuleId = "module",
        /// First column of its pixels in the module.
        x: u32 = "x",
        /// First row of its pixels in the module.
        y: u32 = "y",
        /// Columns.
        width: u32 = "width",
        /// Rows.
        height: u32 = "height",
        /// Where its first pixel is in the slot.
        block_offset: u64 = "block-offset",
    }
    /// The ring of a receiver for the events of a module.
    ModuleRing "module-ring" {
        /// Whose events.
        module: ModuleId = "module",
        /// The local buffer.
        buffer: BufferId = "local-buffer",
        /// How many records fit.
        records: u32 = "records",
    }
    /// How often a slot may be filled in all.
    Grant "slot" {
        /// Which slot.
        slot: u32 = "id",
        /// How often.
        fills: u64 = "fills",
    }
}

macro_rules! defaults {
    ($($name:ident { $($field:ident: $value:expr),+ })+) => {$(
        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $value),+ }
            }
        }
    )+};
}

defaults! {
    Link { id: LinkId(0), kind: LinkKind::RdmaUdp, address: Name::default(), mtu_bytes: 0, is_up: false }
    Memory { kind: MemoryKind::Ram, bytes: 0 }
    Capability { kind: Transform::default() }
    Peer {
        kind: PeerKind::default(), id: 0, link: LinkId(0), link_kind: LinkKind::RdmaUdp, address: Name::default(),
        queue_pair: None, sequence: None, partition_key: None, telegrams: None
    }
    BufferWish { id: BufferId(0), bytes: 0, align_bytes: 0, kind: MemoryKind::Ram, unit_bytes: 0 }
    BufferPlace { id: BufferId(0), address: 0, key: 0 }
    ReceivedSlots {
        transfer: DtpId(0), buffer: ReceiveBufferId(0), local: BufferId(0), slots: 0, first_slot: 0, slots_here: 0, width: 0,
        height: 0, pixel_bytes: 0, first_slice: 0, slices: None, step: 0, policy: Policy::Credit
    }
    ReceivedPart { transfer: DtpId(0), module: ModuleId(0), x: 0, y: 0, width: 0, height: 0, block_offset: 0 }
    ModuleRing { module: ModuleId(0), buffer: BufferId(0), records: 0 }
    Grant { slot: 0, fills: 0 }
}

/// An entry of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry(pub Entry);

impl Default for MapEntry {
    fn default() -> Self {
        let local = LocalBuffer { receiver: ReceiverId(0), buffer: BufferId(0), bytes: 0, address: 0, key: 0, unit_bytes: 0 };
        Self(Entry { base: 0, local })
    }
}

impl Element for MapEntry {
    const NAME: &'static str = "entry";
    fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        pass.value("base", &mut self.0.base)?;
        let local = &mut self.0.local;
        pass.value("receiver", &mut local.receiver)?;
        pass.value("local-buffer", &mut local.buffer)?;
        pass.value("bytes", &mut local.bytes)?;
        pass.value("address", &mut local.address)?;
        pass.value("key", &mut local.key)?;
        pass.value("unit-bytes", &mut local.unit_bytes)
    }
}

/// A receive buffer in the map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveBufferEntry(pub ReceiveBuffer);

impl Element for ReceiveBufferEntry {
    const NAME: &'static str = "receive-buffer";
    fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        pass.value("id", &mut self.0.id)?;
        pass.value("base", &mut self.0.base)?;
        pass.value("bytes", &mut self.0.bytes)
    }
}

/// A ring of events in the map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingEntry(pub EventRing);

impl Element for RingEntry {
    const NAME: &'static str = "event-ring";
    fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        pass.value("receiver", &mut self.0.receiver)?;
        pass.value("local-buffer", &mut self.0.buffer)?;
        pass.value("records", &mut self.0.records)?;
        pass.value("address", &mut self.0.address)
    }
}

/// A data transfer process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferEntry(pub Dtp);

impl Default for TransferEntry {
    fn default() -> Self {
        Self(Dtp {
            id: DtpId(0),
            channel: 0,
            dataset: Dataset::Image,
            slices: Slices { first: 0, count: None, step: 0 },
            region: Region { x: 0, y: 0, width: 0, height: 0 },
            buffer: ReceiveBufferId(0),
            layout: Layout { slots: 0, slot_bytes: 0, block_offset: 0, row_pitch_bytes: 0 },
            policy: Policy::Credit,
            packet_bytes: 0,
        })
    }
}

impl Element for TransferEntry {
    const NAME: &'static str = "transfer";
    fn pass(&mut self, pass: &mut impl Pass) -> Result<(), BadTelegram> {
        let Dtp { id, channel, dataset, slices, region, buffer, layout, policy, packet_bytes } = &mut self.0;
        pass.value("id", id)?;
        pass.value("channel", channel)?;
        pass.value("dataset", dataset)?;
        pass.value("first-slice", &mut slices.first)?;
        pass.value("slices", &mut slices.count)?;
        pass.value("step", &mut slices.step)?;
        pass.value("x", &mut region.x)?;
        pass.value("y", &mut region.y)?;
        pass.value("width", &mut region.width)?;
        pass.value("height", &mut region.height)?;
        pass.value("receive-buffer", buffer)?;
        pass.value("slots", &mut layout.slots)?;
        pass.value("slot-bytes", &mut layout.slot_bytes)?;
        pass.value("block-offset", &mut layout.block_offset)?;
        pass.value("row-pitch-bytes", &mut layout.row_pitch_bytes)?;
        pass.value("policy", policy)?;
        pass.value("packet-bytes", packet_bytes)
    }
}
