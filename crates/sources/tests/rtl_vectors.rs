//! `rtl/vectors/frames.csv`, with which the logic of `rtl/` is tested, says what this program does with the same
//! frames.

use konkordia_sources::frame::{Arrival, Checksum, Refused, datagram};
use std::net::{IpAddr, SocketAddr};

/// As in `rtl/tests/model_udp.py`.
const FRAME_BYTES_MAX: usize = 9238;
const ADDRESSES: [&str; 2] = ["10.30.20.6", "fd00::30:20:6"];
const PORT_FIRST: u16 = 50010;
const STREAMS: u16 = 4;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Verdict, stream and payload: those of the stream that the frame is for.
fn verdict(frame: &[u8]) -> (&'static str, u16, Vec<u8>) {
    let arrival = Arrival { frame_bytes: frame.len(), here_bytes: frame.len().min(FRAME_BYTES_MAX), checksum: Checksum::Unknown };
    for address in ADDRESSES {
        for stream in 0..STREAMS {
            let to = SocketAddr::new(address.parse::<IpAddr>().unwrap(), PORT_FIRST + stream);
            let found = datagram(frame, arrival, to).and_then(|found| {
                let payload = &frame[found.payload.clone()];
                found.check(payload)?;
                Ok(payload.to_vec())
            });
            match found {
                Ok(payload) => return ("taken", stream, payload),
                Err(Refused::OtherTraffic) => {}
                Err(why) => return (why.name(), 0, Vec::new()),
            }
        }
    }
    (Refused::OtherTraffic.name(), 0, Vec::new())
}

#[test]
fn frames_have_the_verdicts_that_the_logic_gives() {
    let table = include_str!("../../../rtl/vectors/frames.csv");
    let mut rows = table.lines();
    assert_eq!(rows.next(), Some("frame,verdict,stream,payload"));
    let mut seen = std::collections::BTreeSet::new();
    for (n, row) in rows.enumerate() {
        let [frame, name, stream, payload] = row.split(',').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(verdict(&bytes(frame)), (name, stream.parse().unwrap(), bytes(payload)), "row {n}");
        seen.insert(name);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["checksum", "fragment", "length", "other_traffic", "taken", "vlan"]);
}

#[test]
fn frames_that_are_too_long_are_refused_as_by_the_logic() {
    // 42 bytes of headers without a checksum of the datagram; IPv4 over Ethernet, 10.30.20.9 to 10.30.20.6.
    let headers = "000102030405060708090a0b0800 4500 240a 0007 0000 4011 0000 0a1e1409 0a1e1406";
    let mut frame = bytes(&headers.replace(' ', ""));
    frame.extend([0xA0, 0x28, 0xC3, 0x5A, 0x23, 0xF6, 0, 0]);
    frame.resize(FRAME_BYTES_MAX + 1, 0);
    assert_eq!(verdict(&frame).0, "joined");
}
