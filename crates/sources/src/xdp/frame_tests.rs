use super::super::made::{Layers, frame};
use super::*;

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// The checksum as RFC 1071 has it: word by word, with the carry of each addition.
fn naive_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0_u16, |sum, word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
        sum + u16::from(carry)
    })
}

#[test]
fn payload_sender_and_checksum_are_found_behind_every_kind_of_header() {
    for ipv6 in [false, true] {
        for tags in [vec![], vec![0x8100], vec![0x88a8, 0x8100]] {
            for bytes in [0, 1, 2, 3, 1472, 8240, 8241] {
                let layers = Layers { tags: tags.clone(), ipv6, ..Layers::default() };
                let (made, content) = (frame(&layers, &payload(bytes)), payload(bytes));
                let found = Datagram::find(&made, made.len()).unwrap();
                assert_eq!(made[found.payload.clone()], content, "{layers:?}");
                assert_eq!(found.sender.port(), layers.source_port);
                assert_eq!(found.sender.is_ipv6(), ipv6);
                assert!(found.checksum_is_right(&content), "{layers:?} {bytes}");
                if bytes > 0 {
                    let mut damaged = content.clone();
                    damaged[bytes / 2] ^= 0x10;
                    assert!(!found.checksum_is_right(&damaged), "{layers:?} {bytes}");
                }
            }
        }
    }
}

#[test]
fn senders_without_a_checksum_and_those_that_leave_it_to_the_card_are_believed() {
    let content = payload(1000);
    for ipv6 in [false, true] {
        let mut made = frame(&Layers { ipv6, ..Layers::default() }, &content);
        let field = if ipv6 { 14 + 40 + 6 } else { 14 + 20 + 6 };
        made[field..field + 2].copy_from_slice(&[0, 0]);
        let found = Datagram::find(&made, made.len()).unwrap();
        // Over IPv6 there is always a checksum (RFC 8200, 8.1).
        assert_eq!(found.checksum_is_right(&content), !ipv6);
        let addresses = if ipv6 { &made[14 + 8..14 + 40] } else { &made[14 + 12..14 + 20] };
        let rest = [0, 17, (1008_u16 >> 8) as u8, 1008_u16 as u8];
        let left = naive_sum(&[addresses, &rest].concat());
        made[field..field + 2].copy_from_slice(&left.to_be_bytes());
        assert!(Datagram::find(&made, made.len()).unwrap().checksum_is_right(&content));
        made[field + 1] ^= 1;
        assert!(!Datagram::find(&made, made.len()).unwrap().checksum_is_right(&content));
    }
}

#[test]
fn sums_are_those_of_the_definition() {
    for bytes in 0..70 {
        let data = payload(bytes);
        assert_eq!(fold(sum(&data)).to_be(), naive_sum(&data), "{bytes}");
    }
    assert_eq!(fold(sum(&[0xff; 65535])).to_be(), naive_sum(&[0xff; 65535]));
}

#[test]
fn padding_behind_a_short_datagram_is_not_its_payload() {
    let mut made = frame(&Layers::default(), &[1, 2, 3]);
    made.resize(60, 0xee);
    let found = Datagram::find(&made, made.len()).unwrap();
    assert_eq!(made[found.payload], [1, 2, 3]);
}

#[test]
fn a_frame_that_is_no_whole_datagram_is_refused() {
    let good = frame(&Layers::default(), &payload(500));
    assert!(Datagram::find(&good, good.len()).is_some());
    // Cut anywhere: in the headers, or in the payload.
    for bytes in 0..good.len() {
        assert_eq!(Datagram::find(&good[..bytes], bytes), None, "{bytes}");
    }
    // The headers must lie in the first buffer, the payload need not.
    assert!(Datagram::find(&good[..42], good.len()).is_some());
    assert_eq!(Datagram::find(&good[..41], good.len()), None);
    // Each change of one header byte that makes it something else: (offset, value).
    let changes = [(12, 0x09), (14, 0x46), (14, 0x65), (14 + 6, 0x20), (14 + 7, 1), (14 + 9, 6), (14 + 2, 0xff)];
    for (at, value) in changes.into_iter().chain([(34 + 4, 0xff), (14 + 2, 0)]) {
        let mut made = good.clone();
        made[at] = value;
        assert_eq!(Datagram::find(&made, made.len()), None, "byte {at} = {value:#x}");
    }
    let mut made = good.clone();
    made[34 + 4..34 + 6].copy_from_slice(&[0, 7]);
    assert_eq!(Datagram::find(&made, made.len()), None, "a UDP length below its header");
    let three = frame(&Layers { tags: vec![0x88a8, 0x8100, 0x8100], ..Layers::default() }, &payload(10));
    assert_eq!(Datagram::find(&three, three.len()), None, "three tags");
}

#[test]
fn no_bytes_whatever_lead_outside_of_the_frame() {
    let good = [false, true].map(|ipv6| frame(&Layers { ipv6, tags: vec![0x8100], ..Layers::default() }, &payload(64)));
    let mut state = 1_u64;
    for round in 0..200_000 {
        let mut made = good[round % 2].clone();
        for _ in 0..1 + round % 5 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % 70;
            made[at] = (state >> 25) as u8;
        }
        let seen = 20 + (state >> 40) as usize % (made.len() - 20);
        if let Some(found) = Datagram::find(&made[..seen], made.len()) {
            assert!(found.payload.start <= found.payload.end && found.payload.end <= made.len());
            found.checksum_is_right(&made[found.payload.clone()]);
        }
    }
}

#[test]
fn a_payload_in_pieces_is_put_together() {
    let whole = payload(8282);
    for piece_bytes in [1, 7, 1792, 3840, 8282, 9000] {
        for range in [0..8282, 42..8282, 42..42, 3840..3841, 3839..7681, 8281..8282] {
            let mut memory = vec![0xaa; 9000];
            let joined = gather(whole.chunks(piece_bytes), &range, &mut memory);
            assert_eq!(joined, Some(&whole[range.clone()]), "{piece_bytes} {range:?}");
        }
    }
    assert_eq!(gather(whole.chunks(100), &(0..8282), &mut [0; 8281]), None, "no room");
    assert_eq!(gather(whole.chunks(100), &(0..8283), &mut [0; 9000]), None, "pieces missing");
}
