//! One bit for each pixel.

/// A set of pixels.
#[derive(Clone, Debug)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// An empty set of up to `pixels` pixels.
    pub fn new(pixels: usize) -> Self {
        Self { words: vec![0; pixels.div_ceil(64)] }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Puts a pixel in.
    #[inline]
    pub fn set(&mut self, pixel: usize) {
        self.words[pixel / 64] |= 1 << (pixel % 64);
    }

    /// Takes a pixel out; true if it was in.
    #[inline]
    pub fn take(&mut self, pixel: usize) -> bool {
        let (word, bit) = (&mut self.words[pixel / 64], 1 << (pixel % 64));
        let was_in = *word & bit != 0;
        *word &= !bit;
        was_in
    }

    /// The first pixel from `pixel` on that is in the set.
    pub fn next(&self, pixel: usize) -> Option<usize> {
        let first = self.words.get(pixel / 64)? & (u64::MAX << (pixel % 64));
        if first != 0 {
            return Some(pixel / 64 * 64 + first.trailing_zeros() as usize);
        }
        let later = self.words.iter().enumerate().skip(pixel / 64 + 1).find(|(_, word)| **word != 0);
        later.map(|(n, word)| n * 64 + word.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_come_out_in_order() {
        let mut bits = Bits::new(200);
        [0, 5, 63, 64, 130, 199].into_iter().for_each(|n| bits.set(n));
        assert!(bits.take(64) && !bits.take(64) && !bits.take(6));
        let all: Vec<usize> = std::iter::successors(bits.next(0), |&n| bits.next(n + 1)).collect();
        assert_eq!(all, [0, 5, 63, 130, 199]);
        bits.clear();
        assert_eq!(bits.next(0), None);
        assert_eq!(Bits::new(0).next(0), None);
    }
}
