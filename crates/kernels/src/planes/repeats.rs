//! Where the bytes of a transposed block repeat the byte before them, or the same byte of the plane before.

/// Bytes of which a word holds one bit each.
pub const WORD_BYTES: usize = 64;

/// One bit for each byte of a block: bit `i % 64` of word `i / 64` belongs to byte `i`.
pub struct Marks {
    /// Equal to the byte a certain distance before.
    pub equal: Box<[u64]>,
    /// A run of at least so many equal bytes goes on from here.
    pub runs: Box<[u64]>,
}

/// What repeats in a block.
pub struct Repeats {
    /// The distance is one byte.
    pub byte: Marks,
    /// The distance is one plane.
    pub plane: Marks,
}

impl Marks {
    /// Two words more than are marked: they stay 0.
    fn new(block_bytes_max: usize) -> Self {
        let words = || vec![0; block_bytes_max.div_ceil(WORD_BYTES) + 2].into();
        Self { equal: words(), runs: words() }
    }

    /// Equal bytes from `at` on.
    #[inline(always)]
    pub fn run_length(&self, at: usize) -> usize {
        let (mut word, bit) = (at / WORD_BYTES, at % WORD_BYTES);
        let mut length = (self.equal[word] >> bit).trailing_ones() as usize;
        if length == WORD_BYTES - bit {
            // The word behind the last one is 0.
            loop {
                word += 1;
                length += self.equal[word].trailing_ones() as usize;
                if self.equal[word] != u64::MAX {
                    break;
                }
            }
        }
        length
    }
}

impl Repeats {
    /// For blocks of at most `block_bytes_max` bytes.
    pub fn new(block_bytes_max: usize) -> Self {
        Self { byte: Marks::new(block_bytes_max), plane: Marks::new(block_bytes_max) }
    }

    /// See [`super::by_isa::find`]. `wide` fills words (block, distance, first byte, words) that are whole and whose
    /// bytes all have one before them.
    #[inline(always)]
    pub fn find<const RUN: usize>(&mut self, block: &[u8], plane_bytes: usize, wide: impl Fn(&[u8], usize, usize, &mut [u64])) {
        const { assert!(RUN.is_power_of_two() && RUN <= 32) };
        let words = block.len().div_ceil(WORD_BYTES);
        for (Marks { equal, runs }, distance) in [(&mut self.byte, 1), (&mut self.plane, plane_bytes)] {
            let first = distance.div_ceil(WORD_BYTES).min(words);
            let end = (block.len() / WORD_BYTES).max(first);
            if distance == 1 && block.len() > WORD_BYTES {
                // The bytes from byte 1 on all have one before them; the first byte repeats nothing.
                wide(block, distance, 1, &mut equal[..1]);
                equal[0] <<= 1;
            } else {
                scalar(block, distance, 0, &mut equal[..first]);
            }
            wide(block, distance, WORD_BYTES * first, &mut equal[first..end]);
            scalar(block, distance, WORD_BYTES * end, &mut equal[end..words]);
            equal[words] = 0;
            for ((runs, low), high) in runs[..words].iter_mut().zip(&equal[..words]).zip(&equal[1..=words]) {
                *runs = runs_of::<RUN>(*low, *high);
            }
            runs[words..].fill(0);
        }
    }
}

/// Fills words: whole ones of which every byte has one before it, and others byte by byte.
pub fn scalar(block: &[u8], distance: usize, first: usize, words: &mut [u64]) {
    for (index, word) in words.iter_mut().enumerate() {
        let start = first + WORD_BYTES * index;
        let before = start.checked_sub(distance).and_then(|before| block[before..].first_chunk());
        *word = match (block[start..].first_chunk(), before) {
            (Some(own), Some(before)) => whole_word(own, before),
            _ => {
                let end = block.len().min(start + WORD_BYTES);
                let bit = |at: usize| u64::from(block[at] == block[at - distance]) << (at - start);
                (start.max(distance)..end).fold(0, |bits, at| bits | bit(at))
            }
        };
    }
}

/// One bit for each pair of equal bytes. Compilers make vectors of the comparison.
fn whole_word(own: &[u8; WORD_BYTES], before: &[u8; WORD_BYTES]) -> u64 {
    let mut equal = [0; WORD_BYTES];
    for ((equal, own), before) in equal.iter_mut().zip(own).zip(before) {
        *equal = u8::from(own == before);
    }
    // The product brings bit 8 k to bit 56 + k.
    let bits = |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    equal.as_chunks::<8>().0.iter().rev().fold(0, |word, eight| word << 8 | bits(eight))
}

/// Bits that are set.
#[inline(always)]
pub fn ones(words: &[u64]) -> usize {
    words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() as usize
}

/// The bits of `low` from which on at least `RUN` bits are set in `low` and then `high`.
#[inline(always)]
fn runs_of<const RUN: usize>(mut low: u64, mut high: u64) -> u64 {
    let mut bits = 1;
    while bits < RUN {
        low &= low >> bits | high << (64 - bits);
        high &= high >> bits;
        bits *= 2;
    }
    low
}
