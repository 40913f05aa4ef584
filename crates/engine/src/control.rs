//! Other threads watch and stop a run through atomics. What a stream has seen of its packets is published as a copy
//! behind a lock that a receiver only tries to take, so that no receiver ever waits for a reader.

use crate::gpu_tally::{GpuReport, GpuTally};
use crate::latency::{Counts, RunLatencies};
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::latency::{Meter, StageLatency};
use konkordia_core::ledger::{ImageStatus, StreamLedger};
use konkordia_core::setup::Seen;
use konkordia_memory::cursor::Wakeups;
use konkordia_memory::ring::Monitor;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Progress of one stream, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StreamProgress {
    /// Counters of its ledger.
    ledger: [AtomicU64; StreamLedger::ROWS],
    other_sender: AtomicU64,
    /// Its own newest frame + 1.
    own_end: AtomicU64,
    /// The frame to which the stream seems to have jumped; [`NOT_YET`] = none.
    ahead: AtomicU64,
    drained: AtomicBool,
    /// When its source was last seen empty, ns since the run was armed; 0 = never.
    drained_ns: AtomicU64,
    halted: AtomicBool,
    /// A copy for readers; the receiver never waits for them.
    seen: Mutex<Seen>,
    /// Packets that its tiles of committed frames miss.
    missing: AtomicU64,
}

/// A snapshot of a run in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets of all streams.
    pub packets: StreamLedger,
    /// Packets from other senders. They also count as foreign, or as malformed if their number is none of the tile.
    pub packets_of_others: u64,
    /// Newest frame seen + 1. Without a selection of frames, each frame is an image.
    pub images_seen: u64,
    /// Images that are committed.
    pub images_committed: u64,
    /// Images that are committed, by the number of their state, in the order of [`ImageStatus::NAMES`].
    pub images_by_status: [u64; ImageStatus::COUNT],
    /// Images that all sinks have taken.
    pub images_written: u64,
    /// Frames that the committer and all sinks of raw frames have passed. Those between it and the newest frame are in
    /// the ring, or were refused a slot.
    pub frames_committed: u64,
    /// Slots of the ring that hold a frame.
    pub slots_used: u64,
    /// Packed images that wait for the slowest sink.
    pub images_waiting: u64,
}

/// Stops a run and reports its progress. Shared between the run and its observers.
#[derive(Debug)]
pub struct Control {
    stop: AtomicBool,
    halt: AtomicBool,
    gave_up: AtomicBool,
    stragglers: Stragglers,
    /// Frames of the run.
    pub(crate) end: AtomicU64,
    /// Images of the run, set by the committer.
    pub(crate) images_end: AtomicU64,
    /// One past the newest frame of any stream, with the bit [`FROZEN`] when no further frame may begin.
    newest_end: AtomicU64,
    pub(crate) first_frame: AtomicU64,
    /// See [`Control::frame_of_others`].
    page_frame: AtomicU64,
    failed: AtomicBool,
    /// When the first datagram of any stream had come, ns since arm; [`NOT_YET`] before that.
    first_datagram_ns: AtomicU64,
    frames_committed: AtomicU64,
    slots_used: AtomicU64,
    committed: AtomicU64,
    /// Name and wake-ups of the threads behind the receivers.
    threads: Mutex<Vec<(String, Wakeups)>>,
    /// One past the last image that each sink has taken.
    taken: Box<[AtomicU64]>,
    by_status: [AtomicU64; ImageStatus::COUNT],
    /// Time in which `join` had no buffer for an image because the sinks held all of them.
    pub(crate) pool_waited_ns: AtomicU64,
    /// What becomes of its images at their analysis.
    pub(crate) analysis: AnalysisCounts,
    /// What a GPU does, in a run with one.
    pub(crate) gpu: Option<Arc<GpuTally>>,
    /// The latencies of its images; `None` where they would mean nothing, as with files.
    latencies: Option<RunLatencies>,
    streams: Box<[StreamProgress]>,
    started: Instant,
}

/// Frames of the previous run whose packets may still arrive.
#[derive(Debug, Default)]
struct Stragglers {
    first: AtomicU64,
    end: AtomicU64,
    packets_left: AtomicU64,
}

/// `end` before the end of the run is known.
pub(crate) const NOT_YET: u64 = u64::MAX;
/// Larger than every frame number, so that a maximum with a frame number changes nothing.
const FROZEN: u64 = 1 << 63;

