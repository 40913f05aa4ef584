//! Consumers of whole images on the stream path.

use super::harness::*;
use super::planes::{Kept, Planes};
use konkordia_core::array::Element;
use konkordia_engine::series::Protocol;

use TinyMessage::*;

fn expected(series: u64, images: &[u64]) -> Vec<Kept> {
    let plane = |image: &u64| {
        let pixels = (0..12).map(|index| pixel(series, *image, 0, index));
        let bytes = pixels.flat_map(u16::to_le_bytes).collect();
        Kept { series, image: *image, size: (3, 4), element: Element::Uint16, bytes }
    };
    images.iter().map(plane).collect()
}

#[test]
fn planes_belong_to_their_series_and_gaps_have_none() {
    let mut bench = Bench::new(quick(Protocol::DectrisV2), 1, PLAIN);
    let (all, some) = (Planes::default(), Planes::default());
    let mut of_all = all.spawn("all", &bench.output_queues, 1, 100);
    let mut of_some = some.spawn("some", &bench.output_queues, 2, 100);
    for series in [5, 6] {
        bench.send(0, series, 0, &[Start(5), Image(0), Image(1), Broken(2), Image(4), End]);
        bench.end();
    }
    // The sink is ahead of them in the list of queues: when it has all, so have they.
    bench.kept(2);
    let seen = all.end("all", &bench.output_queues, &mut of_all);
    assert_eq!(seen, [expected(5, &[0, 1, 4]), expected(6, &[0, 1, 4])].concat());
    assert_eq!((of_all.seen(), of_all.skipped(), of_all.unreadable()), (8, 0, 2));
    let seen = some.end("some", &bench.output_queues, &mut of_some);
    assert_eq!(seen, [expected(5, &[0, 4]), expected(6, &[0, 4])].concat());
    assert_eq!((of_some.seen(), of_some.skipped(), of_some.unreadable()), (6, 0, 2));
}

/// Whoever is not wanted gets no image and misses none, but sees where series begin and end.
#[test]
fn nothing_is_taken_while_nobody_wants_it() {
    use konkordia_core::series::{SeriesEnd, SeriesStart};
    use konkordia_engine::output_queue::ImageSelection;
    use konkordia_engine::plane::PixelPlane;
    use konkordia_engine::whole_image::{WholeImageConsumer, WholeImageSpec, spawn};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    #[derive(Clone, Default)]
    struct Viewers {
        are_there: Arc<AtomicBool>,
        asked: Arc<AtomicU64>,
        log: Arc<Mutex<Vec<String>>>,
    }

    impl WholeImageConsumer for Viewers {
        fn start(&mut self, start: &SeriesStart) {
            self.log.lock().unwrap().push(format!("start {}", start.series));
        }

        fn plane(&mut self, plane: &PixelPlane<'_>) {
            self.log.lock().unwrap().push(format!("image {}", plane.image.number));
        }

        fn end(&mut self, _: &SeriesEnd) {
            self.log.lock().unwrap().push("end".into());
        }

        fn is_wanted(&self) -> bool {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.are_there.load(Ordering::SeqCst)
        }
    }

    let mut bench = Bench::new(quick(Protocol::DectrisV2), 1, PLAIN);
    let viewers = Viewers::default();
    let selection = ImageSelection { every_images: 1, interval: Duration::ZERO };
    let spec = WholeImageSpec { name: "viewers".into(), selection, queue_images: 100, plane_bytes_max: 1 << 20 };
    let mut consumer = spawn(&bench.output_queues, spec, viewers.clone()).unwrap();
    for series in [5, 6, 7] {
        viewers.are_there.store(series == 6, Ordering::SeqCst);
        // The second question is asked after the first answer has come to the queue.
        let asked = viewers.asked.load(Ordering::SeqCst);
        eventually("it is asked", || viewers.asked.load(Ordering::SeqCst) >= asked + 2);
        bench.send(0, series, 0, &[Start(2), Image(0), Image(1), End]);
        bench.end();
        bench.kept(series as usize - 4);
    }
    bench.output_queues.remove("viewers");
    assert_eq!((consumer.join(), consumer.seen(), consumer.skipped()), (None, 2, 0));
    let expected = ["start 5", "end", "start 6", "image 0", "image 1", "end", "start 7", "end"];
    assert_eq!(*viewers.log.lock().unwrap(), expected);
}
