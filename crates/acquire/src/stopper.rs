//! Ends runs from another thread.

use konkordia_engine::control::Control;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the images of runs that follow one another, and can end them from another thread.
#[derive(Clone, Default)]
pub struct Stopper {
    is_stopped: Arc<AtomicBool>,
    runs: Arc<Mutex<Runs>>,
}

#[derive(Default)]
struct Runs {
    /// The current run.
    control: Option<Arc<Control>>,
    /// Images of each of the runs before it.
    images_before: Vec<u64>,
}

impl Stopper {
    /// Ends the current run, and later ones before they begin.
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

    /// Committed images of all runs so far.
    pub fn images(&self) -> u64 {
        self.images_of_runs().iter().sum()
    }

    /// Committed images of each run so far.
    pub fn images_of_runs(&self) -> Vec<u64> {
        let runs = self.runs();
        let now = runs.control.as_ref().map(|control| control.progress().images_committed);
        runs.images_before.iter().copied().chain(now).collect()
    }

    /// Makes `control` the current run. It stops at once after [`Stopper::stop`].
    pub fn follow(&self, control: Arc<Control>) {
        let mut runs = self.runs();
        if self.is_stopped() {
            control.stop();
        }
        if let Some(before) = runs.control.replace(control) {
            runs.images_before.push(before.progress().images_committed);
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
