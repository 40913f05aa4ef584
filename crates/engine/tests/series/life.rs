//! The life of series: how they begin and end, and everything that senders do wrong.

use super::harness::*;
use konkordia_core::latency::Stage;
use konkordia_core::series::Ended;
use konkordia_core::state::State;
use konkordia_engine::series::{Accept, ArmOrder, Notice, Protocol, SeriesSpec};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn spec() -> SeriesSpec {
    quick(Protocol::DectrisV2)
}

use TinyMessage::*;

#[test]
fn two_series_follow_each_other_and_pixels_are_untouched() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 5, 0, &[Start(3), Image(0), Image(1), Image(2), End]);
    assert_eq!(bench.ended(), Ended::Finished);
    bench.send(0, 6, 0, &[Start(0), Image(1), Image(0), Other, End]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.total().control, end.ledger.images.is_complete()), (Ended::Finished, 3, true));
    let kept = bench.kept(2);
    assert_eq!((kept[0].states(), kept[1].states()), ("ccc".into(), "cc".into()));
    for (series, kept) in [(5, &kept[0]), (6, &kept[1])] {
        assert_eq!(kept.start.as_ref().unwrap().series, series);
        for image in &kept.images {
            let expected: Vec<u8> = (0..12).flat_map(|i| pixel(series, image.number, 0, i).to_le_bytes()).collect();
            assert_eq!(image.channels[0].array.pieces[0], expected);
        }
    }
    bench.assert_at_rest();
    let progress = bench.control().progress();
    assert_eq!((progress.state, progress.series_started, progress.images_committed), (State::Idle, 2, 5));
    // Of the second series alone, whose images nobody changed.
    let images = |stage| progress.latency.iter().find(|latency| latency.stage == stage).map(|latency| latency.images);
    assert_eq!([Stage::Assembled, Stage::Converted, Stage::Committed].map(images), [None, None, Some(2)]);
    assert_eq!(progress.notices_lost, 0);
    assert_eq!(bench.newest().unwrap(), 1);
}

#[test]
fn images_of_workers_are_counted_at_each_stage_in_order() {
    let mut bench = Bench::new(SeriesSpec { check_pixels: true, workers: 2, ..spec() }, 1, PLAIN);
    bench.send(0, 5, 0, &[Start(3), Image(0), Image(1), Image(2), End]);
    assert_eq!(bench.ended(), Ended::Finished);
    let latency = bench.control().progress().latency;
    let counted: Vec<_> = latency.iter().map(|latency| (latency.stage, latency.images)).collect();
    let stages = [Stage::Assembled, Stage::Converted, Stage::Committed, Stage::Seen];
    assert_eq!(counted, stages.map(|stage| (stage, 3)));
    assert!(latency.is_sorted_by_key(|latency| latency.max_ns), "{latency:?}");
}

#[test]
fn what_comes_twice_late_or_from_elsewhere_has_a_counter_each() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Image(0)]);
    bench.send(0, 2, 0, &[Start(4), Image(0), Image(0), Image(2), Image(2), Junk, Junk, Image(9)]);
    bench.send(0, 1, 0, &[Image(1), End]);
    bench.send(0, 2, 0, &[Image(1), Image(3), Image(3), End, Image(3), End]);
    let end = bench.end();
    let total = end.ledger.total();
    assert_eq!((end.ended, end.ledger.images.complete), (Ended::Finished, 4));
    // Duplicates of images that have left are late; before the header, beyond the announced images, of another series,
    // wrong end.
    assert_eq!((total.placed, total.duplicate + total.late, total.malformed, total.foreign), (4, 3, 2, 4));
    let words = bench.refusals();
    assert_eq!(words.iter().filter(|why| why.contains("junk")).count(), 1, "{words:?}");
    assert!(words.iter().any(|why| why.contains("beyond the images")), "{words:?}");
    // What came after the end counts in the next series.
    bench.send(0, 3, 0, &[Start(1), Image(0), End]);
    assert_eq!(bench.end().ledger.total().foreign, 2);
}

