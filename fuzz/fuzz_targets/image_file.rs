//! Any bytes as a file of other programs with several images: refused, or images inside their bounds that unpack or are
//! refused.
#![no_main]

use bytes::Bytes;
use konkordia_exchange::files::{Content, Opened, Reading, Unpack};
use konkordia_wire::stream::Bounds;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

const BOUNDS: Bounds = Bounds { text_bytes_max: 2048, image_bytes_max: 1 << 18, table_bytes_max: 1 << 18, channels_max: 4 };

fuzz_target!(|data: &[u8]| {
    let content = Content::from(Bytes::copy_from_slice(data));
    let Ok(opened) = Opened::of(Path::new("x"), content, &Reading { raw: None, bounds: BOUNDS }) else { return };
    let mut unpack = Unpack::default();
    for nth in 0..opened.count().min(4) {
        if let Ok(file) = opened.read(nth, &mut unpack) {
            let bytes: usize = file.array.pieces.iter().map(Bytes::len).sum();
            assert_eq!(bytes as u64, file.array.unpacked_bytes());
            assert!(bytes as u64 <= BOUNDS.image_bytes_max);
        }
    }
});
