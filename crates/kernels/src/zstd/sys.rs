//! The calls of the Zstd library that `zstd_safe` does not wrap.

use std::ptr::NonNull;
use zstd_safe::zstd_sys;

// The library exports this function (its own parallel compressor packs its parts with it), but the bindings do not
// declare it.
// SAFETY: the declaration is that of the library's `zstd_internal.h`.
unsafe extern "C" {
    fn ZSTD_invalidateRepCodes(context: *mut zstd_sys::ZSTD_CCtx);
}

/// A context of the library for the calls that `zstd_safe` does not wrap. It allocates its memory with the first strip.
pub(super) struct StripContext(NonNull<zstd_sys::ZSTD_CCtx>);

// SAFETY: the library ties a context to no thread; this one has one owner and is changed through `&mut self` only.
unsafe impl Send for StripContext {}

impl StripContext {
    pub(super) fn new() -> Self {
        // SAFETY: the call takes no arguments; the null that it returns when there is no memory is refused by
        // `NonNull::new`.
        Self(NonNull::new(unsafe { zstd_sys::ZSTD_createCCtx() }).expect("there is memory for a compressor"))
    }

    /// Memory taken so far.
    pub(super) fn memory_bytes(&self) -> usize {
        // SAFETY: the context is live (made in `new`, freed only in `drop`) and is only read.
        unsafe { zstd_sys::ZSTD_sizeof_CCtx(self.0.as_ptr()) }
    }

    /// Compresses `input` to blocks of a frame that refer to nothing before them, without the frame's header and its
    /// last block.
    pub(super) fn strip(&mut self, level: i32, input: &[u8], out: &mut [u8]) -> usize {
        let context = self.0.as_ptr();
        let mut header = [0u8; 32];
        // SAFETY: the context is live (made in `new`, freed only in `drop`), and `&mut self` keeps all other users
        // away. The lengths are those of the buffers, and there is no dictionary. The frame header, which is written
        // first, goes to a buffer of its own (at most 18 bytes). Forgetting the repeated offsets makes the blocks
        // independent of their place, as the library does for the parts of its parallel compressor.
        let written = unsafe {
            let parameters = zstd_sys::ZSTD_getParams(level, input.len() as u64, 0);
            let begun = zstd_sys::ZSTD_compressBegin_advanced(context, std::ptr::null(), 0, parameters, u64::MAX);
            assert!(zstd_sys::ZSTD_isError(begun) == 0, "Zstd begins a frame");
            let head =
                zstd_sys::ZSTD_compressContinue(context, header.as_mut_ptr().cast(), header.len(), input.as_ptr().cast(), 0);
            assert!(zstd_sys::ZSTD_isError(head) == 0, "Zstd begins a frame");
            ZSTD_invalidateRepCodes(context);
            zstd_sys::ZSTD_compressContinue(context, out.as_mut_ptr().cast(), out.len(), input.as_ptr().cast(), input.len())
        };
        assert!(written <= out.len(), "Zstd always succeeds within its bound");
        written
    }
}

impl Drop for StripContext {
    fn drop(&mut self) {
        // SAFETY: made by `ZSTD_createCCtx` and freed once.
        unsafe { zstd_sys::ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}
