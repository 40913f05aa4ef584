//! Consecutive images become one: sums against naive code, with images that are lost, tails, pieces, and every policy.

use crate::harness::*;
use konkordia_core::array::{Element, Packing};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::Pixel;
use konkordia_core::plan::Compression;
use konkordia_core::series::{Ended, SeriesLedger};
use konkordia_core::state::State;
use konkordia_engine::series::{Accept, ArmOrder, Join, Protocol, SeriesSpec};
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{UnpackScratch, unpack};
use konkordia_sim::rng::Rng;
use std::collections::BTreeSet;

use TinyMessage::*;

const FORM: Form = Form { rows: 3, columns: 5, has_numbers: false };

fn spec(sum_frames: u32) -> SeriesSpec {
    SeriesSpec {
        sum_frames,
        window_images: 64,
        wait_ns: 100 * MS,
        drain_ns: 300 * MS,
        workers: 3,
        budget_bytes: 1 << 20,
        ..SeriesSpec::new(Protocol::DectrisV2)
    }
}

fn pixels(kept: &Kept, number: usize) -> Vec<u32> {
    let array = &kept.images[number].channels[0].array;
    let mut bytes = vec![0; array.unpacked_bytes() as usize];
    let piece_bytes = bytes.len() / array.pieces.len();
    for (piece, out) in array.pieces.iter().zip(bytes.chunks_mut(piece_bytes)) {
        unpack::array(array.packing, array.element, piece, out, &mut UnpackScratch::new(Isa::Scalar)).unwrap();
    }
    bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

/// The sum of frames of one upstream, pixel by pixel.
fn naive(series: u64, frames: impl Iterator<Item = u64> + Clone, upstream: usize) -> Vec<u32> {
    let one = |index| frames.clone().map(|frame| u32::from(pixel(series, frame, upstream, index))).sum();
    (0..(FORM.rows * FORM.columns) as usize).map(one).collect()
}

fn frames(ledger: &SeriesLedger) -> (u64, u64) {
    (ledger.frames, ledger.frames_unfinished)
}

fn seeded(seed: u64) {
    let mut rng = Rng::new(seed);
    let (k, images) = (2 + rng.below(6), 20 + rng.below(30));
    let missing = [MissingPolicy::Keep, MissingPolicy::Discard, MissingPolicy::CompleteOnly][rng.below(3) as usize];
    let compression = [None, Some(Compression::BSLZ4), Some(Compression::BSZSTD), Some(Compression::None)][rng.below(4) as usize];
    let mut bench = Bench::new(SeriesSpec { missing, compression, ..spec(k as u32) }, 1, FORM);
    for series in 1..3 {
        let planned = if rng.chance(0.5) { images } else { 0 };
        let mut sent: BTreeSet<u64> = (0..images).filter(|_| !rng.chance(0.08)).collect();
        // A whole sum is lost now and then; the last image is there, so that the end is known where it was not
        // announced.
        let gap = rng.below(images / k) * k;
        sent.retain(|n| !(gap..gap + k).contains(n));
        sent.insert(images - 1);
        let messages: Vec<TinyMessage> =
            [Start(planned)].into_iter().chain(sent.iter().map(|n| Image(*n))).chain([End]).collect();
        bench.send(0, series, 0, &messages);
        let end = bench.end();
        assert_eq!((end.ended, frames(&end.ledger)), (Ended::Finished, (images, images % k)), "seed {seed}");
        let kept = bench.kept(series as usize).pop().unwrap();
        let announced = (planned > 0).then_some(images / k);
        assert_eq!((kept.images.len() as u64, kept.start.as_ref().unwrap().images_planned), (images / k, announced));
        for (m, image) in kept.images.iter().enumerate() {
            let of = m as u64 * k..(m as u64 + 1) * k;
            let status = match of.clone().filter(|n| sent.contains(n)).count() as u64 {
                n if n == k => ImageStatus::Complete,
                0 => ImageStatus::Lost,
                _ if missing == MissingPolicy::Keep => ImageStatus::Partial,
                _ => ImageStatus::Discarded,
            };
            assert_eq!(image.status, status, "seed {seed} sum {m}");
            if !status.has_pixels() {
                continue;
            }
            let array = &image.channels[0].array;
            assert_eq!(
                (array.element, array.packing),
                (Element::Uint32, compression.map_or(Packing::None, Compression::packing))
            );
            let expected = match status {
                ImageStatus::Complete => naive(series, of, 0),
                _ => vec![u32::MISSING; 15],
            };
            assert_eq!(pixels(&kept, m), expected, "seed {seed} sum {m}");
        }
    }
    bench.assert_at_rest();
}

#[test]
fn sums_are_those_of_naive_code_whatever_is_lost() {
    std::thread::scope(|scope| (0..12).for_each(|seed| drop(scope.spawn(move || seeded(seed)))));
}

#[test]
fn a_sum_of_one_is_the_image() {
    let mut bench = Bench::new(spec(1), 1, FORM);
    bench.send(0, 1, 0, &[Start(3), Image(0), Image(1), Image(2), End]);
    let end = bench.end();
    assert_eq!((end.ledger.images.complete, frames(&end.ledger), end.ledger.rows().len()), (3, (0, 0), 11));
    let kept = bench.kept(1).pop().unwrap();
    assert!(kept.images.iter().all(|image| image.channels[0].array.element == Element::Uint16));
}

#[test]
fn who_arms_counts_sums_and_progress_and_ring_too() {
    let mut bench = Bench::new(SeriesSpec { accept: Accept::WhenArmed, ..spec(3) }, 1, FORM);
    bench.control().arm(ArmOrder { images: Some(2), ..ArmOrder::default() });
    eventually("it is armed", || bench.control().progress().state == State::Armed);
    bench.send(0, 1, 0, &[Start(100), Image(0), Image(1), Image(2), Image(3)]);
    eventually("a sum is there", || bench.control().progress().images_committed == 1);
    eventually("a frame waits", || bench.control().progress().ledger.frames_unfinished == 1);
    assert_eq!(bench.control().progress().images_planned, Some(2));
    assert_eq!(bench.newest().unwrap(), 0);
    // One image more than was armed.
    bench.send(0, 1, 0, &[Image(4), Image(5), Image(6), End]);
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.complete, frames(&end.ledger)), (Ended::Finished, 2, (6, 0)));
    assert_eq!(bench.newest().unwrap(), 1);
}

