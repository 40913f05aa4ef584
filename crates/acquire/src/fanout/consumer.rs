//! What the consumer of a stream reports.

use crate::events::EventLog;
use crate::handle::Severity;
use konkordia_core::ports::SinkError;
use konkordia_core::series::SeriesEnd;
use konkordia_engine::deliver::Reports;
use konkordia_engine::output_queue::OutputQueueReader;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reports of the consumer of a stream, as events.
pub struct ConsumerEvents {
    /// Where events are reported.
    pub events: EventLog,
    /// Detector.
    pub detector: String,
    /// Name of the consumer.
    pub name: String,
    /// Number of connected receivers, read after each batch.
    pub peers: Box<dyn Fn() -> u64 + Send>,
    /// Whether a receiver was connected last time.
    pub was_connected: Option<bool>,
    /// Images that came out of the queue and were not sent: the protocol cannot carry them, or an earlier one failed.
    pub unsendable: Arc<AtomicU64>,
}

impl Reports for ConsumerEvents {
    fn failed(&mut self, error: &SinkError, _: u64) {
        let message = format!("consumer '{}': {}", self.name, error.what);
        let data = json!({ "consumer": self.name, "why": error.why, "fix": error.fix });
        self.events.add(Some(&self.detector), "consumer", Severity::Warning, message, data);
    }

    fn ended(&mut self, _: &Arc<SeriesEnd>, unwritten: u64) {
        self.unsendable.fetch_add(unwritten, Ordering::Relaxed);
    }

    fn looked(&mut self, reader: &OutputQueueReader) {
        let is_connected = (self.peers)() > 0;
        reader.set_connected(is_connected);
        if self.was_connected.replace(is_connected) != Some(is_connected) {
            let word = if is_connected { "is connected" } else { "is not connected" };
            let message = format!("consumer '{}' {word}", self.name);
            let data = json!({ "consumer": self.name, "connected": is_connected });
            self.events.add(Some(&self.detector), "consumer", Severity::Info, message, data);
        }
    }
}
