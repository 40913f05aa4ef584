//! The first packets of a stream, with their bytes, until [`Opening`] has decided about them.

use konkordia_core::opening::{Held, Opened, Opening, OpeningSpec};
use konkordia_core::plan::Plan;
use konkordia_core::setup::other_counts;
use konkordia_wire::sls_udp::HEADER_BYTES;
use std::collections::VecDeque;

/// Packets that are held back. All memory is taken at arm.
pub(crate) struct FirstPackets {
    opening: Opening,
    datagram_bytes: usize,
    bytes: Box<[u8]>,
    /// Places in `bytes`: of the packets held, in their order, and free ones behind them.
    places: VecDeque<usize>,
}

impl FirstPackets {
    /// For a stream of this plan; `None` where nothing is to be found out: files are what they are.
    pub(crate) fn new(plan: &Plan) -> Option<Self> {
        if plan.lossless_source {
            return None;
        }
        let (format, rules) = (plan.geometry.format(), &plan.setup);
        let others = other_counts(format, rules.ports_per_module);
        let spec = OpeningSpec { packets: format.packets(), is_strict: rules.is_strict, others };
        let (most, datagram_bytes) = (Opening::packets_max(spec.packets), HEADER_BYTES + format.payload_bytes as usize);
        let bytes = vec![0; most * datagram_bytes].into_boxed_slice();
        Some(Self { opening: Opening::new(spec), datagram_bytes, bytes, places: (0..most).collect() })
    }

    /// Keeps one more datagram of the right length.
    pub(crate) fn push(&mut self, held: Held, datagram: &[u8], now_ns: u64, is_known: bool) -> Opened {
        let place = self.places[self.opening.held().len()];
        self.bytes[place * self.datagram_bytes..][..self.datagram_bytes].copy_from_slice(datagram);
        self.opening.push(held, now_ns, is_known)
    }

    /// No packet came.
    pub(crate) fn tick(&mut self, now_ns: u64, is_known: bool, is_last: bool) -> Opened {
        self.opening.tick(now_ns, is_known, is_last)
    }

    /// Forgets the oldest.
    pub(crate) fn drop_oldest(&mut self) -> Option<Held> {
        let oldest = self.opening.held().first().copied()?;
        self.opening.drop_oldest();
        self.places.rotate_left(1);
        Some(oldest)
    }

    /// The datagrams with what is known of them, in the order in which they came.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (&Held, &[u8])> {
        let bytes = |place: &usize| &self.bytes[place * self.datagram_bytes..][..self.datagram_bytes];
        self.opening.held().iter().zip(self.places.iter().map(bytes))
    }

    /// True if nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.opening.held().is_empty()
    }
}
