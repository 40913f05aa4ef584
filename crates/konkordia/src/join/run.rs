//! The thread that joins: takes what the threads of the sockets hand over, and hands on what has left.

use super::arrived::{Arrived, Part, Received};
use super::output::Outputs;
use super::receive::Receive;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_join::file::JoinFile;
use konkordia_join::rules::Join;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a part; then times are looked at.
const WAIT: Duration = Duration::from_millis(5);
/// Parts between the sockets and the thread that joins.
const QUEUE: usize = 64;
/// Names of files that are kept of each source.
const FILES_MAX: usize = 1000;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All required streams have ended.
    Finished,
    /// Ctrl-C or SIGTERM.
    Stopped,
    /// Nothing came for too long.
    Stalled,
    /// All sockets failed.
    Failed,
}

impl Ended {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Stalled => "stalled",
            Self::Failed => "failed",
        }
    }
}

/// A stream of images.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// A series is open.
    is_open: bool,
    /// Series that have begun.
    pub series: u64,
    /// Names of their files; empty where the sender says none.
    pub files: Vec<String>,
}

/// What came of a run.
pub struct Outcome {
    /// Why it ended.
    pub ended: Ended,
    /// Of the sockets.
    pub received: Vec<Received>,
    /// Of the rules.
    pub join: Join<Part>,
    /// The streams.
    pub streams: Vec<Stream>,
    /// Of the outputs.
    pub outputs: Outputs,
    /// Its length.
    pub seconds: f64,
}

/// A run.
struct Run<'a> {
    file: &'a JoinFile,
    stall: Option<Duration>,
    join: Join<Part>,
    streams: Vec<Stream>,
    outputs: Outputs,
    begun: Instant,
    newest: Option<Instant>,
}

/// Runs until the streams end, nothing comes any more, or the stop flag is set.
pub fn run(
    file: &JoinFile,
    stall: Option<Duration>,
    sockets: Vec<Receive>,
    outputs: Outputs,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let halt = Arc::new(AtomicBool::new(false));
    let (to, from) = bounded(QUEUE);
    let start = |(n, receive): (usize, Receive)| {
        let (to, halt) = (to.clone(), Arc::clone(&halt));
        let work = move || receive.run(&to, &halt);
        std::thread::Builder::new()
            .name(format!("pull-{n}"))
            .spawn(work)
            .map_err(|error| Failure::new(Exit::Io, "cannot start a thread", reason(&error), "raise the limit (ulimit -u)"))
    };
    let threads = sockets.into_iter().enumerate().map(start).collect::<Result<Vec<_>, _>>()?;
    drop(to);
    let join = Join::new(file.spec());
    let streams = vec![Stream::default(); file.streams.len()];
    let mut run = Run { file, stall, join, streams, outputs, begun: Instant::now(), newest: None };
    let ended = run.until_end(&from, stop);
    halt.store(true, Ordering::Release);
    // What was received is joined too, so that the account is whole.
    for arrived in &from {
        run.take(arrived);
    }
    run.join.finish();
    run.hand_on();
    let bug = |_| Failure::new(Exit::Bug, "a thread of the join ended", "there is a bug in it", "please report this");
    let received = threads.into_iter().map(|thread| thread.join().map_err(bug)).collect::<Result<_, _>>()?;
    let Run { join, streams, outputs, begun, .. } = run;
    Ok(Outcome { ended, received, join, streams, outputs, seconds: begun.elapsed().as_secs_f64() })
}

impl Run<'_> {
    fn until_end(&mut self, from: &Receiver<Arrived>, stop: &AtomicBool) -> Ended {
        loop {
            match from.recv_timeout(WAIT) {
                Ok(arrived) => self.take(arrived),
                Err(RecvTimeoutError::Timeout) => {
                    let now_us = self.now_us();
                    self.join.tick(now_us);
                }
                Err(RecvTimeoutError::Disconnected) => return Ended::Failed,
            }
            self.hand_on();
            if let Some(table) = &mut self.outputs.table {
                table.flush_if_due();
            }
            if stop.load(Ordering::Acquire) {
                return Ended::Stopped;
            }
            if self.have_ended() && self.join.is_empty() && from.is_empty() {
                return Ended::Finished;
            }
            if self.newest.zip(self.stall).is_some_and(|(newest, stall)| newest.elapsed() >= stall) {
                return Ended::Stalled;
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    fn take(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Part { source, trigger, part, bytes } => {
                self.newest = Some(Instant::now());
                let now_us = self.now_us();
                self.join.offer(source, trigger, part, bytes, now_us);
            }
            Arrived::OtherSeries(source) => self.join.refuse_series(source),
            Arrived::Begun(source, name) => {
                let stream = &mut self.streams[source];
                (stream.is_open, stream.series) = (true, stream.series + 1);
                if stream.files.len() < FILES_MAX {
                    stream.files.push(name);
                }
            }
            Arrived::Ended(source) => self.streams[source].is_open = false,
        }
        self.hand_on();
    }

    fn hand_on(&mut self) {
        while let Some(joined) = self.join.pop() {
            self.outputs.take(&joined);
        }
    }

    /// True if each required stream has had a series, and it is over; if none is required, all.
    fn have_ended(&self) -> bool {
        let is_any_required = self.file.streams.iter().any(|stream| stream.required);
        let mut counting = self.file.streams.iter().zip(&self.streams).filter(|(from, _)| from.required || !is_any_required);
        counting.all(|(_, stream)| stream.series > 0 && !stream.is_open)
    }
}
