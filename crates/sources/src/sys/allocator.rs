//! What the allocator of the C library does with the memory of large messages.

/// Lets glibc take large blocks from its heaps instead of mapping each from the kernel, and keep what is freed; see the
/// caller.
#[cfg(target_env = "gnu")]
pub(crate) fn keep_large() {
    /// The largest block that is not mapped by itself; the largest value that glibc takes.
    const MAPPED_FROM_BYTES: libc::c_int = 32 << 20;
    /// Never give the end of the heap back.
    const GIVE_BACK_FROM_BYTES: libc::c_int = libc::c_int::MAX;
    // SAFETY: `mallopt` takes plain numbers and changes settings of the allocator under its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, GIVE_BACK_FROM_BYTES);
        // Heaps of other threads than the first are given back as soon as they are empty, whatever is set; so there is
        // one heap for all. In `bench stream` that takes half the memory (116 MiB instead of 209 to 259) and is as fast
        // to a file; images of 20 kB that are only received come 4 % slower (benches/record, 2026-11-24,
        // stream-arenas-1 beside stream-arenas-0).
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Other allocators have no such settings.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn keep_large() {}
