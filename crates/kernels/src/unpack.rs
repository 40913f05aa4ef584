//! EIGER counts of 4, 8, 12, 16 and 32 bits, unpacked from the bytes of a tile.

/// Bits per pixel on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Two pixels per byte, high nibble first.
    Four,
    /// One byte.
    Eight,
    /// Three bytes for two pixels: `b0 | (b1 & 15) << 8`, then `b1 >> 4 | b2 << 4`.
    Twelve,
    /// Two bytes, little-endian.
    Sixteen,
    /// Four bytes, little-endian.
    ThirtyTwo,
}

impl Bits {
    /// All depths.
    pub const ALL: [Self; 5] = [Self::Four, Self::Eight, Self::Twelve, Self::Sixteen, Self::ThirtyTwo];

    /// From the number in the configuration.
    pub fn new(bits: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|b| b.count() == bits)
    }

    /// The number of bits.
    pub const fn count(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
            Self::Twelve => 12,
            Self::Sixteen => 16,
            Self::ThirtyTwo => 32,
        }
    }

    /// Bytes that hold `pixels` pixels, counted from the first pixel of a tile.
    pub const fn bytes(self, pixels: usize) -> usize {
        (pixels * self.count() as usize).div_ceil(8)
    }
}

/// A type into which counts are unpacked.
pub trait Count: Copy {
    /// Keeps the low bits; only 32-bit counts in a `u16` can lose any.
    fn from_bits(count: u32) -> Self;
}

impl Count for u16 {
    fn from_bits(count: u32) -> Self {
        count as u16
    }
}

impl Count for u32 {
    fn from_bits(count: u32) -> Self {
        count
    }
}

/// Unpacks the pixels `first_pixel .. first_pixel + out.len()` of the tile whose first byte is `packed[0]`.
///
/// # Panics
/// If `packed` ends before the last pixel asked for.
pub fn eiger<T: Count>(bits: Bits, packed: &[u8], first_pixel: usize, out: &mut [T]) {
    match bits {
        Bits::Four => pairs(out, first_pixel, packed, |[b]: [u8; 1]| [u32::from(b >> 4), u32::from(b & 15)]),
        Bits::Twelve => pairs(out, first_pixel, packed, |[b0, b1, b2]: [u8; 3]| {
            let both = u32::from_le_bytes([b0, b1, b2, 0]);
            [both & 0xFFF, both >> 12]
        }),
        Bits::Eight => bytes(out, first_pixel, packed, |[b]: [u8; 1]| u32::from(b)),
        Bits::Sixteen => bytes(out, first_pixel, packed, |b: [u8; 2]| u32::from(u16::from_le_bytes(b))),
        Bits::ThirtyTwo => bytes(out, first_pixel, packed, u32::from_le_bytes),
    }
}

#[inline]
fn bytes<T: Count, const N: usize>(out: &mut [T], first: usize, packed: &[u8], decode: impl Fn([u8; N]) -> u32) {
    let (words, _) = packed[first * N..][..out.len() * N].as_chunks::<N>();
    for (pixel, &word) in out.iter_mut().zip(words) {
        *pixel = T::from_bits(decode(word));
    }
}

/// Two pixels from each group of `N` bytes. An odd start takes the second pixel of its group, an odd end the first.
#[inline]
fn pairs<T: Count, const N: usize>(out: &mut [T], first: usize, packed: &[u8], decode: impl Fn([u8; N]) -> [u32; 2]) {
    let mut group = first / 2 * N;
    let (head, rest) = out.split_at_mut((first % 2).min(out.len()));
    if let [pixel] = head {
        *pixel = T::from_bits(decode(padded(packed, group, N))[1]);
        group += N;
    }
    let (body, tail) = rest.as_chunks_mut::<2>();
    let (groups, _) = packed[group..][..body.len() * N].as_chunks::<N>();
    for (two, &bytes) in body.iter_mut().zip(groups) {
        *two = decode(bytes).map(T::from_bits);
    }
    if let [pixel] = tail {
        *pixel = T::from_bits(decode(padded(packed, group + groups.len() * N, N.min(2)))[0]);
    }
}

/// The group of `N` bytes that starts at byte `group`, zeros behind it where `packed` ends earlier. At least its first
/// `need` bytes must be there: the last group of an odd number of pixels may be cut.
fn padded<const N: usize>(packed: &[u8], group: usize, need: usize) -> [u8; N] {
    let there = &packed[group..packed.len().min(group + N)];
    assert!(there.len() >= need, "the tile ends before the last pixel asked for");
    let mut bytes = [0; N];
    bytes[..there.len()].copy_from_slice(there);
    bytes
}
