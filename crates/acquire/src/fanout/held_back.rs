//! Reports who holds a run back: a reliable consumer, or the file, whose output queue is full at least half of the
//! time. Then everybody waits for it, and in the end the sender too.

use konkordia_engine::output_queue::OutputQueues;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The waiting is measured over this time before anything is reported.
const SPAN: Duration = Duration::from_millis(700);

/// A consumer begins or ceases to hold the run back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub consumer: String,
    /// True if it holds the run back from now on.
    pub holds: bool,
}

/// One consumer at the last look.
struct Seen {
    consumer: String,
    at: Instant,
    waited_ns: u64,
    holds: bool,
}

/// Looks at the output queues of a detector now and then.
#[derive(Default)]
pub struct HeldBack {
    seen: Vec<Seen>,
}

impl HeldBack {
    /// What has changed since the last look. `now` is the time of this look.
    pub fn look(&mut self, output_queues: &OutputQueues, now: Instant) -> Vec<Change> {
        let list = output_queues.list();
        self.seen.retain(|seen| list.iter().any(|output_queue| output_queue.spec().name == seen.consumer));
        let mut changes = Vec::new();
        for output_queue in &list {
            let (name, waited_ns) = (&output_queue.spec().name, output_queue.stats().waited_ns.load(Ordering::Relaxed));
            let Some(seen) = self.seen.iter_mut().find(|seen| seen.consumer == *name) else {
                self.seen.push(Seen { consumer: name.clone(), at: now, waited_ns, holds: false });
                continue;
            };
            let span = now.duration_since(seen.at);
            if span < SPAN {
                continue;
            }
            let waited = Duration::from_nanos(waited_ns - seen.waited_ns);
            (seen.at, seen.waited_ns) = (now, waited_ns);
            // Waiting for half of the time begins it, no waiting at all ends it; so it does not switch to and fro.
            let holds = if seen.holds { !waited.is_zero() } else { waited * 2 >= span };
            if holds != seen.holds {
                seen.holds = holds;
                changes.push(Change { consumer: name.clone(), holds });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::ports::ServiceLevel;
    use konkordia_engine::output_queue::OutputQueueSpec;

    #[test]
    fn half_of_the_time_begins_it_and_none_ends_it() {
        let output_queues = OutputQueues::new(None);
        let service = ServiceLevel::Reliable;
        let _reader =
            output_queues.add(OutputQueueSpec { name: "a".into(), service, queue_images: 1, queue_bytes: 1, borrows: false });
        let (mut watch, mut now) = (HeldBack::default(), Instant::now());
        assert_eq!(watch.look(&output_queues, now), []);
        let mut after = |waited_ms: u64| {
            now += SPAN;
            let stats = &output_queues.list()[0];
            stats.stats().waited_ns.fetch_add(waited_ms * 1_000_000, Ordering::Relaxed);
            watch.look(&output_queues, now).first().map(|change| change.holds)
        };
        let said = [300, 400, 20, 700, 0, 0].map(&mut after);
        assert_eq!(said, [None, Some(true), None, None, Some(false), None]);
    }
}
