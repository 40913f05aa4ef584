//! Cursors: how far each role has come, and how the role behind it is woken.

use std::time::Duration;

use crate::sync::{AtomicU64, OnceLock, Ordering, Part, Thread, current, fence, kept, park_timeout};

/// The first image that a role has not finished. Only its owner moves it, upwards; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Cursor(AtomicU64);

impl Cursor {
    /// Everything below is finished and visible to the caller.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(if kept(Part::CursorAcquire) { Ordering::Acquire } else { Ordering::Relaxed })
    }

    /// Publishes that everything below `image` is finished.
    #[inline]
    pub(crate) fn set(&self, image: u64) {
        debug_assert!(self.0.load(Ordering::Relaxed) <= image, "cursors only move up");
        self.0.store(image, if kept(Part::CursorRelease) { Ordering::Release } else { Ordering::Relaxed });
    }
}

/// The lowest of some cursors: what all of their owners have finished. No cursor at all means no bound.
#[inline]
pub fn lowest(cursors: &[Cursor]) -> u64 {
    cursors.iter().map(Cursor::get).min().unwrap_or(u64::MAX)
}

/// Wakes one thread. The sleeper looks at its cursors again after each wake-up and at the latest after its time-out.
/// No wake-up is lost: after its first sleep a thread is known here, and a wake-up before the next sleep ends that
/// sleep. Before the first one, two fences see to it that the sleeper sees the cursor or the other side the sleeper.
#[derive(Debug, Default)]
pub struct Bell(OnceLock<Thread>);

impl Bell {
    /// Called by the thread that will sleep, before it looks at its cursors.
    pub(crate) fn answer_here(&self) {
        if self.0.get().is_none() {
            self.0.get_or_init(current);
            first_sleep_fence();
        }
    }

    /// Wakes the sleeper, if there is one. Called after a cursor was moved.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.0.get().is_none() {
            first_sleep_fence();
        }
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }

    /// Sleeps until rung or until `timeout`.
    pub(crate) fn sleep(&self, timeout: Duration) {
        self.answer_here();
        park_timeout(timeout);
    }
}

#[cold]
fn first_sleep_fence() {
    if kept(Part::FirstSleep) {
        fence(Ordering::SeqCst);
    }
}
