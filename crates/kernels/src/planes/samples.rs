//! Random input for the tests of the encoders.

/// Numbers without a pattern.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// A block of `bytes` bytes in runs of one value, each of at most `run_bytes_max` bytes.
    pub fn runs(&mut self, bytes: usize, run_bytes_max: usize) -> Vec<u8> {
        let values = [0, 255, 1, 1 << (self.next() % 8)];
        let mut block = Vec::with_capacity(bytes);
        while block.len() < bytes {
            let value = if self.next().is_multiple_of(2) { values[self.next() as usize % 4] } else { self.next() as u8 };
            let count = 1 + self.next() as usize % run_bytes_max;
            block.extend(std::iter::repeat_n(value, count.min(bytes - block.len())));
        }
        block
    }
}
