//! Consumers of whole images of a run: they get the pixels of the images that they want, and nothing waits for them.

use crate::harness::{Collector, Recording, Scene, Seen, constants, losses, run_within};
use crate::planes::{Kept, Planes};
use konkordia_core::array::Element;
use konkordia_core::geometry::{DoublePixels, Orientation, Placement, Quarter};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Plan, Processing};
use konkordia_core::selection::Selection;
use konkordia_core::series::Ended;
use konkordia_engine::output_queue::OutputQueues;
use konkordia_engine::run::{self, RunOutcome, RunParts};
use konkordia_kernels::{ElementSize, Isa, codec};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// A run with its output queues, to which consumers of whole images may be added.
fn parts(recording: &Recording, plan: &Plan) -> (RunParts, Collector, Arc<OutputQueues>) {
    let (mut parts, collector) = recording.parts(plan, &constants(recording));
    let queues = Arc::new(OutputQueues::new(None));
    parts.consumers.output_queues = Arc::clone(&queues);
    parts.consumers.start.series = 9;
    (parts, collector, queues)
}

fn run(parts: RunParts) -> RunOutcome {
    let outcome = run_within(60, run::arm(parts).unwrap());
    assert!(outcome.failure.is_none() && outcome.ended == Ended::Finished, "{:?}", outcome.ended);
    outcome
}

/// Few packets of each frame, so that many frames cost little.
fn sparse(frames: u64) -> Recording {
    Scene { frames, sends: |frame, _, packet| packet < 2 && frame % 5 != 3, ..Scene::default() }.record_random()
}

/// The planes are the pixels of the images that the sink has seen.
fn assert_same(plan: &Plan, kept: &[Kept], seen: &[Seen], every_images: u64) {
    let wanted: Vec<&Seen> =
        seen.iter().filter(|seen| seen.status.has_pixels() && seen.image.is_multiple_of(every_images)).collect();
    assert_eq!(kept.iter().map(|kept| kept.image).collect::<Vec<_>>(), wanted.iter().map(|seen| seen.image).collect::<Vec<_>>());
    let size = (plan.geometry.rows() as usize, plan.geometry.columns() as usize);
    let element = if plan.pixel.bytes() == 2 { ElementSize::Two } else { ElementSize::Four };
    for (kept, seen) in kept.iter().zip(wanted) {
        let mut pixels = vec![0; plan.image_bytes()];
        codec::decompress(plan.compression, Isa::Scalar, &seen.chunk, element, &mut pixels).unwrap();
        assert_eq!((kept.series, kept.size, kept.element), (9, size, Element::from(plan.pixel)));
        assert!(kept.bytes == pixels, "image {}", kept.image);
    }
}

#[test]
fn sums_partial_images_and_turned_tiles_are_lent_as_they_are_stored() {
    let recording = Scene { interfaces: 2, frames: 9, faults: losses(3), ..Scene::default() }.record_random();
    let turned = Placement { row: 0, column: 0, orientation: Orientation { flip_rows: false, rotate: Quarter::Deg90 } };
    let flipped = Placement { row: 5, column: 300, orientation: Orientation { flip_rows: true, rotate: Quarter::Deg0 } };
    for (pixel, compression, sum_frames) in [
        (PixelType::Int32, Compression::BSZSTD, 2),
        (PixelType::Float32, Compression::Gzip { level: 1 }, 3),
        (PixelType::Uint16, Compression::None, 1),
    ] {
        let processing = Processing { selection: Selection { sum_frames, ..Selection::default() }, ..Processing::default() };
        let plan = Plan { processing, pixel, compression, ..recording.plan_at(vec![turned, flipped], DoublePixels::Split) };
        let (parts, collector, queues) = parts(&recording, &plan);
        let planes = Planes::default();
        let mut consumer = planes.spawn("all", &queues, 1, 100);
        let outcome = run(parts);
        let (kept, seen) = (planes.end("all", &queues, &mut consumer), collector.take());
        recording.compare(&plan, &constants(&recording), &outcome, &seen);
        assert!(seen.iter().any(|seen| seen.head.frames_complete < seen.head.frames), "some packets were lost");
        assert_same(&plan, &kept, &seen, 1);
        assert_eq!((consumer.seen(), consumer.skipped()), (kept.len() as u64, 0));
    }
}

