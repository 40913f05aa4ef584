//! The life of a series on the sort thread: it begins, drains, ends; commands and time act on it.

use super::control::{Command, Notice};
use super::current::{Current, GAP_IMAGES_MAX};
use super::event::{Read, SeriesKey};
use super::hold_queue::HoldQueue;
use super::membership::Received;
use super::merge::Pending;
use super::sort::{Sorter, numbered, superseded};
use super::spec::Join;
use crate::contain::Panic;
use konkordia_core::IMAGES_MAX;
use konkordia_core::series::{Ended, SeriesEnd, SeriesStart};
use std::sync::{Arc, PoisonError};

impl Sorter {
    /// Begins a series.
    pub(super) fn begin(&mut self, upstream: usize, key: SeriesKey, number: Option<u64>, start: SeriesStart, now_ns: u64) {
        self.series_started += 1;
        let mut start = numbered(start, key, self.series_started);
        let mut wanted = self.spec.images;
        if let Some(order) = self.armed.take() {
            wanted = order.images;
            start.filename = order.filename.or(start.filename);
            start.store &= !order.discard;
        }
        // `wanted` counts images of the file; the sender counts its own images.
        let wanted = wanted.map(|images| images.saturating_mul(u64::from(self.spec.sum_frames)));
        let is_asked = wanted.is_some();
        start.images_planned = wanted.or(start.images_planned);
        // A number that no series can have is ignored.
        start.images_planned = start.images_planned.filter(|planned| *planned <= IMAGES_MAX);
        if let Join::PerModule { rows, columns, .. } = &self.spec.join {
            start.image_size = Some([u64::from(*rows), u64::from(*columns)]);
        }
        let mut received_of_series = Received::new(key, self.quirks.upstreams);
        received_of_series.on_start(
            &self.quirks,
            upstream,
            number.filter(|_| self.quirks.has_start),
            self.spec.window_images + 64,
        );
        self.told.clear();
        self.is_changed = true;
        let mut current = Current::new(&start, received_of_series, self.quirks.upstreams, now_ns);
        current.is_asked = is_asked;
        self.current = Some(current);
        // Where each upstream brings one piece, the start waits for the starts of all.
        let upstreams = if self.spec.join == Join::Pieces { self.quirks.upstreams } else { 1 };
        let index = if upstreams > 1 { upstream } else { 0 };
        self.images.pending = Some(Pending::new(start, index, upstreams));
        if upstreams == 1 {
            self.images.announce();
        }
        self.publish();
    }

    /// From now on only messages already on their way are expected.
    pub(super) fn begin_drain(&mut self, ended: Ended, reason: &str) {
        let now_ns = self.control.now_ns();
        if let Some(current) = &mut self.current
            && current.begin_drain(ended, reason, now_ns)
        {
            self.control.notify(Notice::Draining { reason: reason.into() });
        }
    }

    /// An upstream has gone on to the next series.
    pub(super) fn wait_for_end(&mut self, upstream: usize, read: &Read) {
        if let Some(current) = &mut self.current {
            current.received_of_series.on_next(&self.quirks, upstream, read);
            let (ended, reason) = superseded(&self.quirks, current.received_of_series.ended != 0);
            self.begin_drain(ended, reason);
            self.check_end();
        }
    }

    /// Ends the series if no message of it can still come.
    pub(super) fn check_end(&mut self) {
        let Some(current) = &self.current else { return };
        let has_all = current.planned.is_some_and(|planned| self.images.order.next() >= planned);
        let is_whole = current.received_of_series.is_whole(&self.quirks, has_all);
        match &current.drain {
            Some(drain) if is_whole || (has_all && !self.quirks.has_end) => {
                let (ended, reason) = (drain.ended, drain.reason.clone());
                self.close(ended, &reason);
            }
            None if has_all => {
                self.begin_drain(Ended::Finished, "all announced images are accounted for");
                if !self.quirks.has_end {
                    self.check_end();
                }
            }
            _ => {}
        }
    }

