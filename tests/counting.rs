// A counting allocator, for tests that nothing is allocated. A test that includes this file is a binary of its own,
// because the allocator counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // A constant without a destructor, so that looking at it allocates nothing.
    static OF_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        OF_THIS_THREAD.set(OF_THIS_THREAD.get() + 1);
        // SAFETY: the caller's promises are those of this trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the whole process so far, and with them those of the thread that runs the tests.
#[allow(dead_code, reason = "a test counts either the process or one thread")]
pub fn of_the_process() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Allocations of the calling thread so far.
#[allow(dead_code, reason = "a test counts either the process or one thread")]
pub fn of_this_thread() -> u64 {
    OF_THIS_THREAD.get()
}
