//! The thread that puts images in order and knows where a series begins and ends. It alone changes the state of a
//! series; others send it messages, commands and finished images.

use super::control::{ArmOrder, Command, Notice, SeriesControl};
use super::current::{Current, Refused, are_near};
use super::event::{Event, ImagePart, Read, SeriesKey};
use super::hold_queue::{HoldQueue, Waits};
use super::images::{Held, Images};
use super::membership::{Judgement, LEAVING, NOT_ARMED, Received, SenderQuirks};
use super::pull::{Batch, Closed, Incoming, Receipt};
use super::reorder::ReorderQueue;
use super::spec::SeriesSpec;
use crate::output_queue::OutputQueues;
use crossbeam_channel::{Receiver, never, select};
use konkordia_core::order::Verdict;
use konkordia_core::series::{Accept, Ended, Positions, SeriesLedger, SeriesStart, UpstreamLedger};
use konkordia_core::state::State;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TWICE: &str = "its image was already received (duplicate)";
const LATE: &str = "it arrived too late, or its image was already received";
const UNANNOUNCED: &str = "the header of its series did not arrive in time";

pub(crate) struct Sorter {
    pub(super) spec: Arc<SeriesSpec>,
    pub(super) quirks: SenderQuirks,
    pub(super) control: Arc<SeriesControl>,
    pub(super) output_queues: Arc<OutputQueues>,
    pub(super) images: Images,
    pub(super) hold_queues: Vec<HoldQueue>,
    /// The reorder queue, where several upstreams carry one stream and its messages have numbers.
    pub(super) reorder: Option<ReorderQueue>,
    pub(super) current: Option<Current>,
    /// What was received of the previous series.
    pub(super) last: Option<Received>,
    pub(super) armed: Option<ArmOrder>,
    /// When the detector was started.
    pub(super) clock_ns: Option<u64>,
    pub(super) series_started: u64,
    pub(super) series_ended: u64,
    /// Reasons that were reported since the last series began, with their upstream.
    pub(super) told: Vec<(usize, &'static str)>,
    /// Something has changed for which held messages may have waited.
    pub(super) is_changed: bool,
    pub(super) failure: Option<String>,
    /// When the newest message taken so far was received.
    last_received_ns: u64,
}

impl Sorter {
    pub fn new(
        spec: Arc<SeriesSpec>,
        quirks: SenderQuirks,
        control: Arc<SeriesControl>,
        output_queues: Arc<OutputQueues>,
        images: Images,
    ) -> Self {
        let wait_ns = spec.wait_ns;
        let hold_queues = std::iter::repeat_with(HoldQueue::default).take(quirks.upstreams).collect();
        Self {
            spec,
            quirks,
            control,
            output_queues,
            images,
            hold_queues,
            reorder: quirks.is_sequenced.then(|| ReorderQueue::new(wait_ns, quirks.upstreams)),
            current: None,
            last: None,
            armed: None,
            clock_ns: None,
            series_started: 0,
            series_ended: 0,
            told: Vec::new(),
            is_changed: false,
            failure: None,
            last_received_ns: 0,
        }
    }

    /// Runs until it must shut down.
    pub fn run(&mut self, inbox: &Receiver<Batch>, commands: &Receiver<Command>) {
        let nothing = never();
        self.publish();
        loop {
            let timeout = self.timeout();
            let done = self.images.done().unwrap_or(&nothing).clone();
            select! {
                recv(commands) -> command => {
                    let Ok(command) = command else { return };
                    if self.obey(command) {
                        break;
                    }
                }
                recv(inbox) -> batch => match batch {
                    Ok(batch) => if self.take_batch(batch, commands) {
                        break;
                    },
                    // All pull threads have ended: only commands are left.
                    Err(_) => {
                        let Ok(command) = commands.recv() else { return };
                        if self.obey(command) {
                            break;
                        }
                    }
                },
                recv(done) -> done => if let Ok(done) = done {
                    self.images.take_done(done);
                    self.images.commit_front();
                },
                default(timeout) => {}
            }
            self.images.pump(0);
            self.open_hold_queues();
            // While messages wait, the time is that of the newest message taken: an upstream whose messages were not
            // read yet is not silent.
            let now_ns = if inbox.is_empty() { self.control.now_ns() } else { self.last_received_ns };
            self.on_time(now_ns);
            self.publish();
        }
        self.images.settle();
        self.publish();
    }

