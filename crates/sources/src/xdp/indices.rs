//! The index arithmetic of the rings that a socket shares with the kernel. Each ring has a power of two of entries and
//! two indices that count up for ever and wrap at 2^32: the producer's, behind the newest entry, and the consumer's, at
//! the oldest. No memory is touched here. Source: Documentation/networking/af_xdp.rst.

/// One side of a ring: its own index, and the last value of the other side's index that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indices {
    entries: u32,
    own: u32,
    other: u32,
}

impl Indices {
    /// A ring of `entries`, with both indices as they are now.
    ///
    /// # Panics
    /// If `entries` is not a power of two.
    pub(crate) fn new(entries: u32, own: u32, other: u32) -> Self {
        assert!(entries.is_power_of_two(), "a ring of {entries} entries");
        Self { entries, own, other }
    }

    /// The index of this side, as the other side is to see it.
    pub(crate) fn own(&self) -> u32 {
        self.own
    }

    /// The other side's index has changed.
    pub(crate) fn observe(&mut self, other: u32) {
        self.other = other;
    }

    /// For the consumer: entries that it may read.
    ///
    /// # Panics
    /// If the indices are further apart than the ring is long: then the memory of the ring is not what it should be.
    pub(crate) fn filled(&self) -> u32 {
        let filled = self.other.wrapping_sub(self.own);
        assert!(filled <= self.entries, "a ring of {} entries has {filled} of them filled", self.entries);
        filled
    }

    /// For the producer: entries that it may write.
    ///
    /// # Panics
    /// As [`Indices::filled`].
    pub(crate) fn free(&self) -> u32 {
        let filled = self.own.wrapping_sub(self.other);
        assert!(filled <= self.entries, "a ring of {} entries has {filled} of them filled", self.entries);
        self.entries - filled
    }

    /// The place in memory of the next entry of this side, below the number of entries.
    pub(crate) fn next(&self) -> usize {
        (self.own & (self.entries - 1)) as usize
    }

    /// This side is done with its next entry.
    pub(crate) fn advance(&mut self) {
        self.own = self.own.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::Indices;
    use std::collections::VecDeque;

    /// A producer and a consumer beside a queue that shows what must come out, over the wrap of the indices.
    #[test]
    fn a_ring_is_a_bounded_queue_even_where_its_indices_wrap() {
        const ENTRIES: u32 = 8;
        for start in [0, 5, u32::MAX - 20, u32::MAX] {
            let mut producer = Indices::new(ENTRIES, start, start);
            let mut consumer = Indices::new(ENTRIES, start, start);
            let (mut memory, mut queue) = ([0; ENTRIES as usize], VecDeque::new());
            let mut number = 0;
            for step in 0..1000_u32 {
                let (puts, takes) = (step * 7 % 11, step * 5 % 9);
                producer.observe(consumer.own());
                assert_eq!(producer.free(), ENTRIES - queue.len() as u32);
                for _ in 0..puts.min(producer.free()) {
                    memory[producer.next()] = number;
                    queue.push_back(number);
                    producer.advance();
                    number += 1;
                }
                consumer.observe(producer.own());
                assert_eq!(consumer.filled(), queue.len() as u32);
                for _ in 0..takes.min(consumer.filled()) {
                    assert_eq!(Some(memory[consumer.next()]), queue.pop_front());
                    consumer.advance();
                }
            }
            assert!(number > 1000, "the ring was used {number} times");
        }
    }

    #[test]
    fn a_side_sees_nothing_new_before_it_looks() {
        let mut consumer = Indices::new(4, u32::MAX, u32::MAX);
        assert_eq!(consumer.filled(), 0);
        consumer.observe(3);
        assert_eq!((consumer.filled(), consumer.next()), (4, 3));
        consumer.advance();
        assert_eq!((consumer.filled(), consumer.next(), consumer.own()), (3, 0, 0));
    }

    #[test]
    #[should_panic(expected = "5 of them filled")]
    fn indices_that_cannot_be_are_noticed() {
        Indices::new(4, 0, 5).filled();
    }

    #[test]
    #[should_panic(expected = "a ring of 6 entries")]
    fn a_ring_has_a_power_of_two_of_entries() {
        Indices::new(6, 0, 0);
    }
}
