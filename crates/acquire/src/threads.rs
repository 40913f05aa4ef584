//! Processor time of the threads of this process over the last second. It is looked at only when somebody asks.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// The share is taken over this time, if somebody asked so long ago.
const OVER: Duration = Duration::from_millis(900);
/// The kernel counts in steps of 10 ms, so a shorter time says nothing.
const SHORTEST: Duration = Duration::from_millis(250);
/// Older samples are of another time.
const LONGEST: Duration = Duration::from_secs(5);
/// Samples kept at most.
const SAMPLES_MAX: usize = 16;
/// Unit of the times in `stat`: USER_HZ, which Linux has fixed for programs.
const TICKS_PER_S: f64 = 100.0;
/// Threads of a sample at most.
const THREADS_MAX: usize = 4096;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThreadGroup {
    /// Takes packets or messages.
    Receive,
    /// Assembles, converts and packs images.
    Convert,
    /// Writes files.
    Write,
    /// Analyses images.
    Analyse,
    /// Sends images to consumers; also the threads of ZeroMQ, through which streams come in.
    Stream,
    /// Answers requests.
    Http,
    /// Everything else.
    Other,
}

/// What threads do, and how their names begin (ARCHITECTURE.md, Threads). The first that fits counts.
const GROUPS: [(&str, ThreadGroup); 19] = [
    ("rx-", ThreadGroup::Receive),
    ("pull-", ThreadGroup::Receive),
    ("sort", ThreadGroup::Receive),
    ("work-", ThreadGroup::Convert),
    ("series-work-", ThreadGroup::Convert),
    ("scalar", ThreadGroup::Convert),
    ("commit", ThreadGroup::Convert),
    ("join", ThreadGroup::Convert),
    ("out-file", ThreadGroup::Write),
    ("sink-", ThreadGroup::Write),
    ("raw-", ThreadGroup::Write),
    ("sync", ThreadGroup::Write),
    ("drain", ThreadGroup::Write),
    ("analyse-", ThreadGroup::Analyse),
    ("rule", ThreadGroup::Analyse),
    ("out-", ThreadGroup::Stream),
    ("ZMQbg", ThreadGroup::Stream),
    ("http", ThreadGroup::Http),
    ("tokio", ThreadGroup::Http),
];

impl ThreadGroup {
    fn of(name: &str) -> Self {
        GROUPS.iter().find(|(begin, _)| name.starts_with(begin)).map_or(Self::Other, |(_, group)| *group)
    }
}

/// A thread over the last second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ThreadLoad {
    /// Its name.
    #[schema(example = "rx-0")]
    pub name: String,
    /// What it does.
    pub group: ThreadGroup,
    /// Share of a core, 0 to 1.
    pub cores: f64,
}

/// Name of a thread, and the time that it ran.
type Threads = BTreeMap<u64, (String, Duration)>;

/// Keeps what it saw when somebody asked before.
#[derive(Default)]
pub struct ThreadWatch {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Oldest first.
    samples: VecDeque<(Instant, Threads)>,
    /// The newest answer: many who ask at once share it.
    answer: Option<(Instant, Vec<ThreadLoad>)>,
}

impl ThreadWatch {
    /// The threads and their load since somebody asked about a second ago, the busiest first. `None` if nobody asked in
    /// the last seconds: then to be asked again after [`ThreadWatch::PAUSE`].
    pub fn look(&self) -> Option<Vec<ThreadLoad>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { samples, answer } = &mut *kept;
        let now = Instant::now();
        let age = |at: &Instant| now.duration_since(*at);
        if let Some((_, loads)) = answer.as_ref().filter(|(at, _)| age(at) < SHORTEST) {
            return Some(loads.clone());
        }
        while samples.front().is_some_and(|(at, _)| age(at) > LONGEST) || samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
        let threads = read(Path::new("/proc/self/task"));
        let since_one_second = samples.iter().rev().find(|(at, _)| age(at) >= OVER);
        let before = since_one_second.or_else(|| samples.front().filter(|(at, _)| age(at) >= SHORTEST));
        let loads = before.map(|(at, before)| loads(before, &threads, age(at)));
        // Whoever asks very often does not push out the sample from a second ago.
        if samples.back().is_none_or(|(at, _)| age(at) >= SHORTEST) {
            samples.push_back((now, threads));
        }
        *answer = loads.clone().map(|loads| (now, loads));
        loads
    }

    /// After this time a second look has something to compare with.
    pub const PAUSE: Duration = SHORTEST;
}

