//! The child process: it ends when its parent ends, and it gives up the rights that reading files does not need.

use super::task::Task;
use crate::console;
use konkordia_core::failure::{Exit, Failure, reason};
use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
    make_bitflags,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::sync::OnceLock;

/// Newest version of Landlock that is used. Of an older kernel, everything that it supports is used.
const NEWEST: ABI = ABI::V10;

/// The environment variable that marks a child. Its value is the process id of the parent.
pub const STARTED_BY: &str = "KONKORDIA_CONTAINED_BY";

static PARENT: OnceLock<u32> = OnceLock::new();

/// Process id of the parent, if this process is a child.
pub fn parent_id() -> Option<u32> {
    PARENT.get().copied()
}

/// Makes this process, which has no other thread yet, the child of the process with the id `number`. `before` does what
/// it may not do afterwards, such as to start programs; it is not called if all that is read comes from one folder.
///
/// # Errors
/// When that process is gone or did not start this one.
pub fn begin(number: &str, task: &Task, before: impl FnOnce()) -> Result<(), Failure> {
    let parent = end_with_parent(number, STARTED_BY)?;
    PARENT.get_or_init(|| parent);
    if task.only_from.is_none() {
        before();
    }
    restrict_or_note(task);
    Ok(())
}

/// From here on this process is killed when its parent ends, which must be the process with the id `number`, as the
/// environment variable `variable` says. Returns that id.
///
/// # Errors
/// That process is gone or did not start this one.
pub fn end_with_parent(number: &str, variable: &str) -> Result<u32, Failure> {
    // The parent cannot pass SIGKILL on. The signal is requested before the check that the parent is alive, so that the
    // parent cannot end unnoticed in between.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        let fix = "try again; the system is out of some resource";
        Failure::new(Exit::Io, "this process cannot be set to end with its parent process", reason(&error.into()), fix)
    })?;
    let parent = std::os::unix::process::parent_id();
    if number != parent.to_string() {
        let why = format!("{variable} is set, but process {number} did not start this one or is gone");
        return Err(Failure::new(
            Exit::State,
            "this process was not started by a running konkordia",
            why,
            format!("unset {variable}, and try again"),
        ));
    }
    Ok(parent)
}

/// Restricts this process and its threads, or says why that cannot be.
pub fn restrict_or_note(task: &Task) {
    if let Err(error) = restrict(task) {
        console::to_stderr(&format!("note: the files are read with all rights of this user, they cannot be restricted: {error}"));
    }
}

/// From here on this process and its threads write only where `task` says, start no program, and use no TCP or UDP
/// port. They read everywhere unless `task` says otherwise. A kernel with an older Landlock restricts less, one without
/// it nothing.
fn restrict(task: &Task) -> Result<(), RulesetError> {
    let mut guarded = AccessFs::from_write(NEWEST) | AccessFs::Execute;
    if task.deletes_originals {
        guarded.remove(AccessFs::RemoveFile);
    }
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    if task.only_from.is_some() {
        guarded |= read;
    }
    let mut permitted = make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | MakeDir | RemoveFile}) & guarded;
    if task.moves_folders {
        permitted |= make_bitflags!(AccessFs::{RemoveDir | Refer}) & guarded;
    }
    // If a folder does not exist, the work itself reports that.
    let folders = task.folders.iter().filter_map(|folder| PathFd::new(folder).ok());
    let readable = task.only_from.iter().filter_map(|folder| PathFd::new(folder).ok());
    Ruleset::default()
        .handle_access(guarded)?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(folders.map(|folder| Ok::<_, RulesetError>(PathBeneath::new(folder, permitted))))?
        .add_rules(readable.map(|folder| Ok::<_, RulesetError>(PathBeneath::new(folder, read))))?
        .restrict_self()?;
    Ok(())
}
