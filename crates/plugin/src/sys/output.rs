//! Memory that a filter hands to libhdf5, which frees it with `free`.

use std::ptr::NonNull;

/// A huge page of Linux on the processors that this program is built for.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that grow up to a fixed capacity, in memory of `malloc`.
pub struct Output {
    start: NonNull<u8>,
    /// Bytes from the start that were written; never more than `capacity`.
    bytes: usize,
    capacity: usize,
}

impl Output {
    /// Room for `capacity` bytes; `None` if there is not so much memory.
    pub fn new(capacity: usize) -> Option<Self> {
        if capacity >= HUGE_PAGE_BYTES {
            return Self::of_huge_pages(capacity);
        }
        // SAFETY: `malloc` takes any size; a length of 0 is made 1, so that null always means that there is no memory.
        let start = unsafe { libc::malloc(capacity.max(1)) };
        Some(Self { start: NonNull::new(start.cast())?, bytes: 0, capacity })
    }

    /// Memory for which the kernel is asked for huge pages: a new buffer is touched page by page for the first time,
    /// which otherwise takes as long as decoding.
    fn of_huge_pages(capacity: usize) -> Option<Self> {
        let mut start = std::ptr::null_mut();
        // SAFETY: the alignment is a power of two and a multiple of a pointer; memory of `posix_memalign` is freed by
        // `free`. The advice changes nothing that anybody sees and covers only whole pages of this memory.
        unsafe {
            if libc::posix_memalign(&mut start, HUGE_PAGE_BYTES, capacity) != 0 {
                return None;
            }
            libc::madvise(start, capacity / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, libc::MADV_HUGEPAGE);
        }
        Some(Self { start: NonNull::new(start.cast())?, bytes: 0, capacity })
    }

    /// The next `bytes` bytes, all 0, to be written.
    ///
    /// # Panics
    /// If that is more than the capacity.
    pub fn next(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.capacity - self.bytes, "{bytes} bytes more than the room for {}", self.capacity);
        // SAFETY: `bytes` bytes from there lie within the memory (asserted above), which belongs to this value alone;
        // they are set here before anybody reads them, and the borrow ends before the next call.
        let part = unsafe {
            let from = self.start.as_ptr().add(self.bytes);
            from.write_bytes(0, bytes);
            std::slice::from_raw_parts_mut(from, bytes)
        };
        self.bytes += bytes;
        part
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.capacity - self.bytes, "{} bytes do not fit", bytes.len());
        // SAFETY: the target lies within the memory (asserted above), which belongs to this value alone, so that it
        // does not overlap with the source.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(self.bytes), bytes.len()) };
        self.bytes += bytes.len();
    }

    /// What was written.
    pub fn written(&self) -> &[u8] {
        // SAFETY: `bytes` bytes from the start were written by `next` or `append`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Takes over memory in which `bytes` bytes of at least that many are filled; `None` for null.
    ///
    /// # Safety
    /// The memory is of `malloc`, nobody else frees it, and its first `bytes` bytes were written.
    pub(super) unsafe fn from_raw(start: *mut u8, bytes: usize, capacity: usize) -> Option<Self> {
        Some(Self { start: NonNull::new(start)?, bytes, capacity: capacity.max(bytes) })
    }

    /// The memory, which the caller is to free, the bytes that were written, and the capacity.
    pub(super) fn into_raw(self) -> (NonNull<u8>, usize, usize) {
        let parts = (self.start, self.bytes, self.capacity);
        std::mem::forget(self);
        parts
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // SAFETY: memory of `malloc` (see `new`), freed once: `into_raw` forgets the value.
        unsafe { libc::free(self.start.as_ptr().cast()) };
    }
}
