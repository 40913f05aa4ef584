use crate::side::*;
use konkordia_fabric::roce::verdict::Verdict;
use konkordia_wire::roce::opcode::{Operation, Part, Transport};
use konkordia_wire::roce::{Header, Packet, Psn, Syndrome};

const RC: Transport = Transport::ReliableConnection;
type Kind = (Transport, Operation, Part, bool);
type Case = (Kind, fn(&mut Header), Verdict, Syndrome);
const ONLY: Kind = (RC, Operation::Write, Part::Only, false);
const ONLY_IMMEDIATE: Kind = (RC, Operation::Write, Part::Only, true);

fn asks(header: &mut Header) {
    header.asks_acknowledge = true;
}

/// What the replies since the last call say: number, syndrome, finished messages.
fn replies(side: &mut Side) -> Vec<(u32, Syndrome, u32)> {
    let taken = std::mem::take(&mut side.replies);
    let read = |bytes: &Vec<u8>| {
        let packet = Packet::new_checked(bytes).unwrap();
        assert_eq!((packet.destination(), packet.opcode().byte()), (qpn(0xBEEF), 0x11));
        assert!(outer().is_right(&packet));
        let said = packet.acknowledgement().unwrap();
        (packet.psn().get(), said.syndrome, said.messages)
    };
    taken.iter().map(read).collect()
}

#[test]
fn messages_are_acknowledged_where_that_is_asked_for() {
    let mut side = Side::new(RC);
    let parts = [(Part::First, MTU), (Part::Middle, MTU), (Part::Last, 8)];
    for (n, (part, bytes)) in parts.into_iter().enumerate() {
        let packet = side.packet((RC, Operation::Write, part, false), n as u32, &pixels(bytes, n as u32), |header| {
            header.remote_memory.length_bytes = 2 * MTU as u32 + 8;
            header.asks_acknowledge = part != Part::First;
        });
        assert_eq!(side.take(&packet), Verdict::Placed);
    }
    assert_eq!(replies(&mut side), [(1, Syndrome::ACKNOWLEDGED, 0), (2, Syndrome::ACKNOWLEDGED, 1)]);
}

#[test]
fn duplicates_are_acknowledged_again_and_not_executed() {
    let mut side = Side::new(RC);
    side.prepare(0x11, 5);
    let first = side.packet(ONLY_IMMEDIATE, 0, &[1; 4], asks);
    let second = side.packet(ONLY, 1, &[2; 4], asks);
    assert_eq!((side.take(&first), side.take(&second)), (Verdict::Placed, Verdict::Placed));
    assert_eq!(replies(&mut side).len(), 2);
    assert_eq!(side.take(&first), Verdict::Duplicate);
    // The acknowledgement is of all that was executed, and the older bytes did not overwrite the newer ones.
    assert_eq!(replies(&mut side), [(1, Syndrome::ACKNOWLEDGED, 2)]);
    assert_eq!((side.completions.len(), &side.image()[..4]), (1, &[2; 4][..]));
    assert_eq!(side.responder.queue_pair(qpn(0x11)).unwrap().receives(), 4);
}

#[test]
fn a_missing_packet_is_asked_for_once() {
    let mut side = Side::new(RC);
    let packets: Vec<_> = (0..5).map(|psn| side.packet(ONLY, psn, &[psn as u8; 4], asks)).collect();
    let verdicts = [0, 2, 3, 4].map(|n: usize| side.take(&packets[n]));
    assert_eq!(verdicts[1..], [Verdict::OutOfSequence; 3]);
    assert_eq!(replies(&mut side), [(0, Syndrome::ACKNOWLEDGED, 1), (1, Syndrome::SequenceError, 1)]);
    for packet in &packets[1..4] {
        assert_eq!(side.take(packet), Verdict::Placed);
    }
    assert_eq!(replies(&mut side).last(), Some(&(3, Syndrome::ACKNOWLEDGED, 4)));
    // A later loss is asked for again.
    let later = side.packet(ONLY, 9, &[1; 4], asks);
    side.take(&later);
    assert_eq!(replies(&mut side), [(4, Syndrome::SequenceError, 4)]);
}

