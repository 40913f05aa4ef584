//! The receiver of one stream: takes datagrams from its source, gets a verdict for each, copies the payload of those that have a place.

use crate::control::{Control, FailGuard, NOT_YET};
use konkordia_core::assembler::{TileAssembler, Verdict};
use konkordia_core::ledger::StreamLedger;
use konkordia_core::ports::Source;
use konkordia_core::tile::TileFormat;
use konkordia_memory::ring::TileWriter;
use konkordia_wire::sls_udp::Packet;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest wait for a datagram, and so the grain of deadlines and of stopping.
const WAIT: Duration = Duration::from_millis(2);
/// Grain of the wait for a slot. Half a ring is filled meanwhile at 1 GB/s and 100 MB of ring.
const SLOT_WAIT: Duration = Duration::from_micros(200);
/// How often the source is asked what it lost: a system call that is too dear for every batch.
const DROPS_INTERVAL_NS: u64 = 50_000_000;
/// Datagrams that still wait in the socket after the last image is sealed are counted, at most this many batches of them.
const LEFTOVER_BATCHES: usize = 1000;

/// Everything that one receiver thread owns.
pub(crate) struct Receiver<'a> {
    pub stream: usize,
    pub source: Box<dyn Source>,
    pub sorter: Sorter<'a>,
    pub drops_read_ns: u64,
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
    pub format: TileFormat,
    pub writer: TileWriter,
    /// The source can wait for a slot.
    pub lossless: bool,
    pub assembler: TileAssembler,
    pub ledger: StreamLedger,
}

impl Receiver<'_> {
    /// Receives until every planned image is sealed or the run is ended. Returns the account of the stream.
    pub(crate) fn run(mut self) -> (StreamLedger, io::Result<()>) {
        let control = self.sorter.control;
        let _guard = FailGuard(control);
        let mut result = Ok(());
        while !self.sorter.stops() && self.sorter.assembler.low() < self.sorter.assembler.images() {
            // Read before the source is looked at: what is known now and not in an empty source will not come.
            let known = Known { newest_end: control.newest_end(), now_ns: control.now_ns() };
            if result.is_err() {
                std::thread::sleep(WAIT);
                self.after_batch(known, true);
                continue;
            }
            match self.source.receive(WAIT, &mut |datagram| self.sorter.take(datagram)) {
                Ok(count) => self.after_batch(known, count == 0),
                Err(error) => {
                    // The other streams end their images in peace; this one has nothing more to say.
                    result = Err(error);
                    control.stop();
                    self.after_batch(known, true);
                    if !self.sorter.lossless {
                        break;
                    }
                    // The others wait for slots, so this one must let go of the frames that they still take.
                }
            }
        }
        control.note_halted(self.stream);
        while control.end.load(Ordering::Acquire) == NOT_YET && !control.has_failed() {
            std::thread::sleep(WAIT);
        }
        let low = self.sorter.assembler.finish(control.end.load(Ordering::Acquire));
        self.sorter.writer.seal_below(low);
        // What is left in a file was not received.
        if result.is_ok() && !self.sorter.lossless {
            result = self.count_leftovers();
        }
        self.sorter.ledger.kernel_dropped = self.source.dropped();
        control.publish(self.stream, &self.sorter.ledger, true);
        (self.sorter.ledger, result)
    }

    fn after_batch(&mut self, known: Known, drained: bool) {
        let sorter = &mut self.sorter;
        let low = sorter.assembler.tick(known.now_ns, known.newest_end, drained);
        sorter.writer.seal_below(low);
        if known.now_ns >= self.drops_read_ns + DROPS_INTERVAL_NS {
            self.drops_read_ns = known.now_ns;
            sorter.ledger.kernel_dropped = self.source.dropped();
        }
        sorter.control.publish(self.stream, &sorter.ledger, drained);
    }

    /// All images are sealed: what is still in the socket gets its verdict too (copies, frames after the last).
    fn count_leftovers(&mut self) -> io::Result<()> {
        for _ in 0..LEFTOVER_BATCHES {
            if self.source.receive(Duration::ZERO, &mut |datagram| self.sorter.take(datagram))? == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Sorter<'_> {
    /// One datagram, one verdict, one counter.
    #[inline]
    fn take(&mut self, datagram: &[u8]) {
        self.ledger.received += 1;
        self.ledger.received_bytes += datagram.len() as u64;
        let packet = match Packet::new_checked(datagram, &self.format) {
            Ok(packet) => packet,
            Err(why) => return self.ledger.count_malformed(why),
        };
        let image = self.image_of(packet.frame_number());
        if self.lossless && !self.wait_for_slot(image) {
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
                }
                self.writer.place(image, packet.packet(), packet.payload());
                self.ledger.placed += 1;
            }
            Verdict::Duplicate => self.ledger.duplicate += 1,
            Verdict::Late => self.ledger.late += 1,
            Verdict::NoSlot => self.ledger.no_slot += 1,
            Verdict::Foreign => self.ledger.foreign += 1,
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
