use super::*;
use crate::frame::{Arrival, Checksum, Refused, datagram};
use crate::frames::{ethernet, fragments, frame, ip, udp};

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
            LOAD_X_HEADER_BYTES => {
                let Some(byte) = load(k, 1) else { return 0 };
                x = 4 * (byte & 0xF);
                continue;
            }
            JUMP_IF_EQUAL | JUMP_IF_ANY_BIT => {
                let is_true = if code == JUMP_IF_EQUAL { a == k } else { a & k != 0 };
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
        let program = program(to);
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
    assert_eq!(run(&program(v4.1), &frame(v6.0, v6.1, b"data")), 0);
    assert_eq!(run(&program(v6.1), &frame(v4.0, v4.1, b"data")), 0);
}

#[test]
fn of_fragments_the_head_passes_and_frames_to_others_do_not() {
    for (from, to) in addresses() {
        let program = program(to);
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
        let program = program(to);
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
