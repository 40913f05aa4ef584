use super::*;
use crate::frames::{ethernet, fragments, frame, ip, seal_ipv4, udp};

fn v4() -> (SocketAddr, SocketAddr) {
    ("10.7.0.1:32410".parse().unwrap(), "10.7.0.2:50010".parse().unwrap())
}

fn v6() -> (SocketAddr, SocketAddr) {
    ("[fd00::1]:32410".parse().unwrap(), "[fd00::2]:50010".parse().unwrap())
}

fn verified(frame: &[u8]) -> Arrival {
    Arrival { checksum: Checksum::Verified, ..Arrival::whole(frame.len()) }
}

/// The payload of a frame in one buffer.
fn read_as(frame: &[u8], arrival: Arrival, to: SocketAddr) -> Result<Vec<u8>, Refused> {
    let found = datagram(frame, arrival, to)?;
    let payload = &frame[found.payload.clone()];
    found.check(payload).map(|()| payload.to_vec())
}

fn read(frame: &[u8], to: SocketAddr) -> Result<Vec<u8>, Refused> {
    read_as(frame, Arrival::whole(frame.len()), to)
}

/// The checksum as RFC 1071 has it: word by word, with the carry of each addition.
fn naive_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0_u16, |sum, word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
        sum + u16::from(carry)
    })
}

fn bytes_of(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 7 + n / 256) as u8).collect()
}

#[test]
fn datagrams_of_every_length_are_found_with_their_sender() {
    for (from, to) in [v4(), v6()] {
        for bytes in [0, 1, 2, 3, 17, 18, 19, 1400, 8240, 8972, 65_000] {
            let payload = bytes_of(bytes);
            let frame = frame(from, to, &payload);
            let found = datagram(&frame, Arrival::whole(frame.len()), to).unwrap();
            assert_eq!(found.sender, Sender::from(from), "{bytes} bytes");
            assert_eq!((&frame[found.payload.clone()], found.check(&payload)), (&payload[..], Ok(())));
        }
    }
}

#[test]
fn a_frame_written_byte_by_byte_is_found() {
    let frame = [
        [0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00].as_slice(),
        // Version 4, 5 words, 32 bytes; not a fragment; 64 hops, UDP, checksum; 10.0.0.1 to 10.0.0.2.
        &[0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0x66, 0xCB, 10, 0, 0, 1, 10, 0, 0, 2],
        // Ports 1 and 2, 12 bytes, no checksum, "abcd".
        &[0, 1, 0, 2, 0, 12, 0, 0, b'a', b'b', b'c', b'd'],
    ]
    .concat();
    assert_eq!(read(&frame, "10.0.0.2:2".parse().unwrap()).unwrap(), b"abcd");
}

#[test]
fn what_is_for_somebody_else_is_other_traffic() {
    for (from, to) in [v4(), v6()] {
        let good = frame(from, to, b"data");
        let other_port = SocketAddr::new(to.ip(), to.port() + 1);
        assert_eq!(read(&good, other_port), Err(Refused::OtherTraffic));
        assert_eq!(read(&good, SocketAddr::new(from.ip(), to.port())), Err(Refused::OtherTraffic));
        assert_eq!(read(&ethernet(&[], &ip(from.ip(), to.ip(), 6, &[0; 40])), to), Err(Refused::OtherTraffic));
    }
    assert_eq!(read(&frame(v4().0, v4().1, b"data"), v6().1), Err(Refused::OtherTraffic));
    let mut arp = frame(v4().0, v4().1, b"data");
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(read(&arp, v4().1), Err(Refused::OtherTraffic));
}

#[test]
fn the_first_fragment_of_a_datagram_counts_as_one() {
    for (from, to) in [v4(), v6()] {
        let parts = fragments(from, to, &[5; 8240], 1500, 7);
        let said: Vec<_> = parts.iter().map(|part| read(part, to)).collect();
        assert_eq!(said[0], Err(Refused::Fragment));
        assert!(said[1..].iter().all(|said| *said == Err(Refused::OtherTraffic)), "{said:?}");
        // The filter keeps only the head.
        let head = &parts[0][..128];
        let arrival = Arrival { frame_bytes: parts[0].len(), ..Arrival::whole(head.len()) };
        assert_eq!(datagram(head, arrival, to), Err(Refused::Fragment));
    }
}

