//! Any bytes as a frame with a datagram: it is refused, or the payload lies in the frame behind the headers, and the same
//! frame is found again whatever was known of its checksum.
#![no_main]

use konkordia_sources::packet::frame::{Arrival, ETHERNET_BYTES, Refused, datagram};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;

fuzz_target!(|data: &[u8]| {
    let [cut, frame @ ..] = data else { return };
    for to in ["10.7.0.2:50010", "[fd00::2]:50010"] {
        let to: SocketAddr = to.parse().expect("an address");
        let header = if to.is_ipv4() { 20 } else { 40 };
        let of = |frame_bytes, is_verified| datagram(frame, Arrival { frame_bytes, is_verified }, to);
        let (checked, trusted) = (of(frame.len(), false), of(frame.len(), true));
        match (&checked, &trusted) {
            (Ok(found), _) => assert_eq!(checked, trusted, "{found:?}"),
            (Err(Refused::Checksum), _) => {}
            (Err(why), other) => assert_eq!(other.as_ref().err(), Some(why)),
        }
        if let Ok(found) = &trusted {
            assert!(found.payload.start >= ETHERNET_BYTES + header + 8 && found.payload.start <= found.payload.end);
            assert!(found.payload.end <= frame.len());
            // A frame that was longer than its slot is never used.
            assert_eq!(of(frame.len() + 1 + usize::from(*cut), true), Err(Refused::Joined));
        }
    }
});
