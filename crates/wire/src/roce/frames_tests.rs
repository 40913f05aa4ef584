use super::*;
use crate::roce::opcode::Opcode;
use crate::roce::outer::{DONT_FRAGMENT, Ip};
use crate::roce::{Header, Psn, QueuePairNumber, RemoteMemory};
use konkordia_core::tile::RemotePages;

const PAGES: RemotePages = RemotePages { queue_pair: 700, key: 0x1234, address: 1 << 20, pages: 16, has_outer_headers: true };

fn tile(has_outer_headers: bool) -> TileFormat {
    TileFormat::jungfrau(1).unwrap().by_rdma(4096, RemotePages { has_outer_headers, ..PAGES }).unwrap()
}

fn outers() -> [Outer; 2] {
    let v4 = Ip::V4 {
        source: "10.8.0.1".parse().unwrap(),
        destination: "10.8.0.2".parse().unwrap(),
        identification: 0xA5A5,
        flags: DONT_FRAGMENT,
    };
    let v6 = Ip::V6 { source: "fd08::1".parse().unwrap(), destination: "fd08::2".parse().unwrap() };
    [v4, v6].map(|ip| Outer { ip, source_port: 49152, destination_port: 4791 })
}

/// The packet of index `number` in page 3, in its IP packet, and where it begins there.
fn ip_packet(outer: Outer, number: u64) -> (Vec<u8>, usize) {
    let opcode = Opcode::of_byte(0x2A).unwrap();
    let destination = QueuePairNumber::new(PAGES.queue_pair).unwrap();
    let address = PAGES.address + 3 * tile(true).page_bytes() + number * 4096;
    let remote_memory = RemoteMemory { address, key: PAGES.key, length_bytes: 4096 };
    let header = Header { remote_memory, ..Header::new(opcode, destination, Psn::new(77)) };
    let payload: Vec<u8> = (0..4096).map(|n| (n * 7 + 1) as u8).collect();
    let mut bytes = vec![0; outer.header_bytes() + header.packet_bytes(payload.len())];
    let at = outer.write(header.packet_bytes(payload.len()), 2, &mut bytes);
    header.encode(&payload, &mut bytes[at..]);
    outer.seal(&mut bytes[at..]);
    (bytes, at)
}

#[test]
fn behind_its_headers_a_packet_is_the_same_as_without_them() {
    for outer in outers() {
        let (bytes, at) = ip_packet(outer, 5);
        let with = RoceFrames::decode(&bytes, &tile(true)).unwrap();
        let without = RoceFrames::decode(&bytes[at..], &tile(false)).unwrap();
        assert_eq!((with.packet(), with.frame_number(), with.place()), (5, 3, without.place()));
        assert_eq!((with.payload(), with.datagram()), (without.payload(), &bytes[..]));
        assert_eq!(RoceFrames::claims(&bytes), RoceFrames::claims(&bytes[at..]));
        assert_eq!(RoceFrames::claims(&bytes).unwrap().fields.packet_number, 77);
        // Each expects its own.
        assert!(matches!(RoceFrames::decode(&bytes, &tile(false)).unwrap_err(), Malformed::Version | Malformed::Length));
        assert_eq!(RoceFrames::decode(&bytes[at..], &tile(true)).unwrap_err(), Malformed::Version);
        assert!(bytes.len() <= tile(true).datagram_bytes() as usize && bytes.len() - at <= tile(false).datagram_bytes() as usize);
    }
}

/// Every bit: what the iCRC covers makes it wrong, unless the packet is none any more; the others change nothing.
#[test]
fn a_packet_that_was_changed_anywhere_is_not_placed() {
    for outer in outers() {
        let (good, at) = ip_packet(outer, 5);
        let is_v4 = at == 28;
        // Type of service, time to live, checksums, congestion marks: what routers may change.
        let may_change: &[usize] = if is_v4 { &[1, 8, 10, 11, 26, 27, 32] } else { &[0, 1, 2, 3, 7, 46, 47, 52] };
        let bytes = (0..at + 64).chain((at + 64..good.len()).step_by(97)).chain(good.len() - 4..good.len());
        let mut wrong = 0;
        for bit in bytes.flat_map(|byte| byte * 8..byte * 8 + 8) {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match RoceFrames::decode(&bytes, &tile(true)) {
                Ok(packet) => {
                    assert!(may_change.contains(&(bit / 8)), "bit {bit}");
                    assert_eq!((packet.packet(), packet.payload()), (5, &good[at + 28..good.len() - 4]));
                }
                // Version and flow of IPv6 share a byte.
                Err(Malformed::Icrc) => {
                    wrong += 1;
                    assert!(!may_change.contains(&(bit / 8)), "bit {bit}");
                }
                Err(why) => assert!(matches!(why, Malformed::Length | Malformed::Version) && bit / 8 < at + 2, "{why:?} {bit}"),
            }
        }
        assert!(wrong > 800, "{wrong}");
    }
}

#[test]
fn a_right_icrc_does_not_make_a_packet_of_somebody_else_ours() {
    let (mut bytes, at) = ip_packet(outers()[0], 5);
    let refused = |bytes: &mut Vec<u8>, changed: usize| {
        bytes[changed] ^= 0x40;
        outers()[0].seal(&mut bytes[28..]);
        let why = RoceFrames::decode(bytes, &tile(true)).unwrap_err();
        bytes[changed] ^= 0x40;
        why
    };
    assert_eq!(refused(&mut bytes, at + 7), Malformed::Access, "queue pair");
    assert_eq!(refused(&mut bytes, at + 12), Malformed::Access, "address");
    assert_eq!(refused(&mut bytes, at + 23), Malformed::Access, "key");
    assert_eq!(refused(&mut bytes, at + 19), Malformed::PacketNumber, "beside the packets of a page");
    assert_eq!(RoceFrames::decode(&[], &tile(true)).unwrap_err(), Malformed::Length);
    assert_eq!(RoceFrames::decode(&bytes[..at + 10], &tile(true)).unwrap_err(), Malformed::Length);
}
