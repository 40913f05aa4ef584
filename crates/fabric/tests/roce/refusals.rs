use crate::side::*;
use konkordia_fabric::regions::{ProtectionDomain, Region, Rights};
use konkordia_fabric::roce::pair::QueuePairSettings;
use konkordia_fabric::roce::requester::{Cut, NotSent, Requester, RequesterSettings, Write};
use konkordia_fabric::roce::responder::{IcrcCheck, NotTaken};
use konkordia_fabric::roce::verdict::Verdict;
use konkordia_wire::roce::frame::{Ethernet, packet_of};
use konkordia_wire::roce::opcode::{Opcode, Operation, Part, Transport};
use konkordia_wire::roce::{Header, PathMtu, Psn};
use std::num::NonZeroU32;

const UC: Transport = Transport::UnreliableConnection;
const ONLY: (Transport, Operation, Part, bool) = (UC, Operation::Write, Part::Only, false);
const ONLY_IMMEDIATE: (Transport, Operation, Part, bool) = (UC, Operation::Write, Part::Only, true);

/// Each refusal by its own counter; nothing is written, and the packet after it is taken.
#[test]
fn each_wrong_packet_has_its_verdict() {
    let mut side = Side::new(UC);
    side.prepare(0x11, 4);
    let bytes = pixels(64, 7);
    let foreign = Region { base: BASE, length_bytes: 64, rights: Rights::WriteAndRead, domain: ProtectionDomain(4) };
    let (_, foreign_key) = side.regions.register(foreign).unwrap();
    let (old, old_key) = side.regions.register(Region { domain: DOMAIN, ..foreign }).unwrap();
    side.regions.revoke(old).unwrap();
    let readable = side.readable.1.get();
    let rc = Opcode::find(Transport::ReliableConnection, Operation::Write, Part::Only, false).unwrap();
    let ud = Opcode::find(Transport::UnreliableDatagram, Operation::Send, Part::Only, false).unwrap();
    type Change<'a> = Box<dyn Fn(&mut Header) + 'a>;
    let cases: Vec<(Change<'_>, Verdict)> = vec![
        (Box::new(|header| header.remote_memory.key ^= 0x8000), Verdict::UnknownKey),
        (Box::new(|header| header.remote_memory.key = old_key.get()), Verdict::RevokedKey),
        (Box::new(|header| header.remote_memory.key = foreign_key.get()), Verdict::OtherDomain),
        (Box::new(|header| header.remote_memory.key = readable), Verdict::NoRight),
        (Box::new(|header| header.remote_memory.address -= 1), Verdict::OutOfBounds),
        (Box::new(|header| header.remote_memory.address += REGION_BYTES as u64 - 63), Verdict::OutOfBounds),
        (Box::new(|header| header.remote_memory.address = u64::MAX - 3), Verdict::OutOfBounds),
        (Box::new(|header| header.remote_memory.length_bytes = REGION_BYTES as u32 + 1), Verdict::OutOfBounds),
        (Box::new(|header| header.remote_memory.length_bytes = 1 << 31), Verdict::OutOfBounds),
        (Box::new(|header| header.remote_memory.length_bytes = (1 << 31) + 1), Verdict::WrongLength),
        (Box::new(|header| header.remote_memory.length_bytes = 65), Verdict::WrongLength),
        (Box::new(|header| header.remote_memory.length_bytes = 63), Verdict::WrongLength),
        (Box::new(|header| header.remote_memory.length_bytes = 0), Verdict::WrongLength),
        (Box::new(|header| header.destination = qpn(0x12)), Verdict::UnknownQueuePair),
        (Box::new(|header| header.partition_key = 0x8001), Verdict::WrongPartition),
        (Box::new(|header| header.opcode = rc), Verdict::WrongTransport),
        (Box::new(|header| header.opcode = ud), Verdict::WrongTransport),
    ];
    for (n, (change, expected)) in cases.into_iter().enumerate() {
        let packet = side.packet(ONLY, n as u32, &bytes, change);
        assert_eq!(side.take(&packet), expected, "case {n}");
        assert!(side.image().iter().all(|byte| *byte == FILL), "case {n}");
    }
    let good = side.packet(ONLY, 99, &bytes, |_| {});
    assert_eq!(side.take(&good), Verdict::Placed);
    let counters = side.responder.counters();
    assert_eq!((counters.of(Verdict::OutOfBounds), counters.of(Verdict::Placed)), (5, 1));
    assert!(counters.is_balanced() && side.replies.is_empty());
    assert!(Verdict::ALL.iter().enumerate().all(|(n, verdict)| *verdict as usize == n));
}

