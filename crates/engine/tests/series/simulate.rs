//! Seeded runs with everything that can go wrong: loss, duplicates, reordering, upstreams of different speed, slow and
//! stalled consumers. With each seed every position comes once and in order, pixels are as they were sent, and the
//! ledger balances.

use super::harness::*;
use konkordia_core::geometry::{Orientation, Placement, Quarter};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::Pixel;
use konkordia_core::ports::ServiceLevel;
use konkordia_core::series::Ended;
use konkordia_engine::output_queue::{Item, OutputQueueReader, OutputQueueSpec};
use konkordia_engine::series::{Join, Protocol, SeriesSpec};
use konkordia_sim::rng::Rng;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use TinyMessage::*;

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.next_u64() % end
}

/// Runs all seeds in parallel: they wait more than they work.
fn at_once(seeds: Range<u64>, run: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        seeds.for_each(|seed| {
            drop(scope.spawn({
                let run = &run;
                move || run(seed)
            }))
        })
    });
}

/// Swaps neighbours at random; nothing moves far.
fn jumble<T>(rng: &mut Rng, items: &mut [T], distance: u64) {
    for n in 0..items.len() {
        let other = (n as u64 + below(rng, distance)).min(items.len() as u64 - 1);
        items.swap(n, other as usize);
    }
}

fn balanced(seed: u64, protocol: Protocol) {
    let mut rng = Rng::new(seed);
    let (upstreams, images) = (1 + below(&mut rng, 4) as usize, 20 + below(&mut rng, 60));
    let form = Form { rows: 3, columns: 5, has_numbers: protocol == Protocol::Stins };
    let spec = SeriesSpec {
        window_images: 64,
        // Long enough for threads that share a processor with many others.
        wait_ns: 500 * MS,
        drain_ns: 600 * MS,
        stall_timeout_ns: 10_000 * MS,
        budget_bytes: 1 << 20,
        ..SeriesSpec::new(protocol)
    };
    let pause = Duration::from_micros(below(&mut rng, 200));
    let mut bench = Bench::with(spec, upstreams, form, Collector { pause, ..Collector::default() });
    for series in 1..4u64 {
        let base = series * 1000;
        let mut sent = BTreeSet::new();
        let mut messages: Vec<(u64, TinyMessage)> = Vec::new();
        for image in 0..images {
            if below(&mut rng, 12) > 0 {
                messages.push((image + 1, Image(image)));
                sent.insert(image);
                if below(&mut rng, 10) == 0 {
                    messages.push((image + 1, Image(image)));
                }
            }
        }
        jumble(&mut rng, &mut messages, 8);
        bench.send(0, series, base, &[Start(images)]);
        for (number, tiny) in messages {
            bench.send_alike(below(&mut rng, upstreams as u64) as usize, series, base + number, tiny);
        }
        // The end comes on any upstream, perhaps long before the other messages have been read.
        bench.send(below(&mut rng, upstreams as u64) as usize, series, base + images + 1, &[End]);
        let end = bench.end();
        assert_eq!(end.ended, Ended::Finished, "seed {seed}");
        let kept = bench.kept(series as usize).pop().unwrap();
        for image in &kept.images {
            let is_sent = sent.contains(&image.number);
            assert_eq!(image.status == ImageStatus::Complete, is_sent, "seed {seed}: image {} of {series}", image.number);
            for channel in &image.channels {
                let expected = (0..15).flat_map(|i| pixel(series, image.number, 0, i).to_le_bytes());
                assert!(channel.array.pieces[0].iter().copied().eq(expected.collect::<Vec<u8>>()), "seed {seed}");
            }
        }
        // After the last image that came none was lost: its sender ended the series.
        let positions = kept.images.len() as u64 + end.ledger.images.not_taken;
        assert_eq!((positions, end.ledger.images.complete), (images, sent.len() as u64), "seed {seed}");
    }
    bench.assert_at_rest();
}

impl Bench {
    /// As [`Self::send`] for streams that share a message: pixels are those of upstream 0.
    fn send_alike(&self, upstream: usize, series: u64, number: u64, tiny: TinyMessage) {
        self.senders[upstream].send(message(self.form, 0, series, number, tiny)).unwrap();
    }
}

#[test]
fn balanced_upstreams_give_every_image_once_and_in_order() {
    at_once(0..12, |seed| balanced(seed, Protocol::DectrisV2));
}

