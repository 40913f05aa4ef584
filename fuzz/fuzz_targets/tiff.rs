//! Any bytes as a TIFF file: refused, or an image inside its bounds with all its pixels.
#![no_main]

use konkordia_wire::stream::Bounds;
use konkordia_wire::tiff::Image;
use libfuzzer_sys::fuzz_target;

const BOUNDS: Bounds = Bounds { text_bytes_max: 2048, image_bytes_max: 1 << 20, table_bytes_max: 1 << 20, channels_max: 4 };

fuzz_target!(|data: &[u8]| {
    let Ok(image) = Image::parse(data, &BOUNDS) else { return };
    let bytes = image.shape.elements() * u64::from(image.element.bits()) / 8;
    assert!(bytes <= BOUNDS.image_bytes_max);
    assert_eq!(image.pieces.iter().map(|piece| piece.len() as u64).sum::<u64>(), bytes);
});
