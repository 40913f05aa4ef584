//! What stays in memory of the images of a series that goes on: nothing that grows with their number. A test binary of
//! its own, because the allocator counts for the whole process.

#[allow(dead_code)]
#[path = "series/harness.rs"]
mod harness;

use harness::{MS, PATIENCE, PLAIN, TinyDecoder, TinyMessage, eventually, message};
use konkordia_core::ports::{Message, MessageSource, ServiceLevel};
use konkordia_engine::output_queue::{OutputQueueReader, OutputQueueSpec, OutputQueues};
use konkordia_engine::series::{self, Notice, Protocol, Series, SeriesSpec, Upstream};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system allocator unchanged; only a counter is changed.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of this trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Images before the first look: every queue has its size.
const FEW: u64 = 10_000;
/// Images before the second look.
const MANY: u64 = 100_000;
/// Between the looks images may leave so many bytes each, because queues and batches have no exact size.
const BYTES_OF_AN_IMAGE_MAX: u64 = 4;

/// Sends the start, then one message for each image, up to `goal` messages, and the end. Of ten images one never comes;
/// the one before it comes twice.
struct UpTo {
    goal: Arc<AtomicU64>,
    next: u64,
}

impl MessageSource for UpTo {
    fn receive(&mut self, timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> io::Result<()> {
        let goal = self.goal.load(Ordering::Relaxed);
        if self.next >= goal {
            std::thread::sleep(timeout.min(Duration::from_millis(5)));
            return Ok(());
        }
        let end = goal.min(self.next + messages_max as u64);
        for step in self.next..end {
            let tiny = match step.checked_sub(1) {
                None => TinyMessage::Start(0),
                Some(MANY) => TinyMessage::End,
                Some(image) if image % 10 == 3 => TinyMessage::Image(image - 1),
                Some(image) => TinyMessage::Image(image),
            };
            into.push(message(PLAIN, 0, 1, 0, tiny));
        }
        self.next = end;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.next > MANY + 1
    }

    fn name(&self) -> String {
        "memory".into()
    }
}

/// Takes `items` items, waits until nothing is under way, and says how many bytes are allocated then.
fn take(reader: &mut OutputQueueReader, series: &Series, items: u64) -> u64 {
    let (mut taken, mut count) = (Vec::new(), 0);
    while count < items {
        assert!(reader.take(PATIENCE, &mut taken) && !taken.is_empty(), "{count} of {items} came");
        count += taken.drain(..).count() as u64;
    }
    drop(taken);
    eventually("the budget is free", || series.control().progress().in_flight_bytes() == 0);
    ALLOCATED_BYTES.load(Ordering::Relaxed)
}

#[test]
fn memory_does_not_grow_with_the_images() {
    let goal = Arc::new(AtomicU64::new(FEW + 1));
    let source = UpTo { goal: Arc::clone(&goal), next: 0 };
    let output_queues = Arc::new(OutputQueues::new(None));
    let mut reader = output_queues.add(OutputQueueSpec {
        name: "count".into(),
        service: ServiceLevel::Reliable,
        queue_images: 256,
        queue_bytes: 64 << 20,
        borrows: false,
    });
    let upstream = Upstream { source: Box::new(source), decoder: Box::new(TinyDecoder) };
    let spec = SeriesSpec { window_images: 32, wait_ns: 150 * MS, budget_bytes: 1 << 20, ..SeriesSpec::new(Protocol::DectrisV2) };
    let series = series::open(spec, vec![upstream], output_queues).unwrap();
    let few = take(&mut reader, &series, 1 + FEW);
    goal.store(MANY + 1, Ordering::Relaxed);
    let many = take(&mut reader, &series, MANY - FEW);
    println!("{few} and {many} bytes after {FEW} and {MANY} images");
    let growth = many.saturating_sub(few);
    assert!(growth < BYTES_OF_AN_IMAGE_MAX * (MANY - FEW), "{growth} bytes of {} images stay", MANY - FEW);
    goal.store(MANY + 2, Ordering::Relaxed);
    let ended = |notice| if let Notice::Ended(end) = notice { Some(end) } else { None };
    let end = series.notices().iter().find_map(ended).unwrap();
    let images = end.ledger.images;
    assert_eq!((images.expected, images.complete, images.lost), (MANY, MANY - MANY / 10, MANY / 10));
}
