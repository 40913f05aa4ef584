//! The simulated detector of the demonstration. It sends a series over UDP for each `start` that the service accepts.

use crate::simulate::feed::Feed;
use crate::simulate::send::{Pace, Senders, Sent, send};
use crossbeam_channel::{Receiver, Sender, unbounded};
use konkordia_acquire::handle::{
    ArmRequest, Command, Detector, DetectorState, DetectorStatistics, DetectorStatus, DryRun, FileEntry, HitRate, ImageRing,
    ModulePackets, Reply, ResultPlot, ShapeBoard,
};
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure, reason};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The sender waits no longer than this for the receiver: the packets that it waits for were then lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two checks of the receiver.
const LOOK_AGAIN: Duration = Duration::from_micros(20);
/// Packets in flight may take one part in this many of the receive buffer, because the kernel also counts its own
/// overhead.
const BUFFER_SHARE: usize = 3;
/// The sender waits while the ring of the receiver is fuller than this.
const RING_FULL: f64 = 0.5;

/// The detector as the service sees it. It passes each start on to the simulated detector. For a real one a program in
/// `[control] on_start` does this.
pub struct DrivenDetector {
    inner: Arc<dyn Detector>,
    starts: Sender<DetectorStatus>,
}

impl DrivenDetector {
    /// Wraps a detector of the service. The status after each accepted start is sent to `starts`.
    pub fn new(inner: Arc<dyn Detector>, starts: Sender<DetectorStatus>) -> Self {
        Self { inner, starts }
    }
}

impl Detector for DrivenDetector {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn status(&self) -> Arc<DetectorStatus> {
        self.inner.status()
    }

    fn statistics(&self) -> DetectorStatistics {
        self.inner.statistics()
    }

    fn hit_rate(&self) -> HitRate {
        self.inner.hit_rate()
    }

    fn results(&self, result: Option<&str>) -> Option<ResultPlot> {
        self.inner.results(result)
    }

    fn configuration(&self) -> Value {
        self.inner.configuration()
    }

    fn facts(&self) -> Metadata {
        self.inner.facts()
    }

    fn command(&self, command: Command, by: &str) -> Reply {
        let is_start = matches!(command, Command::Start(_));
        let reply = self.inner.command(command, by);
        if let (true, Ok(status)) = (is_start, &reply) {
            // Without a simulator no data arrive: the run waits for them and reports that.
            let _ = self.starts.send(status.clone());
        }
        reply
    }

    fn dry_run(&self, request: &ArmRequest) -> DryRun {
        self.inner.dry_run(request)
    }

    fn modules(&self) -> Vec<ModulePackets> {
        self.inner.modules()
    }

    fn output_folder(&self) -> Option<PathBuf> {
        self.inner.output_folder()
    }

    fn images(&self) -> Arc<dyn ImageRing> {
        self.inner.images()
    }

    fn files(&self) -> Vec<FileEntry> {
        self.inner.files()
    }

    fn shapes(&self) -> Arc<ShapeBoard> {
        self.inner.shapes()
    }
}

/// Sends series, one for each start, in a thread of its own.
pub struct Simulator {
    sent: Receiver<Result<Sent, Failure>>,
    rate_hz: Arc<AtomicU32>,
}

impl Simulator {
    /// Sends a series for each of `starts`, until that channel is closed. At first it sends as fast as the receiver
    /// takes images.
    ///
    /// # Errors
    /// There are no threads left.
    pub fn spawn(
        detector: Arc<dyn Detector>,
        starts: Receiver<DetectorStatus>,
        mut feed: Feed,
        mut senders: Senders,
        buffer_bytes: usize,
    ) -> Result<Self, Failure> {
        let (done, sent) = unbounded();
        let rate_hz = Arc::new(AtomicU32::new(0));
        let rate = Arc::clone(&rate_hz);
        let work = move || {
            let mut last_run = 0;
            for status in starts {
                // A second start of a run that goes on changes nothing.
                if status.run == last_run {
                    continue;
                }
                last_run = status.run;
                let pace = Pace { rate_hz: f64::from(rate.load(Ordering::Relaxed)), burst_max: usize::MAX };
                let result = series(&*detector, &status, &mut feed, &mut senders, (pace, buffer_bytes));
                let _ = done.send(result);
            }
        };
        let thread = Builder::new().name("simulate".into()).spawn(work);
        thread
            .map(|_| Self { sent, rate_hz })
            .map_err(|e| Failure::new(Exit::Io, "cannot start a thread for the simulator", reason(&e), "end other programs"))
    }

    /// From the next series on it sends at this rate; 0 = as fast as the receiver takes images.
    pub fn set_rate_hz(&self, rate_hz: u32) {
        self.rate_hz.store(rate_hz, Ordering::Relaxed);
    }

    /// What was sent in the oldest series that was not returned yet; waits for the end of that series.
    pub fn sent(&self) -> Option<Result<Sent, Failure>> {
        self.sent.recv().ok()
    }

    /// As [`Self::sent`], without waiting.
    pub fn sent_by_now(&self) -> Option<Result<Sent, Failure>> {
        self.sent.try_recv().ok()
    }
}

/// Sends the images of one run, not faster than the receiver takes them, so that the kernel's buffer is never full.
fn series(
    detector: &dyn Detector,
    start: &DetectorStatus,
    feed: &mut Feed,
    senders: &mut Senders,
    (mut pace, buffer_bytes): (Pace, usize),
) -> Result<Sent, Failure> {
    let window_bytes = (buffer_bytes / BUFFER_SHARE).max(feed.datagram_bytes);
    pace.burst_max = (window_bytes / 2 / feed.datagram_bytes).max(1);
    let packets_max = (window_bytes / feed.datagram_bytes) as u64;
    let mut given_up = 0;
    let mut before_burst = |sent: &Sent| wait_for_room(detector, start.run, sent.packets, packets_max, &mut given_up);
    send(feed, senders, &pace, 0..start.images_expected.unwrap_or(u64::MAX), &mut before_burst)
}

/// Waits until there is room for more packets; false when the run has ended. Packets that nobody has counted after some
/// time do not come any more: the kernel lost them on their way to the socket. They join those that were `given_up`, so
/// that they are waited for once.
fn wait_for_room(detector: &dyn Detector, run: u64, sent_packets: u64, packets_max: u64, given_up: &mut u64) -> bool {
    let since = Instant::now();
    loop {
        let status = detector.status();
        let is_open = matches!(status.state, DetectorState::Armed | DetectorState::Receiving);
        if status.run != run || !is_open {
            return false;
        }
        let statistics = detector.statistics();
        let counted = |name: &str| statistics.ledger.get(name).copied().unwrap_or_default();
        let known = counted("received") + counted("kernel_dropped");
        let on_their_way = sent_packets.saturating_sub(known + *given_up);
        let ring = statistics.queues.get("ring").copied().unwrap_or_default();
        if on_their_way <= packets_max && ring < RING_FULL {
            return true;
        }
        if since.elapsed() > PATIENCE {
            // Behind a full ring they may still wait in the socket.
            *given_up += if ring < RING_FULL { on_their_way } else { 0 };
            return true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
