//! Sinks of raw frames, sinks that fail, and impossible plans.

use crate::harness::{Collector, RawCollector, Recording, Scene, constants, losses, run_within};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{CommonMode, Plan, Processing, Recipe, TrackedFrames, Tracking};
use konkordia_core::process::Negative;
use konkordia_core::selection::{Keep, Marked, Selection};
use konkordia_core::series::Ended;
use konkordia_engine::run::{self, RunFailure, WorkerKind};
use std::time::Duration;

fn summed(recording: &Recording, sum_frames: u32) -> Plan {
    let selection = Selection { sum_frames, ..Selection::default() };
    Plan { processing: Processing { selection, ..Processing::default() }, ..recording.plan() }
}

/// Every tile of which a packet came, once and in order, with the words that came.
fn assert_all_raw(recording: &Recording, raw: &RawCollector) {
    let seen = std::mem::take(&mut *raw.seen.lock().unwrap());
    let mut seen = seen.iter();
    let (pixels, packet_pixels) = (recording.format.pixels() as usize, recording.format.payload_bytes as usize / 2);
    for frame in 0..recording.reference.layout().images {
        let words = recording.reference.words(frame);
        for tile in (0..recording.streams.len()).filter(|t| recording.reference.arrived(frame, *t).contains(&true)) {
            let got = seen.next().expect("no tile is left out");
            assert_eq!((got.0, got.1, got.2.header.frame_number), (frame, tile, frame + 1));
            let arrived = recording.reference.arrived(frame, tile);
            assert_eq!(usize::from(got.2.packets), arrived.iter().filter(|came| **came).count());
            for (packet, came) in arrived.iter().enumerate() {
                assert_eq!(got.2.bitmap.has(packet as u16), *came);
                let at = packet * packet_pixels..(packet + 1) * packet_pixels;
                let expected = &words[tile * pixels..(tile + 1) * pixels][at.clone()];
                assert!(!came || got.3[at].iter().zip(expected).all(|(a, b)| Some(*a) == *b), "frame {frame}, tile {tile}");
            }
        }
    }
    assert!(seen.next().is_none());
}

