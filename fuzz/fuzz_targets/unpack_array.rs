//! Any bytes as an array in any packing: unpacking refuses or fills the pixels, the same for every instruction set, and
//! never reads, writes or allocates beyond them.
#![no_main]

use konkordia_core::array::{Element, Packing};
use konkordia_kernels::transform::{UnpackScratch, unpack};
use konkordia_kernels::{Isa, chunk};
use libfuzzer_sys::fuzz_target;

const PACKINGS: [Packing; 5] = [Packing::None, Packing::Lz4Block, Packing::Lz4, Packing::BitshuffleLz4, Packing::BitshuffleZstd];

fuzz_target!(|data: &[u8]| {
    let [packing, element, pixels_low, pixels_high, rest @ ..] = data else { return };
    let packing = PACKINGS[usize::from(*packing) % PACKINGS.len()];
    let element = Element::ALL[usize::from(*element) % Element::ALL.len()];
    let pixels = usize::from(*pixels_low) | usize::from(*pixels_high % 64) << 8;
    let bytes = (pixels * element.bits() as usize).div_ceil(8);
    // Bytes as they are, and with a right header in front, so that the blocks are reached.
    let mut whole = vec![0; 12];
    chunk::write_header(&mut whole, bytes as u64, 16 * element.bits());
    whole.extend_from_slice(rest);
    for data in [rest, &whole] {
        let (mut plain, mut wide) = (vec![0; bytes], vec![0; bytes]);
        let first = unpack::array(packing, element, data, &mut plain, &mut UnpackScratch::new(Isa::Scalar));
        let second = unpack::array(packing, element, data, &mut wide, &mut UnpackScratch::new(Isa::detect()));
        assert_eq!(first, second);
        assert!(first.is_err() || plain == wide);
    }
});
