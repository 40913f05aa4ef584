//! The events of the service: a bounded history for whoever asks later, and all events for whoever has them passed on.

use konkordia_sinks::clock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use utoipa::ToSchema;

/// Events that the history keeps.
const HISTORY: usize = 1000;

/// Longest text in an event, in bytes. Some texts come from senders, who may write a megabyte, and 1000 events are
/// kept.
const TEXT_BYTES_MAX: usize = 4096;

/// How bad a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Severity {
    Success,
    Info,
    Warning,
    Error,
}

/// Something that happened, for `events` and logs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServiceEvent {
    /// Grows by one with each event of the service.
    pub id: u64,
    /// ISO 8601 with offset.
    pub time: String,
    /// Detector, if it is about one.
    pub detector: Option<String>,
    /// `state`, `run_started`, `setup`, `run_ended`, `file`, `pedestal`, `travel`, `refused`, `command`, `warning`,
    /// `consumer` or `log`.
    pub event: String,
    /// How bad it is.
    pub severity: Severity,
    /// In words.
    pub message: String,
    /// More, by event; documented in docs/api.md.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// The events of the service. Clones share one log.
#[derive(Clone)]
pub struct EventLog {
    shared: Arc<Mutex<History>>,
}

struct History {
    next_id: u64,
    events: VecDeque<Arc<ServiceEvent>>,
    forward: Vec<Forward>,
}

/// Gets each event; must not wait.
pub type Forward = Box<dyn Fn(&Arc<ServiceEvent>) + Send>;

impl EventLog {
    /// An empty log.
    pub fn new() -> Self {
        let history = History { next_id: 1, events: VecDeque::with_capacity(HISTORY), forward: Vec::new() };
        Self { shared: Arc::new(Mutex::new(history)) }
    }

    /// Adds an event and passes it on.
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
        // Under the lock, so that all get the events in order.
        history.forward.iter().for_each(|forward| forward(&entry));
    }

    /// The events in the history with an id above `after`.
    pub fn after(&self, after: u64) -> Vec<Arc<ServiceEvent>> {
        let history = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        history.events.iter().filter(|event| event.id > after).cloned().collect()
    }

    /// Passes every later event on, as long as the log lives. Returns the events in the history; none is missing in
    /// between.
    pub fn forward(&self, forward: Forward) -> Vec<Arc<ServiceEvent>> {
        let mut history = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        history.forward.push(forward);
        history.events.iter().cloned().collect()
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
        let known = log.after(0);
        assert_eq!((known.len(), known[0].id), (HISTORY, 6));
        for event in known {
            let named = event.data["filename"].as_str().unwrap();
            assert!(event.message.len() <= TEXT_BYTES_MAX + 3 && named.len() <= TEXT_BYTES_MAX + 3 && named.ends_with("..."));
            assert_eq!(event.data["run"], 1);
        }
    }
}
