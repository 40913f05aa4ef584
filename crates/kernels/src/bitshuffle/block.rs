//! A block: the size of its elements, and the lengths that it may have.

/// Bytes of an element; detector images have no other sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementSize {
    /// `u8`
    One = 1,
    /// `u16`, `i16`
    Two = 2,
    /// `u32`, `i32`, `f32`
    Four = 4,
    /// `u64`, `i64`, `f64`
    Eight = 8,
}

impl ElementSize {
    /// All sizes.
    pub const ALL: [Self; 4] = [Self::One, Self::Two, Self::Four, Self::Eight];

    /// From a number of bytes, as HDF5 and CBOR state it.
    pub const fn new(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            4 => Some(Self::Four),
            8 => Some(Self::Eight),
            _ => None,
        }
    }

    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        self as usize
    }
}

/// Checks the lengths of a block and of the place for the transposed one.
///
/// # Panics
/// If they differ or the number of elements is not a multiple of 8.
pub fn check(element: ElementSize, input: &[u8], out: &[u8]) {
    assert_eq!(input.len(), out.len(), "a transposed block is as long as the block");
    assert_eq!(input.len() % (8 * element.bytes()), 0, "a block holds a multiple of 8 elements");
}
