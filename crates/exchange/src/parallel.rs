//! Progress of work on many images.

use std::time::Instant;

/// How far the work is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Images that are done, of those that are to be done now.
    pub images_done: u64,
    /// Images that are to be done.
    pub images: u64,
    /// Bytes of the pixels that are done.
    pub bytes: u64,
    /// When it began.
    pub started: Instant,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new(images: u64) -> Self {
        Self { images_done: 0, images, bytes: 0, started: Instant::now() }
    }

    /// One more image is done.
    pub fn add(&mut self, bytes: u64) {
        (self.images_done, self.bytes) = (self.images_done + 1, self.bytes + bytes);
    }
}

/// Threads where nobody says how many.
pub fn all_processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Nanoseconds of a clock that never goes back.
pub fn now_ns() -> u64 {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