#[test]
fn numbered_messages_give_every_image_once_and_in_order() {
    at_once(100..112, |seed| balanced(seed, Protocol::Stins));
}

const PLACES: [(u32, u32, u32); 3] = [(0, 1, 0), (4, 2, 90), (0, 6, 180)];
const SIZE: (u32, u32) = (9, 11);

fn modular(missing: MissingPolicy) -> SeriesSpec {
    let place = |(row, column, degrees): (u32, u32, u32)| Placement {
        row,
        column,
        orientation: Orientation { flip_rows: degrees == 180, rotate: Quarter::from_deg(degrees).unwrap() },
    };
    SeriesSpec {
        join: Join::PerModule { placements: PLACES.map(place).to_vec(), rows: SIZE.0, columns: SIZE.1 },
        window_images: 32,
        wait_ns: 500 * MS,
        drain_ns: 600 * MS,
        workers: 2,
        missing,
        ..SeriesSpec::new(Protocol::DectrisV2)
    }
}

/// The image by the definition of a placement, pixel by pixel: rows are flipped, then everything is turned clockwise.
fn reference(series: u64, number: u64, here: &BTreeSet<usize>, form: Form) -> Vec<u16> {
    let mut image = vec![u16::MASKED; (SIZE.0 * SIZE.1) as usize];
    let (rows, columns) = (form.rows as usize, form.columns as usize);
    for (n, (row0, column0, degrees)) in PLACES.into_iter().enumerate() {
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let value = if here.contains(&n) { pixel(series, number, n, row * columns + column) } else { u16::MISSING };
            let flipped = if degrees == 180 { rows - 1 - row } else { row };
            let (r, c) = match degrees {
                90 => (column, rows - 1 - flipped),
                180 => (rows - 1 - flipped, columns - 1 - column),
                _ => (flipped, column),
            };
            image[(row0 as usize + r) * SIZE.1 as usize + column0 as usize + c] = value;
        }
    }
    image
}

fn recombined(seed: u64, missing: MissingPolicy) {
    let mut rng = Rng::new(seed);
    let form = Form { rows: 3, columns: 4, has_numbers: seed.is_multiple_of(2) };
    let spec = modular(missing);
    let protocol = if form.has_numbers { Protocol::Stins } else { spec.protocol };
    let mut bench = Bench::new(SeriesSpec { protocol, ..spec }, 3, form);
    let images = 30;
    for series in 1..3u64 {
        let key = if form.has_numbers { 0 } else { series };
        let mut here = vec![BTreeSet::new(); images as usize];
        let mut scripts: Vec<Vec<TinyMessage>> = Vec::new();
        let mut broken = 0;
        for upstream in 0..3 {
            let mut messages = Vec::new();
            for image in 0..images {
                match below(&mut rng, 20) {
                    0 => {}
                    // Discarded images are not unpacked, so their errors are not found.
                    1 if missing == MissingPolicy::Keep => {
                        messages.push(Broken(image));
                        broken += 1;
                    }
                    _ => {
                        messages.push(Image(image));
                        here[image as usize].insert(upstream);
                    }
                }
            }
            jumble(&mut rng, &mut messages, 4);
            messages.insert(0, Start(images));
            messages.push(End);
            scripts.push(messages);
        }
        // One upstream after the other, or alternating.
        for (upstream, messages) in scripts.iter().enumerate() {
            bench.send(upstream, key, series * 100 * (1 + upstream as u64), messages);
        }
        let end = bench.end();
        assert_eq!((end.ended, end.ledger.total().malformed), (Ended::Finished, broken), "seed {seed}");
        let kept = bench.kept(series as usize).pop().unwrap();
        assert_eq!(kept.images.len() as u64, images);
        for (image, here) in kept.images.iter().zip(&here) {
            let status = ImageStatus::of(here.len() as u32, 3, missing);
            assert_eq!(image.status, status, "seed {seed}: image {}", image.number);
            assert_eq!(u64::from(image.missing_parts.count_ones()), 3 - here.len() as u64);
            for channel in &image.channels {
                let pixels = channel.array.pieces[0].chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
                let pixels: Vec<u16> = pixels.collect();
                assert_eq!(pixels, reference(key, image.number, here, form), "seed {seed}: image {}", image.number);
            }
        }
    }
    bench.assert_at_rest();
}

