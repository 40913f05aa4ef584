//! Cursors: how far each role has come, and how the role behind it is woken.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The first image that a role has not finished. Only its owner moves it, upwards; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Cursor(AtomicU64);

impl Cursor {
    /// Everything below is finished and visible to the caller.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Publishes that everything below `image` is finished.
    #[inline]
    pub(crate) fn set(&self, image: u64) {
        debug_assert!(self.0.load(Ordering::Relaxed) <= image, "cursors only move up");
        self.0.store(image, Ordering::Release);
    }
}

/// The lowest of some cursors: what all of their owners have finished. No cursor at all means no bound.
#[inline]
pub fn lowest(cursors: &[Cursor]) -> u64 {
    cursors.iter().map(Cursor::get).min().unwrap_or(u64::MAX)
}

/// Wakes one thread. The sleeper looks at its cursors again after each wake-up and at the latest after its time-out.
#[derive(Debug, Default)]
pub struct Bell(OnceLock<Thread>);

impl Bell {
    /// Called once by the thread that will sleep.
    pub(crate) fn answer_here(&self) {
        self.0.get_or_init(std::thread::current);
    }

    /// Wakes the sleeper, if there is one.
    #[inline]
    pub(crate) fn ring(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }

    /// Sleeps until rung or until `timeout`.
    pub(crate) fn sleep(&self, timeout: Duration) {
        self.answer_here();
        std::thread::park_timeout(timeout);
    }
}
