use super::*;
use crate::frame::{Arrival, Checksum, Refused, datagram};
use crate::frames::{ethernet, fragments, frame, ip, udp};
use crate::shared_port::SharedPort;

/// Runs a program as the kernel does for a frame to `receiver`: a load outside of the frame refuses it.
fn run_for(program: &[sock_filter], frame: &[u8], receiver: u32) -> u32 {
    let load = |at: u32, bytes: usize| {
        let at = at as usize;
        frame.get(at..at + bytes).map(|b| b.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    };
    let (mut a, mut x, mut at) = (0, 0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let loaded = match code {
            LOAD_WORD if k == PACKET_TYPE => Some(receiver),
            LOAD_WORD => load(k, 4),
            LOAD_HALF => load(k, 2),
            LOAD_BYTE => load(k, 1),
            LOAD_HALF_BEHIND_X => load(x + k, 2),
            LOAD_WORD_BEHIND_X => load(x + k, 4),
            AND => Some(a & k),
            SUBTRACT => Some(a.wrapping_sub(k)),
            LOAD_X_HEADER_BYTES => {
                let Some(byte) = load(k, 1) else { return 0 };
                x = 4 * (byte & 0xF);
                continue;
            }
            JUMP_IF_EQUAL | JUMP_IF_ANY_BIT | JUMP_IF_AT_LEAST => {
                let is_true = match code {
                    JUMP_IF_EQUAL => a == k,
                    JUMP_IF_ANY_BIT => a & k != 0,
                    _ => a >= k,
                };
                at += usize::from(if is_true { jt } else { jf });
                continue;
            }
            RETURN => return k,
            other => panic!("{other:#x} is no instruction of this filter"),
        };
        let Some(value) = loaded else { return 0 };
        a = value;
    }
}

fn run(program: &[sock_filter], frame: &[u8]) -> u32 {
    run_for(program, frame, TO_HOST)
}

fn addresses() -> [(SocketAddr, SocketAddr); 2] {
    [("10.7.0.1:32410", "10.7.0.2:50010"), ("[fd00::1]:32410", "[fd00::2]:50010")]
        .map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()))
}

#[test]
fn only_the_datagrams_of_the_stream_pass() {
    for (from, to) in addresses() {
        let program = program(to, None);
        assert_eq!(run(&program, &frame(from, to, &[1; 8240])), ALL_BYTES);
        assert_eq!(run(&program, &frame(from, to, &[])), ALL_BYTES);
        let others = [
            SocketAddr::new(to.ip(), to.port() + 1),
            SocketAddr::new(to.ip(), to.port() ^ 0x100),
            SocketAddr::new(from.ip(), to.port()),
        ];
        for other in others {
            assert_eq!(run(&program, &frame(from, other, b"data")), 0, "{other}");
        }
        assert_eq!(run(&program, &ethernet(&[], &ip(from.ip(), to.ip(), 6, &udp(from, to, b"data")))), 0);
        assert_eq!(run(&nothing(), &frame(from, to, b"data")), 0);
    }
    let [v4, v6] = addresses();
    assert_eq!(run(&program(v4.1, None), &frame(v6.0, v6.1, b"data")), 0);
    assert_eq!(run(&program(v6.1, None), &frame(v4.0, v4.1, b"data")), 0);
}

#[test]
fn of_fragments_the_head_passes_and_frames_to_others_do_not() {
    for (from, to) in addresses() {
        let program = program(to, None);
        let parts = fragments(from, to, &[9; 8240], 1500, 3);
        let kept: Vec<u32> = parts.iter().map(|part| run(&program, part)).collect();
        assert_eq!(kept[0], HEAD_BYTES);
        assert!(kept[1..].iter().all(|bytes| *bytes == 0));
        let elsewhere = SocketAddr::new(to.ip(), 1);
        assert_eq!(run(&program, &fragments(from, elsewhere, &[9; 8240], 1500, 3)[0]), 0);
        // To all, to a group, to another machine, from this machine.
        for receiver in 1..5 {
            assert_eq!(run_for(&program, &frame(from, to, b"data"), receiver), 0, "{receiver}");
        }
    }
}

/// Those of nobody, and those that are too short for a number, pass the filter of the first stream only.
#[test]
fn among_streams_that_share_a_port_each_datagram_passes_one_filter() {
    let shared = SharedPort { end_byte: 8, first: 0xFF_FFFD };
    for (from, to) in addresses() {
        let programs = [0, 1, 2].map(|stream| program(to, Some(SharingStream { shared, stream, streams: 3 })));
        let passed = |frame: &[u8]| programs.each_ref().map(|program| run(program, frame));
        let numbered = |number: u32| [&[0xEE; 5][..], &number.to_be_bytes()[1..], &[1; 20]].concat();
        for (number, stream) in [(0xFF_FFFD, 0), (0xFF_FFFE, 1), (0xFF_FFFF, 2), (0xFF_FFFC, 0), (0, 0), (2, 0), (700, 0)] {
            let mut expected = [0; 3];
            expected[stream] = ALL_BYTES;
            assert_eq!(passed(&frame(from, to, &numbered(number))), expected, "{to} {number:#x}");
            assert_eq!(passed(&frame(from, to, &numbered(number)[..8])), expected, "{to} {number:#x}, nothing behind it");
        }
        for bytes in 0..8 {
            assert_eq!(passed(&frame(from, to, &numbered(0xFF_FFFE)[..bytes])), [ALL_BYTES, 0, 0], "{to}, {bytes} bytes");
        }
        assert_eq!(passed(&frame(from, SocketAddr::new(to.ip(), to.port() + 1), &numbered(0xFF_FFFE))), [0; 3]);
        assert_eq!(passed(&fragments(from, to, &numbered(0xFF_FFFE).repeat(90), 1500, 3)[0]), [HEAD_BYTES, 0, 0]);
    }
    // Behind IP options.
    let (from, to) = addresses()[0];
    let mut packet = ip(from.ip(), to.ip(), 17, &udp(from, to, &[0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFE, 0]));
    packet.splice(20..20, [1, 1, 1, 0]);
    (packet[0], packet[3]) = (0x46, packet[3] + 4);
    let program = program(to, Some(SharingStream { shared, stream: 1, streams: 3 }));
    assert_eq!(run(&program, &ethernet(&[], &packet)), ALL_BYTES);
}

/// Whatever the bytes: what the reader takes passes the filter, and what the filter passes is for this stream.
#[test]
fn filter_and_reader_agree_on_damaged_frames() {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let mut passed = 0;
    for (from, to) in addresses() {
        let program = program(to, None);
        let samples = [frame(from, to, &[1; 60]), fragments(from, to, &[2; 3000], 1500, 1).remove(0)];
        for n in 0..20_000 {
            let mut bytes = samples[n % 2].clone();
            for _ in 0..random() % 4 {
                let at = random() % bytes.len().min(80);
                bytes[at] ^= 1 << (random() % 8);
            }
            bytes.truncate(if random() % 4 == 0 { random() % (bytes.len() + 1) } else { bytes.len() });
            let arrival = Arrival { checksum: Checksum::Verified, ..Arrival::whole(bytes.len()) };
            let said = datagram(&bytes, arrival, to);
            match run(&program, &bytes) {
                0 => assert!(
                    matches!(said, Err(Refused::OtherTraffic | Refused::Length | Refused::Vlan | Refused::Fragment)),
                    "{said:?}"
                ),
                HEAD_BYTES => assert!(said.is_err()),
                _ => {
                    passed += 1;
                    assert_ne!(said, Err(Refused::Fragment));
                }
            }
        }
    }
    assert!(passed > 1000);
}
