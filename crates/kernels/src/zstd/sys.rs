//! The calls of the Zstd library that `zstd_safe` does not wrap.

use std::ptr::NonNull;
use zstd_safe::zstd_sys;

// In the library (it packs the parts of its own parallel compressor with this) but not in the bindings.
unsafe extern "C" {
    fn ZSTD_invalidateRepCodes(context: *mut zstd_sys::ZSTD_CCtx);
}

/// The library's context for the calls that `zstd_safe` does not wrap. It takes memory with the first strip.
pub(super) struct StripContext(NonNull<zstd_sys::ZSTD_CCtx>);

// SAFETY: the context belongs to no thread; it is used through `&mut` only.
unsafe impl Send for StripContext {}

impl StripContext {
    pub(super) fn new() -> Self {
        // SAFETY: no arguments; null, when there is no memory, is refused.
        Self(NonNull::new(unsafe { zstd_sys::ZSTD_createCCtx() }).expect("there is memory for a compressor"))
    }

    /// Memory taken so far.
    pub(super) fn memory_bytes(&self) -> usize {
        // SAFETY: a live context, only looked at.
        unsafe { zstd_sys::ZSTD_sizeof_CCtx(self.0.as_ptr()) }
    }

    /// Compresses `input` to blocks of a frame, without header and last block, that refer to nothing before them.
    pub(super) fn strip(&mut self, level: i32, input: &[u8], out: &mut [u8]) -> usize {
        let context = self.0.as_ptr();
        let mut header = [0u8; 32];
        // SAFETY: a live context, which nobody else uses; the lengths are those of the buffers; no dictionary. The frame header, written first,
        // goes to a buffer of its own (at most 18 bytes). Forgetting the repeated offsets makes the blocks independent of their place, as
        // the library does for the parts of its parallel compressor.
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