/// A pad count that takes a byte off the payload: the length in the RETH no longer agrees.
#[test]
fn a_pad_count_that_lies_is_a_wrong_length() {
    let mut side = Side::new(UC);
    let mut packet = side.packet(ONLY, 0, &pixels(64, 1), |_| {});
    packet[1] |= 0x10;
    outer().seal(&mut packet);
    assert_eq!(side.take(&packet), Verdict::WrongLength);
    // And one that is longer than the payload is no packet.
    let mut empty = side.packet(ONLY, 0, &[], |_| {});
    empty[1] |= 0x30;
    outer().seal(&mut empty);
    assert_eq!(side.take(&empty), Verdict::Length);
}

#[test]
fn first_and_middle_packets_have_exactly_the_path_mtu() {
    let kinds = [(Part::First, MTU - 4), (Part::First, MTU + 4), (Part::Only, MTU + 1), (Part::First, 2 * MTU)];
    for (part, bytes) in kinds {
        let mut side = Side::new(UC);
        let packet = side.packet((UC, Operation::Write, part, false), 0, &pixels(bytes, 1), |header| {
            if part == Part::First {
                header.remote_memory.length_bytes = 4 * MTU as u32;
            }
        });
        assert_eq!(side.take(&packet), Verdict::WrongLength, "{part:?} of {bytes}");
    }
    // A message that would end with its first packet, or with a middle one, or whose last one is too long or too short.
    for (announced, parts, refused) in [
        (MTU, vec![(Part::First, MTU)], 0),
        (2 * MTU, vec![(Part::First, MTU), (Part::Middle, MTU)], 1),
        (MTU + 8, vec![(Part::First, MTU), (Part::Last, 9)], 1),
        (MTU + 8, vec![(Part::First, MTU), (Part::Last, 7)], 1),
        (MTU + 8, vec![(Part::First, MTU), (Part::Last, 0)], 1),
    ] {
        let mut side = Side::new(UC);
        for (n, (part, bytes)) in parts.iter().enumerate() {
            let kind = (UC, Operation::Write, *part, false);
            let packet = side.packet(kind, n as u32, &pixels(*bytes, 1), |header| {
                header.remote_memory.length_bytes = announced as u32;
            });
            let expected = if n == refused { Verdict::WrongLength } else { Verdict::Placed };
            assert_eq!(side.take(&packet), expected, "{announced} {parts:?}");
        }
        // What follows of a refused message is discarded, whatever its number.
        let rest = side.packet((UC, Operation::Write, Part::Last, false), parts.len() as u32, &[1], |_| {});
        assert_eq!(side.take(&rest), Verdict::RestOfRefused);
    }
}

#[test]
fn what_continues_no_message_is_refused() {
    for kind in [(Operation::Write, Part::Middle, MTU), (Operation::Write, Part::Last, 4), (Operation::Send, Part::Last, 4)] {
        let mut side = Side::new(UC);
        side.prepare(0x11, 1);
        let (operation, part, bytes) = kind;
        let packet = side.packet((UC, operation, part, false), 0, &pixels(bytes, 1), |_| {});
        assert_eq!(side.take(&packet), Verdict::OutsideMessage, "{kind:?}");
    }
    // A SEND that goes on with a WRITE.
    let mut side = Side::new(UC);
    side.prepare(0x11, 1);
    let first = side.packet((UC, Operation::Write, Part::First, false), 0, &pixels(MTU, 1), |header| {
        header.remote_memory.length_bytes = 2 * MTU as u32;
    });
    let last = side.packet((UC, Operation::Send, Part::Last, false), 1, &[1], |_| {});
    assert_eq!((side.take(&first), side.take(&last)), (Verdict::Placed, Verdict::OutsideMessage));
    // A message inside of another ends the other.
    let only = side.packet(ONLY, 2, &pixels(8, 2), |_| {});
    assert_eq!((side.take(&first), side.take(&only)), (Verdict::Placed, Verdict::Placed));
    assert_eq!(side.responder.queue_pair(qpn(0x11)).unwrap().sequence().aborted, 2);
}

