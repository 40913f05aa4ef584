//! How long images take from their first byte to a stage of their processing: a histogram of atomics that one thread
//! fills and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Steps within a factor of two; a value is known to one part in eight, and better after interpolation.
const STEPS: usize = 8;
/// Values below [`STEPS`] have a bucket each; above, every power of two has [`STEPS`].
const BUCKETS: usize = STEPS * 62;

/// Counts of durations, in buckets whose width grows with the duration.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    max_ns: AtomicU64,
}

/// Quantiles of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Images counted.
    pub count: u64,
    /// Half of the images took no longer.
    pub p50_ns: u64,
    /// 99 per cent of them took no longer.
    pub p99_ns: u64,
    /// 99.9 per cent of them took no longer.
    pub p999_ns: u64,
    /// The longest of all.
    pub max_ns: u64,
}

/// Counts of a [`Histogram`] at some time; none at first.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<u64>);

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
    let step = (ns >> (exponent - 3)) as usize % STEPS;
    ((exponent - 2) * STEPS + step).min(BUCKETS - 1)
}

/// Least value of a bucket.
fn floor_of(bucket: usize) -> u64 {
    match bucket / STEPS {
        0 => bucket as u64,
        power => ((STEPS + bucket % STEPS) as u64) << (power - 1),
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn count(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn read(&self) -> Latency {
        latency(&self.counts(), self.max_ns.load(Ordering::Relaxed))
    }

    /// What was counted since `before`, which becomes the counts of now. The longest is known as exactly as its bucket.
    pub fn since(&self, before: &mut Counts) -> Latency {
        let now = self.counts();
        before.0.resize(BUCKETS, 0);
        let new: Vec<u64> = now.iter().zip(&before.0).map(|(now, before)| now - before).collect();
        before.0 = now;
        // Behind the last bucket lies 2^64, which wraps to 0.
        let longest = new.iter().rposition(|count| *count > 0).map_or(0, |bucket| floor_of(bucket + 1).wrapping_sub(1));
        latency(&new, longest.min(self.max_ns.load(Ordering::Relaxed)))
    }

    fn counts(&self) -> Vec<u64> {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect()
    }
}

fn latency(counts: &[u64], max_ns: u64) -> Latency {
    let count: u64 = counts.iter().sum();
    let quantile = |share: f64| quantile(counts, count, share).min(max_ns);
    Latency { count, p50_ns: quantile(0.5), p99_ns: quantile(0.99), p999_ns: quantile(0.999), max_ns }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(bucket_of(floor_of(bucket)), bucket);
            assert_eq!(bucket_of(floor_of(bucket + 1) - 1), bucket);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_near_those_of_the_sorted_values() {
        let histogram = Histogram::default();
        assert_eq!(histogram.read(), Latency::default());
        let mut values: Vec<u64> = (0..5000u64).map(|n| n * n % 77_777 * 1000).collect();
        values.iter().for_each(|ns| histogram.count(*ns));
        values.sort_unstable();
        let latency = histogram.read();
        for (got, share) in [(latency.p50_ns, 0.5), (latency.p99_ns, 0.99), (latency.p999_ns, 0.999)] {
            let exact = values[(share * values.len() as f64) as usize - 1] as f64;
            assert!((got as f64 - exact).abs() <= exact / 8.0, "{got} is not near {exact}");
        }
        assert_eq!((latency.count, latency.max_ns), (5000, values[4999]));
    }

    #[test]
    fn what_was_counted_before_does_not_count_again() {
        let (histogram, mut before) = (Histogram::default(), Counts::default());
        assert_eq!(histogram.since(&mut before), Latency::default());
        (0..100).for_each(|_| histogram.count(9_000_000));
        let first = histogram.since(&mut before);
        assert_eq!((first.count, first.max_ns), (100, 9_000_000));
        (0..10).for_each(|_| histogram.count(1000));
        let second = histogram.since(&mut before);
        assert_eq!(second.count, 10);
        assert!((1000..1000 + 1000 / 8).contains(&second.max_ns) && second.p50_ns <= second.max_ns, "{second:?}");
        assert_eq!((histogram.since(&mut before).count, histogram.read().count), (0, 110));
    }
}