    /// Ends the series with what is there.
    pub(super) fn close(&mut self, ended: Ended, reason: &str) {
        let Some(current) = &self.current else { return };
        let seen_end = self.images.order.seen_end().max(self.images.order.next());
        let (planned, is_over) = (current.planned, current.received_of_series.ended != 0);
        let is_asked = matches!(ended, Ended::Stopped | Ended::Cancelled);
        // After the last image that came, only images known to have been sent count as lost; after a stop, none.
        let sent = current
            .received_of_series
            .sent()
            .or_else(|| current.sent_by_labels())
            .filter(|sent| !is_asked && sent.saturating_sub(seen_end) <= GAP_IMAGES_MAX);
        let sent = sent.map(|sent| sent.min(planned.unwrap_or(u64::MAX)));
        if ended == Ended::Cancelled {
            self.images.discard();
        } else {
            self.images.order.finish(sent);
            self.images.drain();
            if self.control.is_cancelling() {
                self.images.discard();
            }
        }
        self.tell_unreadable();
        self.images.ledger.close(planned, is_asked || is_over);
        let (ended, reason) = match self.control.is_cancelling() && ended != Ended::Cancelled {
            true => (Ended::Cancelled, "it was cancelled while the last images were being delivered"),
            false => (ended, reason),
        };
        self.finish(ended, reason);
    }

    fn finish(&mut self, ended: Ended, reason: &str) {
        self.images.announce();
        let ledger = self.images.reset();
        debug_assert!(ledger.imbalances().is_empty(), "{:?}", ledger.imbalances());
        let end = Arc::new(SeriesEnd { ended, reason: reason.into(), ledger });
        if let Some(current) = self.current.take() {
            self.output_queues.end(&end);
            self.last = Some(current.received_of_series);
            self.series_ended += 1;
            self.is_changed = true;
        }
        (self.armed, self.clock_ns) = (None, None);
        self.told.clear();
        self.control.seen.lock().unwrap_or_else(PoisonError::into_inner).ledger.clone_from(&end.ledger);
        // All memory of the series is released before its end is reported.
        self.publish();
        self.control.notify(Notice::Ended(end));
    }

    /// After a panic: a series that had begun ends with what is known of it.
    pub fn give_up(mut self, panic: &Panic) {
        if self.images.is_announced {
            let ledger = std::mem::take(&mut self.images.ledger);
            let end = Arc::new(SeriesEnd { ended: Ended::Failed, reason: panic.to_string(), ledger });
            self.output_queues.end(&end);
            self.control.notify(Notice::Ended(end));
        }
        self.control.notify(Notice::Broken { why: panic.to_string() });
    }

