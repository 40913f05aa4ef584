//! Every image leaves once and in order, with its results or counted as one without.

use super::*;
use crate::output_queue::{Item, OutputQueueReader, OutputQueueSpec};
use bytes::Bytes;
use konkordia_core::analysis_counts::AnalysisCounter;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::frame_header::ColumnType;
use konkordia_core::image::Channel;
use konkordia_core::image_metadata::{Origin, Raster};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::ServiceLevel;
use konkordia_core::results::metadata;
use std::sync::atomic::{AtomicBool, Ordering};

const KIND: ResultKind =
    ResultKind { name: "first", number: ColumnType::U64, length: 1, unit: "", meaning: "", counted_by: None };
const KINDS: [ResultKind; 2] = [ResultKind { name: "is_analysed", ..KIND }, KIND];

/// Waits at its gate; says 1 and the first pixel.
struct Analyser {
    gate: Arc<(Mutex<bool>, Condvar)>,
    /// The pixel at which it fails, and the one at which it panics.
    bad: [u8; 2],
}

impl ImageAnalyser for Analyser {
    fn analyse(&mut self, plane: &PixelPlane<'_>, numbers: &mut [u64]) -> Result<Looked, String> {
        let open = lock(&self.gate.0);
        drop(self.gate.1.wait_while(open, |open| !*open).unwrap());
        let pixel = plane.bytes[0];
        // The order in which threads are done is not that in which they began.
        std::thread::sleep(Duration::from_micros(u64::from(pixel.wrapping_mul(37)) * 5));
        assert!(pixel != self.bad[1], "pixel {pixel}");
        if pixel == self.bad[0] {
            return Err(format!("pixel {pixel}"));
        }
        *numbers.last_chunk_mut().unwrap() = [1, u64::from(pixel)];
        Ok(Looked { is_hit: pixel % 2 == 1, is_rejected: pixel.is_multiple_of(2) })
    }
}

fn image(number: u64) -> Arc<CommittedImage> {
    let array = Array {
        shape: Shape::new(&[2, 5]).unwrap(),
        element: Element::Uint8,
        packing: Packing::None,
        pieces: vec![Bytes::from(vec![number as u8; 10])],
    };
    let channels = vec![Channel { name: "".into(), array }];
    Arc::new(CommittedImage { status: ImageStatus::Complete, channels, ..CommittedImage::lost(number) })
}

struct Bench {
    hand_over: HandOver,
    reader: OutputQueueReader,
    counter: Arc<Counter>,
    gate: Arc<(Mutex<bool>, Condvar)>,
    gave_up: Arc<AtomicBool>,
}

impl Bench {
    fn new(workers: usize, queue_images: usize, bad: [u8; 2], reader_images: usize) -> Self {
        Self::with_veto(Veto::default(), workers, queue_images, bad, reader_images)
    }

    fn with_veto(veto: Veto, workers: usize, queue_images: usize, bad: [u8; 2], reader_images: usize) -> Self {
        let mut bench = Self::empty(reader_images);
        let (kinds, analysers, counter) = (KINDS.to_vec(), bench.analysers(workers, bad), Arc::clone(&bench.counter));
        let analysis = SeriesAnalysis { kinds, analysers, queue_images, veto, counter, ..SeriesAnalysis::default() };
        let start = Arc::new(SeriesStart { results: KINDS.to_vec(), ..SeriesStart::default() });
        bench.hand_over.start(&start, Some(analysis));
        bench
    }

    /// Without a series.
    fn empty(reader_images: usize) -> Self {
        let output_queues = Arc::new(OutputQueues::new(None));
        let (name, service) = ("file".into(), ServiceLevel::Reliable);
        let spec = OutputQueueSpec { name, service, queue_images: reader_images, queue_bytes: u64::MAX, borrows: false };
        let reader = output_queues.add(spec);
        let (gate, gave_up) = (Arc::<(Mutex<bool>, Condvar)>::default(), Arc::<AtomicBool>::default());
        let seen = Arc::clone(&gave_up);
        let hand_over = HandOver::new(output_queues, Arc::new(move || seen.load(Ordering::Acquire)));
        Self { hand_over, reader, counter: Arc::default(), gate, gave_up }
    }

    fn analysers(&self, workers: usize, bad: [u8; 2]) -> Vec<Box<dyn ImageAnalyser>> {
        let analyser = |_| Box::new(Analyser { gate: Arc::clone(&self.gate), bad }) as Box<dyn ImageAnalyser>;
        (0..workers).map(analyser).collect()
    }

