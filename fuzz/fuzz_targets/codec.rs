//! Any bytes as a chunk of any codec: decoding refuses or fills the image, and never reads, writes or allocates beyond
//! it.
#![no_main]

use konkordia_core::plan::{Compression, ErrorBound};
use konkordia_kernels::{ElementSize, Isa, chunk, codec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [choice, pixels_low, pixels_high, rest @ ..] = data else { return };
    let elements = [(ElementSize::One, 1), (ElementSize::Two, 2), (ElementSize::Four, 4)];
    let (element, bytes) = elements[usize::from(choice % 3)];
    let bound = ErrorBound::new(1.0).expect("1 is a bound");
    let codecs = Compression::ALL.into_iter().chain([Compression::Sz3 { bound }]);
    let compression = codecs.cycle().nth(usize::from(choice / 3)).expect("a cycle does not end");
    let pixels = usize::from(*pixels_low) | usize::from(*pixels_high % 64) << 8;
    let mut out = vec![0; pixels * bytes];
    // Bytes as they are, and with a right header in front where the codec has one, so that the blocks are reached.
    let _ = codec::decompress(compression, Isa::Scalar, rest, element, &mut out);
    let mut whole = vec![0; 12];
    chunk::write_header(&mut whole, out.len() as u64, 128 * bytes as u32);
    whole.extend_from_slice(rest);
    let _ = codec::decompress(compression, Isa::detect(), &whole, element, &mut out);
});
