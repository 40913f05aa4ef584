//! Sends a series as messages to one socket.

use super::socket::{Sent, ZmqOut};
use bytes::Bytes;
use konkordia_core::image::CommittedImage;
use konkordia_core::latency::Stage;
use konkordia_core::ports::{MessageEncoder, Parts, Sink, SinkError};
use konkordia_core::series::{SeriesEnd, SeriesStart};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long one attempt waits. It is short, so that a stop is noticed.
const ATTEMPT: Duration = Duration::from_millis(50);

/// How long the start and the end messages of a series wait for room at once. The end waits as long even after a stop:
/// the images mean little without it.
const CONTROL_WAIT: Duration = Duration::from_secs(1);

/// Counters of a [`StreamSink`], readable from other threads.
#[derive(Debug, Default)]
pub struct StreamStats {
    /// Messages sent.
    pub sent: AtomicU64,
    /// Their bytes.
    pub sent_bytes: AtomicU64,
    /// Messages left out because a receiver was full or the sink was stopped.
    pub skipped: AtomicU64,
    /// Messages left out because nobody was connected.
    pub nobody: AtomicU64,
    /// Receivers that are connected.
    pub peers: AtomicU64,
}

/// Sends series to one socket.
pub struct StreamSink {
    pub(super) out: ZmqOut,
    encoder: Box<dyn MessageEncoder>,
    stop: Arc<AtomicBool>,
    stats: Arc<StreamStats>,
    /// The series that is running.
    series: Option<Arc<SeriesStart>>,
    /// The connected receivers have got the start messages, or are getting them: see `owed`.
    has_started: bool,
    /// Start messages that are still to be sent.
    owed: VecDeque<Parts>,
}

impl StreamSink {
    /// A sink that sends to `out` what `encoder` makes. While `stop` is set it waits for nothing.
    pub fn new(out: ZmqOut, encoder: Box<dyn MessageEncoder>, stop: Arc<AtomicBool>) -> Self {
        Self { out, encoder, stop, stats: Arc::default(), series: None, has_started: false, owed: VecDeque::new() }
    }

    /// Its counters.
    pub fn stats(&self) -> Arc<StreamStats> {
        Arc::clone(&self.stats)
    }

    /// Where it listens or connects.
    pub fn name(&self) -> &str {
        self.out.name()
    }

    fn failed(&self, what: &str, why: impl ToString) -> SinkError {
        SinkError {
            what: format!("{what} could not be sent to {}", self.out.name()),
            why: why.to_string(),
            fix: "choose a protocol that supports it, or disable this stream".into(),
        }
    }

    /// Sends one message according to the policy; true if it was sent.
    fn send(&mut self, message: &[Bytes], mut timeout: Duration) -> std::io::Result<bool> {
        loop {
            let sent = self.out.send(message, timeout)?;
            let stats = &self.stats;
            match sent {
                Sent::Sent => {
                    stats.sent.fetch_add(1, Ordering::Relaxed);
                    stats.sent_bytes.fetch_add(message.iter().map(|part| part.len() as u64).sum(), Ordering::Relaxed);
                    return Ok(true);
                }
                Sent::NoPeer => {
                    stats.nobody.fetch_add(1, Ordering::Relaxed);
                    return Ok(false);
                }
                Sent::Full if !self.stop.load(Ordering::Acquire) => timeout = ATTEMPT,
                Sent::Full => {
                    stats.skipped.fetch_add(1, Ordering::Relaxed);
                    return Ok(false);
                }
            }
        }
    }

    /// True if a receiver is connected. Sends the start messages if the receivers were not there before.
    fn reach_receivers(&mut self) -> Result<bool, SinkError> {
        let has_receiver = self.out.has_receiver();
        self.stats.peers.store(if has_receiver { self.out.peers() as u64 } else { 0 }, Ordering::Relaxed);
        if !has_receiver {
            // The next receiver needs the start messages again. Nothing is encoded meanwhile: encoders number their
            // messages, and receivers wait for every number.
            self.has_started = false;
            self.owed.clear();
            return Ok(false);
        }
        if let (Some(start), false) = (&self.series, self.has_started) {
            match self.encoder.start(start) {
                Ok(messages) => (self.owed, self.has_started) = (messages.into(), true),
                Err(why) => {
                    self.series = None;
                    return Err(self.failed("the start of a series", why));
                }
            }
        }
        while let Some(first) = self.owed.pop_front() {
            // Every image passes here. After a stop, the start messages do not wait for room either.
            let wait = if self.stop.load(Ordering::Acquire) { Duration::ZERO } else { CONTROL_WAIT };
            if !self.send(&first, wait).map_err(|why| self.failed("the start of a series", why))? {
                self.owed.push_front(first);
                break;
            }
        }
        Ok(true)
    }

    /// True if there was a message to send, and all were sent.
    fn send_all(&mut self, what: &str, messages: Result<Vec<Parts>, String>, wait: Duration) -> Result<bool, SinkError> {
        let messages = messages.map_err(|why| self.failed(what, why))?;
        let mut is_sent = !messages.is_empty();
        for message in &messages {
            is_sent &= self.send(message, wait).map_err(|why| self.failed(what, why))?;
        }
        Ok(is_sent)
    }
}

impl Sink for StreamSink {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        (self.series, self.has_started) = (Some(Arc::clone(start)), false);
        self.owed.clear();
        self.reach_receivers().map(drop)
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        if !self.reach_receivers()? {
            self.stats.nobody.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let messages = self.encoder.image(image);
        let is_sent = self.send_all(&format!("image {}", image.number), messages, Duration::ZERO)?;
        if let Some(start) = self.series.as_ref().filter(|_| is_sent && image.status.has_pixels()) {
            start.meter.reached(Stage::Streamed, image.received_ns);
        }
        Ok(())
    }

    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        let sent = match self.reach_receivers() {
            Ok(true) => {
                let messages = self.encoder.end(end);
                self.send_all("the end of a series", messages, CONTROL_WAIT).map(drop)
            }
            other => other.map(drop),
        };
        self.series = None;
        self.owed.clear();
        sent
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SinkError> {
        self.reach_receivers().map(drop)
    }
}
