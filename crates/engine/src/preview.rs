//! The preview buffer: the newest images, kept for consumers that ask now and then.

use crate::plane::SharedPlanes;
use konkordia_core::image::CommittedImage;
use konkordia_core::latency::Stage;
use konkordia_core::results::ImageResults;
use konkordia_core::series::SeriesStart;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Entries for which memory is reserved at once.
const IMAGES_RESERVED: usize = 1024;

/// An image of the buffer.
#[derive(Clone)]
struct Entry {
    /// Number of its series since the buffer was made, from 1. It distinguishes two series that have the same number.
    series: u64,
    start: Arc<SeriesStart>,
    image: Arc<CommittedImage>,
    committed: Instant,
    bytes: u64,
    /// The image is in a buffer of the run.
    is_lent: bool,
}

impl Entry {
    /// The image in memory of its own, because the caller may hold it for long.
    fn detached(&self) -> Arc<CommittedImage> {
        if self.is_lent { Arc::new(self.image.detached()) } else { Arc::clone(&self.image) }
    }
}

#[derive(Default)]
struct Kept {
    images: VecDeque<Entry>,
    bytes: u64,
    series: u64,
    start: Option<Arc<SeriesStart>>,
}

impl Kept {
    fn drop_oldest(&mut self) {
        if let Some(entry) = self.images.pop_front() {
            self.bytes -= entry.bytes;
        }
    }

    fn find(&self, number: u64) -> Option<&Entry> {
        self.images.iter().rev().find(|entry| entry.image.number == number)
    }
}

/// The newest image that somebody asked for, with its pixels.
struct Looked {
    /// Number of its series, see [`Entry::series`].
    series: u64,
    planes: Arc<SharedPlanes>,
    /// It was the newest image at this time.
    newest_at: Instant,
    /// When somebody asked for it the last time.
    asked: Instant,
}

impl Looked {
    fn is(&self, entry: &Entry) -> bool {
        (self.series, self.planes.image().number) == (entry.series, entry.image.number)
    }
}

/// A ring of the newest images that have pixels, bounded in number and bytes. Images of the previous series stay until
/// newer ones replace them. It copies nothing and unpacks nothing while nobody looks. A
/// run gets the memory of its images back whenever it needs it, at most after the copy for one who looks.
///
/// Whoever asks for pixels gets them from [`PreviewBuffer::look`], which keeps one image with its unpacked pixels for
/// all who ask, until [`PreviewBuffer::forget_pixels`].
pub struct PreviewBuffer {
    images_max: usize,
    bytes_max: u64,
    kept: Mutex<Kept>,
    /// Never locked by those who commit images. Locked before `kept`.
    looked: Mutex<Option<Looked>>,
}

