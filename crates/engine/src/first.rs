//! The first packets of a stream, with their bytes. They are held back until [`Opening`] has decided about them.

use crate::held::HeldDatagrams;
use konkordia_core::first_packets::{FirstPacket, FirstVerdict, Opening, OpeningSpec};
use konkordia_core::plan::Plan;
use konkordia_core::setup::distinctive_number;
use konkordia_core::tile::TileFormat;

/// Packets that are held back.
pub(crate) struct FirstPackets {
    opening: Opening,
    held: HeldDatagrams,
}

impl FirstPackets {
    /// For a stream of this plan and format. `None` for files, whose packets are not held back.
    pub(crate) fn new(plan: &Plan, format: &TileFormat) -> Option<Self> {
        if plan.lossless_source {
            return None;
        }
        let distinctive_number = distinctive_number(format, plan.setup.ports_per_module);
        let end = format.first_packet + format.packets();
        let spec = OpeningSpec {
            packets: format.packets(),
            is_strict: plan.setup.is_strict,
            distinctive_number,
            distinctive_packets: end - distinctive_number.max(format.first_packet),
            is_single: plan.frames == Some(1),
        };
        let (most, datagram_bytes) = (Opening::packets_max(spec.packets), format.datagram_bytes() as usize);
        Some(Self { opening: Opening::new(spec), held: HeldDatagrams::new(most, datagram_bytes) })
    }

    /// Keeps one more datagram, not longer than those of the tile.
    pub(crate) fn push(&mut self, first: FirstPacket, datagram: &[u8], now_ns: u64, is_known: bool) -> FirstVerdict {
        self.held.push(self.opening.held().len(), (datagram, &[]));
        self.opening.push(first, now_ns, is_known)
    }

    /// Asks for a verdict when no packet came.
    pub(crate) fn tick(&mut self, now_ns: u64, is_known: bool, is_last: bool) -> FirstVerdict {
        self.opening.tick(now_ns, is_known, is_last)
    }

    /// Forgets the oldest.
    pub(crate) fn drop_oldest(&mut self) -> Option<FirstPacket> {
        let oldest = self.opening.held().first().copied()?;
        self.opening.drop_oldest();
        self.held.drop_oldest();
        Some(oldest)
    }

    /// The held datagrams with what is known of them, in the order in which they came.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (&FirstPacket, &[u8])> {
        self.opening.held().iter().zip(self.held.datagrams())
    }

    /// Forgets all held packets, because they are refused.
    pub(crate) fn refuse(&mut self) {
        self.opening.refuse();
    }

    /// True if packets were refused.
    pub(crate) fn has_refused(&self) -> bool {
        self.opening.has_refused()
    }

    /// True while the held packets do not count as missing.
    pub(crate) fn is_settling(&self, now_ns: u64) -> bool {
        self.opening.is_settling(now_ns)
    }

    /// True if nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.opening.held().is_empty()
    }
}
