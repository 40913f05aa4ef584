//! Takes messages out of the hold queues as soon as they can be judged or placed, or have waited too long.

use super::Rules;
use super::current::are_near;
use super::hold_queue::HoldQueue;
use super::unfinished::{AllQueues, OneQueue};

impl Rules {
    /// Takes held messages, as far as they can be judged now.
    pub(super) fn begin_open_queues(&mut self) {
        let is_changed = std::mem::take(&mut self.is_changed);
        let next = self.images.order.next();
        self.note_followed(next);
        self.unfinished.queues = Some(AllQueues { upstream: 0, is_changed, next });
    }

    pub(super) fn open_queues(&mut self, queues: AllQueues) {
        let AllQueues { upstream, is_changed, next } = queues;
        if let Some(hold_queue) = self.hold_queues.get(upstream) {
            if is_changed || hold_queue.first_ahead().is_some_and(|image| self.is_in_window(image)) {
                self.unfinished.queue = Some(OneQueue::new(upstream, true));
            }
            self.unfinished.queues = Some(AllQueues { upstream: upstream + 1, ..queues });
        } else if self.is_changed || self.images.order.next() != next {
            self.begin_open_queues();
        }
    }

    /// Two held images far ahead that are close to each other show that the sender has jumped there.
    fn note_followed(&mut self, next: u64) {
        let Some(current) = &mut self.current else { return };
        let mut numbers: Vec<u64> =
            self.hold_queues.iter().flat_map(HoldQueue::numbers_ahead).filter(|n| current.is_far_ahead(*n, next)).collect();
        numbers.sort_unstable();
        let is_pair = |pair: &&[u64]| are_near(pair[0], pair[1]) && (pair[0] != pair[1] || self.quirks.is_modular);
        if let Some(pair) = numbers.windows(2).find(is_pair) {
            current.followed = Some(pair[0]);
        }
    }

    /// Takes the next held message of an upstream, if it can be taken.
    pub(super) fn open_queue(&mut self, mut queue: OneQueue) {
        let upstream = queue.upstream;
        if !queue.is_past_ahead {
            let first = self.hold_queues[upstream].first_ahead();
            let waits = |image| queue.is_patient && self.current.is_some() && !self.is_in_window(image);
            if first.is_some_and(|image| !waits(image))
                && let Some(incoming) = self.hold_queues[upstream].pop_ahead()
            {
                // One that begins a series, because that for which it waited has ended, is taken. If it waited again,
                // it could begin series without end.
                let begins = self.current.is_none() && !self.quirks.has_start;
                self.offer(incoming, queue.is_patient && !begins);
                queue.is_patient = true;
                self.unfinished.queue = Some(queue);
                return;
            }
            queue.is_past_ahead = true;
        }
        // The remaining messages may be of the series that is being received after all.
        queue.is_patient |= queue.has_taken && self.current.is_some();
        let Some(incoming) = self.hold_queues[upstream].pop_held() else { return };
        queue.has_taken = true;
        if !self.offer(incoming, queue.is_patient) {
            self.unfinished.queue = Some(queue);
        }
    }

    /// Releases messages of an upstream that have waited too long, or are too many. Those whose header did not come are
    /// foreign; images ahead of the window move it on.
    pub(super) fn expire_queue(&mut self, upstream: usize, at_ns: u64) {
        let hold_queue = &self.hold_queues[upstream];
        let Some(since_ns) = hold_queue.since_ns() else { return };
        let is_crowded = hold_queue.is_crowded(self.spec.window_images);
        if self.is_over() || is_crowded || at_ns >= self.hold_queue_until(since_ns) {
            self.unfinished.queue = Some(OneQueue::new(upstream, false));
        }
    }

    /// Until when a message waits that came at `since_ns`.
    pub(super) fn hold_queue_until(&self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.spec.wait_ns).max(self.images.patient_until(self.spec.wait_ns))
    }
}