fn loads(before: &Threads, now: &Threads, over: Duration) -> Vec<ThreadLoad> {
    let one = |(id, (name, ran)): (&u64, &(String, Duration))| {
        // A thread that began meanwhile ran since then.
        let ran_before = before.get(id).filter(|(other, _)| other == name).map_or(Duration::ZERO, |(_, ran)| *ran);
        let cores = ran.saturating_sub(ran_before).as_secs_f64() / over.as_secs_f64().max(1e-3);
        ThreadLoad { name: name.clone(), group: ThreadGroup::of(name), cores: cores.min(1.0) }
    };
    let mut loads: Vec<ThreadLoad> = now.iter().map(one).collect();
    loads.sort_by(|a, b| b.cores.total_cmp(&a.cores).then_with(|| a.name.cmp(&b.name)));
    loads
}

fn read(tasks: &Path) -> Threads {
    let one = |folder: std::fs::DirEntry| {
        let id = folder.file_name().to_str()?.parse().ok()?;
        Some((id, parse(&std::fs::read_to_string(folder.path().join("stat")).ok()?)?))
    };
    std::fs::read_dir(tasks).into_iter().flatten().flatten().take(THREADS_MAX).filter_map(one).collect()
}

/// Name and time from a `stat`: `12 (name) S ...`, where fields 14 and 15 are user and system time. The name may have
/// blanks and parentheses.
fn parse(stat: &str) -> Option<(String, Duration)> {
    let (begin, rest) = stat.rsplit_once(')')?;
    let (_, name) = begin.split_once('(')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    Some((name.to_owned(), Duration::from_secs_f64(ticks as f64 / TICKS_PER_S)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read_whatever_the_name() {
        let line = "41 (rx-0) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0";
        assert_eq!(parse(line), Some(("rx-0".into(), Duration::from_secs(2))));
        let odd = line.replace("(rx-0)", "(a) b (c)");
        assert_eq!(parse(&odd).map(|(name, _)| name), Some("a) b (c".into()));
        assert_eq!(parse("41 (x) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn groups_are_by_name() {
        let of = ["rx-3", "out-file", "out-preview", "series-work-1", "http", "det-eiger"].map(ThreadGroup::of);
        use ThreadGroup::{Convert, Http, Other, Receive, Stream, Write};
        assert_eq!(of, [Receive, Write, Stream, Convert, Http, Other]);
    }

    #[test]
    fn the_share_is_since_the_look_before_and_samples_are_bounded() {
        let watch = ThreadWatch::default();
        let begun = Instant::now();
        assert_eq!(watch.look(), None, "there is nothing to compare with");
        let me = || parse(&std::fs::read_to_string("/proc/thread-self/stat").unwrap()).unwrap();
        let (name, ran) = me();
        // A busy machine gives this thread little of that time.
        while begun.elapsed() < 2 * SHORTEST || me().1 < ran + Duration::from_millis(100) {}
        let used = me().1 - ran;
        let loads = watch.look().expect("somebody asked before");
        // The kernel counts in steps of 10 ms.
        let least = (used.as_secs_f64() - 0.02) / begun.elapsed().as_secs_f64();
        assert!(loads.iter().any(|load| load.name == name && load.cores >= least), "{name}, at least {least}: {loads:?}");
        assert!(loads.windows(2).all(|pair| pair[0].cores >= pair[1].cores), "the busiest first");
        for _ in 0..100 {
            watch.look();
        }
        assert!(watch.kept.lock().unwrap().samples.len() <= 3);
    }
}
