//! Judges each message, then takes it, holds it or throws it away, and counts it once.

use super::Rules;
use super::current::Refused;
use super::hold_queue::Waits;
use super::images::Held;
use super::io::{Action, Incoming, Receipt};
use super::membership::{Judgement, LEAVING, NOT_ARMED, Received, SenderQuirks};
use super::unfinished::Placing;
use crate::series::notice::Notice;
use konkordia_core::order::Verdict;
use konkordia_core::series::{Accept, Ended, Positions, SeriesStart, UpstreamLedger};
use konkordia_wire::message::{Event, ImagePart, Read};

const TWICE: &str = "its image was already received (duplicate)";
const LATE: &str = "it arrived too late, or its image was already received";
const UNANNOUNCED: &str = "the header of its series did not arrive in time";

impl Rules {
    /// Takes a message, or holds it. True if the messages behind it have to wait too.
    pub(super) fn offer(&mut self, incoming: Incoming, is_patient: bool) -> bool {
        let upstream = incoming.receipt.upstream;
        let Some((waits, incoming)) = self.take(incoming, is_patient) else { return false };
        let image = incoming.read.as_ref().ok().and_then(|read| self.position_of(upstream, read));
        self.hold_queues[upstream].put(waits, image, incoming)
    }

    /// Judges a message and acts on it. Gives it back if it has to wait; if not `is_patient`, only a message of the
    /// next series waits.
    pub(super) fn take(&mut self, incoming: Incoming, is_patient: bool) -> Option<(Waits, Incoming)> {
        let Ok(read) = &incoming.read else {
            self.refuse_malformed(incoming);
            return None;
        };
        let upstream = incoming.receipt.upstream;
        let mut judgement = self.judge(upstream, read);
        if judgement == Judgement::Begin {
            let (number, now_ns) = (read.message_number, incoming.received_ns);
            match &read.event {
                Event::Start(key, start) => self.begin(upstream, *key, number, SeriesStart::clone(start), now_ns),
                Event::Part(part) => self.begin(upstream, part.series, number, implied_start(part), now_ns),
                Event::End(_) | Event::Other => {}
            }
            if matches!(read.event, Event::Start(..)) {
                self.count(incoming.receipt, |ledger| ledger.control += 1);
                return None;
            }
            judgement = self.judge(upstream, read);
        }
        match judgement {
            Judgement::Next if self.quirks.is_single() => {
                let has_end = self.current.as_ref().is_some_and(|current| current.received_of_series.ended != 0);
                let (ended, reason) = superseded(&self.quirks, has_end);
                self.close(ended, reason);
                self.unfinished.again = Some((incoming, is_patient));
                None
            }
            Judgement::Next => {
                // While images of this series wait for their place, the upstream has not gone on: else one that began
                // the series could begin it again and again.
                if self.hold_queues[upstream].first_ahead().is_none() {
                    self.wait_for_end(upstream, read);
                }
                Some((Waits::End, incoming))
            }
            Judgement::Unannounced if is_patient => Some((Waits::Header, incoming)),
            Judgement::Take if is_patient && self.is_ahead(upstream, read) => Some((Waits::Window, incoming)),
            judgement => {
                self.act(incoming, judgement);
                None
            }
        }
    }

    fn judge(&self, upstream: usize, read: &Read) -> Judgement {
        let last = self.last.as_ref();
        match &self.current {
            Some(current) => current.received_of_series.judge(&self.quirks, last, upstream, read),
            None if self.is_leaving && !matches!(read.event, Event::Other) => Judgement::Foreign(LEAVING),
            None if self.spec.accept == Accept::Always || self.armed.is_some() => {
                Received::judge_idle(&self.quirks, last, upstream, read)
            }
            None if matches!(read.event, Event::Other) => Judgement::Control,
            None => Judgement::Foreign(NOT_ARMED),
        }
    }

    /// True if an image ahead of the window has to wait for slower upstreams that are alive: moving the window on would
    /// lose what they bring.
    fn is_ahead(&self, upstream: usize, read: &Read) -> bool {
        self.position_of(upstream, read).is_some_and(|image| !self.is_in_window(image))
    }

    fn position_of(&self, upstream: usize, read: &Read) -> Option<u64> {
        let Event::Part(part) = &read.event else { return None };
        Some(self.position(upstream, read.message_number, part.number))
    }

    /// The position in the series of the image that its sender calls `frame`; `number` is that of its message.
    fn position(&self, upstream: usize, number: Option<u64>, frame: u64) -> u64 {
        let Some(current) = self.current.as_ref().filter(|_| self.spec.positions == Positions::Messages) else { return frame };
        match (number, current.received_of_series.header_number(&self.quirks, upstream)) {
            (Some(number), Some(header)) => number.saturating_sub(header).saturating_sub(1),
            // With several upstreams only the numbers of the images give their order.
            _ if !self.quirks.is_single() => frame,
            _ => current.arrived,
        }
    }