#[test]
fn lost_images_are_gaps_and_never_a_stall() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Start(8), Image(0), Image(2), Image(5)]);
    eventually("the images behind the gap leave", || bench.control().progress().images_committed == 6);
    bench.send(0, 1, 0, &[Image(1), End]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.lost, end.ledger.total().late), (Ended::Finished, 3, 1));
    assert_eq!((end.ledger.images.expected, end.ledger.images.not_taken, end.ledger.images.not_received), (6, 2, 0));
    assert_eq!(bench.kept(1)[0].states(), "c-c--c");
    // Ahead of the window: gaps at once.
    bench.send(0, 2, 0, &[Start(0), Image(0), Image(100), End]);
    assert_eq!(bench.end().ledger.images.lost, 99);
    // Too far ahead to be an image of this series.
    bench.send(0, 3, 0, &[Start(0), Image(0), Image(1 << 40), Image(1), End]);
    let ledger = &bench.end().ledger;
    assert_eq!((ledger.images.expected, ledger.total().foreign), (2, 1));
}

/// One damaged number must not make gaps by the hundred thousand; if the sender has jumped there, everything that came
/// is taken.
#[test]
fn a_number_far_ahead_is_a_gap_only_where_another_image_goes_on_from_it() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    for far in [900_000, (1 << 24) - 5] {
        bench.send(0, 1, 0, &[Start(0), Image(0), Image(far), Image(1), Image(2), End]);
        let ledger = &bench.end().ledger;
        assert_eq!((ledger.images.expected, ledger.images.complete, ledger.total().foreign), (3, 3, 1), "{far}");
    }
    bench.send(0, 2, 0, &[Start(0), Image(0), Image(100_000), Image(100_001), Image(100_002), End]);
    let ledger = &bench.end().ledger;
    assert_eq!((ledger.images.complete, ledger.images.lost, ledger.total().foreign), (4, 99_999, 0));
    // Slowly, so that the first image does not wait long enough for the second.
    bench.send(0, 3, 0, &[Start(0), Image(0), Image(100_000)]);
    eventually("it was waited for long enough", || bench.control().progress().ledger.total().foreign == 1);
    bench.send(0, 3, 0, &[Image(100_001), Image(100_002), End]);
    let ledger = &bench.end().ledger;
    assert_eq!((ledger.images.complete, ledger.images.lost, ledger.total().foreign), (3, 100_000, 1));
    assert_eq!(bench.refusals().iter().filter(|why| why.contains("no image near it follows")).count(), 2);
}

/// A detector that goes on while the service shuts down: the current series is completed, and no other begins.
#[test]
fn no_series_begins_when_it_is_left() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Start(0), Image(0), Image(1)]);
    eventually("two images came", || bench.control().progress().images_committed == 2);
    bench.control().leave();
    bench.send(0, 1, 0, &[Image(2), End]);
    for series in 2..3002 {
        bench.send(0, series, 0, &[Start(0), Image(0), Image(1), End]);
    }
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.complete), (Ended::Finished, 3));
    eventually("the others were refused", || bench.control().progress().between.total().foreign == 12_000);
    assert_eq!((bench.control().progress().series_started, bench.kept(1).len()), (1, 1));
    bench.assert_at_rest();
}

/// A sink that takes a millisecond for each of a million gaps.
#[test]
fn cancel_ends_a_long_gap() {
    let collector = Collector { pause: Duration::from_millis(1), ..Collector::default() };
    let mut bench = Bench::with(spec(), 1, PLAIN, collector);
    bench.send(0, 1, 0, &[Start(0), Image(0), Image(1_000_000), Image(1_000_001)]);
    let handed_on = Arc::clone(&bench.collector.kept);
    eventually("the gap is being handed on", || handed_on.lock().unwrap().last().is_some_and(|kept| kept.images.len() > 100));
    bench.control().cancel();
    let end = bench.end();
    assert!(end.ended == Ended::Cancelled && end.ledger.images.expected > 900_000, "{end:?}");
    assert!(bench.kept(1)[0].images.len() < 100_000);
    bench.assert_at_rest();
}

#[test]
fn numbers_show_images_that_were_lost_at_the_end() {
    for (messages, end, states) in [
        (&[Start(0), Image(0), Image(1)][..], 15, "cc--"),
        (&[Start(0)], 13, "--"),
        (&[Start(0), Image(0), Image(2), Image(1)], 14, "ccc"),
        // An announced number counts, unless it is nonsense.
        (&[Start(3), Image(0)], 19, "c--"),
        (&[Start(0), Image(0)], 1 << 60, "c"),
    ] {
        let mut bench = Bench::new(spec(), 1, NUMBERED);
        bench.send(0, 1, 10, messages);
        bench.send(0, 1, end, &[End]);
        let end = bench.end();
        assert_eq!((end.ended, bench.kept(1)[0].states().as_str()), (Ended::Finished, states));
    }
}

