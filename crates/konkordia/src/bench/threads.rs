//! Processor time of the threads of this process, by what they do. The kernel counts it
//! (`/proc/self/task/<id>/schedstat`); where it does not, there are no figures.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// What threads do, and how their names begin (ARCHITECTURE.md, Threads).
const ROLES: [(&str, &str); 9] = [
    ("simulate", "simulate"),
    ("rx", "rx-"),
    // The plain loop of `bench pipeline --receive-only`.
    ("plain", "plain-"),
    ("work", "work-"),
    ("analyse", "analyse-"),
    ("commit", "commit"),
    ("join", "join"),
    ("out", "out-"),
    ("sync", "sync"),
];
/// All other threads.
const REST: &str = "rest";
/// Looks before the first that counts: after about a second all memory has been touched.
const WARM_UP_LOOKS: u32 = 5;

/// What the kernel has counted of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// It ran.
    ran_ns: u64,
    /// It could have run, but no processor was free.
    waited_ns: u64,
    /// How often it got a processor.
    turns: u64,
}

impl Times {
    /// The three numbers of a `schedstat`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { ran_ns: next()?, waited_ns: next()?, turns: next()? })
    }

    fn since(self, before: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            turns: self.turns.saturating_sub(before.turns),
        }
    }

    fn add(&mut self, more: Self) {
        self.ran_ns += more.ran_ns;
        self.waited_ns += more.waited_ns;
        self.turns += more.turns;
    }
}

/// The threads at one time: number of the thread, its role and its times.
pub type Threads = BTreeMap<u64, (&'static str, Times)>;

/// Processor time that the threads of this role have used, all together; `None` if the kernel does not count it.
pub fn ran_ns(role: &str) -> Option<u64> {
    let threads = now();
    let of_role = threads.values().filter(|(other, _)| *other == role);
    (!threads.is_empty()).then(|| of_role.map(|(_, times)| times.ran_ns).sum())
}

/// The threads of this process.
pub fn now() -> Threads {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| one(&task.path())).collect()
}

fn one(task: &Path) -> Option<(u64, (&'static str, Times))> {
    let id = task.file_name()?.to_str()?.parse().ok()?;
    let name = std::fs::read_to_string(task.join("comm")).ok()?;
    let times = Times::parse(&std::fs::read_to_string(task.join("schedstat")).ok()?)?;
    Some((id, (role(name.trim()), times)))
}

fn role(name: &str) -> &'static str {
    ROLES.iter().find(|(_, begin)| name.starts_with(begin)).map_or(REST, |(role, _)| role)
}

/// What one role did.
#[derive(Clone, Debug, Default)]
struct Done {
    threads: usize,
    times: Times,
    /// Processor time of an image in each interval, and the images of the interval.
    per_image_ns: Vec<(f64, f64)>,
}

impl Done {
    /// Spread of the processor time of one image, if those of different images do not depend on each other: the means
    /// of intervals with `n` images differ by `1 / sqrt(n)` of it.
    fn spread_ns(&self) -> Option<f64> {
        let images: f64 = self.per_image_ns.iter().map(|(_, images)| images).sum();
        if self.per_image_ns.len() < 3 || images <= 0.0 {
            return None;
        }
        let mean = self.per_image_ns.iter().map(|(ns, images)| ns * images).sum::<f64>() / images;
        let squares: f64 = self.per_image_ns.iter().map(|(ns, images)| images * (ns - mean).powi(2)).sum();
        Some((squares / (self.per_image_ns.len() - 1) as f64).sqrt())
    }
}

/// Processor time of the threads of one role, all together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// Processors that they kept busy.
    pub cores: f64,
    /// Microseconds of processor time for an image.
    pub image_us: f64,
}

/// Looks at the threads again and again while a run is in progress.
#[derive(Debug, Default)]
pub struct Watch {
    looks: u32,
    last: Option<(Duration, u64, Threads)>,
    seconds: f64,
    images: u64,
    done: BTreeMap<&'static str, Done>,
}

impl Watch {
    /// A look at `at` since any fixed time, when so many images were committed. The first looks do not count.
    pub fn look(&mut self, at: Duration, images: u64, threads: Threads) {
        self.looks += 1;
        if self.looks < WARM_UP_LOOKS {
            return;
        }
        if let Some((before_at, before_images, before)) = &self.last {
            let more_images = images.saturating_sub(*before_images);
            self.seconds += at.saturating_sub(*before_at).as_secs_f64();
            self.images += more_images;
            let mut of_role: BTreeMap<&'static str, (usize, Times)> = BTreeMap::new();
            for (id, (role, times)) in &threads {
                let entry = of_role.entry(*role).or_default();
                entry.0 += 1;
                entry.1.add(times.since(before.get(id).map_or(Times::default(), |(_, times)| *times)));
            }
            for (role, (count, times)) in of_role {
                let done = self.done.entry(role).or_default();
                done.threads = done.threads.max(count);
                done.times.add(times);
                if more_images > 0 {
                    done.per_image_ns.push((times.ran_ns as f64 / more_images as f64, more_images as f64));
                }
            }
        }
        self.last = Some((at, images, threads));
    }