    fn open_gate(&self) {
        *lock(&self.gate.0) = true;
        self.gate.1.notify_all();
    }

    /// Waits, but not for ever.
    fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            assert!(Instant::now() < until, "it has not come to this");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a thread has an image.
    fn until_in_work(&self) {
        let shared = &self.hand_over.line.as_ref().unwrap().shared;
        self.until(|_| lock(&shared.line).in_work > 0);
    }

    /// What has left so far: the number of each image, and what was computed.
    fn left(&mut self) -> Vec<(u64, Vec<u64>)> {
        let (mut items, mut before) = (Vec::new(), usize::MAX);
        while items.len() != before {
            before = items.len();
            self.reader.take(Duration::ZERO, &mut items);
        }
        let of =
            |item: Item| if let Item::Image(image) = item { Some((image.number, image.results.bits().to_vec())) } else { None };
        items.into_iter().filter_map(of).collect()
    }

    fn counted(&self) -> (u64, u64, u64) {
        let tally = self.counter.read();
        (tally.analysed, tally.skipped, tally.failed)
    }
}

/// With or without analysis, skipped or not, each image says what is known of it, in front of what was computed.
#[test]
fn images_say_what_is_known_of_them() {
    let raster = Raster { columns: 4, is_snake: true };
    let place =
        vec![(metadata::RASTER_COLUMN, Origin::RasterColumn(raster)), (metadata::PULSE, Origin::Header("/p".into(), 1.0))];
    for workers in [0, 1, 3] {
        let mut bench = Bench::empty(1000);
        let known = ImageMetadata::new(place.clone());
        let own = if workers > 0 { &KINDS[..] } else { &[] };
        let kinds: Vec<_> = known.kinds().chain(own.iter().copied()).collect();
        let results: Vec<_> = [metadata::ANGLE].into_iter().chain(kinds.clone()).collect();
        let (metadata, analysers, counter) = (known, bench.analysers(workers, [255; 2]), Arc::clone(&bench.counter));
        let analysis = SeriesAnalysis { kinds, metadata, analysers, queue_images: 2, counter, ..SeriesAnalysis::default() };
        let counts = analysis.counts();
        bench.hand_over.start(&Arc::new(SeriesStart { results, ..SeriesStart::default() }), Some(analysis));
        bench.hand_over.image(Arc::new(CommittedImage::lost(0)));
        for number in 1..10 {
            let mut image = (*image(number)).clone();
            image.header_json = if number == 7 { "{}".into() } else { format!("{{\"p\": {}}}", 100 + number).into() };
            bench.hand_over.image(Arc::new(image));
        }
        bench.open_gate();
        bench.hand_over.finish();
        let left: Vec<_> = bench.left().into_iter().map(|(_, bits)| bits.get(1..3).map(<[u64]>::to_vec)).collect();
        let pulse = |n: u64| if n == 7 { 0 } else { 100 + n };
        let wanted: Vec<_> = (1..10).map(|n| Some(vec![raster.place(n)[0], pulse(n)])).collect();
        assert_eq!((left[0].as_ref(), &left[1..]), (None, &wanted[..]), "{workers}");
        assert_eq!(counts.read().is_some(), workers > 0);
        assert!(counts.warning().unwrap().contains("1 images without pulse_id: their sender says no number at /p"));
    }
}

#[test]
fn images_leave_in_order_with_their_results_for_any_number_of_threads() {
    for workers in [1, 2, 5] {
        let mut bench = Bench::new(workers, 100, [255; 2], 1000);
        bench.open_gate();
        for number in 0..100 {
            let lost = number % 7 == 3;
            bench.hand_over.image(if lost { Arc::new(CommittedImage::lost(number)) } else { image(number) });
        }
        bench.hand_over.finish();
        let results = |number: u64| if number % 7 == 3 { Vec::new() } else { vec![1, number] };
        assert_eq!(bench.left(), (0..100).map(|number| (number, results(number))).collect::<Vec<_>>());
        assert_eq!((bench.counted(), bench.counter.read().problem), ((86, 0, 0), None));
        assert_eq!(bench.counter.read().hits, (0..100).filter(|n| n % 7 != 3 && n % 2 == 1).count() as u64);
        assert!(bench.counter.read().busy_ns > 0);
    }
}

