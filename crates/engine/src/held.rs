//! Datagrams that are held back until somebody knows what they are. All memory is taken, and touched, at arm, and kept until the run has ended: the
//! receiver calls the system for neither while packets come.

use std::collections::VecDeque;

/// The bytes of a few datagrams of one length, in the order in which they came.
pub(crate) struct HeldDatagrams {
    datagram_bytes: usize,
    bytes: Box<[u8]>,
    /// Places in `bytes`: of the datagrams held, in their order, and free ones behind them.
    places: VecDeque<usize>,
}

impl HeldDatagrams {
    /// Room for so many datagrams of this length.
    pub(crate) fn new(most: usize, datagram_bytes: usize) -> Self {
        // Not zeros, for which the system would give the pages only when they are written.
        let bytes = vec![1; most * datagram_bytes].into_boxed_slice();
        Self { datagram_bytes, bytes, places: (0..most).collect() }
    }

    /// Keeps one more behind `held` others.
    pub(crate) fn push(&mut self, held: usize, datagram: &[u8]) {
        let start = self.places[held] * self.datagram_bytes;
        self.bytes[start..][..self.datagram_bytes].copy_from_slice(datagram);
    }

    /// Forgets the oldest.
    pub(crate) fn drop_oldest(&mut self) {
        self.places.rotate_left(1);
    }

    /// In the order in which they came; more than are held.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| &self.bytes[place * self.datagram_bytes..][..self.datagram_bytes])
    }
}