#[test]
fn a_key_that_is_revoked_within_a_message_ends_it() {
    let mut side = Side::new(UC);
    side.prepare(0x11, 1);
    let packets = side.write(&mut requester(0), 0, &pixels(3 * MTU, 1), Some(1), Cut::OneMessage);
    assert_eq!(side.take(&packets[0]), Verdict::Placed);
    side.regions.revoke(side.writable.0).unwrap();
    assert_eq!(side.take(&packets[1]), Verdict::RevokedKey);
    assert_eq!(side.take(&packets[2]), Verdict::RestOfRefused);
    assert!(side.image()[MTU..].iter().all(|byte| *byte == FILL) && side.completions.is_empty());
}

/// The classic hidden loss: without a prepared receive, UC says nothing and the message is gone.
#[test]
fn without_a_receive_the_message_is_lost_and_counted() {
    let mut side = Side::new(UC);
    let mut requester = requester(0);
    let packets = side.write(&mut requester, 0, &pixels(2 * MTU, 1), Some(1), Cut::OneMessage);
    assert_eq!((side.take(&packets[0]), side.take(&packets[1])), (Verdict::Placed, Verdict::NoReceive));
    assert_eq!((side.image()[MTU], side.replies.len(), side.completions.len()), (FILL, 0, 0));
    side.prepare(0x11, 1);
    // A message without bytes needs neither key nor memory, but a receive.
    let empty = side.packet(ONLY_IMMEDIATE, 2, &[], |header| header.remote_memory.key = 0xDEAD);
    assert_eq!(side.take(&empty), Verdict::Placed);
    let done = side.completions[0];
    assert_eq!((done.immediate, done.length_bytes, done.receive_id), (Some(0xFEED_0002), 0, 0));
    assert_eq!(side.take(&empty), Verdict::NoReceive);
    assert_eq!(side.responder.queue_pair(qpn(0x11)).unwrap().receives(), 0);
}

#[test]
fn the_icrc_is_compared_as_often_as_was_asked() {
    let every = |n| IcrcCheck::OneIn(NonZeroU32::new(n).unwrap());
    for (check, wrong) in [(IcrcCheck::Always, 12), (every(4), 3), (every(1), 12), (IcrcCheck::Never, 0)] {
        let mut side = Side::with(&[settings(0x11, UC)], check);
        for psn in 0..12 {
            let mut packet = side.packet(ONLY, psn, &pixels(33, 1), |_| {});
            let last = packet.len() - 1;
            packet[last] ^= 0x40;
            side.take(&packet);
        }
        let counters = side.responder.counters();
        assert_eq!((counters.of(Verdict::WrongIcrc), counters.icrc_compared), (wrong, wrong), "{check:?}");
        assert_eq!(counters.of(Verdict::Placed), 12 - wrong);
    }
}

#[test]
fn only_the_peer_may_send() {
    for (peer, expected) in
        [("10.0.0.1", Verdict::Placed), ("::ffff:10.0.0.1", Verdict::Placed), ("10.0.0.9", Verdict::ForeignSender)]
    {
        let pair = QueuePairSettings { peer: Some(peer.parse().unwrap()), ..settings(0x11, UC) };
        let mut side = Side::with(&[pair], IcrcCheck::Always);
        let packet = side.packet(ONLY, 0, &[1, 2, 3], |_| {});
        assert_eq!(side.take(&packet), expected, "{peer}");
    }
}

