//! Any bytes as a CBF file: refused, or an image inside its bounds, whose pixels unpack or are refused.
#![no_main]

use konkordia_kernels::byte_offset;
use konkordia_wire::cbf::{self, Image, Packing};
use konkordia_wire::stream::Bounds;
use libfuzzer_sys::fuzz_target;

const BOUNDS: Bounds = Bounds { text_bytes_max: 2048, image_bytes_max: 1 << 20, table_bytes_max: 1 << 20, channels_max: 4 };

fuzz_target!(|data: &[u8]| {
    let Ok(image) = Image::parse(data, &BOUNDS) else { return };
    let bytes = image.shape.elements() * u64::from(image.element.bits()) / 8;
    assert!(bytes <= BOUNDS.image_bytes_max);
    cbf::items(&image.contents).for_each(|(key, _)| assert!(!key.is_empty()));
    match image.packing {
        Packing::None => assert_eq!(image.data.len() as u64, bytes),
        Packing::ByteOffset => {
            let mut pixels = vec![0; bytes as usize];
            if let Ok(read) = byte_offset::decode(image.data, &mut pixels) {
                assert!(read <= image.data.len());
            }
        }
    }
});
