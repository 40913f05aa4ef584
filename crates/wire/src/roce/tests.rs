use super::frame::{Ethernet, FRAME_BYTES_MIN, packet_of, range_in};
use super::opcode::Transport;
use super::outer::{DONT_FRAGMENT, Ip, NoDatagram, Outer};
use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn qpn(number: u32) -> QueuePairNumber {
    QueuePairNumber::new(number).unwrap()
}

/// The iCRC as the specification describes it: whole pseudo packet in one piece, one bit at a time.
fn naive_icrc(ip_packet: &[u8]) -> u32 {
    let mut masked = vec![0xFF; 8];
    masked.extend(ip_packet);
    let udp = if ip_packet[0] >> 4 == 4 {
        for at in [1, 8, 10, 11] {
            masked[8 + at] = 0xFF;
        }
        28
    } else {
        masked[8] |= 0x0F;
        for at in [1, 2, 3, 7] {
            masked[8 + at] = 0xFF;
        }
        48
    };
    masked[udp + 6] = 0xFF;
    masked[udp + 7] = 0xFF;
    masked[udp + 8 + 4] = 0xFF;
    masked.truncate(masked.len() - 4);
    let mut crc = u32::MAX;
    for byte in masked {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// Origin: captured from a ConnectX-4 Lx; in the tests of scapy 2.6.1 (`contrib/roce.uts`).
const CONGESTION_FRAME: &str = "e41d2dab2bc2 7cfe90643b32 0800 45c2003c718c400040119161 0a001101 0a001201 0000 12b7 0028 0000
    8100ffff 40000118 00000000 00000000000000000000000000000000 82fd002a";

#[test]
fn the_icrc_of_a_network_card_is_right() {
    let frame = unhex(CONGESTION_FRAME);
    assert_eq!(frame.len(), 74);
    let (outer, bytes) = packet_of(&frame).unwrap();
    let packet = Packet::new_checked(bytes).unwrap();
    assert!(outer.is_right(&packet));
    assert_eq!(packet.icrc(), u32::from_le_bytes([0x82, 0xfd, 0x00, 0x2a]));
    assert_eq!(packet.opcode().operation(), Operation::CongestionNotification);
    assert!(packet.has_backward_congestion() && !packet.is_migrated() && packet.payload().is_empty());
    assert_eq!((packet.destination(), packet.partition_key(), packet.psn()), (qpn(0x118), 0xFFFF, Psn::new(0)));
    assert_eq!(range_in(&frame, bytes), 42..74);
    // And the whole of it is made again from its description.
    let mut again = [0; 74];
    let ethernet = Ethernet { destination: frame[..6].try_into().unwrap(), source: frame[6..12].try_into().unwrap() };
    let at = ethernet.write(&outer, 32, 0xC2, &mut again);
    let header = Header { is_migrated: false, ..Header::new(packet.opcode(), qpn(0x118), Psn::new(0)) };
    assert_eq!(header.encode(&[], &mut again[at..]), 32);
    outer.seal(&mut again[at..]);
    assert_eq!(again, frame[..]);
}

/// Origin: scapy 2.6.1, `contrib/roce.uts`, packet of RoCEv2 over IPv4; recalculated with zlib.
#[test]
fn the_icrc_of_a_send_is_right() {
    let outer = Outer {
        ip: Ip::V4 {
            source: Ipv4Addr::new(192, 168, 0, 7),
            destination: Ipv4Addr::new(192, 168, 0, 7),
            identification: 1144,
            flags: DONT_FRAGMENT,
        },
        source_port: 49152,
        destination_port: UDP_PORT,
    };
    let payload = *b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P";
    let opcode = Opcode::find(Transport::UnreliableConnection, Operation::Send, Part::Only, false).unwrap();
    assert_eq!(opcode.byte(), 0x24);
    let mut packet = [0; 36];
    assert_eq!(Header::new(opcode, qpn(211), Psn::new(13_571_856)).encode(&payload, &mut packet), 36);
    outer.seal(&mut packet);
    assert_eq!(packet[32..], [0x78, 0xf3, 0x53, 0xf3]);
    let view = Packet::new_checked(&packet).unwrap();
    assert_eq!((view.payload(), view.pad_bytes(), view.is_migrated()), (&payload[..], 2, true));
    assert!(outer.is_right(&view));
}

/// Origin: made with scapy 2.6.1, whose iCRC agrees with zlib's CRC-32 over the masked headers.
const MADE_V4: &str = "020000000002 020000000001 0800 45020048123440004011146d0a0000010a000002 c00112b700340000
    2b30ffff0000001100000000 00000000000010000000009900000005 deadbeef 68656c6c6f000000 e1137457";
const MADE_V6: &str = "020000000002 020000000001 86dd 6000000000341140 fd000000000000000000000000000001
    fd000000000000000000000000000002 c00112b700340000
    2b30ffff0000001100ffffff 00000000000010000000009900000005 deadbeef 68656c6c6f000000 af414477";

fn made_v4() -> Outer {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let ip = Ip::V4 { source, destination, identification: 0x1234, flags: DONT_FRAGMENT };
    Outer { ip, source_port: 0xC001, destination_port: UDP_PORT }
}

#[test]
fn frames_of_scapy_are_read_and_made_again() {
    let v6 = Ip::V6 { source: "fd00::1".parse().unwrap(), destination: "fd00::2".parse().unwrap() };
    let cases = [(MADE_V4, made_v4(), 0, 2), (MADE_V6, Outer { ip: v6, ..made_v4() }, 0xFF_FFFF, 0)];
    for (text, made, psn, type_of_service) in cases {
        let frame = unhex(text);
        let (outer, bytes) = packet_of(&frame).unwrap();
        assert_eq!(outer, made);
        let packet = Packet::new_checked(bytes).unwrap();
        assert!(outer.is_right(&packet));
        let memory = RemoteMemory { address: 0x1000, key: 0x99, length_bytes: 5 };
        assert_eq!((packet.remote_memory(), packet.immediate()), (Some(memory), Some(0xDEAD_BEEF)));
        assert_eq!((packet.payload(), packet.psn()), (&b"hello"[..], Psn::new(psn)));
        let header = Header {
            is_migrated: false,
            remote_memory: memory,
            immediate: 0xDEAD_BEEF,
            ..Header::new(packet.opcode(), qpn(0x11), Psn::new(psn))
        };
        let mut again = vec![0xAA; frame.len()];
        let ethernet = Ethernet { destination: [2, 0, 0, 0, 0, 2], source: [2, 0, 0, 0, 0, 1] };
        let at = ethernet.write(&outer, header.packet_bytes(5), type_of_service, &mut again);
        header.encode(b"hello", &mut again[at..]);
        outer.seal(&mut again[at..]);
        assert_eq!(again, frame);
    }
}

/// Origin: iCRC of a first packet of 4096 bytes and a last one of 100, by scapy 2.6.1.
#[test]
fn the_icrc_of_several_pieces_is_that_of_one() {
    let payload: Vec<u8> = (0..4096_u32).map(|i| i as u8).collect();
    let cases = [(Part::First, 4096, [0x8f, 0x10, 0x1a, 0xcf]), (Part::Last, 100, [0x36, 0xd8, 0x58, 0xc1])];
    for (part, bytes, expected) in cases {
        let opcode = Opcode::find(Transport::UnreliableConnection, Operation::Write, part, false).unwrap();
        let remote_memory = RemoteMemory { address: 0x1000, key: 0x99, length_bytes: 4196 };
        let header = Header { is_migrated: false, remote_memory, ..Header::new(opcode, qpn(0x11), Psn::new(0)) };
        let mut head = [0; HEADERS_BYTES_MAX];
        let head_bytes = header.write(bytes, &mut head);
        let pieces = [&head[..head_bytes], &payload[..bytes / 2], &payload[bytes / 2..bytes]];
        assert_eq!(made_v4().icrc(&pieces).to_le_bytes(), expected);
    }
}

#[test]
fn tags_are_passed_over_and_padding_of_short_frames_is_left_out() {
    let plain = unhex(MADE_V4);
    let (outer, bytes) = packet_of(&plain).unwrap();
    let mut tagged = plain[..12].to_vec();
    tagged.extend([0x88, 0xA8, 0x00, 0x07, 0x81, 0x00, 0x60, 0x05]);
    tagged.extend(&plain[12..]);
    assert_eq!(packet_of(&tagged).unwrap(), (outer, bytes));
    let mut thrice = tagged[..12].to_vec();
    thrice.extend([0x81, 0x00, 0, 1]);
    thrice.extend(&tagged[12..]);
    assert_eq!(packet_of(&thrice), Err(NoDatagram::OtherTraffic));
    // A packet of 16 bytes is in a frame of 58, which has 2 bytes of padding; more may come as well.
    let opcode = Opcode::of_byte(0x24).unwrap();
    let mut short = [0xEE; 70];
    let ethernet = Ethernet { destination: [2; 6], source: [4; 6] };
    let at = ethernet.write(&outer, 16, 0, &mut short);
    Header::new(opcode, qpn(1), Psn::new(9)).encode(&[], &mut short[at..]);
    outer.seal(&mut short[at..at + 16]);
    for bytes in [FRAME_BYTES_MIN, 70] {
        let (outer, packet) = packet_of(&short[..bytes]).unwrap();
        assert_eq!(packet.len(), 16);
        assert!(outer.is_right(&Packet::new_checked(packet).unwrap()));
    }
    assert_eq!(packet_of(&short[..57]), Err(NoDatagram::Length));
}

#[test]
fn other_traffic_fragments_and_wrong_lengths_are_no_datagrams() {
    let good = unhex(MADE_V4);
    let check = |at: usize, byte: u8, expected: NoDatagram| {
        let mut frame = good.clone();
        frame[at] = byte;
        assert_eq!(packet_of(&frame), Err(expected), "byte {at} = {byte:#x}");
    };
    check(12, 0x09, NoDatagram::OtherTraffic);
    check(14, 0x46, NoDatagram::OtherTraffic);
    check(23, 6, NoDatagram::OtherTraffic);
    check(37, 0xB8, NoDatagram::OtherTraffic);
    check(20, 0x20, NoDatagram::Fragment);
    check(21, 0x01, NoDatagram::Fragment);
    check(17, 0x49, NoDatagram::Length);
    check(17, 0x13, NoDatagram::Length);
    check(39, 0x35, NoDatagram::Length);
    for bytes in 0..good.len() {
        assert!(packet_of(&good[..bytes]).is_err());
    }
    let v6 = unhex(MADE_V6);
    let mut fragment = v6.clone();
    fragment[20] = 44;
    assert_eq!(packet_of(&fragment), Err(NoDatagram::Fragment));
    for bytes in 0..v6.len() {
        assert!(packet_of(&v6[..bytes]).is_err());
    }
}

#[test]
fn what_is_no_packet_is_refused_with_its_reason() {
    let frame = unhex(MADE_V4);
    let good = packet_of(&frame).unwrap().1;
    let check = |at: usize, byte: u8, expected: NoPacket| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        assert_eq!(Packet::new_checked(&bytes).unwrap_err(), expected);
        assert!(!expected.to_string().is_empty());
    };
    check(0, 0x4A, NoPacket::Opcode(0x4A));
    check(0, 0x80, NoPacket::Opcode(0x80));
    check(0, 0x6A, NoPacket::Opcode(0x6A));
    check(1, 0x31, NoPacket::Version(1));
    for bytes in 0..good.len() {
        // Of 44 bytes, 12 are headers for the immediate data and RETH, and 3 are padding.
        let is_packet = bytes % 4 == 0 && bytes >= BTH_BYTES + RETH_BYTES + IMMEDIATE_BYTES + ICRC_BYTES + 3;
        assert_eq!(Packet::new_checked(&good[..bytes]).is_ok(), is_packet, "{bytes}");
    }
    let mut long = vec![0; BTH_BYTES + 4097 + 3 + ICRC_BYTES];
    long[0] = 0x24;
    assert_eq!(Packet::new_checked(&long).unwrap_err(), NoPacket::Length);
    long[1] = 0x30;
    assert_eq!(Packet::new_checked(&long).unwrap_err(), NoPacket::Length);
}

/// InfiniBand Architecture Specification, volume 1, table 38, as the columns of the rows read there.
#[test]
fn the_table_has_every_opcode_with_its_headers() {
    let known: Vec<u8> = (0..=u8::MAX).filter(|byte| Opcode::of_byte(*byte).is_some()).collect();
    let mut expected: Vec<u8> = (0x00..=0x14).chain([0x16, 0x17]).chain(0x20..=0x2B).chain([0x64, 0x65, 0x81]).collect();
    expected.sort_unstable();
    assert_eq!(known, expected);
    for byte in known {
        let opcode = Opcode::of_byte(byte).unwrap();
        assert_eq!(opcode.byte(), byte);
        let is_datagram = byte >> 5 == 3;
        let low = byte & 0x1F;
        let has_immediate = byte != 0x81 && [0x03, 0x05, 0x09, 0x0B].contains(&low);
        let has_reth = byte != 0x81 && [0x06, 0x0A, 0x0B, 0x0C].contains(&low);
        assert_eq!(opcode.has_immediate(), has_immediate, "{byte:#x}");
        assert_eq!(opcode.reth_at().is_some(), has_reth, "{byte:#x}");
        assert_eq!(opcode.deth_at().is_some(), is_datagram, "{byte:#x}");
        let other = match byte {
            0x0D | 0x0F | 0x10 | 0x11 => 4,
            0x12 => 12,
            0x13 | 0x14 => 28,
            0x16 | 0x17 => 4,
            0x81 => 16,
            _ => 0,
        };
        let bytes = 12 + if is_datagram { 8 } else { 0 } + if has_reth { 16 } else { 0 } + if has_immediate { 4 } else { 0 };
        assert_eq!(opcode.headers_bytes(), bytes + other, "{byte:#x}");
        assert!(opcode.headers_bytes() <= HEADERS_BYTES_MAX);
    }
}

#[test]
fn numbers_wrap_and_compare_over_the_wrap() {
    assert_eq!(Psn::new(0xFF_FFFF).plus(1), Psn::new(0));
    assert_eq!(Psn::new(0).since(Psn::new(0xFF_FFFF)), 1);
    assert_eq!(Psn::new(0xFF_FFFF).since(Psn::new(1)), -2);
    assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
    assert_eq!(Psn::new(0x7F_FFFF).since(Psn::new(0)), 0x7F_FFFF);
    assert!(QueuePairNumber::new(0xFF_FFFF).is_some() && QueuePairNumber::new(0x100_0000).is_none());
    assert_eq!(PathMtu::ALL.map(PathMtu::bytes), [256, 512, 1024, 2048, 4096]);
    assert_eq!((PathMtu::of_bytes(1024), PathMtu::of_bytes(1500)), (Some(PathMtu::Bytes1024), None));
    assert!(is_same_partition(0xFFFF, 0x7FFF) && is_same_partition(0x8001, 0x8001));
    assert!(!is_same_partition(0x7FFF, 0x7FFF) && !is_same_partition(0x8000, 0x8000) && !is_same_partition(0x8001, 0x8002));
    for byte in 0..=u8::MAX {
        assert_eq!(Syndrome::of_byte(byte).byte(), byte);
    }
}

#[test]
fn behind_a_udp_socket_the_header_is_the_one_that_linux_sends() {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    let outer = Outer::of_udp_socket(at("10.0.0.1:49153"), at("10.0.0.2:4791")).unwrap();
    let Ip::V4 { identification: 0, flags: DONT_FRAGMENT, .. } = outer.ip else { panic!("{outer:?}") };
    assert_eq!(Outer::of_udp_socket(at("[::ffff:10.0.0.1]:49153"), at("10.0.0.2:4791")), Some(outer));
    assert_eq!(Outer::of_udp_socket(at("[fd00::1]:1"), at("10.0.0.2:4791")), None);
    assert_eq!(outer.source(), at("10.0.0.1:49153"));
}

fn opcodes() -> impl Strategy<Value = Opcode> {
    any::<u8>().prop_filter_map("an opcode", Opcode::of_byte)
}

prop_compose! {
    fn headers()(opcode in opcodes(), flags in any::<[bool; 4]>(), partition_key in any::<u16>(), numbers in any::<[u32; 4]>(),
        address in any::<u64>(), rest in any::<[u32; 4]>(), syndrome in any::<u8>()) -> Header {
        Header {
            opcode,
            is_solicited: flags[0],
            is_migrated: flags[1],
            partition_key,
            has_backward_congestion: flags[2],
            destination: QueuePairNumber(numbers[0] & NUMBER_MASK),
            asks_acknowledge: flags[3],
            psn: Psn::new(numbers[1]),
            datagram_source: DatagramSource {
                queue_key: rest[0], queue_pair: QueuePairNumber(numbers[2] & NUMBER_MASK) },
            remote_memory: RemoteMemory { address, key: rest[1], length_bytes: rest[2] },
            immediate: rest[3],
            acknowledgement: Acknowledgement { syndrome: Syndrome::of_byte(syndrome), messages: numbers[3] & NUMBER_MASK },
        }
    }
}

prop_compose! {
    fn outers()(is_v4 in any::<bool>(), sources in any::<[u8; 16]>(), destinations in any::<[u8; 16]>(),
        identification in any::<u16>(), source_port in any::<u16>(), is_whole in any::<bool>()) -> Outer {
        let four = |octets: [u8; 16]| Ipv4Addr::from([octets[0], octets[1], octets[2], octets[3]]);
        let ip = if is_v4 {
            let flags = if is_whole { DONT_FRAGMENT } else { 0 };
            Ip::V4 { source: four(sources), destination: four(destinations), identification, flags }
        } else {
            Ip::V6 { source: Ipv6Addr::from(sources), destination: Ipv6Addr::from(destinations) }
        };
        Outer { ip, source_port, destination_port: UDP_PORT }
    }
}

proptest! {
    /// Whatever is encoded is read back with all its fields, in a frame whose checksums are right.
    #[test]
    fn a_packet_comes_back_as_it_was_described(header in headers(), outer in outers(), tos in any::<u8>(),
        payload in proptest::collection::vec(any::<u8>(), 0..600)) {
        let bytes = header.packet_bytes(payload.len());
        let mut frame = vec![0x55; 14 + outer.header_bytes() + bytes];
        let at = Ethernet { destination: [2; 6], source: [4; 6] }.write(&outer, bytes, tos, &mut frame);
        prop_assert_eq!(header.encode(&payload, &mut frame[at..]), bytes);
        outer.seal(&mut frame[at..]);
        prop_assert_eq!(&frame[at + bytes - 4..], &naive_icrc(&frame[14..]).to_le_bytes());

        let (found, packet) = packet_of(&frame).unwrap();
        prop_assert_eq!(found, outer);
        let packet = Packet::new_checked(packet).unwrap();
        prop_assert!(outer.is_right(&packet));
        let opcode = header.opcode;
        prop_assert_eq!(packet.payload(), &payload[..]);
        prop_assert_eq!(packet.pad_bytes(), (4 - payload.len() % 4) % 4);
        let again = Header {
            opcode: packet.opcode(),
            is_solicited: packet.is_solicited(),
            is_migrated: packet.is_migrated(),
            partition_key: packet.partition_key(),
            has_backward_congestion: packet.has_backward_congestion(),
            destination: packet.destination(),
            asks_acknowledge: packet.asks_acknowledge(),
            psn: packet.psn(),
            datagram_source: packet.datagram_source().unwrap_or(header.datagram_source),
            remote_memory: packet.remote_memory().unwrap_or(header.remote_memory),
            immediate: packet.immediate().unwrap_or(header.immediate),
            acknowledgement: packet.acknowledgement().unwrap_or(header.acknowledgement),
        };
        prop_assert_eq!(again, header);
        prop_assert_eq!(packet.immediate().is_some(), opcode.has_immediate());
        for mtu in PathMtu::ALL {
            let length = payload.len();
            let suits = match opcode.part() {
                Part::First | Part::Middle => length == mtu.bytes(),
                Part::Last => length > 0 && length <= mtu.bytes(),
                Part::Only => length <= mtu.bytes(),
            };
            prop_assert_eq!(packet.suits(mtu), suits);
        }
        // Any bit that the iCRC covers makes it wrong; those that change on the way do not.
        let v4 = matches!(outer.ip, Ip::V4 { .. });
        let free: &[usize] = if v4 { &[15, 22, 24, 25, 40, 41, 46] } else { &[15, 16, 17, 21, 60, 61, 66] };
        for at in [14 + outer.header_bytes() - 8, frame.len() - 1, 14 + outer.header_bytes() + 11].iter().chain(free) {
            let mut other = frame.clone();
            other[*at] ^= 1;
            let (outer, bytes) = packet_of(&other).unwrap();
            let is_right = Packet::new_checked(bytes).is_ok_and(|packet| outer.is_right(&packet));
            prop_assert_eq!(is_right, free.contains(at), "byte {}", at);
        }
    }

    /// Any bytes are refused, or all getters stay inside of them.
    #[test]
    fn any_bytes_are_refused_or_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200), opcode in opcodes(),
        is_likely in any::<bool>()) {
        let mut bytes = bytes;
        if is_likely && bytes.len() > 2 {
            bytes[0] = opcode.byte();
            bytes[1] &= 0xF0;
            bytes.truncate(bytes.len() / 4 * 4);
        }
        if let Ok(packet) = Packet::new_checked(&bytes) {
            let sum = packet.opcode().headers_bytes() + packet.payload().len() + packet.pad_bytes() + ICRC_BYTES;
            prop_assert_eq!(sum, bytes.len());
            let _ = (packet.remote_memory(), packet.immediate(), packet.datagram_source(), packet.acknowledgement());
            prop_assert!(!made_v4().is_right(&packet) || bytes.is_empty());
        }
        let _ = (packet_of(&bytes), Outer::of_ip_packet(&bytes));
    }
}
