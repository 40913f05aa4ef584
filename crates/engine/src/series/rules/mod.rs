//! The rules of series: which message belongs to which series, where its image stands, what is missing, when a series
//! begins and ends. Read [`Rules`] first, then [`io::Action`].
//!
//! Nothing here has a clock, a thread, a channel or a lock: [`Rules`] gets events with their time, and says what has to
//! be done. So a seed replays every case, however long it takes in the world, and [`super::sort`] is all that is left
//! of the thread.

mod current;
mod hold_queue;
mod holding;
mod images;
pub(crate) mod io;
mod lifecycle;
pub(crate) mod membership;
mod reorder;
pub(crate) mod spec;
pub(crate) mod sum;
mod taking;
mod times;
mod unfinished;

#[cfg(test)]
mod life_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod world;

use super::notice::{ArmOrder, Notice};
use current::Current;
use hold_queue::HoldQueue;
use images::Images;
use io::{Action, Done, Incoming};
use konkordia_core::series::SeriesLedger;
use konkordia_core::state::State;
use membership::{Received, SenderQuirks};
use reorder::ReorderQueue;
use spec::RulesSpec;
use std::collections::VecDeque;
use unfinished::Unfinished;

/// The rules of the series of one detector, with everything that they have to remember.
///
/// After every event, [`Self::poll`] is called and its actions are carried out until it returns `None`. If
/// [`Self::waits_for_work`] then, the next event must be a [`Done`]. After each batch of events, and when
/// [`Self::deadline_ns`] has passed, comes a [`Self::tick`]. Times are in ns of one clock and never go back.
pub(crate) struct Rules {
    spec: RulesSpec,
    quirks: SenderQuirks,
    images: Images,
    hold_queues: Vec<HoldQueue>,
    /// The reorder queue, where several upstreams carry one stream and its messages have numbers.
    reorder: Option<ReorderQueue>,
    current: Option<Current>,
    /// What was received of the previous series.
    last: Option<Received>,
    armed: Option<ArmOrder>,
    /// When the detector was started.
    clock_ns: Option<u64>,
    series_started: u64,
    series_ended: u64,
    /// Reasons that were reported since the last series began, with their upstream.
    reported: Vec<(usize, &'static str)>,
    /// Something has changed for which held messages may have waited.
    is_changed: bool,
    failure: Option<String>,
    /// Time of the newest event.
    now_ns: u64,
    is_cancelling: bool,
    is_leaving: bool,
    actions: VecDeque<Action>,
    /// Images may be able to move on.
    is_moving: bool,
    unfinished: Unfinished,
}

impl Rules {
    pub fn new(spec: RulesSpec, quirks: SenderQuirks) -> Self {
        Self {
            images: Images::new(&spec, quirks.upstreams),
            hold_queues: std::iter::repeat_with(HoldQueue::default).take(quirks.upstreams).collect(),
            reorder: quirks.is_sequenced.then(|| ReorderQueue::new(spec.wait_ns, quirks.upstreams)),
            spec,
            quirks,
            current: None,
            last: None,
            armed: None,
            clock_ns: None,
            series_started: 0,
            series_ended: 0,
            reported: Vec::new(),
            is_changed: false,
            failure: None,
            now_ns: 0,
            is_cancelling: false,
            is_leaving: false,
            actions: VecDeque::new(),
            is_moving: false,
            unfinished: Unfinished::default(),
        }
    }

