//! Bandwidth and latency over sockets by message size, with packets of the largest path MTU; beside them a copy in
//! memory, and from which size on one way is faster than another.

use super::super::crossover::{self, Crossover, Way};
use super::super::fabric_args::RdmaOperation;
use super::super::peer::Peer;
use super::super::spread::Spread;
use super::ends::{Attempt, Measured, Test, Wait, measure};
use super::protocol::Agreed;
use konkordia_core::failure::Failure;
use konkordia_core::text;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Payload of the packets.
const PACKET_BYTES: usize = 4096;
/// Bytes and messages of an attempt.
const BANDWIDTH_BYTES: usize = 32 << 20;
const BANDWIDTH_MESSAGES: (usize, usize) = (8, 10_000);
const LATENCY_BYTES: usize = 8 << 20;
const LATENCY_MESSAGES: (usize, usize) = (10, 500);
/// The name of the copy in memory.
const MEMCPY: &str = "memcpy";

/// One operation, or the copy, at one size.
pub struct Row {
    pub name: &'static str,
    pub wait: Wait,
    pub bytes: usize,
    pub gigabytes_per_s: Spread,
    /// Median, 99 % and 99.9 % of half the time of a message and its answer.
    pub latency_us: [Spread; 3],
    pub lost: u64,
    pub verified: bool,
}

fn messages(bytes: usize, all: usize, (low, high): (usize, usize), is_quick: bool) -> u64 {
    if is_quick { 4 } else { (all / bytes).clamp(low, high) as u64 }
}

/// Measures all operations at all sizes.
///
/// # Errors
/// If sockets fail, or the other end does.
pub fn measure_all(
    peer: &mut Peer,
    operations: &[RdmaOperation],
    sizes: &[usize],
    (repeats, is_quick): (u32, bool),
    mut tell: impl FnMut(String),
) -> Result<Vec<Row>, Failure> {
    let (mut rows, mut memory) = (Vec::new(), Vec::new());
    for wait in Wait::ALL {
        for &bytes in sizes {
            for &operation in operations {
                tell(format!("{}, {bytes} bytes, {}", operation.name(), wait.name()));
                let agreed =
                    Agreed { operation, packet_bytes: PACKET_BYTES, message_bytes: bytes, addresses: 1, compares_icrc: true };
                let mut run = |test: Test, messages: u64| -> Result<Vec<Measured>, Failure> {
                    // The first one compares every byte of every message, and its times do not count.
                    let attempt = |repeat| Attempt { agreed, test, wait, messages, compares_all: repeat == 0 };
                    (0..=repeats).map(|repeat| measure(peer, &attempt(repeat), &mut memory)).collect()
                };
                let count = messages(bytes, BANDWIDTH_BYTES, BANDWIDTH_MESSAGES, is_quick);
                let one_way = run(Test::Bandwidth, count)?;
                let both_ways = run(Test::Latency, messages(bytes, LATENCY_BYTES, LATENCY_MESSAGES, is_quick))?;
                rows.push(Row::new(operation.name(), wait, bytes, count, &one_way, &both_ways));
            }
        }
    }
    rows.extend(sizes.iter().map(|bytes| copy(*bytes, repeats, is_quick)));
    Ok(rows)
}

impl Row {
    fn new(name: &'static str, wait: Wait, bytes: usize, count: u64, one_way: &[Measured], both_ways: &[Measured]) -> Self {
        let whole = |all: &'_ [Measured]| all[1..].iter().filter(|found| found.lost == 0).cloned().collect::<Vec<_>>();
        let quantile = |part: f64| {
            let of = |found: &Measured| percentile_of(&found.latencies_us, part);
            Spread::of(whole(both_ways).iter().filter_map(of))
        };
        let all = || one_way.iter().chain(both_ways);
        Self {
            name,
            wait,
            bytes,
            gigabytes_per_s: Spread::of(whole(one_way).iter().map(|found| count as f64 * bytes as f64 / found.seconds / 1e9)),
            latency_us: [0.5, 0.99, 0.999].map(quantile),
            lost: all().map(|found| found.lost).sum(),
            verified: all().all(|found| found.verified),
        }
    }

    fn to_json(&self) -> Value {
        let wait = if self.name == MEMCPY { String::new() } else { format!(", {}", self.wait.name()) };
        json!({
            "name": format!("{}, {} bytes{wait}", self.name, self.bytes), "bytes": self.bytes,
            "gigabytes_per_second": self.gigabytes_per_s.to_json(), "latency_us": self.latency_us[0].to_json(),
            "latency_p99_us": self.latency_us[1].to_json(), "latency_p999_us": self.latency_us[2].to_json(),
            "lost": self.lost, "verified": self.verified,
        })
    }
}

/// The smallest value that at least this part of all is not above; `None` of no values.
fn percentile_of(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((values.len() as f64 * part).ceil() as usize).clamp(1, values.len().max(1)) - 1).copied()
}

/// Copies of one size, from one place in the caches to another.
fn copy(bytes: usize, repeats: u32, is_quick: bool) -> Row {
    let (from, mut to) = (super::protocol::filling(bytes), vec![0; bytes]);
    let count = messages(bytes, BANDWIDTH_BYTES, (8, 100_000), is_quick);
    let rates = (0..repeats).map(|_| {
        let begin = Instant::now();
        for _ in 0..count {
            to.copy_from_slice(black_box(&from));
            black_box(&to);
        }
        count as f64 * bytes as f64 / begin.elapsed().as_secs_f64() / 1e9
    });
    let gigabytes_per_s = Spread::of(rates.collect::<Vec<_>>());
    let none = Spread::of([]);
    Row { name: MEMCPY, wait: Wait::Polling, bytes, gigabytes_per_s, latency_us: [none; 3], lost: 0, verified: from == to }
}