#[test]
fn a_sink_of_raw_frames_sees_the_words_of_every_frame() {
    let sends = |frame, stream, packet| frame != 5 && (packet < 40 || stream == 1);
    let recording = Scene { interfaces: 2, frames: 14, faults: losses(9), sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    // Dark and skipped frames too. Files wait for the sink, however slow it is.
    let selection = Selection { warmup_frames: 3, keep: Keep::EveryNth(2), sum_frames: 2, ..Selection::default() };
    let processing = Processing { selection, ..Processing::default() };
    for (slots, pause) in [(16, Duration::ZERO), (4, Duration::from_millis(2))] {
        let plan = Plan { processing, slots, window_images: 2, ..recording.plan() };
        let (mut parts, collector) = recording.parts(&plan, &constants);
        let raw = [RawCollector { pause, ..RawCollector::default() }, RawCollector::default()];
        parts.frame_sinks = vec![Box::new(raw[0].clone()), Box::new(raw[1].clone())];
        let outcome = run_within(60, run::arm(parts).unwrap());
        assert_eq!(outcome.frame_sinks.len(), 2);
        recording.compare(&plan, &constants, &outcome, &collector.take());
        raw.iter().for_each(|raw| assert_all_raw(&recording, raw));
    }
}

#[test]
fn a_slow_sink_of_raw_frames_holds_slots_and_a_failing_one_ends_the_run() {
    let recording = Scene { frames: 60, sends: |_, _, packet| packet < 3, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let live = Plan { lossless_source: false, slots: 4, window_images: 2, ..recording.plan() };
    let (mut parts, _) = recording.parts(&live, &constants);
    parts.frame_sinks = vec![Box::new(RawCollector { pause: Duration::from_millis(10), ..RawCollector::default() })];
    let outcome = run_within(20, run::arm(parts).unwrap());
    assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
    assert!(outcome.ledger.total().no_slot > 0, "four slots cannot hold 60 frames");

    for lossless_source in [false, true] {
        let (mut parts, collector) = recording.parts(&Plan { lossless_source, ..live.clone() }, &constants);
        let raw = RawCollector { fails_at: Some(3), ..RawCollector::default() };
        parts.frame_sinks = vec![Box::new(raw.clone())];
        let outcome = run_within(20, run::arm(parts).unwrap());
        assert!(matches!(outcome.failure, Some(RunFailure::Sink(_))), "{:?}", outcome.ended);
        assert!(raw.seen.lock().unwrap().iter().all(|tile| tile.0 < 3));
        assert_eq!(collector.take().len() as u64, outcome.images);
    }
}

#[test]
fn a_sink_that_fails_ends_a_run_of_sums_in_a_small_ring() {
    let recording = Scene { frames: 200, sends: |_, _, packet| packet < 2, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    for (packed_slots, sum_frames, workers) in [(1, 1, 5), (1, 3, 2), (2, 7, 1)] {
        let plan = Plan { packed_slots, workers, slots: 4, window_images: 2, ..summed(&recording, sum_frames) };
        let (mut parts, other) = recording.parts(&plan, &constants);
        let failing = Collector { fails_at: Some(4), ..Collector::default() };
        parts.sinks.push(Box::new(failing.clone()));
        let outcome = run_within(20, run::arm(parts).unwrap());
        assert!(matches!(outcome.failure, Some(RunFailure::Sink(_))), "{:?}", outcome.ended);
        assert_eq!((failing.take().len(), outcome.ledger.written), (4, 4));
        // The other sink takes all that was committed.
        assert_eq!(other.take().len() as u64, outcome.images);
        assert!(outcome.images >= 5 && outcome.ledger.unwritten >= 1);
    }
}

/// A worker that does not know the type to convert to: no configuration asks for it, so it is a mistake of the caller.
#[test]
fn a_worker_that_panics_ends_the_run_and_gives_its_sinks_back() {
    let recording = Scene { frames: 20, sends: |_, _, packet| packet < 3, ..Scene::default() }.record_random();
    let plan = Plan { pixel: PixelType::Uint8, lossless_source: false, ..recording.plan() };
    for workers in [WorkerKind::Strips, WorkerKind::Scalar] {
        let (mut parts, _) = recording.parts(&plan, &constants(&recording));
        parts.frame_sinks = vec![Box::new(RawCollector::default())];
        parts.workers = workers.clone();
        let armed = run::arm(parts).unwrap();
        let (done, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(armed.run()).unwrap());
        let outcome = result.recv_timeout(Duration::from_secs(60)).expect("it ends");
        let Some(RunFailure::Panicked(panic)) = &outcome.failure else { panic!("{:?}", outcome.ended) };
        // A panic in a thread of the worker is carried on to the thread at the ring.
        assert!(panic.thread.starts_with("work-") && panic.why.contains("no run converts to"), "{workers:?}: {panic}");
        assert_eq!((outcome.sinks.len(), outcome.frame_sinks.len(), outcome.images), (1, 1, 0));
    }
}

#[test]
fn plans_that_cannot_be_are_refused_at_arm() {
    let recording = Scene { frames: 1, sends: |_, _, packet| packet == 0, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let refused = |change: fn(&mut Plan)| {
        let mut plan = recording.plan();
        change(&mut plan);
        run::arm(recording.parts(&plan, &constants).0).is_err()
    };
    let tracking = |window_frames| Tracking { window_frames, frames: TrackedFrames::All, snapshot_images: 1 };
    assert!(!refused(|_| {}));
    assert!(refused(|p| p.packed_slots = 0));
    for sum_frames in [0, 1001] {
        let mut plan = recording.plan();
        plan.processing.selection.sum_frames = sum_frames;
        assert!(run::arm(recording.parts(&plan, &constants).0).is_err());
    }
    assert!(refused(|p| p.processing.selection.darks = Marked::Every(1)));
    assert!(refused(|p| p.processing.selection.keep = Keep::EveryNth(0)));
    for (window_frames, common_mode, ok) in
        [(0, CommonMode::None, false), (9, CommonMode::Row, false), (9, CommonMode::None, true)]
    {
        let mut plan = recording.plan();
        (plan.processing.tracking, plan.processing.common_mode) = (Some(tracking(window_frames)), common_mode);
        assert_eq!(run::arm(recording.parts(&plan, &constants).0).is_ok(), ok);
    }
    let raw = |change: fn(&mut Processing)| {
        let mut plan = Plan { recipe: Recipe::Raw, pixel: PixelType::Uint16, ..recording.plan() };
        change(&mut plan.processing);
        run::arm(recording.parts(&plan, &constants).0).is_err()
    };
    assert!(!raw(|_| {}));
    assert!(raw(|p| p.negative = Negative::Offset(5)) && raw(|p| p.selection.sum_frames = 2));
    assert!(raw(|p| p.common_mode = CommonMode::Row));
}