    /// The next action; `None` if there is nothing to do before the next event.
    pub fn poll(&mut self) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            self.is_moving = self.is_moving && self.images.advance(self.is_cancelling, &mut self.actions);
            if !self.is_moving && !self.step() {
                return self.actions.pop_front();
            }
        }
    }

    /// Goes on with what is unfinished; false if that is nothing, or if it has to wait for workers.
    fn step(&mut self) -> bool {
        if let Some(placing) = self.unfinished.placing.take() {
            return self.place(placing);
        }
        if std::mem::take(&mut self.unfinished.checks_end) {
            self.check_end();
            return true;
        }
        if let Some(closing) = self.unfinished.closing.take() {
            return self.close_if_committed(closing);
        }
        if let Some((incoming, is_patient)) = self.unfinished.again.take() {
            self.offer(incoming, is_patient);
            return true;
        }
        // Messages in order do not have to wait.
        if let Some(incoming) = self.reorder.as_mut().and_then(ReorderQueue::pop) {
            self.take(incoming, false);
            return true;
        }
        if let Some(queue) = self.unfinished.queue.take() {
            self.open_queue(queue);
            return true;
        }
        if let Some(queues) = self.unfinished.queues.take() {
            self.open_queues(queues);
            return true;
        }
        match self.unfinished.tick.take() {
            Some(tick) => self.go_on(tick),
            None => return false,
        }
        true
    }

    /// True if nothing can be done before a worker has finished an image.
    pub fn waits_for_work(&self) -> bool {
        self.unfinished.placing.is_some() || self.unfinished.closing.is_some()
    }

    /// A message has come.
    pub fn on_message(&mut self, incoming: Incoming, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        let hold_queue = &mut self.hold_queues[incoming.receipt.upstream];
        if let Some(reorder) = &mut self.reorder {
            match reorder.push(incoming) {
                Ok(()) => {}
                Err(copy) if copy.read.as_ref().is_ok_and(|read| read.message_number.is_some()) => {
                    self.count(copy.receipt, |ledger| ledger.duplicate += 1);
                }
                // Without a number it has no place in the order.
                Err(incoming) => drop(self.take(incoming, false)),
            }
        } else if hold_queue.may_pass(&incoming) {
            self.offer(incoming, true);
        } else {
            hold_queue.push(incoming);
        }
    }

    /// No message comes from this upstream any more; with the failure of its source, if it has failed.
    pub fn on_closed(&mut self, upstream: usize, failure: Option<String>) {
        self.hold_queues[upstream].is_closed = true;
        self.failure = failure.or_else(|| self.failure.take());
    }

    /// A worker has finished an image.
    pub fn on_done(&mut self, done: Done) {
        let refused = self.images.take_done(done);
        self.actions.extend(refused.into_iter().map(|(upstream, sequence)| Action::Refuse(upstream, sequence)));
        self.is_moving = true;
    }

    /// An image was handed on; this began at `before_ns`.
    pub fn on_committed(&mut self, before_ns: u64, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.images.on_committed(before_ns, now_ns);
    }

    /// The pixels of [`Action::Add`] could not be added: they are not like those of the images before.
    pub fn on_not_added(&mut self) {
        self.images.on_not_added();
    }

    /// Whether a cancel is on its way: images that have not left are then not handed on any more.
    pub fn set_cancelling(&mut self, is_cancelling: bool) {
        self.is_cancelling = is_cancelling;
    }

    /// From now on no series begins.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Memory of messages that was released since the last call: upstream, bytes, messages.
    pub fn released(&mut self) -> impl Iterator<Item = (usize, u64, u64)> {
        self.images.released()
    }

    /// The state for snapshots.
    pub fn state(&self) -> State {
        match &self.current {
            None if self.armed.is_some() => State::Armed,
            None => State::Idle,
            Some(current) if current.drain.is_some() => State::Draining,
            Some(_) => State::Receiving,
        }
    }

    /// Images (sums) that the series is to have; `None` if that is not known, or if there is no series.
    pub fn images_planned(&self) -> Option<u64> {
        let planned = self.current.as_ref()?.planned?;
        Some(planned / u64::from(self.spec.sum_frames))
    }

    /// True if a series is being received.
    pub fn has_series(&self) -> bool {
        self.current.is_some()
    }

    /// The ledger of the series that is being received, or of what came since the last one.
    pub fn ledger(&self) -> &SeriesLedger {
        &self.images.ledger
    }

    /// Series that were begun, and that have ended.
    pub fn series(&self) -> (u64, u64) {
        (self.series_started, self.series_ended)
    }

    /// Images that wait for another one or for missing parts, and images that workers have or that wait behind one that
    /// they have.
    pub fn waiting(&self) -> (u64, u64) {
        (self.images.order.waiting(), self.images.working() as u64)
    }

    /// Messages of an upstream that are held back.
    pub fn held(&self, upstream: usize) -> u64 {
        let reordering = self.reorder.as_ref().map_or(0, |reorder| reorder.count(upstream));
        self.hold_queues[upstream].len() as u64 + reordering
    }

    fn notify(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notify(notice));
    }

    /// Reports once per upstream, reason and series why messages are not taken.
    fn report(&mut self, upstream: usize, reason: &'static str, why: &str) {
        if !self.reported.contains(&(upstream, reason)) {
            self.reported.push((upstream, reason));
            self.notify(Notice::Refused { upstream, why: why.into() });
        }
    }

    fn report_unreadable(&mut self) {
        if let Some((upstream, why)) = self.images.unreadable.clone() {
            self.report(upstream, "unreadable", &why);
        }
    }

    /// No message can come any more.
    fn is_over(&self) -> bool {
        self.hold_queues.iter().all(|hold_queue| hold_queue.is_closed)
    }
}
