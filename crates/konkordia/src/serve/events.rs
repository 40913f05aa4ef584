//! The events of the service: a bounded history for later subscribers, and a channel to all current subscribers.

use super::handle::{ServiceEvent, Severity};
use konkordia_sinks::clock;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// Events that the history keeps.
const HISTORY: usize = 1000;
/// Events that a slow subscriber may be behind. Beyond that it loses events, and gets the number of lost ones.
const BEHIND: usize = 256;

/// Longest text in an event, in bytes. Some texts come from senders, who may write a megabyte, and 1000 events are
/// kept.
const TEXT_BYTES_MAX: usize = 4096;

/// The events of the service. Clones share one log.
#[derive(Clone)]
pub struct EventLog {
    shared: Arc<Mutex<History>>,
    sender: broadcast::Sender<Arc<ServiceEvent>>,
}

struct History {
    next_id: u64,
    events: VecDeque<Arc<ServiceEvent>>,
}

impl EventLog {
    /// An empty log.
    pub fn new() -> Self {
        let shared = Arc::new(Mutex::new(History { next_id: 1, events: VecDeque::with_capacity(HISTORY) }));
        Self { shared, sender: broadcast::channel(BEHIND).0 }
    }

    /// Adds an event and sends it to all subscribers.
    pub fn add(&self, detector: Option<&str>, event: &str, severity: Severity, mut message: String, mut data: Value) {
        shorten(&mut message);
        if let Value::Object(fields) = &mut data {
            fields.values_mut().for_each(|value| {
                if let Value::String(text) = value {
                    shorten(text);
                }
            });
        }
        let mut history = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let id = history.next_id;
        history.next_id += 1;
        let entry = Arc::new(ServiceEvent {
            id,
            time: clock::now(),
            detector: detector.map(str::to_string),
            event: event.into(),
            severity,
            message,
            data,
        });
        if history.events.len() == HISTORY {
            history.events.pop_front();
        }
        history.events.push_back(Arc::clone(&entry));
        // Sent under the lock, so that all subscribers get the events in order. No subscriber at all is not an error.
        let _ = self.sender.send(entry);
    }

    /// The events in the history with an id above `after`, and a channel for all later ones. No event is missing in
    /// between.
    pub fn listen(&self, after: u64) -> (Vec<Arc<ServiceEvent>>, broadcast::Receiver<Arc<ServiceEvent>>) {
        let history = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = history.events.iter().filter(|event| event.id > after).cloned().collect();
        (known, self.sender.subscribe())
    }
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("...");
        text.shrink_to_fit();
    }
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_texts_of_senders_are_cut_and_the_history_is_bounded() {
        let log = EventLog::new();
        let text = "\u{fc}".repeat(1 << 16);
        for _ in 0..HISTORY + 5 {
            log.add(Some("d"), "run_started", Severity::Info, text.clone(), json!({ "filename": text, "run": 1 }));
        }
        let (known, _) = log.listen(0);
        assert_eq!((known.len(), known[0].id), (HISTORY, 6));
        for event in known {
            let named = event.data["filename"].as_str().unwrap();
            assert!(event.message.len() <= TEXT_BYTES_MAX + 3 && named.len() <= TEXT_BYTES_MAX + 3 && named.ends_with("..."));
            assert_eq!(event.data["run"], 1);
        }
    }
}
