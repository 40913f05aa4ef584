//! What the targets of message formats have in common.

use konkordia_wire::zmsg;

/// Gives the bytes to `check` as one part and, if they are a capture, the parts of its first message.
pub fn each(data: &[u8], parts_max: usize, check: impl Fn(&[&[u8]])) {
    check(&[data]);
    let mut message = zmsg::Message::default();
    if let Ok(true) = zmsg::Reader::new(data, zmsg::Bounds { parts_max, message_bytes_max: 8192 }).read(&mut message) {
        check(&message.parts());
    }
}
