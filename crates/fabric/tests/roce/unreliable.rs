use crate::side::*;
use konkordia_fabric::roce::holoscan::{Page, frame};
use konkordia_fabric::roce::requester::Cut;
use konkordia_fabric::roce::responder::IcrcCheck;
use konkordia_fabric::roce::verdict::Verdict;
use konkordia_wire::hsb_metadata::{FrameEnd, ImmediateLayout};
use konkordia_wire::roce::opcode::{Operation, Transport};
use konkordia_wire::roce::{Packet, Psn};
use proptest::prelude::*;

const UC: Transport = Transport::UnreliableConnection;
const PACKETS: usize = 6;

/// Each packet of a message in turn is lost, cut both ways. The model: what arrives of ONLY packets is placed; of one
/// message only what is before the loss. The receiver hears of the message only if the last packet is executed.
#[test]
fn loss_at_every_position_costs_what_the_cut_says() {
    let bytes = pixels(PACKETS * MTU - 17, 1);
    for cut in [Cut::OnlyPackets, Cut::OneMessage] {
        for lost in 0..=PACKETS {
            let mut side = Side::new(UC);
            side.prepare(0x11, 4);
            let mut requester = requester(0);
            let packets = side.write(&mut requester, 100, &bytes, Some(5), cut);
            assert_eq!(packets.len(), PACKETS);
            let mut model = vec![FILL; REGION_BYTES];
            for n in (0..PACKETS).filter(|n| *n != lost) {
                let is_placed = cut == Cut::OnlyPackets || n < lost;
                let verdict = side.take(&packets[n]);
                let expected = match (is_placed, lost) {
                    (true, _) => Verdict::Placed,
                    // Nothing of the message was begun, or its rest is discarded.
                    _ => Verdict::OutOfSequence,
                };
                assert_eq!(verdict, expected, "{cut:?}, packet {n} without {lost}");
                if is_placed {
                    let end = bytes.len().min((n + 1) * MTU);
                    model[100 + n * MTU..100 + end].copy_from_slice(&bytes[n * MTU..end]);
                }
            }
            assert_eq!(side.image(), model, "{cut:?} without {lost}");
            let is_told = lost == PACKETS || (cut == Cut::OnlyPackets && lost != PACKETS - 1);
            assert_eq!(side.completions.len(), usize::from(is_told));
            // The next message is received in any case, and shows a loss at the end too.
            let packets = side.write(&mut requester, 0, &bytes[..MTU], Some(6), cut);
            assert_eq!(side.take(&packets[0]), Verdict::Placed);
            assert_eq!(side.completions.last().unwrap().immediate, Some(6));
            let sequence = side.responder.queue_pair(qpn(0x11)).unwrap().sequence();
            assert_eq!((sequence.missing, sequence.late), (u64::from(lost < PACKETS), 0));
            let is_aborted = cut == Cut::OneMessage && (1..PACKETS).contains(&lost);
            assert_eq!(sequence.aborted, u64::from(is_aborted), "{cut:?} without {lost}");
        }
    }
}

#[test]
fn numbers_wrap_inside_of_a_message() {
    let bytes = pixels(PACKETS * MTU, 2);
    for cut in [Cut::OnlyPackets, Cut::OneMessage] {
        for first in [0xFF_FFFA, 0xFF_FFFD, 0xFF_FFFF] {
            let pair = konkordia_fabric::roce::pair::QueuePairSettings { first_psn: Psn::new(first), ..settings(0x11, UC) };
            let mut side = Side::with(&[pair], IcrcCheck::Always);
            side.prepare(0x11, 4);
            let mut requester = requester(first);
            for round in 0..2 {
                for packet in side.write(&mut requester, 0, &bytes, Some(round), cut) {
                    assert_eq!(side.take(&packet), Verdict::Placed);
                }
            }
            assert_eq!(&side.image()[..bytes.len()], bytes);
            assert_eq!(side.completions.len(), 2);
            assert_eq!(side.completions[1].length_bytes as usize, if cut == Cut::OneMessage { bytes.len() } else { MTU });
            assert_eq!(side.responder.queue_pair(qpn(0x11)).unwrap().sequence(), Default::default());
        }
    }
}

