//! What the rules do when time passes: they no longer wait for what is overdue, and look again at what was held.

use super::Rules;
use super::hold_queue::HoldQueue;
use super::reorder::ReorderQueue;
use super::unfinished::{Stage, Tick};
use konkordia_core::series::Ended;

impl Rules {
    /// Does what is due: to be called after each batch of events and at [`Self::deadline_ns`]. `at_ns` is the time that
    /// counts for time-outs. While messages wait to be read, it is the time at which the newest message taken so far
    /// was received: an upstream whose messages were not read yet is not silent.
    pub fn tick(&mut self, now_ns: u64, at_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.report_unreadable();
        self.is_moving = true;
        self.unfinished.tick = Some(Tick { stage: Stage::Held, at_ns });
    }

    /// The program goes down: drops what is armed when the series has ended.
    pub(super) fn tick_shutdown(&mut self) {
        self.unfinished.tick = Some(Tick { stage: Stage::Shutdown, at_ns: self.now_ns });
    }

    /// Does one stage.
    pub(super) fn go_on(&mut self, Tick { stage, at_ns }: Tick) {
        let upstreams = self.hold_queues.len();
        let next = match stage {
            Stage::Held => {
                self.begin_open_queues();
                Stage::Waiting
            }
            Stage::Waiting => {
                self.tick_waiting(at_ns);
                Stage::Leave
            }
            Stage::Leave => {
                self.is_moving = true;
                Stage::Complete
            }
            Stage::Complete => {
                self.check_end();
                Stage::Expire(0)
            }
            Stage::Expire(upstream) if upstream < upstreams => {
                self.expire_queue(upstream, at_ns);
                Stage::Expire(upstream + 1)
            }
            Stage::Expire(_) => {
                self.begin_open_queues();
                Stage::Start
            }
            Stage::Start => {
                if self.start_deadline_ns().is_some_and(|deadline_ns| at_ns >= deadline_ns) {
                    self.end_without_data(at_ns, "no image arrived within the start time-out");
                }
                Stage::End
            }
            Stage::End => {
                self.tick_end(at_ns);
                Stage::Over
            }
            // A series has ended: messages that waited for that do not wait for the next event too.
            Stage::Over | Stage::CloseOver if self.current.is_none() && self.is_changed => Stage::Held,
            Stage::Over if !self.is_over() => return,
            Stage::Over => {
                self.reorder.iter_mut().for_each(ReorderQueue::finish);
                Stage::CloseOver
            }
            Stage::CloseOver if self.current.is_some() => {
                self.close_over();
                Stage::ExpireOver(0)
            }
            Stage::CloseOver => return self.disarm_over(),
            Stage::ExpireOver(upstream) if upstream < upstreams => {
                self.expire_queue(upstream, at_ns);
                Stage::ExpireOver(upstream + 1)
            }
            Stage::ExpireOver(_) => {
                self.begin_open_queues();
                Stage::CloseOver
            }
            Stage::Shutdown => return self.disarm(Ended::Stopped, "the program is shutting down"),
        };
        self.unfinished.tick = Some(Tick { stage: next, at_ns });
    }

    fn tick_waiting(&mut self, at_ns: u64) {
        // After a sink has blocked everything, missing messages may still wait in front of the pull threads.
        if at_ns >= self.images.patient_until(self.spec.wait_ns) {
            self.images.order.tick(at_ns);
            let is_over = self.is_over();
            if let Some(reorder) = &mut self.reorder {
                reorder.tick(at_ns);
                if is_over {
                    reorder.finish();
                }
            }
        }
    }

    fn tick_end(&mut self, at_ns: u64) {
        let Some(current) = &mut self.current else { return };
        // Waiting for a slow sink does not count as silence of the sender.
        current.active_ns = current.active_ns.max(self.images.committed_ns);
        if let (Some(drain), Some(until)) = (&current.drain, current.drain_until(self.spec.drain_ns))
            && at_ns >= until
        {
            let (ended, reason) = (drain.ended, drain.reason.clone());
            self.close(ended, &reason);
        } else if current.has_image && at_ns >= current.active_ns.saturating_add(self.spec.stall_timeout_ns) {
            self.close(Ended::Stalled, "no message arrived within the stall time-out");
        }
    }

    /// When the next time-out is due.
    pub fn deadline_ns(&self) -> Option<u64> {
        let patient_until = self.images.patient_until(self.spec.wait_ns);
        let order = self.images.order.deadline_ns().map(|at_ns| at_ns.max(patient_until));
        let mut at = [order, None, None, None, None, None];
        if let Some(current) = &self.current {
            let silence = current.active_ns.max(self.images.committed_ns).saturating_add(self.spec.stall_timeout_ns);
            at[1] = current.has_image.then_some(silence);
            at[2] = current.drain_until(self.spec.drain_ns);
        }
        at[3] = self.start_deadline_ns();
        let waiting = self.hold_queues.iter().filter_map(HoldQueue::since_ns);
        at[4] = waiting.min().map(|since_ns| self.hold_queue_until(since_ns));
        at[5] = self.reorder.as_ref().and_then(ReorderQueue::deadline_ns).map(|at_ns| at_ns.max(patient_until));
        at.into_iter().flatten().min()
    }

    fn start_deadline_ns(&self) -> Option<u64> {
        let has_image = self.current.as_ref().is_some_and(|current| current.has_image);
        let is_expected = self.current.is_some() || self.armed.is_some();
        let at_ns = self.clock_ns?.saturating_add(self.spec.start_timeout_ns);
        (is_expected && !has_image && at_ns < u64::MAX).then_some(at_ns)
    }
}
