//! Packets of a stream that seems to have gone elsewhere, with their bytes, until [`Doubt`] and the other streams have decided about them.

use crate::held::HeldDatagrams;
use crate::receive::{SLOT_WAIT, Sorter};
use konkordia_core::assembler::AssemblerSpec;
use konkordia_core::doubt::{Doubt, Doubted, Place};
use konkordia_core::plan::Plan;
use konkordia_core::sender::Sender;
use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_udp::{HEADER_BYTES, Packet};

/// So long a stream that has gone far ahead waits for one of the others, when these have read all, to go there too or to go on where they were; and so
/// long for one that has more to read.
const AGREE_NS: u64 = 100_000_000;
const READ_NS: u64 = 1_000_000_000;
/// And so long for a slot there, because all the images between are committed first.
const ROOM_NS: u64 = 1_000_000_000;

/// Packets that are held back.
pub(crate) struct Doubts {
    doubt: Doubt,
    held: HeldDatagrams,
    near_images: u64,
    /// Newest image of any stream + 1, when the first of these came.
    newest_end: u64,
    /// The other streams are waited for.
    waits: Option<Waits>,
    /// The source is not read while the others are waited for. They are not waited for again after they have contradicted.
    is_patient: bool,
}

/// What is known of the other streams while they are waited for.
struct Waits {
    since_ns: u64,
    /// When the sources of all had been seen empty since then: what they place after it came after it.
    read_ns: Option<u64>,
    /// Packets that they had placed by then.
    placed: u64,
}

impl Doubts {
    /// For a stream of this plan and format; `None` where nothing is doubted: files are what they are.
    pub(crate) fn new(plan: &Plan, spec: &AssemblerSpec, format: &TileFormat) -> Option<Self> {
        if plan.lossless_source {
            return None;
        }
        let (packets, near_images) = (format.packets(), spec.jump_images_max);
        let held = HeldDatagrams::new(Doubt::packets_max(packets), HEADER_BYTES + format.payload_bytes as usize);
        let doubt = Doubt::new(packets, near_images);
        Some(Self { near_images: doubt.near_images(), doubt, held, newest_end: 0, waits: None, is_patient: true })
    }

    /// True if nothing is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.doubt.held().is_empty()
    }

    fn push(&mut self, packet: Doubted, datagram: &[u8], now_ns: u64) {
        self.held.push(self.doubt.held().len(), datagram);
        self.doubt.push(packet, now_ns);
    }

    fn datagrams(&self) -> impl Iterator<Item = (&Doubted, &[u8])> {
        self.doubt.held().iter().zip(self.held.datagrams())
    }
}