    /// True if the thread must end.
    fn take_batch(&mut self, batch: Batch, commands: &Receiver<Command>) -> bool {
        let Batch { upstream, messages, closed } = batch;
        for incoming in messages {
            self.last_received_ns = self.last_received_ns.max(incoming.received_ns);
            if self.control.is_cancelling() {
                // A cancel comes first: messages that were sent before it must not be taken after it.
                while let Ok(command) = commands.try_recv() {
                    if self.obey(command) {
                        return true;
                    }
                }
            }
            if self.reorder.is_some() {
                self.line_up(upstream, incoming);
            } else if self.hold_queues[upstream].may_pass(&incoming) {
                self.offer(upstream, incoming, true);
            } else {
                self.hold_queues[upstream].push(incoming);
            }
        }
        self.tell_unreadable();
        if let Some(closed) = closed {
            self.hold_queues[upstream].is_closed = true;
            if let Closed::Failed(why) = closed {
                let source = self.control.pulls[upstream].name.clone();
                self.failure = Some(format!("{source}: {why}"));
                self.control.notify(Notice::SourceFailed { upstream, source, why });
            }
        }
        false
    }

    /// Takes a message, or holds it. True if the messages behind it have to wait too.
    fn offer(&mut self, upstream: usize, incoming: Incoming, is_patient: bool) -> bool {
        match self.take(upstream, incoming, is_patient) {
            Some((waits, incoming)) => {
                let image = incoming.read.as_ref().ok().and_then(|read| self.position_of(upstream, read));
                self.hold_queues[upstream].put(waits, image, incoming)
            }
            None => false,
        }
    }

    /// Puts a message into the reorder queue, and takes those whose turn it is.
    fn line_up(&mut self, upstream: usize, incoming: Incoming) {
        let Some(reorder) = &mut self.reorder else { return };
        match reorder.push(incoming) {
            Ok(()) => self.take_lined_up(),
            Err(copy) if copy.read.as_ref().is_ok_and(|read| read.message_number.is_some()) => {
                self.count(copy.receipt, |ledger| ledger.duplicate += 1);
            }
            // Without a number it has no place in the order.
            Err(incoming) => drop(self.take(upstream, incoming, false)),
        }
    }

    pub(super) fn take_lined_up(&mut self) {
        while let Some(incoming) = self.reorder.as_mut().and_then(ReorderQueue::pop) {
            // Messages in order do not have to wait.
            drop(self.take(incoming.receipt.upstream, incoming, false));
        }
    }

    /// Judges a message and acts on it. Gives it back if it has to wait; if not `is_patient`, only a message of the
    /// next series waits.
    fn take(&mut self, upstream: usize, incoming: Incoming, is_patient: bool) -> Option<(Waits, Incoming)> {
        loop {
            let read = match &incoming.read {
                Ok(read) => read,
                Err(_) => {
                    self.refuse_malformed(incoming);
                    return None;
                }
            };
            match self.judge(upstream, read) {
                Judgement::Begin => {
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
                }
                Judgement::Next if self.quirks.is_single() => {
                    let has_end = self.current.as_ref().is_some_and(|current| current.received_of_series.ended != 0);
                    let (ended, reason) = superseded(&self.quirks, has_end);
                    self.close(ended, reason);
                }
                Judgement::Next => {
                    self.wait_for_end(upstream, read);
                    return Some((Waits::End, incoming));
                }
                Judgement::Unannounced if is_patient => return Some((Waits::Header, incoming)),
                Judgement::Take if is_patient && self.is_ahead(upstream, read) => return Some((Waits::Window, incoming)),
                judgement => {
                    self.act(upstream, incoming, judgement);
                    return None;
                }
            }
        }
    }

