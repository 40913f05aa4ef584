//! The receiver of one stream: takes datagrams from its source, decides what becomes of each, and copies the payload of
//! those that have a place. Sources that write payloads to their places themselves come in through `places.rs`.

use crate::control::{Control, NOT_YET};
use crate::far_ahead_packets::FarAheadPackets;
use crate::first::FirstPackets;
use konkordia_core::assembler::{TileAssembler, Verdict};
use konkordia_core::first_packets::{FirstPacket, FirstVerdict, Origin};
use konkordia_core::ledger::{Malformed, StreamLedger};
use konkordia_core::pages::Anchor;
use konkordia_core::ports::Source;
use konkordia_core::sender::{Admission, Sender, SenderFilter};
use konkordia_core::setup::Seen;
use konkordia_core::tile::TileFormat;
use konkordia_memory::ring::{Filled, TileWriter};
use konkordia_wire::formats::PacketFormat;
use konkordia_wire::packet::TilePacket;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest wait for a datagram, and so the time resolution of deadlines and of a stop.
const WAIT: Duration = Duration::from_millis(2);
/// Polling interval of the wait for a slot. At 1 GB/s 0.2 MB come meanwhile, which is little beside the ring.
pub(crate) const SLOT_WAIT: Duration = Duration::from_micros(200);
/// How often the source is asked how many datagrams it lost. That system call is too expensive for every batch.
const DROPS_INTERVAL_NS: u64 = 50_000_000;
/// Datagrams that still wait in the socket after the last image is sealed are counted, at most this many batches of
/// them.
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
    /// The time, ns since the run was armed.
    now_ns: u64,
}

/// The part of a receiver that decides about datagrams. It is separate from the source, which lends them.
pub(crate) struct Sorter<'a> {
    pub control: &'a Control,
    pub stream: usize,
    /// How datagrams are read.
    pub packets: PacketFormat,
    pub format: TileFormat,
    pub writer: TileWriter,
    /// Where the source has written the payload of the packet that gets its verdict now, if it lies apart.
    pub filled: Option<Filled>,
    /// Frame number and index of the packet that was placed last.
    pub newest: Option<(u64, u16)>,
    /// From which packet frames are counted, where packets say only their page; `None` before the first one.
    pub anchor: Option<Anchor>,
    /// The source can wait for a slot.
    pub lossless: bool,
    pub assembler: TileAssembler,
    pub ledger: StreamLedger,
    /// Packets that contradict the configuration are not placed.
    pub is_strict: bool,
    /// What the packets said, for the check of the set-up.
    pub seen: Seen,
    /// Memory for the first packets; `None` where they are not held back.
    pub first: Option<FirstPackets>,
    /// The first packets have not agreed yet.
    pub is_opening: bool,
    /// Whose packets are taken.
    pub filter: SenderFilter,
    /// Packets that are held back because the stream may have jumped; `None` where none are held back.
    pub far_ahead_packets: Option<FarAheadPackets>,
    /// While the run has no more images than this, the first packets that are held do not count as missing. A stream
    /// that is further behind the newest image counts as dead.
    pub settling_images: u64,
    /// A gap is begun in parts of at most this many frames, so that a stop need not wait for more.
    pub gap_part_images: u64,
}

