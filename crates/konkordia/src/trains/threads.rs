//! Threads of a run.

use konkordia_core::failure::{Exit, Failure, reason};
use std::thread::JoinHandle;

/// Starts a thread.
pub fn thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Failure> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        Failure::new(Exit::Io, format!("cannot start the thread {name}"), reason(&error), "raise the limit (ulimit -u)")
    })
}

/// The failure when a thread ended by a panic.
pub fn bug() -> Failure {
    Failure::new(Exit::Bug, "a thread of the train builder ended", "there is a bug in it", "please report this")
}
