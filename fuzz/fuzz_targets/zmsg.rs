//! Any bytes as a capture: refused, or messages inside the bounds that are written as they were read.
#![no_main]

use konkordia_wire::zmsg::{Bounds, Message, Reader, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bounds = Bounds { parts_max: 8, message_bytes_max: 4096 };
    let (mut reader, mut message, mut again) = (Reader::new(data, bounds), Message::default(), Vec::new());
    while let Ok(true) = reader.read(&mut message) {
        let parts = message.parts();
        assert!((1..=8).contains(&parts.len()) && parts.iter().map(|part| part.len()).sum::<usize>() <= 4096);
        write(&mut again, &parts).expect("memory takes all bytes");
    }
    assert!(data.starts_with(&again));
});