impl Sorter<'_> {
    /// Whose packets are taken, as it stands beside those that are held.
    fn own(&self) -> Sender {
        self.filter.own().unwrap_or(Sender::NONE)
    }

    /// Holds a packet back that is far ahead, or of a sender that perhaps follows the own one.
    #[cold]
    pub(crate) fn hold(&mut self, packet: &Packet<'_>, image: u64, follower: Option<Sender>) {
        let doubted = Doubted { image, sender: follower.unwrap_or(self.own()) };
        // Nobody follows a sender that is alive, also where it has gone elsewhere.
        let held = self.doubts.as_ref().and_then(|doubts| doubts.doubt.held().last()).map(|held| held.sender);
        match held {
            Some(held) if follower.is_some() && held == self.own() => return self.leave_doubted_out(doubted),
            Some(held) if follower.is_none() && held != self.own() => self.drop_doubts(),
            _ => {}
        }
        if self.doubts.as_ref().is_some_and(|doubts| doubts.doubt.is_full()) {
            self.drop_oldest();
        }
        let (now_ns, newest_end) = (self.control.now_ns(), self.control.newest_end());
        let Some(doubts) = &mut self.doubts else { return self.leave_doubted_out(doubted) };
        if doubts.is_empty() {
            doubts.newest_end = newest_end;
        }
        doubts.push(doubted, packet.datagram(), now_ns);
        self.settle_doubts(now_ns, false, false);
    }

    /// A packet of the own sender came where the stream is.
    #[cold]
    pub(crate) fn stay(&mut self) {
        let own = self.own();
        if self.is_followed() {
            return self.settle_doubts(self.control.now_ns(), false, false);
        }
        if self.doubts.as_mut().is_some_and(|doubts| doubts.doubt.stays(own)) {
            self.drop_doubts();
        }
    }

    /// True while nothing is to be read, because another stream may have more to say of what is held.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.doubts.as_ref().is_some_and(|doubts| doubts.is_patient && doubts.waits.is_some() && doubts.doubt.is_crowded())
    }

    /// Decides about what is held, if it can be decided. `drained`: the source was seen empty; `is_last`: nothing more will come.
    pub(crate) fn settle_doubts(&mut self, now_ns: u64, drained: bool, is_last: bool) {
        let Some(doubts) = self.doubts.as_ref().filter(|doubts| !doubts.is_empty()) else { return };
        let place = if self.is_followed() { doubts.doubt.newest_place() } else { doubts.doubt.place(now_ns, is_last) };
        let Some(place) = place else { return };
        // A packet of the own sender may wait in the source.
        if place.sender != self.own() && !drained && !is_last {
            return;
        }
        let is_far = self.assembler.is_ahead(place.first, self.control.newest_end());
        if !is_far || self.is_believed(place, now_ns, is_last) {
            self.follow(place, is_far);
        }
    }

    /// True if other streams have gone to where this one has only begun to be.
    fn is_followed(&self) -> bool {
        let Some(doubts) = &self.doubts else { return false };
        let newest_end = self.control.newest_end();
        let has_gone = newest_end >= doubts.newest_end + doubts.near_images;
        let is_there = |place: Place| place.sender == self.own() && !self.assembler.is_ahead(place.first, newest_end);
        has_gone && doubts.doubt.newest_place().is_some_and(is_there)
    }

    /// True if the other streams are there too, or do not go on where they were.
    fn is_believed(&mut self, place: Place, now_ns: u64, is_last: bool) -> bool {
        let Some(doubts) = &mut self.doubts else { return false };
        self.control.show_ahead(self.stream, Some(place.first));
        if self.control.is_ahead_too(self.stream, place.first, doubts.near_images) {
            return true;
        }
        let Some((placed, drained_ns)) = self.control.others(self.stream, self.settling_images) else { return true };
        let waits = doubts.waits.get_or_insert(Waits { since_ns: now_ns, read_ns: None, placed });
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
            doubts.is_patient = false;
            self.drop_doubts();
            return false;
        }
        true
    }

    /// The stream is there: what is held of that place gets its verdict, and the rest is not of this run.
    fn follow(&mut self, place: Place, is_far: bool) {
        let Some(mut doubts) = self.doubts.take() else { return };
        self.filter.learn(place.sender, self.control.now_ns());
        if is_far {
            self.go_to(place);
        }
        for (held, datagram) in doubts.datagrams() {
            match Packet::new_checked(datagram, &self.format) {
                Ok(packet) if place.has(held) => self.judge(&packet),
                _ => self.leave_doubted_out(*held),
            }
        }
        doubts.is_patient = true;
        self.doubts = Some(doubts);
        self.forget_doubts();
    }

    /// Seals what the stream has left behind, and waits until the other roles have left it behind too.
    fn go_to(&mut self, place: Place) {
        let low = self.assembler.jump(place.first);
        self.writer.seal_below(low);
        self.control.begin_below(place.first);
        let until_ns = self.control.now_ns() + ROOM_NS;
        while !self.writer.has_room(place.last) && !self.control.is_halting() && self.control.now_ns() < until_ns {
            std::thread::sleep(SLOT_WAIT);
        }
    }

    fn drop_oldest(&mut self) {
        let Some(doubts) = &mut self.doubts else { return };
        let oldest = doubts.doubt.held()[0];
        doubts.doubt.drop_oldest();
        doubts.held.drop_oldest();
        self.leave_doubted_out(oldest);
    }

    /// Nothing that is held is of this run.
    pub(crate) fn drop_doubts(&mut self) {
        let Some(doubts) = self.doubts.take() else { return };
        doubts.doubt.held().iter().for_each(|held| self.leave_doubted_out(*held));
        self.doubts = Some(doubts);
        self.forget_doubts();
    }

    fn forget_doubts(&mut self) {
        if let Some(doubts) = &mut self.doubts {
            doubts.doubt.clear();
            doubts.waits = None;
        }
        self.control.show_ahead(self.stream, None);
    }

    fn leave_doubted_out(&mut self, held: Doubted) {
        self.ledger.foreign += 1;
        if held.sender != self.own() {
            return self.seen.strangers.count(held.sender);
        }
        self.seen.on_foreign(self.control.first_frame().unwrap_or(0) + held.image);
    }
}
