//! Any bytes as a bslz4 chunk: decoding refuses or fills the image, and never reads or writes outside.
#![no_main]

use konkordia_kernels::{ElementSize, Isa, chunk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [choice, pixels_low, pixels_high, rest @ ..] = data else { return };
    let (element, bytes) = [(ElementSize::One, 1), (ElementSize::Two, 2), (ElementSize::Four, 4)][usize::from(choice % 3)];
    let pixels = usize::from(*pixels_low) | usize::from(*pixels_high % 64) << 8;
    let mut out = vec![0; pixels * bytes];
    // Bytes as they are, and with a right header in front, so that the blocks are reached.
    let _ = chunk::decompress_chunk(Isa::Scalar, rest, element, &mut out);
    let mut whole = vec![0; 12];
    chunk::write_header(&mut whole, out.len() as u64, 128 * bytes as u32);
    whole.extend_from_slice(rest);
    let _ = chunk::decompress_chunk(Isa::detect(), &whole, element, &mut out);
});
