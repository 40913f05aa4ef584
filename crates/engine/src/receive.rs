//! The receiver of one stream: takes datagrams from its source, gets a verdict for each, copies the payload of those that have a place.

use crate::control::{Control, NOT_YET};
use crate::doubts::Doubts;
use crate::first::FirstPackets;
use konkordia_core::assembler::{TileAssembler, Verdict};
use konkordia_core::first_packets::{FirstPacket, FirstVerdict, Origin};
use konkordia_core::ledger::{Malformed, StreamLedger};
use konkordia_core::ports::Source;
use konkordia_core::sender::{Admission, Sender, SenderFilter};
use konkordia_core::setup::Seen;
use konkordia_core::tile::TileFormat;
use konkordia_memory::ring::TileWriter;
use konkordia_wire::sls_udp::{self, Packet};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest wait for a datagram, and so the grain of deadlines and of stopping.
const WAIT: Duration = Duration::from_millis(2);
/// Grain of the wait for a slot. Half a ring is filled meanwhile at 1 GB/s and 100 MB of ring.
pub(crate) const SLOT_WAIT: Duration = Duration::from_micros(200);
/// How often the source is asked what it lost: a system call that is too dear for every batch.
const DROPS_INTERVAL_NS: u64 = 50_000_000;
/// Datagrams that still wait in the socket after the last image is sealed are counted, at most this many batches of them.
const LEFTOVER_BATCHES: usize = 1000;

/// Everything that one receiver thread owns.
pub(crate) struct Receiver<'a> {
    pub source: Box<dyn Source>,
    pub sorter: Sorter<'a>,
    pub drops_read_ns: u64,
    /// How its source failed.
    pub result: io::Result<()>,
}

/// What was known of the run at one moment.
#[derive(Clone, Copy)]
struct Known {
    /// Newest image of any stream + 1.
    newest_end: u64,
    /// The time.
    now_ns: u64,
}

/// The part of a receiver that judges datagrams; apart from the source, which lends them.
pub(crate) struct Sorter<'a> {
    pub control: &'a Control,
    pub stream: usize,
    pub format: TileFormat,
    pub writer: TileWriter,
    /// The source can wait for a slot.
    pub lossless: bool,
    pub assembler: TileAssembler,
    pub ledger: StreamLedger,
    /// Packets that contradict the configuration are not placed.
    pub is_strict: bool,
    /// What came, for those who look for a wrong set-up.
    pub seen: Seen,
    /// Room for the first packets; `None` where they are not judged.
    pub first: Option<FirstPackets>,
    /// The first packets have not agreed yet.
    pub is_opening: bool,
    /// Whose packets are taken.
    pub filter: SenderFilter,
    /// Packets of which it is not known whether the stream has gone there; `None` where nothing is doubted.
    pub doubts: Option<Doubts>,
    /// Images in which packets that are held are waited for: the others may be so far ahead.
    pub settling_images: u64,
}

