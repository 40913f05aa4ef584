//! Who holds a run back: a reliable consumer, or the file, whose queue is full most of the time. Everybody waits for it then, and the sender at the end.

use konkordia_engine::outlet::Outlets;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long is looked at before anything is said.
const SPAN: Duration = Duration::from_millis(700);

/// A consumer begins to hold the run back, or has ceased to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub consumer: String,
    /// It does, from now on.
    pub holds: bool,
}

/// One consumer as it was looked at last.
struct Seen {
    consumer: String,
    at: Instant,
    waited_ns: u64,
    holds: bool,
}

/// Looks at the outlets of a detector now and then.
#[derive(Default)]
pub struct HeldBack {
    seen: Vec<Seen>,
}

impl HeldBack {
    /// What has changed since the last look; the time is that of this look.
    pub fn look(&mut self, outlets: &Outlets, now: Instant) -> Vec<Change> {
        let list = outlets.list();
        self.seen.retain(|seen| list.iter().any(|outlet| outlet.spec().name == seen.consumer));
        let mut changes = Vec::new();
        for outlet in &list {
            let (name, waited_ns) = (&outlet.spec().name, outlet.stats().waited_ns.load(Ordering::Relaxed));
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
            // Half of the time begins it and none at all ends it, so that it does not begin and end at once.
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
    use konkordia_engine::outlet::{OnFull, OutletSpec, Service};

    #[test]
    fn half_of_the_time_begins_it_and_none_ends_it() {
        let outlets = Outlets::new(None);
        let service = Service::Reliable { on_full: OnFull::Wait };
        let _reader = outlets.add(OutletSpec { name: "a".into(), service, queue_images: 1, queue_bytes: 1 });
        let (mut watch, mut now) = (HeldBack::default(), Instant::now());
        assert_eq!(watch.look(&outlets, now), []);
        let mut after = |waited_ms: u64| {
            now += SPAN;
            let stats = &outlets.list()[0];
            stats.stats().waited_ns.fetch_add(waited_ms * 1_000_000, Ordering::Relaxed);
            watch.look(&outlets, now).first().map(|change| change.holds)
        };
        let said = [300, 400, 20, 700, 0, 0].map(&mut after);
        assert_eq!(said, [None, Some(true), None, None, Some(false), None]);
    }
}
