//! What each level of service promises when its queue is full or empty.

use super::*;
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::Channel;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::series::{Ended, SeriesLedger};

const WAIT: ServiceLevel = ServiceLevel::Reliable;
const SKIP: ServiceLevel = ServiceLevel::ReliableSkip;
const NEVER: &dyn Fn() -> bool = &|| false;
const NO_TIME: Duration = Duration::ZERO;

fn spec(name: &str, service: ServiceLevel, queue_images: usize, queue_bytes: u64) -> OutputQueueSpec {
    OutputQueueSpec { name: name.into(), service, queue_images, queue_bytes, borrows: false }
}

fn start(series: u64) -> Arc<SeriesStart> {
    Arc::new(SeriesStart { series, ..SeriesStart::default() })
}

/// An image of 10 bytes.
fn image(number: u64) -> Arc<CommittedImage> {
    let array = Array {
        shape: Shape::new(&[2, 5]).unwrap(),
        element: Element::Uint8,
        packing: Packing::None,
        pieces: vec![Bytes::from_static(&[7; 10])],
    };
    let channels = vec![Channel { name: "".into(), array }];
    Arc::new(CommittedImage { status: ImageStatus::Complete, channels, ..CommittedImage::lost(number) })
}

fn end() -> Arc<SeriesEnd> {
    Arc::new(SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: SeriesLedger::default() })
}

/// What the reader takes, as text: `S1 0 1 E`.
fn taken(reader: &mut OutputQueueReader) -> String {
    let mut items = Vec::new();
    loop {
        let before = items.len();
        reader.take(NO_TIME, &mut items);
        if items.len() == before {
            break;
        }
    }
    let text = items.iter().map(|item| match item {
        Item::Start(start) => format!("S{}", start.series),
        Item::Image(image) => image.number.to_string(),
        Item::End(_) => "E".into(),
    });
    text.collect::<Vec<_>>().join(" ")
}

fn loaded(stat: &AtomicU64) -> u64 {
    stat.load(Ordering::Relaxed)
}

#[test]
fn a_full_queue_skips_counts_and_never_loses_start_or_end() {
    let output_queues = OutputQueues::new(None);
    let mut skips = output_queues.add(spec("skips", SKIP, 3, 1000));
    let mut by_bytes = output_queues.add(spec("by bytes", SKIP, 100, 25));
    let mut newest = output_queues.add(spec("newest", ServiceLevel::Latest, 1, 1000));
    output_queues.start(&start(1), NEVER);
    (0..6).for_each(|n| output_queues.image(&image(n), NEVER));
    assert_eq!(loaded(&skips.stats().lag_images), 6);
    output_queues.end(&end());
    assert_eq!(taken(&mut skips), "S1 0 1 2 E");
    assert_eq!(taken(&mut by_bytes), "S1 0 1 E");
    assert_eq!(taken(&mut newest), "S1 5 E");
    for (reader, delivered, skipped) in [(&skips, 3, 3), (&by_bytes, 2, 4), (&newest, 1, 5)] {
        assert_eq!(
            (loaded(&reader.stats().delivered), loaded(&reader.stats().skipped)),
            (delivered, skipped),
            "{}",
            reader.name()
        );
        assert_eq!((loaded(&reader.stats().queued), loaded(&reader.stats().queued_bytes)), (0, 0));
    }
}

#[test]
fn an_image_larger_than_the_queue_still_passes() {
    let output_queues = OutputQueues::new(None);
    let mut reader = output_queues.add(spec("small", SKIP, 4, 1));
    output_queues.start(&start(1), NEVER);
    output_queues.image(&image(0), NEVER);
    output_queues.image(&image(1), NEVER);
    assert_eq!(taken(&mut reader), "S1 0");
}

#[test]
fn what_the_reader_is_busy_with_counts_until_it_comes_back() {
    let output_queues = OutputQueues::new(None);
    let mut reader = output_queues.add(spec("strict", SKIP, 2, 1000));
    output_queues.start(&start(1), NEVER);
    (0..2).for_each(|n| output_queues.image(&image(n), NEVER));
    let mut items = Vec::new();
    reader.take(NO_TIME, &mut items);
    assert_eq!(items.len(), 2, "the start and half of the queue");
    output_queues.image(&image(2), NEVER);
    assert_eq!(loaded(&reader.stats().skipped), 1);
    reader.take(NO_TIME, &mut items);
    output_queues.image(&image(3), NEVER);
    assert_eq!(taken(&mut reader), "3");
}

#[test]
fn a_late_joiner_gets_the_start_first_and_nothing_between_series() {
    let output_queues = OutputQueues::new(None);
    output_queues.start(&start(4), NEVER);
    output_queues.image(&image(0), NEVER);
    let mut late = output_queues.add(spec("late", SKIP, 9, 1000));
    output_queues.image(&image(1), NEVER);
    output_queues.end(&end());
    let mut later = output_queues.add(spec("later", SKIP, 9, 1000));
    assert_eq!(taken(&mut late), "S4 1 E");
    assert_eq!(taken(&mut later), "");
}