impl PreviewBuffer {
    /// For at most `images_max` images of at most `bytes_max` bytes together. The newest image is kept however large it
    /// is, unless `images_max` is 0.
    pub fn new(images_max: usize, bytes_max: u64) -> Self {
        let images = VecDeque::with_capacity(images_max.min(IMAGES_RESERVED) + 1);
        let kept = Mutex::new(Kept { images, ..Kept::default() });
        Self { images_max, bytes_max, kept, looked: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_looked(&self) -> MutexGuard<'_, Option<Looked>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self, start: &Arc<SeriesStart>) {
        let mut kept = self.lock();
        kept.series += 1;
        kept.start = Some(Arc::clone(start));
    }

    pub(crate) fn image(&self, image: &Arc<CommittedImage>, bytes: u64, is_lent: bool) {
        if !image.status.has_pixels() || self.images_max == 0 {
            return;
        }
        let mut kept = self.lock();
        let Some(start) = kept.start.clone() else { return };
        start.meter.reached(Stage::Seen, image.received_ns);
        let entry = Entry { series: kept.series, start, image: Arc::clone(image), committed: Instant::now(), bytes, is_lent };
        kept.bytes += bytes;
        kept.images.push_back(entry);
        while kept.images.len() > self.images_max || (kept.bytes > self.bytes_max && kept.images.len() > 1) {
            kept.drop_oldest();
        }
    }

    /// Gives the oldest image back that is in a buffer of the run, and forgets those before it. False if there is none.
    pub(crate) fn give_back(&self) -> bool {
        let mut kept = self.lock();
        let Some(at) = kept.images.iter().position(|entry| entry.is_lent) else { return false };
        (0..=at).for_each(|_| kept.drop_oldest());
        true
    }

    /// At the end of a run: copies the images that are in its buffers, so that these can be freed.
    pub(crate) fn keep_copies(&self) {
        let lent: Vec<Entry> = self.lock().images.iter().filter(|entry| entry.is_lent).cloned().collect();
        for entry in lent {
            // The lock is not held while an image is copied.
            let copy = entry.detached();
            let is_it = |other: &&mut Entry| Arc::ptr_eq(&other.image, &entry.image);
            if let Some(kept) = self.lock().images.iter_mut().find(is_it) {
                (kept.image, kept.is_lent) = (copy, false);
            }
        }
    }

    /// The start of the newest series.
    pub fn series(&self) -> Option<Arc<SeriesStart>> {
        self.lock().start.clone()
    }

    /// The results of the newest image. Copies no pixels.
    pub fn newest_results(&self) -> Option<ImageResults> {
        self.lock().images.back().map(|entry| entry.image.results.clone())
    }

    /// The image at this position, of the newest series that still has it in the buffer; without a number, the newest
    /// image. It is in memory of its own, so it may be held for long.
    ///
    /// All who ask for the newest image share one copy of it, with pixels that are unpacked once. `asked` is when the
    /// caller began to ask: any image will do that was the newest at some time since then. So those who ask together
    /// cost one unpacking, also while each of them finds another newest image.
    pub fn look(&self, number: Option<u64>, asked: Instant) -> Option<Arc<SharedPlanes>> {
        let mut looked = self.lock_looked();
        let now = Instant::now();
        let entry = match number {
            Some(number) => self.lock().find(number).cloned(),
            None => self.lock().images.back().cloned(),
        }?;
        if let Some(looked) = looked.as_mut()
            && (looked.is(&entry) || (number.is_none() && looked.newest_at >= asked))
        {
            looked.asked = now;
            return Some(Arc::clone(&looked.planes));
        }
        // Others who ask wait for this copy. Who commits images does not.
        let (series, image) = (entry.series, entry.detached());
        let planes = Arc::new(SharedPlanes::new(entry.start, image));
        // The run has its buffer again.
        drop(entry.image);
        let old = match number {
            Some(_) => None,
            None => looked.replace(Looked { series, planes: Arc::clone(&planes), newest_at: now, asked: now }),
        };
        // Its memory may be large.
        drop(looked);
        drop(old);
        Some(planes)
    }

    /// Frees the pixels that [`Self::look`] keeps if nobody has asked for them for so long.
    pub fn forget_pixels(&self, unasked_for: Duration) {
        let old = self.lock_looked().take_if(|looked| looked.asked.elapsed() >= unasked_for);
        drop(old);
    }

    /// Bytes of the newest image: as it is packed, and unpacked.
    pub fn newest_bytes(&self) -> Option<(u64, u64)> {
        let kept = self.lock();
        let image = &kept.images.back()?.image;
        Some((image.packed_bytes(), image.unpacked_bytes()))
    }

    /// Time since the image at this position was committed.
    pub fn age(&self, number: u64) -> Option<Duration> {
        self.lock().find(number).map(|entry| entry.committed.elapsed())
    }

    /// Positions of the newest series that are kept, oldest first.
    pub fn numbers(&self) -> Vec<u64> {
        let kept = self.lock();
        let of_series = kept.images.iter().filter(|entry| entry.series == kept.series);
        of_series.map(|entry| entry.image.number).collect()
    }

    /// Bytes of pixels that are kept.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Forgets all images.
    pub fn clear(&self) {
        let mut kept = self.lock();
        kept.images.clear();
        kept.bytes = 0;
        drop(kept);
        self.forget_pixels(Duration::ZERO);
    }
}
