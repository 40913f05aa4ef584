//! Ctrl-C and SIGTERM: the first ends the run and closes the file, the second ends the program. SIGHUP, which comes when a terminal is closed, ends
//! nothing: a run is worth more than the terminal it was begun in.

use crate::failure::{Exit, Failure, reason};
use crate::say;
use konkordia_engine::control::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is said to who sends SIGHUP to a program with one run.
const SIGTERM_ENDS: &str = "Ctrl-C or SIGTERM does";

/// The signals of this process from now on.
pub fn watched() -> Result<Signals, Failure> {
    Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| unwatched(&error))
}

/// Those of them that end something; `fix` says what to do for which the others are often taken.
pub fn ending(signals: &mut Signals, fix: &str) -> impl Iterator<Item = i32> {
    signals.forever().filter(move |signal| {
        if *signal == SIGHUP {
            say::to_stderr(&format!("SIGHUP ends nothing; {fix}"));
        }
        *signal != SIGHUP
    })
}

/// Set by the first Ctrl-C or SIGTERM from now on; the second ends the program.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(Exit::Interrupted as u8), Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| unwatched(&error))?;
    }
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