impl Receiver<'_> {
    /// Receives until every planned image is sealed or the run is ended. The ledger of the stream is in its sorter.
    pub(crate) fn run(&mut self) {
        let control = self.sorter.control;
        while !self.sorter.stops() && self.sorter.assembler.low() < self.sorter.assembler.images() {
            // Read before the source: if the source is empty after that, packets of the images known now will not come.
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
            let received = match source.filling() {
                Some(source) => {
                    let received = source.receive_into(WAIT, sorter);
                    sorter.writer.end_loan();
                    received
                }
                None => source.receive(WAIT, &mut |datagram, sender| sorter.take(datagram, sender)),
            };
            match received {
                Ok(count) => self.after_batch(known, count == 0),
                Err(error) => {
                    // The other streams still finish their images; this one receives nothing more.
                    self.result = Err(error);
                    control.stop();
                    self.after_batch(known, true);
                    if !self.sorter.lossless {
                        break;
                    }
                    // The other streams wait for slots, so this one must still seal the frames that they take.
                }
            }
        }
        self.sorter.open(true);
        self.sorter.settle_far_ahead(control.now_ns(), false, true);
        control.note_halted(self.sorter.stream);
        while control.end.load(Ordering::Acquire) == NOT_YET && !control.has_failed() {
            std::thread::sleep(WAIT);
        }
        if control.has_failed() {
            // No thread takes what it would seal.
            return;
        }
        let low = self.sorter.assembler.finish(control.end.load(Ordering::Acquire));
        self.sorter.seal_below(low);
        // What is left in a file was not received.
        if self.result.is_ok() && !self.sorter.lossless {
            self.result = self.count_leftovers();
            self.sorter.leave_all_out();
        }
        self.sorter.drop_far_ahead();
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
        sorter.settle_far_ahead(known.now_ns, drained, false);
        let is_settling = known.newest_end <= sorter.settling_images && sorter.is_settling(known.now_ns);
        let low = sorter.assembler.tick(known.now_ns, known.newest_end, drained && !is_settling);
        sorter.seal_below(low);
        if known.now_ns >= self.drops_read_ns + DROPS_INTERVAL_NS {
            self.drops_read_ns = known.now_ns;
            sorter.ledger.kernel_dropped = self.source.dropped();
            sorter.note_senders();
            sorter.control.show(sorter.stream, &sorter.seen);
        }
        sorter.control.publish(sorter.stream, &sorter.ledger, sorter.assembler.own_end(), drained);
    }

    /// All images are sealed: what is still in the socket gets its verdict too (duplicates, frames after the last).
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
    pub(crate) fn take(&mut self, datagram: &[u8], sender: Sender) {
        self.ledger.received += 1;
        self.ledger.received_bytes += datagram.len() as u64;
        let packet = match self.decode(datagram) {
            Ok(packet) => packet,
            Err(why) => return self.take_malformed(datagram, datagram.len(), sender, why),
        };
        if self.is_opening {
            let origin = Origin { port: packet.port(), sender };
            let (frame, number) = (packet.frame_number(), packet.number());
            return self.take_first(FirstPacket { frame, number, is_in_tile: true, origin }, datagram);
        }
        self.place(&packet, sender);
    }

    /// Reads a datagram. A packet that says only its page gets the number of its frame.
    #[inline]
    pub(crate) fn decode<'d>(&mut self, datagram: &'d [u8]) -> Result<TilePacket<'d>, Malformed> {
        let packet = self.packets.decode(datagram, &self.format)?;
        let Some(place) = packet.place() else { return Ok(packet) };
        let control = self.control;
        let first = || place.first(Some(control.frame_of_others(place.first(None).frame)));
        let anchor = *self.anchor.get_or_insert_with(first);
        Ok(packet.of_frame(place.frame(&anchor)))
    }

    /// A packet of the right form, of a stream that has begun.
    #[inline]
    pub(crate) fn place(&mut self, packet: &TilePacket<'_>, sender: Sender) {
        self.seen.on_number(packet.number());
        match self.filter.admit(sender) {
            Admission::Own => self.judge(packet),
            Admission::OtherSender => {
                self.ledger.foreign += 1;
                self.seen.other_senders.count(sender);
            }
            Admission::NextSender => self.take_next_sender(packet, sender),
        }
    }

    /// A packet from a sender that may have replaced the stream's sender, which is silent.
    #[cold]
    fn take_next_sender(&mut self, packet: &TilePacket<'_>, sender: Sender) {
        match self.image_of(packet.frame_number()).filter(|image| *image < self.assembler.images()) {
            Some(image) => self.hold(packet, image, Some(sender)),
            None => {
                self.ledger.foreign += 1;
                self.seen.other_senders.count(sender);
            }
        }
    }

    /// A packet of the stream's sender.
    #[inline]
    pub(crate) fn judge(&mut self, packet: &TilePacket<'_>) {
        let image = self.image_of(packet.frame_number());
        if self.lossless && !self.wait_for_slot(image) {
            self.ledger.foreign += 1;
            return;
        }
        if !self.seen.is_own(packet.port(), self.format.packets()) && self.is_strict {
            // A packet of another module: its pixels would be mixed with those of this one.
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
                    self.writer.open(image, self.packets.header(packet));
                    self.seen.on_frame(packet.frame_number());
                } else if packet.brings_header() {
                    self.writer.describe(image, self.packets.header(packet));
                }
                match self.filled {
                    Some(filled) if packet.is_apart() => self.writer.settle(image, packet.packet(), filled),
                    _ => self.writer.place(image, packet.packet(), packet.payload()),
                }
                self.newest = Some((packet.frame_number(), packet.packet()));
                if let Some(place) = packet.place() {
                    self.anchor = Some(place.anchor(packet.frame_number()));
                }
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
        if self.far_ahead_packets.as_ref().is_some_and(|far_ahead_packets| !far_ahead_packets.is_empty()) {
            self.stay();
        }
    }

    /// Gives the frames below `low` to the workers.
    pub(crate) fn seal_below(&mut self, low: u64) {
        let (control, writer) = (self.control, &mut self.writer);
        if let Some(latencies) = control.latencies().filter(|_| low > writer.low()) {
            let now_ns = control.now_ns();
            // A frame without room has no packet of this stream.
            let sealed = (writer.low()..low).take_while(|frame| writer.has_room(*frame));
            sealed.for_each(|frame| latencies.note_sealed(frame, now_ns));
        }
        self.writer.seal_below(low);
    }

    /// Notes in `seen` what is known of the senders.
    fn note_senders(&mut self) {
        self.seen.sender = self.filter.own();
        self.seen.is_contested = self.filter.is_contested();
    }

    /// A datagram of `datagram_bytes`, or at least its head, that is no packet of the tile. If only its packet number
    /// is wrong, the configured tile may be wrong.
    #[cold]
    pub(crate) fn take_malformed(&mut self, datagram: &[u8], datagram_bytes: usize, sender: Sender, why: Malformed) {
        let claims = self.packets.claims(datagram);
        match claims {
            Some(claims) if why == Malformed::PacketNumber && self.is_opening => {
                let (frame, number) = (claims.frame_number, claims.fields.packet_number);
                let origin = Origin { port: claims.port, sender };
                self.take_first(FirstPacket { frame, number, is_in_tile: false, origin }, datagram);
            }
            _ => {
                self.ledger.count_malformed(why);
                self.seen.on_malformed(datagram_bytes, claims.map(|claims| claims.fields), why);
            }
        }
    }

    /// A packet that comes before the first packets have agreed.
    #[cold]
    fn take_first(&mut self, mut packet: FirstPacket, datagram: &[u8]) {
        let Some(identity) = self.filter.identity(packet.origin.sender) else {
            self.seen.other_senders.count(packet.origin.sender);
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

    /// True if a packet of this frame or of the one before is held: then this packet is not left over from the previous
    /// run.
    fn goes_on(&self, frame: u64) -> bool {
        let follows = |held: &FirstPacket| held.frame == frame || held.frame.checked_add(1) == Some(frame);
        self.first.as_ref().is_some_and(|first| first.datagrams().any(|(held, _)| follows(held)))
    }

    /// True while the held packets do not count as missing.
    fn is_settling(&self, now_ns: u64) -> bool {
        self.is_opening && self.first.as_ref().is_some_and(|first| first.is_settling(now_ns))
    }

    /// Decides about the held packets when no packet came. `is_last`: none will come, and all held packets get their
    /// verdict.
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

    /// Begins the run of this stream: the held packets get their verdicts. Those held before the first packet of
    /// `frame` or of the next frame (packets may overtake each other) are left out, unless the run has already begun on
    /// another stream and nothing was refused on this one.
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
            match self.decode(datagram) {
                Ok(packet) if has_begun && is_own => {
                    self.seen.on_number(packet.number());
                    self.judge(&packet);
                }
                _ => {
                    if !is_own {
                        self.seen.other_senders.count(held.origin.sender);
                    }
                    self.leave_out(*held);
                }
            }
        }
        self.first = Some(first);
    }

    /// Counts a packet that is not of this run, whether it was held back or not.
    fn leave_out(&mut self, packet: FirstPacket) {
        if packet.is_in_tile {
            self.ledger.foreign += 1;
        } else {
            self.ledger.count_malformed(Malformed::PacketNumber);
            self.seen.beyond += 1;
        }
        self.seen.on_number(packet.number);
    }

    /// Leaves out all held packets, because no further packet will help to decide about them.
    fn leave_all_out(&mut self) {
        while self.is_opening && self.first.as_ref().is_some_and(|first| !first.is_empty()) {
            self.decide(FirstVerdict::DropOldest);
        }
    }

    /// True if the stream must take nothing more. A source that can wait first delivers the frames that other streams
    /// have begun.
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

    /// A source that can wait delivers frames in order, so all older frames are done. A new frame waits until there is
    /// a slot for it, and a frame behind a long gap until the gap is committed, part by part. A stopped run still takes
    /// the frames that any stream has begun, so that its last frames are complete; returns false for later ones.
    fn wait_for_slot(&mut self, image: Option<u64>) -> bool {
        let is_new = |image: &u64| *image >= self.assembler.own_end() && *image < self.assembler.images();
        let newest_end = self.control.newest_end();
        let image = image.filter(is_new).filter(|image| !self.assembler.is_beyond(*image, newest_end));
        let Some(image) = image else { return true };
        loop {
            // Streams that have ended must release older frames, or there would never be a slot.
            self.control.begin_below(image.min(self.gap_part_end()));
            let low = self.assembler.seal_before(image.min(self.control.newest_end()));
            self.seal_below(low);
            if self.is_refused(image) || self.control.is_halting() {
                return false;
            }
            if self.writer.has_room(image) {
                self.control.begin_below(image + 1);
                return image < self.control.newest_end();
            }
            std::thread::sleep(SLOT_WAIT);
        }
    }

    /// The end of the frames that may be begun without a packet of theirs.
    pub(crate) fn gap_part_end(&self) -> u64 {
        self.control.frames_committed().saturating_add(self.gap_part_images)
    }

    /// Position of a frame in the run; the first packet of a run that starts with any frame sets the first frame for
    /// all streams.
    #[inline]
    fn image_of(&self, frame_number: u64) -> Option<u64> {
        if frame_number == NOT_YET {
            // No detector counts that far, and as the first frame this value would mean that none is known.
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