#[test]
fn a_notification_of_congestion_is_recognised() {
    let mut side = Side::new(UC);
    let opcode = Opcode::find(Transport::None, Operation::CongestionNotification, Part::Only, false).unwrap();
    let header = Header::new(opcode, qpn(0x11), Psn::new(0));
    assert_eq!(side.take(&sealed(&header, &[])), Verdict::CongestionNotification);
    assert_eq!(side.responder.queue_pair(qpn(0x11)).unwrap().sequence().missing, 0);
}

/// The whole way from a tagged frame with padding at its end.
#[test]
fn a_short_tagged_frame_is_taken() {
    let mut side = Side::new(UC);
    side.prepare(0x11, 1);
    let packet = side.packet(ONLY_IMMEDIATE, 0, &[], |_| {});
    let mut plain = [0; 128];
    let at = Ethernet { destination: [2; 6], source: [4; 6] }.write(&outer(), packet.len(), 0, &mut plain);
    plain[at..at + packet.len()].copy_from_slice(&packet);
    let mut frame = plain[..12].to_vec();
    frame.extend([0x81, 0x00, 0x20, 0x05]);
    frame.extend(&plain[12..at + packet.len()]);
    frame.extend([0xEE; 9]);
    let (found, bytes) = packet_of(&frame).unwrap();
    assert_eq!((found, bytes), (outer(), &packet[..]));
    assert_eq!(side.take(bytes), Verdict::Placed);
}

#[test]
fn tables_are_bounded() {
    let mut side = Side::with(&[settings(0x11, UC), settings(0x22, UC)], IcrcCheck::Always);
    assert_eq!(side.responder.add(settings(0x33, UC)), Err(NotTaken::QueuePairsFull(2)));
    side.responder.remove(qpn(0x22)).unwrap();
    assert_eq!(side.responder.add(settings(0x11, UC)), Err(NotTaken::NumberInUse(qpn(0x11))));
    assert_eq!(side.responder.add(settings(1, UC)), Err(NotTaken::NumberInUse(qpn(1))));
    assert_eq!(side.responder.add(settings(2, Transport::None)), Err(NotTaken::Transport));
    side.prepare(0x11, 64);
    let one_more = konkordia_fabric::roce::pair::Receive { id: 0, buffer: None };
    assert_eq!(side.responder.prepare(qpn(0x11), one_more), Err(NotTaken::ReceivesFull(64)));
    assert_eq!(side.responder.prepare(qpn(0x22), one_more), Err(NotTaken::UnknownQueuePair(qpn(0x22))));
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let mut sender = requester(5);
    let write = |address, length_bytes| Write { address, key: 0, length_bytes, immediate: None };
    assert_eq!(sender.write(write(u64::MAX, 2), Cut::OnlyPackets).unwrap_err(), NotSent::Address);
    assert_eq!(sender.write(write(0, (1 << 31) + 1), Cut::OneMessage).unwrap_err(), NotSent::TooLong);
    assert_eq!(sender.write(write(0, 1 << 40), Cut::OnlyPackets).unwrap_err(), NotSent::TooLong);
    let unreliable = RequesterSettings::unreliable(qpn(0x11), PathMtu::Bytes256);
    let datagrams = RequesterSettings { transport: Transport::UnreliableDatagram, ..unreliable };
    let mut datagrams = Requester::new(datagrams);
    assert_eq!(datagrams.write(write(0, 1), Cut::OneMessage).unwrap_err(), NotSent::Transport);
    assert_eq!(datagrams.send(257, None).unwrap_err(), NotSent::TooLong);
    // Nothing of this used up a number.
    assert_eq!((sender.next_psn(), datagrams.next_psn()), (Psn::new(5), Psn::new(0)));
    let last = sender.write(write(u64::MAX, 1), Cut::OnlyPackets).unwrap();
    assert_eq!(last.len(), 1);
    assert_eq!(sender.next_psn(), Psn::new(6));
}
