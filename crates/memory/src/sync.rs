//! What the rings need of threads: atomics, fences, sleeping, and places that several roles touch in turn. With the
//! feature `loom`, which only the models use (`models.rs`), they come from [loom](https://docs.rs/loom), which tries
//! all orders of the threads and all values that the memory model permits. Without it they are those of the standard
//! library: [`Accesses`] has no size and [`kept`] is a constant, so that the shipped code holds nothing of the models.

use std::cell::UnsafeCell;

#[cfg(feature = "loom")]
pub(crate) use modelled::*;
#[cfg(not(feature = "loom"))]
pub(crate) use shipped::*;

/// What the rings rely on between threads. The models leave out one after the other, and must fail each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A cursor is published with what was written before it.
    CursorRelease,
    /// Whoever sees a cursor sees what was written before it.
    CursorAcquire,
    /// The decision on a claim comes with the cursors that it was made from.
    ClaimRelease,
    /// Whoever finds a claim decided sees those cursors.
    ClaimAcquire,
    /// A sealed frame wakes the workers.
    WakeWorkers,
    /// A sealed frame wakes the readers of raw frames.
    WakeFrameReaders,
    /// A finished frame wakes the committer.
    WakeCommitter,
    /// A committed image wakes its reader.
    WakeImageReader,
    /// A taken image wakes the workers that wait for room.
    WakeForRoom,
    /// Whoever moves a cursor then sees who sleeps, and how far the other owners of such cursors are.
    MoveFence,
    /// Whoever falls asleep then sees how far the cursors are.
    SleepFence,
    /// Frames wait for the readers of raw frames before their slots are used again.
    RawHold,
}

/// A number for people. Nothing in the rings depends on it, so the models do not look at it.
pub(crate) use std::sync::atomic::AtomicU64 as Count;

/// A value that roles touch in turn; the cursors say whose turn it is.
pub(crate) struct Place<T> {
    value: UnsafeCell<T>,
    accesses: Accesses,
}

impl<T> Place<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), accesses: Accesses::new(1) }
    }

    /// The value, to be read only.
    #[inline]
    pub(crate) fn to_read(&self) -> *const T {
        self.accesses.read(0);
        self.value.get().cast_const()
    }

    /// The value, to be written.
    #[inline]
    pub(crate) fn to_write(&self) -> *mut T {
        self.accesses.write(0);
        self.value.get()
    }
}

#[cfg(not(feature = "loom"))]
mod shipped {
    use super::Part;
    pub(crate) use std::sync::OnceLock;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::thread::{Thread, current, park_timeout};

    /// False if a model leaves this part out.
    #[inline(always)]
    pub(crate) const fn kept(_part: Part) -> bool {
        true
    }

    /// False in the models of memory, where nobody is woken.
    #[inline(always)]
    pub(crate) const fn wakes() -> bool {
        true
    }

    /// Notes for the models who touches which of some places.
    pub(crate) struct Accesses;

    impl Accesses {
        pub(crate) const fn new(_places: usize) -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) const fn read(&self, _place: usize) {}

        #[inline(always)]
        pub(crate) const fn write(&self, _place: usize) {}
    }

    // What is for the models alone takes no memory.
    const _: () = assert!(size_of::<Accesses>() == 0 && size_of::<super::Place<u64>>() == 8);
}

#[cfg(feature = "loom")]
mod modelled {
    use std::cell::{Cell, UnsafeCell};
    use std::time::Duration;

    use super::Part;
    use loom::sync::atomic::AtomicBool;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    thread_local! {
        /// What the model on this thread leaves out. (A model runs all of its threads on one thread of the system.)
        pub(crate) static LEFT_OUT: Cell<Option<Part>> = const { Cell::new(None) };
        /// Whether sleepers sleep until they are woken, however long it takes. Otherwise nobody is woken, and every
        /// sleep ends by its time-out. The latter is for the models of memory: loom lets a thread that is woken see
        /// all that the waking thread wrote, on which the rings must not rely.
        pub(crate) static SLEEPS_UNTIL_WOKEN: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn kept(part: Part) -> bool {
        LEFT_OUT.get() != Some(part)
    }

    pub(crate) fn wakes() -> bool {
        SLEEPS_UNTIL_WOKEN.get()
    }

    #[derive(Debug)]
    pub(crate) struct Thread(loom::thread::Thread);

    pub(crate) fn current() -> Thread {
        Thread(loom::thread::current())
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            self.0.unpark();
        }
    }

    pub(crate) fn park_timeout(_timeout: Duration) {
        if wakes() {
            loom::thread::park();
        } else {
            loom::thread::yield_now();
        }
    }

    /// As that of the standard library, for one thread that sets it.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        is_set: AtomicBool,
        value: UnsafeCell<Option<T>>,
    }

    impl<T> Default for OnceLock<T> {
        fn default() -> Self {
            Self { is_set: AtomicBool::new(false), value: UnsafeCell::new(None) }
        }
    }

    impl<T> OnceLock<T> {
        pub(crate) fn get(&self) -> Option<&T> {
            // SAFETY: the value is written once, before the flag, on the one thread of the system that runs the model.
            self.is_set.load(Ordering::Acquire).then(|| unsafe { (*self.value.get()).as_ref() }).flatten()
        }

        pub(crate) fn get_or_init(&self, value: impl FnOnce() -> T) -> &T {
            if self.get().is_none() {
                // SAFETY: as above; nobody has a reference to the value before the flag is set.
                unsafe { *self.value.get() = Some(value()) };
                self.is_set.store(true, Ordering::Release);
            }
            self.get().expect("it was just set")
        }
    }

    /// Tells loom who touches which of some places. It fails if two threads touch a place, one of them writing, and
    /// nothing orders them.
    pub(crate) struct Accesses(Box<[loom::cell::UnsafeCell<()>]>);

    impl Accesses {
        pub(crate) fn new(places: usize) -> Self {
            Self((0..places).map(|_| loom::cell::UnsafeCell::new(())).collect())
        }

        pub(crate) fn read(&self, place: usize) {
            self.0[place].with(|_| ());
        }

        pub(crate) fn write(&self, place: usize) {
            self.0[place].with_mut(|_| ());
        }
    }
}