#[test]
fn an_announcement_of_more_images_than_there_are_costs_nothing() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Start(1 << 47), Image(0), End]);
    let end = bench.wait("an end", |notice| if let Notice::Ended(end) = notice { Some(end.clone()) } else { None });
    assert_eq!((end.ledger.images.expected, end.ledger.images.lost, end.ledger.images.not_taken), (1, 0, (1 << 47) - 1));
    assert_eq!(end.ledger.imbalances(), []);
    eventually("the sink sees the end", || bench.sink.series_ended() == 1);
    assert_eq!(bench.collector.kept.lock().unwrap()[0].states(), "c");
}

/// Nine of many announced images came, and then the series was ended or stopped, or nothing more came.
#[test]
fn a_series_is_as_long_as_what_came() {
    let images: Vec<_> = std::iter::once(Start(100_000)).chain((0..9).map(Image)).collect();
    for how in ["end", "stop", "silence", "next"] {
        let mut bench = Bench::new(spec(), 1, PLAIN);
        bench.send(0, 1, 0, &images);
        match how {
            "end" => bench.send(0, 1, 0, &[End]),
            "stop" => {
                eventually("nine images came", || bench.control().progress().images_committed == 9);
                bench.control().stop();
            }
            "next" => bench.send(0, 2, 0, &[Start(1), Image(0), End]),
            _ => {}
        }
        let end = bench.end();
        let ledger = &end.ledger;
        let rest = if ["end", "stop"].contains(&how) { (99_991, 0) } else { (0, 99_991) };
        assert_eq!((ledger.images.expected, ledger.images.complete, ledger.images.lost), (9, 9, 0), "{how}");
        assert_eq!((ledger.images.not_taken, ledger.images.not_received), rest, "{how}: {:?}", end.ended);
        assert_eq!((ledger.images.is_complete(), ledger.imbalances()), (rest.0 > 0, vec![]), "{how}");
        assert_eq!(bench.kept(1)[0].states(), "c".repeat(9), "{how}");
    }
}

#[test]
fn two_headers_close_the_first_series_and_lose_nothing_of_the_second() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Start(4), Image(0), Image(1)]);
    bench.send(0, 2, 0, &[Start(2), Image(0), Image(1), End]);
    let first = bench.end();
    let ledger = &first.ledger;
    assert_eq!(
        (first.ended, ledger.images.complete, ledger.images.lost, ledger.images.not_received),
        (Ended::Superseded, 2, 0, 2)
    );
    assert_eq!(bench.end().ledger.images.complete, 2);
    // The same header again is a new series too.
    bench.send(0, 2, 0, &[Start(1), Start(1), Image(0), End]);
    assert_eq!((bench.ended(), bench.ended()), (Ended::Superseded, Ended::Finished));
}

#[test]
fn a_series_without_an_end_stalls_and_is_closed_with_what_came() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Start(3), Image(0), Image(1)]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.lost, end.ledger.images.not_received), (Ended::Stalled, 0, 1));
    assert!(!end.ledger.images.is_complete());
    // All announced images are there: the series has finished, although no end message came.
    bench.send(0, 2, 0, &[Start(2), Image(0), Image(1)]);
    assert_eq!(bench.ended(), Ended::Finished);
    bench.send(0, 1, 0, &[Image(2)]);
    bench.send(0, 3, 0, &[Start(1), Image(0), End]);
    assert_eq!(bench.end().ledger.total().foreign, 1);
}

#[test]
fn pixels_that_contradict_those_before_are_a_gap_and_reported_once() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Start(5), Image(0), Wide(1), Wide(2), Image(2), Image(3), Image(4), End]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.total().malformed), (Ended::Finished, 2));
    assert_eq!(bench.kept(1)[0].states().matches('c').count() as u64, end.ledger.images.complete);
    assert_eq!(&bench.kept(1)[0].states()[..2], "c-");
    let words = bench.refusals();
    let reported: Vec<_> = words.iter().filter(|why| why.contains("uint16 [3, 5]")).collect();
    assert_eq!(reported.len(), 1, "{words:?}");
    eventually("what was refused is not accepted", || {
        bench.refused[0].load(Ordering::SeqCst) >= 2 && bench.accepted[0].load(Ordering::SeqCst) == 6
    });
}

