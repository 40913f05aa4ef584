//! A program that answers lines with lines. It is read and written by threads of its own, so that nobody
//! waits longer than wanted for a program that hangs.

use crate::hooks;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use konkordia_core::failure::reason;
use konkordia_engine::hand_over::NICE;
use rustix::process::{Pid, setpriority_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest line that it may answer.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Lines that may wait to be taken; the program waits when it has written more.
const LINES_MAX: usize = 16;
/// How long is waited for the last words of a program that has ended, and then for its end.
const LAST_WORDS: Duration = Duration::from_millis(200);
const GRAIN: Duration = Duration::from_millis(5);

/// See the top of this module. It is killed, with everything that it started in its process group, when this is
/// dropped.
pub(super) struct Program {
    child: Child,
    requests: Sender<Vec<u8>>,
    lines: Receiver<Result<Vec<u8>, String>>,
    said: Option<Receiver<String>>,
}

impl Program {
    /// Starts it, without a shell.
    ///
    /// # Errors
    /// It cannot be started; in words.
    pub(super) fn start(program: &[String]) -> Result<Self, String> {
        let (name, arguments) = program.split_first().ok_or("no program is given")?;
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A Ctrl-C for the service does not reach it.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| format!("it cannot be started: {}", reason(&error)))?;
        // As the threads that ask it. If that is refused, it works as well.
        let _ = setpriority_process(Some(Pid::from_child(&child)), NICE);
        let said = hooks::listen(&mut child);
        let pipes = child.stdin.take().zip(child.stdout.take());
        let ((requests, to_write), (to_take, lines)) = (bounded(1), bounded(LINES_MAX));
        let program = Self { child, requests, lines, said };
        let (stdin, stdout) = pipes.ok_or("it has no pipes")?;
        let thread = |name: &str| std::thread::Builder::new().name(name.into()).stack_size(128 << 10);
        let failed = |error| format!("no thread for it: {}", reason(&error));
        thread("ask").spawn(move || write(stdin, &to_write)).map_err(failed)?;
        thread("answers").spawn(move || read(stdout, &to_take)).map_err(failed)?;
        Ok(program)
    }

    /// Gives it a line.
    ///
    /// # Errors
    /// It has ended, or does not read; in words.
    pub(super) fn ask(&mut self, line: Vec<u8>) -> Result<(), String> {
        match self.requests.try_send(line) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err("it does not read its requests".into()),
            Err(TrySendError::Disconnected(_)) => Err(self.end_in_words()),
        }
    }

    /// The next line that it wrote; `None` if there is none by this time.
    ///
    /// # Errors
    /// It has ended, or writes a line without an end; in words.
    pub(super) fn line(&mut self, until: Instant) -> Result<Option<Vec<u8>>, String> {
        match self.lines.recv_deadline(until) {
            Ok(line) => line.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.end_in_words()),
        }
    }

    fn end_in_words(&mut self) -> String {
        let said = self.said.take().and_then(|said| said.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
        // A program that ends closes its output first.
        let until = Instant::now() + LAST_WORDS;
        let how = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break format!("it ended with {status}"),
                Ok(None) if Instant::now() < until => std::thread::sleep(GRAIN),
                _ => break "it closed its output".to_owned(),
            }
        };
        match said.trim() {
            "" => how,
            said => format!("{how} and said: {said}"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        hooks::end(&mut self.child);
    }
}

fn write(mut stdin: ChildStdin, requests: &Receiver<Vec<u8>>) {
    while let Ok(line) = requests.recv() {
        if stdin.write_all(&line).is_err() {
            return;
        }
    }
}

fn read(stdout: ChildStdout, lines: &Sender<Result<Vec<u8>, String>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        if !matches!((&mut stdout).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line), Ok(1..)) {
            return;
        }
        let is_whole = line.len() < LINE_BYTES_MAX || line.ends_with(b"\n");
        let line = if is_whole { Ok(line) } else { Err(format!("it wrote a line of more than {} KiB", LINE_BYTES_MAX >> 10)) };
        if lines.send(line).is_err() || !is_whole {
            return;
        }
    }
}
