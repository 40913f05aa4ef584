//! Numbers and pixels of the tests of kernels.

use konkordia_kernels::OutputPixel;

/// The same pseudo-random numbers on every machine.
pub struct Numbers(pub u64);

#[allow(dead_code, reason = "each test takes what it needs")]
impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// About one pixel of `rarity` is a special value, or at an end of what is valid; the others are small, some of
    /// them below zero.
    pub fn pixel<P: OutputPixel>(&mut self, rarity: u64) -> P {
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
        match self.next() {
            word if (word >> 8).is_multiple_of(rarity) => special[word as usize % special.len()],
            word => P::from_photons((word % 4000) as f32 * 0.25 - 200.0),
        }
    }

    pub fn pixels<P: OutputPixel>(&mut self, count: usize, rarity: u64) -> Vec<P> {
        (0..count).map(|_| self.pixel(rarity)).collect()
    }
}

/// The bytes of numbers: NaN equals itself, and the two zeros differ.
#[allow(dead_code, reason = "each test takes what it needs")]
pub fn bits<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// The first difference of two lists, bit by bit.
#[allow(dead_code, reason = "each test takes what it needs")]
pub fn difference<T: bytemuck::NoUninit + std::fmt::Debug>(ours: &[T], theirs: &[T]) -> Option<String> {
    if ours.len() != theirs.len() {
        return Some(format!("{} numbers instead of {}", ours.len(), theirs.len()));
    }
    let at = ours.iter().zip(theirs).position(|(a, b)| bits(&[*a]) != bits(&[*b]))?;
    Some(format!("{:?} at {at}, on the CPU {:?}", ours[at], theirs[at]))
}
