//! Anonymous memory, in huge pages where the kernel has them, touched when it is made.

use std::io;
use std::ptr::NonNull;

/// Anonymous private memory, zeroed and resident. Freed on drop.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory without thread affinity; who may touch which bytes is decided by the ring.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself hands out only a raw pointer.
unsafe impl Sync for Mapping {}

const PAGE_BYTES: usize = 4096;

impl Mapping {
    /// Maps and touches `bytes` (at least one page).
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave a null address"))?;
        // SAFETY: the range was mapped above; the advice does not change its content, and its failure (no huge pages)
        // changes only speed. Miri does not know it.
        #[cfg(not(miri))]
        unsafe {
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE)
        };
        for offset in (0..bytes).step_by(PAGE_BYTES) {
            // SAFETY: `offset < bytes`, all of which is mapped, writable and not yet shared with anybody.
            unsafe { start.as_ptr().add(offset).write_volatile(0) };
        }
        Ok(Self { start, bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped, and the owner is gone, so nobody holds a pointer into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
