//! Ctrl-C and SIGTERM: the first ends the run and closes the file, the second ends the program. SIGHUP, which comes when a terminal is closed, ends
//! nothing: a run is worth more than the terminal it was begun in.

use crate::contained;
use crate::failure::{Exit, Failure, reason};
use crate::say;
use konkordia_engine::control::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is said to who sends SIGHUP to a program with one run.
const SIGTERM_ENDS: &str = "Ctrl-C or SIGTERM does";

/// Signals that came to this process, each once.
pub struct Signals {
    came: SignalsInfo<WithOrigin>,
    ends: Once,
    hangups: Once,
}

/// Ctrl-C reaches all processes of a terminal, and a child (`contained`) once more, from the process that watches over it: that one cannot know which of
/// its signals the child has got by itself.
#[derive(Default)]
struct Once {
    direct: u32,
    passed_on: u32,
    heard: u32,
}

impl Once {
    /// Whether there is a new one in what came at the same time; `true` = passed on.
    fn is_new(&mut self, came: impl Iterator<Item = bool> + Clone) -> bool {
        // Who wants to be sure sends a signal twice: `timeout` does, to the process and to its group.
        self.direct += u32::from(came.clone().any(|is_passed_on| !is_passed_on));
        self.passed_on += u32::from(came.clone().any(|is_passed_on| is_passed_on));
        let sent = self.direct.max(self.passed_on);
        sent > std::mem::replace(&mut self.heard, sent)
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

/// The signals of this process from now on.
pub fn watched() -> Result<Signals, Failure> {
    Signals::new(&[SIGINT, SIGTERM, SIGHUP])
}

/// Those of them that end something; `fix` says what to do for which the others are often taken.
pub fn ending(signals: &mut Signals, fix: &str) -> impl Iterator<Item = i32> {
    let Signals { came, ends, hangups } = signals;
    std::iter::from_fn(move || {
        loop {
            let now: Vec<Origin> = came.wait().collect();
            let (hung_up, ended): (Vec<&Origin>, Vec<&Origin>) = now.iter().partition(|origin| origin.signal == SIGHUP);
            if hangups.is_new(hung_up.iter().map(|origin| is_passed_on(origin))) {
                say::to_stderr(&format!("SIGHUP ends nothing; {fix}"));
            }
            if ends.is_new(ended.iter().map(|origin| is_passed_on(origin))) {
                return ended.first().map(|origin| origin.signal);
            }
        }
    })
}

/// Set by the first Ctrl-C or SIGTERM from now on; the second ends the program.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new(&[SIGINT, SIGTERM])?;
    let set = Arc::clone(&flag);
    std::thread::spawn(move || {
        for _ in ending(&mut signals, SIGTERM_ENDS) {
            if set.swap(true, Ordering::AcqRel) {
                // Without a look at what the other threads do.
                signal_hook::low_level::exit(i32::from(Exit::Interrupted as u8));
            }
        }
    });
    Ok(flag)
}

fn unwatched(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Io, "cannot watch for Ctrl-C", reason(error), "try again; the system is out of some resource")
}

/// Watches the signals of this process from now on.
pub struct Watch {
    signals: Option<Signals>,
    interrupted: Arc<AtomicBool>,
    /// What the first signal stops.
    control: Arc<Mutex<Option<Arc<Control>>>>,
}

impl Watch {
    /// Takes the signals over; until [`Watch::start`] they wait.
    pub fn new() -> Result<Self, Failure> {
        let signals = watched()?;
        Ok(Self { signals: Some(signals), interrupted: Arc::default(), control: Arc::default() })
    }

    /// Stops the run of `control` at the first signal, the program at the second.
    pub fn start(&mut self, control: Arc<Control>) {
        self.also_stop(control);
        let Some(mut signals) = self.signals.take() else { return };
        let interrupted = Arc::clone(&self.interrupted);
        let control = Arc::clone(&self.control);
        std::thread::spawn(move || {
            for (n, _) in ending(&mut signals, SIGTERM_ENDS).enumerate() {
                if n > 0 {
                    say::to_stderr("stopped at once; the file is completed by: konkordia repair FILE");
                    std::process::exit(i32::from(Exit::Interrupted as u8));
                }
                interrupted.store(true, Ordering::Release);
                say::to_stderr("stopping: closing the file (once more to stop at once)");
                if let Some(control) = &*control.lock().unwrap_or_else(PoisonError::into_inner) {
                    control.stop();
                }
            }
        });
    }

    /// From now on the first signal stops this run; at once if it has come already.
    pub fn also_stop(&self, control: Arc<Control>) {
        let mut place = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if self.interrupted() {
            control.stop();
        }
        *place = Some(control);
    }

    /// True after the first signal.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }
}

/// For measurements: Ctrl-C ends the program at once, but does not leave a folder of large files behind.
pub fn remove_folder_on_signal(folder: std::path::PathBuf) -> Result<(), Failure> {
    let mut signals = watched()?;
    std::thread::spawn(move || {
        if ending(&mut signals, SIGTERM_ENDS).next().is_some() {
            let _ = std::fs::remove_dir_all(&folder);
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Once;

    #[test]
    fn what_is_passed_on_counts_once() {
        let heard = |signals: &[bool]| {
            let mut once = Once::default();
            signals.iter().map(|is_passed_on| once.is_new([*is_passed_on].into_iter())).collect::<Vec<_>>()
        };
        // Ctrl-C twice on a terminal, in any order; then only to the process that passes it on.
        assert_eq!(heard(&[false, true, false, true, true]), [true, false, true, false, true]);
        assert_eq!(heard(&[true, false, false, true]), [true, false, true, false]);
        assert_eq!(heard(&[true, true]), [true, true]);
        assert_eq!(heard(&[false, false]), [true, true]);
        let mut once = Once::default();
        assert!(
            once.is_new([false, true, false].into_iter()) && !once.is_new([].into_iter()) && once.is_new([false].into_iter())
        );
    }
}
