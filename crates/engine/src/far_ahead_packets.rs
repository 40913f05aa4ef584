//! Packets, with their bytes, of a stream that seems to have jumped to distant frames or to another sender. They are
//! held back until [`FarAhead`] and the other streams show whether it has ([`crate::jump`]).

use crate::held::HeldDatagrams;
use konkordia_core::assembler::AssemblerSpec;
use konkordia_core::far_ahead::{FarAhead, FarAheadPacket};
use konkordia_core::plan::Plan;
use konkordia_core::tile::TileFormat;

/// Packets that are held back.
pub(crate) struct FarAheadPackets {
    pub far_ahead: FarAhead,
    pub held: HeldDatagrams,
    pub near_images: u64,
    /// Newest image of any stream + 1, when the first held packet came.
    pub newest_end: u64,
    /// Set while this stream waits for the others.
    pub waits: Option<Waits>,
    /// The source is not read while this stream waits for the others. False once they went on where they were: from
    /// then on the source is read during the wait.
    pub is_patient: bool,
}

/// What is known of the other streams during the wait.
pub(crate) struct Waits {
    pub since_ns: u64,
    /// When all their sources had been seen empty since then. What they place later also came later.
    pub read_ns: Option<u64>,
    /// Packets that they had placed by then.
    pub placed: u64,
}

impl FarAheadPackets {
    /// For a stream of this plan and format. `None` for files, whose packets are never held back.
    pub(crate) fn new(plan: &Plan, spec: &AssemblerSpec, format: &TileFormat) -> Option<Self> {
        if plan.lossless_source {
            return None;
        }
        let (packets, near_images) = (format.packets(), spec.jump_images_max);
        let held = HeldDatagrams::new(FarAhead::packets_max(packets), format.datagram_bytes() as usize);
        let far_ahead = FarAhead::new(packets, near_images);
        Some(Self { near_images: far_ahead.near_images(), far_ahead, held, newest_end: 0, waits: None, is_patient: true })
    }

    /// True if nothing is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.far_ahead.held().is_empty()
    }

    /// Keeps one more packet, whose datagram may come in two parts.
    pub(crate) fn push(&mut self, packet: FarAheadPacket, datagram: (&[u8], &[u8]), now_ns: u64) {
        self.held.push(self.far_ahead.held().len(), datagram);
        self.far_ahead.push(packet, now_ns);
    }

    /// The held packets with their datagrams, in the order in which they came.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (&FarAheadPacket, &[u8])> {
        self.far_ahead.held().iter().zip(self.held.datagrams())
    }
}