    fn is_counted_by_arrival(&self, number: Option<u64>) -> bool {
        self.spec.positions == Positions::Messages && number.is_none() && self.quirks.is_single()
    }

    pub(super) fn is_in_window(&self, number: u64) -> bool {
        let next = self.images.order.next();
        if self.current.as_ref().is_some_and(|current| current.is_far_ahead(number, next)) {
            return false;
        }
        let is_beyond = number.saturating_sub(next) >= self.spec.window_images;
        !is_beyond || self.quirks.is_single() || !self.are_all_alive()
    }

    /// True if waiting for slower upstreams makes sense. It does not if one is closed, or has been silent for longer
    /// than images wait.
    fn are_all_alive(&self) -> bool {
        let Some(current) = &self.current else { return false };
        self.hold_queues.iter().enumerate().all(|(upstream, hold_queue)| {
            let has_all = (current.received_of_series.ended | current.received_of_series.over) >> upstream & 1 == 1;
            let is_silent = self.now_ns.saturating_sub(current.last_received_ns[upstream]) >= self.spec.wait_ns;
            has_all || !hold_queue.is_empty() || (!hold_queue.is_closed && !is_silent)
        })
    }

    fn act(&mut self, incoming: Incoming, judgement: Judgement) {
        let Incoming { read, receipt, received_ns } = incoming;
        let Ok(Read { message_number, event }) = read else { return };
        let (upstream, is_image) = (receipt.upstream, matches!(event, Event::Part(_)));
        if let (Event::End(key), None, Some(last)) = (&event, &self.current, &mut self.last)
            && last.key == *key
        {
            // This upstream brings no more of that series: where the protocol has no start, its next image begins a
            // series.
            last.ended |= 1 << upstream;
        }
        match judgement {
            Judgement::Take => self.take_own(message_number, event, receipt, received_ns),
            Judgement::Control => self.count(receipt, |ledger| ledger.control += 1),
            Judgement::Duplicate => {
                if let (Event::Start(..), Some(current)) = (&event, &mut self.current) {
                    current.received_of_series.started |= 1 << upstream;
                }
                self.throw_away(upstream, is_image, TWICE);
                self.count(receipt, |ledger| ledger.duplicate += 1);
            }
            Judgement::Late => {
                self.throw_away(upstream, is_image, LATE);
                self.count(receipt, |ledger| ledger.late += 1);
            }
            Judgement::Foreign(why) => {
                self.throw_away(upstream, is_image, why);
                self.refuse_foreign(receipt, why);
            }
            Judgement::Unannounced => {
                self.throw_away(upstream, is_image, UNANNOUNCED);
                self.refuse_foreign(receipt, UNANNOUNCED);
            }
            Judgement::Begin | Judgement::Next => unreachable!("handled where messages are taken"),
        }
    }

    /// Takes a message of the series that is being received.
    fn take_own(&mut self, number: Option<u64>, event: Event, receipt: Receipt, now_ns: u64) {
        let Some(current) = &mut self.current else { return };
        let (quirks, upstream) = (self.quirks, receipt.upstream);
        match event {
            Event::Part(part) => {
                current.received_of_series.on_message(&quirks, upstream, number);
                self.take_part(number, part, receipt, now_ns);
            }
            Event::Start(_, start) => {
                if self.images.pending.as_mut().is_some_and(|pending| pending.add(upstream, start)) {
                    self.images.announce(&mut self.actions);
                }
                let window = self.spec.window_images.saturating_add(64);
                current.received_of_series.on_start(&quirks, upstream, number, window);
                current.touch(upstream, now_ns);
                self.count(receipt, |ledger| ledger.control += 1);
            }
            Event::End(_) => {
                current.received_of_series.on_message(&quirks, upstream, number);
                current.received_of_series.on_end(&quirks, upstream, number);
                current.touch(upstream, now_ns);
                self.count(receipt, |ledger| ledger.control += 1);
                self.begin_drain(Ended::Finished, "the sender ended the series");
                self.check_end();
            }
            Event::Other => self.count(receipt, |ledger| ledger.control += 1),
        }
    }