#[test]
fn tags_with_a_number_are_of_another_vlan_and_tags_without_give_a_priority() {
    for (from, to) in [v4(), v6()] {
        let packet = ip(from.ip(), to.ip(), 17, &udp(from, to, b"data"));
        for (tags, expected) in [
            (&[0xE000][..], Ok(b"data".to_vec())),
            (&[0, 0x2000], Ok(b"data".to_vec())),
            (&[5], Err(Refused::Vlan)),
            (&[0, 4095], Err(Refused::Vlan)),
            (&[0, 0, 0], Err(Refused::OtherTraffic)),
        ] {
            assert_eq!(read(&ethernet(tags, &packet), to), expected, "{tags:?}");
        }
    }
}

#[test]
fn every_wrong_bit_of_headers_and_payload_is_noticed() {
    for (from, to) in [v4(), v6()] {
        let good = frame(from, to, b"some data of a detector");
        let udp_at = good.len() - 31;
        // Ethernet has a checksum of its own, and that of IP is for IPv4 only.
        let covered = if to.is_ipv4() { 14..good.len() } else { udp_at..good.len() };
        for bit in covered.start * 8..covered.end * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let said = read(&bad, to);
            let is_checksum_gone = to.is_ipv4() && bad[udp_at + 6..udp_at + 8] == [0, 0];
            assert!(said.is_err() || is_checksum_gone, "bit {} of byte {}", bit % 8, bit / 8);
            // What the card has verified is not looked at again.
            if bit / 8 >= udp_at + 8 {
                assert_eq!(said, Err(Refused::Checksum));
                assert_eq!(read_as(&bad, verified(&bad), to).unwrap(), bad[udp_at + 8..]);
            }
        }
    }
}

#[test]
fn a_datagram_without_checksum_is_taken_over_ipv4_only() {
    for (from, to) in [v4(), v6()] {
        let mut bytes = udp(from, to, b"data");
        bytes[6..8].fill(0);
        let expected = if to.is_ipv4() { Ok(b"data".to_vec()) } else { Err(Refused::Checksum) };
        assert_eq!(read(&ethernet(&[], &ip(from.ip(), to.ip(), 17, &bytes)), to), expected);
    }
}

#[test]
fn options_of_the_ip_header_are_skipped() {
    let (from, to) = v4();
    let plain = ip(from.ip(), to.ip(), 17, &udp(from, to, b"data"));
    let mut packet = plain[..20].to_vec();
    packet.extend([1; 12]);
    packet.extend(&plain[20..]);
    packet[0] = 0x48;
    let bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&bytes.to_be_bytes());
    seal_ipv4(&mut packet, 32);
    assert_eq!(read(&ethernet(&[], &packet), to).unwrap(), b"data");
}

#[test]
fn contradictory_lengths_are_refused() {
    for (from, to) in [v4(), v6()] {
        let good = frame(from, to, &[7; 100]);
        let udp_at = good.len() - 108;
        // The UDP length: below its header, more than the packet has, and less, which is allowed.
        for (bytes, expected) in
            [(0u16, Some(Refused::Length)), (7, Some(Refused::Length)), (109, Some(Refused::Length)), (50, None)]
        {
            let mut bad = good.clone();
            bad[udp_at + 4..udp_at + 6].copy_from_slice(&bytes.to_be_bytes());
            let said = datagram(&bad, verified(&bad), to);
            assert_eq!(said.as_ref().err(), expected.as_ref(), "{bytes}");
            assert!(said.is_err() || said.unwrap().payload == (udp_at + 8..udp_at + 50));
        }
        // Every cut of the frame.
        for bytes in 0..good.len() {
            let said = read(&good[..bytes], to);
            assert!(matches!(said, Err(Refused::Length)), "{bytes}: {said:?}");
        }
        // Cut by the ring, which is as long as the longest packet of the interface.
        let arrival = Arrival { frame_bytes: 40_000, ..verified(&good) };
        assert_eq!(datagram(&good, arrival, to), Err(Refused::Joined));
        // The headers must lie in the first buffer, the payload need not.
        assert!(datagram(&good[..udp_at + 8], Arrival::whole(good.len()), to).is_ok());
        assert_eq!(datagram(&good[..udp_at + 7], Arrival::whole(good.len()), to), Err(Refused::Length));
        assert_eq!(datagram(&good[..udp_at + 8], Arrival::whole(good.len() - 1), to), Err(Refused::Length));
    }
}

