//! The outputs of a run: a queue and a thread each.

use super::args::TrainsArgs;
use super::bridge::{BridgeCounts, Pushes, Replies};
use super::files;
use super::shared::SharedTrain;
use super::threads::{bug, thread};
use super::ttp::{Ttp, TtpCounts};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use konkordia_core::failure::Failure;
use konkordia_fabric::trains::TrainSpec;
use konkordia_sinks::zmq::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Trains that wait for an output that may miss some.
const LOSSY_QUEUE: usize = 2;

/// What the outputs did.
#[derive(Debug, Default)]
pub struct Written {
    /// Trains in the files.
    pub files: Option<u64>,
    /// Numbers of others that are not in the files, because there were too many names.
    pub numbers_without_column: u64,
    /// Why the files ended early.
    pub files_error: Option<Failure>,
    /// Answers to clients of REQ, and trains that found the output busy.
    pub bridge: Option<(BridgeCounts, u64)>,
    /// As [`Self::bridge`], for clients of PULL.
    pub bridge_push: Option<(BridgeCounts, u64)>,
    /// Trains sent on.
    pub ttp: Option<(TtpCounts, u64)>,
}

/// An output that may miss trains.
struct Lossy<T> {
    queue: Sender<Arc<SharedTrain>>,
    busy: AtomicU64,
    thread: JoinHandle<Result<T, Failure>>,
}

impl<T: Send + 'static> Lossy<T> {
    fn start(
        name: &str,
        work: impl FnOnce(&Receiver<Arc<SharedTrain>>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (queue, trains) = bounded(LOSSY_QUEUE);
        Ok(Self { queue, busy: AtomicU64::new(0), thread: thread(name, move || work(&trains))? })
    }

    fn send(&self, train: &Arc<SharedTrain>) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Arc::clone(train)) {
            self.busy.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn finish(self) -> Result<(T, u64), Failure> {
        drop(self.queue);
        let done = self.thread.join().map_err(|_| bug())??;
        Ok((done, self.busy.into_inner()))
    }
}

/// The queue of the files, and their thread, which says how many trains it wrote, how many numbers found no column,
/// and why it ended early.
type Files = (Sender<Arc<SharedTrain>>, JoinHandle<(u64, u64, Option<Failure>)>);

/// All outputs.
pub struct Outputs {
    files: Option<Files>,
    bridge: Option<Lossy<BridgeCounts>>,
    bridge_push: Option<Lossy<BridgeCounts>>,
    ttp: Option<Lossy<TtpCounts>>,
    addresses: Vec<String>,
}

impl Outputs {
    /// Opens files and sockets, and starts the threads.
    pub fn open(args: &TrainsArgs, spec: TrainSpec) -> Result<Self, Failure> {
        let name = args.detector_name(spec.detector);
        let context = Context::new();
        let mut addresses = Vec::new();
        let replies = args.bridge.as_deref().map(|address| Replies::listen(&context, address, name)).transpose()?;
        let pushes = args.bridge_push.as_deref().map(|address| Pushes::listen(&context, address, name)).transpose()?;
        addresses.extend(replies.iter().map(|replies| format!("bridge (REQ) at {}", replies.address())));
        addresses.extend(pushes.iter().map(|pushes| format!("bridge (PULL) at {}", pushes.address())));
        let ttp = if args.ttp.is_empty() { None } else { Some(Ttp::open(args, spec)?) };
        let files = args.files.as_deref().map(|folder| files::create(args, folder, name, spec.detector)).transpose()?;
        let start_files = |mut files: konkordia_sinks::hdf5::extra_data::ExtraDataFiles| {
            // As many trains as there are buffers, so that the builder never waits here: when files are slow, no buffer
            // is free, and packets are refused.
            let (queue, trains) = bounded::<Arc<SharedTrain>>((args.buffers * args.modules) as usize);
            let write = move || {
                let mut written = 0;
                for train in &trains {
                    match files::add(&mut files, &train) {
                        Ok(()) => written += 1,
                        Err(error) => return (written, files.numbers_without_column(), Some(error)),
                    }
                }
                (written, files.numbers_without_column(), None)
            };
            thread("out-files", write).map(|thread| (queue, thread))
        };
        Ok(Self {
            files: files.map(start_files).transpose()?,
            bridge: replies.map(|replies| Lossy::start("out-bridge", |trains| replies.run(trains))).transpose()?,
            bridge_push: pushes.map(|pushes| Lossy::start("out-push", |trains| pushes.run(trains))).transpose()?,
            ttp: ttp.map(|ttp| Lossy::start("out-ttp", |trains| ttp.run(trains))).transpose()?,
            addresses,
        })
    }

    /// Where the outputs listen, for people.
    pub fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// Gives a train to all outputs. Only files wait for room, those that failed do not.
    pub fn send(&self, train: &Arc<SharedTrain>) {
        if let Some((queue, _)) = &self.files {
            let _ = queue.send(Arc::clone(train));
        }
        self.bridge.iter().chain(&self.bridge_push).for_each(|output| output.send(train));
        self.ttp.iter().for_each(|output| output.send(train));
    }

    /// Ends the outputs; waits until files are written.
    pub fn finish(self) -> Result<Written, Failure> {
        let mut written = Written::default();
        if let Some((queue, thread)) = self.files {
            drop(queue);
            let (trains, numbers, error) = thread.join().map_err(|_| bug())?;
            (written.files, written.numbers_without_column, written.files_error) = (Some(trains), numbers, error);
        }
        written.bridge = self.bridge.map(Lossy::finish).transpose()?;
        written.bridge_push = self.bridge_push.map(Lossy::finish).transpose()?;
        written.ttp = self.ttp.map(Lossy::finish).transpose()?;
        Ok(written)
    }
}
