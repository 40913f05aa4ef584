//! A function of a user in a Python process of its own. What it throws, prints, leaks or waits for stays there.

use konkordia_graph::file::Stage;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Largest image or text that a function may return, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 31;
/// The other side.
const SCRIPT: &str = include_str!("../../../../python/konkordia/graph.py");

/// What a function made of an image.
pub enum Made {
    /// Another image.
    Image(Vec<u8>),
    /// Nothing: the image is not wanted.
    Nothing,
    /// It failed; why.
    Failed(String),
}

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

/// A function and its process.
pub struct Function {
    function: String,
    memory_mb_max: u64,
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
    /// The function of a stage.
    pub fn new(stage: &Stage) -> Self {
        let memory_mb_max = stage.memory_mb_max.unwrap_or(0);
        let (function, response_ms_max) = (stage.function.clone(), stage.response_ms_max);
        Self { function, memory_mb_max, response_ms_max, watched: Arc::default() }
    }

    /// For [`watch`].
    pub fn watched(&self) -> Arc<Mutex<Watched>> {
        Arc::clone(&self.watched)
    }

    /// Calls the function.
    pub fn call(&mut self, id: u64, image: &[u8]) -> Made {
        match self.try_call(id, image) {
            Ok(made) => made,
            Err(error) => Made::Failed(self.ended(&error)),
        }
    }

    fn try_call(&mut self, id: u64, image: &[u8]) -> std::io::Result<Made> {
        let poisoned = || std::io::Error::other("a thread has failed (a bug)");
        let (mut to, mut from) = {
            let mut watched = self.watched.lock().map_err(|_| poisoned())?;
            if watched.child.is_none() {
                let python = std::env::var_os("KONKORDIA_PYTHON").unwrap_or_else(|| "python3".into());
                let memory = self.memory_mb_max.to_string();
                let mut command = Command::new(python);
                command.args(["-c", SCRIPT, &self.function, &memory]).stdin(Stdio::piped()).stdout(Stdio::piped());
                watched.child = Some(command.spawn()?);
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
        Ok(match head[0] {
            b'I' => Made::Image(answer),
            b'N' => Made::Nothing,
            _ => Made::Failed(String::from_utf8_lossy(&answer).into_owned()),
        })
    }

    /// Why the process ended. The next call starts another one.
    fn ended(&self, error: &std::io::Error) -> String {
        let Ok(mut watched) = self.watched.lock() else { return error.to_string() };
        watched.since = None;
        watched.counts.restarts += 1;
        let was_killed = std::mem::take(&mut watched.was_killed);
        let Some(mut child) = watched.child.take() else { return format!("Python cannot be started: {error}") };
        _ = child.kill();
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        if was_killed {
            return format!("{} took longer than {} ms and was ended", self.function, self.response_ms_max);
        }
        format!("the process of {} ended: {status}", self.function)
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