#[test]
fn parts_of_modules_become_images_and_missing_parts_are_missing() {
    at_once(0..8, |seed| recombined(seed, if seed < 6 { MissingPolicy::Keep } else { MissingPolicy::Discard }));
}

#[test]
fn a_module_that_is_far_behind_is_waited_for() {
    // The window is smaller than the distance: upstreams that are ahead are held back, and nothing is lost.
    let spec = SeriesSpec { window_images: 4, wait_ns: 10_000 * MS, drain_ns: 10_000 * MS, ..modular(MissingPolicy::Keep) };
    let mut bench = Bench::new(spec, 3, Form { rows: 3, columns: 4, has_numbers: false });
    let messages: Vec<TinyMessage> = std::iter::once(Start(0)).chain((0..100).map(Image)).chain([End]).collect();
    bench.send(0, 1, 0, &messages);
    bench.send(1, 1, 0, &messages);
    eventually("the window is full", || bench.control().progress().images_waiting == 4);
    bench.send(2, 1, 0, &messages);
    assert_eq!(bench.end().ledger.images.complete, 100);
}

#[test]
fn a_stalled_consumer_costs_the_others_nothing_and_is_counted() {
    let mut bench = Bench::new(SeriesSpec::new(Protocol::DectrisV2), 1, Form::default());
    let spec = |name: &str, service, queue_images| OutputQueueSpec {
        name: name.into(),
        service,
        queue_images,
        queue_bytes: 1 << 20,
        borrows: false,
    };
    let stalled = bench.output_queues.add(spec("stalled", ServiceLevel::ReliableSkip, 10));
    let mut newest = bench.output_queues.add(spec("newest", ServiceLevel::Latest, 1));
    let messages: Vec<TinyMessage> = std::iter::once(Start(500)).chain((0..500).map(Image)).chain([End]).collect();
    bench.send(0, 1, 0, &messages);
    assert!(bench.end().ledger.images.is_complete());
    assert_eq!(bench.kept(1)[0].images.len(), 500);
    assert_eq!((stalled.stats().skipped.load(Ordering::Relaxed), stalled.stats().lag_images.load(Ordering::Relaxed)), (490, 500));
    let mut items = Vec::new();
    newest.take(Duration::ZERO, &mut items);
    newest.take(Duration::ZERO, &mut items);
    let [Item::Start(_), Item::Image(image), Item::End(_)] = &items[..] else { panic!("{items:?}") };
    assert_eq!(image.number, 499);
    bench.assert_at_rest();
}

/// A reliable consumer that takes nothing.
fn stuck_consumer(bench: &Bench) -> OutputQueueReader {
    bench.output_queues.add(OutputQueueSpec {
        name: "stuck".into(),
        service: ServiceLevel::Reliable,
        queue_images: 5,
        queue_bytes: 1 << 20,
        borrows: false,
    })
}

#[test]
fn a_stuck_sink_holds_the_source_back_and_a_cancel_frees_everything() {
    let spec = SeriesSpec { budget_bytes: 40_000, ..SeriesSpec::new(Protocol::DectrisV2) };
    let mut bench = Bench::new(spec, 1, Form { rows: 10, columns: 50, has_numbers: false });
    let stuck = stuck_consumer(&bench);
    let messages: Vec<TinyMessage> = std::iter::once(Start(400)).chain((0..400).map(Image)).collect();
    bench.send(0, 1, 0, &messages);
    // The in-flight budget of the upstream need not be used up: small batches fill the queue of the sort thread first.
    eventually("everybody waits for the sink", || stuck.stats().waited_ns.load(Ordering::Relaxed) > 200 * MS);
    let received = bench.control().progress().upstreams[0].received;
    assert!(received < 100, "{received} messages were received");
    bench.control().cancel();
    assert_eq!(bench.ended(), Ended::Cancelled);
    // Messages still in the source belong to no series.
    eventually("everything was received", || bench.control().progress().upstreams[0].received == 401);
    bench.assert_at_rest();
    drop(stuck);
    bench.send(0, 2, 0, &[Start(1), Image(0), End]);
    assert!(bench.end().ledger.images.is_complete());
}

