//! Verbs that read files do so in a child process: the same program with the same arguments. libhdf5 was not made for
//! hostile files, and some damaged files end the process that reads them. The parent process then reports which file
//! that was ([`parent`]). It also ends a child that a file keeps busy for ever ([`progress`]). The child has few
//! rights, so that a hostile file can do little with it ([`child`]). [`task`] lists the verbs, and where each of them
//! writes. Plug-ins of HDF5 run in a process behind the child ([`plug_ins`]).

mod child;
mod parent;
mod plug_in_process;
mod plug_ins;
mod progress;
mod task;

use crate::cli::Command;
use crate::console;
use child::STARTED_BY;
use konkordia_core::failure::{Exit, Failure, reason};
use std::process::ExitCode;
use task::Task;

pub use child::{end_with_parent, parent_id};
pub use plug_in_process::replaced as ran_plug_ins;

/// From here on this process writes no file, starts no program and uses no TCP or UDP port; see [`child`].
pub fn restrict_to_reading() {
    child::restrict_or_note(&Task::default());
}

/// Starts the process that runs plug-ins, or says why it cannot be: then files of unknown filters are refused.
fn start_plug_ins() {
    if let Err(error) = plug_ins::start() {
        console::note(&format!("the plug-ins of HDF5 are not used, their process cannot be started: {}", reason(&error)));
    }
}

/// Does the work of `command`, in a child if it reads files that may come from others.
///
/// # Errors
/// Those of the work, if this process does it. Otherwise: the child cannot be started, or a file ended it.
pub fn run(command: &Command, work: impl FnOnce() -> Result<Exit, Failure>) -> Result<ExitCode, Failure> {
    let Some(task) = Task::of(command) else { return work().map(ExitCode::from) };
    match std::env::var(STARTED_BY) {
        Err(_) => parent::watch(&task),
        Ok(number) => {
            child::begin(&number, &task, start_plug_ins)?;
            work().map(ExitCode::from)
        }
    }
}
