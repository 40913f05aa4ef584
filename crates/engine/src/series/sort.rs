//! The thread that puts images in order and knows where a series begins and ends. It alone changes the state of a series; others send it
//! messages, commands and finished images.

use super::belong::{Heard, Judgement, LEAVING, Manners, NOT_ARMED};
use super::control::{ArmOrder, Command, Notice, Phase, SeriesControl};
use super::current::{Current, Refused, are_near};
use super::event::{Event, ImagePart, Read, SeriesKey};
use super::gate::{Gate, Waits};
use super::images::{Held, Images};
use super::lineup::Lineup;
use super::pull::{Batch, Closed, Incoming, Receipt};
use super::{Accept, Positions, SeriesSpec};
use crate::outlet::Outlets;
use crossbeam_channel::{Receiver, never, select};
use konkordia_core::order::Verdict;
use konkordia_core::series::{SeriesEnded, SeriesLedger, SeriesStart, UpstreamLedger};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TWICE: &str = "its image came before";
const LATE: &str = "it comes too late, or its image came before";
const UNANNOUNCED: &str = "no header of its series came in time";

pub(crate) struct Sorter {
    pub(super) spec: Arc<SeriesSpec>,
    pub(super) manners: Manners,
    pub(super) control: Arc<SeriesControl>,
    pub(super) outlets: Arc<Outlets>,
    pub(super) images: Images,
    pub(super) gates: Vec<Gate>,
    /// Where one stream comes over several upstreams and says the number of each message.
    pub(super) lineup: Option<Lineup>,
    pub(super) current: Option<Current>,
    /// What was said about the series before.
    pub(super) last: Option<Heard>,
    pub(super) armed: Option<ArmOrder>,
    /// When the detector was told to begin.
    pub(super) clock_ns: Option<u64>,
    pub(super) series_started: u64,
    pub(super) series_ended: u64,
    /// Reasons that were told since the last series began.
    pub(super) told: Vec<(usize, &'static str)>,
    /// Gates may open.
    pub(super) is_changed: bool,
    pub(super) failure: Option<String>,
    /// When the newest message was received that was looked at.
    heard_ns: u64,
}

impl Sorter {
    pub fn new(
        spec: Arc<SeriesSpec>,
        manners: Manners,
        control: Arc<SeriesControl>,
        outlets: Arc<Outlets>,
        images: Images,
    ) -> Self {
        let wait_ns = spec.wait_ns;
        let gates = std::iter::repeat_with(Gate::default).take(manners.upstreams).collect();
        Self {
            spec,
            manners,
            control,
            outlets,
            images,
            gates,
            lineup: manners.is_sequenced.then(|| Lineup::new(wait_ns, manners.upstreams)),
            current: None,
            last: None,
            armed: None,
            clock_ns: None,
            series_started: 0,
            series_ended: 0,
            told: Vec::new(),
            is_changed: false,
            failure: None,
            heard_ns: 0,
        }
    }