/// ONLY packets are placed in any order, and twice; of a message, the packet behind the exchanged ones is refused.
#[test]
fn duplicates_and_reordered_packets() {
    let bytes = pixels(PACKETS * MTU, 3);
    let mut side = Side::new(UC);
    side.prepare(0x11, 9);
    let only = side.write(&mut requester(0), 0, &bytes, Some(1), Cut::OnlyPackets);
    for n in [1, 0, 2, 2, 4, 3, 5] {
        assert_eq!(side.take(&only[n]), Verdict::Placed);
    }
    assert_eq!(&side.image()[..bytes.len()], bytes);
    let sequence = side.responder.queue_pair(qpn(0x11)).unwrap().sequence();
    // 0 and 3 were passed over; they and the second 2 came late. So 2 - 3 to 2 were lost: at most as many as are
    // missing.
    assert_eq!((sequence.missing, sequence.late, sequence.restarts), (2, 3, 0));

    let mut side = Side::new(UC);
    side.prepare(0x11, 9);
    let message = side.write(&mut requester(0), 0, &bytes, Some(1), Cut::OneMessage);
    let verdicts = [0, 1, 1, 2, 3, 4, 5].map(|n| side.take(&message[n]));
    assert_eq!(verdicts[..3], [Verdict::Placed, Verdict::Placed, Verdict::OutOfSequence]);
    assert!(verdicts[3..].iter().all(|verdict| *verdict == Verdict::OutOfSequence));
    assert!(side.completions.is_empty() && side.image()[2 * MTU] == FILL);
}

#[test]
fn a_sender_that_counts_anew_is_no_late_one() {
    let mut side = Side::new(UC);
    side.prepare(0x11, 9);
    for (first, packets) in [(0x10_0000 - 2, 4), (0, 3)] {
        let bytes = pixels(packets * MTU, 9);
        for packet in side.write(&mut requester(first), 0, &bytes, None, Cut::OnlyPackets) {
            assert_eq!(side.take(&packet), Verdict::Placed);
        }
    }
    let sequence = side.responder.queue_pair(qpn(0x11)).unwrap().sequence();
    assert_eq!((sequence.missing, sequence.late, sequence.restarts), (0x10_0000 - 2, 0, 1));
}

/// A vendor's emulator served only the first of two queue pairs.
#[test]
fn two_queue_pairs_at_once() {
    let mut side = Side::with(&[settings(0x22, UC), settings(0x11, UC)], IcrcCheck::Always);
    side.prepare(0x11, 2);
    side.prepare(0x22, 2);
    let bytes = [pixels(4 * MTU, 4), pixels(4 * MTU, 5)];
    let one = side.write(&mut requester(0), 0, &bytes[0], Some(0x11), Cut::OneMessage);
    let mut other = side.write(&mut requester(0), 8 * MTU, &bytes[1], Some(0x22), Cut::OneMessage);
    for packet in &mut other {
        packet[7] = 0x22;
        outer().seal(packet);
    }
    for (a, b) in one.iter().zip(&other) {
        assert_eq!((side.take(a), side.take(b)), (Verdict::Placed, Verdict::Placed));
    }
    assert_eq!((&side.image()[..4 * MTU], &side.image()[8 * MTU..12 * MTU]), (&bytes[0][..], &bytes[1][..]));
    let told: Vec<_> = side.completions.iter().map(|done| (done.queue_pair, done.immediate)).collect();
    assert_eq!(told, [(qpn(0x11), Some(0x11)), (qpn(0x22), Some(0x22))]);
    // Once one of them is gone, the other goes on.
    side.responder.remove(qpn(0x11)).unwrap();
    assert_eq!(side.take(&one[0]), Verdict::UnknownQueuePair);
    assert_eq!(side.take(&other[0]), Verdict::Placed);
}

#[test]
fn frames_of_the_holoscan_dialect() {
    let mut side = Side::new(UC);
    side.prepare(0x11, 4);
    let bytes = pixels(5 * MTU + 40, 6);
    let page = Page { number: 3, address: BASE + 256, key: side.writable.1.get() };
    let said = FrameEnd { frame_number: 77, begin: (1, 2), end: (3, 4), ..FrameEnd::default() };
    let mut requester = requester(0xFF_FFFE);
    let made = frame(&mut requester, page, bytes.len() as u64, said, ImmediateLayout::Page12).unwrap();
    for piece in made.pixels.clone() {
        assert_eq!(piece.header.opcode.byte(), 0x2A);
        assert_eq!(side.take(&sealed(&piece.header, &bytes[piece.payload.clone()])), Verdict::Placed);
    }
    let last = sealed(&made.end, &made.block);
    assert_eq!(made.end.opcode.byte(), 0x2B);
    assert_eq!(side.take(&last), Verdict::Placed);
    let view = Packet::new_checked(&last).unwrap();
    let end = FrameEnd::of_payload(view.payload()).unwrap();
    assert_eq!(end, FrameEnd { psn: 4, bytes_written: bytes.len() as u64, ..said });
    assert_eq!(end.psn, view.psn().get());
    let immediate = side.completions[0].immediate.unwrap();
    assert_eq!(ImmediateLayout::Page12.page(immediate, &end), Some(3));
    assert_eq!(&side.image()[256..256 + bytes.len()], bytes);
    // The block lies at the next multiple of 128 behind the frame: 5 x 256 + 128.
    assert_eq!(&side.image()[256 + 1408..256 + 1408 + 128], made.block);
}

