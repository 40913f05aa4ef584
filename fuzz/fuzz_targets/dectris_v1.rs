//! Any capture, or any bytes as one part, as messages of Stream V1: they are refused, or building them again gives the
//! same message.
#![no_main]

mod messages;

use konkordia_wire::dectris_v1::Message;
use konkordia_wire::stream::Bounds;
use libfuzzer_sys::fuzz_target;

const BOUNDS: Bounds = Bounds { text_bytes_max: 2048, image_bytes_max: 1 << 20, table_bytes_max: 1 << 20, channels_max: 4 };

fn check(parts: &[&[u8]]) {
    let Ok(message) = Message::parse(parts, &BOUNDS) else { return };
    if let Message::Image(image) = &message {
        assert!(image.pixels.unpacked_bytes() <= BOUNDS.image_bytes_max);
    }
    let again = message.build().expect("what was read has names");
    let again: Vec<&[u8]> = again.iter().map(AsRef::as_ref).collect();
    let generous = Bounds { text_bytes_max: 1 << 20, ..BOUNDS };
    assert_eq!(Message::parse(&again, &generous).as_ref(), Ok(&message));
}

fuzz_target!(|data: &[u8]| messages::each(data, 16, check));
