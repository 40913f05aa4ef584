//! Anonymous memory, in huge pages where the kernel has them, touched when it is made. It may be taken from the huge
//! pages that are reserved.

use konkordia_core::affinity::RESERVED_PAGE_BYTES;
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
const PROTECTION: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
const KIND: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

impl Mapping {
    /// Maps and touches `bytes` (at least one page).
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, PROTECTION, KIND, -1, 0) };
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

    /// As [`Mapping::new`], in huge pages that were reserved (`vm.nr_hugepages`); `None` if there are too few.
    pub(crate) fn reserved(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(RESERVED_PAGE_BYTES)?;
        let kind = KIND | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, PROTECTION, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mapping = Self { start: NonNull::new(start.cast::<u8>())?, bytes };
        // A page that a control group or the permitted nodes do not give would end the process when it is touched; this
        // call touches all of them and fails instead. Kernels before 5.14 do not have it.
        // SAFETY: the range is exactly what was mapped above, and not yet shared with anybody.
        let code = unsafe { libc::madvise(mapping.start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
        (code == 0).then_some(mapping)
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

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn reserved_pages_are_used_if_there_are_enough() {
        // More than any machine has.
        assert!(Mapping::reserved(1 << 46).is_none() && Mapping::reserved(usize::MAX).is_none());
        let Some(mapping) = Mapping::reserved(5) else { return };
        assert_eq!(mapping.bytes(), RESERVED_PAGE_BYTES);
        // SAFETY: all bytes are mapped, and only this test knows them.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.start(), mapping.bytes()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