/// A packet as the model sees it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    psn: u32,
    is_start: bool,
    is_end: bool,
    /// Where its bytes go, and how many; what follows of the message begins there.
    at: usize,
    bytes: usize,
    message: usize,
}

/// The rules of UC over whole messages, without bytes: which of the packets that arrive are placed. A packet that
/// begins a message is always taken; another only if it is the very next one after a taken packet of the same message.
fn model(arrived: &[Sent]) -> Vec<bool> {
    let mut last_taken: Option<Sent> = None;
    let mut is_broken = false;
    arrived
        .iter()
        .map(|packet| {
            let follows =
                last_taken.is_some_and(|last| last.message == packet.message && last.psn + 1 == packet.psn && !last.is_end);
            let is_taken = packet.is_start || (follows && !is_broken);
            if packet.is_start {
                is_broken = false;
            } else if !is_taken {
                is_broken = true;
            }
            if is_taken {
                last_taken = Some(*packet);
            }
            is_taken
        })
        .collect()
}

proptest! {
    /// Random messages, with packets lost, doubled and exchanged, against the model: same places, same completions.
    #[test]
    fn any_faults_agree_with_the_model(messages in proptest::collection::vec((1_usize..5 * MTU, 0_usize..10 * MTU, any::<bool>()), 1..8),
        faults in proptest::collection::vec(0_u8..12, 48), first in prop_oneof![Just(0_u32), Just(0xFF_FFFC)]) {
        let pair = konkordia_fabric::roce::pair::QueuePairSettings { first_psn: Psn::new(first), ..settings(0x11, UC) };
        let mut side = Side::with(&[pair], IcrcCheck::Always);
        side.prepare(0x11, 64);
        let mut requester = requester(first);
        let mut sent: Vec<(Sent, Vec<u8>)> = Vec::new();
        for (message, (length, at, is_one)) in messages.iter().enumerate() {
            let bytes = pixels(*length, message as u32);
            let cut = if *is_one { Cut::OneMessage } else { Cut::OnlyPackets };
            let packets = side.write(&mut requester, *at, &bytes, Some(message as u32), cut);
            let count = packets.len();
            for (n, packet) in packets.into_iter().enumerate() {
                let psn = sent.len() as u32;
                let (is_start, is_end) = (!is_one || n == 0, !is_one || n + 1 == count);
                let bytes = (length - n * MTU).min(MTU);
                sent.push((Sent { psn, is_start, is_end, at: at + n * MTU, bytes, message }, packet));
            }
        }
        let mut arrived: Vec<&(Sent, Vec<u8>)> = Vec::new();
        for (packet, fault) in sent.iter().zip(faults.iter().cycle()) {
            match fault {
                0 => {}
                1 => arrived.extend([packet, packet]),
                2 => arrived.insert(arrived.len().saturating_sub(1), packet),
                _ => arrived.push(packet),
            }
        }
        let taken = model(&arrived.iter().map(|packet| packet.0).collect::<Vec<_>>());
        let mut image = vec![FILL; REGION_BYTES];
        let mut told = Vec::new();
        for ((packet, bytes), is_taken) in arrived.iter().zip(&taken) {
            let verdict = side.take(bytes);
            prop_assert_eq!(verdict == Verdict::Placed, *is_taken, "{:?}: {:?}", packet, verdict);
            if *is_taken {
                let payload = Packet::new_checked(bytes).unwrap().payload();
                image[packet.at..packet.at + packet.bytes].copy_from_slice(payload);
                told.extend(Packet::new_checked(bytes).unwrap().immediate());
            }
        }
        prop_assert_eq!(side.image(), &image[..]);
        prop_assert_eq!(side.completions.iter().filter_map(|done| done.immediate).collect::<Vec<_>>(), told);
        prop_assert!(side.completions.iter().all(|done| done.operation == Operation::Write));
        // The account: of the numbers up to the newest, those that never came lie within what it says.
        let newest = arrived.iter().map(|packet| packet.0.psn).max();
        let came: std::collections::HashSet<u32> = arrived.iter().map(|packet| packet.0.psn).collect();
        let lost = newest.map_or(0, |newest| u64::from(newest) + 1 - came.len() as u64);
        let sequence = side.responder.queue_pair(qpn(0x11)).unwrap().sequence();
        prop_assert!(lost <= sequence.missing && lost + sequence.late >= sequence.missing, "{} {:?}", lost, sequence);
    }
}
