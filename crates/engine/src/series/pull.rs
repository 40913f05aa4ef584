//! One thread per upstream: takes messages from the source, decodes them, and passes them on in batches. It waits when
//! the in-flight budget of the upstream is used up, which holds back the sender.

use super::control::{PullState, SeriesControl};
use super::notice::Notice;
use super::rules::io::{Incoming, Receipt};
use crate::contain::contain;
use crossbeam_channel::Sender;
use konkordia_core::ports::{Message, MessageSource};
use konkordia_wire::message::{Event, MessageDecoder, Read};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Messages of a batch, at most.
const BATCH_MESSAGES: usize = 128;
/// How often a waiting thread checks whether it must end, or whether messages are finished.
const GRAIN: Duration = Duration::from_millis(250);
/// The same while no message is in flight: messages wake it, and many detectors may wait for theirs.
const IDLE: Duration = Duration::from_millis(500);

/// One source of messages, with its decoder.
pub struct Upstream {
    /// Hands messages over.
    pub source: Box<dyn MessageSource>,
    /// Decodes them.
    pub decoder: Box<dyn MessageDecoder>,
}

/// Messages of one upstream.
#[derive(Debug)]
pub(crate) struct Batch {
    pub upstream: usize,
    pub messages: Vec<Incoming>,
    /// Nothing follows: the source failed, or has come to its end.
    pub closed: Option<Closed>,
}

/// Why nothing follows.
#[derive(Debug)]
pub(crate) enum Closed {
    Finished,
    Failed(String),
}

pub(crate) struct Puller<'a> {
    pub upstream: usize,
    pub parts: Upstream,
    pub control: &'a SeriesControl,
    pub inbox: Sender<Batch>,
    /// Messages that the source has handed over, and those that it knows to be finished.
    pub received: u64,
    pub accepted: u64,
    pub bounded_bytes: u64,
    /// Refused connections as last reported, and when that was.
    pub crowded: (u64, Option<Instant>),
}

/// Time between two notices of refused connections.
const CROWDED: Duration = Duration::from_secs(10);

impl Puller<'_> {
    fn state(&self) -> &PullState {
        &self.control.pulls[self.upstream]
    }

    /// Runs until it must end, or no message can come any more.
    pub fn run(self) {
        let (upstream, control, inbox) = (self.upstream, self.control, self.inbox.clone());
        if let Err(panic) = contain(|| self.pull()) {
            // The upstream is closed, so that nothing waits for it.
            control.pulls[upstream].is_closed.store(true, Ordering::Relaxed);
            let closed = Some(Closed::Failed(panic.to_string()));
            let _ = inbox.send(Batch { upstream, messages: Vec::new(), closed });
        }
    }

    fn pull(mut self) {
        let mut messages = Vec::new();
        let closed = loop {
            if self.control.is_closing() {
                return;
            }
            self.accept();
            if let Some(why) = self.parts.source.disconnected() {
                self.control.notify(Notice::Refused { upstream: self.upstream, why });
            }
            self.look_at_connections();
            if !self.state().budget.wait(GRAIN, |budget| budget.room_bytes() > 0 || self.control.is_closing()) {
                self.parts.source.watch();
                continue;
            }
            let messages_max = self.messages_max();
            let patience = if self.accepted < self.received { GRAIN } else { IDLE };
            if let Err(error) = self.parts.source.receive(patience, messages_max, &mut messages) {
                break Closed::Failed(error.to_string());
            }
            if messages.is_empty() {
                if self.parts.source.is_finished() {
                    break Closed::Finished;
                }
                continue;
            }
            if !self.pass_on(&mut messages) {
                return;
            }
        };
        self.state().is_closed.store(true, Ordering::Relaxed);
        let _ = self.inbox.send(Batch { upstream: self.upstream, messages: Vec::new(), closed: Some(closed) });
        // A folder removes files when they are finished, also after the last has come.
        while !self.control.is_closing() && self.accepted < self.received {
            self.accept();
            let finished = self.accepted;
            self.state().budget.wait(GRAIN, |budget| budget.finished() > finished || self.control.is_closing());
        }
    }

    /// Lets the source look after its connections, also while there is no room: they take descriptors that files and
    /// HTTP need.
    fn look_at_connections(&mut self) {
        let refused = self.parts.source.connections_refused();
        let (reported, at) = self.crowded;
        if refused > reported && at.is_none_or(|at| at.elapsed() >= CROWDED) {
            self.crowded = (refused, Some(Instant::now()));
            self.control.notify(Notice::Crowded { source: self.state().name.clone(), refused });
        }
    }

    /// As many as there is room for; one by one before the first image, because nothing is known of its size.
    fn messages_max(&self) -> usize {
        match self.bounded_bytes {
            0 => 1,
            bytes => self.state().budget.room_messages(bytes).clamp(1, BATCH_MESSAGES),
        }
    }

    fn accept(&mut self) {
        while self.accepted < self.state().budget.finished() {
            let is_refused = self.state().budget.was_refused(self.accepted);
            if is_refused {
                self.parts.source.refused(1);
            } else {
                self.parts.source.accepted(1);
            }
            self.accepted += 1;
        }
    }

    /// Decodes messages and passes them on. False when the sort thread has ended.
    fn pass_on(&mut self, messages: &mut Vec<Message>) -> bool {
        let (now_ns, count) = (self.control.now_ns(), messages.len());
        let mut batch = Vec::with_capacity(count);
        let (mut batch_bytes, mut largest) = (0, 0);
        for message in messages.drain(..) {
            let bytes = message.bytes();
            batch_bytes += bytes;
            let receipt = Receipt { upstream: self.upstream, bytes, sequence: self.received };
            self.received += 1;
            self.state().budget.take(bytes);
            let decoder = &mut self.parts.decoder;
            // A panic while decoding costs only the message that is being decoded.
            let read = contain(|| decoder.read(&message))
                .map_or_else(|panic| Err(panic.to_string()), |read| read.map_err(|refusal| refusal.to_string()));
            if let Ok(Read { event: Event::Part(_), .. }) = &read {
                largest = bytes.max(largest);
            }
            if read.is_err() {
                self.state().budget.refuse(receipt.sequence);
            }
            batch.push(Incoming { read, receipt, received_ns: now_ns });
        }
        let state = self.state();
        state.received.fetch_add(count as u64, Ordering::Relaxed);
        state.received_bytes.fetch_add(batch_bytes, Ordering::Relaxed);
        // The source must know the size of its largest image, because it bounds its own queue by it.
        if largest > self.bounded_bytes {
            self.bounded_bytes = largest;
            let limit_bytes = self.state().budget.limit_bytes();
            self.parts.source.bound(largest, limit_bytes);
        }
        self.inbox.send(Batch { upstream: self.upstream, messages: batch, closed: None }).is_ok()
    }
}
