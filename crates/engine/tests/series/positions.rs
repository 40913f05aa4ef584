//! Positions of images that are counted by their messages, and what becomes of a series of which images were thrown
//! away.

use super::harness::*;
use konkordia_core::series::{Ended, SeriesLedger};
use konkordia_engine::series::{Join, Positions, Protocol, SeriesSpec};
use std::sync::Arc;

fn spec() -> SeriesSpec {
    SeriesSpec { positions: Positions::Messages, ..quick(Protocol::Stins) }
}

use TinyMessage::*;

/// The result of one series: (states, the sender's numbers, ledger).
fn series(form: Form, planned: u64, images: &[u64]) -> (String, Vec<u64>, SeriesLedger) {
    let mut bench = Bench::new(spec(), 1, form);
    let messages: Vec<_> = std::iter::once(Start(planned)).chain(images.iter().map(|image| Image(*image))).chain([End]).collect();
    bench.send(0, 1, 40, &messages);
    let end = bench.end();
    assert_eq!(end.ended, Ended::Finished);
    let kept = bench.kept(1).remove(0);
    bench.assert_at_rest();
    let frames = kept.images.iter().filter(|image| image.status.has_pixels()).map(|image| image.frame).collect();
    (kept.states(), frames, end.ledger.clone())
}

#[test]
fn what_a_sender_calls_its_images_is_a_label() {
    for images in [
        &[1, 2, 3, 4][..],
        &[5000, 5001, 5002, 5003],
        &[0, 10, 20, 30],
        &[0, 1, 0, 1],
        &[7, 7, 7, 7],
        &[3, 2, 1, 0],
        &[1 << 40, 5, 1 << 45, 0],
    ] {
        for form in [NUMBERED, PLAIN] {
            // Without message numbers only the announced number distinguishes steps from losses.
            let (states, frames, ledger) = series(form, if form.has_numbers { 0 } else { 4 }, images);
            assert_eq!((states.as_str(), &frames[..]), ("cccc", images), "{form:?}");
            assert_eq!(
                (ledger.images.is_success(), ledger.images.lost, ledger.images.not_kept),
                (true, 0, 0),
                "{form:?} {images:?}"
            );
        }
    }
}

#[test]
fn messages_that_are_lost_are_gaps_whatever_the_images_are_called() {
    let mut bench = Bench::new(spec(), 1, NUMBERED);
    bench.send(0, 1, 10, &[Start(0), Image(5), Image(5)]);
    // Two messages are lost, and two come in another order.
    bench.send(0, 1, 16, &[Image(9)]);
    bench.send(0, 1, 15, &[Image(6)]);
    bench.send(0, 1, 19, &[End]);
    let end = bench.end();
    let kept = &bench.kept(1)[0];
    assert_eq!((kept.states().as_str(), end.ledger.images.lost, end.ledger.images.is_success()), ("cc--cc--", 4, false));
    let frames: Vec<u64> = kept.images.iter().filter(|i| i.status.has_pixels()).map(|i| i.frame).collect();
    assert_eq!(frames, [5, 5, 6, 9]);
}

#[test]
fn without_numbers_what_was_announced_tells_what_was_lost() {
    // Of ten announced images seven came: two labels were left out, so two of the three missing images count as lost.
    let (states, _, ledger) = series(PLAIN, 10, &[0, 1, 2, 5, 6, 7, 8]);
    assert_eq!(
        (states.as_str(), ledger.images.lost, ledger.images.not_taken, ledger.images.is_success()),
        ("ccccccc--", 2, 1, false)
    );
    let (_, _, ledger) = series(PLAIN, 8, &[0, 100, 200, 300, 400, 500, 600]);
    assert_eq!((ledger.images.complete, ledger.images.lost), (7, 1));
    // The sender brings more images than it announced: all of them are kept.
    let (states, _, ledger) = series(PLAIN, 2, &[0, 1, 2]);
    assert_eq!((states.as_str(), ledger.images.is_success()), ("ccc", true));
    // Nothing was announced: only the labels show losses.
    let (_, _, ledger) = series(PLAIN, 0, &[0, 1, 4]);
    assert_eq!((ledger.images.complete, ledger.images.lost), (3, 2));
}

#[test]
fn each_upstream_of_pieces_counts_its_own_messages() {
    let modular = SeriesSpec { join: Join::Pieces, workers: 1, ..spec() };
    let mut bench = Bench::new(modular, 2, NUMBERED);
    for (upstream, number) in [(0, 10), (1, 500)] {
        bench.send(upstream, 0, number, &[Start(0), Image(3), Image(3), Image(3), End]);
    }
    let end = bench.end();
    assert_eq!((bench.kept(1)[0].states().as_str(), end.ledger.images.is_success()), ("ccc", true));
}

#[test]
fn a_message_that_comes_twice_or_late_is_no_success() {
    let frames = SeriesSpec { positions: Positions::Frames, ..spec() };
    // (messages, images that are not kept)
    for (spec, messages, not_kept) in [
        (frames, &[Start(0), Image(0), Image(1), Image(1), End][..], 1),
        (SeriesSpec { protocol: Protocol::DectrisV2, ..spec() }, &[Start(2), Image(0), Junk, Image(1), End], 1),
        (SeriesSpec { images: Some(2), ..spec() }, &[Start(5), Image(0), Image(1), Image(2), End], 0),
    ] {
        let mut bench = Bench::new(spec, 1, PLAIN);
        bench.send(0, 1, 0, messages);
        let end = bench.end();
        assert_eq!(
            (end.ledger.images.not_kept, end.ledger.images.complete, end.ledger.images.is_complete()),
            (not_kept, 2, true),
            "{messages:?}"
        );
        assert_eq!(end.ledger.images.is_success(), not_kept == 0, "{messages:?}");
        assert_eq!(bench.refusals().is_empty(), not_kept == 0 && !messages.contains(&Image(2)), "{messages:?}");
    }
    let mut bench = Bench::new(spec(), 1, NUMBERED);
    bench.send(0, 1, 10, &[Start(0), Image(0), Image(1)]);
    // The same message again, and one with the number of the header.
    bench.send(0, 1, 12, &[Image(1)]);
    bench.send(0, 1, 10, &[Image(9)]);
    bench.send(0, 1, 13, &[End]);
    let end: Arc<_> = bench.end();
    assert_eq!((end.ledger.images.complete, end.ledger.images.not_kept, end.ledger.images.is_success()), (2, 2, false));
    // Each reason is reported once.
    assert_eq!(bench.refusals().len(), 2);
}
