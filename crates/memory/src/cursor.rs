//! Cursors: how far each role has come, and how the role behind it is woken.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Count, OnceLock, Ordering, Part, Thread, current, fence, kept, park_timeout, wakes};

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

/// Moves one of several cursors, whose owners must all have passed a frame before the next role may have it. True if
/// frames have become ready by that, so that those who wait for frames must be woken.
///
/// Only the owner that comes last makes a frame ready, and the others need not wake anybody. Of owners that pass a
/// frame at the same moment at least one sees that it is the last: the one whose fence comes last sees the cursors of
/// all.
#[inline]
pub(crate) fn advance(cursors: &[Cursor], own: usize, from: u64, to: u64) -> bool {
    cursors[own].set(to);
    after_move();
    wakes() && lowest(cursors) > from
}

/// Stands between the move of a cursor and the look at who waits for it; the other half is in [`Bell::wait`].
#[inline]
pub(crate) fn after_move() {
    if wakes() && kept(Part::MoveFence) {
        fence(Ordering::SeqCst);
    }
}

/// For what a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Wanted {
    /// It does not sleep.
    Nothing,
    /// Frames, or images, that are ready for it.
    Work,
    /// A place for what it makes.
    Room,
}

/// How often a thread woke up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeups {
    /// And found what it had waited for.
    pub with_work: u64,
    /// And found nothing: its time-out was over, or it was woken in vain.
    pub without_work: u64,
}

/// Wakes one thread, when it sleeps for what has come. Nobody else is woken, and a thread that is awake is left alone.
///
/// No wake-up is lost. The sleeper writes down who it is and what it wants, and then looks once more; whoever brings it
/// moves a cursor and then looks for what is wanted. Between the two steps of either side stands a fence, so at least
/// one of them sees all that the other has done before its fence: the sleeper the cursor, or the other side the
/// sleeper.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    thread: OnceLock<Thread>,
    /// A [`Wanted`].
    wanted: AtomicU32,
    with_work: Count,
    without_work: Count,
}

impl Bell {
    /// Wakes the sleeper, if it sleeps for this. Called after [`advance`] or [`after_move`].
    #[inline]
    pub(crate) fn ring(&self, what: Wanted) {
        if wakes()
            && self.wanted.load(Ordering::Relaxed) == what as u32
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Says how much is ready, and sleeps before if it is nothing: until somebody brings something, or until `timeout`.
    /// `ready` looks at cursors. Called by one thread only.
    pub(crate) fn wait(&self, what: Wanted, timeout: Duration, ready: impl Fn() -> u64) -> u64 {
        let found = ready();
        if found > 0 {
            return found;
        }
        let mut found = 0;
        if wakes() {
            self.thread.get_or_init(current);
            self.wanted.store(what as u32, Ordering::Relaxed);
            if kept(Part::SleepFence) {
                fence(Ordering::SeqCst);
            }
            found = ready();
        }
        if found == 0 {
            park_timeout(timeout);
            found = ready();
            let count = if found > 0 { &self.with_work } else { &self.without_work };
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.wanted.store(Wanted::Nothing as u32, Ordering::Relaxed);
        found
    }

    /// How often the sleeper woke up.
    pub(crate) fn wakeups(&self) -> Wakeups {
        let [with_work, without_work] = [&self.with_work, &self.without_work].map(|count| count.load(Ordering::Relaxed));
        Wakeups { with_work, without_work }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// What a thread finds at its `nth` look; before that it finds nothing.
    fn at_look(nth: u64) -> impl Fn() -> u64 {
        let looks = Cell::new(0);
        move || {
            looks.set(looks.get() + 1);
            u64::from(looks.get() >= nth)
        }
    }

    #[test]
    fn wake_ups_are_counted_by_what_was_found() {
        let bell = Bell::default();
        // There at once, there at the second look, there after the sleep, and not even then.
        let found = [1, 2, 3, 4].map(|nth| bell.wait(Wanted::Work, Duration::ZERO, at_look(nth)));
        assert_eq!(found, [1, 1, 1, 0]);
        assert_eq!(bell.wakeups(), Wakeups { with_work: 1, without_work: 1 });
        assert_eq!(bell.wanted.load(Ordering::Relaxed), Wanted::Nothing as u32);
    }

    #[test]
    fn only_the_last_of_several_makes_frames_ready() {
        let cursors: [Cursor; 3] = Default::default();
        assert!(!advance(&cursors, 0, 0, 2));
        assert!(!advance(&cursors, 1, 0, 1));
        assert!(advance(&cursors, 2, 0, 3), "frame 0");
        assert!(!advance(&cursors, 2, 3, 4));
        assert!(advance(&cursors, 1, 1, 2), "frame 1");
        assert!(!advance(&cursors, 1, 2, 2), "nothing has moved");
    }

    #[test]
    fn a_sleeper_is_woken_for_what_it_wants() {
        let (bell, cursor) = (Bell::default(), Cursor::default());
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let wait = || bell.wait(Wanted::Room, Duration::from_secs(3600), || cursor.get());
                // A sleep may end without a cause.
                std::iter::repeat_with(wait).find(|found| *found > 0)
            });
            while bell.wanted.load(Ordering::Relaxed) != Wanted::Room as u32 {
                std::thread::yield_now();
            }
            bell.ring(Wanted::Work);
            cursor.set(7);
            after_move();
            bell.ring(Wanted::Room);
            assert_eq!(sleeper.join().unwrap(), Some(7));
        });
    }
}
