//! Unpacks pixels that do not have whole bytes: GenICam's `Mono4p` to `Mono14p`, low bits first.

use crate::isa::Isa;
use konkordia_core::array::PackedBits;

/// Unpacks pixels to the type [`PackedBits::unpacked`], little-endian. Bits behind the last pixel are not looked at.
///
/// # Panics
/// If `packed` does not have the bytes for exactly the pixels of `out`.
pub fn unpack(isa: Isa, bits: PackedBits, packed: &[u8], out: &mut [u8]) {
    let pixel_bytes = bits.unpacked().bits() as usize / 8;
    assert!(out.len().is_multiple_of(pixel_bytes), "pixels of the output have {pixel_bytes} bytes");
    assert_eq!(packed.len(), bits.bytes(out.len() / pixel_bytes), "bytes of the pixels of the output");
    match bits {
        PackedBits::Four => {
            for (out, byte) in out.chunks_mut(2).zip(packed) {
                out.copy_from_slice(&[byte & 0xF, byte >> 4][..out.len()]);
            }
        }
        PackedBits::Ten => words::<10>(isa, packed, out),
        PackedBits::Twelve => words::<12>(isa, packed, out),
        PackedBits::Fourteen => words::<14>(isa, packed, out),
    }
}

/// Pixels of `BITS` bits to words of 16 bits.
fn words<const BITS: u32>(isa: Isa, packed: &[u8], out: &mut [u8]) {
    let done = match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => super::avx2::unpack_words::<BITS>(packed, out),
        _ => 0,
    };
    let four_pixels = BITS as usize / 2;
    let (packed, out) = (&packed[done / 4 * four_pixels..], &mut out[done * 2..]);
    for (out, packed) in out.chunks_mut(8).zip(packed.chunks(four_pixels)) {
        let mut bytes = [0; 8];
        bytes[..packed.len()].copy_from_slice(packed);
        let mut pixels = u64::from_le_bytes(bytes);
        for out in out.as_chunks_mut::<2>().0 {
            *out = ((pixels & ((1 << BITS) - 1)) as u16).to_le_bytes();
            pixels >>= BITS;
        }
    }
}
