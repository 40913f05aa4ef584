//! The preview buffer: the newest images, kept for consumers that ask now and then.

use konkordia_core::image::CommittedImage;
use konkordia_core::results::ImageResults;
use konkordia_core::series::SeriesStart;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Entries for which memory is reserved at once.
const IMAGES_RESERVED: usize = 1024;

/// An image with the series it belongs to.
#[derive(Clone, Debug)]
pub struct PreviewImage {
    /// Number of the series since the buffer was made, from 1. It distinguishes two series that have the same number.
    pub series: u64,
    /// The start of its series.
    pub start: Arc<SeriesStart>,
    /// The image.
    pub image: Arc<CommittedImage>,
    /// When it was committed.
    pub committed: Instant,
}

#[derive(Clone)]
struct Entry {
    preview_image: PreviewImage,
    bytes: u64,
    /// The image is in a buffer of the run.
    is_lent: bool,
}

impl Entry {
    /// The image in memory of its own, because the caller may hold it for long.
    fn detached(self) -> PreviewImage {
        let Self { mut preview_image, is_lent, .. } = self;
        if is_lent {
            preview_image.image = Arc::new(preview_image.image.detached());
        }
        preview_image
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
        self.images.iter().rev().find(|entry| entry.preview_image.image.number == number)
    }
}

/// A ring of the newest images that have pixels, bounded in number and bytes. Images of the previous series stay until
/// newer ones replace them. It copies nothing and unpacks nothing while nobody looks. A
/// run gets the memory of its images back whenever it needs it, at most after the copy for one who looks.
pub struct PreviewBuffer {
    images_max: usize,
    bytes_max: u64,
    kept: Mutex<Kept>,
}

impl PreviewBuffer {
    /// For at most `images_max` images of at most `bytes_max` bytes together. The newest image is kept however large it
    /// is, unless `images_max` is 0.
    pub fn new(images_max: usize, bytes_max: u64) -> Self {
        let images = VecDeque::with_capacity(images_max.min(IMAGES_RESERVED) + 1);
        Self { images_max, bytes_max, kept: Mutex::new(Kept { images, ..Kept::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
        let preview_image = PreviewImage { series: kept.series, start, image: Arc::clone(image), committed: Instant::now() };
        kept.bytes += bytes;
        kept.images.push_back(Entry { preview_image, bytes, is_lent });
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
            let copy = entry.clone().detached();
            let is_it = |other: &&mut Entry| Arc::ptr_eq(&other.preview_image.image, &entry.preview_image.image);
            if let Some(kept) = self.lock().images.iter_mut().find(is_it) {
                (kept.preview_image, kept.is_lent) = (copy, false);
            }
        }
    }

    /// The start of the newest series.
    pub fn series(&self) -> Option<Arc<SeriesStart>> {
        self.lock().start.clone()
    }

    /// The newest image.
    pub fn newest(&self) -> Option<PreviewImage> {
        // The lock is released before an image is copied.
        let entry = self.lock().images.back().cloned();
        entry.map(Entry::detached)
    }

    /// The results of the newest image. Copies no pixels.
    pub fn newest_results(&self) -> Option<ImageResults> {
        self.lock().images.back().map(|entry| entry.preview_image.image.results.clone())
    }

    /// The image at this position, of the newest series that still has it in the buffer.
    pub fn image_at(&self, number: u64) -> Option<PreviewImage> {
        let entry = self.lock().find(number).cloned();
        entry.map(Entry::detached)
    }

    /// Time since the image at this position was committed.
    pub fn age(&self, number: u64) -> Option<Duration> {
        self.lock().find(number).map(|entry| entry.preview_image.committed.elapsed())
    }

    /// Positions of the newest series that are kept, oldest first.
    pub fn numbers(&self) -> Vec<u64> {
        let kept = self.lock();
        let of_series = kept.images.iter().filter(|entry| entry.preview_image.series == kept.series);
        of_series.map(|entry| entry.preview_image.image.number).collect()
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
    }
}
