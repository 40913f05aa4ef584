//! Any capture, or any bytes as one part, as messages of Stream V2: they are refused, or building them again gives the
//! same message.
#![no_main]

use konkordia_wire::dectris_v2::Message;
use konkordia_wire::stream::Bounds;
use konkordia_wire::zmsg;
use libfuzzer_sys::fuzz_target;

const BOUNDS: Bounds = Bounds { text_bytes_max: 2048, image_bytes_max: 1 << 20, table_bytes_max: 1 << 20, channels_max: 4 };

fn check(parts: &[&[u8]]) {
    let Ok(message) = Message::parse(parts, &BOUNDS) else { return };
    if let Message::Image(image) = &message {
        let bytes: u64 = image.channels.iter().map(|(_, pixels)| pixels.unpacked_bytes()).sum();
        assert!(bytes <= BOUNDS.image_bytes_max && (1..=4).contains(&image.channels.len()));
    }
    // Compared as bytes, for a number may be NaN.
    let (mut built, mut again) = (Vec::new(), Vec::new());
    message.build(&mut built).expect("what was read has names");
    Message::parse(&[&built], &BOUNDS).expect("what was built is read").build(&mut again).expect("and built");
    assert_eq!(built, again);
}

fuzz_target!(|data: &[u8]| {
    check(&[data]);
    let mut message = zmsg::Message::default();
    if let Ok(true) = zmsg::Reader::new(data, zmsg::Bounds { parts_max: 4, message_bytes_max: 8192 }).read(&mut message) {
        check(&message.parts());
    }
});
