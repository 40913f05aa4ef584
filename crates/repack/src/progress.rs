//! The progress of a repacking, for the program that shows it.

use std::time::Instant;

/// How far a repacking is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Images written or compared.
    pub images_done: u64,
    /// Images in all.
    pub images: u64,
    /// Bytes of their pixels.
    pub bytes: u64,
    /// When it began.
    pub started: Instant,
}

/// Counts images and shows the progress after each.
pub(super) struct Show<'a> {
    pub(super) progress: Progress,
    pub(super) show: &'a mut dyn FnMut(&Progress),
}

impl Show<'_> {
    pub(super) fn image(&mut self, bytes: usize) {
        let progress = &mut self.progress;
        progress.images_done = (progress.images_done + 1).min(progress.images);
        progress.bytes += bytes as u64;
        (self.show)(progress);
    }
}
