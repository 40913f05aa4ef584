//! Bits as Zstd has them: written from the lowest on, and read from the end.

/// Writes bits.
pub struct BitWriter<'a> {
    out: &'a mut [u8],
    written: usize,
    bits: u64,
    count: u32,
}

impl<'a> BitWriter<'a> {
    /// Bytes that `out` needs beyond those that are written.
    pub const SPARE_BYTES: usize = 8;

    /// To the start of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { out, written: 0, bits: 0, count: 0 }
    }

    /// Adds the lowest `count` bits; the others must be 0. At most 56 bits between two calls of [`Self::flush`].
    #[inline(always)]
    pub fn add(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
    }

    /// Moves whole bytes to the buffer.
    #[inline(always)]
    pub fn flush(&mut self) {
        debug_assert!(self.count < 64, "too many bits without a flush");
        self.out[self.written..][..8].copy_from_slice(&self.bits.to_le_bytes());
        self.written += (self.count / 8) as usize;
        self.bits >>= self.count & !7;
        self.count &= 7;
    }

    /// Marks the end by a bit that is set, and returns the bytes written.
    pub fn end(mut self) -> usize {
        self.add(1, 1);
        self.flush();
        self.written + usize::from(self.count > 0)
    }
}
