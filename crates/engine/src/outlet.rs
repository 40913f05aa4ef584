//! The fan-out: series go to any number of consumers, each behind a bounded queue of its own and with its own level of service.
//! A slow consumer costs only itself, unless it is one that everybody has to wait for. Read [`Outlets`] first.

use arc_swap::ArcSwap;
use konkordia_core::series::{SeriesEnd, SeriesImage, SeriesStart};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crate::tap::{Tap, Tapped};

/// Starts and ends that a queue holds at most; a consumer that is further behind misses whole series.
pub const CONTROLS_MAX: usize = 64;
/// How often a writer that waits looks whether it is to give up.
const GRAIN: Duration = Duration::from_millis(20);

/// What happens when the queue of a reliable consumer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// Everybody waits for it, as long as it is connected.
    Wait,
    /// It misses images, which are counted.
    Skip,
}

/// What a consumer may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Every image, in order.
    Reliable {
        /// Unless it is too slow.
        on_full: OnFull,
    },
    /// The newest image; older ones that it did not take make room.
    Latest,
}

/// A consumer to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutletSpec {
    /// Its name in reports, unlike that of the others.
    pub name: String,
    /// What it may expect.
    pub service: Service,
    /// Images that may wait for it, at least 1.
    pub queue_images: usize,
    /// Bytes of pixels that may wait for it; one image always may.
    pub queue_bytes: u64,
}

/// What a consumer gets. Ends follow starts, with the images in between.
#[derive(Clone, Debug)]
pub enum Item {
    /// A series begins.
    Start(Arc<SeriesStart>),
    /// A position of the series.
    Image(Arc<SeriesImage>),
    /// The series has ended.
    End(Arc<SeriesEnd>),
}

/// How a consumer keeps up. Written by its two sides, read by anybody.
#[derive(Debug, Default)]
pub struct OutletStats {
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
    /// Time that everybody has waited for it since it was added, in ns.
    pub waited_ns: AtomicU64,
    /// Somebody is there to take images; else nobody waits for it.
    pub connected: AtomicBool,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    images: usize,
    bytes: u64,
    /// What the reader took and has not finished with.
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
}

/// One consumer, seen from the writing side.
pub struct Outlet {
    spec: OutletSpec,
    queue: Mutex<Queue>,
    readable: Condvar,
    writable: Condvar,
    stats: OutletStats,
}

/// The writing side: one thread at a time writes; consumers come and go meanwhile.
pub struct Outlets {
    list: ArcSwap<Vec<Arc<Outlet>>>,
    /// The series of this moment, for those who come late. Also the lock of changes to the list.
    current: Mutex<Option<Arc<SeriesStart>>>,
    tap: Option<Arc<Tap>>,
}

