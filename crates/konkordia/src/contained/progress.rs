//! Whether the process that reads files makes progress. libhdf5 loops for ever over some damaged files (an entry of
//! length zero in a global heap), and a file can be made for that. A process that computes for long and meanwhile
//! neither reads nor writes is stuck. One that waits, for a slow disk or because it was halted, is not: it uses no
//! processor.

use konkordia_core::failure::{Exit, Failure};
use rustix::process::Pid;
use std::time::{Duration, Instant};

/// The environment variable with the seconds of processor time that a process may use without progress.
pub const VARIABLE: &str = "KONKORDIA_STUCK_S";
/// Without that variable: more than compressing one image takes at any level.
const STUCK_S: u64 = 120;
const STUCK_S_MAX: u64 = 86_400;
/// Less than this is written by lines that report the progress; what a process writes into files comes from files.
const WRITTEN_MIN: u64 = 256 << 10;
/// /proc counts processor time in this unit, on all processors that Linux programs are built for (USER_HZ).
const TICK_NS: u64 = 10_000_000;

/// The seconds that [`VARIABLE`] says.
///
/// # Errors
/// It holds something else.
pub fn patience() -> Result<Duration, Failure> {
    let seconds = match std::env::var_os(VARIABLE) {
        None => Some(STUCK_S),
        Some(text) => text.to_str().and_then(|text| text.parse().ok()).filter(|s| (1..=STUCK_S_MAX).contains(s)),
    };
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let fix = format!("set {VARIABLE} to the seconds that a command may compute without reading, for example {STUCK_S}");
        Failure::new(Exit::Usage, format!("{VARIABLE} is not a number of seconds from 1 to {STUCK_S_MAX}"), "", fix)
    })
}

/// What a process has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time that its threads have used processors.
    processor: Duration,
    read_bytes: u64,
    written_bytes: u64,
}

impl Usage {
    /// As /proc says; `None` if it does not, for example because the program has rights that its user has not.
    pub fn of(process: Pid) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", process.as_raw_nonzero())).ok();
        Self::parse(&read("stat")?, &read("io")?)
    }

    /// See proc_pid_stat(5) and proc_pid_io(5).
    fn parse(stat: &str, io: &str) -> Option<Self> {
        // The name of the program, in brackets, may hold anything; behind it field 3 comes first.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(14 - 3);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        let (user, system) = (ticks()?, ticks()?);
        let number = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        Some(Self {
            processor: Duration::from_nanos((user + system).saturating_mul(TICK_NS)),
            read_bytes: number("rchar:")?,
            written_bytes: number("wchar:")?,
        })
    }
}

/// Watches one process.
pub struct Watch {
    patience: Duration,
    /// When there was progress, and what had been done by then.
    last: Option<(Instant, Usage)>,
}

impl Watch {
    /// A process may use the processor for `patience` without progress.
    pub fn new(patience: Duration) -> Self {
        Self { patience, last: None }
    }

    /// How often to look.
    pub fn interval(&self) -> Duration {
        (self.patience / 10).min(Duration::from_secs(2))
    }

    /// True if the process is stuck, judged by what it has done until `now`.
    pub fn is_stuck(&mut self, now: Instant, usage: Usage) -> bool {
        let Some((since, then)) = self.last else {
            self.last = Some((now, usage));
            return false;
        };
        if usage.read_bytes != then.read_bytes || usage.written_bytes.saturating_sub(then.written_bytes) >= WRITTEN_MIN {
            self.last = Some((now, usage));
            return false;
        }
        let computed = usage.processor.saturating_sub(then.processor);
        computed >= self.patience && now.saturating_duration_since(since) >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn usage(processor_s: u64, read_bytes: u64, written_bytes: u64) -> Usage {
        Usage { processor: Duration::from_secs(processor_s), read_bytes, written_bytes }
    }

    #[test]
    fn only_a_process_that_computes_and_does_nothing_else_is_stuck() {
        let began = Instant::now();
        let stuck = |steps: &[(u64, Usage)]| {
            let mut watch = Watch::new(Duration::from_secs(10));
            steps.iter().any(|(second, usage)| watch.is_stuck(began + Duration::from_secs(*second), *usage))
        };
        assert!(stuck(&[(0, usage(0, 5, 0)), (9, usage(9, 5, 0)), (10, usage(10, 5, 0))]));
        assert!(!stuck(&[(0, usage(0, 5, 0)), (9, usage(9, 6, 0)), (10, usage(10, 6, 0))]), "it reads");
        assert!(!stuck(&[(0, usage(0, 5, 0)), (9, usage(9, 5, 1 << 20)), (10, usage(10, 5, 1 << 20))]), "it writes");
        assert!(stuck(&[(0, usage(0, 5, 0)), (9, usage(9, 5, 1000)), (10, usage(10, 5, 1100))]), "it only reports");
        assert!(!stuck(&[(0, usage(0, 5, 0)), (1000, usage(9, 5, 0))]), "it waits");
        assert!(!stuck(&[(0, usage(0, 5, 0)), (2, usage(100, 5, 0))]), "many threads compute for a moment");
        assert!(stuck(&[(0, usage(0, 5, 0)), (5, usage(5, 6, 0)), (15, usage(15, 6, 0))]), "after it has read");
    }

    #[test]
    fn the_numbers_of_the_kernel_are_understood() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 123 0 0 0 250 50 0 0 20 0 1 0 3175458 3133440 381";
        let io = "rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 0\nread_bytes: 8192\n";
        let found = Usage::parse(stat, io).expect("numbers");
        assert_eq!(found, Usage { processor: Duration::from_secs(3), read_bytes: 6976, written_bytes: 12 });
        assert_eq!((Usage::parse(stat, ""), Usage::parse("7 (a", io), Usage::parse("7 (a) R 1", io)), (None, None, None));
    }

    #[test]
    fn a_process_that_loops_is_found_and_one_that_sleeps_or_reads_is_not() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().expect("a shell");
        let scripts = ["while :; do :; done", "exec sleep 600", "while :; do read line < /etc/hostname || :; done"];
        let mut processes = scripts.map(|script| (start(script), Watch::new(Duration::from_millis(300)), false));
        let began = Instant::now();
        // Until the first one is found, and the others have had as much time again.
        let mut until = None;
        while until.is_none_or(|until| Instant::now() < until) && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(30));
            for (process, watch, is_stuck) in &mut processes {
                let usage = Usage::of(Pid::from_child(process)).expect("of a child of this user");
                *is_stuck |= watch.is_stuck(Instant::now(), usage);
            }
            if processes[0].2 {
                until.get_or_insert(Instant::now() + began.elapsed());
            }
        }
        let found = processes.each_ref().map(|(.., is_stuck)| *is_stuck);
        for (process, ..) in &mut processes {
            process.kill().expect("it still runs");
            process.wait().expect("it ended");
        }
        assert_eq!(found, [true, false, false]);
    }
}