#[test]
fn the_end_may_overtake_images_on_another_upstream() {
    // With message numbers the series is whole when all messages have come.
    let patient = SeriesSpec { drain_ns: 10_000 * MS, wait_ns: 10_000 * MS, ..spec() };
    let mut bench = Bench::new(SeriesSpec { protocol: Protocol::Stins, ..patient }, 2, NUMBERED);
    bench.send(0, 0, 10, &[Start(0), Image(0)]);
    bench.send(0, 0, 14, &[End, Start(0)]);
    eventually("what follows is held", || bench.control().progress().upstreams[0].held == 2);
    bench.send(1, 0, 13, &[Image(2)]);
    bench.send(1, 0, 12, &[Image(1)]);
    assert_eq!(bench.end().ledger.images.complete, 3);
    // The next series was held back meanwhile. Its end comes over the other upstream, before its image.
    bench.send(1, 0, 17, &[End]);
    bench.send(0, 0, 16, &[Image(0)]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.complete, end.ledger.upstreams[1].control), (Ended::Finished, 1, 1));
    // Without message numbers, announced images are waited for.
    let mut bench = Bench::new(SeriesSpec { drain_ns: 10_000 * MS, wait_ns: 10_000 * MS, ..spec() }, 2, PLAIN);
    bench.send(0, 7, 0, &[Start(2), Image(0), End]);
    eventually("the end has come", || bench.control().progress().state == State::Draining);
    bench.send(1, 7, 0, &[Image(1)]);
    assert_eq!((bench.ended(), bench.kept(1)[0].states()), (Ended::Finished, "cc".into()));
}

#[test]
fn images_wait_for_a_header_that_another_upstream_brings() {
    let mut bench = Bench::new(SeriesSpec { wait_ns: 10_000 * MS, ..spec() }, 2, PLAIN);
    bench.send(1, 4, 0, &[Image(1), Image(2)]);
    eventually("they are held", || bench.control().progress().upstreams[1].held == 2);
    bench.send(0, 4, 0, &[Start(3), Image(0), End]);
    assert_eq!((bench.ended(), bench.kept(1)[0].states()), (Ended::Finished, "ccc".into()));
    bench.assert_at_rest();
    // But not for ever.
    let mut bench = Bench::new(spec(), 2, PLAIN);
    bench.send(1, 4, 0, &[Image(1), Image(2)]);
    eventually("they are given up", || {
        bench.control().progress().upstreams[1].held == 0 && bench.refused[1].load(Ordering::SeqCst) == 2
    });
    bench.send(0, 5, 0, &[Start(1), Image(0), End]);
    assert_eq!(bench.end().ledger.total().foreign, 2);
}

#[test]
fn a_start_that_comes_while_the_last_series_drains_is_held() {
    let mut bench = Bench::new(SeriesSpec { drain_ns: 10_000 * MS, wait_ns: 10_000 * MS, ..spec() }, 2, PLAIN);
    bench.send(0, 1, 0, &[Start(4), Image(0), Image(2), End]);
    bench.send(0, 2, 0, &[Start(2), Image(0)]);
    bench.send(1, 2, 0, &[]);
    eventually("it is held", || bench.control().progress().upstreams[0].held == 2);
    bench.send(1, 1, 0, &[Image(1), Image(3)]);
    bench.send(1, 2, 0, &[Image(1), End]);
    assert_eq!((bench.end().ledger.images.complete, bench.end().ledger.images.complete), (4, 2));
    assert_eq!(bench.kept(2).len(), 2);
}

#[test]
fn nothing_is_taken_unless_it_is_armed_and_orders_hold() {
    let mut bench = Bench::new(SeriesSpec { accept: Accept::WhenArmed, ..spec() }, 1, PLAIN);
    bench.send(0, 1, 0, &[Start(2), Image(0), Image(1), End]);
    eventually("they are refused", || bench.refused[0].load(Ordering::SeqCst) == 4);
    let order = ArmOrder { images: Some(2), filename: Some("mine".into()), discard: true };
    bench.control().arm(order);
    eventually("it is armed", || bench.control().progress().state == State::Armed);
    bench.send(0, 2, 0, &[Start(9), Image(0), Image(1), Image(2), End]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.expected, end.ledger.total().foreign), (Ended::Finished, 2, 5));
    let kept = bench.kept(1);
    let start = kept[0].start.as_ref().unwrap();
    assert_eq!((start.images_planned, start.filename.as_deref(), start.store), (Some(2), Some("mine"), false));
    bench.send(0, 3, 0, &[Start(1), Image(0), End]);
    eventually("it is disarmed", || bench.refused[0].load(Ordering::SeqCst) == 4 + 1 + 3);
    assert_eq!(bench.control().progress().state, State::Idle);
}

