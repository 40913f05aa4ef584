//! Programs of users in the path of trains: each asks for a train over ZeroMQ (REQ), and its next request carries what
//! it says about it (docs/trains.md).

use super::bridge::{broken, message, unopened};
use super::outputs::Outputs;
use super::shared::SharedTrain;
use super::threads::{bug, thread};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use konkordia_core::endpoint::PEERS_MAX;
use konkordia_core::failure::Failure;
use konkordia_fabric::trains::{Judgement, Processing, ProcessingCounts, put_number};
use konkordia_sinks::zmq::{Context, ZmqReply, ZmqRequest};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for trains; then requests are looked at.
const WAIT: Duration = Duration::from_millis(2);

/// What became of trains.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processed {
    /// By the rules.
    pub counts: ProcessingCounts,
    /// Requests that say nothing that is understood.
    pub malformed: u64,
    /// Numbers that were refused: too many, or their names are not of letters, digits and `_`.
    pub refused: u64,
}

/// What a program says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    train_id: u64,
    #[serde(default = "kept")]
    keep: bool,
    #[serde(default)]
    values: BTreeMap<String, f64>,
}

fn kept() -> bool {
    true
}

/// How trains get to the outputs.
pub enum Way {
    /// At once.
    Straight(Outputs),
    /// Through programs.
    Processed(Sender<SharedTrain>, JoinHandle<(Outputs, Result<Processed, Failure>)>),
}

impl Way {
    /// Straight to the outputs, or through programs that ask at `address`.
    pub fn open(outputs: Outputs, process: Option<Process>) -> Result<Self, Failure> {
        let Some(process) = process else { return Ok(Self::Straight(outputs)) };
        // No bound of its own: each train holds buffers of the modules, of which there are so many.
        let (queue, trains) = unbounded();
        Ok(Self::Processed(queue, thread("process", move || process.run(outputs, &trains))?))
    }

    /// Sends a train.
    pub fn send(&self, train: SharedTrain) {
        match self {
            Self::Straight(outputs) => outputs.send(&Arc::new(train)),
            Self::Processed(queue, _) => _ = queue.send(train),
        }
    }

    /// The outputs, when all trains are through, and what programs said.
    pub fn finish(self) -> Result<(Outputs, Option<Result<Processed, Failure>>), Failure> {
        match self {
            Self::Straight(outputs) => Ok((outputs, None)),
            Self::Processed(queue, thread) => {
                drop(queue);
                let (outputs, processed) = thread.join().map_err(|_| bug())?;
                Ok((outputs, Some(processed)))
            }
        }
    }
}

/// Gives trains to programs.
pub struct Process {
    socket: ZmqReply,
    name: String,
    rules: Processing<SharedTrain>,
    /// Programs that have asked and got nothing yet.
    waiting: Vec<Vec<u8>>,
    processed: Processed,
    begun: Instant,
}

impl Process {
    /// Listens at `address`; `name` is that of the detector.
    pub fn listen(address: &str, name: &str, open_max: usize, timeout_us: u64) -> Result<Self, Failure> {
        let socket = ZmqReply::listen(&Context::new(), address, PEERS_MAX).map_err(|error| unopened(&error))?;
        let rules = Processing::new(open_max, timeout_us);
        let (name, processed, begun) = (name.to_owned(), Processed::default(), Instant::now());
        Ok(Self { socket, name, rules, waiting: Vec::new(), processed, begun })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        self.socket.name()
    }

    /// Runs until `trains` ends and all are sent on. If the socket fails, trains go on without programs.
    fn run(mut self, outputs: Outputs, trains: &Receiver<SharedTrain>) -> (Outputs, Result<Processed, Failure>) {
        let mut failed = None;
        loop {
            let came = trains.recv_timeout(if self.rules.is_empty() { 5 * WAIT } else { WAIT });
            let is_end = matches!(came, Err(RecvTimeoutError::Disconnected));
            if let Ok(train) = came {
                self.rules.offer(train.train.train_id, train, self.now_us());
            }
            if failed.is_none() {
                failed = self.serve().err();
            }
            let now_us = if failed.is_some() { u64::MAX } else { self.now_us() };
            while let Some((train, judgement)) = self.rules.pop(now_us) {
                self.send(&outputs, train, judgement);
            }
            if is_end && self.rules.is_empty() {
                self.processed.counts = *self.rules.counts();
                return (outputs, failed.map_or(Ok(self.processed), Err));
            }
            if is_end {
                std::thread::sleep(WAIT);
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// Takes requests, and gives trains to those who have asked.
    fn serve(&mut self) -> Result<(), Failure> {
        while let Some(ZmqRequest { client, body }) = self.socket.request(Duration::ZERO).map_err(|error| broken(&error))? {
            match serde_json::from_slice::<Said>(&body) {
                Ok(said) => {
                    let judgement = Judgement { is_kept: said.keep, values: said.values.into_iter().collect() };
                    self.rules.judge(said.train_id, judgement);
                }
                Err(_) => self.processed.malformed += u64::from(body != b"next"),
            }
            if !self.waiting.contains(&client) && self.waiting.len() < PEERS_MAX {
                self.waiting.push(client);
            }
        }
        while !self.waiting.is_empty() && self.rules.has_waiting() {
            let client = self.waiting.remove(0);
            let (socket, name) = (&mut self.socket, &self.name);
            let mut sent = Ok(true);
            self.rules.give(|train| {
                sent = socket.answer(&client, &message(train, name));
                matches!(sent, Ok(true))
            });
            sent.map_err(|error| broken(&error))?;
        }
        Ok(())
    }

    fn send(&mut self, outputs: &Outputs, mut train: SharedTrain, judgement: Option<Judgement>) {
        let Judgement { is_kept, values } = judgement.unwrap_or(Judgement { is_kept: true, values: Vec::new() });
        for (name, value) in values {
            self.processed.refused += u64::from(!put_number(&mut train.train.injected, &name, value));
        }
        if !is_kept {
            train.reject();
        }
        outputs.send(&Arc::new(train));
    }
}
