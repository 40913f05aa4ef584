//! The meters of latencies: histograms of atomics, which any thread fills and any thread reads, with the clock of the
//! run or series. docs/decisions/0027-latency.md says which instants are counted, by whom, and what that costs.

use konkordia_core::latency::{LatencyMeter, Stage, StageLatency};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Steps within a factor of two: a value is known to 3 per cent, and better after interpolation.
const STEPS: usize = 1 << STEPS_LOG;
const STEPS_LOG: usize = 5;
/// Values from 2^40 ns (18 minutes) on share the last bucket. Values below [`STEPS`] have a bucket each; above, every
/// power of two has [`STEPS`]. All together they take 9 KiB.
const BUCKETS: usize = STEPS * (40 - STEPS_LOG + 1);

/// Counts of durations, in buckets whose width grows with the duration.
#[derive(Debug)]
struct Histogram {
    buckets: Box<[AtomicU64]>,
    max_ns: AtomicU64,
}

/// Counts of the stages at some time; none at first.
#[derive(Clone, Debug, Default)]
pub struct Counts([Vec<u64>; Stage::ALL.len()]);

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max_ns: AtomicU64::new(0) }
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let exponent = ns.ilog2() as usize;
    let step = (ns >> (exponent - STEPS_LOG)) as usize % STEPS;
    ((exponent - STEPS_LOG + 1) * STEPS + step).min(BUCKETS - 1)
}

/// Least value of a bucket.
fn floor_of(bucket: usize) -> u64 {
    match bucket / STEPS {
        0 => bucket as u64,
        power => ((STEPS + bucket % STEPS) as u64) << (power - 1),
    }
}

