//! Where the bytes of a transposed block repeat the byte before them, or the same byte of the plane before.

/// Bytes of the longest block.
pub const BLOCK_BYTES_MAX: usize = 8192;
/// Bytes of which a word holds one bit each.
pub(super) const WORD_BYTES: usize = 64;
/// Words of the longest block.
pub(super) const WORDS: usize = BLOCK_BYTES_MAX / WORD_BYTES;

/// One bit for each byte of a block: is the byte equal to the one `distance` bytes before it? The last word stays 0.
pub(super) type Equal = [u64; WORDS + 1];

/// What repeats in a block. Bit `i % 64` of word `i / 64` belongs to byte `i`.
pub(super) struct Repeats {
    /// Equal to the byte before.
    pub byte: Equal,
    /// Equal to the same byte of the plane before.
    pub plane: Equal,
    /// In one of the two ways, a run of at least [`RUN_BYTES_MIN`] bytes goes on from here.
    pub runs: [u64; WORDS],
}

/// Runs that are shorter stay literals: a match takes three bytes, and more than that must be saved.
pub(super) const RUN_BYTES_MIN: usize = 4;

impl Repeats {
    pub fn new() -> Self {
        Self { byte: [0; WORDS + 1], plane: [0; WORDS + 1], runs: [0; WORDS] }
    }

    /// Looks at a block of at most [`BLOCK_BYTES_MAX`] bytes, in planes of `plane_bytes` bytes, at least 1. `wide` fills
    /// words (block, distance, first word, words) that are whole and whose bytes all have one before them.
    #[inline(always)]
    pub fn find(&mut self, block: &[u8], plane_bytes: usize, wide: impl Fn(&[u8], usize, usize, &mut [u64])) {
        let words = block.len().div_ceil(WORD_BYTES);
        for (equal, distance) in [(&mut self.byte, 1), (&mut self.plane, plane_bytes)] {
            let first = distance.div_ceil(WORD_BYTES).min(words);
            let end = (block.len() / WORD_BYTES).max(first);
            scalar(block, distance, 0, &mut equal[..first]);
            wide(block, distance, first, &mut equal[first..end]);
            scalar(block, distance, end, &mut equal[end..words]);
            equal[words] = 0;
        }
        for word in 0..words {
            self.runs[word] = runs(&self.byte, word) | runs(&self.plane, word);
        }
        self.runs[words..].fill(0);
    }
}

/// Fills words, eight bytes at a time where they all have one before them, else byte by byte.
pub(super) fn scalar(block: &[u8], distance: usize, first: usize, words: &mut [u64]) {
    for (index, word) in words.iter_mut().enumerate() {
        let start = WORD_BYTES * (first + index);
        let end = block.len().min(start + WORD_BYTES);
        *word = if start >= distance && end == start + WORD_BYTES {
            let (own, before) =
                (block[start..end].as_chunks::<8>().0, block[start - distance..end - distance].as_chunks::<8>().0);
            let eights = own.iter().zip(before).rev();
            eights
                .fold(0, |bits, (own, before)| bits << 8 | equal_of_eight(u64::from_le_bytes(*own) ^ u64::from_le_bytes(*before)))
        } else {
            let bit = |at: usize| u64::from(block[at] == block[at - distance]) << (at - start);
            (start.max(distance)..end).fold(0, |bits, at| bits | bit(at))
        };
    }
}

/// A bit for each of eight bytes: is it 0?
fn equal_of_eight(difference: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    // The highest bit of each byte that is 0; nothing is carried from one byte into another.
    let zeros = !(((difference & LOW) + LOW) | difference | LOW);
    // The product brings bit 8 k to bit 56 + k.
    (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The bytes of a word from which on at least [`RUN_BYTES_MIN`] bits are set.
#[inline(always)]
fn runs(equal: &Equal, word: usize) -> u64 {
    let (low, high) = (equal[word], equal[word + 1]);
    (1..RUN_BYTES_MIN).fold(low, |runs, bits| runs & (low >> bits | high << (64 - bits)))
}

/// Bits that are set from `at` on.
pub(super) fn run_length(equal: &Equal, at: usize) -> usize {
    let (mut word, bit) = (at / WORD_BYTES, at % WORD_BYTES);
    let first = (equal[word] >> bit).trailing_ones() as usize;
    if first < WORD_BYTES - bit {
        return first;
    }
    let mut length = first;
    loop {
        // The last word is 0.
        word += 1;
        length += equal[word].trailing_ones() as usize;
        if equal[word] != u64::MAX {
            return length;
        }
    }
}