#[test]
fn nobody_waits_for_analysis_and_what_it_misses_is_counted() {
    let mut bench = Bench::new(1, 2, [255; 2], 1000);
    // Nothing can be analysed. The thread has image 0, and of the others the newest waits.
    bench.hand_over.image(image(0));
    bench.until_in_work();
    for number in 1..4 {
        bench.hand_over.image(image(number));
    }
    assert_eq!((bench.left(), bench.counted()), (Vec::new(), (0, 2, 0)));
    // Nobody waits for image 0 any more.
    bench.hand_over.image(image(4));
    let passed = (0..3).map(|number| (number, vec![0, 0])).collect();
    assert_eq!((bench.left(), bench.counted()), (passed, (0, 3, 0)));
    bench.open_gate();
    bench.hand_over.finish();
    assert_eq!((bench.left(), bench.counted()), (vec![(3, vec![1, 3]), (4, vec![1, 4])], (2, 3, 0)));
}

/// Waits for each image until it may go on.
struct Slow(std::sync::mpsc::Receiver<()>);

impl ImageAnalyser for Slow {
    fn analyse(&mut self, plane: &PixelPlane<'_>, numbers: &mut [u64]) -> Result<Looked, String> {
        self.0.recv().map_err(|_| "the test has ended")?;
        *numbers.last_chunk_mut().unwrap() = [1, u64::from(plane.bytes[0])];
        Ok(Looked::default())
    }
}

/// While an image is analysed three more come. What the thread is done with counts, all the time.
#[test]
fn under_overload_no_work_is_lost() {
    let mut bench = Bench::empty(1000);
    let (go_on, gate) = std::sync::mpsc::channel();
    let (kinds, analysers, counter) =
        (KINDS.to_vec(), vec![Box::new(Slow(gate)) as Box<dyn ImageAnalyser>], Arc::clone(&bench.counter));
    let start = Arc::new(SeriesStart { results: KINDS.to_vec(), ..SeriesStart::default() });
    bench.hand_over.start(&start, Some(SeriesAnalysis { kinds, analysers, queue_images: 2, counter, ..Default::default() }));
    bench.hand_over.image(image(0));
    for round in 1..=20 {
        bench.until_in_work();
        (3 * round - 2..=3 * round).for_each(|number| bench.hand_over.image(image(number)));
        go_on.send(()).unwrap();
        bench.until(|bench| bench.counted().0 == round);
    }
    bench.until_in_work();
    go_on.send(()).unwrap();
    bench.hand_over.finish();
    let expected = |number: u64| if number.is_multiple_of(3) { vec![1, number] } else { vec![0, 0] };
    assert_eq!(bench.left(), (0..=60).map(|number| (number, expected(number))).collect::<Vec<_>>());
    assert_eq!(bench.counted(), (21, 40, 0));
}

#[test]
fn what_cannot_be_analysed_passes_and_a_panic_ends_only_the_analysis() {
    let mut bench = Bench::new(2, 100, [5, 255], 1000);
    bench.open_gate();
    (0..10).for_each(|number| bench.hand_over.image(image(number)));
    bench.hand_over.finish();
    assert_eq!(
        (bench.left().len(), bench.counted(), bench.counter.read().problem),
        (10, (9, 0, 1), Some("image 5: pixel 5".into()))
    );
    let mut bench = Bench::new(1, 100, [255, 5], 1000);
    (0..10).for_each(|number| bench.hand_over.image(image(number)));
    bench.open_gate();
    // Images behind it do not wait for the end of the run.
    let until = Instant::now() + Duration::from_secs(5);
    let mut left = Vec::new();
    while left.len() < 10 && Instant::now() < until {
        left.extend(bench.left());
    }
    bench.hand_over.image(image(10));
    bench.hand_over.finish();
    left.extend(bench.left());
    let results = |number: u64| if number < 5 { vec![1, number] } else { vec![0, 0] };
    assert_eq!(left, (0..11).map(|number| (number, results(number))).collect::<Vec<_>>());
    assert_eq!(bench.counted(), (5, 0, 6));
    assert!(bench.counter.read().problem.unwrap().contains("pixel 5"));
}