#[test]
fn what_is_configured_counts_where_nobody_has_armed() {
    let mut bench = Bench::new(SeriesSpec { images: Some(2), ..spec() }, 1, PLAIN);
    // A sender that announces more, and one that announces nothing.
    for (series, announced) in [(1, 9), (2, 0)] {
        bench.send(0, series, 0, &[Start(announced), Image(0), Image(1), Image(2)]);
        let end = bench.end();
        assert_eq!((end.ended, end.ledger.images.expected, end.ledger.total().foreign), (Ended::Finished, 2, 1));
    }
    bench.control().arm(ArmOrder { images: Some(3), ..ArmOrder::default() });
    eventually("it is armed", || bench.control().progress().state == State::Armed);
    bench.send(0, 3, 0, &[Start(9), Image(0), Image(1), Image(2), End]);
    assert_eq!(bench.end().ledger.images.expected, 3);
}

#[test]
fn a_silent_source_ends_in_a_closed_series_that_says_so() {
    let mut bench = Bench::new(SeriesSpec { accept: Accept::WhenArmed, start_timeout_ns: 30 * MS, ..spec() }, 1, PLAIN);
    bench.control().arm(ArmOrder { images: Some(3), ..ArmOrder::default() });
    bench.control().start_clock();
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.lost, end.ledger.images.not_received), (Ended::NoData, 0, 3));
    assert_eq!(bench.kept(1)[0].states(), "");
}

#[test]
fn cancel_and_stop_work_in_every_state_and_twice() {
    let mut bench = Bench::new(SeriesSpec { accept: Accept::WhenArmed, ..spec() }, 1, PLAIN);
    let control = bench.control();
    // Idle.
    control.cancel();
    control.stop();
    control.cancel();
    // Armed.
    control.arm(ArmOrder::default());
    control.cancel();
    control.cancel();
    assert_eq!(bench.ended(), Ended::Cancelled);
    control.arm(ArmOrder::default());
    control.stop();
    assert_eq!(bench.ended(), Ended::Stopped);
    // Receiving: images that wait behind a gap are thrown away.
    control.arm(ArmOrder::default());
    eventually("it is armed", || control.progress().state == State::Armed);
    bench.send(0, 1, 0, &[Start(0), Image(0), Image(2)]);
    eventually("two images came", || control.progress().ledger.total().placed == 2);
    control.cancel();
    control.cancel();
    let end = bench.end();
    let ledger = &end.ledger;
    assert_eq!(
        (end.ended, ledger.images.expected, ledger.images.complete, ledger.images.discarded, ledger.images.lost),
        (Ended::Cancelled, 3, 1, 1, 1)
    );
    assert_eq!(bench.kept(1)[0].states(), "c");
    // Draining.
    control.arm(ArmOrder::default());
    eventually("it is armed", || control.progress().state == State::Armed);
    bench.send(0, 1, 0, &[Image(3)]);
    bench.send(0, 2, 0, &[Start(0), Image(0), Image(1), Image(3)]);
    eventually("three images came", || control.progress().ledger.total().placed == 3);
    control.stop();
    control.stop();
    eventually("it drains", || control.progress().state == State::Draining);
    bench.send(0, 2, 0, &[Image(4)]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.expected, end.ledger.total().foreign), (Ended::Stopped, 5, 1));
    assert_eq!(bench.kept(2)[1].states(), "cc-cc");
    control.cancel();
    bench.assert_at_rest();
    assert_eq!(bench.control().progress().state, State::Idle);
}

#[test]
fn sources_that_fail_or_come_to_their_end_end_the_series() {
    let mut bench = Bench::new(spec(), 1, PLAIN);
    bench.send(0, 1, 0, &[Start(3), Image(0)]);
    bench.cut(0);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.lost, end.ledger.images.not_received), (Ended::Failed, 0, 2));
    assert!(end.reason.contains("the cable was cut"));
    bench.control().arm(ArmOrder::default());
    assert_eq!(bench.ended(), Ended::Failed);
    let mut bench = Bench::new(spec(), 2, PLAIN);
    bench.send(0, 1, 0, &[Start(2), Image(0)]);
    bench.send(1, 1, 0, &[Image(1)]);
    bench.senders.clear();
    assert_eq!(bench.ended(), Ended::Finished);
}

