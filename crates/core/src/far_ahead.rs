//! Packets that are held back while it is uncertain whether the stream has moved: packets far ahead of every image, or
//! packets of another sender than the one that has fallen silent. A stream has moved if a tile's number of packets
//! comes in the new place and hardly any in the old place. A few packets in a new place are strays if the stream goes
//! on in the old place, whoever sent them and however well they agree.
//!
//! This module uses numbers only; the caller keeps the bytes.

use crate::sender::Sender;

/// A move is confirmed by at least this many packets, even if a tile has fewer.
const PACKETS_MIN: u32 = 3;
/// A move is confirmed only while the packets in the old place are fewer than 1/`PART` of those in the new place. A few
/// are possible, because packets overtake each other.
const PART: u32 = 4;
/// After this time without a packet, half of a tile's packets are enough: the rest of the last frame may never come.
const PAUSE_NS: u64 = 200_000_000;
/// Packets that a source usually hands over at once, at most.
const BATCH_PACKETS: usize = 256;
/// Smallest distance in frames within which packets count as being in the same place.
const NEAR_FRAMES_MIN: u64 = 4;

/// One packet that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarAheadPacket {
    /// Position of its frame in the run.
    pub image: u64,
    /// Its sender.
    pub sender: Sender,
}

/// A place in the run to which a stream may have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Lowest image of the packets held back there.
    pub first: u64,
    /// Highest image of these packets.
    pub last: u64,
    /// Their sender.
    pub sender: Sender,
}

impl Place {
    /// True if a packet belongs to this place.
    pub fn has(&self, packet: &FarAheadPacket) -> bool {
        (self.first..=self.last).contains(&packet.image) && packet.sender == self.sender
    }
}

/// The packets of one stream that are held back.
#[derive(Debug)]
pub struct FarAhead {
    packets: u32,
    near_images: u64,
    held: Vec<FarAheadPacket>,
    /// Packets that came in the old place since the first packet was held back.
    stays: u32,
    last_ns: u64,
}

impl FarAhead {
    /// For tiles of `packets` packets. Packets less than `near_images` apart are in the same place. Allocates here and
    /// never after.
    pub fn new(packets: u32, near_images: u64) -> Self {
        assert!(packets > 0);
        let held = Vec::with_capacity(Self::packets_max(packets));
        Self { packets, near_images: near_images.max(NEAR_FRAMES_MIN), held, stays: 0, last_ns: 0 }
    }

    /// Most packets that are held back, for a tile of `packets` packets: those that decide, those that come until other
    /// streams agree, and one more batch of the source, which is not read further from then on.
    pub const fn packets_max(packets: u32) -> usize {
        2 * packets as usize + BATCH_PACKETS
    }

    /// True if the source should not be read further before a decision.
    pub fn is_crowded(&self) -> bool {
        self.held.len() >= 2 * self.packets as usize
    }

    /// The packets held back, in order of arrival.
    pub fn held(&self) -> &[FarAheadPacket] {
        &self.held
    }

    /// True if there is no room for more packets.
    pub fn is_full(&self) -> bool {
        self.held.len() == Self::packets_max(self.packets)
    }

    /// Holds back one more packet.
    ///
    /// # Panics
    /// If it is full.
    pub fn push(&mut self, packet: FarAheadPacket, now_ns: u64) {
        assert!(!self.is_full(), "the oldest goes first");
        self.held.push(packet);
        self.last_ns = now_ns;
    }

    /// Drops the oldest packet.
    pub fn drop_oldest(&mut self) {
        self.held.remove(0);
    }

    /// Drops all packets.
    pub fn clear(&mut self) {
        self.held.clear();
        self.stays = 0;
    }

    /// Notes a packet in the old place. True if the stream stays there: the packets held back are then not of this run.
    pub fn stays(&mut self, sender: Sender) -> bool {
        self.stays += 1;
        // Another sender does not take over from one that is alive.
        self.stays >= self.needed() || self.held.iter().any(|held| held.sender != sender)
    }

    fn needed(&self) -> u32 {
        self.packets.max(PACKETS_MIN)
    }

    /// Packets less than this many images apart are in the same place.
    pub fn near_images(&self) -> u64 {
        self.near_images
    }

    /// The place of the newest packet, however few packets are there.
    pub fn newest_place(&self) -> Option<Place> {
        self.newest().map(|(place, _)| place)
    }

    /// The place of the newest packet, and the number of packets there.
    fn newest(&self) -> Option<(Place, u32)> {
        let newest = *self.held.last()?;
        let is_near =
            |held: &&FarAheadPacket| held.sender == newest.sender && held.image.abs_diff(newest.image) < self.near_images;
        let (mut count, mut first, mut last) = (0u32, newest.image, newest.image);
        for held in self.held.iter().filter(is_near) {
            (count, first, last) = (count + 1, first.min(held.image), last.max(held.image));
        }
        Some((Place { first, last, sender: newest.sender }, count))
    }

    /// The place to which the stream has moved, if the packets held back confirm it. `is_last`: no more packets will
    /// come.
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

    fn far_ahead_packet(image: u64) -> FarAheadPacket {
        FarAheadPacket { image, sender: sender(1) }
    }

    fn holding(images: impl IntoIterator<Item = u64>) -> FarAhead {
        let mut far_ahead = FarAhead::new(PACKETS, 4);
        images.into_iter().for_each(|image| far_ahead.push(far_ahead_packet(image), 0));
        far_ahead
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
        let mut far_ahead = holding([99; 3]);
        for n in 1..=PACKETS {
            assert_eq!(far_ahead.stays(sender(1)), n == PACKETS, "packet {n}");
        }
        // As many strays as packets of the stream.
        let mut far_ahead = holding([99]);
        let moved = (0..PACKETS).any(|_| {
            far_ahead.push(far_ahead_packet(99), 0);
            far_ahead.stays(sender(1));
            far_ahead.place(0, false).is_some()
        });
        assert!(!moved);
        // A late packet of the frame before the gap does not prevent the move.
        let mut far_ahead = holding([99; 12]);
        assert!(!far_ahead.stays(sender(1)));
        (0..4).for_each(|_| far_ahead.push(far_ahead_packet(100), 0));
        assert!(far_ahead.place(0, false).is_some());
    }

    #[test]
    fn after_a_pause_half_a_tile_is_enough_and_three_packets_are_not() {
        for (count, is_enough) in [(3, false), (7, false), (8, true)] {
            let far_ahead = holding(std::iter::repeat_n(99, count));
            assert_eq!(far_ahead.place(PAUSE_NS - 1, false), None);
            assert_eq!((far_ahead.place(PAUSE_NS, false).is_some(), far_ahead.place(0, true).is_some()), (is_enough, is_enough));
        }
    }

    #[test]
    fn another_sender_follows_only_a_silent_one() {
        let mut far_ahead = holding([]);
        (0..16).for_each(|_| far_ahead.push(FarAheadPacket { image: 5, sender: sender(2) }, 0));
        assert_eq!(far_ahead.place(0, false), Some(Place { first: 5, last: 5, sender: sender(2) }));
        assert!(far_ahead.stays(sender(1)));
    }

    #[test]
    fn a_tile_of_one_packet_needs_three() {
        let mut far_ahead = FarAhead::new(1, 4);
        for image in 500..502 {
            far_ahead.push(far_ahead_packet(image), 0);
            assert_eq!(far_ahead.place(0, false), None);
        }
        far_ahead.push(far_ahead_packet(502), 0);
        assert_eq!(far_ahead.place(0, false), Some(Place { first: 500, last: 502, sender: sender(1) }));
    }
}
