//! A program that is started with the service, restarted when it ends, and ended with the service.

use super::child::STARTED_BY;
use super::reach::AUTHORITY;
use konkordia_acquire::machine;
use konkordia_api::adapters::{Adapters, BackOff};
use konkordia_config::settings::AdapterProgram;
use konkordia_core::failure::{Exit, Failure, reason};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is seen whether the program has ended.
const GRAIN: Duration = Duration::from_millis(100);
/// Time for the program to end after SIGTERM; then it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long is waited for the last words of a program that has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Lines of stderr that are told as the reason.
const LINES_KEPT: usize = 3;
/// Longest line for the log; a longer one is broken.
const LINE_BYTES_MAX: u64 = 1000;
const STACK_BYTES: usize = 128 << 10;

/// What the program gets in its environment.
pub struct Environment {
    /// KONKORDIA_URL.
    pub url: String,
    /// KONKORDIA_DETECTOR.
    pub detector: Option<String>,
    /// KONKORDIA_TOKEN.
    pub token: Option<String>,
    /// KONKORDIA_CA.
    pub authority: Option<PathBuf>,
}

/// A program that is watched. Dropping this ends it.
pub struct Supervised {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Supervised {
    /// Starts the program, and a thread that watches it. The kernel ends the program with that thread.
    ///
    /// # Errors
    /// The machine has no threads left.
    pub fn start(settings: AdapterProgram, environment: Environment, adapters: Arc<Adapters>) -> Result<Self, Failure> {
        let (stop, stopped) = channel();
        let what = format!("cannot watch the program of [adapters.{}]", settings.name);
        let watch = move || watch(&settings, &environment, &adapters, &stopped);
        let thread = Builder::new().name("adapter".into()).stack_size(STACK_BYTES).spawn(watch);
        let thread = thread.map_err(|error| Failure::new(Exit::Io, what, reason(&error), "end other programs"))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread was reported already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Starts the program again and again, until `stopped` is closed.
fn watch(settings: &AdapterProgram, environment: &Environment, adapters: &Adapters, stopped: &Receiver<()>) {
    let name = &settings.name;
    let mut back_off = BackOff::default();
    loop {
        let began = Instant::now();
        let (why, status) = match Running::start(settings, environment) {
            Err(error) => (format!("it cannot be started: {}", reason(&error)), None),
            Ok(mut running) => {
                adapters.started(name, Some(running.child.id()));
                let Some(status) = running.wait(stopped) else { return };
                (running.in_words(status), status.code())
            }
        };
        let wait = back_off.next(began.elapsed());
        adapters.failed(name, &why, status, wait);
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The program while it runs. Dropping this kills it, with everything that it started in its process group.
struct Running {
    child: Child,
    /// The last lines of stderr.
    said: Arc<Mutex<VecDeque<String>>>,
    /// Closed when stderr was.
    silent: Receiver<()>,
    /// Its exit code, once it was taken.
    ended: Option<ExitStatus>,
}

impl Running {
    fn start(settings: &AdapterProgram, environment: &Environment) -> std::io::Result<Self> {
        // Through this program, see `child`.
        let mut command = Command::new(machine::own_program());
        command.arg0("konkordia").args(&settings.program).env(STARTED_BY, std::process::id().to_string());
        // In a process group of its own: a Ctrl-C for the service does not reach it, and its children can be ended with
        // it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("KONKORDIA_URL", &environment.url);
        for (variable, value) in [("KONKORDIA_DETECTOR", &environment.detector), ("KONKORDIA_TOKEN", &environment.token)] {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        command.envs(environment.authority.iter().map(|file| (AUTHORITY, file)));
        let mut child = command.spawn()?;
        let (said, (closed, silent)) = (Arc::<Mutex<VecDeque<String>>>::default(), channel());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let running = Self { child, said: Arc::clone(&said), silent, ended: None };
        let thread = |name: &str| Builder::new().name(name.into()).stack_size(STACK_BYTES);
        let name = settings.name.clone();
        thread("adapter-out").spawn(move || stdout.into_iter().for_each(|pipe| each_line(pipe, |line| log(&name, &line))))?;
        let name = settings.name.clone();
        let listen = move || {
            stderr.into_iter().for_each(|pipe| each_line(pipe, |line| log_and_keep(&name, line, &said)));
            drop(closed);
        };
        thread("adapter-err").spawn(listen)?;
        Ok(running)
    }

    /// Waits for its end. `None`: it was ended, because `stopped` was closed.
    fn wait(&mut self, stopped: &Receiver<()>) -> Option<ExitStatus> {
        while !self.has_ended() {
            if stopped.recv_timeout(GRAIN) != Err(RecvTimeoutError::Timeout) {
                let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
                let until = Instant::now() + GRACE;
                while !self.has_ended() && Instant::now() < until {
                    std::thread::sleep(GRAIN / 5);
                }
                return None;
            }
        }
        self.end()
    }

    /// True if the program itself has ended. Its process id stays its own until [`Self::end`].
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), options), Ok(None))
    }

    /// Kills what is left of its group, and takes its exit code.
    fn end(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.ended = self.child.wait().ok();
        }
        self.ended
    }

    fn in_words(&self, status: ExitStatus) -> String {
        // A process that the program left behind may still hold its stderr open. What has arrived by then is enough.
        let _ = self.silent.recv_timeout(LAST_WORDS);
        let said: Vec<String> = self.said.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        if said.is_empty() {
            return format!("it ended with {status}");
        }
        format!("it ended with {status} and said: {}", said.join(" / "))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Calls `each` with every line, or with pieces of a long one.
fn each_line(pipe: impl Read, mut each: impl FnMut(String)) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while matches!((&mut pipe).take(LINE_BYTES_MAX).read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !text.is_empty() {
            each(text);
        }
        line.clear();
    }
}

fn log(adapter: &str, line: &str) {
    tracing::info!(adapter, "{line}");
}

fn log_and_keep(adapter: &str, line: String, said: &Mutex<VecDeque<String>>) {
    log(adapter, &line);
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() == LINES_KEPT {
        said.pop_front();
    }
    said.push_back(line);
}
