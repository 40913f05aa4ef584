//! The first packets of a stream, with their bytes, until [`Opening`] has decided about them.

use konkordia_core::first_packets::{FirstPacket, FirstVerdict, Opening, OpeningSpec};
use konkordia_core::plan::Plan;
use konkordia_core::setup::telling_number;
use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_udp::HEADER_BYTES;
use std::collections::VecDeque;

/// Packets that are held back. All memory is taken, and touched, at arm, and kept until the run has ended: the receiver calls the system for
/// neither while packets come.
pub(crate) struct FirstPackets {
    opening: Opening,
    datagram_bytes: usize,
    bytes: Box<[u8]>,
    /// Places in `bytes`: of the packets held, in their order, and free ones behind them.
    places: VecDeque<usize>,
}

impl FirstPackets {
    /// For a stream of this plan and format; `None` where nothing is to be found out: files are what they are.
    pub(crate) fn new(plan: &Plan, format: &TileFormat) -> Option<Self> {
        if plan.lossless_source {
            return None;
        }
        let telling_number = telling_number(format, plan.setup.ports_per_module);
        let end = format.first_packet + format.packets();
        let spec = OpeningSpec {
            packets: format.packets(),
            is_strict: plan.setup.is_strict,
            telling_number,
            telling_packets: end - telling_number.max(format.first_packet),
        };
        let (most, datagram_bytes) = (Opening::packets_max(spec.packets), HEADER_BYTES + format.payload_bytes as usize);
        // Not zeros, for which the system would give the pages only when they are written.
        let bytes = vec![1; most * datagram_bytes].into_boxed_slice();
        Some(Self { opening: Opening::new(spec), datagram_bytes, bytes, places: (0..most).collect() })
    }

    /// Keeps one more datagram of the right length.
    pub(crate) fn push(&mut self, first: FirstPacket, datagram: &[u8], now_ns: u64, is_known: bool) -> FirstVerdict {
        let place = self.places[self.opening.held().len()];
        self.bytes[place * self.datagram_bytes..][..self.datagram_bytes].copy_from_slice(datagram);
        self.opening.push(first, now_ns, is_known)
    }

    /// No packet came.
    pub(crate) fn tick(&mut self, now_ns: u64, is_known: bool, is_last: bool) -> FirstVerdict {
        self.opening.tick(now_ns, is_known, is_last)
    }

    /// Forgets the oldest.
    pub(crate) fn drop_oldest(&mut self) -> Option<FirstPacket> {
        let oldest = self.opening.held().first().copied()?;
        self.opening.drop_oldest();
        self.places.rotate_left(1);
        Some(oldest)
    }

    /// The datagrams with what is known of them, in the order in which they came.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (&FirstPacket, &[u8])> {
        let bytes = |place: &usize| &self.bytes[place * self.datagram_bytes..][..self.datagram_bytes];
        self.opening.held().iter().zip(self.places.iter().map(bytes))
    }

    /// Forgets all, because it is refused.
    pub(crate) fn refuse(&mut self) {
        self.opening.refuse();
    }

    /// True if packets were refused.
    pub(crate) fn has_refused(&self) -> bool {
        self.opening.has_refused()
    }

    /// True while what is held is not missing.
    pub(crate) fn is_settling(&self, now_ns: u64) -> bool {
        self.opening.is_settling(now_ns)
    }

    /// True if nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.opening.held().is_empty()
    }
}
