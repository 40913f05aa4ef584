//! Memory for datagrams that are held back until it is known what they are. It is allocated and touched at arm and kept
//! until the run has ended, so that the receiver makes no system call for it while packets come.

use std::collections::VecDeque;

/// The bytes of a few datagrams, in the order in which they came.
pub(crate) struct HeldDatagrams {
    datagram_bytes_max: usize,
    bytes: Box<[u8]>,
    /// Bytes of the datagram at each place.
    lengths: Box<[usize]>,
    /// Places in `bytes`: those of the held datagrams in their order, then the free ones.
    places: VecDeque<usize>,
}

impl HeldDatagrams {
    /// Room for `most` datagrams of at most `datagram_bytes_max` each.
    pub(crate) fn new(most: usize, datagram_bytes_max: usize) -> Self {
        // Not zeros: the kernel would provide zeroed pages only when they are written.
        let bytes = vec![1; most * datagram_bytes_max].into_boxed_slice();
        let lengths = vec![datagram_bytes_max; most].into_boxed_slice();
        Self { datagram_bytes_max, bytes, lengths, places: (0..most).collect() }
    }

    /// Keeps one more, not longer than the longest, behind `held` others. Its bytes may come in two parts.
    pub(crate) fn push(&mut self, held: usize, (head, rest): (&[u8], &[u8])) {
        let place = self.places[held];
        let (head_to, to) = self.bytes[place * self.datagram_bytes_max..].split_at_mut(head.len());
        head_to.copy_from_slice(head);
        to[..rest.len()].copy_from_slice(rest);
        self.lengths[place] = head.len() + rest.len();
    }

    /// Forgets the oldest.
    pub(crate) fn drop_oldest(&mut self) {
        self.places.rotate_left(1);
    }

    /// The datagrams in the order in which they came. Free places follow the held ones: the caller knows how many it
    /// holds.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| &self.bytes[place * self.datagram_bytes_max..][..self.lengths[*place]])
    }
}