#[test]
fn a_shutdown_right_behind_a_cancel_ends_all_threads() {
    let bench = Bench::new(SeriesSpec::new(Protocol::DectrisV2), 1, Form::default());
    let _stuck = stuck_consumer(&bench);
    let messages: Vec<TinyMessage> = std::iter::once(Start(400)).chain((0..400).map(Image)).collect();
    bench.send(0, 1, 0, &messages);
    eventually("the queue is full", || bench.newest().is_some_and(|newest| newest >= 5));
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Both calls wait for the thread that is stuck.
        bench.control().cancel();
        drop(bench);
        let _ = sender.send(());
    });
    ended.recv_timeout(Duration::from_secs(20)).expect("all threads end");
}

#[test]
fn a_sink_that_fails_is_reported_with_what_it_did_not_take() {
    let collector = Collector { fails_at: Some(3), ..Collector::default() };
    let bench = Bench::with(SeriesSpec::new(Protocol::DectrisV2), 1, Form::default(), collector);
    let messages: Vec<TinyMessage> = std::iter::once(Start(10)).chain((0..10).map(Image)).chain([End]).collect();
    bench.send(0, 1, 0, &messages);
    eventually("the end is taken", || bench.sink.series_ended() == 1);
    let errors: Vec<String> = bench.sink.errors.lock().unwrap().iter().map(|error| error.why.clone()).collect();
    assert_eq!(errors, ["the test says so"]);
    assert_eq!((bench.sink.unwritten(), bench.sink.written()), (7, 3));
    // The next series is written again.
    bench.send(0, 2, 0, &[Start(2), Image(0), Image(1), End]);
    eventually("the second series is taken", || bench.sink.series_ended() == 2);
    assert_eq!(bench.sink.written(), 5);
}

#[test]
fn messages_by_hand_to_several_upstreams_are_alike() {
    // Duplicates on both upstreams: every image comes once.
    let mut bench = Bench::new(SeriesSpec { drain_ns: 100 * MS, ..SeriesSpec::new(Protocol::DectrisV2) }, 2, Form::default());
    let messages: Vec<TinyMessage> = std::iter::once(Start(20)).chain((0..20).map(Image)).chain([End]).collect();
    for tiny in messages {
        bench.send_alike(0, 1, 0, tiny);
        bench.send_alike(1, 1, 0, tiny);
    }
    let end = bench.end();
    assert_eq!((end.ended, end.ledger.images.complete, end.ledger.total().placed), (Ended::Finished, 20, 20));
}

#[test]
fn images_are_changed_and_packed_by_the_workers_and_stay_in_order() {
    use konkordia_core::array::Packing;
    use konkordia_core::plan::Compression;
    use konkordia_engine::series::transform::by_recipe;
    use konkordia_kernels::Isa;
    use konkordia_kernels::transform::{Recipe, Step, UnpackScratch, unpack};
    let turned = Orientation { flip_rows: false, rotate: Quarter::Deg90 };
    let spec = SeriesSpec {
        transform: Some(by_recipe(Recipe { steps: vec![Step::Orient(turned)] })),
        compression: Some(Compression::BSLZ4),
        workers: 3,
        ..SeriesSpec::new(Protocol::DectrisV2)
    };
    let mut bench = Bench::new(spec, 1, Form::default());
    let images = (0..200).map(|n| if n == 77 { Broken(n) } else { Image(n) });
    let messages: Vec<TinyMessage> = std::iter::once(Start(200)).chain(images).chain([End]).collect();
    bench.send(0, 1, 0, &messages);
    let end = bench.end();
    assert_eq!((end.ledger.images.complete, end.ledger.images.lost, end.ledger.total().malformed), (199, 1, 1));
    let mut scratch = UnpackScratch::new(Isa::detect());
    for image in bench.kept(1)[0].images.iter().filter(|image| image.number != 77) {
        let array = &image.channels[0].array;
        assert_eq!((array.shape.dimensions(), array.packing), (&[4, 3][..], Packing::BitshuffleLz4));
        let mut pixels = [0; 24];
        unpack::array(array.packing, array.element, &array.pieces[0], &mut pixels, &mut scratch).unwrap();
        // Row r, column c of the turned image was row 2 - c, column r.
        let expected = (0..12).flat_map(|i| pixel(1, image.number, 0, (2 - i % 3) * 4 + i / 3).to_le_bytes());
        assert!(pixels.into_iter().eq(expected), "image {}", image.number);
    }
    bench.assert_at_rest();
}
