//! Ctrl-C and SIGTERM: the first ends the run and closes the file, the second ends the program. SIGHUP, which is sent
//! when a terminal is closed, ends no run, because the data are worth more than the terminal. [`stop_flag`] and the
//! commands that use it do not handle SIGHUP.

use crate::console;
use crate::contained;
use konkordia_acquire::stopper::Stopper;
use konkordia_core::failure::{Exit, Failure, reason};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Hint that is printed after a SIGHUP to a program with one run.
const SIGTERM_ENDS: &str = "stop with Ctrl-C or SIGTERM";

/// The signals that this process receives, each counted once.
pub struct Signals {
    came: SignalsInfo<WithOrigin>,
    ends: Once,
    hangups: Once,
}

/// The same signal twice within this time counts as one: `timeout` and similar programs send it to the process and at
/// once to its group.
const ONE: Duration = Duration::from_millis(100);

/// Counts signals that arrive in two ways once. Ctrl-C reaches all processes of a terminal. A child (`contained`)
/// receives it again from its parent process, which passes signals on and cannot know which of them the child has
/// received directly.
#[derive(Default)]
struct Once {
    direct: Way,
    passed_on: Way,
    counted: u32,
}

#[derive(Default)]
struct Way {
    count: u32,
    last: Option<(i32, Instant)>,
}

impl Once {
    fn is_new(&mut self, signal: i32, is_passed_on: bool, now: Instant) -> bool {
        let way = if is_passed_on { &mut self.passed_on } else { &mut self.direct };
        if way.last.is_none_or(|(last, at)| last != signal || now.duration_since(at) >= ONE) {
            way.count += 1;
            way.last = Some((signal, now));
        }
        let sent = self.direct.count.max(self.passed_on.count);
        sent > std::mem::replace(&mut self.counted, sent)
    }
}

impl Signals {
    fn new(which: &[i32]) -> Result<Self, Failure> {
        let came = SignalsInfo::new(which).map_err(|error| unwatched(&error))?;
        Ok(Self { came, ends: Once::default(), hangups: Once::default() })
    }
}

fn is_passed_on(signal: &Origin) -> bool {
    let sender = signal.process.and_then(|process| u32::try_from(process.pid).ok());
    sender.is_some() && sender == contained::parent_id()
}

/// Handles SIGINT, SIGTERM and SIGHUP of this process from now on.
pub fn watched() -> Result<Signals, Failure> {
    Signals::new(&[SIGINT, SIGTERM, SIGHUP])
}

/// The signals that end something. For a SIGHUP only a line is printed, in which `fix` says what to do instead.
pub fn ending(signals: &mut Signals, fix: &str) -> impl Iterator<Item = i32> {
    let Signals { came, ends, hangups } = signals;
    came.forever().filter_map(move |origin| {
        let is_hangup = origin.signal == SIGHUP;
        let once = if is_hangup { &mut *hangups } else { &mut *ends };
        let is_new = once.is_new(origin.signal, is_passed_on(&origin), Instant::now());
        if is_hangup && is_new {
            console::to_stderr(&format!("SIGHUP is ignored; {fix}"));
        }
        (is_new && !is_hangup).then_some(origin.signal)
    })
}

/// A flag that the first Ctrl-C or SIGTERM sets; the second ends the program.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new(&[SIGINT, SIGTERM])?;
    let set = Arc::clone(&flag);
    std::thread::spawn(move || {
        for _ in ending(&mut signals, SIGTERM_ENDS) {
            if set.swap(true, Ordering::AcqRel) {
                // Ends the process at once, whatever the other threads are doing.
                signal_hook::low_level::exit(i32::from(Exit::Interrupted as u8));
            }
        }
    });
    Ok(flag)
}

fn unwatched(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Io, "cannot watch for Ctrl-C", reason(error), "try again; the system is out of some resource")
}

/// From now on the first signal stops the runs that the stopper follows, and the second ends the program.
pub fn stopper() -> Result<Stopper, Failure> {
    let mut signals = watched()?;
    let stopper = Stopper::default();
    let of_signals = stopper.clone();
    std::thread::spawn(move || {
        for (n, _) in ending(&mut signals, SIGTERM_ENDS).enumerate() {
            if n > 0 {
                console::to_stderr("stopped at once; repair the unfinished file with: konkordia repair FILE");
                std::process::exit(i32::from(Exit::Interrupted as u8));
            }
            console::to_stderr("stopping: closing the file (press Ctrl-C again to stop immediately)");
            of_signals.stop();
        }
    });
    Ok(stopper)
}

/// For benches: Ctrl-C ends the program at once, but removes `folder` with its large files.
pub fn remove_folders_on_signal(folders: Vec<std::path::PathBuf>) -> Result<(), Failure> {
    let mut signals = watched()?;
    std::thread::spawn(move || {
        if ending(&mut signals, SIGTERM_ENDS).next().is_some() {
            folders.iter().for_each(|folder| drop(std::fs::remove_dir_all(folder)));
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Once, SIGINT, SIGTERM};

    #[test]
    fn what_is_passed_on_and_what_is_sent_twice_at_once_counts_once() {
        let begin = Instant::now();
        let are_new = |signals: &[(u64, i32, bool)]| {
            let mut once = Once::default();
            let is_new = |&(ms, signal, is_passed_on): &(u64, i32, bool)| {
                once.is_new(signal, is_passed_on, begin + Duration::from_millis(ms))
            };
            signals.iter().map(is_new).collect::<Vec<_>>()
        };
        let are_new_interrupts = |signals: &[(u64, bool)]| {
            are_new(&signals.iter().map(|(ms, is_passed_on)| (*ms, SIGINT, *is_passed_on)).collect::<Vec<_>>())
        };
        // Ctrl-C twice on a terminal, directly and passed on in any order; then once only to the process that passes it
        // on.
        let twice = [(0, false), (900, true), (1000, false), (1001, true), (2000, true)];
        assert_eq!(are_new_interrupts(&twice), [true, false, true, false, true]);
        assert_eq!(are_new_interrupts(&[(0, true), (1, false), (300, false), (300, true)]), [true, false, true, false]);
        assert_eq!(are_new_interrupts(&[(0, true), (200, true)]), [true, true]);
        // Twice at once, and again.
        assert_eq!(are_new_interrupts(&[(0, false), (1, false), (99, false), (100, false)]), [true, false, false, true]);
        assert_eq!(are_new(&[(0, SIGINT, false), (1, SIGTERM, false)]), [true, true]);
    }
}