#[test]
fn numbers_wrap() {
    let pair = konkordia_fabric::roce::pair::QueuePairSettings { first_psn: Psn::new(0xFF_FFFF), ..settings(0x11, RC) };
    let mut side = Side::with(&[pair], konkordia_fabric::roce::responder::IcrcCheck::Always);
    let last = side.packet(ONLY, 0xFF_FFFF, &[1; 4], asks);
    let zero = side.packet(ONLY, 0, &[2; 4], asks);
    assert_eq!(side.take(&zero), Verdict::OutOfSequence);
    assert_eq!((side.take(&last), side.take(&zero), side.take(&last)), (Verdict::Placed, Verdict::Placed, Verdict::Duplicate));
    let numbers: Vec<_> = replies(&mut side).iter().map(|reply| reply.0).collect();
    assert_eq!(numbers, [0xFF_FFFF, 0xFF_FFFF, 0, 0]);
}

/// The sender waits and repeats; what it sent behind is discarded in silence, and the message is complete once.
#[test]
fn without_a_receive_the_sender_is_told_to_wait() {
    let mut side = Side::new(RC);
    let message = side.packet(ONLY_IMMEDIATE, 0, &[7; 4], asks);
    let behind = side.packet(ONLY, 1, &[8; 4], asks);
    assert_eq!((side.take(&message), side.take(&behind)), (Verdict::NoReceive, Verdict::OutOfSequence));
    assert_eq!(replies(&mut side), [(0, Syndrome::ReceiverNotReady(14), 0)]);
    assert_eq!(side.image()[0], FILL);
    side.prepare(0x11, 1);
    assert_eq!((side.take(&message), side.take(&behind)), (Verdict::Placed, Verdict::Placed));
    assert_eq!(side.completions.len(), 1);
    assert_eq!(replies(&mut side), [(0, Syndrome::ACKNOWLEDGED, 1), (1, Syndrome::ACKNOWLEDGED, 2)]);
}

#[test]
fn a_request_against_the_rules_ends_the_connection() {
    let cases: [Case; 5] = [
        (ONLY, |header| header.remote_memory.key ^= 0x8000, Verdict::UnknownKey, Syndrome::RemoteAccessError),
        (ONLY, |header| header.remote_memory.address = 0, Verdict::OutOfBounds, Syndrome::RemoteAccessError),
        (ONLY, |header| header.remote_memory.length_bytes = 9, Verdict::WrongLength, Syndrome::InvalidRequest),
        ((RC, Operation::Write, Part::Middle, false), |_| {}, Verdict::OutsideMessage, Syndrome::InvalidRequest),
        ((RC, Operation::ReadRequest, Part::Only, false), |_| {}, Verdict::Unsupported, Syndrome::InvalidRequest),
    ];
    for (kind, change, verdict, syndrome) in cases {
        let mut side = Side::new(RC);
        let bad = side.packet(kind, 0, &[1; 4], change);
        assert_eq!(side.take(&bad), verdict);
        assert_eq!(replies(&mut side), [(0, syndrome, 0)]);
        let good = side.packet(ONLY, 0, &[1; 4], asks);
        assert_eq!(side.take(&good), Verdict::QueuePairFailed);
        assert!(side.responder.queue_pair(qpn(0x11)).unwrap().has_failed());
        assert!(replies(&mut side).is_empty() && side.image().iter().all(|byte| *byte == FILL));
    }
    // A message inside of another.
    let mut side = Side::new(RC);
    let first = side.packet((RC, Operation::Write, Part::First, false), 0, &pixels(MTU, 1), |header| {
        header.remote_memory.length_bytes = 2 * MTU as u32;
    });
    let only = side.packet(ONLY, 1, &[1; 4], asks);
    assert_eq!((side.take(&first), side.take(&only)), (Verdict::Placed, Verdict::OutsideMessage));
    assert_eq!(replies(&mut side), [(1, Syndrome::InvalidRequest, 0)]);
}

#[test]
fn an_acknowledgement_is_for_the_requester() {
    let mut side = Side::new(RC);
    let packet = side.packet((RC, Operation::Acknowledge, Part::Only, false), 0, &[], |_| {});
    assert_eq!(side.take(&packet), Verdict::ForRequester);
}
