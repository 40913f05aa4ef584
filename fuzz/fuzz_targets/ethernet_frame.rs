//! Any bytes as a frame with a datagram, in one buffer or in several: it is refused, or the payload lies in the frame
//! behind the headers, and the same frame is found again whatever was known of its checksum.
#![no_main]

use konkordia_sources::frame::{Arrival, Checksum, ETHERNET_BYTES, Refused, datagram, gather};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;

fuzz_target!(|data: &[u8]| {
    let [cut, frame @ ..] = data else { return };
    for to in ["10.7.0.2:50010", "[fd00::2]:50010"] {
        let to: SocketAddr = to.parse().expect("an address");
        let header = if to.is_ipv4() { 20 } else { 40 };
        let whole = Arrival::whole(frame.len());
        let checked = |arrival| {
            let found = datagram(frame, arrival, to)?;
            found.check(&frame[found.payload.clone()]).map(|()| (found.sender, found.payload))
        };
        let trusted = checked(Arrival { checksum: Checksum::Verified, ..whole });
        for checksum in [Checksum::Unknown, Checksum::MaybeLeft] {
            match checked(Arrival { checksum, ..whole }) {
                Ok(found) => assert_eq!(trusted, Ok(found)),
                Err(Refused::Checksum) => {}
                Err(why) => assert_eq!(trusted, Err(why)),
            }
        }
        let Ok((_, payload)) = trusted else { continue };
        assert!(payload.start >= ETHERNET_BYTES + header + 8 && payload.start <= payload.end);
        assert!(payload.end <= frame.len());
        // A frame that was longer than its slot is never used.
        let longer = Arrival { frame_bytes: frame.len() + 1 + usize::from(*cut), ..whole };
        assert_eq!(checked(longer), Err(Refused::Joined));
        // In several buffers the same is found, if the headers lie in the first one.
        let (first, rest) = frame.split_at(payload.start.max(usize::from(*cut)).min(frame.len()));
        let found = datagram(first, Arrival { checksum: Checksum::Verified, ..whole }, to).expect("the headers are there");
        assert_eq!(found.payload, payload);
        let pieces = std::iter::once(first).chain(rest.chunks(1 + usize::from(*cut)));
        let mut memory = vec![0; frame.len()];
        assert_eq!(gather(pieces, &payload, &mut memory), Some(&frame[payload.clone()]));
        assert!(datagram(&first[..payload.start - 1], whole, to).is_err());
    }
});