#[test]
fn every_kth_image_comes_and_no_other() {
    let recording = sparse(31);
    for (every_images, missing) in [(1, MissingPolicy::Keep), (3, MissingPolicy::Keep), (7, MissingPolicy::CompleteOnly)] {
        let plan = Plan { compression: Compression::BSLZ4, missing, ..recording.plan() };
        let (parts, collector, queues) = parts(&recording, &plan);
        let planes = Planes::default();
        let mut consumer = planes.spawn("some", &queues, every_images, 100);
        run(parts);
        let (kept, seen) = (planes.end("some", &queues, &mut consumer), collector.take());
        assert_same(&plan, &kept, &seen, every_images);
        // Nothing is missed: the other images were not for it.
        assert_eq!((consumer.seen(), consumer.skipped()), (kept.len() as u64, 0));
        assert_eq!(kept.is_empty(), missing == MissingPolicy::CompleteOnly, "no image is complete");
    }
}

/// The consumer does not come back before the run has ended, and the run has one buffer for images.
#[test]
fn a_consumer_that_sleeps_delays_nothing_and_what_it_misses_is_counted() {
    let recording = sparse(60);
    let plan = Plan { compression: Compression::BSLZ4, packed_slots: 2, ..recording.plan() };
    let (parts, collector, queues) = parts(&recording, &plan);
    let (wake, sleep) = mpsc::channel();
    let sleep = Mutex::new(sleep);
    let sleeper = Planes { before: Some(Arc::new(move |_: u64| sleep.lock().unwrap().recv().unwrap())), ..Planes::default() };
    let mut consumer = sleeper.spawn("asleep", &queues, 1, 1);
    let outcome = run(parts);
    let seen = collector.take();
    recording.compare(&plan, &constants(&recording), &outcome, &seen);
    let with_pixels = seen.iter().filter(|seen| seen.status.has_pixels()).count() as u64;
    assert!(with_pixels > 40 && outcome.ledger.written == with_pixels, "{} written", outcome.ledger.written);
    let until = Instant::now() + Duration::from_secs(60);
    while consumer.seen() == 0 {
        assert!(Instant::now() < until, "it never gets an image");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((consumer.seen(), consumer.skipped()), (1, with_pixels - 1), "it holds one image, and misses the others");
    let queue = queues.list().into_iter().find(|queue| queue.spec().name == "asleep").unwrap();
    assert_eq!(queue.stats().waited_ns.load(Ordering::Relaxed), 0, "nobody has waited for it");
    wake.send(()).unwrap();
    assert_same(&plan, &sleeper.end("asleep", &queues, &mut consumer), &seen[..1], 1);
}

#[test]
fn a_panic_in_a_consumer_ends_that_consumer_only() {
    let recording = sparse(40);
    let plan = Plan { compression: Compression::BSLZ4, ..recording.plan() };
    let (parts, collector, queues) = parts(&recording, &plan);
    let panics =
        Planes { before: Some(Arc::new(|image: u64| assert!(image < 2, "the consumer has a bug"))), ..Planes::default() };
    let others = Planes::default();
    let (mut broken, mut sound) = (panics.spawn("broken", &queues, 1, 100), others.spawn("sound", &queues, 1, 100));
    let outcome = run(parts);
    let seen = collector.take();
    recording.compare(&plan, &constants(&recording), &outcome, &seen);
    let panic = broken.join().expect("it has panicked");
    assert_eq!(panic.thread, "out-broken");
    assert!(panic.why.contains("the consumer has a bug"), "{panic}");
    assert_eq!(panics.kept.lock().unwrap().iter().map(|kept| kept.image).collect::<Vec<_>>(), [0, 1]);
    assert!(queues.list().iter().all(|queue| queue.spec().name != "broken"), "its queue takes nothing any more");
    assert_same(&plan, &others.end("sound", &queues, &mut sound), &seen, 1);
}
