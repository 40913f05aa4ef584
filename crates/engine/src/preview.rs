//! The preview buffer: the newest images, kept for consumers that ask now and then.

use konkordia_core::series::{SeriesImage, SeriesStart};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An image with the series it belongs to.
#[derive(Clone, Debug)]
pub struct PreviewImage {
    /// Number of the series since the buffer was made, from 1. It distinguishes two series that have the same number.
    pub series: u64,
    /// The start of its series.
    pub start: Arc<SeriesStart>,
    /// The image.
    pub image: Arc<SeriesImage>,
}

#[derive(Default)]
struct Kept {
    images: VecDeque<(PreviewImage, u64)>,
    bytes: u64,
    series: u64,
    start: Option<Arc<SeriesStart>>,
}

/// A ring of the newest images that have pixels, bounded in number and bytes. Images of the previous series stay until
/// newer ones replace them.
pub struct PreviewBuffer {
    images_max: usize,
    bytes_max: u64,
    kept: Mutex<Kept>,
}

impl PreviewBuffer {
    /// For at most `images_max` images of at most `bytes_max` bytes together. The newest image is kept however large it
    /// is, unless `images_max` is 0.
    pub fn new(images_max: usize, bytes_max: u64) -> Self {
        Self { images_max, bytes_max, kept: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self, start: &Arc<SeriesStart>) {
        let mut kept = self.lock();
        kept.series += 1;
        kept.start = Some(Arc::clone(start));
    }

    pub(crate) fn image(&self, image: &Arc<SeriesImage>, bytes: u64) {
        if !image.status.has_pixels() || self.images_max == 0 {
            return;
        }
        let mut kept = self.lock();
        let Some(start) = kept.start.clone() else { return };
        kept.bytes += bytes;
        let preview_image = PreviewImage { series: kept.series, start, image: Arc::clone(image) };
        kept.images.push_back((preview_image, bytes));
        while kept.images.len() > self.images_max || (kept.bytes > self.bytes_max && kept.images.len() > 1) {
            let Some((_, bytes)) = kept.images.pop_front() else { break };
            kept.bytes -= bytes;
        }
    }

    /// The start of the newest series.
    pub fn series(&self) -> Option<Arc<SeriesStart>> {
        self.lock().start.clone()
    }

    /// The newest image.
    pub fn newest(&self) -> Option<PreviewImage> {
        self.lock().images.back().map(|(preview_image, _)| preview_image.clone())
    }

    /// The image at this position, of the newest series that still has it in the buffer.
    pub fn image_at(&self, number: u64) -> Option<PreviewImage> {
        let kept = self.lock();
        kept.images
            .iter()
            .rev()
            .find(|(preview_image, _)| preview_image.image.number == number)
            .map(|(preview_image, _)| preview_image.clone())
    }

    /// Positions of the newest series that are kept, oldest first.
    pub fn numbers(&self) -> Vec<u64> {
        let kept = self.lock();
        let of_series = kept.images.iter().filter(|(preview_image, _)| preview_image.series == kept.series);
        of_series.map(|(preview_image, _)| preview_image.image.number).collect()
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
