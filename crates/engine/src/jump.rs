//! Decides whether a stream has jumped to distant frames or to another sender, and so what becomes of the packets that
//! are held back meanwhile.

use crate::far_ahead_packets::Waits;
use crate::receive::{SLOT_WAIT, Sorter};
use konkordia_core::far_ahead::{FarAheadPacket, Place};
use konkordia_core::sender::Sender;
use konkordia_wire::packet::TilePacket;

/// A stream that has jumped far ahead waits this long for another one to jump there too or to go on where it was. The
/// time counts from when the sources of all others were seen empty.
const AGREE_NS: u64 = 100_000_000;
/// It waits at most this long for those sources to be seen empty.
const READ_NS: u64 = 1_000_000_000;
/// It waits at most this long for a slot at the new place, because all the images between are committed first.
const ROOM_NS: u64 = 1_000_000_000;

impl Sorter<'_> {
    /// The sender whose packets are taken, as it is stored with the packets that are held.
    fn own(&self) -> Sender {
        self.filter.own().unwrap_or(Sender::NONE)
    }

    /// Holds back a packet that is far ahead, or that is from a sender (`next_sender`) that may have replaced the
    /// silent one.
    #[cold]
    pub(crate) fn hold(&mut self, packet: &TilePacket<'_>, image: u64, next_sender: Option<Sender>) {
        let far_ahead_packet = FarAheadPacket { image, sender: next_sender.unwrap_or(self.own()) };
        // No sender replaces one that still sends, even if that one has jumped elsewhere.
        let held = self
            .far_ahead_packets
            .as_ref()
            .and_then(|far_ahead_packets| far_ahead_packets.far_ahead.held().last())
            .map(|held| held.sender);
        match held {
            Some(held) if next_sender.is_some() && held == self.own() => return self.leave_far_ahead_out(far_ahead_packet),
            Some(held) if next_sender.is_none() && held != self.own() => self.drop_far_ahead(),
            _ => {}
        }
        if self.far_ahead_packets.as_ref().is_some_and(|far_ahead_packets| far_ahead_packets.far_ahead.is_full()) {
            self.drop_oldest();
        }
        let (now_ns, newest_end) = (self.control.now_ns(), self.control.newest_end());
        let Some(far_ahead_packets) = &mut self.far_ahead_packets else { return self.leave_far_ahead_out(far_ahead_packet) };
        if far_ahead_packets.is_empty() {
            far_ahead_packets.newest_end = newest_end;
        }
        let apart = self.filled.filter(|_| packet.is_apart()).map_or(&[][..], |filled| self.writer.payload(filled));
        far_ahead_packets.push(far_ahead_packet, (packet.datagram(), apart), now_ns);
        self.settle_far_ahead(now_ns, false, false);
    }

    /// A packet of the stream's sender came where the stream was.
    #[cold]
    pub(crate) fn stay(&mut self) {
        let own = self.own();
        if self.is_followed() {
            return self.settle_far_ahead(self.control.now_ns(), false, false);
        }
        if self.far_ahead_packets.as_mut().is_some_and(|far_ahead_packets| far_ahead_packets.far_ahead.stays(own)) {
            self.drop_far_ahead();
        }
    }

    /// True while the source must not be read, because the other streams may still decide about the held packets.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.far_ahead_packets.as_ref().is_some_and(|far_ahead_packets| {
            far_ahead_packets.is_patient && far_ahead_packets.waits.is_some() && far_ahead_packets.far_ahead.is_crowded()
        })
    }

    /// Decides about the held packets, if that is possible. `drained`: the source was seen empty; `is_last`: nothing
    /// more will come.
    pub(crate) fn settle_far_ahead(&mut self, now_ns: u64, drained: bool, is_last: bool) {
        let Some(far_ahead_packets) = self.far_ahead_packets.as_ref().filter(|far_ahead_packets| !far_ahead_packets.is_empty())
        else {
            return;
        };
        let place = if self.is_followed() {
            far_ahead_packets.far_ahead.newest_place()
        } else {
            far_ahead_packets.far_ahead.place(now_ns, is_last)
        };
        let Some(place) = place else { return };
        // A packet of the stream's sender may wait in the source.
        if place.sender != self.own() && !drained && !is_last {
            return;
        }
        let is_far = self.assembler.is_ahead(place.first, self.control.newest_end());
        // The frames of an earlier jump are committed first: a stop has to wait for all that were begun.
        if is_far && place.first > self.gap_part_end() {
            return;
        }
        if !is_far || self.is_believed(place, now_ns, is_last) {
            self.follow(place, is_far);
        }
    }

    /// True if other streams have jumped to where this stream has sent its newest packets.
    fn is_followed(&self) -> bool {
        let Some(far_ahead_packets) = &self.far_ahead_packets else { return false };
        let newest_end = self.control.newest_end();
        let has_gone = newest_end >= far_ahead_packets.newest_end + far_ahead_packets.near_images;
        let is_there = |place: Place| place.sender == self.own() && !self.assembler.is_ahead(place.first, newest_end);
        has_gone && far_ahead_packets.far_ahead.newest_place().is_some_and(is_there)
    }

    /// True if another stream has jumped there too, or none goes on where it was.
    fn is_believed(&mut self, place: Place, now_ns: u64, is_last: bool) -> bool {
        let Some(far_ahead_packets) = &mut self.far_ahead_packets else { return false };
        self.control.show_ahead(self.stream, Some(place.first));
        if self.control.is_ahead_too(self.stream, place.first, far_ahead_packets.near_images) {
            return true;
        }
        let Some((placed, drained_ns)) = self.control.others(self.stream, self.settling_images) else { return true };
        let waits = far_ahead_packets.waits.get_or_insert(Waits { since_ns: now_ns, read_ns: None, placed });
        if waits.read_ns.is_none() && drained_ns >= waits.since_ns {
            (waits.read_ns, waits.placed) = (Some(now_ns), placed);
        }
        let is_over = match waits.read_ns {
            Some(read_ns) => now_ns.saturating_sub(read_ns) >= AGREE_NS,
            None => now_ns.saturating_sub(waits.since_ns) >= READ_NS,
        };
        if !is_over || is_last {
            return false;
        }
        if placed != waits.placed {
            far_ahead_packets.is_patient = false;
            self.drop_far_ahead();
            return false;
        }
        true
    }

    /// The stream has jumped: the held packets of the new place get their verdicts, and the others are not of this run.
    fn follow(&mut self, place: Place, is_far: bool) {
        let Some(mut far_ahead_packets) = self.far_ahead_packets.take() else { return };
        self.filter.learn(place.sender, self.control.now_ns());
        // The packets that are held go to places that may be lent.
        self.writer.rescue();
        if is_far {
            self.go_to(place);
        }
        for (held, datagram) in far_ahead_packets.datagrams() {
            match self.decode(datagram) {
                Ok(packet) if place.has(held) => self.judge(&packet),
                _ => self.leave_far_ahead_out(*held),
            }
        }
        far_ahead_packets.is_patient = true;
        self.far_ahead_packets = Some(far_ahead_packets);
        self.forget_far_ahead();
    }

    /// Seals the images that the stream has passed over, and waits for a slot at the new place.
    fn go_to(&mut self, place: Place) {
        let low = self.assembler.jump(place.first);
        self.seal_below(low);
        self.control.begin_below(place.first);
        let until_ns = self.control.now_ns() + ROOM_NS;
        while !self.writer.has_room(place.last) && !self.control.is_halting() && self.control.now_ns() < until_ns {
            std::thread::sleep(SLOT_WAIT);
        }
    }

    fn drop_oldest(&mut self) {
        let Some(far_ahead_packets) = &mut self.far_ahead_packets else { return };
        let oldest = far_ahead_packets.far_ahead.held()[0];
        far_ahead_packets.far_ahead.drop_oldest();
        far_ahead_packets.held.drop_oldest();
        self.leave_far_ahead_out(oldest);
    }

    /// None of the held packets is of this run.
    pub(crate) fn drop_far_ahead(&mut self) {
        let Some(far_ahead_packets) = self.far_ahead_packets.take() else { return };
        far_ahead_packets.far_ahead.held().iter().for_each(|held| self.leave_far_ahead_out(*held));
        self.far_ahead_packets = Some(far_ahead_packets);
        self.forget_far_ahead();
    }

    fn forget_far_ahead(&mut self) {
        if let Some(far_ahead_packets) = &mut self.far_ahead_packets {
            far_ahead_packets.far_ahead.clear();
            far_ahead_packets.waits = None;
        }
        self.control.show_ahead(self.stream, None);
    }

    fn leave_far_ahead_out(&mut self, held: FarAheadPacket) {
        self.ledger.foreign += 1;
        if held.sender != self.own() {
            return self.seen.other_senders.count(held.sender);
        }
        self.seen.on_foreign(self.control.first_frame().unwrap_or(0) + held.image);
    }
}