    /// Carries out a command; true if the thread must end.
    pub(super) fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Arm(order) => {
                self.told.clear();
                (self.armed, self.clock_ns) = (Some(order), None);
            }
            // A start of the clock that comes after its series has ended is not for the next one.
            Command::StartClock if self.current.is_none() && self.armed.is_none() => {}
            Command::StartClock => self.clock_ns = Some(self.control.now_ns()),
            Command::Stop => {
                self.begin_drain(Ended::Stopped, "it was stopped");
                self.disarm(Ended::Stopped, "it was stopped before it had begun");
            }
            Command::Cancel(number) => {
                self.close(Ended::Cancelled, "it was cancelled");
                self.disarm(Ended::Cancelled, "it was cancelled before it had begun");
                self.control.cancelled(number);
            }
            Command::Shutdown => {
                self.close(Ended::Stopped, "the program is shutting down");
                self.disarm(Ended::Stopped, "the program is shutting down");
                return true;
            }
        }
        false
    }

    /// Drops an arm for which no series has begun. The control plane gets an end for it, as for a series.
    fn disarm(&mut self, ended: Ended, reason: &str) {
        if self.current.is_none() && self.armed.is_some() {
            self.finish(ended, reason);
        }
    }

    /// When the next time-out is due.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let order = self.images.order.deadline_ns().map(|at_ns| at_ns.max(self.images.patient_until(self.spec.wait_ns)));
        let mut at = [order, None, None, None, None, None];
        if let Some(current) = &self.current {
            let silence = current.active_ns.max(self.images.committed_ns).saturating_add(self.spec.stall_timeout_ns);
            at[1] = current.has_image.then_some(silence);
            at[2] = current.drain_until(self.spec.drain_ns);
        }
        at[3] = self.start_deadline_ns();
        let waiting = self.hold_queues.iter().filter_map(HoldQueue::since_ns);
        at[4] = waiting.min().map(|since_ns| self.hold_queue_until(since_ns));
        let patient_until = self.images.patient_until(self.spec.wait_ns);
        at[5] = self.reorder.as_ref().and_then(|reorder| reorder.deadline_ns()).map(|at_ns| at_ns.max(patient_until));
        at.into_iter().flatten().min()
    }

    fn start_deadline_ns(&self) -> Option<u64> {
        let has_image = self.current.as_ref().is_some_and(|current| current.has_image);
        let is_expected = self.current.is_some() || self.armed.is_some();
        let at_ns = self.clock_ns?.saturating_add(self.spec.start_timeout_ns);
        (is_expected && !has_image && at_ns < u64::MAX).then_some(at_ns)
    }

    /// Handles the time-outs that are due.
    pub(super) fn on_time(&mut self, now_ns: u64) {
        // After a sink has blocked everything, missing messages may still wait in front of the pull threads.
        if now_ns >= self.images.patient_until(self.spec.wait_ns) {
            self.images.order.tick(now_ns);
            self.tick_reorder(now_ns);
        }
        self.images.pump(0);
        self.check_end();
        self.expire_hold_queues(now_ns);
        if self.start_deadline_ns().is_some_and(|at_ns| now_ns >= at_ns) {
            self.end_without_data(now_ns, "no image arrived within the start time-out");
        }
        let Some(current) = &mut self.current else { return self.end_if_over(now_ns) };
        // Waiting for a slow sink does not count as silence of the sender.
        current.active_ns = current.active_ns.max(self.images.committed_ns);
        if let (Some(drain), Some(until)) = (&current.drain, current.drain_until(self.spec.drain_ns))
            && now_ns >= until
        {
            let (ended, reason) = (drain.ended, drain.reason.clone());
            self.close(ended, &reason);
        } else if current.has_image && now_ns >= current.active_ns.saturating_add(self.spec.stall_timeout_ns) {
            self.close(Ended::Stalled, "no message arrived within the stall time-out");
        }
        self.end_if_over(now_ns);
    }

    fn tick_reorder(&mut self, now_ns: u64) {
        let is_over = self.is_over();
        if let Some(reorder) = &mut self.reorder {
            reorder.tick(now_ns);
            if is_over {
                reorder.finish();
            }
            self.take_lined_up();
        }
    }

    /// When all sources have come to their end, ends the series and drops an arm.
    fn end_if_over(&mut self, now_ns: u64) {
        if !self.is_over() {
            return;
        }
        if let Some(reorder) = &mut self.reorder {
            reorder.finish();
            self.take_lined_up();
        }
        while self.current.is_some() {
            self.close_over();
            // Held messages may be a series of their own.
            self.expire_hold_queues(now_ns);
        }
        if self.armed.is_some() {
            let (ended, reason) = match self.failure.clone() {
                Some(why) => (Ended::Failed, why),
                None => (Ended::NoData, "the source has ended".into()),
            };
            self.disarm(ended, &reason);
        }
    }

    fn close_over(&mut self) {
        let drain = self.current.as_ref().and_then(|current| current.drain.clone());
        let (ended, reason) = match (drain, &self.failure) {
            (Some(drain), _) => (drain.ended, drain.reason),
            (None, Some(why)) => (Ended::Failed, why.clone()),
            (None, None) if !self.quirks.has_end => (Ended::Finished, "the source has ended".into()),
            (None, None) => (Ended::Stalled, "the source ended before the end message of the series".into()),
        };
        self.close(ended, &reason);
    }

    /// Ends a series without an image. It is begun if need be, so that there is a file that says why it is empty.
    fn end_without_data(&mut self, now_ns: u64, reason: &str) {
        if self.current.is_none() {
            let start = SeriesStart { store: true, ..SeriesStart::default() };
            self.begin(0, SeriesKey::default(), None, start, now_ns);
        }
        self.close(Ended::NoData, reason);
    }
}