impl StreamProgress {
    fn ledger(&self) -> StreamLedger {
        StreamLedger::from_rows(std::array::from_fn(|row| self.ledger[row].load(Ordering::Relaxed)))
    }
}

impl Control {
    /// `threads` are the names of those that the ring wakes, in the order of [`Monitor::wakeups`].
    pub(crate) fn new(streams: usize, sinks: usize, first_frame: Option<u64>, threads: Vec<String>) -> Self {
        Self {
            stop: AtomicBool::new(false),
            halt: AtomicBool::new(false),
            gave_up: AtomicBool::new(false),
            stragglers: Stragglers::default(),
            end: AtomicU64::new(NOT_YET),
            images_end: AtomicU64::new(NOT_YET),
            newest_end: AtomicU64::new(0),
            first_frame: AtomicU64::new(first_frame.unwrap_or(NOT_YET)),
            page_frame: AtomicU64::new(NOT_YET),
            failed: AtomicBool::new(false),
            first_datagram_ns: AtomicU64::new(NOT_YET),
            frames_committed: AtomicU64::new(0),
            slots_used: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            threads: Mutex::new(threads.into_iter().map(|name| (name, Wakeups::default())).collect()),
            taken: (0..sinks).map(|_| AtomicU64::new(0)).collect(),
            by_status: Default::default(),
            pool_waited_ns: AtomicU64::new(0),
            analysis: AnalysisCounts::default(),
            gpu: None,
            latencies: None,
            streams: (0..streams).map(|_| StreamProgress { ahead: AtomicU64::new(NOT_YET), ..Default::default() }).collect(),
            started: Instant::now(),
        }
    }

    /// Counts latencies from now on; the rings have `slots` frames and `strip_slots` images.
    pub(crate) fn measure(&mut self, slots: u64, strip_slots: u64) {
        self.latencies = Some(RunLatencies::new(self.started, slots, strip_slots));
    }

    /// Asks the run to end: datagrams already in the sockets are still taken, open tiles are sealed, files are closed.
    /// May be called more than once.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// True after [`Control::stop`].
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Ends the run as one without data if no packet was placed yet; a run that has begun goes on.
    pub fn give_up(&self) {
        self.gave_up.store(true, Ordering::Release);
    }

    pub(crate) fn has_given_up(&self) -> bool {
        self.gave_up.load(Ordering::Acquire)
    }

    /// A run that begins with whichever frame comes first does not begin with one of `frames`: their packets are left
    /// over from the previous run. At most `packets_max` packets are refused in this way, because a detector that was
    /// reset sends the same numbers again. To be called before the run only.
    pub fn expect_stragglers(&self, frames: Range<u64>, packets_max: u64) {
        self.stragglers.first.store(frames.start, Ordering::Relaxed);
        self.stragglers.end.store(frames.end, Ordering::Relaxed);
        self.stragglers.packets_left.store(packets_max, Ordering::Release);
    }

    /// True if a packet of this frame is left over from the previous run. Asked only while no frame has begun the run.
    pub(crate) fn is_straggler(&self, frame: u64) -> bool {
        let s = &self.stragglers;
        let is_old = || (s.first.load(Ordering::Relaxed)..s.end.load(Ordering::Relaxed)).contains(&frame);
        let take = |left: u64| left.checked_sub(1);
        s.packets_left.load(Ordering::Acquire) > 0
            && is_old()
            && s.packets_left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok()
    }

    /// Nanoseconds since the run was armed.
    pub fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Counts how long the images of this run take; counts nothing if its packets come from files.
    pub fn meter(&self) -> Meter {
        self.latencies.as_ref().map_or_else(Meter::default, |run| Meter::new(run.latencies.clone()))
    }

    /// What became of its images at their analysis so far.
    pub fn analysis(&self) -> &AnalysisCounts {
        &self.analysis
    }

    /// What a GPU did so far, in a run with one.
    pub fn gpu(&self) -> Option<GpuReport> {
        self.gpu.as_ref().map(|tally| tally.read())
    }

    pub(crate) fn latencies(&self) -> Option<&RunLatencies> {
        self.latencies.as_ref()
    }

    /// How long the images took that came to a stage since the last call with this `before`.
    pub fn latencies_since(&self, before: &mut Counts) -> Vec<StageLatency> {
        self.latencies.as_ref().map_or_else(Vec::new, |run| run.latencies.since(before))
    }

    /// Number of the run's first frame, once it is known.
    pub fn first_frame(&self) -> Option<u64> {
        Some(self.first_frame.load(Ordering::Acquire)).filter(|f| *f != NOT_YET)
    }