impl Histogram {
    /// Counts `images` images that took equally long.
    fn count(&self, ns: u64, images: u64) {
        self.buckets[bucket_of(ns)].fetch_add(images, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// What was counted so far; `None` if that is nothing.
    fn read(&self, stage: Stage) -> Option<StageLatency> {
        of_counts(stage, &self.counts(), self.max_ns.load(Ordering::Relaxed))
    }

    /// What was counted since `before`, which becomes the counts of now. The longest is known as exactly as its bucket.
    fn since(&self, stage: Stage, before: &mut Vec<u64>) -> Option<StageLatency> {
        let now = self.counts();
        before.resize(BUCKETS, 0);
        let new: Vec<u64> = now.iter().zip(&*before).map(|(now, before)| now - before).collect();
        *before = now;
        let longest = new.iter().rposition(|count| *count > 0).map_or(0, |bucket| floor_of(bucket + 1) - 1);
        of_counts(stage, &new, longest.min(self.max_ns.load(Ordering::Relaxed)))
    }

    fn counts(&self) -> Vec<u64> {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect()
    }
}

fn of_counts(stage: Stage, counts: &[u64], max_ns: u64) -> Option<StageLatency> {
    let images = counts.iter().sum();
    let quantile = |share: f64| quantile(counts, images, share).min(max_ns);
    let (p50_ns, p99_ns, p999_ns) = (quantile(0.5), quantile(0.99), quantile(0.999));
    (images > 0).then_some(StageLatency { stage, images, p50_ns, p99_ns, p999_ns, max_ns })
}

/// The value that `share` of the `count` values do not exceed, interpolated in its bucket.
fn quantile(counts: &[u64], count: u64, share: f64) -> u64 {
    let rank = share * count as f64;
    let mut below = 0.0;
    for (bucket, &here) in counts.iter().enumerate() {
        let here = here as f64;
        if here > 0.0 && below + here >= rank {
            let (floor, ceiling) = (floor_of(bucket), floor_of(bucket + 1));
            return floor + ((ceiling - floor) as f64 * ((rank - below) / here)) as u64;
        }
        below += here;
    }
    0
}

/// The latencies of the images of one run or series.
#[derive(Debug)]
pub struct Latencies {
    clock_began: Instant,
    stages: [Histogram; Stage::ALL.len()],
}

impl Latencies {
    /// A meter without images, whose clock began at `clock_began`.
    pub fn new(clock_began: Instant) -> Self {
        Self { clock_began, stages: Default::default() }
    }

    /// What was counted since `before`, which becomes the counts of now.
    pub fn since(&self, before: &mut Counts) -> Vec<StageLatency> {
        let stages = Stage::ALL.iter().zip(&mut before.0);
        stages.filter_map(|(stage, before)| self.stages[*stage as usize].since(*stage, before)).collect()
    }

    /// An image came to `stage` at `at_ns`. A time of 0 is unknown, and does not count.
    pub(crate) fn count(&self, stage: Stage, received_ns: u64, at_ns: u64) {
        if received_ns > 0 && at_ns > 0 {
            self.stages[stage as usize].count(at_ns.saturating_sub(received_ns), 1);
        }
    }
}

impl LatencyMeter for Latencies {
    fn reached(&self, stage: Stage, received_ns: u64, images: u64) {
        let now_ns = self.clock_began.elapsed().as_nanos() as u64;
        self.stages[stage as usize].count(now_ns.saturating_sub(received_ns), images);
    }

    fn read(&self) -> Vec<StageLatency> {
        Stage::ALL.iter().filter_map(|stage| self.stages[*stage as usize].read(*stage)).collect()
    }
}

/// A time for each of the frames or images that are in a ring. Several threads bring one there; the latest counts.
///
/// Number n shares its place with n - slots, so a time must be noted only when n has room in the ring: n - slots was
/// committed then. The cursors of the ring order what is noted before what is read.
#[derive(Debug)]
struct Stamps(Box<[AtomicU64]>);

impl Stamps {
    fn new(slots: u64) -> Self {
        Self((0..slots).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.0[(number % self.0.len() as u64) as usize]
    }

    fn note(&self, number: u64, now_ns: u64) {
        self.place(number).fetch_max(now_ns, Ordering::Relaxed);
    }

    fn get(&self, number: u64) -> u64 {
        self.place(number).load(Ordering::Relaxed)
    }
}

/// The latencies of a run, with what its committer has to know of other threads.
#[derive(Debug)]
pub(crate) struct RunLatencies {
    pub latencies: Arc<Latencies>,
    sealed: Stamps,
    converted: Stamps,
}

impl RunLatencies {
    /// For a ring of `slots` frames and one of `strip_slots` images.
    pub fn new(clock_began: Instant, slots: u64, strip_slots: u64) -> Self {
        let latencies = Arc::new(Latencies::new(clock_began));
        Self { latencies, sealed: Stamps::new(slots), converted: Stamps::new(strip_slots) }
    }

    /// A receiver seals its tile of a frame that has room, after this.
    pub fn note_sealed(&self, frame: u64, now_ns: u64) {
        self.sealed.note(frame, now_ns);
    }

    /// When the last tile of a frame was sealed; asked before the frame is committed.
    pub fn sealed_ns(&self, frame: u64) -> u64 {
        self.sealed.get(frame)
    }

    /// A worker gives its strips of an image to the committer, after this.
    pub fn note_converted(&self, image: u64, now_ns: u64) {
        self.converted.note(image, now_ns);
    }

    /// When the last strips of an image were done; asked before the image is published.
    pub fn converted_ns(&self, image: u64) -> u64 {
        self.converted.get(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(bucket_of(floor_of(bucket)), bucket);
            assert_eq!(bucket_of(floor_of(bucket + 1) - 1), bucket);
        }
        assert_eq!((floor_of(BUCKETS), bucket_of(u64::MAX)), (1 << 40, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_near_those_of_the_sorted_values() {
        let histogram = Histogram::default();
        assert_eq!(histogram.read(Stage::Seen), None);
        let mut values: Vec<u64> = (0..5000u64).map(|n| n * n % 77_777 * 1000).collect();
        values.iter().for_each(|ns| histogram.count(*ns, 1));
        values.sort_unstable();
        let latency = histogram.read(Stage::Seen).unwrap();
        for (got, share) in [(latency.p50_ns, 0.5), (latency.p99_ns, 0.99), (latency.p999_ns, 0.999)] {
            let exact = values[(share * values.len() as f64) as usize - 1] as f64;
            assert!((got as f64 - exact).abs() <= exact / STEPS as f64, "{got} is not near {exact}");
        }
        assert_eq!((latency.stage, latency.images, latency.max_ns), (Stage::Seen, 5000, values[4999]));
    }

    #[test]
    fn stages_are_counted_apart_and_unknown_times_not_at_all() {
        let latencies = Latencies::new(Instant::now());
        latencies.count(Stage::Assembled, 1000, 4000);
        latencies.count(Stage::Assembled, 0, 4000);
        latencies.count(Stage::Converted, 1000, 0);
        latencies.reached(Stage::Durable, 1, 7);
        let read: Vec<_> = latencies.read().iter().map(|latency| (latency.stage, latency.images)).collect();
        assert_eq!(read, [(Stage::Assembled, 1), (Stage::Durable, 7)]);
        assert_eq!(latencies.read()[0].max_ns, 3000);
    }

    #[test]
    fn the_latest_time_counts_and_the_next_round_replaces_it() {
        let run = RunLatencies::new(Instant::now(), 4, 2);
        for (frame, now_ns) in [(1, 20), (1, 10), (2, 30), (5, 40)] {
            run.note_sealed(frame, now_ns);
        }
        run.note_converted(3, 50);
        assert_eq!([1, 2, 5, 6].map(|frame| run.sealed_ns(frame)), [40, 30, 40, 30]);
        assert_eq!((run.converted_ns(3), run.converted_ns(2)), (50, 0));
    }

    #[test]
    fn what_was_counted_before_does_not_count_again() {
        let (latencies, mut before) = (Latencies::new(Instant::now()), Counts::default());
        assert_eq!(latencies.since(&mut before), []);
        (0..100).for_each(|_| latencies.count(Stage::Committed, 1, 9_000_001));
        let first = latencies.since(&mut before);
        assert_eq!((first.len(), first[0].images, first[0].max_ns), (1, 100, 9_000_000));
        (0..10).for_each(|_| latencies.count(Stage::Committed, 1, 1001));
        let second = latencies.since(&mut before)[0];
        assert_eq!(second.images, 10);
        assert!((1000..1000 + 1000 / STEPS as u64).contains(&second.max_ns) && second.p50_ns <= second.max_ns, "{second:?}");
        assert_eq!((latencies.since(&mut before), latencies.read()[0].images), (vec![], 110));
    }
}
