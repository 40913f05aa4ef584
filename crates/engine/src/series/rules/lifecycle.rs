//! The life of a series: it begins, drains, ends; commands act on it.

use super::Rules;
use super::current::{Current, GAP_IMAGES_MAX};
use super::io::{Action, Ending};
use super::membership::Received;
use super::taking::superseded;
use super::unfinished::Closing;
use crate::series::merge::Pending;
use crate::series::notice::{Command, Notice};
use crate::series::spec::Join;
use konkordia_core::IMAGES_MAX;
use konkordia_core::series::{Ended, SeriesEnd, SeriesStart};
use konkordia_wire::message::{Read, SeriesKey};
use std::sync::Arc;

impl Rules {
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
        self.reported.clear();
        self.is_changed = true;
        let mut current = Current::new(&start, received_of_series, self.quirks.upstreams, now_ns);
        current.is_asked = is_asked;
        self.current = Some(current);
        // Where each upstream brings one piece, the start waits for the starts of all.
        let upstreams = if self.spec.join == Join::Pieces { self.quirks.upstreams } else { 1 };
        let index = if upstreams > 1 { upstream } else { 0 };
        self.images.pending = Some(Pending::new(start, index, upstreams));
        if upstreams == 1 {
            self.images.announce(&mut self.actions);
        }
        self.actions.push_back(Action::Publish);
    }

    /// From now on only messages already on their way are expected.
    pub(super) fn begin_drain(&mut self, ended: Ended, reason: &str) {
        if let Some(current) = &mut self.current
            && current.begin_drain(ended, reason, self.now_ns)
        {
            self.notify(Notice::Draining { reason: reason.into() });
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

    /// Ends the series with what is there, as soon as that is committed; a cancelled one at once.
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
        let closing = Closing { ended, reason: reason.into(), planned, is_wanted: is_asked || is_over };
        if ended == Ended::Cancelled {
            self.images.discard();
            self.closed(closing);
        } else {
            self.images.order.finish(sent);
            self.is_moving = true;
            self.unfinished.closing = Some(closing);
        }
    }

    /// Ends the series if everything of it is committed; else false.
    pub(super) fn close_if_committed(&mut self, mut closing: Closing) -> bool {
        if self.images.working() > 0 {
            self.unfinished.closing = Some(closing);
            return false;
        }
        if self.is_cancelling {
            self.images.discard();
            closing.ended = Ended::Cancelled;
            closing.reason = "it was cancelled while the last images were being delivered".into();
        }
        self.closed(closing);
        true
    }

    fn closed(&mut self, closing: Closing) {
        self.report_unreadable();
        self.images.ledger.close(closing.planned, closing.is_wanted);
        self.finish(closing.ended, closing.reason);
    }

    fn finish(&mut self, ended: Ended, reason: String) {
        self.images.announce(&mut self.actions);
        let ledger = self.images.reset();
        debug_assert!(ledger.imbalances().is_empty(), "{:?}", ledger.imbalances());
        let end = Arc::new(SeriesEnd { ended, reason, ledger });
        let what = match self.current.take() {
            Some(current) => {
                self.last = Some(current.received_of_series);
                self.series_ended += 1;
                self.is_changed = true;
                Ending::Series
            }
            None => Ending::Arm,
        };
        (self.armed, self.clock_ns) = (None, None);
        self.reported.clear();
        self.actions.push_back(Action::End(end, what));
    }

    /// Carries out a command. After [`Command::Shutdown`] nothing is to come any more.
    pub fn on_command(&mut self, command: Command, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        match command {
            Command::Arm(order) => {
                self.reported.clear();
                (self.armed, self.clock_ns) = (Some(order), None);
            }
            // A start of the clock that comes after its series has ended is not for the next one.
            Command::StartClock if self.current.is_none() && self.armed.is_none() => {}
            Command::StartClock => self.clock_ns = Some(now_ns),
            Command::Stop => {
                self.begin_drain(Ended::Stopped, "it was stopped");
                self.disarm(Ended::Stopped, "it was stopped before it had begun");
            }
            Command::Cancel(_) => {
                self.close(Ended::Cancelled, "it was cancelled");
                self.disarm(Ended::Cancelled, "it was cancelled before it had begun");
            }
            Command::Shutdown => {
                self.close(Ended::Stopped, "the program is shutting down");
                self.tick_shutdown();
            }
        }
    }

    /// Drops an arm for which no series has begun. The control plane gets an end for it, as for a series.
    pub(super) fn disarm(&mut self, ended: Ended, reason: &str) {
        if self.current.is_none() && self.armed.is_some() {
            self.finish(ended, reason.into());
        }
    }

    /// Drops an arm for which nothing can come any more.
    pub(super) fn disarm_over(&mut self) {
        match self.failure.clone() {
            Some(why) => self.disarm(Ended::Failed, &why),
            None => self.disarm(Ended::NoData, "the source has ended"),
        }
    }

    /// All sources have come to their end: ends the series.
    pub(super) fn close_over(&mut self) {
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
    pub(super) fn end_without_data(&mut self, now_ns: u64, reason: &str) {
        if self.current.is_none() {
            let start = SeriesStart { store: true, ..SeriesStart::default() };
            self.begin(0, SeriesKey::default(), None, start, now_ns);
        }
        self.close(Ended::NoData, reason);
    }
}

/// Numbers the series where the protocol does not.
fn numbered(mut start: SeriesStart, key: SeriesKey, series_started: u64) -> SeriesStart {
    if start.series == 0 && key.0 == 0 {
        start.series = series_started;
    }
    start
}
