//! The parent process: starts the child, passes signals on, ends it if it is stuck, and reports how it ended.

use super::child::STARTED_BY;
use super::progress::{self, Usage, Watch};
use super::task::Task;
use crate::console;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure, reason};
use rustix::process::{Pid, Signal, getpid, kill_process};
use signal_hook::consts::{SIGABRT, SIGBUS, SIGCHLD, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Signals with which people and programs end a command. A child without a terminal would not get them.
const PASSED_ON: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals that end a process because of an error in it.
const BREAKDOWNS: [i32; 7] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];

/// Starts this program again as the child and waits for it; its exit code is that of this process.
///
/// # Errors
/// When the child cannot be started, crashed, was killed, or was stuck.
pub fn watch(task: &Task) -> Result<ExitCode, Failure> {
    // The child inherits which signals are ignored (nohup), except for signals that already have a handler here. So
    // handlers for ignored signals are added after the child was started.
    let ignored = machine::ignored_signals();
    let (later, now): (Vec<i32>, Vec<i32>) = PASSED_ON.into_iter().partition(|signal| ignored & (1 << (signal - 1)) != 0);
    let patience = progress::patience()?;
    let unwatched = |error| cannot("watch for Ctrl-C", &error);
    let mut signals = Signals::new(now.into_iter().chain([SIGCHLD])).map_err(unwatched)?;
    let mut child = start().map_err(|error| cannot("start the process that reads files", &error))?;
    later.into_iter().try_for_each(|signal| signals.add_signal(signal)).map_err(unwatched)?;
    let is_stuck = AtomicBool::new(false);
    let status = thread::scope(|scope| {
        let (pid, (running, over)) = (Pid::from_child(&child), channel());
        // If there is no thread left for it, the child is not watched.
        let is_stuck = &is_stuck;
        let watch = move || watch_progress(pid, patience, &over, is_stuck);
        let _ = thread::Builder::new().name("progress".into()).spawn_scoped(scope, watch);
        let status = wait(&mut child, &mut signals, is_stuck);
        drop(running);
        status
    });
    let status = status.map_err(|error| cannot("wait for the process that reads files", &error))?;
    end(task, status, is_stuck.into_inner().then_some(patience))
}

/// Waits for the end of the child, and passes signals on to it until then.
fn wait(child: &mut Child, signals: &mut Signals, is_stuck: &AtomicBool) -> std::io::Result<ExitStatus> {
    let pid = Pid::from_child(child);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // The process id still is that of the child, because only this thread takes the exit code.
        if is_stuck.load(Ordering::Acquire) {
            let _ = kill_process(pid, Signal::KILL);
        }
        for signal in signals.wait().filter(|signal| *signal != SIGCHLD) {
            let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
        }
    }
}

/// Looks at the child until it is stuck or `over` is closed. Wakes [`wait`] in the first case.
fn watch_progress(pid: Pid, patience: Duration, over: &Receiver<()>, is_stuck: &AtomicBool) {
    let mut watch = Watch::new(patience);
    while over.recv_timeout(watch.interval()) == Err(RecvTimeoutError::Timeout) {
        if Usage::of(pid).is_some_and(|usage| watch.is_stuck(Instant::now(), usage)) {
            is_stuck.store(true, Ordering::Release);
            let _ = kill_process(getpid(), Signal::CHILD);
            return;
        }
    }
}

fn start() -> std::io::Result<Child> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "konkordia".into());
    Command::new(machine::own_program()).arg0(name).args(arguments).env(STARTED_BY, std::process::id().to_string()).spawn()
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    let fix = "try again; the system is out of some resource, or /proc is not mounted";
    Failure::new(Exit::Io, format!("cannot {what}"), reason(error), fix)
}

/// The exit code of this process, or the failure, that follows from the end of the child. `stuck`: it was killed after
/// it had computed for this long without progress.
fn end(task: &Task, status: ExitStatus, stuck: Option<Duration>) -> Result<ExitCode, Failure> {
    if let Some(code) = status.code() {
        return Ok(ExitCode::from(code as u8));
    }
    let signal = status.signal().unwrap_or_default();
    if BREAKDOWNS.contains(&signal) || signal == SIGKILL {
        console::leave_progress();
        return Err(match stuck.filter(|_| signal == SIGKILL) {
            Some(patience) => stuck_on(task, patience),
            None => ended_by(task, signal),
        });
    }
    // Ctrl-C, for example: this process ends as it would have done without a child.
    let _ = emulate_default_handler(signal);
    Ok(Exit::Interrupted.into())
}

/// What to do about a file that ends or occupies the process that reads it.
const FIND_IT: &str = "run `konkordia check` on each of the files to find the bad one; replace it by a good copy, and do not trust it if you do not know who made it\nif other programs can read it, please report this with the file";

fn stuck_on(task: &Task, patience: Duration) -> Failure {
    let seconds = patience.as_secs();
    let what = format!("{} cannot be read", task.files_in_words());
    let why = format!(
        "the process that read it computed for {seconds} s without reading or writing anything, most likely in libhdf5, and was ended: the file, or one that it refers to, is damaged, or was made to keep programs busy"
    );
    let more_time = format!("if the work only takes longer, set {}=SECONDS", progress::VARIABLE);
    let lines = [FIND_IT, &more_time, &task.left];
    let fix = lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    Failure::new(Exit::Incomplete, what, why, fix)
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
        (format!("{files} cannot be read"), why, FIND_IT)
    };
    let fix = [fix, &task.left].iter().filter(|line| !line.is_empty()).copied().collect::<Vec<_>>().join("\n");
    Failure::new(Exit::Incomplete, what, why, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_child_is_reported() {
        let task = Task { files: vec!["a.h5".into()], left: "run it again".into(), ..Task::default() };
        assert!(end(&task, ExitStatus::from_raw(3 << 8), None).is_ok());
        let failure = end(&task, ExitStatus::from_raw(SIGSEGV), None).expect_err("it crashed");
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Incomplete, "a.h5 cannot be read"));
        assert!(failure.why.contains("(signal 11, SIGSEGV)") && failure.fix.ends_with("\nrun it again"));
        let failure = end(&task, ExitStatus::from_raw(SIGKILL), None).expect_err("it was killed");
        assert!(failure.what.contains("not read to the end") && failure.why.contains("memory"));
        let patience = Some(Duration::from_secs(7));
        let failure = end(&task, ExitStatus::from_raw(SIGKILL), patience).expect_err("it was stuck");
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Incomplete, "a.h5 cannot be read"));
        assert!(failure.why.contains("computed for 7 s") && failure.fix.ends_with("KONKORDIA_STUCK_S=SECONDS\nrun it again"));
        // It was done at the last moment.
        assert!(end(&task, ExitStatus::from_raw(0), patience).is_ok());
    }
}