#[test]
fn stop_cancel_and_far_ends_balance() {
    let mut bench = Bench::new(SeriesSpec { wait_ns: 20_000 * MS, ..spec(4) }, 1, FORM);
    bench.send(0, 1, 0, &[Start(0), Image(0), Image(1), Image(2), Image(3), Image(4), Image(5)]);
    eventually("they are there", || bench.control().progress().ledger.frames == 6);
    bench.control().stop();
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.complete, frames(&end.ledger)), (Ended::Stopped, 1, (6, 2)));
    // A gap holds the images behind it back; they are thrown away together with the sum that was begun.
    bench.send(0, 2, 0, &[Start(0), Image(0), Image(1), Image(4), Image(5), Image(9)]);
    eventually("they are there", || bench.control().progress().ledger.total().placed == 5);
    bench.control().cancel();
    let end = bench.end();
    let ledger = &end.ledger;
    assert_eq!((end.ended, ledger.images.expected, ledger.images.complete), (Ended::Cancelled, 2, 0));
    assert_eq!((ledger.images.discarded, frames(ledger)), (2, (10, 2)));
    assert_eq!(bench.kept(2).pop().unwrap().states(), "");
    // Announced images that did not come complete no sum.
    bench.send(0, 3, 0, &[Start(1 << 30 | 3), Image(0), Image(1), Image(2), Image(3), Image(4), End]);
    let end = bench.end();
    let ledger = &end.ledger;
    assert_eq!(
        (ledger.images.expected, ledger.images.complete, ledger.images.not_taken, frames(ledger)),
        (1, 1, (1 << 28) - 1, (5, 1))
    );
    eventually("the sink sees the end", || bench.sink.series_ended() == 3);
    let kept = bench.collector.kept.lock().unwrap().last().unwrap().states();
    assert_eq!(kept, "c");
    bench.assert_at_rest();
}

#[test]
fn pieces_stay_pieces_and_a_missing_one_is_missing_in_the_sum() {
    let spec = SeriesSpec {
        join: Join::Pieces,
        window_images: 16,
        compression: Some(Compression::BSLZ4),
        ..SeriesSpec { protocol: Protocol::Stins, ..spec(3) }
    };
    let mut bench = Bench::new(spec, 2, Form { has_numbers: true, ..FORM });
    for upstream in 0..2 {
        bench.send(upstream, 0, 10, &[Start(0)]);
        // A lost message has a number of its own, too.
        for image in (0..8).filter(|image| !(*image == 4 && upstream == 1)) {
            bench.send(upstream, 0, 11 + image, &[Image(image)]);
        }
        bench.send(upstream, 0, 19, &[End]);
    }
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.parts_missing, frames(&end.ledger)), (Ended::Finished, 1, (8, 2)));
    let kept = bench.kept(1).pop().unwrap();
    assert_eq!((kept.states(), kept.images[1].missing_parts), ("cp".into(), 2));
    for (m, image) in kept.images.iter().enumerate() {
        let (array, of) = (&image.channels[0].array, m as u64 * 3..m as u64 * 3 + 3);
        assert_eq!((array.shape.dimensions(), array.pieces.len()), (&[2, FORM.rows, FORM.columns][..], 2));
        let second = if m == 1 { vec![u32::MISSING; 15] } else { naive(0, of.clone(), 1) };
        assert_eq!(pixels(&kept, m), [naive(0, of, 0), second].concat(), "sum {m}");
    }
    bench.assert_at_rest();
}

#[test]
fn what_cannot_be_read_is_lost_to_its_sum() {
    let mut bench = Bench::new(spec(2), 1, FORM);
    bench.send(0, 1, 0, &[Start(6), Image(0), Image(1), Image(2), Broken(3), Broken(4), Broken(5), End]);
    let end = bench.end();
    assert_eq!(
        (end.ledger.images.complete, end.ledger.images.partial, end.ledger.images.lost, end.ledger.total().malformed),
        (1, 1, 1, 3)
    );
    assert_eq!(bench.kept(1).pop().unwrap().states(), "cp-");
}