#[test]
fn checksums_that_were_left_to_a_card_are_believed_only_where_that_can_be() {
    let content = bytes_of(1001);
    for (from, to) in [v4(), v6()] {
        let mut made = frame(from, to, &content);
        let udp_at = made.len() - 1009;
        let addresses = if to.is_ipv4() { &made[26..34] } else { &made[22..54] };
        let left = naive_sum(&[addresses, &[0, 17], &1009_u16.to_be_bytes()].concat());
        made[udp_at + 6..udp_at + 8].copy_from_slice(&left.to_be_bytes());
        let maybe_left = Arrival { checksum: Checksum::MaybeLeft, ..Arrival::whole(made.len()) };
        assert_eq!(read_as(&made, maybe_left, to).unwrap(), content);
        assert_eq!(read(&made, to), Err(Refused::Checksum));
        made[udp_at + 7] ^= 1;
        assert_eq!(read_as(&made, maybe_left, to), Err(Refused::Checksum));
    }
}

#[test]
fn sums_are_those_of_the_definition() {
    for count in 0..70 {
        let data = bytes_of(count);
        assert_eq!(folded(sum(&data)).to_be(), naive_sum(&data), "{count}");
    }
    assert_eq!(folded(sum(&[0xFF; 65535])).to_be(), naive_sum(&[0xFF; 65535]));
}

#[test]
fn a_payload_in_pieces_is_put_together() {
    let whole = bytes_of(8282);
    for piece_bytes in [1, 7, 1792, 3840, 8282, 9000] {
        for range in [0..8282, 42..8282, 42..42, 3840..3841, 3839..7681, 8281..8282] {
            let mut memory = vec![0xAA; 9000];
            let joined = gather(whole.chunks(piece_bytes), &range, &mut memory);
            assert_eq!(joined, Some(&whole[range.clone()]), "{piece_bytes} {range:?}");
        }
    }
    assert_eq!(gather(whole.chunks(100), &(0..8282), &mut [0; 8281]), None, "no room");
    assert_eq!(gather(whole.chunks(100), &(0..8283), &mut [0; 9000]), None, "pieces missing");
}

/// The seeds of the fuzz target; `KONKORDIA_WRITE_SEEDS=1` writes them anew. The first byte is for the target.
#[test]
fn the_seeds_of_the_fuzz_target_are_frames_of_every_kind() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/ethernet_frame");
    let (from, to) = v4();
    let data = b"data of a detector";
    let tagged = ethernet(&[0, 5], &ip(from.ip(), to.ip(), 17, &udp(from, to, data)));
    let frames = [
        ("ipv4", frame(from, to, data)),
        ("ipv6", frame(v6().0, v6().1, data)),
        ("fragment", fragments(from, to, &[3; 300], 200, 1).remove(0)),
        ("fragment6", fragments(v6().0, v6().1, &[3; 300], 200, 1).remove(0)),
        ("vlan", tagged),
    ];
    for (name, frame) in frames {
        let bytes = [&[0][..], &frame].concat();
        if std::env::var_os("KONKORDIA_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), &bytes).unwrap();
        }
        assert!(std::fs::read(folder.join(name)).ok() == Some(bytes), "{name} is not what is built");
    }
}

#[test]
fn every_reason_has_a_name_a_text_and_a_counter() {
    for (n, why) in Refused::ALL.into_iter().enumerate() {
        assert_eq!(why as usize, n);
        assert!(!why.name().is_empty() && !why.advice().is_empty());
    }
}