#[test]
fn the_named_channel_is_analysed() {
    for (name, expected) in [(None, Some(3)), (Some("a"), Some(3)), (Some("b"), Some(7)), (Some("c"), None)] {
        let mut bench = Bench::empty(100);
        bench.open_gate();
        let (kinds, analysers, counter) = (KINDS.to_vec(), bench.analysers(1, [255; 2]), Arc::clone(&bench.counter));
        let channel = name.map(str::to_owned);
        let analysis = SeriesAnalysis { kinds, analysers, channel, queue_images: 4, counter, ..SeriesAnalysis::default() };
        bench.hand_over.start(&Arc::new(SeriesStart { results: KINDS.to_vec(), ..SeriesStart::default() }), Some(analysis));
        let named = |name: &str, number| Channel { name: name.into(), ..image(number).channels[0].clone() };
        let channels = vec![named("a", 3), named("b", 7)];
        bench.hand_over.image(Arc::new(CommittedImage { channels, ..(*image(0)).clone() }));
        bench.hand_over.finish();
        assert_eq!(bench.left(), [(0, expected.map_or(vec![0, 0], |pixel| vec![1, pixel]))], "{name:?}");
        let problem = bench.counter.read().problem;
        assert_eq!(problem.is_some(), expected.is_none());
        assert!(problem.is_none_or(|why| why.contains(r#"no channel "c" ([analysis] channel), but ["a", "b"]"#)));
    }
}

#[test]
fn a_slow_consumer_is_waited_for_as_without_analysis() {
    let mut bench = Bench::new(1, 2, [255; 2], 3);
    bench.open_gate();
    let Bench { hand_over, reader, gave_up, counter, .. } = &mut bench;
    // The consumer has room for 3; behind it 4 stand in the line, and one is being handed over. Then it must wait.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..20).for_each(|number| hand_over.image(image(number)));
            hand_over.finish();
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!writer.is_finished(), "the writer waits");
        let mut items = Vec::new();
        while items.len() < 15 {
            reader.take(Duration::from_millis(10), &mut items);
        }
        std::thread::sleep(Duration::from_millis(100));
        gave_up.store(true, Ordering::Release);
        writer.join().unwrap();
        while {
            let before = items.len();
            reader.take(Duration::ZERO, &mut items);
            items.len() > before
        } {}
        let numbers: Vec<u64> =
            items.iter().filter_map(|item| if let Item::Image(image) = item { Some(image.number) } else { None }).collect();
        assert!(numbers.is_sorted() && numbers[..14] == (0..14).collect::<Vec<_>>(), "{numbers:?}");
        let skipped = reader.stats().skipped.load(Ordering::Relaxed);
        assert_eq!(numbers.len() as u64 + skipped, 20);
        let tally = counter.read();
        assert_eq!(tally.analysed + tally.skipped, 20);
    });
}

#[test]
fn an_analyser_that_hangs_holds_nothing_back_when_the_run_is_given_up() {
    let mut bench = Bench::new(2, 4, [255; 2], 100);
    (0..3).for_each(|number| bench.hand_over.image(image(number)));
    bench.gave_up.store(true, Ordering::Release);
    let line = bench.hand_over.line.as_ref().map(|line| Arc::clone(&line.shared)).unwrap();
    line.drain();
    assert_eq!((bench.left().len(), bench.counted()), (3, (0, 3, 0)));
    bench.open_gate();
    bench.hand_over.finish();
    assert_eq!((bench.left(), bench.counted()), (Vec::new(), (0, 3, 0)));
}

#[test]
fn rejected_images_lose_their_pixels_in_the_order_of_the_images() {
    for (drops, keep_one_in, kept) in [(true, 0, vec![]), (true, 3, vec![4, 10, 16]), (false, 0, (0..20).collect())] {
        let mut bench = Bench::with_veto(Veto { drops, keep_one_in }, 3, 100, [255; 2], 1000);
        bench.open_gate();
        for number in 0..20 {
            // Even images are rejected. A partial one is kept, and counts all the same.
            let mut image = image(number);
            if number == 8 {
                Arc::make_mut(&mut image).status = ImageStatus::Partial;
            }
            bench.hand_over.image(image);
        }
        bench.hand_over.finish();
        let (mut items, mut found) = (Vec::new(), Vec::new());
        while found.len() < 20 {
            bench.reader.take(Duration::from_millis(10), &mut items);
            found.extend(items.drain(..).filter_map(|item| if let Item::Image(image) = item { Some(image) } else { None }));
        }
        for (number, image) in found.iter().enumerate() {
            let is_whole = number % 2 == 1 || number == 8 || kept.contains(&number) || !drops;
            let status = if number == 8 { ImageStatus::Partial } else { ImageStatus::Complete };
            assert_eq!(image.status, if is_whole { status } else { ImageStatus::Vetoed }, "image {number}");
            assert_eq!(image.channels.len(), usize::from(is_whole), "image {number}");
            assert_eq!(image.results.bits(), [1, number as u64], "its results stay");
        }
        let tally = bench.counter.read();
        let dropped = if drops { 9 - kept.len() as u64 } else { 0 };
        assert_eq!((tally.rejected, tally.vetoed, tally.hits), (10, dropped, 10));
    }
}