#[test]
fn a_writer_waits_for_a_reliable_reader_and_no_longer() {
    let output_queues = Arc::new(OutputQueues::new(None));
    let mut reader = output_queues.add(spec("file", WAIT, 2, 1000));
    let writer = {
        let output_queues = Arc::clone(&output_queues);
        std::thread::spawn(move || {
            output_queues.start(&start(1), NEVER);
            (0..500).for_each(|n| output_queues.image(&image(n), NEVER));
            output_queues.end(&end());
        })
    };
    let (mut items, mut held_most) = (Vec::new(), 0);
    while !matches!(items.last(), Some(Item::End(_))) {
        assert!(reader.take(Duration::from_secs(10), &mut items));
        held_most = held_most.max(loaded(&reader.stats().queued));
    }
    writer.join().unwrap();
    assert_eq!(items.len(), 502);
    assert!(held_most <= 2, "{held_most} images were queued");
    // Nothing is taken any more: the writer waits until `give_up` is true, the reader is not connected, or it is
    // dropped.
    output_queues.start(&start(2), NEVER);
    (0..5).for_each(|n| output_queues.image(&image(n), &|| true));
    assert_eq!(loaded(&reader.stats().skipped), 3);
    reader.set_connected(false);
    output_queues.image(&image(5), NEVER);
    assert_eq!(loaded(&reader.stats().skipped), 4);
    reader.set_connected(true);
    let dropper = std::thread::spawn(move || {
        // The writer waits by then. Nobody can ask it, and if it does not, the test is only easier.
        std::thread::sleep(Duration::from_millis(10));
        drop(reader);
    });
    output_queues.image(&image(6), NEVER);
    dropper.join().unwrap();
    assert!(output_queues.list().is_empty());
}

#[test]
fn a_consumer_that_sleeps_through_many_series_misses_whole_ones() {
    let output_queues = OutputQueues::new(None);
    let mut reader = output_queues.add(spec("sleeper", SKIP, 2, 1000));
    for series in 0..1000 {
        output_queues.start(&start(series), NEVER);
        output_queues.image(&image(0), NEVER);
        output_queues.end(&end());
    }
    let text = taken(&mut reader);
    let (starts, ends) = (text.matches('S').count(), text.matches('E').count());
    assert_eq!((starts, ends), (CONTROLS_MAX / 2, CONTROLS_MAX / 2));
    assert!(text.starts_with("S0 0 E S1 0 E S2 E"), "{text}");
    assert_eq!(loaded(&reader.stats().skipped_series), 1000 - 32);
    output_queues.start(&start(1000), NEVER);
    assert_eq!(taken(&mut reader), "S1000");
}

#[test]
fn a_reliable_queue_gets_every_series_also_those_that_are_cancelled() {
    let output_queues = OutputQueues::new(None);
    let mut reader = output_queues.add(spec("file", WAIT, 2, 1000));
    for series in 0..CONTROLS_MAX as u64 {
        output_queues.start(&start(series), &|| true);
        output_queues.end(&end());
    }
    let text = taken(&mut reader);
    assert_eq!((text.matches('S').count(), text.matches('E').count()), (CONTROLS_MAX, CONTROLS_MAX));
    assert_eq!(loaded(&reader.stats().skipped_series), 0);
}

#[test]
fn removal_ends_a_reader_after_what_is_queued() {
    let output_queues = OutputQueues::new(None);
    let mut reader = output_queues.add(spec("one", SKIP, 9, 1000));
    output_queues.start(&start(1), NEVER);
    assert!(!output_queues.remove("two"));
    assert!(output_queues.remove("one"));
    let mut items = Vec::new();
    assert!(!reader.take(Duration::from_secs(10), &mut items));
    assert_eq!(items.len(), 1);
    assert!(output_queues.list().is_empty());
}

fn newest(preview: &PreviewBuffer) -> Option<u64> {
    preview.look(None, Instant::now()).map(|planes| planes.image().number)
}

#[test]
fn the_preview_buffer_keeps_the_newest_within_its_bounds() {
    let preview = Arc::new(PreviewBuffer::new(4, 35));
    let output_queues = OutputQueues::new(Some(Arc::clone(&preview)));
    output_queues.start(&start(1), NEVER);
    (0..9).for_each(|n| output_queues.image(&image(n), NEVER));
    output_queues.image(&Arc::new(CommittedImage::lost(9)), NEVER);
    assert_eq!((preview.numbers(), preview.bytes()), (vec![6, 7, 8], 30));
    assert_eq!(newest(&preview), Some(8));
    output_queues.end(&end());
    output_queues.start(&start(2), NEVER);
    output_queues.image(&image(7), NEVER);
    let at = |number| preview.look(Some(number), Instant::now());
    assert_eq!((at(7).unwrap().start().series, at(8).unwrap().start().series), (2, 1));
    assert_eq!((preview.numbers(), at(6).is_none()), (vec![7], true));
    assert_eq!(preview.series().unwrap().series, 2);
    preview.clear();
    assert_eq!((newest(&preview), preview.bytes()), (None, 0));
    let large = PreviewBuffer::new(3, 1);
    large.start(&start(1));
    (0..2).for_each(|n| large.image(&image(n), 10, false));
    assert_eq!(large.numbers(), [1]);
}

