//! Any capture, or any bytes as one part, as messages of STINS: they are refused, or building them again gives the same
//! message.
#![no_main]

mod messages;

use konkordia_wire::stins::Message;
use konkordia_wire::stream::Bounds;
use libfuzzer_sys::fuzz_target;

const BOUNDS: Bounds = Bounds { text_bytes_max: 2048, image_bytes_max: 1 << 20, table_bytes_max: 1 << 20, channels_max: 4 };

fn check(parts: &[&[u8]]) {
    let Ok(message) = Message::parse(parts, &BOUNDS) else { return };
    if let Message::Image(image) = &message {
        let bytes: u64 = image.pieces.iter().map(|piece| piece.unpacked_bytes()).sum();
        assert!(bytes <= BOUNDS.image_bytes_max && (1..=4).contains(&image.pieces.len()));
        assert_eq!(bytes, image.pieces[0].unpacked_bytes() * image.pieces.len() as u64);
    }
    let again = message.build().expect("what was read has names");
    let again: Vec<&[u8]> = again.iter().map(AsRef::as_ref).collect();
    let generous = Bounds { text_bytes_max: 1 << 20, ..BOUNDS };
    assert_eq!(Message::parse(&again, &generous).as_ref(), Ok(&message));
}

fuzz_target!(|data: &[u8]| messages::each(data, 16, check));
