//! Verbs that read files do so in a child process: this program once more, with the same arguments. libhdf5 was not made for hostile files, and some
//! damaged ones end the process that reads them. The first process says then which file that was ([`parent`]); what whoever made the file can do with
//! the child is little ([`child`]). [`task`] lists the verbs, and where each of them writes.

mod child;
mod parent;
mod task;

use crate::cli::Command;
use crate::failure::{Exit, Failure};
use std::process::ExitCode;
use task::Task;

pub use child::parent_id;

/// Marks a child: the number of the process that started it.
const STARTED_BY: &str = "KONKORDIA_CONTAINED_BY";

/// Does the work of `command`, in a child if it reads files that may come from others.
///
/// # Errors
/// Those of the work, where it is done in this process; that the child cannot be started, or that a file ended it.
pub fn run(command: &Command, work: impl FnOnce() -> Result<Exit, Failure>) -> Result<ExitCode, Failure> {
    let Some(task) = Task::of(command) else { return work().map(ExitCode::from) };
    match std::env::var(STARTED_BY) {
        Err(_) => parent::watch(&task),
        Ok(number) => {
            child::begin(&number, &task)?;
            work().map(ExitCode::from)
        }
    }
}