    fn judge(&self, upstream: usize, read: &Read) -> Judgement {
        let last = self.last.as_ref();
        match &self.current {
            Some(current) => current.received_of_series.judge(&self.quirks, last, upstream, read),
            None if self.control.is_leaving() && !matches!(read.event, Event::Other) => Judgement::Foreign(LEAVING),
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

    fn is_in_window(&self, number: u64) -> bool {
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
        let now_ns = self.control.now_ns();
        let Some(current) = &self.current else { return false };
        self.hold_queues.iter().enumerate().all(|(upstream, hold_queue)| {
            let has_all = (current.received_of_series.ended | current.received_of_series.over) >> upstream & 1 == 1;
            let is_silent = now_ns.saturating_sub(current.last_received_ns[upstream]) >= self.spec.wait_ns;
            has_all || !hold_queue.is_empty() || (!hold_queue.is_closed && !is_silent)
        })
    }

    fn act(&mut self, upstream: usize, incoming: Incoming, judgement: Judgement) {
        let Incoming { read, receipt, received_ns } = incoming;
        let Ok(Read { message_number, event }) = read else { return };
        let is_image = matches!(event, Event::Part(_));
        if let (Event::End(key), None, Some(last)) = (&event, &self.current, &mut self.last)
            && last.key == *key
        {
            // This upstream brings no more of that series: where the protocol has no start, its next image begins a
            // series.
            last.ended |= 1 << upstream;
        }
        match judgement {
            Judgement::Take => self.take_own(upstream, message_number, event, receipt, received_ns),
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
    fn take_own(&mut self, upstream: usize, number: Option<u64>, event: Event, receipt: Receipt, now_ns: u64) {
        let Some(current) = &mut self.current else { return };
        let (quirks, window) = (self.quirks, self.spec.window_images.saturating_add(64));
        match event {
            Event::Part(part) => {
                current.received_of_series.on_message(&quirks, upstream, number);
                self.take_part(upstream, number, part, receipt, now_ns);
            }
            Event::Start(_, start) => {
                if self.images.pending.as_mut().is_some_and(|pending| pending.add(upstream, start)) {
                    self.images.announce();
                }
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

    fn take_part(&mut self, upstream: usize, number: Option<u64>, part: Box<ImagePart>, receipt: Receipt, now_ns: u64) {
        let (image, is_counted) = (self.position(upstream, number, part.number), self.is_counted_by_arrival(number));
        let Some(current) = &mut self.current else { return };
        let label = part.number;
        let index = if self.quirks.is_modular { upstream as u32 } else { 0 };
        let held = match current.check(&self.spec, upstream, &part, image, self.images.order.next()) {
            Ok(()) => Some(Held { part, receipt, received_ns: now_ns }),
            Err(Refused::Foreign(why)) => {
                self.throw_away(upstream, true, why);
                return self.refuse_foreign(receipt, why);
            }
            Err(Refused::Unasked(why)) => return self.refuse_foreign(receipt, why),
            Err(Refused::Malformed(why)) => {
                self.tell(upstream, "pixels", &why);
                None
            }
        };
        if let Some(current) = &mut self.current {
            current.received_of_series.on_image(&self.quirks, upstream, image, number);
            if is_counted {
                current.on_arrival(label);
            }
        }
        let is_malformed = held.is_none();
        let (verdict, back) = self.images.place(image, index, now_ns, held);
        drop(back);
        match verdict {
            _ if is_malformed => {
                self.control.pulls[upstream].budget.refuse(receipt.sequence);
                self.count(receipt, |ledger| ledger.malformed += 1);
            }
            Verdict::Placed => {
                let upstream_ledger = &mut self.images.ledger.upstreams[upstream];
                upstream_ledger.received += 1;
                upstream_ledger.received_bytes += receipt.bytes;
                upstream_ledger.placed += 1;
                self.note_placed(upstream, now_ns);
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
        self.images.pump(0);
        self.check_end();
    }

    fn note_placed(&mut self, upstream: usize, now_ns: u64) {
        if let Some(current) = &mut self.current {
            current.touch(upstream, now_ns);
            if !current.has_image {
                current.has_image = true;
                self.control.notify(Notice::First { received_ns: now_ns });
            }
        }
    }

    /// Counts an image that is kept nowhere while a series is being received: that series is no success, whatever else
    /// is in it.
    fn throw_away(&mut self, upstream: usize, is_image: bool, why: &'static str) {
        if is_image && self.current.is_some() {
            self.images.ledger.not_kept += 1;
            self.tell(upstream, why, why);
        }
    }

    /// Counts the verdict of a message that is not kept, and releases its memory.
    fn count(&mut self, receipt: Receipt, verdict: impl FnOnce(&mut UpstreamLedger)) {
        let ledger = &mut self.images.ledger.upstreams[receipt.upstream];
        ledger.received += 1;
        ledger.received_bytes += receipt.bytes;
        verdict(ledger);
        self.images.drop_message(receipt);
    }

    fn refuse_malformed(&mut self, incoming: Incoming) {
        if let Err(why) = &incoming.read {
            self.tell(incoming.receipt.upstream, "malformed", why);
        }
        // Its image is not known.
        self.images.ledger.not_kept += u64::from(self.current.is_some());
        self.count(incoming.receipt, |ledger| ledger.malformed += 1);
    }

    fn refuse_foreign(&mut self, receipt: Receipt, why: &'static str) {
        self.tell(receipt.upstream, why, why);
        self.control.pulls[receipt.upstream].budget.refuse(receipt.sequence);
        self.count(receipt, |ledger| ledger.foreign += 1);
    }

    /// Reports once per upstream, reason and series why messages are not taken.
    fn tell(&mut self, upstream: usize, reason: &'static str, why: &str) {
        if !self.told.contains(&(upstream, reason)) {
            self.told.push((upstream, reason));
            self.control.notify(Notice::Refused { upstream, why: why.into() });
        }
    }

    pub(super) fn tell_unreadable(&mut self) {
        if let Some((upstream, why)) = self.images.unreadable.clone() {
            self.tell(upstream, "unreadable", &why);
        }
    }

    /// Takes held messages, as far as they can be judged now.
    fn open_hold_queues(&mut self) {
        loop {
            let is_changed = std::mem::take(&mut self.is_changed);
            let next = self.images.order.next();
            self.note_followed(next);
            for upstream in 0..self.hold_queues.len() {
                let first_ahead = self.hold_queues[upstream].first_ahead();
                if is_changed || first_ahead.is_some_and(|image| self.is_in_window(image)) {
                    self.open_hold_queue(upstream, true);
                }
            }
            if !self.is_changed && self.images.order.next() == next {
                return;
            }
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

    /// Takes the held messages of an upstream, as far as possible. If not `is_patient`, the first one is taken whatever
    /// it waits for.
    fn open_hold_queue(&mut self, upstream: usize, mut is_patient: bool) {
        while let Some(image) = self.hold_queues[upstream].first_ahead() {
            if is_patient && self.current.is_some() && !self.is_in_window(image) {
                break;
            }
            let Some(incoming) = self.hold_queues[upstream].pop_ahead() else { break };
            self.offer(upstream, incoming, is_patient);
            is_patient = true;
        }
        while let Some(incoming) = self.hold_queues[upstream].pop_held() {
            if self.offer(upstream, incoming, is_patient) {
                return;
            }
            // The remaining messages may be of the series that is being received after all.
            is_patient |= self.current.is_some();
        }
    }

    /// Releases messages that have waited too long, or are too many. Those whose header did not come are foreign;
    /// images ahead of the window move it on.
    pub(super) fn expire_hold_queues(&mut self, now_ns: u64) {
        let is_over = self.is_over();
        for upstream in 0..self.hold_queues.len() {
            let hold_queue = &self.hold_queues[upstream];
            let Some(since_ns) = hold_queue.since_ns() else { continue };
            if is_over || hold_queue.is_crowded(self.spec.window_images) || now_ns >= self.hold_queue_until(since_ns) {
                self.open_hold_queue(upstream, false);
            }
        }
        self.open_hold_queues();
    }

    /// Until when a message waits that came at `since_ns`.
    pub(super) fn hold_queue_until(&self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.spec.wait_ns).max(self.images.patient_until(self.spec.wait_ns))
    }

    /// No message can come any more.
    pub(super) fn is_over(&self) -> bool {
        self.hold_queues.iter().all(|hold_queue| hold_queue.is_closed)
    }

    fn timeout(&self) -> Duration {
        match self.deadline_ns() {
            None => Duration::from_secs(3600),
            // A little more, so that the time has passed when the thread wakes.
            Some(at_ns) => Duration::from_nanos(at_ns.saturating_sub(self.control.now_ns()).saturating_add(10_000)),
        }
    }

    pub(super) fn publish(&mut self) {
        self.images.settle();
        let control = &self.control;
        for (upstream, (pull, hold_queue)) in control.pulls.iter().zip(&self.hold_queues).enumerate() {
            let lined_up = self.reorder.as_ref().map_or(0, |reorder| reorder.count(upstream));
            pull.held.store(hold_queue.len() as u64 + lined_up, Ordering::Relaxed);
        }
        let mut seen = control.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        seen.state = match &self.current {
            None if self.armed.is_some() => State::Armed,
            None => State::Idle,
            Some(current) if current.drain.is_some() => State::Draining,
            Some(_) => State::Receiving,
        };
        match &self.current {
            Some(current) => {
                seen.images_planned = current.planned.map(|images| images / u64::from(self.spec.sum_frames));
                seen.ledger.clone_from(&self.images.ledger);
                seen.between = SeriesLedger::default();
            }
            None => seen.between.clone_from(&self.images.ledger),
        }
        (seen.series_started, seen.series_ended) = (self.series_started, self.series_ended);
        (seen.images_committed, seen.committed_bytes) = (self.images.committed, self.images.committed_bytes);
        seen.images_waiting = self.images.order.waiting();
        seen.images_working = self.images.working() as u64;
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

/// Numbers the series where the protocol does not.
pub(super) fn numbered(mut start: SeriesStart, key: SeriesKey, series_started: u64) -> SeriesStart {
    if start.series == 0 && key.0 == 0 {
        start.series = series_started;
    }
    start
}