#[test]
fn the_first_image_begins_a_series_where_the_protocol_has_no_start() {
    let is_such = |protocol: &Protocol| !protocol.has_start() && protocol.has_end();
    let protocol = Protocol::ALL.iter().copied().find(is_such).expect("there is one");
    let mut bench = Bench::new(SeriesSpec { protocol, ..spec() }, 2, PLAIN);
    for series in 0..3 {
        // The number of the series stays the same: an end on each upstream tells them apart.
        bench.send(0, 9, 0, &[Image(0), Image(2), End]);
        bench.send(1, 9, 0, &[Image(1), Image(3), End]);
        let end = bench.end();
        assert_eq!((end.ended, end.ledger.images.complete), (Ended::Finished, 4), "series {series}");
    }
    // Files: no end message either; the series ends with the images that were armed.
    let mut bench = Bench::new(SeriesSpec { protocol: Protocol::Files, accept: Accept::WhenArmed, ..spec() }, 1, PLAIN);
    for _ in 0..2 {
        bench.control().arm(ArmOrder { images: Some(2), ..ArmOrder::default() });
        eventually("it is armed", || bench.control().progress().state == State::Armed);
        bench.send(0, 0, 0, &[Image(0), Image(1)]);
        assert_eq!(bench.end().ledger.images.complete, 2);
    }
    assert_eq!(bench.kept(2)[1].start.as_ref().unwrap().series, 2);
    // Or with the next series.
    let mut bench = Bench::new(SeriesSpec { protocol: Protocol::Files, ..spec() }, 1, PLAIN);
    bench.send(0, 1, 0, &[Image(0), Image(1)]);
    bench.send(0, 2, 0, &[Image(0)]);
    assert_eq!((bench.ended(), bench.kept(1)[0].states()), (Ended::Finished, "cc".into()));
}

#[test]
fn a_thousand_short_series_leave_nothing_behind() {
    let mut bench = Bench::new(SeriesSpec { protocol: Protocol::Stins, wait_ns: 5_000 * MS, ..spec() }, 2, NUMBERED);
    let threads = bench.series.threads();
    for series in 0..1000u64 {
        let number = series * 5;
        bench.send(0, 0, number, &[Start(0), Image(0)]);
        bench.send(1, 0, number + 2, &[Image(1), Image(2)]);
        bench.send(0, 0, number + 4, &[End]);
    }
    for series in 0..1000 {
        let end = bench.end();
        assert_eq!((end.ended, end.ledger.images.complete, end.ledger.images.lost), (Ended::Finished, 3, 0), "series {series}");
    }
    bench.assert_at_rest();
    let progress = bench.control().progress();
    assert_eq!((progress.series_started, progress.series_ended, progress.images_waiting), (1000, 1000, 0));
    assert_eq!((progress.notices_lost, bench.series.threads()), (0, threads));
    assert_eq!(bench.kept(1000).len(), 1000);
}

/// Without the check, images that are passed on unchanged are not looked into; their reader finds the error.
#[test]
fn an_image_that_cannot_be_unpacked_is_complete_unless_somebody_looks() {
    for check_pixels in [false, true] {
        let mut bench = Bench::new(SeriesSpec { check_pixels, ..spec() }, 1, PLAIN);
        bench.send(0, 1, 0, &[Start(3), Image(0), Broken(1), Image(2), End]);
        let end = bench.end();
        let (lost, refused) = if check_pixels { (1, 1) } else { (0, 0) };
        assert_eq!((end.ended, end.ledger.images.complete, end.ledger.images.lost), (Ended::Finished, 3 - lost, lost));
        assert_eq!(end.ledger.total().malformed, refused);
        let kept = bench.kept(1);
        assert_eq!(kept[0].states(), if check_pixels { "c-c" } else { "ccc" });
        // What can be unpacked is passed on as it came.
        let Form { rows, columns, .. } = PLAIN;
        let first: Vec<u8> = (0..(rows * columns) as usize).flat_map(|i| pixel(1, 0, 0, i).to_le_bytes()).collect();
        assert_eq!(kept[0].images[0].channels[0].array.pieces[0], first);
        bench.assert_at_rest();
    }
}