    /// A frame that the packets of another stream belong to, by which a stream begins to count where its packets say
    /// only their page. The first stream that asks has chosen `own`.
    pub(crate) fn frame_of_others(&self, own: u64) -> u64 {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match self.page_frame.compare_exchange(NOT_YET, own, order.0, order.1) {
            Ok(_) => own,
            Err(chosen) => self.first_frame().map_or(chosen, |first| first + self.newest_end().saturating_sub(1)),
        }
    }

    /// A snapshot of the counters. They change while they are read, so sums need not agree before the run has ended.
    pub fn progress(&self) -> Progress {
        let mut packets = StreamLedger::default();
        self.streams.iter().for_each(|s| packets += s.ledger());
        let images_written = self.taken_end();
        let images_committed = self.committed.load(Ordering::Relaxed);
        Progress {
            packets,
            packets_of_others: self.streams.iter().map(|s| s.other_sender.load(Ordering::Relaxed)).sum(),
            images_seen: self.newest_end(),
            images_committed,
            images_by_status: self.by_status.each_ref().map(|count| count.load(Ordering::Relaxed)),
            images_written,
            frames_committed: self.frames_committed(),
            slots_used: self.slots_used.load(Ordering::Relaxed),
            images_waiting: images_committed.saturating_sub(images_written),
        }
    }

    /// Of each stream: its packets, and how many its tiles of committed frames miss.
    pub fn by_stream(&self) -> Vec<(StreamLedger, u64)> {
        self.streams.iter().map(|s| (s.ledger(), s.missing.load(Ordering::Relaxed))).collect()
    }

    /// A committed frame misses packets of this stream.
    pub(crate) fn count_missing(&self, stream: usize, packets: u64) {
        self.streams[stream].missing.fetch_add(packets, Ordering::Relaxed);
    }

    /// One past the newest frame of any stream.
    pub(crate) fn newest_end(&self) -> u64 {
        self.newest_end.load(Ordering::Acquire) & !FROZEN
    }

    /// A stream begins the frame before `end`, unless the frames were frozen before it could.
    pub(crate) fn begin_below(&self, end: u64) {
        self.newest_end.fetch_max(end, Ordering::AcqRel);
    }

    /// From now on no stream may begin a frame that no stream has begun.
    pub(crate) fn freeze(&self) {
        self.newest_end.fetch_or(FROZEN, Ordering::AcqRel);
    }

    /// Frames that were committed, as seen every 10 ms.
    pub(crate) fn frames_committed(&self) -> u64 {
        self.frames_committed.load(Ordering::Relaxed)
    }

    /// Takes over what the ring shows.
    pub(crate) fn watch(&self, monitor: &Monitor) {
        self.frames_committed.store(monitor.committed(), Ordering::Relaxed);
        self.slots_used.store(monitor.slots_used(), Ordering::Relaxed);
        self.committed.store(monitor.published(), Ordering::Relaxed);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter_mut().zip(monitor.wakeups()).for_each(|((_, shown), now)| *shown = now);
    }

