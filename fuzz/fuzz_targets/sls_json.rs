//! Any capture, or any bytes as one part, as messages of the slsReceiver: they are refused, or building them again
//! gives the same message.
#![no_main]

mod messages;

use konkordia_wire::sls_json::Message;
use konkordia_wire::stream::Bounds;
use libfuzzer_sys::fuzz_target;

const BOUNDS: Bounds = Bounds { text_bytes_max: 4096, image_bytes_max: 1 << 20, table_bytes_max: 1 << 20, channels_max: 4 };

fn check(parts: &[&[u8]]) {
    let Ok(message) = Message::parse(parts, &BOUNDS) else { return };
    if let Message::Image(image) = &message {
        assert!(image.data.len() as u64 <= BOUNDS.image_bytes_max);
        assert_eq!(image.data.len() as u64 * 8, image.header.columns * image.header.rows * u64::from(image.header.bits));
    }
    let again = message.build();
    let again: Vec<&[u8]> = again.iter().map(AsRef::as_ref).collect();
    let generous = Bounds { text_bytes_max: 1 << 20, ..BOUNDS };
    assert_eq!(Message::parse(&again, &generous).as_ref(), Ok(&message));
}

fuzz_target!(|data: &[u8]| messages::each(data, 4, check));
