//! Output queues: they hand series to any number of consumers, each behind its own bounded queue and with its own level
//! of service. A slow consumer delays only itself, unless its service is [`ServiceLevel::Reliable`]. Read
//! [`OutputQueues`] first.

use arc_swap::ArcSwap;
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::ServiceLevel;
use konkordia_core::series::{SeriesEnd, SeriesStart};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use crate::preview::PreviewBuffer;

/// Starts and ends that a queue holds at most; a consumer that is further behind misses whole series.
pub const CONTROLS_MAX: usize = 64;
/// How often a waiting writer checks whether it should give up.
const GRAIN: Duration = Duration::from_millis(20);

/// What a new consumer asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputQueueSpec {
    /// Its name in reports, different from those of the others.
    pub name: String,
    /// Its level of service.
    pub service: ServiceLevel,
    /// Images that may wait for it, at least 1.
    pub queue_images: usize,
    /// Bytes of pixels that may wait for it; one image always may.
    pub queue_bytes: u64,
    /// It gives images back as fast as it can, as a file does: it holds the buffers of the run themselves. Other
    /// consumers get copies ([`OutputQueues::lend`]).
    pub borrows: bool,
}

/// Which images a queue takes. The others are neither copied nor referenced for it, and it misses none by them. A queue
/// with a selection takes only images with pixels, and none while nobody is connected
/// ([`OutputQueueReader::set_connected`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSelection {
    /// Every how many-th position of a series, from position 0 on; at least 1.
    pub every_images: u64,
    /// Shortest time from one image to the next.
    pub interval: Duration,
}

/// Sees every image that is handed over, before all consumers and without a queue; so it must be quick.
pub trait ImageObserver: Send + Sync {
    /// A run or series begins.
    fn start(&self, start: &SeriesStart);
    /// An image.
    fn image(&self, image: &CommittedImage);
}

/// What a consumer gets: for each series its start, its images, and its end.
#[derive(Clone, Debug)]
pub enum Item {
    /// A series begins.
    Start(Arc<SeriesStart>),
    /// A position of the series.
    Image(Arc<CommittedImage>),
    /// The series has ended.
    End(Arc<SeriesEnd>),
}

/// How well a consumer keeps up. Written by the two sides of its queue, read by any thread.
#[derive(Debug, Default)]
pub struct OutputQueueStats {
    /// Images that wait or are being taken.
    pub queued: AtomicU64,
    /// Their bytes.
    pub queued_bytes: AtomicU64,
    /// Images handed over since it was added.
    pub delivered: AtomicU64,
    /// Images that it missed since it was added.
    pub skipped: AtomicU64,
    /// Series that it missed as a whole since it was added.
    pub skipped_series: AtomicU64,
    /// Positions between the newest image of the series and the newest that was handed over.
    pub lag_images: AtomicU64,
    /// Time that the writer has waited for it since it was added, in ns.
    pub waited_ns: AtomicU64,
    /// Somebody is there to take images; otherwise the writer does not wait for it.
    pub connected: AtomicBool,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    images: usize,
    bytes: u64,
    /// Images that the reader took and has not finished with.
    held_images: usize,
    held_bytes: u64,
    /// The series as a whole is skipped.
    is_skipping: bool,
    /// The reader is gone.
    is_closed: bool,
    reader_waits: bool,
    writer_waits: bool,
    offered_end: u64,
    taken_end: u64,
    /// When the newest image came into the queue, if it takes selected images only.
    taken_at: Option<Instant>,
}

/// One consumer, seen from the writing side.
pub struct OutputQueue {
    spec: OutputQueueSpec,
    selection: Option<ImageSelection>,
    queue: Mutex<Queue>,
    readable: Condvar,
    writable: Condvar,
    stats: OutputQueueStats,
}

