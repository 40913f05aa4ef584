//! A mistake in the program costs as little as possible: a message, an image, a series. It never makes threads wait for
//! each other for ever.

use super::harness::*;
use konkordia_core::image::CommittedImage;
use konkordia_core::series::{Ended, SeriesStart};
use konkordia_engine::series::{Notice, Protocol, SeriesSpec, Transform, TransformFactory};

use TinyMessage::*;

/// Panics at the start of a series of this number, and at images of that one.
struct Breaks {
    at_start: u64,
    at_image: u64,
}

impl Transform for Breaks {
    fn run(&mut self, image: CommittedImage, _: konkordia_core::geometry::Orientation) -> Result<CommittedImage, String> {
        assert!(image.number != self.at_image, "the test says so");
        Ok(image)
    }

    fn start(&self, start: &mut SeriesStart) {
        assert!(start.series != self.at_start, "the test says so");
    }
}

fn spec(at_start: u64, at_image: u64) -> SeriesSpec {
    let make: TransformFactory = Box::new(move || Box::new(Breaks { at_start, at_image }));
    SeriesSpec { transform: Some(make), wait_ns: 200 * MS, budget_bytes: 1 << 20, ..SeriesSpec::new(Protocol::DectrisV2) }
}

#[test]
fn a_panic_at_an_image_costs_that_image() {
    let mut bench = Bench::new(spec(0, 1), 1, PLAIN);
    bench.send(0, 5, 0, &[Start(3), Image(0), Image(1), Image(2), End]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.complete, end.ledger.images.lost), (Ended::Finished, 2, 1));
    assert!(bench.refusals().iter().any(|why| why.contains("the test says so")), "{:?}", bench.refusals());
}

#[test]
fn a_panic_at_a_message_costs_that_message() {
    let mut bench = Bench::new(SeriesSpec::new(Protocol::DectrisV2), 1, PLAIN);
    bench.send(0, 5, 0, &[Start(2), Image(0), Bug, Image(1), End]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.complete, end.ledger.total().malformed), (Ended::Finished, 2, 1));
    assert!(bench.refusals().iter().any(|why| why.contains("the decoder has a bug")), "{:?}", bench.refusals());
    bench.assert_at_rest();
}

#[test]
fn a_sink_that_panics_has_failed_for_that_series() {
    let collector = Collector { panics_at: Some(1), ..Collector::default() };
    let bench = Bench::with(SeriesSpec::new(Protocol::DectrisV2), 1, PLAIN, collector);
    bench.send(0, 5, 0, &[Start(3), Image(0), Image(1), Image(2), End]);
    eventually("it has failed", || !bench.sink.errors.lock().unwrap().is_empty());
    let error = bench.sink.errors.lock().unwrap()[0].clone();
    assert!(error.why.contains("the sink has a bug"), "{error}");
    bench.send(0, 6, 0, &[Start(1), Image(0), End]);
    eventually("the sink sees the ends", || bench.sink.series_ended() == 2);
    let kept = bench.collector.kept.lock().unwrap();
    assert_eq!((kept[0].states(), kept[1].states()), ("c".into(), "c".into()));
}

/// The sort thread cannot go on: the series that had begun is ended, and the control plane is informed.
#[test]
fn a_panic_on_the_thread_that_everything_passes_is_reported_and_ends_the_path() {
    let mut bench = Bench::new(spec(6, u64::MAX), 1, PLAIN);
    bench.send(0, 5, 0, &[Start(1), Image(0), End]);
    assert_eq!(bench.ended(), Ended::Finished);
    // Nothing more: a source that has ended takes no messages.
    bench.send(0, 6, 0, &[Start(1)]);
    let why = bench.wait("the end of the path", |notice| match notice {
        Notice::Broken { why } => Some(why.clone()),
        _ => None,
    });
    assert!(why.contains("the thread sort") && why.contains("the test says so"), "{why}");
    // Its threads end, and nothing waits for them.
    bench.control().arm(Default::default());
    drop(bench.series);
    assert_eq!(bench.collector.kept.lock().unwrap().len(), 1, "what never began has no end");
}