#[test]
fn images_that_are_not_selected_are_not_touched_and_not_missed() {
    let output_queues = OutputQueues::new(None);
    let selection = |every_images, interval| ImageSelection { every_images, interval };
    let mut third = output_queues.add_selective(spec("third", SKIP, 9, 1000), selection(3, NO_TIME));
    let mut rare = output_queues.add_selective(spec("rare", SKIP, 9, 1000), selection(1, Duration::from_secs(3600)));
    let mut unwanted = output_queues.add_selective(spec("unwanted", SKIP, 9, 1000), selection(1, NO_TIME));
    unwanted.set_connected(false);
    output_queues.start(&start(1), NEVER);
    for n in 0..8 {
        // Those of a run would be copied.
        let image = if n == 3 { Arc::new(CommittedImage::lost(n)) } else { image(n) };
        output_queues.lend(&image, NEVER);
        assert_eq!(Arc::strong_count(&image), 1, "nobody holds image {n}");
    }
    output_queues.end(&end());
    assert_eq!((taken(&mut third), taken(&mut rare), taken(&mut unwanted)), ("S1 0 6 E".into(), "S1 0 E".into(), "S1 E".into()));
    for (reader, delivered) in [(&third, 2), (&rare, 1), (&unwanted, 0)] {
        assert_eq!((loaded(&reader.stats().delivered), loaded(&reader.stats().skipped)), (delivered, 0), "{}", reader.name());
    }
}

#[test]
fn an_image_of_a_run_is_copied_for_those_who_have_room_only() {
    let output_queues = OutputQueues::new(None);
    let mut one = output_queues.add(spec("one", SKIP, 1, 1000));
    let mut two = output_queues.add(spec("two", SKIP, 2, 1000));
    output_queues.start(&start(1), NEVER);
    let images: Vec<_> = (0..3).map(image).collect();
    images.iter().for_each(|image| output_queues.lend(image, NEVER));
    let pixels = |reader: &mut OutputQueueReader| -> Vec<*const u8> {
        let (mut items, mut places) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            reader.take(NO_TIME, &mut items);
        }
        for item in items {
            if let Item::Image(image) = item {
                assert!(!images.iter().any(|lent| Arc::ptr_eq(lent, &image)), "the image itself is for the run");
                places.push(image.chunk().as_ptr());
            }
        }
        places
    };
    let (of_one, of_two) = (pixels(&mut one), pixels(&mut two));
    assert_eq!((of_one.len(), of_two.len()), (1, 2));
    assert_eq!(of_one[0], of_two[0], "they share one copy");
    assert_eq!((loaded(&one.stats().skipped), loaded(&two.stats().skipped)), (2, 1));
}

#[test]
fn those_who_look_at_the_newest_image_share_it_until_nobody_asks() {
    let preview = Arc::new(PreviewBuffer::new(4, u64::MAX));
    let output_queues = OutputQueues::new(Some(Arc::clone(&preview)));
    assert!(preview.look(None, Instant::now()).is_none() && preview.newest_bytes().is_none());
    output_queues.start(&start(1), NEVER);
    output_queues.lend(&image(0), NEVER);
    assert_eq!(preview.newest_bytes(), Some((10, 10)));
    let early = Instant::now();
    let first = preview.look(None, early).unwrap();
    output_queues.lend(&image(1), NEVER);
    // Image 0 was the newest when they began to ask. Who asks now gets image 1.
    assert!(Arc::ptr_eq(&preview.look(None, early).unwrap(), &first));
    let second = preview.look(None, Instant::now()).unwrap();
    assert_eq!((first.image().number, second.image().number), (0, 1));
    for same in [preview.look(None, early), preview.look(None, Instant::now()), preview.look(Some(1), Instant::now())] {
        assert!(Arc::ptr_eq(&same.unwrap(), &second));
    }
    // Others by their numbers do not take its place.
    assert_eq!(preview.look(Some(0), Instant::now()).unwrap().image().number, 0);
    assert!(preview.look(Some(7), Instant::now()).is_none());
    preview.forget_pixels(Duration::from_secs(3600));
    assert!(Arc::ptr_eq(&preview.look(None, Instant::now()).unwrap(), &second));
    preview.forget_pixels(Duration::ZERO);
    assert_eq!(Arc::strong_count(&second), 1, "nobody else holds it");
    let third = preview.look(None, early).unwrap();
    assert!(third.image().number == 1 && !Arc::ptr_eq(&third, &second));
    // The same number in the next series is another image.
    output_queues.start(&start(2), NEVER);
    output_queues.lend(&image(1), NEVER);
    let fourth = preview.look(None, Instant::now()).unwrap();
    assert_eq!((third.start().series, fourth.start().series), (1, 2));
    preview.clear();
    assert!(preview.look(None, early).is_none() && Arc::strong_count(&fourth) == 1);
}