    fn take_part(&mut self, number: Option<u64>, part: Box<ImagePart>, receipt: Receipt, received_ns: u64) {
        let upstream = receipt.upstream;
        let (image, is_counted) = (self.position(upstream, number, part.number), self.is_counted_by_arrival(number));
        let Some(current) = &mut self.current else { return };
        let label = part.number;
        let held = match current.check(&self.spec, upstream, &part, image, self.images.order.next()) {
            Ok(()) => Some(Held { part, receipt, received_ns }),
            Err(Refused::Foreign(why)) => {
                self.throw_away(upstream, true, why);
                return self.refuse_foreign(receipt, why);
            }
            Err(Refused::Unasked(why)) => return self.refuse_foreign(receipt, why),
            Err(Refused::Malformed(why)) => {
                self.report(upstream, "pixels", &why);
                None
            }
        };
        if let Some(current) = &mut self.current {
            current.received_of_series.on_image(&self.quirks, upstream, image, number);
            if is_counted {
                current.on_arrival(label);
            }
        }
        let index = if self.quirks.is_modular { upstream as u32 } else { 0 };
        let is_malformed = held.is_none();
        let placing = Placing { image, part: index, receipt, received_ns, is_malformed, held, has_moved: false };
        self.place(placing);
    }

    /// Puts a part in its place. If it is ahead of the window, images have to leave first; false if that has to wait
    /// for workers.
    pub(super) fn place(&mut self, mut placing: Placing) -> bool {
        let (verdict, held) = self.images.place(placing.image, placing.part, placing.received_ns, placing.held);
        let is_given_up = placing.has_moved && self.is_cancelling && !self.images.is_full();
        if verdict == Verdict::Beyond && !is_given_up {
            placing.held = held;
            let is_first = !std::mem::replace(&mut placing.has_moved, true);
            self.is_moving |= is_first;
            self.unfinished.placing = Some(placing);
            return is_first;
        }
        drop(held);
        let Placing { receipt, received_ns, is_malformed, .. } = placing;
        let upstream = receipt.upstream;
        match verdict {
            _ if is_malformed => {
                self.actions.push_back(Action::Refuse(upstream, receipt.sequence));
                self.count(receipt, |ledger| ledger.malformed += 1);
            }
            Verdict::Placed => {
                let ledger = &mut self.images.ledger.upstreams[upstream];
                ledger.received += 1;
                ledger.received_bytes += receipt.bytes;
                ledger.placed += 1;
                self.note_placed(upstream, received_ns);
            }
            Verdict::Duplicate => {
                self.throw_away(upstream, true, TWICE);
                self.count(receipt, |ledger| ledger.duplicate += 1);
            }
            Verdict::Late | Verdict::Beyond => {
                self.throw_away(upstream, true, LATE);
                self.count(receipt, |ledger| ledger.late += 1);
            }
        }
        (self.is_moving, self.unfinished.checks_end) = (true, true);
        true
    }

    fn note_placed(&mut self, upstream: usize, received_ns: u64) {
        let Some(current) = &mut self.current else { return };
        current.touch(upstream, received_ns);
        if !std::mem::replace(&mut current.has_image, true) {
            self.notify(Notice::First { received_ns });
        }
    }

    /// Counts an image that is kept nowhere while a series is being received: that series is no success, whatever else
    /// is in it.
    fn throw_away(&mut self, upstream: usize, is_image: bool, why: &'static str) {
        if is_image && self.current.is_some() {
            self.images.ledger.images.not_kept += 1;
            self.report(upstream, why, why);
        }
    }

    /// Counts the verdict of a message that is not kept, and releases its memory.
    pub(super) fn count(&mut self, receipt: Receipt, verdict: impl FnOnce(&mut UpstreamLedger)) {
        let ledger = &mut self.images.ledger.upstreams[receipt.upstream];
        ledger.received += 1;
        ledger.received_bytes += receipt.bytes;
        verdict(ledger);
        self.images.drop_message(receipt);
    }

    fn refuse_malformed(&mut self, incoming: Incoming) {
        if let Err(why) = &incoming.read {
            self.report(incoming.receipt.upstream, "malformed", why);
        }
        // Its image is not known.
        self.images.ledger.images.not_kept += u64::from(self.current.is_some());
        self.count(incoming.receipt, |ledger| ledger.malformed += 1);
    }

    fn refuse_foreign(&mut self, receipt: Receipt, why: &'static str) {
        self.report(receipt.upstream, why, why);
        self.actions.push_back(Action::Refuse(receipt.upstream, receipt.sequence));
        self.count(receipt, |ledger| ledger.foreign += 1);
    }
}

/// How and why a series ended when the next one began.
pub(super) fn superseded(quirks: &SenderQuirks, has_end: bool) -> (Ended, &'static str) {
    match has_end {
        true => (Ended::Finished, "the sender ended the series"),
        // The protocol has no end message.
        false if !quirks.has_end => (Ended::Finished, "the next series began"),
        false => (Ended::Superseded, "the next series began, but no end message of this one was received"),
    }
}

/// The start of a series that begins with its first image.
fn implied_start(part: &ImagePart) -> SeriesStart {
    let known = part.start.as_deref().cloned();
    known.unwrap_or_else(|| SeriesStart { series: part.series.0, store: true, ..SeriesStart::default() })
}
