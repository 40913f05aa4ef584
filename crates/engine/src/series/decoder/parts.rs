//! What the decoders share: the parts of a message, pixels that lie in them, and messages without numbers.

use super::super::event::{Event, Read};
use bytes::Bytes;
use konkordia_core::array::Array;
use konkordia_core::ports::Message;
use konkordia_wire::stream::{Pixels, Refusal};

/// The parts of a message as slices.
pub fn slices(message: &Message) -> Vec<&[u8]> {
    message.parts.iter().map(|part| &part[..]).collect()
}

/// An event of a protocol that does not number its messages.
pub fn unnumbered(event: Event) -> Read {
    Read { message_number: None, event }
}

/// The array of pixels that lie in `part`, without copying them.
pub fn shared(part: &Bytes, pixels: &Pixels) -> Array {
    Array {
        shape: pixels.shape(),
        element: pixels.element(),
        packing: pixels.packing(),
        pieces: vec![part.slice_ref(pixels.data())],
    }
}

/// Gives a refusal this part number.
pub fn of_part(part: usize) -> impl Fn(Refusal) -> Refusal {
    move |refusal| Refusal { part, ..refusal }
}
