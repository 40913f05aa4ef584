//! A program of a user, or a function of one in Python, in a process of its own. What it throws, prints, leaks or waits
//! for stays there.

use super::image::Image;
use super::work::{Made, Work};
use konkordia_core::failure::Failure;
use konkordia_graph::file::{Kind, Stage};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Largest image or text that a function may return, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 31;
/// The other side.
const SCRIPT: &str = include_str!("../../../../python/konkordia/graph.py");

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Processes that were started again.
    pub restarts: u64,
    /// Of these, because the function took too long.
    pub hangs: u64,
}

/// What the thread that waits for the function and the one that ends it share.
#[derive(Default)]
pub struct Watched {
    child: Option<Child>,
    since: Option<Instant>,
    counts: Counts,
    was_killed: bool,
}

/// A program or function, and its process.
pub struct Function {
    /// For messages.
    name: String,
    command: Vec<String>,
    /// The process of a program is given this limit; a function in Python sets its own.
    memory_mb_max: Option<u64>,
    response_ms_max: u64,
    watched: Arc<Mutex<Watched>>,
}

/// Ends a function that takes too long. Returns what was counted.
pub fn watch(watched: &Mutex<Watched>, response_ms_max: u64) -> Counts {
    let Ok(mut watched) = watched.lock() else { return Counts::default() };
    if watched.since.is_some_and(|since| since.elapsed().as_millis() as u64 > response_ms_max) {
        watched.since = None;
        watched.was_killed = true;
        watched.counts.hangs += 1;
        if let Some(child) = &mut watched.child {
            _ = child.kill();
        }
    }
    watched.counts
}

impl Function {
    /// The program or function of a stage.
    pub fn new(stage: &Stage) -> Self {
        let response_ms_max = stage.response_ms_max;
        let (name, command, memory_mb_max) = if stage.kind == Kind::Program {
            (stage.command.join(" "), stage.command.clone(), stage.memory_mb_max)
        } else {
            let python = std::env::var("KONKORDIA_PYTHON").unwrap_or_else(|_| "python3".into());
            let memory = stage.memory_mb_max.unwrap_or(0).to_string();
            (stage.function.clone(), vec![python, "-c".into(), SCRIPT.into(), stage.function.clone(), memory], None)
        };
        Self { name, command, memory_mb_max, response_ms_max, watched: Arc::default() }
    }

    /// For [`watch`].
    pub fn watched(&self) -> Arc<Mutex<Watched>> {
        Arc::clone(&self.watched)
    }

    /// Starts the process.
    fn start(&self) -> std::io::Result<Child> {
        let (program, arguments) = self.command.split_first().ok_or_else(|| std::io::Error::other("there is no program"))?;
        let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        if let Some(bytes) = self.memory_mb_max.map(|mib| mib.saturating_mul(1 << 20)) {
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            if let Err(error) = prlimit(Some(Pid::from_child(&child)), Resource::As, limit) {
                _ = child.kill();
                _ = child.wait();
                return Err(error.into());
            }
        }
        Ok(child)
    }

    fn try_call(&mut self, id: u64, image: &[u8]) -> std::io::Result<Made> {
        let poisoned = || std::io::Error::other("a thread has failed (a bug)");
        let (mut to, mut from) = {
            let mut watched = self.watched.lock().map_err(|_| poisoned())?;
            if watched.child.is_none() {
                watched.child = Some(self.start()?);
            }
            watched.since = Some(Instant::now());
            let child = watched.child.as_mut().ok_or_else(poisoned)?;
            (child.stdin.take().ok_or_else(poisoned)?, child.stdout.take().ok_or_else(poisoned)?)
        };
        to.write_all(&id.to_le_bytes())?;
        to.write_all(&(image.len() as u64).to_le_bytes())?;
        to.write_all(image)?;
        to.flush()?;
        let mut head = [0; 9];
        from.read_exact(&mut head)?;
        let length = head[1..].iter().rev().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
        if length > ANSWER_BYTES_MAX {
            return Err(std::io::Error::other(format!("it returned {length} bytes")));
        }
        let mut answer = vec![0; length];
        from.read_exact(&mut answer)?;
        let mut watched = self.watched.lock().map_err(|_| poisoned())?;
        watched.since = None;
        if let Some(child) = &mut watched.child {
            (child.stdin, child.stdout) = (Some(to), Some(from));
        }
        match head[0] {
            b'I' => Ok(Made::Image(answer)),
            b'N' => Ok(Made::Nothing),
            b'F' => Ok(Made::Failed(String::from_utf8_lossy(&answer).into_owned())),
            other => Err(std::io::Error::other(format!("it answered with the letter {other}, and I, N or F are possible"))),
        }
    }

    /// Why the process ended. The next call starts another one.
    fn ended(&self, error: &std::io::Error) -> String {
        let Ok(mut watched) = self.watched.lock() else { return error.to_string() };
        watched.since = None;
        watched.counts.restarts += 1;
        let was_killed = std::mem::take(&mut watched.was_killed);
        let Some(mut child) = watched.child.take() else { return format!("{} cannot be started: {error}", self.program()) };
        // It may have said something wrong instead of ending.
        let has_ended = error.kind() != std::io::ErrorKind::Other;
        _ = child.kill();
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        if was_killed {
            return format!("{} took longer than {} ms and was ended", self.name, self.response_ms_max);
        }
        if has_ended { format!("the process of {} ended: {status}", self.name) } else { format!("{}: {error}", self.name) }
    }

    /// The program that is started.
    fn program(&self) -> &str {
        self.command.first().map_or("", |program| program)
    }
}

impl Work for Function {
    fn image(&mut self, id: u64, image: &[u8]) -> Result<Made, Failure> {
        let made = match self.try_call(id, image) {
            Ok(Made::Image(answer)) => match Image::decode(image).and_then(|image| image.with_answer(&answer)) {
                Ok(made) => Made::Image(made),
                Err(why) => Made::Failed(format!("the answer of {}: {why}", self.name)),
            },
            Ok(made) => made,
            Err(error) => Made::Failed(self.ended(&error)),
        };
        Ok(made)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        if let Ok(mut watched) = self.watched.lock()
            && let Some(child) = &mut watched.child
        {
            _ = child.kill();
            _ = child.wait();
        }
    }
}