/// The rows of a way of waiting; the copy belongs to all.
fn of_wait(rows: &[Row], wait: Wait) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.wait == wait || row.name == MEMCPY)
}

/// The names of ways, in the order of their rows.
fn names(rows: &[Row]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    rows.iter().for_each(|row| {
        if !names.contains(&row.name) {
            names.push(row.name);
        }
    });
    names
}

/// By bandwidth and by latency.
pub fn crossovers(rows: &[Row], wait: Wait) -> [Vec<Crossover>; 2] {
    let ways = |figure: &dyn Fn(&Row) -> f64| -> Vec<Way> {
        let way = |name: &str| {
            let own = of_wait(rows, wait).filter(|row| row.name == name);
            let figures = own.map(|row| (row.bytes as u64, figure(row))).filter(|(_, figure)| figure.is_finite());
            Way { name: name.into(), figures: figures.collect() }
        };
        names(rows).into_iter().map(way).collect()
    };
    // Of latencies the lower one is better.
    let (rate, latency) = (|row: &Row| row.gigabytes_per_s.median, |row: &Row| -row.latency_us[0].median);
    [crossover::crossovers(&ways(&rate)), crossover::crossovers(&ways(&latency))]
}

/// For programs.
pub fn to_json(rows: &[Row]) -> Value {
    let of = |wait: Wait| {
        let [bandwidth, latency] = crossovers(rows, wait);
        json!({ "wait": wait.name(), "bandwidth": crossover::to_json(&bandwidth), "latency": crossover::to_json(&latency) })
    };
    json!({ "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "crossovers": Wait::ALL.map(of) })
}

/// A table of one figure: a line for each size, a column for each way.
fn table(rows: &[Row], wait: Wait, figure: &str, value: impl Fn(&Row) -> String) -> String {
    let names = names(rows);
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let head = std::iter::once(figure).chain(names.iter().copied()).map(str::to_string).collect();
    let line = |bytes: &usize| -> Vec<String> {
        let of = |name: &&str| of_wait(rows, wait).find(|row| row.name == *name && row.bytes == *bytes);
        let cells = names.iter().map(|name| of(name).map_or("-".into(), &value));
        std::iter::once(text::bytes(*bytes as u64)).chain(cells).collect()
    };
    text::table(&std::iter::once(head).chain(sizes.iter().map(line)).collect::<Vec<_>>())
}

/// For people.
pub fn to_text(rows: &[Row]) -> String {
    let of = |wait: Wait| {
        let [bandwidth, latency] = crossovers(rows, wait);
        let of_latency = |n: usize| move |row: &Row| row.latency_us[n].to_short_text(1);
        format!(
            "{}: packets of {PACKET_BYTES} bytes\n\n{}\n\n{}\n\n{}\n\n{}\n\nby GB/s: {}\n\nby latency: {}",
            wait.name(),
            table(rows, wait, "GB/s", |row| row.gigabytes_per_s.to_short_text(3)),
            table(rows, wait, "us, p50", of_latency(0)),
            table(rows, wait, "us, p99", of_latency(1)),
            table(rows, wait, "us, p99.9", of_latency(2)),
            crossover::to_text(&bandwidth),
            crossover::to_text(&latency),
        )
    };
    let lost: u64 = rows.iter().map(|row| row.lost).sum();
    let wrong = rows.iter().filter(|row| !row.verified).map(|row| format!("WRONG: {}, {} bytes", row.name, row.bytes));
    let checked = wrong.collect::<Vec<_>>();
    let checked = if checked.is_empty() { "all messages that came were right".into() } else { checked.join("\n") };
    format!("{}\n\n{checked}; {lost} packets lost", Wait::ALL.map(of).join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, bytes: usize, rate: f64, us: f64) -> Row {
        let (rate, us) = (Spread::of([rate]), Spread::of([us]));
        Row { name, wait: Wait::Events, bytes, gigabytes_per_s: rate, latency_us: [us; 3], lost: 0, verified: true }
    }

    #[test]
    fn ways_cross_by_bandwidth_and_by_latency() {
        let rows = [row("udp", 1, 1.0, 5.0), row("udp", 2, 1.0, 6.0), row("write", 1, 0.5, 4.0), row("write", 2, 2.0, 7.0)];
        let [bandwidth, latency] = crossovers(&rows, Wait::Events);
        assert_eq!((bandwidth.len(), bandwidth[0].faster.as_str(), bandwidth[0].from_bytes), (1, "write", 2));
        assert_eq!((latency.len(), latency[0].faster.as_str(), latency[0].from_bytes), (1, "udp", 2));
        assert!(to_text(&rows).contains("write is faster than udp from 2 B on"));
        assert!(crossovers(&rows, Wait::Polling)[0].is_empty());
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.99, 0.999].map(|part| percentile_of(&values, part)), [Some(500.0), Some(990.0), Some(999.0)]);
        assert_eq!((percentile_of(&[3.0], 0.999), percentile_of(&[], 0.5)), (Some(3.0), None));
    }
}
