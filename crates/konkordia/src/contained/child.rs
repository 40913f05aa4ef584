//! The child: ends with the process that started it, and may no longer do what reading files does not need.

use super::STARTED_BY;
use super::task::Task;
use crate::failure::{Exit, Failure, reason};
use crate::say;
use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
    make_bitflags,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::sync::OnceLock;

/// Of kernels that know less, what they know is used; of newer ones no more than this.
const NEWEST: ABI = ABI::V10;

static PARENT: OnceLock<u32> = OnceLock::new();

/// The process that watches over this one, if this is a child.
pub fn parent_id() -> Option<u32> {
    PARENT.get().copied()
}

/// Makes this process, which has no other thread yet, the child of the process `number`.
///
/// # Errors
/// When that one is gone, or was never there.
pub fn begin(number: &str, task: &Task) -> Result<(), Failure> {
    // SIGKILL cannot be passed on. First this, then the look whether the parent still lives: so it cannot die in between.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        let fix = "try again; the system is out of some resource";
        Failure::new(Exit::Io, "cannot be bound to the process that started this one", reason(&error.into()), fix)
    })?;
    let parent = std::os::unix::process::parent_id();
    if number != parent.to_string() {
        let why = format!("{STARTED_BY} is set, but process {number} did not start this one or is gone");
        return Err(Failure::new(
            Exit::State,
            "nobody waits for this process",
            why,
            format!("unset {STARTED_BY}, and try again"),
        ));
    }
    PARENT.get_or_init(|| parent);
    if let Err(error) = restrict(task) {
        say::to_stderr(&format!("note: the files are read with all rights of this user: {error}"));
    }
    Ok(())
}

/// From here on this process and its threads read what they may, write only where `task` says, start no program and reach no network. A kernel without
/// Landlock takes nothing away.
fn restrict(task: &Task) -> Result<(), RulesetError> {
    let mut guarded = AccessFs::from_write(NEWEST) | AccessFs::Execute;
    if task.deletes_originals {
        guarded.remove(AccessFs::RemoveFile);
    }
    let permitted = make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | MakeDir | RemoveFile}) & guarded;
    // A folder that does not exist is told by the work, in its own words.
    let folders = task.folders.iter().filter_map(|folder| PathFd::new(folder).ok());
    Ruleset::default()
        .handle_access(guarded)?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(folders.map(|folder| Ok::<_, RulesetError>(PathBeneath::new(folder, permitted))))?
        .restrict_self()?;
    Ok(())
}
