//! Zstd by the stock C library: single frames for the blocks of `bszstd`, and the strips of one long frame for `zstd`.

use crate::length::with_length;
use sys::StripContext;
use zstd_safe::{CCtx, CParameter, DCtx};

mod sys;

/// A compressor, kept between blocks.
pub struct Encoder {
    context: CCtx<'static>,
    strips: StripContext,
    level: i32,
}

impl Encoder {
    /// Allocates a compressor of a level, 1 to 22. Blocks of `bszstd` level 1 are packed without it: see
    /// [`crate::planes`].
    ///
    /// # Panics
    /// If the level is out of range.
    pub fn new(level: u8) -> Self {
        assert!((1..=22).contains(&level), "Zstd has levels 1 to 22");
        let mut context = CCtx::create();
        context.set_parameter(CParameter::CompressionLevel(i32::from(level))).expect("the level is one of the library's");
        Self { context, strips: StripContext::new(), level: i32::from(level) }
    }

    /// Memory taken so far.
    pub fn memory_bytes(&self) -> usize {
        self.context.sizeof() + self.strips.memory_bytes()
    }

    /// Writes the length of the frame (u32, big-endian) and the frame of `input` to the start of `out`, and returns the
    /// bytes written.
    ///
    /// # Panics
    /// If `out` has less than [`crate::length::LENGTH_BYTES`] plus [`bound`] bytes.
    pub fn block(&mut self, input: &[u8], out: &mut [u8]) -> usize {
        with_length(out, |payload| {
            assert!(payload.len() >= bound(input.len()), "{} bytes of output are too few for {}", payload.len(), input.len());
            self.context.compress2(payload, input).expect("Zstd always succeeds within its bound")
        })
    }

    /// Compresses `input` to blocks that may stand anywhere in a frame: without frame header or last block, and without
    /// references to earlier blocks. [`frame_header`], then such strips, then [`FRAME_END`] make a frame.
    ///
    /// # Panics
    /// If `out` has less than [`bound`] bytes.
    pub fn strip(&mut self, input: &[u8], out: &mut [u8]) -> usize {
        assert!(out.len() >= bound(input.len()), "{} bytes of output are too few for {}", out.len(), input.len());
        self.strips.strip(self.level, input, out)
    }
}

/// Largest size of a frame, or of a strip, in bytes.
pub fn bound(input_bytes: usize) -> usize {
    zstd_safe::compress_bound(input_bytes) + 32
}

/// Bytes before the first strip of a frame.
pub const FRAME_HEADER_BYTES: usize = 13;
/// Bytes after the last strip: an empty block that is marked as the last one.
pub const FRAME_END: [u8; 3] = [1, 0, 0];

/// Magic number, one segment, and the bytes of the image (RFC 8878, 3.1.1.1).
pub fn frame_header(image_bytes: u64) -> [u8; FRAME_HEADER_BYTES] {
    let mut header = [0; FRAME_HEADER_BYTES];
    header[..5].copy_from_slice(&[0x28, 0xB5, 0x2F, 0xFD, 0xE0]);
    header[5..].copy_from_slice(&image_bytes.to_le_bytes());
    header
}

/// A decompressor for untrusted bytes.
pub struct Decoder(DCtx<'static>);

impl Decoder {
    /// Allocates the state, about 160 KiB.
    pub fn new() -> Self {
        Self(DCtx::create())
    }

    /// True if `data` is one or more frames that give exactly `out`. Allocates nothing, whatever sizes the data state.
    pub fn decompress(&mut self, data: &[u8], out: &mut [u8]) -> bool {
        let bytes = out.len();
        self.0.decompress(out, data) == Ok(bytes)
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}