impl Receiver<'_> {
    /// Receives until every planned image is sealed or the run is ended. The account of the stream is in its sorter.
    pub(crate) fn run(&mut self) {
        let control = self.sorter.control;
        while !self.sorter.stops() && self.sorter.assembler.low() < self.sorter.assembler.images() {
            // Read before the source is looked at: what is known now and not in an empty source will not come.
            let known = Known { newest_end: control.newest_end(), now_ns: control.now_ns() };
            if self.result.is_err() {
                std::thread::sleep(WAIT);
                self.after_batch(known, true);
                continue;
            }
            if self.sorter.waits_for_others() {
                std::thread::sleep(SLOT_WAIT);
                self.after_batch(known, false);
                continue;
            }
            let (source, sorter) = (&mut self.source, &mut self.sorter);
            sorter.writer.set_time(known.now_ns);
            match source.receive(WAIT, &mut |datagram, sender| sorter.take(datagram, sender)) {
                Ok(count) => self.after_batch(known, count == 0),
                Err(error) => {
                    // The other streams end their images in peace; this one has nothing more to say.
                    self.result = Err(error);
                    control.stop();
                    self.after_batch(known, true);
                    if !self.sorter.lossless {
                        break;
                    }
                    // The others wait for slots, so this one must let go of the frames that they still take.
                }
            }
        }
        self.sorter.open(true);
        self.sorter.settle_doubts(control.now_ns(), false, true);
        control.note_halted(self.sorter.stream);
        while control.end.load(Ordering::Acquire) == NOT_YET && !control.has_failed() {
            std::thread::sleep(WAIT);
        }
        if control.has_failed() {
            // Nobody takes what it would seal.
            return;
        }
        let low = self.sorter.assembler.finish(control.end.load(Ordering::Acquire));
        self.sorter.writer.seal_below(low);
        // What is left in a file was not received.
        if self.result.is_ok() && !self.sorter.lossless {
            self.result = self.count_leftovers();
            self.sorter.leave_all_out();
        }
        self.sorter.drop_doubts();
        self.sorter.note_senders();
        self.sorter.seen.received = self.sorter.ledger.received;
        self.sorter.ledger.kernel_dropped = self.source.dropped();
        control.show(self.sorter.stream, &self.sorter.seen);
        control.publish(self.sorter.stream, &self.sorter.ledger, self.sorter.assembler.own_end(), true);
    }

    fn after_batch(&mut self, known: Known, drained: bool) {
        let sorter = &mut self.sorter;
        if drained {
            sorter.open(sorter.control.is_stopping());
        }
        sorter.filter.tick(known.now_ns);
        sorter.settle_doubts(known.now_ns, drained, false);
        let is_settling = known.newest_end <= sorter.settling_images && sorter.is_settling(known.now_ns);
        let low = sorter.assembler.tick(known.now_ns, known.newest_end, drained && !is_settling);
        sorter.writer.seal_below(low);
        if known.now_ns >= self.drops_read_ns + DROPS_INTERVAL_NS {
            self.drops_read_ns = known.now_ns;
            sorter.ledger.kernel_dropped = self.source.dropped();
            sorter.note_senders();
            sorter.control.show(sorter.stream, &sorter.seen);
        }
        sorter.control.publish(sorter.stream, &sorter.ledger, sorter.assembler.own_end(), drained);
    }

    /// All images are sealed: what is still in the socket gets its verdict too (copies, frames after the last).
    fn count_leftovers(&mut self) -> io::Result<()> {
        for _ in 0..LEFTOVER_BATCHES {
            if self.source.receive(Duration::ZERO, &mut |datagram, sender| self.sorter.take(datagram, sender))? == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Sorter<'_> {
    /// One datagram, one verdict, one counter.
    #[inline]
    fn take(&mut self, datagram: &[u8], sender: Sender) {
        self.ledger.received += 1;
        self.ledger.received_bytes += datagram.len() as u64;
        let packet = match Packet::new_checked(datagram, &self.format) {
            Ok(packet) => packet,
            Err(why) => return self.take_malformed(datagram, sender, why),
        };
        if self.is_opening {
            let origin = Origin { port: packet.port(), sender };
            let (frame, number) = (packet.frame_number(), packet.number());
            return self.take_first(FirstPacket { frame, number, is_in_tile: true, origin }, datagram);
        }
        self.place(&packet, sender);
    }

    /// A packet of the right form, of a stream that has begun.
    #[inline]
    fn place(&mut self, packet: &Packet<'_>, sender: Sender) {
        self.seen.on_number(packet.number());
        match self.filter.admit(sender) {
            Admission::Own => self.judge(packet),
            Admission::Stranger => {
                self.ledger.foreign += 1;
                self.seen.strangers.count(sender);
            }
            Admission::Follower => self.take_follower(packet, sender),
        }
    }

    /// A packet of a sender that may follow the own one, which is silent.
    #[cold]
    fn take_follower(&mut self, packet: &Packet<'_>, sender: Sender) {
        match self.image_of(packet.frame_number()).filter(|image| *image < self.assembler.images()) {
            Some(image) => self.hold(packet, image, Some(sender)),
            None => {
                self.ledger.foreign += 1;
                self.seen.strangers.count(sender);
            }
        }
    }

    /// A packet of the own sender.
    #[inline]
    pub(crate) fn judge(&mut self, packet: &Packet<'_>) {
        let image = self.image_of(packet.frame_number());
        if self.lossless && !self.wait_for_slot(image) {
            self.ledger.foreign += 1;
            return;
        }
        if !self.seen.is_own(packet.port(), self.format.packets()) && self.is_strict {
            // Of another module: its pixels would lie among those of this one.
            self.ledger.foreign += 1;
            return;
        }
        let newest_end = self.control.newest_end();
        let verdict = self.assembler.on_packet(image, packet.packet(), newest_end, |image| self.writer.claim(image));
        if self.assembler.own_end() > newest_end {
            self.control.begin_below(self.assembler.own_end());
        }
        match verdict {
            Verdict::Place { image, opens } => {
                if opens {
                    self.writer.open(image, packet.frame_header());
                    self.seen.on_frame(packet.frame_number());
                }
                self.writer.place(image, packet.packet(), packet.payload());
                self.ledger.placed += 1;
            }
            Verdict::Duplicate => {
                self.ledger.duplicate += 1;
                self.seen.on_late(packet.frame_number());
            }
            Verdict::Late => {
                self.ledger.late += 1;
                self.seen.on_late(packet.frame_number());
            }
            Verdict::NoSlot => self.ledger.no_slot += 1,
            Verdict::Foreign => {
                self.ledger.foreign += 1;
                self.seen.on_foreign(packet.frame_number());
                return;
            }
            Verdict::Ahead => return self.hold(packet, image.unwrap_or(0), None),
        }
        if self.doubts.as_ref().is_some_and(|doubts| !doubts.is_empty()) {
            self.stay();
        }
    }

    /// What is known of the senders, for those who look.
    fn note_senders(&mut self) {
        self.seen.sender = self.filter.own();
        self.seen.is_contested = self.filter.is_contested();
    }

    /// Not a packet of the tile. One that is wrong in its number alone says something about the tile.
    #[cold]
    fn take_malformed(&mut self, datagram: &[u8], sender: Sender, why: Malformed) {
        let fields = sls_udp::header_fields(datagram);
        match fields {
            Some(fields) if why == Malformed::PacketNumber && self.is_opening => {
                let (frame, port) = sls_udp::frame_and_port(datagram);
                let (number, origin) = (fields.packet_number, Origin { port, sender });
                self.take_first(FirstPacket { frame, number, is_in_tile: false, origin }, datagram);
            }
            _ => {
                self.ledger.count_malformed(why);
                self.seen.on_malformed(datagram.len(), fields, why);
            }
        }
    }

    /// A packet while it is not known whether its stream is that of the tile.
    #[cold]
    fn take_first(&mut self, mut packet: FirstPacket, datagram: &[u8]) {
        let Some(identity) = self.filter.identity(packet.origin.sender) else {
            self.seen.strangers.count(packet.origin.sender);
            return self.leave_out(packet);
        };
        packet.origin.sender = identity;
        let (now_ns, is_known) = (self.control.now_ns(), self.control.first_frame().is_some());
        let frame = packet.frame;
        if frame == NOT_YET || !is_known && !self.goes_on(frame) && self.control.is_straggler(frame) {
            return self.leave_out(packet);
        }
        if let Some(first) = &mut self.first {
            let verdict = first.push(packet, datagram, now_ns, is_known);
            self.decide(verdict);
        }
    }

    /// True if a packet of this frame or of the one before is held: then it is no late one of the run before.
    fn goes_on(&self, frame: u64) -> bool {
        let follows = |held: &FirstPacket| held.frame == frame || held.frame.checked_add(1) == Some(frame);
        self.first.as_ref().is_some_and(|first| first.datagrams().any(|(held, _)| follows(held)))
    }

    /// True while what is held is not missing.
    fn is_settling(&self, now_ns: u64) -> bool {
        self.is_opening && self.first.as_ref().is_some_and(|first| first.is_settling(now_ns))
    }

    /// Looks at what is held when no packet came; `is_last`: none will, and all that is held gets its verdict.
    fn open(&mut self, is_last: bool) {
        let (now_ns, is_known) = (self.control.now_ns(), self.control.first_frame().is_some());
        let Some(first) = self.first.as_mut().filter(|_| self.is_opening) else { return };
        let verdict = first.tick(now_ns, is_known, is_last);
        self.decide(verdict);
        if is_last {
            self.leave_all_out();
        }
    }

    fn decide(&mut self, verdict: FirstVerdict) {
        match verdict {
            FirstVerdict::Wait => {}
            FirstVerdict::DropOldest => {
                let oldest = self.first.as_mut().and_then(FirstPackets::drop_oldest);
                if let Some(held) = oldest {
                    self.leave_out(held);
                }
            }
            FirstVerdict::Refuse => {
                let Some(first) = &mut self.first else { return };
                for (held, _) in first.datagrams() {
                    self.ledger.count_malformed(Malformed::PacketNumber);
                    self.seen.on_refused(held.frame, held.number);
                }
                first.refuse();
            }
            FirstVerdict::Begin { frame, origin } => self.begin(frame, origin),
        }
    }

    /// The run of this stream begins: what is held gets its verdict. What came before the first packet of that frame or of the next (packets
    /// may overtake each other), of another frame, was on its way from elsewhere, unless the run has begun on another stream.
    fn begin(&mut self, frame: u64, origin: Option<Origin>) {
        let Some(first) = self.first.take() else { return };
        self.is_opening = false;
        self.seen.on_begin(origin.map(|origin| origin.port));
        if let Some(origin) = origin {
            self.filter.learn(origin.sender, self.control.now_ns());
        }
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let was_known = self.control.first_frame.compare_exchange(NOT_YET, frame, order.0, order.1).is_err();
        let mut has_begun = was_known && !first.has_refused();
        for (held, datagram) in first.datagrams() {
            has_begun |= held.frame == frame || Some(held.frame) == frame.checked_add(1);
            let is_own = self.filter.own().is_none_or(|own| own == held.origin.sender);
            match Packet::new_checked(datagram, &self.format) {
                Ok(packet) if has_begun && is_own => {
                    self.seen.on_number(packet.number());
                    self.judge(&packet);
                }
                _ => {
                    if !is_own {
                        self.seen.strangers.count(held.origin.sender);
                    }
                    self.leave_out(*held);
                }
            }
        }
        self.first = Some(first);
    }

    /// A packet that was held back, or not even that, and is none of this run.
    fn leave_out(&mut self, packet: FirstPacket) {
        if packet.is_in_tile {
            self.ledger.foreign += 1;
        } else {
            self.ledger.count_malformed(Malformed::PacketNumber);
            self.seen.beyond += 1;
        }
        self.seen.on_number(packet.number);
    }

    /// Nothing will come that could say more of what is held.
    fn leave_all_out(&mut self) {
        while self.is_opening && self.first.as_ref().is_some_and(|first| !first.is_empty()) {
            self.decide(FirstVerdict::DropOldest);
        }
    }

    /// True if the stream must take nothing more. One that can wait first takes what the other streams have begun.
    fn stops(&self) -> bool {
        self.control.is_halting() || self.lossless && self.is_refused(self.assembler.low())
    }

    /// True if the run was stopped before any stream could begin this frame.
    fn is_refused(&self, image: u64) -> bool {
        if !self.control.is_stopping() {
            return false;
        }
        self.control.freeze();
        image >= self.control.newest_end()
    }

    /// Frames of a source that can wait come in order, so all older ones are done; a new one waits until there is a slot for it. A run that is
    /// stopped still takes the frames that any stream has begun, so that its last frames are whole; returns false for later ones.
    fn wait_for_slot(&mut self, image: Option<u64>) -> bool {
        let Some(image) = image.filter(|i| *i >= self.assembler.own_end() && *i < self.assembler.images()) else { return true };
        // Streams at their end must let go of older frames, or there would never be a slot.
        self.control.begin_below(image);
        let low = self.assembler.seal_before(image.min(self.control.newest_end()));
        self.writer.seal_below(low);
        while !self.is_refused(image) && !self.control.is_halting() {
            if self.writer.has_room(image) {
                self.control.begin_below(image + 1);
                return image < self.control.newest_end();
            }
            std::thread::sleep(SLOT_WAIT);
        }
        false
    }

    /// Position of a frame in the run; the first packet of a run that starts with any frame sets the first frame for all streams.
    #[inline]
    fn image_of(&self, frame_number: u64) -> Option<u64> {
        if frame_number == NOT_YET {
            // No detector counts that far, and as a first frame it would still mean that there is none.
            return None;
        }
        let first = match self.control.first_frame.load(Ordering::Acquire) {
            NOT_YET if self.control.is_straggler(frame_number) => return None,
            NOT_YET => self
                .control
                .first_frame
                .compare_exchange(NOT_YET, frame_number, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|other| other, |_| frame_number),
            first => first,
        };
        frame_number.checked_sub(first)
    }
}
