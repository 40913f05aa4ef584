use crate::side::*;
use konkordia_fabric::roce::pair::{Buffer, Receive};
use konkordia_fabric::roce::requester::{Requester, RequesterSettings};
use konkordia_fabric::roce::verdict::Verdict;
use konkordia_wire::roce::opcode::{Operation, Part, Transport};
use konkordia_wire::roce::{DatagramSource, PathMtu};

const UC: Transport = Transport::UnreliableConnection;
const UD: Transport = Transport::UnreliableDatagram;

fn prepare(side: &mut Side, id: u64, offset: usize, bytes: usize) {
    let buffer = Buffer { region: side.writable.0, offset_bytes: offset as u64, length_bytes: bytes as u32 };
    side.responder.prepare(qpn(0x11), Receive { id, buffer: Some(buffer) }).unwrap();
}

#[test]
fn datagrams_go_to_the_buffers_in_their_order_whatever_their_numbers() {
    let mut side = Side::new(UD);
    prepare(&mut side, 70, 512, 256);
    prepare(&mut side, 71, 0, 256);
    let settings = RequesterSettings {
        transport: UD,
        source: DatagramSource { queue_key: QUEUE_KEY, queue_pair: qpn(0xABC) },
        ..RequesterSettings::unreliable(qpn(0x11), PathMtu::Bytes256)
    };
    let mut requester = Requester::new(settings);
    let bytes = [pixels(256, 1), pixels(99, 2)];
    let made: Vec<_> = [(0, None), (1, Some(8))]
        .map(|(n, immediate): (usize, Option<u32>)| {
            let piece = requester.send(bytes[n].len() as u64, immediate).unwrap().next().unwrap();
            sealed(&piece.header, &bytes[n])
        })
        .into_iter()
        .rev()
        .collect();
    assert_eq!((side.take(&made[0]), side.take(&made[1])), (Verdict::Placed, Verdict::Placed));
    assert_eq!((&side.image()[512..611], &side.image()[..256]), (&bytes[1][..], &bytes[0][..]));
    let told: Vec<_> = side.completions.iter().map(|done| (done.receive_id, done.immediate, done.length_bytes)).collect();
    assert_eq!(told, [(70, Some(8), 99), (71, None, 256)]);
    assert_eq!(side.completions[0].source, Some(qpn(0xABC)));
    assert_eq!(side.take(&made[0]), Verdict::NoReceive);
}

#[test]
fn datagrams_need_the_queue_key_and_a_buffer_that_is_long_enough() {
    let mut side = Side::new(UD);
    prepare(&mut side, 1, 0, 10);
    let kind = (UD, Operation::Send, Part::Only, false);
    let other = side.packet(kind, 0, &[1; 8], |header| header.datagram_source.queue_key ^= 1);
    assert_eq!(side.take(&other), Verdict::WrongQueueKey);
    let long = side.packet(kind, 0, &[1; 11], |_| {});
    assert_eq!(side.take(&long), Verdict::ReceiveTooShort);
    let longer_than_mtu = side.packet(kind, 0, &[1; MTU + 1], |_| {});
    assert_eq!(side.take(&longer_than_mtu), Verdict::WrongLength);
    // The buffer is still there for one that fits.
    let fits = side.packet(kind, 0, &[1; 10], |_| {});
    assert_eq!(side.take(&fits), Verdict::Placed);
    assert_eq!((&side.image()[..11], side.completions.len()), (&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, FILL][..], 1));
}

#[test]
fn a_send_of_several_packets_fills_one_buffer() {
    let bytes = pixels(3 * MTU + 5, 3);
    for lost in 0..=4 {
        let mut side = Side::new(UC);
        prepare(&mut side, 1, 100, 4 * MTU);
        let mut requester = requester(0);
        let pieces = requester.send(bytes.len() as u64, Some(3)).unwrap();
        for (n, piece) in pieces.enumerate().filter(|(n, _)| *n != lost) {
            let verdict = side.take(&sealed(&piece.header, &bytes[piece.payload.clone()]));
            assert_eq!(verdict == Verdict::Placed, n < lost, "packet {n} without {lost}");
        }
        assert_eq!(side.completions.len(), usize::from(lost == 4));
        // A message that was cut short gives its buffer back to the next one.
        prepare(&mut side, 2, 0, MTU);
        let next = requester.send(4, None).unwrap().next().unwrap();
        assert_eq!(side.take(&sealed(&next.header, &[9; 4])), Verdict::Placed);
        let (id, at) = if lost == 4 { (2, 0) } else { (1, 100) };
        assert_eq!(side.completions.last().unwrap().receive_id, id);
        assert_eq!(side.image()[at..at + 4], [9; 4]);
        if lost == 4 {
            assert_eq!(side.image()[100..100 + bytes.len()], bytes);
        }
    }
}

#[test]
fn a_send_without_bytes_needs_no_buffer_and_one_with_bytes_does() {
    let mut side = Side::new(UC);
    side.prepare(0x11, 1);
    let kind = (UC, Operation::Send, Part::Only, true);
    let some = side.packet(kind, 0, &[1], |_| {});
    let none = side.packet(kind, 1, &[], |_| {});
    assert_eq!((side.take(&some), side.take(&none)), (Verdict::ReceiveTooShort, Verdict::Placed));
    assert_eq!((side.completions[0].length_bytes, side.completions[0].immediate), (0, Some(0xFEED_0001)));
}

#[test]
fn a_buffer_that_is_no_longer_registered_takes_nothing() {
    for transport in [UC, Transport::ReliableConnection] {
        let mut side = Side::new(transport);
        prepare(&mut side, 1, 0, 64);
        side.regions.revoke(side.writable.0).unwrap();
        let packet = side.packet((transport, Operation::Send, Part::Only, false), 0, &[1; 4], |_| {});
        assert_eq!(side.take(&packet), Verdict::ReceiveRevoked);
        assert_eq!(side.replies.len(), usize::from(transport == Transport::ReliableConnection));
    }
}
