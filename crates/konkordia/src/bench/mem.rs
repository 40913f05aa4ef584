//! `konkordia bench mem`: STREAM (McCalpin 1995) with several numbers of threads, and the copy rates of the caches,
//! which `bench roofline` draws as roofs.
//!
//! The four operations and their bytes are those of STREAM: 8 bytes for each element of an array that is read or
//! written. A processor reads a line before it writes to it, unless it is told otherwise; STREAM does not count that.
//! The factor is the root of 2 minus 1, with which the values of `a` stay as they are from round to round but for
//! rounding. Every element of every thread is compared with the same operations on three single numbers.

use super::args::BenchMemArgs;
use super::caches;
use super::output::Output;
use super::spread::Spread;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_picture::{Axis, Series};
use serde_json::{Value, json};
use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// STREAM demands arrays of at least so many times the caches.
const TIMES_CACHES: usize = 4;
/// The factor of `scale` and `triad`.
const FACTOR: f64 = std::f64::consts::SQRT_2 - 1.0;
/// GB/s by STREAM of the server of Leonarski et al. 2020 (48 cores).
const PAPER_GB_PER_S: f64 = 310.0;
/// Of one thread, each array has at least so many elements, or there would be nothing to measure.
const ELEMENTS_MIN: usize = 1024;

/// STREAM's copy on one thread, beside a file that is written.
pub struct Copied {
    /// Bytes of an array.
    pub array_bytes: usize,
    /// GB/s as STREAM counts: bytes that are read and bytes that are written.
    pub gb_per_s: Spread,
    /// Whether the arrays are right afterwards.
    pub verified: bool,
}

/// STREAM's copy on one thread, with arrays of at most `bytes_max` bytes.
pub fn copied(bytes_max: usize, repeats: usize) -> Copied {
    let array_bytes = wanted_bytes().min(available_bytes() / 8).min(bytes_max);
    let row = Row::measure(1, array_bytes / 8, repeats.max(1));
    Copied { array_bytes, gb_per_s: row.gb_per_s[0], verified: row.verified }
}

/// What this machine has free.
pub fn available_bytes() -> usize {
    machine::bytes_after(Path::new("/proc/meminfo"), "MemAvailable").unwrap_or(4 << 30) as usize
}

/// What STREAM demands of an array.
fn wanted_bytes() -> usize {
    (TIMES_CACHES * caches::last_level_bytes()).max(64 << 20)
}

/// `konkordia bench mem`
pub fn command(args: &BenchMemArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    let output = Output::open(&args.output, "mem")?;
    let (available, wanted) = (available_bytes(), wanted_bytes());
    let (array_bytes, repeats, budget) = match (args.quick, args.mib) {
        (true, _) => (1 << 20, 2, Duration::ZERO),
        // Three arrays, in at most three eighths of the memory.
        (false, None) => (wanted.min(available / 8), args.repeats, Duration::from_millis(200)),
        (false, Some(mib)) => (mib << 20, args.repeats, Duration::from_millis(200)),
    };
    if 3 * array_bytes > available {
        let why =
            format!("three arrays need {}, and {} are free", text::bytes(3 * array_bytes as u64), text::bytes(available as u64));
        return Err(Failure::new(Exit::Usage, "the arrays are too large", why, "give a smaller --mib"));
    }
    let threads = if args.threads.is_empty() { thread_counts() } else { args.threads.clone() };
    let rows: Vec<Row> = threads.iter().map(|threads| Row::measure(*threads, array_bytes / 8, repeats.max(1))).collect();
    let levels = levels(repeats.max(1), budget);
    let verified = rows.iter().all(|row| row.verified);
    if let Some(png) = &args.png {
        draw(&rows).write(png)?;
    }
    let report = json!({
        "bench": "mem", "machine": machine::facts(), "array_bytes": array_bytes, "cache_bytes": caches::last_level_bytes(), "repeats": repeats,
        "rows": rows.iter().flat_map(Row::to_json).collect::<Vec<_>>(), "levels": levels.iter().map(Level::to_json).collect::<Vec<_>>(),
        "paper_gigabytes_per_second": PAPER_GB_PER_S, "verified": verified,
    });
    output.print(report, &to_text(array_bytes, repeats, &rows, &levels));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// 1, 2, 4 ... and all processors.
fn thread_counts() -> Vec<usize> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < processors).chain([processors]).collect()
}

/// The operations of STREAM.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Copy,
    Scale,
    Add,
    Triad,
}