/// The reading side of one consumer. Dropping it removes the consumer.
pub struct OutletReader {
    outlet: Arc<Outlet>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is protected is consistent after every statement: a panic elsewhere does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outlet {
    fn new(spec: OutletSpec) -> Self {
        let stats = OutletStats { connected: AtomicBool::new(true), ..OutletStats::default() };
        Self { spec, queue: Mutex::default(), readable: Condvar::new(), writable: Condvar::new(), stats }
    }

    /// What was asked for.
    pub fn spec(&self) -> &OutletSpec {
        &self.spec
    }

    /// How it keeps up.
    pub fn stats(&self) -> &OutletStats {
        &self.stats
    }

    fn must_wait(&self) -> bool {
        self.spec.service == Service::Reliable { on_full: OnFull::Wait } && self.stats.connected.load(Ordering::Acquire)
    }

    fn is_full(&self, queue: &Queue, bytes: u64) -> bool {
        let (images, held_bytes) = match self.spec.service {
            // The newest image never waits for what the reader is busy with.
            Service::Latest => (queue.images, 0),
            Service::Reliable { .. } => (queue.images + queue.held_images, queue.held_bytes),
        };
        images > 0 && (images >= self.spec.queue_images || queue.bytes + held_bytes + bytes > self.spec.queue_bytes)
    }

    /// Waits for room as long as that makes sense; true if there is some.
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
        // Room for its end is kept, so that this always comes.
        let (mut queue, has_room) = self.room(lock(&self.queue), give_up, |queue| controls(queue) + 2 > CONTROLS_MAX);
        // Who is waited for hears of every series, of a cancelled one too: its account has one for each. Each cancel adds one at most.
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

    fn image(&self, image: &Arc<SeriesImage>, bytes: u64, give_up: &dyn Fn() -> bool) {
        let (mut queue, mut has_room) = self.room(lock(&self.queue), give_up, |queue| self.is_full(queue, bytes));
        queue.offered_end = image.number + 1;
        if self.spec.service == Service::Latest {
            while self.is_full(&queue, bytes) {
                self.drop_oldest(&mut queue);
            }
            has_room = true;
        }
        if !has_room || queue.is_skipping || queue.is_closed {
            self.stats.skipped.fetch_add(1, Ordering::Relaxed);
        } else {
            queue.items.push_back(Item::Image(Arc::clone(image)));
            queue.images += 1;
            queue.bytes += bytes;
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

impl Outlets {
    /// Without consumers; `tap` keeps the newest images for those who ask now and then.
    pub fn new(tap: Option<Arc<Tap>>) -> Self {
        Self { list: ArcSwap::default(), current: Mutex::new(None), tap }
    }

    /// The ring of the newest images, if there is one.
    pub fn tap(&self) -> Option<&Arc<Tap>> {
        self.tap.as_ref()
    }

    /// Adds a consumer. During a series the first thing it gets is the start of the series, then the images from now on.
    pub fn add(&self, spec: OutletSpec) -> OutletReader {
        let outlet = Arc::new(Outlet::new(spec));
        let current = lock(&self.current);
        if let Some(start) = &*current {
            outlet.start(start, &|| true);
        }
        let mut list = Vec::clone(&self.list.load());
        list.retain(|other| !lock(&other.queue).is_closed);
        list.push(Arc::clone(&outlet));
        self.list.store(Arc::new(list));
        drop(current);
        OutletReader { outlet }
    }

    /// Removes the consumer of this name: it gets what is queued and then no more. False if there is none.
    pub fn remove(&self, name: &str) -> bool {
        let _current = lock(&self.current);
        let list = self.list.load();
        let (gone, kept): (Vec<_>, Vec<_>) = list.iter().cloned().partition(|outlet| outlet.spec.name == name);
        self.list.store(Arc::new(kept));
        for outlet in &gone {
            let mut queue = lock(&outlet.queue);
            queue.is_closed = true;
            queue.reader_waits = false;
            outlet.readable.notify_one();
            outlet.writable.notify_all();
        }
        !gone.is_empty()
    }

    /// The consumers of this moment.
    pub fn list(&self) -> Vec<Arc<Outlet>> {
        self.list.load().iter().filter(|outlet| !lock(&outlet.queue).is_closed).cloned().collect()
    }

    /// True if nobody wants images.
    pub fn is_unused(&self) -> bool {
        self.tap.is_none() && self.list.load().is_empty()
    }

    /// Begins a series.
    pub fn start(&self, start: &Arc<SeriesStart>, give_up: &dyn Fn() -> bool) {
        let list = {
            let mut current = lock(&self.current);
            *current = Some(Arc::clone(start));
            self.list.load_full()
        };
        if let Some(tap) = &self.tap {
            tap.start(start);
        }
        list.iter().for_each(|outlet| outlet.start(start, give_up));
    }

    /// Hands out an image. Waits only for consumers that are full, reliable, connected and to be waited for, and not while `give_up` says
    /// so. Readers that sleep are woken by [`Self::flush`].
    pub fn image(&self, image: &Arc<SeriesImage>, give_up: &dyn Fn() -> bool) {
        let bytes = image.packed_bytes();
        if let Some(tap) = &self.tap {
            tap.image(image, bytes);
        }
        for outlet in self.list.load().iter() {
            outlet.image(image, bytes, give_up);
        }
    }

    /// Wakes readers; to be called after each batch of images.
    pub fn flush(&self) {
        for outlet in self.list.load().iter() {
            outlet.wake_reader(&mut lock(&outlet.queue));
        }
    }

    /// Ends the series.
    pub fn end(&self, end: &Arc<SeriesEnd>) {
        let list = {
            let mut current = lock(&self.current);
            *current = None;
            self.list.load_full()
        };
        list.iter().for_each(|outlet| outlet.end(end));
    }
}

impl OutletReader {
    /// Appends what waits to `into`, at most half of the queue, so that the writer has the other half meanwhile; what was taken before is
    /// finished now and counts no more. If nothing waits, sleeps until something does, at most `timeout`. False when the consumer was
    /// removed and everything has been taken.
    pub fn take(&mut self, timeout: Duration, into: &mut Vec<Item>) -> bool {
        let (outlet, until) = (&*self.outlet, Instant::now() + timeout);
        let mut queue = lock(&outlet.queue);
        (queue.held_images, queue.held_bytes) = (0, 0);
        if queue.writer_waits {
            outlet.writable.notify_all();
        }
        if queue.items.is_empty() {
            // Who looks at it while this sleeps sees what is so.
            outlet.publish(&queue);
        }
        while queue.items.is_empty() && !queue.is_closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue.reader_waits = true;
            queue = outlet.readable.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
            queue.reader_waits = false;
        }
        let (images_max, bytes_max) = (outlet.spec.queue_images.div_ceil(2), outlet.spec.queue_bytes / 2);
        while queue.held_images < images_max && (queue.held_images == 0 || queue.held_bytes < bytes_max) {
            let Some(item) = queue.items.pop_front() else { break };
            if let Item::Image(image) = &item {
                let bytes = image.packed_bytes();
                (queue.images, queue.bytes) = (queue.images - 1, queue.bytes - bytes);
                (queue.held_images, queue.held_bytes) = (queue.held_images + 1, queue.held_bytes + bytes);
                queue.taken_end = image.number + 1;
                outlet.stats.delivered.fetch_add(1, Ordering::Relaxed);
            }
            into.push(item);
        }
        outlet.publish(&queue);
        !(queue.is_closed && queue.items.is_empty())
    }

    /// Tells whether anybody is there at the other end. While nobody is, nobody waits for this consumer.
    pub fn set_connected(&self, is_connected: bool) {
        self.outlet.stats.connected.store(is_connected, Ordering::Release);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.outlet.spec.name
    }

    /// How it keeps up.
    pub fn stats(&self) -> &OutletStats {
        &self.outlet.stats
    }
}

impl Drop for OutletReader {
    fn drop(&mut self) {
        let mut queue = lock(&self.outlet.queue);
        queue.is_closed = true;
        queue.items.clear();
        (queue.images, queue.bytes, queue.held_images, queue.held_bytes) = (0, 0, 0, 0);
        self.outlet.stats.connected.store(false, Ordering::Release);
        self.outlet.publish(&queue);
        self.outlet.writable.notify_all();
    }
}

#[cfg(test)]
#[path = "outlet_tests.rs"]
mod tests;