    /// How often each thread behind the receivers woke up, as seen every 10 ms; by the name of the thread.
    pub fn wakeups(&self) -> Vec<(String, Wakeups)> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An image of this state was committed.
    pub(crate) fn count_image(&self, status: ImageStatus) {
        self.by_status[status as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All sinks have taken the images below this one.
    pub(crate) fn taken_end(&self) -> u64 {
        self.taken.iter().map(|taken| taken.load(Ordering::Relaxed)).min().unwrap_or(0)
    }

    /// A sink has taken all images below `end`.
    pub(crate) fn note_taken(&self, sink: usize, end: u64) {
        self.taken[sink].store(end, Ordering::Relaxed);
    }

    /// Publishes the ledger of a stream, its own newest frame + 1, and whether its source was seen empty.
    pub(crate) fn publish(&self, stream: usize, ledger: &StreamLedger, own_end: u64, drained: bool) {
        let s = &self.streams[stream];
        s.own_end.store(own_end, Ordering::Relaxed);
        if ledger.received > 0 && self.first_datagram_ns.load(Ordering::Relaxed) == NOT_YET {
            self.first_datagram_ns.fetch_min(self.now_ns(), Ordering::Relaxed);
        }
        s.ledger.iter().zip(ledger.rows()).for_each(|(row, (_, value))| row.store(value, Ordering::Relaxed));
        if drained {
            s.drained_ns.store(self.now_ns(), Ordering::Relaxed);
        }
        s.drained.store(drained, Ordering::Release);
    }

    /// Publishes the frame to which a stream seems to have jumped.
    pub(crate) fn show_ahead(&self, stream: usize, frame: Option<u64>) {
        self.streams[stream].ahead.store(frame.unwrap_or(NOT_YET), Ordering::Release);
    }

    fn beside(&self, stream: usize) -> impl Iterator<Item = &StreamProgress> {
        self.streams.iter().enumerate().filter(move |(n, _)| *n != stream).map(|(_, progress)| progress)
    }

    /// True if another stream seems to have jumped to about the same frame.
    pub(crate) fn is_ahead_too(&self, stream: usize, frame: u64, near_frames: u64) -> bool {
        self.beside(stream).any(|s| match s.ahead.load(Ordering::Acquire) {
            NOT_YET => false,
            ahead => ahead.abs_diff(frame) < near_frames,
        })
    }

    /// Packets that the other streams have placed, and the time since which each of their sources was seen empty at
    /// least once, in ns since the run was armed. `None` if all other streams are dead, that is, more than
    /// `behind_frames` behind the newest.
    pub(crate) fn others(&self, stream: usize, behind_frames: u64) -> Option<(u64, u64)> {
        let alive_from = self.newest_end().saturating_sub(behind_frames).max(1);
        let is_alive = |s: &&StreamProgress| s.own_end.load(Ordering::Relaxed) >= alive_from;
        let placed = |s: &StreamProgress| s.ledger().placed;
        self.beside(stream).find(is_alive)?;
        let drained_ns = self.beside(stream).map(|s| s.drained_ns.load(Ordering::Relaxed)).min().unwrap_or(0);
        Some((self.beside(stream).map(placed).sum(), drained_ns))
    }

    /// Publishes what a stream has seen. Does nothing while somebody reads the copy; the next call publishes it.
    pub(crate) fn show(&self, stream: usize, seen: &Seen) {
        self.streams[stream].other_sender.store(seen.other_senders.packets(), Ordering::Relaxed);
        if let Ok(mut shown) = self.streams[stream].seen.try_lock() {
            *shown = *seen;
        }
    }

    /// What the streams have seen, as last published; `received` is newer and counts up to the last batch.
    pub fn seen(&self) -> Vec<Seen> {
        let shown = |s: &StreamProgress| Seen {
            received: s.ledger().received,
            ..s.seen.lock().map_or_else(|e| *e.into_inner(), |seen| *seen)
        };
        self.streams.iter().map(shown).collect()
    }

    /// Nanoseconds since the first datagram of any stream; 0 before it.
    pub(crate) fn since_first_ns(&self) -> u64 {
        match self.first_datagram_ns.load(Ordering::Relaxed) {
            NOT_YET => 0,
            first_datagram_ns => self.now_ns().saturating_sub(first_datagram_ns),
        }
    }

    /// True if no stream has anything more to take, as far as can be seen: its source was empty, or it has taken all
    /// that it wants.
    pub(crate) fn all_quiet(&self) -> bool {
        self.streams.iter().all(|s| s.drained.load(Ordering::Acquire) || s.halted.load(Ordering::Acquire))
    }

    /// Asks the receivers to take nothing more, so that the newest image stays the same and the end of the run can be
    /// set.
    pub(crate) fn halt(&self) {
        self.halt.store(true, Ordering::Release);
    }

    /// True when receivers must take nothing more: they were asked to halt, or the run has failed.
    pub(crate) fn is_halting(&self) -> bool {
        self.halt.load(Ordering::Acquire) || self.has_failed()
    }

    /// A receiver promises to place nothing more.
    pub(crate) fn note_halted(&self, stream: usize) {
        self.streams[stream].halted.store(true, Ordering::Release);
    }

    pub(crate) fn all_halted(&self) -> bool {
        self.streams.iter().all(|s| s.halted.load(Ordering::Acquire))
    }

    /// A thread of the run has ended early: the others must not wait for it for ever.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stragglers_are_refused_up_to_their_number() {
        let control = Control::new(1, 0, None, Vec::new());
        assert!(!control.is_straggler(7));
        control.expect_stragglers(5..8, 3);
        assert!(!control.is_straggler(4) && !control.is_straggler(8));
        assert!(control.is_straggler(5) && control.is_straggler(7) && control.is_straggler(7));
        assert!(!control.is_straggler(7), "a detector that was reset sends these numbers again");
    }
}