impl Operation {
    /// In the order of STREAM.
    const ALL: [Self; 4] = [Self::Copy, Self::Scale, Self::Add, Self::Triad];

    const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Scale => "scale",
            Self::Add => "add",
            Self::Triad => "triad",
        }
    }

    /// Bytes that STREAM counts for each element.
    const fn bytes(self) -> usize {
        match self {
            Self::Copy | Self::Scale => 16,
            Self::Add | Self::Triad => 24,
        }
    }
}

/// What one thread has of the three arrays; it touches them first, so that they lie in its memory.
struct Part {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Part {
    fn new(elements: usize) -> Self {
        Self { a: vec![1.0; elements], b: vec![2.0; elements], c: vec![3.0; elements] }
    }

    fn run(&mut self, operation: Operation) {
        let Self { a, b, c } = self;
        match operation {
            Operation::Copy => c.copy_from_slice(a),
            Operation::Scale => b.iter_mut().zip(c.iter()).for_each(|(b, c)| *b = FACTOR * c),
            Operation::Add => c.iter_mut().zip(a.iter().zip(b.iter())).for_each(|(c, (a, b))| *c = a + b),
            Operation::Triad => a.iter_mut().zip(b.iter().zip(c.iter())).for_each(|(a, (b, c))| *a = b + FACTOR * c),
        }
        black_box(self);
    }

    /// Has every element the value that it must have after so many rounds of all operations?
    fn is_right(&self, rounds: usize) -> bool {
        let mut one = Self::new(1);
        (0..rounds).for_each(|_| Operation::ALL.into_iter().for_each(|operation| one.run(operation)));
        let is_all = |array: &[f64], value: f64| array.iter().all(|element| element.to_bits() == value.to_bits());
        is_all(&self.a, one.a[0]) && is_all(&self.b, one.b[0]) && is_all(&self.c, one.c[0])
    }
}

/// All operations with one number of threads.
struct Row {
    threads: usize,
    /// GB/s of each operation.
    gb_per_s: [Spread; 4],
    verified: bool,
}

impl Row {
    /// `elements` of each array, divided among the threads; one more round than `repeats` comes first and does not
    /// count.
    fn measure(threads: usize, elements: usize, repeats: usize) -> Self {
        let each = elements.div_ceil(threads).max(ELEMENTS_MIN);
        let barrier = Barrier::new(threads);
        let work = || {
            let mut part = Part::new(each);
            let mut times = Vec::with_capacity((repeats + 1) * Operation::ALL.len());
            for operation in (0..=repeats).flat_map(|_| Operation::ALL) {
                barrier.wait();
                let begin = Instant::now();
                part.run(operation);
                times.push((begin, Instant::now()));
            }
            (times, part.is_right(repeats + 1))
        };
        let results: Vec<(Vec<(Instant, Instant)>, bool)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().expect("arithmetic does not panic")).collect()
        });
        // From the first thread that began to the last one that ended.
        let seconds = |index: usize| {
            let begin = results.iter().map(|(times, _)| times[index].0).min();
            let end = results.iter().map(|(times, _)| times[index].1).max();
            begin.zip(end).map_or(f64::NAN, |(begin, end)| end.duration_since(begin).as_secs_f64())
        };
        let count = Operation::ALL.len();
        let rate =
            |n: usize, round: usize| (each * threads * Operation::ALL[n].bytes()) as f64 / seconds(round * count + n) / 1e9;
        let gb_per_s = std::array::from_fn(|n| Spread::of((1..=repeats).map(|round| rate(n, round))));
        Self { threads, gb_per_s, verified: results.iter().all(|(_, is_right)| *is_right) }
    }

    fn to_json(&self) -> Vec<Value> {
        let one = |(operation, spread): (Operation, &Spread)| {
            let threads = if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
            json!({
                "name": format!("{}, {threads}", operation.name()), "threads": self.threads, "gigabytes_per_second": spread.to_json(),
                "verified": self.verified,
            })
        };
        Operation::ALL.into_iter().zip(&self.gb_per_s).map(one).collect()
    }
}

/// A level of memory and how fast one core copies within it.
pub struct Level {
    /// Name in tables.
    pub name: &'static str,
    /// What the buffers of the copy need; less than the level has, more than the level before.
    pub buffer_bytes: usize,
    /// GB/s, read and written together.
    pub copy_gb_per_s: Spread,
}

impl Level {
    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "buffer_bytes": self.buffer_bytes, "copy_gigabytes_per_second": self.copy_gb_per_s.to_json() })
    }

    /// For people: a row of a table.
    pub fn row(&self) -> Vec<String> {
        vec![
            format!("copy in {}", self.name),
            text::bytes(self.buffer_bytes as u64),
            format!("{} GB/s", self.copy_gb_per_s.to_text(1)),
        ]
    }
}

