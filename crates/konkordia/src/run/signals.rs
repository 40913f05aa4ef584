//! Ctrl-C and SIGTERM: the first ends the run and closes the file, the second ends the program. SIGHUP, which comes when a terminal is closed, ends
//! nothing: a run is worth more than the terminal it was begun in.

use crate::failure::{Exit, Failure, reason};
use crate::say;
use konkordia_engine::control::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Looks after runs that come one after the other, and ends them from another thread.
#[derive(Clone, Default)]
pub struct Stopper {
    is_stopped: Arc<AtomicBool>,
    runs: Arc<Mutex<Runs>>,
}

#[derive(Default)]
struct Runs {
    /// The one that goes on.
    control: Option<Arc<Control>>,
    /// Images of those before it.
    images_before: u64,
}

impl Stopper {
    /// Ends the run that goes on, and those after it before they begin.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(control) = &self.runs().control {
            control.stop();
        }
    }

    /// True after [`Stopper::stop`].
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Images of all runs until now.
    pub fn images(&self) -> u64 {
        let runs = self.runs();
        runs.images_before + runs.control.as_ref().map_or(0, |control| control.progress().images_committed)
    }

    /// Another run begins.
    fn follow(&self, control: Arc<Control>) {
        let mut runs = self.runs();
        if self.is_stopped() {
            control.stop();
        }
        if let Some(before) = runs.control.replace(control) {
            runs.images_before += before.progress().images_committed;
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the signals of this process from now on.
pub struct Watch {
    signals: Option<Signals>,
    stopper: Stopper,
}

impl Watch {
    /// Takes the signals over; until [`Watch::start`] they wait.
    pub fn new() -> Result<Self, Failure> {
        let signals = watched()?;
        Ok(Self { signals: Some(signals), stopper: Stopper::default() })
    }

    /// For runs that commands end and not signals.
    pub fn without_signals(stopper: Stopper) -> Self {
        Self { signals: None, stopper }
    }

    /// Stops the run of `control` at the first signal, the program at the second.
    pub fn start(&mut self, control: Arc<Control>) {
        self.also_stop(control);
        let Some(mut signals) = self.signals.take() else { return };
        let stopper = self.stopper.clone();
        std::thread::spawn(move || {
            for (n, _) in ending(&mut signals, SIGTERM_ENDS).enumerate() {
                if n > 0 {
                    say::to_stderr("stopped at once; the file is completed by: konkordia repair FILE");
                    std::process::exit(i32::from(Exit::Interrupted as u8));
                }
                say::to_stderr("stopping: closing the file (once more to stop at once)");
                stopper.stop();
            }
        });
    }

    /// From now on the first signal stops this run; at once if it has come already.
    pub fn also_stop(&self, control: Arc<Control>) {
        self.stopper.follow(control);
    }

    /// True after the first signal.
    pub fn interrupted(&self) -> bool {
        self.stopper.is_stopped()
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
