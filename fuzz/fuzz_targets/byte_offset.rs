//! Any bytes as byte-offset data: decoding refuses or fills the image. The decoded image, and any pixels, are the same
//! after packing and decoding.
#![no_main]

use konkordia_kernels::byte_offset;
use libfuzzer_sys::fuzz_target;

fn there_and_back(image: &[u8]) {
    let mut packed = Vec::new();
    byte_offset::encode(image, &mut packed);
    let mut back = vec![0; image.len()];
    assert_eq!(byte_offset::decode(&packed, &mut back), Ok(packed.len()));
    assert_eq!(back, image);
}

fuzz_target!(|data: &[u8]| {
    let [pixels_low, pixels_high, rest @ ..] = data else { return };
    let pixels = usize::from(*pixels_low) | usize::from(*pixels_high % 64) << 8;
    let mut image = vec![0; pixels * 4];
    if let Ok(taken) = byte_offset::decode(rest, &mut image) {
        assert!(taken <= rest.len());
        there_and_back(&image);
    }
    there_and_back(&rest[..rest.len() / 4 * 4]);
});