/// Copy rates of each cache and of the memory, each for about `budget`.
pub fn levels(repeats: usize, budget: Duration) -> Vec<Level> {
    let [first, second, third] = caches::levels_bytes();
    let sizes = [("L1", first / 2), ("L2", second / 2), ("L3", (third / 4).max(2 * second)), ("memory", 4 * third.max(32 << 20))];
    let level = |(name, buffer_bytes)| Level { name, buffer_bytes, copy_gb_per_s: copy_gb_per_s(buffer_bytes, repeats, budget) };
    sizes.map(level).into()
}

/// Each repeat is the best of several copies, because a roof is what the machine can do.
fn copy_gb_per_s(buffer_bytes: usize, repeats: usize, budget: Duration) -> Spread {
    let half = (buffer_bytes / 2).max(1);
    let (from, mut to) = (vec![1u8; half], vec![0u8; half]);
    // Enough copies that reading the clock takes no noticeable part of the time.
    let copies = ((1 << 20) / half).max(1);
    let mut best = || {
        let (start, mut best, mut rounds) = (Instant::now(), f64::INFINITY, 0);
        while rounds < 2 || start.elapsed() < budget / repeats as u32 {
            let start = Instant::now();
            for _ in 0..copies {
                black_box(&mut to).copy_from_slice(black_box(&from));
            }
            best = start.elapsed().as_secs_f64().min(best);
            rounds += 1;
        }
        2.0 * (half * copies) as f64 / best / 1e9
    };
    Spread::of((0..repeats).map(|_| best()))
}

fn to_text(array_bytes: usize, repeats: usize, rows: &[Row], levels: &[Level]) -> String {
    let head: Vec<String> =
        ["threads"].into_iter().chain(Operation::ALL.map(Operation::name)).chain(["values"]).map(str::to_string).collect();
    let line = |row: &Row| -> Vec<String> {
        let rates = row.gb_per_s.iter().map(|spread| spread.to_text(1));
        let verified = if row.verified { "right" } else { "WRONG" };
        std::iter::once(row.threads.to_string()).chain(rates).chain([verified.to_string()]).collect()
    };
    let table = text::table(&std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<Vec<String>>>());
    let caches = text::table(&levels.iter().map(Level::row).collect::<Vec<_>>());
    format!(
        "{}\nSTREAM: GB/s of three arrays of {} each, median (lowest .. highest) of {repeats}\n\n{table}\n\none core\n{caches}\n\nthe server of 48 cores of \
         Leonarski et al. 2020: {PAPER_GB_PER_S:.0} GB/s",
        machine::line(),
        text::bytes(array_bytes as u64)
    )
}

/// GB/s of each operation against the number of threads.
fn draw(rows: &[Row]) -> konkordia_picture::Picture {
    let line = |(index, operation): (usize, Operation)| Series {
        name: operation.name(),
        points: rows.iter().map(|row| (row.threads as f64, row.gb_per_s[index].median)).collect(),
        line: rows.len() > 1,
    };
    let series: Vec<Series<'_>> = Operation::ALL.into_iter().enumerate().map(line).collect();
    let (x, y) = (Axis { label: "threads", log: false }, Axis { label: "GB/s", log: false });
    konkordia_picture::chart("STREAM", &x, &y, &series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_looked_at() {
        let row = Row::measure(2, 4096, 3);
        assert!(row.verified && row.gb_per_s.iter().all(|spread| spread.lowest > 0.0));
        let mut part = Part::new(100);
        Operation::ALL.into_iter().for_each(|operation| part.run(operation));
        assert!(part.is_right(1) && !part.is_right(2));
        part.b[99] = f64::from_bits(part.b[99].to_bits() + 1);
        assert!(!part.is_right(1));
    }

    #[test]
    fn the_values_do_not_grow() {
        let mut part = Part::new(1);
        (0..100_000).for_each(|_| Operation::ALL.into_iter().for_each(|operation| part.run(operation)));
        assert!((part.a[0] - 1.0).abs() < 1e-6, "{}", part.a[0]);
    }

    #[test]
    fn all_processors_are_used() {
        let counts = thread_counts();
        assert!(counts[0] == 1 && counts.is_sorted_by(|a, b| a < b));
        assert_eq!(counts.last(), std::thread::available_parallelism().map(usize::from).ok().as_ref());
    }
}