/// The writing side of all output queues; by default without consumers and preview buffer. One thread at a time writes;
/// consumers may be added and removed meanwhile.
#[derive(Default)]
pub struct OutputQueues {
    list: ArcSwap<Vec<Arc<OutputQueue>>>,
    /// The current series, for consumers that are added during it. Its lock also guards changes of the list.
    current: Mutex<Option<Arc<SeriesStart>>>,
    preview: Option<Arc<PreviewBuffer>>,
    observers: OnceLock<Vec<Arc<dyn ImageObserver>>>,
}

/// The reading side of one consumer. Dropping it removes the consumer.
pub struct OutputQueueReader {
    output_queue: Arc<OutputQueue>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The protected data is consistent after every statement, so a panic elsewhere does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OutputQueue {
    fn new(spec: OutputQueueSpec, selection: Option<ImageSelection>) -> Self {
        let stats = OutputQueueStats { connected: AtomicBool::new(true), ..OutputQueueStats::default() };
        // A queue that holds the images of a run allocates nothing during the run.
        let items = VecDeque::with_capacity(if spec.borrows { spec.queue_images.min(1 << 16) + CONTROLS_MAX } else { 0 });
        let queue = Mutex::new(Queue { items, ..Queue::default() });
        Self { spec, selection, queue, readable: Condvar::new(), writable: Condvar::new(), stats }
    }

    /// What was asked for.
    pub fn spec(&self) -> &OutputQueueSpec {
        &self.spec
    }

    /// How it keeps up.
    pub fn stats(&self) -> &OutputQueueStats {
        &self.stats
    }

    fn must_wait(&self) -> bool {
        self.spec.service == ServiceLevel::Reliable && self.stats.connected.load(Ordering::Acquire)
    }

    fn is_full(&self, queue: &Queue, bytes: u64) -> bool {
        let (images, held_bytes) = match self.spec.service {
            // The newest image never waits for images that the reader is still busy with.
            ServiceLevel::Latest => (queue.images, 0),
            ServiceLevel::Reliable | ServiceLevel::ReliableSkip => (queue.images + queue.held_images, queue.held_bytes),
        };
        images > 0 && (images >= self.spec.queue_images || queue.bytes + held_bytes + bytes > self.spec.queue_bytes)
    }

    /// Waits for room until there is some or the wait must end. True if there is room.
    fn room<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        give_up: &dyn Fn() -> bool,
        is_full: impl Fn(&Queue) -> bool,
    ) -> (MutexGuard<'a, Queue>, bool) {
        while is_full(&queue) {
            if queue.is_closed || !self.must_wait() || give_up() {
                return (queue, false);
            }
            self.wake_reader(&mut queue);
            let since = Instant::now();
            queue.writer_waits = true;
            queue = self.writable.wait_timeout(queue, GRAIN).unwrap_or_else(PoisonError::into_inner).0;
            queue.writer_waits = false;
            self.stats.waited_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        (queue, true)
    }

    fn start(&self, start: &Arc<SeriesStart>, give_up: &dyn Fn() -> bool) {
        let controls = |queue: &Queue| queue.items.len() - queue.images;
        // Room is kept for the end of the series, so that the end is always delivered.
        let (mut queue, has_room) = self.room(lock(&self.queue), give_up, |queue| controls(queue) + 2 > CONTROLS_MAX);
        // A consumer that the writer waits for gets every series, also a cancelled one, because it counts each. Each
        // cancel adds at most one series.
        let has_room = has_room || (!queue.is_closed && self.must_wait());
        (queue.offered_end, queue.taken_end) = (0, 0);
        queue.is_skipping = !has_room;
        if has_room {
            queue.items.push_back(Item::Start(Arc::clone(start)));
            self.wake_reader(&mut queue);
        } else {
            self.stats.skipped_series.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if the queue may take this image, as far as that does not depend on time.
    fn selects(&self, image: &CommittedImage) -> bool {
        self.selection.is_none_or(|selection| {
            let is_selected = image.status.has_pixels() && image.number.is_multiple_of(selection.every_images);
            is_selected && self.stats.connected.load(Ordering::Acquire)
        })
    }

    /// `copy`: the queue gets a copy, that which was made for another queue if there is one.
    fn image(
        &self,
        image: &Arc<CommittedImage>,
        bytes: u64,
        give_up: &dyn Fn() -> bool,
        copy: Option<&mut Option<Arc<CommittedImage>>>,
    ) {
        let queue = lock(&self.queue);
        let is_too_soon = |at: Instant| self.selection.is_some_and(|selection| at.elapsed() < selection.interval);
        if queue.taken_at.is_some_and(is_too_soon) {
            return;
        }
        let (mut queue, has_room) = self.room(queue, give_up, |queue| self.is_full(queue, bytes));
        queue.offered_end = image.number + 1;
        if self.spec.service == ServiceLevel::Latest {
            while self.is_full(&queue, bytes) {
                self.drop_oldest(&mut queue);
            }
        }
        let has_room = has_room || self.spec.service == ServiceLevel::Latest;
        let is_taken = |queue: &Queue| has_room && !queue.is_skipping && !queue.is_closed;
        let mut own = None;
        if let Some(copy) = copy.filter(|_| is_taken(&queue)) {
            // Only an image that is taken is copied, and nobody waits for the copy behind the lock. There is room
            // afterwards too, because one thread writes.
            drop(queue);
            own = Some(Arc::clone(copy.get_or_insert_with(|| Arc::new(image.detached()))));
            queue = lock(&self.queue);
        }
        if is_taken(&queue) {
            queue.items.push_back(Item::Image(own.unwrap_or_else(|| Arc::clone(image))));
            queue.images += 1;
            queue.bytes += bytes;
            queue.taken_at = self.selection.map(|_| Instant::now());
        } else {
            self.stats.skipped.fetch_add(1, Ordering::Relaxed);
        }
        self.publish(&queue);
    }

    fn end(&self, end: &Arc<SeriesEnd>) {
        let mut queue = lock(&self.queue);
        if !queue.is_skipping {
            queue.items.push_back(Item::End(Arc::clone(end)));
        }
        self.wake_reader(&mut queue);
    }

    fn drop_oldest(&self, queue: &mut Queue) {
        let Some(at) = queue.items.iter().position(|item| matches!(item, Item::Image(_))) else { return };
        if let Some(Item::Image(image)) = queue.items.remove(at) {
            queue.images -= 1;
            queue.bytes -= image.packed_bytes();
            self.stats.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wake_reader(&self, queue: &mut Queue) {
        if queue.reader_waits && !queue.items.is_empty() {
            queue.reader_waits = false;
            self.readable.notify_one();
        }
    }

    fn publish(&self, queue: &Queue) {
        self.stats.queued.store((queue.images + queue.held_images) as u64, Ordering::Relaxed);
        self.stats.queued_bytes.store(queue.bytes + queue.held_bytes, Ordering::Relaxed);
        self.stats.lag_images.store(queue.offered_end.saturating_sub(queue.taken_end), Ordering::Relaxed);
    }
}

impl OutputQueues {
    /// Without consumers at first. `preview` is the preview buffer.
    pub fn new(preview: Option<Arc<PreviewBuffer>>) -> Self {
        Self { list: ArcSwap::default(), current: Mutex::new(None), preview, observers: OnceLock::new() }
    }

    /// Sets who sees every image, once.
    pub fn observe(&self, observers: Vec<Arc<dyn ImageObserver>>) {
        let _ = self.observers.set(observers);
    }

    /// The preview buffer, if there is one.
    pub fn preview(&self) -> Option<&Arc<PreviewBuffer>> {
        self.preview.as_ref()
    }

    /// Adds a consumer. During a series it first gets the start of the series, then the images from now on.
    pub fn add(&self, spec: OutputQueueSpec) -> OutputQueueReader {
        self.add_queue(OutputQueue::new(spec, None))
    }

    /// Adds a consumer of selected images.
    ///
    /// # Panics
    /// If it wants every 0th image.
    pub fn add_selective(&self, spec: OutputQueueSpec, selection: ImageSelection) -> OutputQueueReader {
        assert!(selection.every_images > 0, "every how many-th image is a number from 1 on");
        self.add_queue(OutputQueue::new(spec, Some(selection)))
    }

    fn add_queue(&self, output_queue: OutputQueue) -> OutputQueueReader {
        let output_queue = Arc::new(output_queue);
        let current = lock(&self.current);
        if let Some(start) = &*current {
            output_queue.start(start, &|| true);
        }
        let mut list = Vec::clone(&self.list.load());
        list.retain(|other| !lock(&other.queue).is_closed);
        list.push(Arc::clone(&output_queue));
        self.list.store(Arc::new(list));
        drop(current);
        OutputQueueReader { output_queue }
    }

    /// Removes the consumer of this name: it gets what is queued and then no more. False if there is none.
    pub fn remove(&self, name: &str) -> bool {
        let _current = lock(&self.current);
        let list = self.list.load();
        let (gone, kept): (Vec<_>, Vec<_>) = list.iter().cloned().partition(|output_queue| output_queue.spec.name == name);
        self.list.store(Arc::new(kept));
        for output_queue in &gone {
            let mut queue = lock(&output_queue.queue);
            queue.is_closed = true;
            queue.reader_waits = false;
            output_queue.readable.notify_one();
            output_queue.writable.notify_all();
        }
        !gone.is_empty()
    }

    /// The current consumers.
    pub fn list(&self) -> Vec<Arc<OutputQueue>> {
        self.list.load().iter().filter(|output_queue| !lock(&output_queue.queue).is_closed).cloned().collect()
    }

    /// Begins a series.
    pub fn start(&self, start: &Arc<SeriesStart>, give_up: &dyn Fn() -> bool) {
        let list = {
            let mut current = lock(&self.current);
            *current = Some(Arc::clone(start));
            self.list.load_full()
        };
        if let Some(preview) = &self.preview {
            preview.start(start);
        }
        self.observers.get().into_iter().flatten().for_each(|observer| observer.start(start));
        list.iter().for_each(|output_queue| output_queue.start(start, give_up));
    }

    /// Hands an image to all consumers. Waits only for connected consumers with [`ServiceLevel::Reliable`] whose queue
    /// is full, and only until `give_up` returns true. Sleeping readers are woken by [`Self::flush`].
    pub fn image(&self, image: &Arc<CommittedImage>, give_up: &dyn Fn() -> bool) {
        self.hand_over(image, false, give_up);
    }

    /// Hands over an image in a buffer that the run uses again when nobody holds the image any more. A consumer that
    /// may hold images for long gets a copy, and the preview buffer gives the image back when the run asks for it.
    pub fn lend(&self, image: &Arc<CommittedImage>, give_up: &dyn Fn() -> bool) {
        self.hand_over(image, true, give_up);
    }

    fn hand_over(&self, image: &Arc<CommittedImage>, is_lent: bool, give_up: &dyn Fn() -> bool) {
        let (bytes, mut copy) = (image.packed_bytes(), None);
        self.observers.get().into_iter().flatten().for_each(|observer| observer.image(image));
        if let Some(preview) = &self.preview {
            preview.image(image, bytes, is_lent);
        }
        for output_queue in self.list.load().iter().filter(|output_queue| output_queue.selects(image)) {
            let is_copied = is_lent && !output_queue.spec.borrows;
            output_queue.image(image, bytes, give_up, is_copied.then_some(&mut copy));
        }
    }

    /// The run has waited so long for the images that its sinks hold.
    pub(crate) fn note_wait(&self, waited: Duration) {
        for output_queue in self.list.load().iter().filter(|output_queue| output_queue.spec.borrows) {
            output_queue.stats.waited_ns.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Wakes readers; to be called after each batch of images.
    pub fn flush(&self) {
        for output_queue in self.list.load().iter() {
            output_queue.wake_reader(&mut lock(&output_queue.queue));
        }
    }

    /// Ends the series; does nothing if none has begun.
    pub fn end(&self, end: &Arc<SeriesEnd>) {
        let list = {
            let mut current = lock(&self.current);
            if current.take().is_none() {
                return;
            }
            self.list.load_full()
        };
        list.iter().for_each(|output_queue| output_queue.end(end));
    }
}

impl OutputQueueReader {
    /// Appends the waiting items to `into`, at most half of the queue, so that the writer can fill the other half
    /// meanwhile. Images of the previous call now count as finished. If nothing waits, sleeps until something does, at
    /// most `timeout`. False when the consumer was removed and everything has been taken.
    pub fn take(&mut self, timeout: Duration, into: &mut Vec<Item>) -> bool {
        let (output_queue, until) = (&*self.output_queue, Instant::now() + timeout);
        let mut queue = lock(&output_queue.queue);
        (queue.held_images, queue.held_bytes) = (0, 0);
        if queue.writer_waits {
            output_queue.writable.notify_all();
        }
        if queue.items.is_empty() {
            // The statistics must be right while this thread sleeps.
            output_queue.publish(&queue);
        }
        while queue.items.is_empty() && !queue.is_closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue.reader_waits = true;
            queue = output_queue.readable.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
            queue.reader_waits = false;
        }
        let (images_max, bytes_max) = (output_queue.spec.queue_images.div_ceil(2), output_queue.spec.queue_bytes / 2);
        while queue.held_images < images_max && (queue.held_images == 0 || queue.held_bytes < bytes_max) {
            let Some(item) = queue.items.pop_front() else { break };
            if let Item::Image(image) = &item {
                let bytes = image.packed_bytes();
                (queue.images, queue.bytes) = (queue.images - 1, queue.bytes - bytes);
                (queue.held_images, queue.held_bytes) = (queue.held_images + 1, queue.held_bytes + bytes);
                queue.taken_end = image.number + 1;
                output_queue.stats.delivered.fetch_add(1, Ordering::Relaxed);
            }
            into.push(item);
        }
        output_queue.publish(&queue);
        !(queue.is_closed && queue.items.is_empty())
    }

    /// Sets whether anybody is connected at the other end. While nobody is, the writer does not wait for this consumer.
    pub fn set_connected(&self, is_connected: bool) {
        self.output_queue.stats.connected.store(is_connected, Ordering::Release);
    }

    /// Most items of one call of [`Self::take`], of a queue for which memory is reserved; else 0.
    pub(crate) fn batch_max(&self) -> usize {
        let spec = &self.output_queue.spec;
        if spec.borrows { spec.queue_images.div_ceil(2).min(1 << 16) + CONTROLS_MAX } else { 0 }
    }

    /// The queue, seen from the writing side.
    pub fn output_queue(&self) -> &Arc<OutputQueue> {
        &self.output_queue
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.output_queue.spec.name
    }

    /// How it keeps up.
    pub fn stats(&self) -> &OutputQueueStats {
        &self.output_queue.stats
    }
}

impl Drop for OutputQueueReader {
    fn drop(&mut self) {
        let mut queue = lock(&self.output_queue.queue);
        queue.is_closed = true;
        queue.items.clear();
        (queue.images, queue.bytes, queue.held_images, queue.held_bytes) = (0, 0, 0, 0);
        self.output_queue.stats.connected.store(false, Ordering::Release);
        self.output_queue.publish(&queue);
        self.output_queue.writable.notify_all();
    }
}

#[cfg(test)]
#[path = "output_queue_tests.rs"]
mod tests;
