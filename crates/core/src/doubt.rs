//! Packets of a stream that has begun, of which it is not yet known whether the stream has gone there: far ahead of every image, or of another
//! sender than the one that has fallen silent. They are held back. A stream that has gone on goes on there: as many packets as a tile has come, and
//! none where it was. A few packets beside a stream that stays where it is are strays, whoever sent them and however well they agree.
//!
//! Sees numbers only; the bytes are kept by the caller.

use crate::sender::Sender;

/// A tile of fewer packets is confirmed by so many.
const PACKETS_MIN: u32 = 3;
/// Beside so many packets where the stream was, one of those that are held does not count: packets overtake each other.
const PART: u32 = 4;
/// After so long without a packet the half of a tile is enough: no more may come of the last frame.
const PAUSE_NS: u64 = 200_000_000;
/// Packets that a source mostly hands over at once, at most.
const BATCH_PACKETS: usize = 256;
/// Frames from one packet to another of the same place, at least.
const NEAR_FRAMES_MIN: u64 = 4;

/// One packet that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubted {
    /// Position of its frame in the run.
    pub image: u64,
    /// Whose it is.
    pub sender: Sender,
}

/// Where a stream has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Lowest image of the packets that say so.
    pub first: u64,
    /// Highest image of these.
    pub last: u64,
    /// Whose they are.
    pub sender: Sender,
}

impl Place {
    /// True if a packet is one of this place.
    pub fn has(&self, packet: &Doubted) -> bool {
        (self.first..=self.last).contains(&packet.image) && packet.sender == self.sender
    }
}

/// What is held of one stream.
#[derive(Debug)]
pub struct Doubt {
    packets: u32,
    near_images: u64,
    held: Vec<Doubted>,
    /// Packets where the stream was, since the first one that is held.
    stays: u32,
    last_ns: u64,
}

impl Doubt {
    /// For tiles of so many packets; packets less than `near_images` apart are of one place. Allocates here and never after.
    pub fn new(packets: u32, near_images: u64) -> Self {
        assert!(packets > 0);
        let held = Vec::with_capacity(Self::packets_max(packets));
        Self { packets, near_images: near_images.max(NEAR_FRAMES_MIN), held, stays: 0, last_ns: 0 }
    }

    /// Packets that are held at most, of a tile of so many: those that decide and those that come until other streams agree, and one batch of a
    /// source, which is not read any further when there are as many.
    pub const fn packets_max(packets: u32) -> usize {
        2 * packets as usize + BATCH_PACKETS
    }

    /// True if no more should come before it is decided.
    pub fn is_crowded(&self) -> bool {
        self.held.len() >= 2 * self.packets as usize
    }

    /// What is held, in the order in which it came.
    pub fn held(&self) -> &[Doubted] {
        &self.held
    }

    /// True if there is room for no more.
    pub fn is_full(&self) -> bool {
        self.held.len() == Self::packets_max(self.packets)
    }

    /// Holds one more.
    ///
    /// # Panics
    /// If it is full.
    pub fn push(&mut self, packet: Doubted, now_ns: u64) {
        assert!(!self.is_full(), "the oldest goes first");
        self.held.push(packet);
        self.last_ns = now_ns;
    }

    /// Forgets the oldest.
    pub fn drop_oldest(&mut self) {
        self.held.remove(0);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.held.clear();
        self.stays = 0;
    }

    /// A packet came where the stream was. True if it stays there, so that what is held is not of this run.
    pub fn stays(&mut self, sender: Sender) -> bool {
        self.stays += 1;
        // Another sender does not follow one that is alive.
        self.stays >= self.needed() || self.held.iter().any(|held| held.sender != sender)
    }

    fn needed(&self) -> u32 {
        self.packets.max(PACKETS_MIN)
    }

    /// Packets less than so many images apart are of one place.
    pub fn near_images(&self) -> u64 {
        self.near_images
    }

    /// The place of the newest packet, however few say so.
    pub fn newest_place(&self) -> Option<Place> {
        self.newest().map(|(place, _)| place)
    }

