//! Rates over the last second, and totals that never decrease.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Rates are averaged over this time.
const WINDOW: Duration = Duration::from_secs(1);
/// Samples kept at most.
const SAMPLES_MAX: usize = 32;

/// Samples of counters, over the last second.
#[derive(Debug, Default)]
pub struct Rates {
    samples: VecDeque<(Instant, Vec<(&'static str, u64)>)>,
}

impl Rates {
    /// Adds a sample. If a counter is smaller than before, counting has begun anew, and the older samples are dropped.
    pub fn sample(&mut self, now: Instant, counters: Vec<(&'static str, u64)>) {
        let went_back = |old: &(Instant, Vec<(&'static str, u64)>)| {
            old.1.len() != counters.len() || old.1.iter().zip(&counters).any(|(a, b)| a.0 != b.0 || a.1 > b.1)
        };
        if self.samples.back().is_some_and(went_back) {
            self.samples.clear();
        }
        // The newest sample from before the window is kept, so that the samples span the whole window.
        while self.samples.len() >= SAMPLES_MAX || self.samples.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.samples.pop_front();
        }
        self.samples.push_back((now, counters));
    }

    /// Rates per second over the last second before `now`; 0 if the last sample is older than that, or is the only one.
    pub fn per_second(&self, now: Instant) -> BTreeMap<String, f64> {
        let Some((end, last)) = self.samples.back() else { return BTreeMap::new() };
        let (begin, first) = &self.samples[0];
        let seconds = end.duration_since(*begin).as_secs_f64();
        let is_current = now.duration_since(*end) < WINDOW && seconds > 0.0;
        let rate =
            |(a, b): (&(&str, u64), &(&str, u64))| (b.0.to_string(), if is_current { (b.1 - a.1) as f64 / seconds } else { 0.0 });
        first.iter().zip(last).map(rate).collect()
    }
}

/// Sums over the runs that have ended. The caller adds the run in progress.
#[derive(Clone, Debug, Default)]
pub struct Totals(BTreeMap<String, u64>);

impl Totals {
    /// Adds to a counter.
    pub fn add(&mut self, name: &str, value: u64) {
        *self.0.entry(name.into()).or_default() += value;
    }

    /// The sums.
    pub fn values(&self) -> &BTreeMap<String, u64> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_second() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut rates = Rates::default();
        assert!(rates.per_second(begin).is_empty());
        for n in 0..=50u64 {
            // 100 per second at first, then 200.
            let count = if n <= 30 { n * 10 } else { 300 + (n - 30) * 20 };
            rates.sample(at(n * 100), vec![("images_hz", count)]);
        }
        let rate = rates.per_second(at(5000))["images_hz"];
        assert!((rate - 200.0).abs() < 1e-9, "{rate}");
        assert_eq!(rates.per_second(at(6500))["images_hz"], 0.0, "no sample came for longer");
        rates.sample(at(7000), vec![("images_hz", 5)]);
        assert_eq!(rates.per_second(at(7000))["images_hz"], 0.0, "a new run");
        rates.sample(at(7500), vec![("images_hz", 10)]);
        assert!((rates.per_second(at(7500))["images_hz"] - 10.0).abs() < 1e-9);
    }

    #[test]
    fn memory_is_bounded() {
        let begin = Instant::now();
        let mut rates = Rates::default();
        (0..10_000u64).for_each(|n| rates.sample(begin + Duration::from_micros(n), vec![("a", n)]));
        assert!(rates.samples.len() <= SAMPLES_MAX);
    }
}
