//! Memory for datagrams that are held back until it is known what they are. It is allocated and touched at arm and kept
//! until the run has ended, so that the receiver makes no system call for it while packets come.

use std::collections::VecDeque;

/// The bytes of a few datagrams of one length, in the order in which they came.
pub(crate) struct HeldDatagrams {
    datagram_bytes: usize,
    bytes: Box<[u8]>,
    /// Places in `bytes`: those of the held datagrams in their order, then the free ones.
    places: VecDeque<usize>,
}

impl HeldDatagrams {
    /// Room for `most` datagrams of `datagram_bytes` each.
    pub(crate) fn new(most: usize, datagram_bytes: usize) -> Self {
        // Not zeros: the kernel would provide zeroed pages only when they are written.
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

    /// The datagrams in the order in which they came. Free places follow the held ones: the caller knows how many it
    /// holds.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| &self.bytes[place * self.datagram_bytes..][..self.datagram_bytes])
    }
}
