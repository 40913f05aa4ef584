//! The parent process: starts the child, passes signals on, and reports how the child ended.

use super::child::STARTED_BY;
use super::task::Task;
use crate::console;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure, reason};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGABRT, SIGBUS, SIGCHLD, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};

/// Signals with which people and programs end a command. A child without a terminal would not get them.
const PASSED_ON: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals that end a process because of an error in it.
const BREAKDOWNS: [i32; 7] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];

/// Starts this program again as the child and waits for it; its exit code is that of this process.
///
/// # Errors
/// When the child cannot be started, crashed, or was killed.
pub fn watch(task: &Task) -> Result<ExitCode, Failure> {
    // The child inherits which signals are ignored (nohup), except for signals that already have a handler here. So
    // handlers for ignored signals are added after the child was started.
    let ignored = machine::ignored_signals();
    let (later, now): (Vec<i32>, Vec<i32>) = PASSED_ON.into_iter().partition(|signal| ignored & (1 << (signal - 1)) != 0);
    let unwatched = |error| cannot("watch for Ctrl-C", &error);
    let mut signals = Signals::new(now.into_iter().chain([SIGCHLD])).map_err(unwatched)?;
    let mut child = start().map_err(|error| cannot("start the process that reads files", &error))?;
    later.into_iter().try_for_each(|signal| signals.add_signal(signal)).map_err(unwatched)?;
    let pid = Pid::from_child(&child);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| cannot("wait for the process that reads files", &error))? {
            break status;
        }
        for signal in signals.wait().filter(|signal| *signal != SIGCHLD) {
            // The process id still is that of the child, because only this thread takes the exit code.
            let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
        }
    };
    end(task, status)
}

fn start() -> std::io::Result<Child> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "konkordia".into());
    // Lists of processes show the name of the file. If the file was replaced, /proc/self/exe still is the running
    // program.
    let named = std::env::current_exe().ok().filter(|path| path.exists());
    let program = named.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    Command::new(program).arg0(name).args(arguments).env(STARTED_BY, std::process::id().to_string()).spawn()
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    let fix = "try again; the system is out of some resource, or /proc is not mounted";
    Failure::new(Exit::Io, format!("cannot {what}"), reason(error), fix)
}

/// The exit code of this process, or the failure, that follows from the end of the child.
fn end(task: &Task, status: ExitStatus) -> Result<ExitCode, Failure> {
    if let Some(code) = status.code() {
        return Ok(ExitCode::from(code as u8));
    }
    let signal = status.signal().unwrap_or_default();
    if BREAKDOWNS.contains(&signal) || signal == SIGKILL {
        console::leave_progress();
        return Err(ended_by(task, signal));
    }
    // Ctrl-C, for example: this process ends as it would have done without a child.
    let _ = emulate_default_handler(signal);
    Ok(Exit::Interrupted.into())
}

fn ended_by(task: &Task, signal: i32) -> Failure {
    let name = signal_name(signal).map_or(format!("signal {signal}"), |name| format!("signal {signal}, {name}"));
    let files = task.files_in_words();
    let (what, why, fix) = if signal == SIGKILL {
        let why = format!("the process that read it was killed ({name}): by a user, or by the system because memory ran out");
        (format!("{files} was not read to the end"), why, "look at the system log (dmesg), and try again with more memory")
    } else {
        let why = format!(
            "the process that read it crashed ({name}), most likely in libhdf5: the file, or one that it refers to, is damaged, or was made to crash programs"
        );
        let fix = "run `konkordia check` on each of the files to find the bad one; replace it by a good copy, and do not trust it if you do not know who made it\nif other programs can read it, please report this with the file";
        (format!("{files} cannot be read"), why, fix)
    };
    let fix = [fix, &task.left].iter().filter(|line| !line.is_empty()).copied().collect::<Vec<_>>().join("\n");
    Failure::new(Exit::Incomplete, what, why, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_child_is_told() {
        let task = Task { files: vec!["a.h5".into()], left: "run it again".into(), ..Task::default() };
        assert!(end(&task, ExitStatus::from_raw(3 << 8)).is_ok());
        let failure = end(&task, ExitStatus::from_raw(SIGSEGV)).expect_err("it crashed");
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Incomplete, "a.h5 cannot be read"));
        assert!(failure.why.contains("(signal 11, SIGSEGV)") && failure.fix.ends_with("\nrun it again"));
        let failure = end(&task, ExitStatus::from_raw(SIGKILL)).expect_err("it was killed");
        assert!(failure.what.contains("not read to the end") && failure.why.contains("memory"));
    }
}