    /// The place of the newest packet, and how many are of it.
    fn newest(&self) -> Option<(Place, u32)> {
        let newest = *self.held.last()?;
        let is_near = |held: &&Doubted| held.sender == newest.sender && held.image.abs_diff(newest.image) < self.near_images;
        let (mut count, mut first, mut last) = (0u32, newest.image, newest.image);
        for held in self.held.iter().filter(is_near) {
            (count, first, last) = (count + 1, first.min(held.image), last.max(held.image));
        }
        Some((Place { first, last, sender: newest.sender }, count))
    }

    /// Where the stream has gone, if what is held says that it has. `is_last`: no more packets will come.
    pub fn place(&self, now_ns: u64, is_last: bool) -> Option<Place> {
        let is_quiet = is_last || now_ns.saturating_sub(self.last_ns) >= PAUSE_NS;
        let needed = if is_quiet { self.needed().div_ceil(2) } else { self.needed() };
        if (self.held.len() as u32) < needed {
            return None;
        }
        let (place, count) = self.newest()?;
        (count >= needed && self.stays.saturating_mul(PART) < count).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const PACKETS: u32 = 16;

    fn sender(port: u16) -> Sender {
        Sender::from(SocketAddr::from(([10, 0, 0, 1], port)))
    }

    fn doubted(image: u64) -> Doubted {
        Doubted { image, sender: sender(1) }
    }

    fn holding(images: impl IntoIterator<Item = u64>) -> Doubt {
        let mut doubt = Doubt::new(PACKETS, 4);
        images.into_iter().for_each(|image| doubt.push(doubted(image), 0));
        doubt
    }

    #[test]
    fn a_tile_of_packets_and_none_where_it_was_moves_a_stream() {
        let at = |first, last| Some(Place { first, last, sender: sender(1) });
        assert_eq!(holding([99; 15]).place(0, false), None);
        assert_eq!(holding([99; 16]).place(0, false), at(99, 99));
        // The rest of one frame, the next, and a lone damaged number.
        assert_eq!(holding([99; 9].into_iter().chain([1 << 40]).chain([100; 7])).place(0, false), at(99, 100));
        assert_eq!(holding([99; 8].into_iter().chain([199; 8])).place(0, false), None, "two places");
    }

    #[test]
    fn a_stream_that_stays_is_not_moved() {
        let mut doubt = holding([99; 3]);
        for n in 1..=PACKETS {
            assert_eq!(doubt.stays(sender(1)), n == PACKETS, "packet {n}");
        }
        // As many strays as packets of the stream.
        let mut doubt = holding([99]);
        let moved = (0..PACKETS).any(|_| {
            doubt.push(doubted(99), 0);
            doubt.stays(sender(1));
            doubt.place(0, false).is_some()
        });
        assert!(!moved);
        // A late packet of the frame before the gap is no objection.
        let mut doubt = holding([99; 12]);
        assert!(!doubt.stays(sender(1)));
        (0..4).for_each(|_| doubt.push(doubted(100), 0));
        assert!(doubt.place(0, false).is_some());
    }

    #[test]
    fn after_a_pause_half_a_tile_is_enough_and_three_packets_are_not() {
        for (count, is_enough) in [(3, false), (7, false), (8, true)] {
            let doubt = holding(std::iter::repeat_n(99, count));
            assert_eq!(doubt.place(PAUSE_NS - 1, false), None);
            assert_eq!((doubt.place(PAUSE_NS, false).is_some(), doubt.place(0, true).is_some()), (is_enough, is_enough));
        }
    }

    #[test]
    fn another_sender_follows_only_a_silent_one() {
        let mut doubt = holding([]);
        (0..16).for_each(|_| doubt.push(Doubted { image: 5, sender: sender(2) }, 0));
        assert_eq!(doubt.place(0, false), Some(Place { first: 5, last: 5, sender: sender(2) }));
        assert!(doubt.stays(sender(1)));
    }

    #[test]
    fn a_tile_of_one_packet_needs_three() {
        let mut doubt = Doubt::new(1, 4);
        for image in 500..502 {
            doubt.push(doubted(image), 0);
            assert_eq!(doubt.place(0, false), None);
        }
        doubt.push(doubted(502), 0);
        assert_eq!(doubt.place(0, false), Some(Place { first: 500, last: 502, sender: sender(1) }));
    }
}
