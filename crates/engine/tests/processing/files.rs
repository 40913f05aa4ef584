//! Sources that can wait, as files do: nothing is refused, however few slots there are and however far the streams are
//! apart.

use crate::harness::{Collector, Constants, Recording, Scene, Seen, constants, run_within};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::{FirstFrame, Plan, Processing};
use konkordia_core::ports::Source;
use konkordia_core::selection::{Keep, Selection};
use konkordia_core::sender::Sender;
use konkordia_core::series::Ended;
use konkordia_engine::run::{self, RunFailure, RunOutcome};
use konkordia_sources::memory::MemorySource;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn run_files(recording: &Recording, plan: &Plan, constants: &Constants, batch: usize) -> (RunOutcome, Vec<Seen>) {
    let (mut parts, collector) = recording.parts(plan, constants);
    let source = |datagrams: &Vec<Vec<u8>>| Box::new(MemorySource::new(datagrams.clone(), batch)) as Box<dyn Source>;
    parts.sources = recording.streams.iter().map(|datagrams| source(datagrams)).collect();
    let outcome = run_within(60, run::arm(parts).unwrap());
    assert!(outcome.meter.read().is_empty(), "how long frames of files take says nothing");
    (outcome, collector.take())
}

/// Stream 1 misses frames 30 to 329, stream 0 some here and there, and it ends before the other.
fn sends(frame: u64, stream: usize, packet: u32) -> bool {
    let has_frame = if stream == 0 { frame % 7 != 3 && frame < 390 } else { !(30..330).contains(&frame) };
    has_frame && packet == (frame % 2) as u32 * 63
}

