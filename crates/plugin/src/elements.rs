//! The bit transposition for elements of any size. The kernels know those of 1, 2, 4 and 8 bytes; elements of other
//! sizes (complex numbers, records) are taken apart into their bytes first, because the planes of an element are those
//! of its bytes, one byte after the other.

use konkordia_kernels::bitshuffle::{shuffle, unshuffle};
use konkordia_kernels::{ElementSize, Isa};

/// Transposes blocks of elements of one size.
pub struct Transposition {
    isa: Isa,
    element_bytes: usize,
    /// One byte of each element of a block; only for sizes that the kernels do not know.
    bytes: Vec<u8>,
}

impl Transposition {
    /// For elements of `element_bytes` bytes, with the instructions of this processor.
    pub fn new(element_bytes: usize) -> Self {
        Self { isa: Isa::detect(), element_bytes, bytes: Vec::new() }
    }

    /// Transposes a block of a multiple of 8 elements.
    ///
    /// # Panics
    /// If the lengths differ, or are no such multiple.
    pub fn forward(&mut self, block: &[u8], planes: &mut [u8]) {
        if let Some(element) = ElementSize::new(self.element_bytes) {
            return shuffle(self.isa, element, block, planes);
        }
        let elements = self.elements(block, planes);
        for (byte, planes) in planes.chunks_exact_mut(elements).enumerate() {
            for (one, element) in self.bytes.iter_mut().zip(block.chunks_exact(self.element_bytes)) {
                *one = element[byte];
            }
            shuffle(self.isa, ElementSize::One, &self.bytes, planes);
        }
    }

    /// The inverse of [`Self::forward`].
    ///
    /// # Panics
    /// As that.
    pub fn back(&mut self, planes: &[u8], block: &mut [u8]) {
        if let Some(element) = ElementSize::new(self.element_bytes) {
            return unshuffle(self.isa, element, planes, block);
        }
        let elements = self.elements(block, planes);
        for (byte, planes) in planes.chunks_exact(elements).enumerate() {
            unshuffle(self.isa, ElementSize::One, planes, &mut self.bytes);
            for (one, element) in self.bytes.iter().zip(block.chunks_exact_mut(self.element_bytes)) {
                element[byte] = *one;
            }
        }
    }

    /// The number of elements of a block that is not empty, with room for one byte of each.
    fn elements(&mut self, block: &[u8], planes: &[u8]) -> usize {
        assert_eq!(block.len(), planes.len(), "a transposed block is as long as the block");
        assert!(!block.is_empty() && block.len().is_multiple_of(8 * self.element_bytes), "a block is a multiple of 8 elements");
        let elements = block.len() / self.element_bytes;
        self.bytes.resize(elements, 0);
        elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_size_are_transposed_by_the_definition_and_come_back() {
        for element_bytes in [1, 2, 3, 4, 5, 7, 8, 12, 16, 33] {
            let count = 24;
            let block: Vec<u8> = (0..count * element_bytes).map(|n| (n * 37 + n / 5) as u8).collect();
            let mut expected = vec![0; block.len()];
            for element in 0..count {
                for plane in 0..8 * element_bytes {
                    let bit = block[element * element_bytes + plane / 8] >> (plane % 8) & 1;
                    expected[plane * (count / 8) + element / 8] |= bit << (element % 8);
                }
            }
            let mut transposition = Transposition::new(element_bytes);
            let (mut planes, mut back) = (vec![0; block.len()], vec![0; block.len()]);
            transposition.forward(&block, &mut planes);
            transposition.back(&planes, &mut back);
            assert!(planes == expected && back == block, "{element_bytes} bytes");
        }
    }
}