    /// Until it is told to shut down.
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
            self.open_gates();
            // While messages wait it is as late as the newest that was looked at: nobody is silent who could not be heard.
            let now_ns = if inbox.is_empty() { self.control.now_ns() } else { self.heard_ns };
            self.on_time(now_ns);
            self.publish();
        }
        self.images.settle();
        self.publish();
    }

    /// True if it is to end.
    fn take_batch(&mut self, batch: Batch, commands: &Receiver<Command>) -> bool {
        let Batch { upstream, messages, closed } = batch;
        for incoming in messages {
            self.heard_ns = self.heard_ns.max(incoming.received_ns);
            if self.control.is_cancelling() {
                // What was sent before the cancel is not to be received after it.
                while let Ok(command) = commands.try_recv() {
                    if self.obey(command) {
                        return true;
                    }
                }
            }
            if self.lineup.is_some() {
                self.line_up(upstream, incoming);
            } else if self.gates[upstream].may_pass(&incoming) {
                self.offer(upstream, incoming, true);
            } else {
                self.gates[upstream].push(incoming);
            }
        }
        self.tell_unreadable();
        if let Some(closed) = closed {
            self.gates[upstream].is_closed = true;
            if let Closed::Failed(why) = closed {
                let source = self.control.pulls[upstream].name.clone();
                self.failure = Some(format!("{source}: {why}"));
                self.control.notify(Notice::SourceFailed { upstream, source, why });
            }
        }
        false
    }

    /// Takes a message, or keeps it. True if what follows has to wait for it.
    fn offer(&mut self, upstream: usize, incoming: Incoming, is_patient: bool) -> bool {
        match self.take(upstream, incoming, is_patient) {
            Some((waits, incoming)) => {
                let image = incoming.read.as_ref().ok().and_then(|read| self.position_of(upstream, read));
                self.gates[upstream].put(waits, image, incoming)
            }
            None => false,
        }
    }

    /// Takes a message of a stream that comes over several upstreams in its turn.
    fn line_up(&mut self, upstream: usize, incoming: Incoming) {
        let Some(lineup) = &mut self.lineup else { return };
        match lineup.push(incoming) {
            Ok(()) => self.take_lined_up(),
            Err(copy) if copy.read.as_ref().is_ok_and(|read| read.message_number.is_some()) => {
                self.count(copy.receipt, |ledger| ledger.duplicate += 1);
            }
            // Nobody knows its place.
            Err(incoming) => drop(self.take(upstream, incoming, false)),
        }
    }

    pub(super) fn take_lined_up(&mut self) {
        while let Some(incoming) = self.lineup.as_mut().and_then(Lineup::pop) {
            // In their order none has to wait.
            drop(self.take(incoming.receipt.upstream, incoming, false));
        }
    }

    /// Says of a message what becomes of it, and does it. Gives it back if it has to wait; without patience none does that could be foreign.
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
                Judgement::Next if self.manners.is_single() => {
                    let has_end = self.current.as_ref().is_some_and(|current| current.heard.ended != 0);
                    let (ended, reason) = superseded(&self.manners, has_end);
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
            Some(current) => current.heard.judge(&self.manners, last, upstream, read),
            None if self.control.is_leaving() && !matches!(read.event, Event::Other) => Judgement::Foreign(LEAVING),
            None if self.spec.accept == Accept::Always || self.armed.is_some() => {
                Heard::judge_idle(&self.manners, last, upstream, read)
            }
            None if matches!(read.event, Event::Other) => Judgement::Control,
            None => Judgement::Foreign(NOT_ARMED),
        }
    }

    /// An image ahead of the window waits while upstreams are behind that are alive: holding their messages back would lose what they bring.
    fn is_ahead(&self, upstream: usize, read: &Read) -> bool {
        self.position_of(upstream, read).is_some_and(|image| !self.is_in_window(image))
    }

    fn position_of(&self, upstream: usize, read: &Read) -> Option<u64> {
        let Event::Part(part) = &read.event else { return None };
        Some(self.position(upstream, read.message_number, part.number))
    }

    /// Where the image of a message of this series stands, which its sender calls `frame`.
    fn position(&self, upstream: usize, number: Option<u64>, frame: u64) -> u64 {
        let Some(current) = self.current.as_ref().filter(|_| self.spec.positions == Positions::Messages) else { return frame };
        match (number, current.heard.header_number(&self.manners, upstream)) {
            (Some(number), Some(header)) => number.saturating_sub(header).saturating_sub(1),
            // Nothing tells what several upstreams bring apart but the numbers of their images.
            _ if !self.manners.is_single() => frame,
            _ => current.arrived,
        }
    }

    fn is_counted_by_arrival(&self, number: Option<u64>) -> bool {
        self.spec.positions == Positions::Messages && number.is_none() && self.manners.is_single()
    }

    fn is_in_window(&self, number: u64) -> bool {
        let next = self.images.order.next();
        if self.current.as_ref().is_some_and(|current| current.is_doubted(number, next)) {
            return false;
        }
        let is_beyond = number.saturating_sub(next) >= self.spec.window_images;
        !is_beyond || self.manners.is_single() || !self.are_all_alive()
    }

    /// Does waiting for slower upstreams make sense? Not if one is closed, or has been silent for longer than images wait.
    fn are_all_alive(&self) -> bool {
        let now_ns = self.control.now_ns();
        let Some(current) = &self.current else { return false };
        self.gates.iter().enumerate().all(|(upstream, gate)| {
            let has_all = (current.heard.ended | current.heard.over) >> upstream & 1 == 1;
            let is_silent = now_ns.saturating_sub(current.heard_ns[upstream]) >= self.spec.wait_ns;
            has_all || !gate.is_empty() || (!gate.is_closed && !is_silent)
        })
    }

    fn act(&mut self, upstream: usize, incoming: Incoming, judgement: Judgement) {
        let Incoming { read, receipt, received_ns } = incoming;
        let Ok(Read { message_number, event }) = read else { return };
        let is_image = matches!(event, Event::Part(_));
        if let (Event::End(key), None, Some(last)) = (&event, &self.current, &mut self.last)
            && last.key == *key
        {
            // It will not bring more of it: where the protocol has no start, the next image begins a series.
            last.ended |= 1 << upstream;
        }
        match judgement {
            Judgement::Take => self.take_own(upstream, message_number, event, receipt, received_ns),
            Judgement::Control => self.count(receipt, |ledger| ledger.control += 1),
            Judgement::Duplicate => {
                if let (Event::Start(..), Some(current)) = (&event, &mut self.current) {
                    current.heard.started |= 1 << upstream;
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

    /// A message of the series that is being received.
    fn take_own(&mut self, upstream: usize, number: Option<u64>, event: Event, receipt: Receipt, now_ns: u64) {
        let Some(current) = &mut self.current else { return };
        let (manners, window) = (self.manners, self.spec.window_images.saturating_add(64));
        match event {
            Event::Part(part) => {
                current.heard.on_message(&manners, upstream, number);
                self.take_part(upstream, number, part, receipt, now_ns);
            }
            Event::Start(_, start) => {
                if self.images.pending.as_mut().is_some_and(|pending| pending.add(upstream, start)) {
                    self.images.announce();
                }
                current.heard.on_start(&manners, upstream, number, window);
                current.touch(upstream, now_ns);
                self.count(receipt, |ledger| ledger.control += 1);
            }
            Event::End(_) => {
                current.heard.on_message(&manners, upstream, number);
                current.heard.on_end(&manners, upstream, number);
                current.touch(upstream, now_ns);
                self.count(receipt, |ledger| ledger.control += 1);
                self.begin_drain(SeriesEnded::Finished, "the sender has ended it");
                self.check_end();
            }
            Event::Other => self.count(receipt, |ledger| ledger.control += 1),
        }
    }

    fn take_part(&mut self, upstream: usize, number: Option<u64>, part: Box<ImagePart>, receipt: Receipt, now_ns: u64) {
        let (image, is_counted) = (self.position(upstream, number, part.number), self.is_counted_by_arrival(number));
        let Some(current) = &mut self.current else { return };
        let label = part.number;
        let index = if self.manners.is_modular { upstream as u32 } else { 0 };
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
            current.heard.on_image(&self.manners, upstream, image, number);
            if is_counted {
                current.on_arrival(label);
            }
        }
        let is_malformed = held.is_none();
        let (verdict, back) = self.images.place(image, index, now_ns, held);
        drop(back);
        match verdict {
            _ if is_malformed => {
                self.control.pulls[upstream].share.refuse(receipt.sequence);
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

    /// An image of the series that is being received, or of a past one, is kept nowhere: the series is no success, whatever else is in it.
    fn throw_away(&mut self, upstream: usize, is_image: bool, why: &'static str) {
        if is_image && self.current.is_some() {
            self.images.ledger.not_kept += 1;
            self.tell(upstream, why, why);
        }
    }

    /// The verdict of a message that is not kept.
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
        // Nobody knows of which image it is.
        self.images.ledger.not_kept += u64::from(self.current.is_some());
        self.count(incoming.receipt, |ledger| ledger.malformed += 1);
    }

    fn refuse_foreign(&mut self, receipt: Receipt, why: &'static str) {
        self.tell(receipt.upstream, why, why);
        self.control.pulls[receipt.upstream].share.refuse(receipt.sequence);
        self.count(receipt, |ledger| ledger.foreign += 1);
    }

    /// Says once per upstream, reason and series why messages are not taken.
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

    /// Takes what was held, as far as it can be judged now.
    fn open_gates(&mut self) {
        loop {
            let is_changed = std::mem::take(&mut self.is_changed);
            let next = self.images.order.next();
            self.note_followed(next);
            for upstream in 0..self.gates.len() {
                let first_ahead = self.gates[upstream].first_ahead();
                if is_changed || first_ahead.is_some_and(|image| self.is_in_window(image)) {
                    self.open_gate(upstream, true);
                }
            }
            if !self.is_changed && self.images.order.next() == next {
                return;
            }
        }
    }

    /// Two images far ahead that are close to each other: the sender has gone there.
    fn note_followed(&mut self, next: u64) {
        let Some(current) = &mut self.current else { return };
        let mut numbers: Vec<u64> =
            self.gates.iter().flat_map(Gate::numbers_ahead).filter(|n| current.is_doubted(*n, next)).collect();
        numbers.sort_unstable();
        let is_pair = |pair: &&[u64]| are_near(pair[0], pair[1]) && (pair[0] != pair[1] || self.manners.is_modular);
        if let Some(pair) = numbers.windows(2).find(is_pair) {
            current.followed = Some(pair[0]);
        }
    }

    /// Takes what waits, as far as it can be. Without patience the first one goes whatever it waits for.
    fn open_gate(&mut self, upstream: usize, mut is_patient: bool) {
        while let Some(image) = self.gates[upstream].first_ahead() {
            if is_patient && self.current.is_some() && !self.is_in_window(image) {
                break;
            }
            let Some(incoming) = self.gates[upstream].pop_ahead() else { break };
            self.offer(upstream, incoming, is_patient);
            is_patient = true;
        }
        while let Some(incoming) = self.gates[upstream].pop_held() {
            if self.offer(upstream, incoming, is_patient) {
                return;
            }
            // What is left may be of the series that is being received after all.
            is_patient |= self.current.is_some();
        }
    }

    /// Messages whose header did not come in time, or of which there are too many, are foreign; images ahead of the window push it on.
    pub(super) fn expire_gates(&mut self, now_ns: u64) {
        let is_over = self.is_over();
        for upstream in 0..self.gates.len() {
            let gate = &self.gates[upstream];
            let Some(since_ns) = gate.since_ns() else { continue };
            if is_over || gate.is_crowded(self.spec.window_images) || now_ns >= self.gate_until(since_ns) {
                self.open_gate(upstream, false);
            }
        }
        self.open_gates();
    }

    /// How long a message waits that came then.
    pub(super) fn gate_until(&self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.spec.wait_ns).max(self.images.patient_until(self.spec.wait_ns))
    }

    /// No message can come any more.
    pub(super) fn is_over(&self) -> bool {
        self.gates.iter().all(|gate| gate.is_closed)
    }

    fn timeout(&self) -> Duration {
        match self.deadline_ns() {
            None => Duration::from_secs(3600),
            // A little more, so that the time has come when it is looked at.
            Some(at_ns) => Duration::from_nanos(at_ns.saturating_sub(self.control.now_ns()).saturating_add(10_000)),
        }
    }

    pub(super) fn publish(&mut self) {
        self.images.settle();
        let control = &self.control;
        for (upstream, (pull, gate)) in control.pulls.iter().zip(&self.gates).enumerate() {
            let lined_up = self.lineup.as_ref().map_or(0, |lineup| lineup.count(upstream));
            pull.held.store(gate.len() as u64 + lined_up, Ordering::Relaxed);
        }
        let mut seen = control.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        seen.phase = match &self.current {
            None if self.armed.is_some() => Phase::Armed,
            None => Phase::Idle,
            Some(current) if current.drain.is_some() => Phase::Draining,
            Some(_) => Phase::Receiving,
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

/// Why a series ended when the next one began.
pub(super) fn superseded(manners: &Manners, has_end: bool) -> (SeriesEnded, &'static str) {
    match has_end {
        true => (SeriesEnded::Finished, "the sender has ended it"),
        // Nothing else ends it.
        false if !manners.has_end => (SeriesEnded::Finished, "the next series began"),
        false => (SeriesEnded::Superseded, "the next series began before it was ended"),
    }
}

/// The start of a series that begins with its first image.
fn implied_start(part: &ImagePart) -> SeriesStart {
    let known = part.start.as_deref().cloned();
    known.unwrap_or_else(|| SeriesStart { series: part.series.0, store: true, ..SeriesStart::default() })
}

/// The number of the series where the protocol has none.
pub(super) fn numbered(mut start: SeriesStart, key: SeriesKey, series_started: u64) -> SeriesStart {
    if start.series == 0 && key.0 == 0 {
        start.series = series_started;
    }
    start
}
