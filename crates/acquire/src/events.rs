//! The events of the service: a bounded history, and subscriptions that read it, each at its own pace.

use konkordia_sinks::clock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use utoipa::ToSchema;

/// Events that the history keeps. A subscription that is further behind misses the oldest ones.
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

impl Severity {
    /// Name of an event that is nothing but a message of this severity.
    const fn event(self) -> &'static str {
        match self {
            Self::Success | Self::Info => "log",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
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
    /// `state`, `run_started`, `setup`, `run_ended`, `file`, `pedestal`, `travel`, `spool`, `refused`, `command`,
    /// `consumer`, `adapter` or `alarm`; where there is nothing but a message, `error`, `warning` or `log` by its
    /// severity.
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
#[derive(Clone, Default)]
pub struct EventLog {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    history: Mutex<History>,
    changed: Condvar,
}

#[derive(Default)]
struct History {
    /// The newest ones, oldest first.
    events: VecDeque<Arc<ServiceEvent>>,
    /// The id of the newest event; 0 before the first.
    newest_id: u64,
    /// Grows with every event and every other change of a status.
    changes: u64,
    /// Subscriptions so far; numbers them.
    subscriptions: u64,
    /// The tasks that wait for a change, by the numbers of their subscriptions.
    wakers: Vec<(u64, Waker)>,
}

impl History {
    /// The id of the oldest event that is known, or of the next one if none is.
    fn oldest_id(&self) -> u64 {
        self.newest_id + 1 - self.events.len() as u64
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everybody who waits for a change.
    fn wake_readers(&self, mut history: MutexGuard<'_, History>) {
        history.changes += 1;
        let wakers = std::mem::take(&mut history.wakers);
        drop(history);
        self.changed.notify_all();
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl EventLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event.
    pub fn add(&self, detector: Option<&str>, event: &str, severity: Severity, mut message: String, mut data: Value) {
        shorten(&mut message);
        if let Value::Object(fields) = &mut data {
            fields.values_mut().for_each(|value| {
                if let Value::String(text) = value {
                    shorten(text);
                }
            });
        }
        let mut history = self.shared.lock();
        history.newest_id += 1;
        let entry = ServiceEvent {
            id: history.newest_id,
            time: clock::now(),
            detector: detector.map(str::to_string),
            event: event.into(),
            severity,
            message,
            data,
        };
        if history.events.len() == HISTORY {
            history.events.pop_front();
        }
        history.events.push_back(Arc::new(entry));
        self.shared.wake_readers(history);
    }

    /// Adds an event that is nothing but a message. Its name is that of its severity.
    pub fn remark(&self, detector: Option<&str>, severity: Severity, message: String, data: Value) {
        self.add(detector, severity.event(), severity, message, data);
    }

    /// Wakes everybody who waits: a status has changed without an event.
    pub fn wake(&self) {
        self.shared.wake_readers(self.shared.lock());
    }

    /// The events in the history with an id above `after`.
    pub fn after(&self, after: u64) -> Vec<Arc<ServiceEvent>> {
        self.shared.lock().events.iter().filter(|event| event.id > after).cloned().collect()
    }

    /// A subscription to all later events.
    pub fn subscribe(&self) -> Subscription {
        self.subscription(|history| (history.newest_id + 1, false))
    }

    /// A subscription to the events with an id above `after`; 0 = to all that are known. An id beyond the newest one is
    /// from an earlier life of the service: the subscription begins with [`News::Missed`] without a number.
    pub fn subscribe_after(&self, after: u64) -> Subscription {
        self.subscription(|history| {
            let is_of_another = after > history.newest_id;
            let next_id = if after == 0 || is_of_another { history.oldest_id() } else { after + 1 };
            (next_id, is_of_another)
        })
    }

    fn subscription(&self, begin: impl FnOnce(&History) -> (u64, bool)) -> Subscription {
        let mut history = self.shared.lock();
        history.subscriptions += 1;
        let (next_id, is_of_another) = begin(&history);
        let (number, seen) = (history.subscriptions, history.changes);
        drop(history);
        Subscription { shared: Arc::clone(&self.shared), number, next_id, is_of_another, seen }
    }
}

/// What a subscription reads.
#[derive(Clone, Debug)]
pub enum News {
    /// The next event.
    Event(Arc<ServiceEvent>),
    /// So many events are no longer known; `None` if the number is unknown too.
    Missed(Option<u64>),
}

/// Reads the events of a service in their order. It keeps none of them: all subscriptions read the one history, so a
/// slow subscriber costs no memory and holds nobody up. A wait also ends when a status changes without an event.
/// Whoever subscribes first, then reads a status and then waits, misses no change.
pub struct Subscription {
    shared: Arc<Shared>,
    number: u64,
    /// The id of the event that is read next.
    next_id: u64,
    /// It was begun with an id of an earlier life of the service, and this was not reported yet.
    is_of_another: bool,
    /// The changes up to the last wait.
    seen: u64,
}

impl Subscription {
    /// The next event, or how many are missing before it; `None` if there is none yet. Does not wait.
    pub fn read(&mut self) -> Option<News> {
        if std::mem::take(&mut self.is_of_another) {
            return Some(News::Missed(None));
        }
        let history = self.shared.lock();
        let oldest_id = history.oldest_id();
        if self.next_id < oldest_id {
            let missed = oldest_id - std::mem::replace(&mut self.next_id, oldest_id);
            return Some(News::Missed(Some(missed)));
        }
        let event = history.events.get((self.next_id - oldest_id) as usize)?;
        self.next_id += 1;
        Some(News::Event(Arc::clone(event)))
    }

    /// Waits for an event or another change of a status since the last wait, at most `until`; without `until` for
    /// ever. Returns false if the time was over first.
    pub fn wait(&mut self, until: Option<Instant>) -> bool {
        let mut history = self.shared.lock();
        while history.changes == self.seen {
            let Some(until) = until else {
                history = self.shared.changed.wait(history).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            history = self.shared.changed.wait_timeout(history, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.seen = history.changes;
        true
    }

    /// As [`Self::wait`] for a task of any async runtime, which is woken when it has to ask again.
    pub fn poll_changed(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut history = self.shared.lock();
        if history.changes != self.seen {
            self.seen = history.changes;
            return Poll::Ready(());
        }
        match history.wakers.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, waker)) => waker.clone_from(context.waker()),
            None => history.wakers.push((self.number, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.lock().wakers.retain(|(number, _)| *number != self.number);
    }
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("...");
        text.shrink_to_fit();
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

    fn add(log: &EventLog, count: usize) {
        (0..count).for_each(|_| log.add(None, "log", Severity::Info, "x".into(), json!({})));
    }

    /// Everything that is there: ids of events, and numbers of missed ones below 0.
    fn read(of: &mut Subscription) -> Vec<i64> {
        let number = |news| match news {
            News::Event(event) => event.id as i64,
            News::Missed(missed) => -(missed.unwrap_or(1_000_000) as i64),
        };
        std::iter::from_fn(|| of.read()).map(number).collect()
    }

    #[test]
    fn subscribers_read_at_their_own_pace_and_get_the_number_that_they_missed() {
        let log = EventLog::new();
        add(&log, 3);
        let mut late = log.subscribe();
        assert_eq!(read(&mut log.subscribe_after(0)), [1, 2, 3]);
        assert_eq!(read(&mut log.subscribe_after(2)), [3]);
        assert_eq!(read(&mut log.subscribe_after(3)), [0; 0]);
        assert_eq!(read(&mut log.subscribe_after(4)), [-1_000_000, 1, 2, 3]);
        add(&log, 1);
        assert_eq!((read(&mut late), read(&mut late)), (vec![4], vec![]));
        add(&log, HISTORY + 7);
        let read_at_last = read(&mut late);
        assert_eq!((read_at_last[..3].to_vec(), read_at_last.len()), (vec![-7, 12, 13], HISTORY + 1));
        // Ids begin at 1, so an id of 0 asks for all that are known, and misses nothing.
        assert_eq!(read(&mut log.subscribe_after(0))[0], 12);
        assert_eq!(read(&mut log.subscribe_after(1))[..2], [-10, 12]);
    }

    #[test]
    fn whoever_waits_is_woken_by_events_and_changes_and_by_nothing_else() {
        let log = EventLog::new();
        let mut subscription = log.subscribe();
        let soon = || Some(Instant::now() + std::time::Duration::from_millis(1));
        assert!(!subscription.wait(soon()), "nothing has happened");
        // What happens between a look and a wait is not missed.
        log.wake();
        assert!(subscription.wait(None) && !subscription.wait(soon()));
        let adder = log.clone();
        let thread = std::thread::spawn(move || add(&adder, 1));
        assert!(subscription.wait(None));
        assert_eq!(read(&mut subscription), [1]);
        thread.join().unwrap();
    }

    #[test]
    fn tasks_are_woken_once_and_leave_nothing_behind() {
        struct Count(std::sync::atomic::AtomicU64);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(Arc::clone(&count));
        let context = Context::from_waker(&waker);
        let log = EventLog::new();
        let mut subscription = log.subscribe();
        let woken = || count.0.load(std::sync::atomic::Ordering::Relaxed);
        for _ in 0..3 {
            assert!(subscription.poll_changed(&context).is_pending());
        }
        assert_eq!((log.shared.lock().wakers.len(), woken()), (1, 0));
        log.wake();
        assert_eq!((log.shared.lock().wakers.len(), woken()), (0, 1));
        assert!(subscription.poll_changed(&context).is_ready() && subscription.poll_changed(&context).is_pending());
        drop(subscription);
        assert_eq!(log.shared.lock().wakers.len(), 0);
        log.wake();
        assert_eq!(woken(), 1);
    }
}