    /// What the threads of a role used; `None` if the run was too short, or if the role had no thread.
    pub fn used(&self, role: &str) -> Option<Used> {
        let done = self.done.get(role).filter(|_| self.images > 0 && self.seconds > 0.0)?;
        let ran_ns = done.times.ran_ns as f64;
        Some(Used { cores: ran_ns / 1e9 / self.seconds, image_us: ran_ns / 1e3 / self.images as f64 })
    }

    /// By role: threads, processors that they kept busy, microseconds of processor time for an image and their spread,
    /// the part of the time in which they waited for a processor, and how long such a wait was. Empty if the run was
    /// too short.
    pub fn to_json(&self) -> Vec<Value> {
        if self.images == 0 || self.seconds <= 0.0 {
            return Vec::new();
        }
        let row = |(role, done): (&&'static str, &Done)| {
            let Times { ran_ns, waited_ns, turns } = done.times;
            json!({
                "role": role, "threads": done.threads, "cores": ran_ns as f64 / 1e9 / self.seconds,
                "image_us": ran_ns as f64 / 1e3 / self.images as f64, "image_spread_us": done.spread_ns().map(|ns| ns / 1e3),
                "waiting": waited_ns as f64 / 1e9 / self.seconds / done.threads as f64,
                "wait_us": waited_ns as f64 / 1e3 / turns.max(1) as f64, "turns": turns,
            })
        };
        self.done.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(ran_ms: u64, images: u64) -> Threads {
        let times = |ran_ms: u64| Times { ran_ns: ran_ms * 1_000_000, waited_ns: ran_ms * 100_000, turns: images };
        [(10, ("rx", times(ran_ms))), (11, ("work", times(2 * ran_ms))), (12, ("work", times(2 * ran_ms)))].into()
    }

    #[test]
    fn times_are_divided_by_role_and_image() {
        let mut watch = Watch::default();
        for n in 0..15u64 {
            // 100 images in 200 ms, of which rx takes 50 ms; the first second is not like the others.
            let warm = if n < 4 { 7 } else { 1 };
            watch.look(Duration::from_millis(200 * n), 100 * n, threads(50 * n * warm, n));
            if n == 4 {
                assert!(watch.to_json().is_empty() && watch.used("rx").is_none());
            }
        }
        let used = watch.used("rx").unwrap();
        assert!((used.cores - 0.25).abs() < 1e-9 && (used.image_us - 500.0).abs() < 1e-9, "{used:?}");
        assert_eq!(watch.used("plain"), None);
        let rows = watch.to_json();
        assert_eq!(rows.iter().map(|row| row["role"].as_str().unwrap()).collect::<Vec<_>>(), ["rx", "work"]);
        let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() - wanted).abs() < 1e-9;
        assert!(near(&rows[0]["cores"], 0.25) && near(&rows[0]["image_us"], 500.0), "{rows:?}");
        assert!(near(&rows[1]["cores"], 1.0) && near(&rows[1]["image_us"], 2000.0) && rows[1]["threads"] == 2);
        assert!(near(&rows[0]["image_spread_us"], 0.0) && near(&rows[0]["waiting"], 0.025), "{rows:?}");
    }

    #[test]
    fn the_spread_of_an_image_follows_from_that_of_intervals() {
        // Intervals of 100 images with means 9 and 11: a single image is spread by about 10.
        let done = Done { per_image_ns: [(9.0, 100.0), (11.0, 100.0)].repeat(50), ..Done::default() };
        assert!((done.spread_ns().unwrap() - 10.05).abs() < 0.01);
        assert_eq!(Done { per_image_ns: vec![(1.0, 1.0)], ..Done::default() }.spread_ns(), None);
    }

    #[test]
    fn this_process_has_threads() {
        let roles = ["rx-3", "plain-0", "out-file", "work-12", "konkordia"].map(role);
        assert_eq!(roles, ["rx", "plain", "out", "work", REST]);
        assert_eq!(Times::parse("1 2 3\n"), Some(Times { ran_ns: 1, waited_ns: 2, turns: 3 }));
        assert_eq!((Times::parse("1 2"), Times::parse("a b c")), (None, None));
        assert!(!now().is_empty() || !Path::new("/proc/self/schedstat").exists());
    }
}
