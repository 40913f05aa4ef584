//! What a receiver offers to a source that writes payloads to their places itself: it lends places in the ring, and
//! gives each packet that the source reports its verdict, as it does with any datagram.

use crate::receive::{SLOT_WAIT, Sorter};
use konkordia_core::ports::{NextPlaces, TilePlaces};
use konkordia_core::sender::Sender;
use std::ops::Range;

impl TilePlaces for Sorter<'_> {
    fn lend(&mut self, frame_number: u64, packets: Range<u16>) -> Option<&mut [u8]> {
        self.writer.end_loan();
        let image = self.lendable(frame_number, &packets)?;
        Some(self.writer.lend(image, packets))
    }

    fn lend_next(&mut self) -> Option<NextPlaces<'_>> {
        self.writer.end_loan();
        let (image, packets) = self.expected()?;
        let overhead_bytes = self.packets.description().overhead_bytes;
        let (head_bytes, payload_bytes) = (overhead_bytes as usize, self.format.payload_bytes as usize);
        let places = self.writer.lend(image, packets.clone());
        Some(NextPlaces { packets, head_bytes, payload_bytes, places })
    }

    fn filled(&mut self, packet: u16, head: &[u8], payload_bytes: usize, sender: Sender) {
        self.filled = Some(self.writer.filled(packet, payload_bytes));
        let datagram_bytes = head.len() + payload_bytes;
        self.ledger.received += 1;
        self.ledger.received_bytes += datagram_bytes as u64;
        match self.packets.decode_head(head, payload_bytes, &self.format) {
            Ok(packet) => self.place(&packet, sender),
            Err(why) => self.take_malformed(head, datagram_bytes, sender, why),
        }
        self.filled = None;
    }

    fn take(&mut self, datagram: &[u8], sender: Sender) {
        self.writer.rescue();
        Sorter::take(self, datagram, sender);
    }
}

impl Sorter<'_> {
    /// The frame, by its position in the run, if places of these packets may be lent: it is open, there is a slot for
    /// it, and none of the packets is placed. A loan changes nothing of what becomes of a packet.
    ///
    /// Nothing is lent while packets are held back, because it is not known then where they belong.
    fn lendable(&mut self, frame_number: u64, packets: &Range<u16>) -> Option<u64> {
        let is_in_tile = packets.start < packets.end && u32::from(packets.end) <= self.format.packets();
        let holds = self.is_opening || self.far_ahead_packets.as_ref().is_some_and(|held| !held.is_empty());
        if !is_in_tile || holds || !self.packets.description().has_head {
            return None;
        }
        let image = frame_number.checked_sub(self.control.first_frame()?)?;
        let is_of_run = image >= self.assembler.low() && image < self.assembler.images();
        if !is_of_run || self.assembler.is_ahead(image, self.control.newest_end()) {
            return None;
        }
        if self.lossless && !self.wait_for_room(image) {
            return None;
        }
        let is_placed = |packet| self.assembler.bitmap(image).is_some_and(|(bitmap, _)| bitmap.has(packet));
        if packets.clone().any(is_placed) {
            return None;
        }
        // A claim is made only where there is room: it says the same as the one that the first packet would make.
        (self.writer.has_room(image) && self.writer.claim(image)).then_some(image)
    }

    /// The packets that are expected next, of a frame by its position in the run, if their places may be lent.
    fn expected(&mut self) -> Option<(u64, Range<u16>)> {
        let packets = self.format.packets() as u16;
        if self.format.sections != 1 || !self.format.tile_bytes().is_multiple_of(self.format.payload_bytes) {
            return None;
        }
        let (frame_number, newest) = self.newest?;
        let (frame_number, first) = if newest + 1 < packets { (frame_number, newest + 1) } else { (frame_number + 1, 0) };
        let image = frame_number.checked_sub(self.control.first_frame()?)?;
        let end = match self.assembler.bitmap(image) {
            Some((bitmap, _)) => (first..packets).find(|packet| bitmap.has(*packet)).unwrap_or(packets),
            None => packets,
        };
        self.lendable(frame_number, &(first..end)).map(|image| (image, first..end))
    }

    /// Waits for a slot for the next frame of a source that can wait. It does not begin the frame, because it is not
    /// known yet whether the frame has packets. So it must not wait where older frames are not begun either: nobody
    /// would seal them.
    fn wait_for_room(&mut self, image: u64) -> bool {
        if image < self.assembler.own_end() {
            return true;
        }
        if image > self.control.newest_end() {
            return false;
        }
        // Frames come in order, so all older ones are done.
        let low = self.assembler.seal_before(image);
        self.seal_below(low);
        while !self.writer.has_room(image) {
            if self.control.is_stopping() || self.control.is_halting() {
                return false;
            }
            std::thread::sleep(SLOT_WAIT);
        }
        true
    }
}
