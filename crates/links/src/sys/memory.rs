//! Memory into which others write while we hold it. There is never a reference to it, only copies out of it and into
//! it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Where pages begin; cards register whole pages.
const PAGE_BYTES: usize = 4096;

/// Whole pages of zeros; its address stays the same.
pub(crate) struct Memory {
    start: NonNull<u8>,
    length_bytes: usize,
}

// SAFETY: the memory belongs to this value alone, and is reached by copies only.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory of `length_bytes`, which may be 0. `None` if no machine has so much.
    pub(crate) fn new(length_bytes: usize) -> Option<Self> {
        let layout = layout(length_bytes)?;
        // SAFETY: the size is at least one page.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Some(Self { start, length_bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// Copies bytes out; `false` if they do not lie in it.
    pub(crate) fn read(&self, offset_bytes: usize, into: &mut [u8]) -> bool {
        let is_inside = offset_bytes.checked_add(into.len()).is_some_and(|end| end <= self.length_bytes);
        if is_inside {
            // SAFETY: the range is inside the allocation (line above), and `into` is other memory. Others may write
            // meanwhile, as the link says; bytes have no invalid values.
            unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset_bytes), into.as_mut_ptr(), into.len()) }
        }
        is_inside
    }

    /// Copies bytes into it; they must lie in it.
    pub(crate) fn put(&mut self, offset_bytes: usize, bytes: &[u8]) {
        let is_inside = offset_bytes.checked_add(bytes.len()).is_some_and(|end| end <= self.length_bytes);
        assert!(is_inside, "{} bytes at {offset_bytes} of {}", bytes.len(), self.length_bytes);
        // SAFETY: the range is inside the allocation (line above), and `bytes` are other memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset_bytes), bytes.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let layout = layout(self.length_bytes).expect("it was allocated so");
        // SAFETY: allocated in `new` with this layout. Who registered the memory has ended the registration.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

fn layout(length_bytes: usize) -> Option<Layout> {
    let whole = length_bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
    Layout::from_size_align(whole, PAGE_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_inside() {
        let mut memory = Memory::new(10).unwrap();
        memory.put(7, &[1, 2, 3]);
        let mut three = [0; 3];
        assert!(memory.read(7, &mut three));
        assert_eq!(three, [1, 2, 3]);
        assert!(!memory.read(8, &mut three));
        assert!(!memory.read(usize::MAX, &mut three));
        assert!(memory.read(10, &mut []));
        assert!(std::panic::catch_unwind(move || memory.put(8, &[0; 3])).is_err());
        assert!(Memory::new(usize::MAX).is_none());
        assert_eq!(Memory::new(0).unwrap().length_bytes(), 0);
    }
}
