//! Consumers of whole images: whoever needs all pixels of an image at once, such as analysis, pictures, or a device.
//!
//! Each has an output queue and a thread of its own. Nothing ever waits for it: an image that is not selected costs a
//! comparison, and one that finds the queue full is skipped and counted, before it is copied. The thread unpacks what
//! it takes into one buffer, which is used again for each image. A panic ends only the consumer.

use crate::contain::{Panic, contain};
use crate::output_queue::{ImageSelection, Item, OutputQueue, OutputQueueReader, OutputQueueSpec, OutputQueues};
use crate::plane::{PixelPlane, PlaneBuffer};
use konkordia_core::ports::ServiceLevel;
use konkordia_core::series::{SeriesEnd, SeriesStart};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How often a consumer is asked whether it wants images.
const TICK: Duration = Duration::from_millis(100);

/// Gets the pixels of selected images.
pub trait WholeImageConsumer: Send {
    /// A run or series begins.
    fn start(&mut self, start: &SeriesStart) {
        let _ = start;
    }

    /// A channel of a selected image; all channels come, in their order. While this call lasts, images are skipped when
    /// the queue is full.
    fn plane(&mut self, plane: &PixelPlane<'_>);

    /// The run or series has ended.
    fn end(&mut self, end: &SeriesEnd) {
        let _ = end;
    }

    /// False: no image is wanted now, for example because nobody looks. Asked ten times a second. The queue then takes
    /// no image, and the memory of the plane is given back.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// What a new consumer of whole images asks for.
#[derive(Clone, Debug)]
pub struct WholeImageSpec {
    /// Its name, different from those of all other consumers.
    pub name: String,
    /// The images that it wants.
    pub selection: ImageSelection,
    /// Images that may be in its hands or wait for it, at least 1, each as it is packed. With 1 it gets the next
    /// selected image when it is done with the one before. With more it can be late for so many images without missing
    /// one.
    pub queue_images: usize,
    /// Largest plane; larger ones count as unreadable.
    pub plane_bytes_max: usize,
}

/// A consumer of whole images at work.
pub struct WholeImages {
    output_queue: Arc<OutputQueue>,
    unreadable: Arc<AtomicU64>,
    thread: Option<JoinHandle<Option<Panic>>>,
}

/// Adds a consumer of whole images, with a thread of its own. It ends when it is removed
/// ([`OutputQueues::remove`]).
///
/// # Errors
/// The machine has no threads left.
pub fn spawn(
    output_queues: &OutputQueues,
    spec: WholeImageSpec,
    consumer: impl WholeImageConsumer + 'static,
) -> io::Result<WholeImages> {
    let WholeImageSpec { name, selection, queue_images, plane_bytes_max } = spec;
    let (buffer, thread) = (PlaneBuffer::new(plane_bytes_max), Builder::new().name(format!("out-{name}")));
    let service = ServiceLevel::ReliableSkip;
    let queue = OutputQueueSpec { name, service, queue_images, queue_bytes: u64::MAX, borrows: false };
    let reader = output_queues.add_selective(queue, selection);
    let (output_queue, unreadable) = (Arc::clone(reader.output_queue()), Arc::<AtomicU64>::default());
    let count = Arc::clone(&unreadable);
    let thread = thread.spawn(move || contain(|| run(reader, consumer, buffer, &count)).err())?;
    Ok(WholeImages { output_queue, unreadable, thread: Some(thread) })
}

/// Lends planes until the queue is removed.
fn run(mut reader: OutputQueueReader, mut consumer: impl WholeImageConsumer, mut buffer: PlaneBuffer, unreadable: &AtomicU64) {
    let (mut items, mut start) = (Vec::new(), Arc::<SeriesStart>::default());
    loop {
        let is_wanted = consumer.is_wanted();
        reader.set_connected(is_wanted);
        if !is_wanted {
            buffer.release();
        }
        let is_open = reader.take(TICK, &mut items);
        for item in items.drain(..) {
            match item {
                Item::Start(begun) => {
                    if is_wanted {
                        buffer.reserve(&begun);
                    }
                    consumer.start(&begun);
                    start = begun;
                }
                Item::Image(image) => {
                    for channel in 0..image.channels.len() {
                        match buffer.plane(&start, &image, channel) {
                            Ok(plane) => consumer.plane(&plane),
                            Err(_) => {
                                unreadable.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
                Item::End(end) => consumer.end(&end),
            }
        }
        if !is_open {
            return;
        }
    }
}

impl WholeImages {
    /// Selected images that it has got.
    pub fn seen(&self) -> u64 {
        self.output_queue.stats().delivered.load(Ordering::Relaxed)
    }

    /// Selected images that came while its queue was full.
    pub fn skipped(&self) -> u64 {
        self.output_queue.stats().skipped.load(Ordering::Relaxed)
    }

    /// Channels of images that could not be unpacked.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Waits until it has ended, because it was removed or panicked; returns its panic, once.
    pub fn join(&mut self) -> Option<Panic> {
        // Its panics are contained, so this does not fail.
        self.thread.take()?.join().ok().flatten()
    }
}
