//! How other threads control series and observe their progress.

use super::budget::InFlightBudget;
use super::notice::{ArmOrder, Command, Notice};
use crate::latency::Latencies;
use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender};
use konkordia_core::latency::{LatencyMeter, StageLatency};
use konkordia_core::series::SeriesLedger;
use konkordia_core::state::State;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Commands that may wait; a thread that sends more waits until there is room.
const COMMANDS: usize = 64;
/// Notices that may wait for their reader.
const NOTICES: usize = 4096;

/// The current state of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamProgress {
    /// Where it listens or connects.
    pub name: String,
    /// Bytes of its messages in flight.
    pub in_flight_bytes: u64,
    /// Bytes of its messages that may be in flight.
    pub in_flight_bytes_max: u64,
    /// Messages that are held back: they wait for the end of a series, for a header, for earlier messages, or for
    /// slower upstreams.
    pub held: u64,
    /// Messages received since it was opened.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Nothing more comes: the source failed, or was read to its end.
    pub is_closed: bool,
}

/// A snapshot of the stream path. Rates are differences of two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// When, in ns; see [`SeriesControl::now_ns`].
    pub now_ns: u64,
    /// Its state.
    pub state: State,
    /// Series that were begun.
    pub series_started: u64,
    /// Series that have ended.
    pub series_ended: u64,
    /// Images that the series is to have, if that is known.
    pub images_planned: Option<u64>,
    /// Ledger of this series, or of the last one.
    pub ledger: SeriesLedger,
    /// Ledger of what came since the last series ended; the next series takes it over.
    pub between: SeriesLedger,
    /// Images committed since the stream path was opened, lost ones too.
    pub images_committed: u64,
    /// Bytes of their pixels as they are packed.
    pub committed_bytes: u64,
    /// Images that wait for another one or for missing parts.
    pub images_waiting: u64,
    /// Images at the workers, or to be committed behind one that is.
    pub images_working: u64,
    /// Upstreams in order.
    pub upstreams: Vec<UpstreamProgress>,
    /// How long the images of this series took, or those of the last one.
    pub latency: Vec<StageLatency>,
    /// Notices that found no room.
    pub notices_lost: u64,
}

impl Progress {
    /// Bytes in flight, all upstreams together.
    pub fn in_flight_bytes(&self) -> u64 {
        self.upstreams.iter().map(|upstream| upstream.in_flight_bytes).sum()
    }
}

/// What one pull thread publishes.
#[derive(Debug)]
pub(crate) struct PullState {
    pub name: String,
    pub budget: InFlightBudget,
    pub received: AtomicU64,
    pub received_bytes: AtomicU64,
    pub held: AtomicU64,
    pub is_closed: AtomicBool,
}

/// Controls the series of a detector and reports their progress.
#[derive(Debug)]
pub struct SeriesControl {
    clock_began: Instant,
    commands: Sender<Command>,
    notices: Sender<Notice>,
    notices_lost: AtomicU64,
    cancels_asked: AtomicU64,
    cancels_done: AtomicU64,
    is_closing: AtomicBool,
    is_leaving: AtomicBool,
    /// The latencies of this series, or of the last one.
    latencies: ArcSwap<Latencies>,
    pub(crate) pulls: Vec<PullState>,
    pub(crate) seen: Mutex<Progress>,
}

impl SeriesControl {
    pub(crate) fn new(
        names: Vec<String>,
        budget_bytes: u64,
        clock_began: Instant,
    ) -> (Arc<Self>, Receiver<Command>, Receiver<Notice>) {
        let (commands, command_queue) = crossbeam_channel::bounded(COMMANDS);
        let (notices, notice_queue) = crossbeam_channel::bounded(NOTICES);
        let share_bytes = (budget_bytes / names.len().max(1) as u64).max(1);
        let pulls = names.into_iter().map(|name| PullState {
            name,
            budget: InFlightBudget::new(share_bytes),
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            held: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let control = Self {
            clock_began,
            commands,
            notices,
            notices_lost: AtomicU64::new(0),
            cancels_asked: AtomicU64::new(0),
            cancels_done: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            latencies: ArcSwap::from_pointee(Latencies::new(clock_began)),
            pulls: pulls.collect(),
            seen: Mutex::new(Progress::default()),
        };
        (Arc::new(control), command_queue, notice_queue)
    }

    /// Time since [`super::SeriesSpec::clock_began`], in ns.
    pub fn now_ns(&self) -> u64 {
        self.clock_began.elapsed().as_nanos() as u64
    }

    /// A series begins: its latencies are counted from nothing.
    pub(crate) fn new_latencies(&self) -> Arc<Latencies> {
        let latencies = Arc::new(Latencies::new(self.clock_began));
        self.latencies.store(latencies.clone());
        latencies
    }

    pub(crate) fn latencies(&self) -> Arc<Latencies> {
        self.latencies.load_full()
    }

    /// Takes the next series, with these arm parameters. A second arm before a series has begun replaces the first.
    pub fn arm(&self, order: ArmOrder) {
        self.send(Command::Arm(order));
    }

    /// The detector was started: the start time-out counts from now on.
    pub fn start_clock(&self) {
        self.send(Command::StartClock);
    }

    /// Ends the series with what has come; messages still on their way are awaited as at any end. Without a series it
    /// disarms.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Ends the series at once and throws away what was not committed. Does not wait for full output queues. Without a
    /// series it disarms.
    pub fn cancel(&self) {
        let number = self.cancels_asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.send(Command::Cancel(number));
    }

    /// From now on no series begins and messages of further series are foreign, so that the program can end however
    /// many series wait in front of the sockets.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Ends the series as a stop does, but without waiting for messages still on their way, and then ends all threads.
    pub fn shutdown(&self) {
        self.is_closing.store(true, Ordering::Release);
        for pull in &self.pulls {
            pull.budget.wake();
        }
        self.send(Command::Shutdown);
    }

    /// A snapshot of the progress.
    pub fn progress(&self) -> Progress {
        let mut progress = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        progress.now_ns = self.now_ns();
        progress.latency = self.latencies.load().read();
        progress.notices_lost = self.notices_lost.load(Ordering::Relaxed);
        progress.upstreams = self.pulls.iter().map(PullState::progress).collect();
        progress
    }

    /// Sends a notice to the control plane; if there is no room, it is lost and counted.
    pub fn notify(&self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            self.notices_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True from a cancel until it is done: meanwhile nothing waits for full output queues.
    pub fn is_cancelling(&self) -> bool {
        self.cancels_asked.load(Ordering::Acquire) != self.cancels_done.load(Ordering::Acquire)
    }

    /// True after [`Self::shutdown`].
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(crate) fn cancelled(&self, number: u64) {
        self.cancels_done.fetch_max(number, Ordering::AcqRel);
    }

    fn send(&self, command: Command) {
        // After the end of the threads no command is needed.
        let _ = self.commands.send(command);
    }
}

impl PullState {
    fn progress(&self) -> UpstreamProgress {
        UpstreamProgress {
            name: self.name.clone(),
            in_flight_bytes: self.budget.used_bytes(),
            in_flight_bytes_max: self.budget.limit_bytes(),
            held: self.held.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            is_closed: self.is_closed.load(Ordering::Relaxed),
        }
    }
}