#[test]
fn streams_hundreds_of_frames_apart_lose_nothing_in_a_ring_of_a_few() {
    let recording = Scene { interfaces: 2, frames: 400, sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let selection = Selection { keep: Keep::EveryNth(10), sum_frames: 2, ..Selection::default() };
    let processing = Processing { selection, ..Processing::default() };
    let few = Plan { slots: 4, packed_slots: 1, window_images: 2, processing, ..recording.plan() };
    for (plan, batch) in [(few.clone(), 1), (Plan { slots: 6, workers: 5, ..few.clone() }, 7), (few, 100)] {
        let (outcome, seen) = run_files(&recording, &plan, &constants, batch);
        assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
        let total = outcome.ledger.total();
        assert_eq!((total.no_slot, total.late, total.duplicate, seen.len()), (0, 0, 0, 20));
        recording.compare(&plan, &constants, &outcome, &seen);
    }
}

/// The last frames were never recorded; the plan has no number of frames, or too large a one.
#[test]
fn a_run_ends_where_all_files_end() {
    let sends = |frame, stream, packet| packet < 2 && frame < 20 + stream as u64;
    let recording = Scene { interfaces: 2, frames: 30, sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    // Longer than the test may take: nothing may wait for these time-outs.
    let hour = 3_600_000_000_000;
    let plan = Plan { stall_timeout_ns: hour, start_timeout_ns: hour, first_frame: FirstFrame::Auto, ..recording.plan() };
    for frames in [None, Some(30), Some(21)] {
        let (outcome, seen) = run_files(&recording, &Plan { frames, ..plan.clone() }, &constants, 3);
        assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
        let images = outcome.ledger.images;
        assert_eq!((seen.len(), images.partial, images.lost), (21, 21, 0));
        assert_eq!((images.not_received, images.not_taken), (frames.unwrap_or(21) - 21, 0));
        assert_eq!((outcome.ledger.frames.passed, outcome.ledger.frames.absent), (21, images.not_received));
    }
    let selection = Selection { sum_frames: 4, ..Selection::default() };
    let processing = Processing { selection, ..Processing::default() };
    let ledger = run_files(&recording, &Plan { processing, ..plan.clone() }, &constants, 3).0.ledger;
    assert_eq!((ledger.images.partial, ledger.frames.unfinished, ledger.frames.absent), (5, 1, 9));

    let nothing = Scene { interfaces: 2, sends: |_, _, _| false, ..Scene::default() }.record_random();
    let outcome = run_files(&nothing, &plan, &constants, 3).0;
    assert!(outcome.ended == Ended::NoData, "{:?}", outcome.ended);
}

/// A slow sink is no reason to stop reading.
#[test]
fn files_wait_for_a_sink_longer_than_any_detector_may_stall() {
    let recording = Scene { frames: 30, sends: |_, _, packet| packet < 2, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let plan = Plan { slots: 4, packed_slots: 1, window_images: 2, stall_timeout_ns: 20_000_000, ..recording.plan() };
    let (mut parts, _) = recording.parts(&plan, &constants);
    let slow = Collector { pause: Duration::from_millis(45), ..Collector::default() };
    parts.sinks = vec![Box::new(slow.clone())];
    // Who watches the run sees for whom it waits.
    let output_queues = Arc::clone(&parts.consumers.output_queues);
    let watched = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            let list = output_queues.list();
            if list.iter().any(|queue| queue.spec().name == "file" && queue.stats().waited_ns.load(Ordering::Relaxed) > 0) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    });
    let outcome = run_within(20, run::arm(parts).unwrap());
    assert!(watched.join().unwrap(), "nobody learns that the file is slow");
    assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
    let seen = slow.take();
    assert!(seen.iter().all(|s| s.status == ImageStatus::Partial));
    recording.compare(&plan, &constants, &outcome, &seen);
}

/// A stop does not wait for the end of the files, and the frames read so far are whole on all streams.
#[test]
fn a_stop_ends_the_reading_with_whole_frames() {
    let sends = |_, _, packet| packet == 5;
    let recording = Scene { interfaces: 2, frames: 2000, sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    for (slots, batches) in [(4, [1, 1]), (16, [50, 1]), (64, [7, 300])] {
        let plan = Plan { slots, packed_slots: 2, window_images: 2, ..recording.plan() };
        let (mut parts, _) = recording.parts(&plan, &constants);
        let slow = Collector { pause: Duration::from_millis(2), ..Collector::default() };
        let source = |(datagrams, batch): (&Arc<Vec<Vec<u8>>>, usize)| {
            Box::new(MemorySource::new(datagrams.to_vec(), batch)) as Box<dyn Source>
        };
        parts.sources = recording.streams.iter().zip(batches).map(source).collect();
        parts.sinks = vec![Box::new(slow.clone())];
        let armed = run::arm(parts).unwrap();
        let control = armed.control();
        let stop = std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_secs(20);
            while control.progress().images_written < 10 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            control.stop();
        });
        let outcome = run_within(20, armed);
        stop.join().unwrap();
        assert!(outcome.ended == Ended::Stopped, "{:?}", outcome.ended);
        let images = outcome.ledger.images;
        assert!(outcome.ledger.written >= 10 && outcome.ledger.written < 2000, "{images:?}");
        assert_eq!((images.partial, images.lost, outcome.ledger.total().no_slot), (images.expected, 0, 0));
        assert!(slow.take().iter().all(|s| s.tiles.iter().all(|tile| tile.packets == 1)), "no stream stops before another");
    }
}

/// A file that cannot be read further.
struct Torn {
    datagrams: Vec<Vec<u8>>,
    next: usize,
}

impl Source for Torn {
    fn receive(&mut self, _timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> std::io::Result<usize> {
        let datagram = self.datagrams.get(self.next).ok_or_else(|| std::io::Error::other("the test says so"))?;
        take(datagram, Sender::NONE);
        self.next += 1;
        Ok(1)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

#[test]
fn a_file_that_cannot_be_read_further_ends_the_run_and_holds_up_no_other() {
    let recording = Scene { interfaces: 2, frames: 300, sends: |_, _, packet| packet == 5, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let plan = Plan { slots: 4, packed_slots: 1, window_images: 2, ..recording.plan() };
    let (mut parts, collector) = recording.parts(&plan, &constants);
    parts.sources[1] = Box::new(Torn { datagrams: recording.streams[1][..40].to_vec(), next: 0 });
    let outcome = run_within(20, run::arm(parts).unwrap());
    assert!(matches!(outcome.failure, Some(RunFailure::Source(1, _))), "{:?}", outcome.ended);
    let whole = collector.take().iter().filter(|s| s.tiles.iter().all(|tile| tile.packets == 1)).count();
    assert!(whole >= 40 && outcome.images < 60, "{whole} whole of {}", outcome.images);
}
