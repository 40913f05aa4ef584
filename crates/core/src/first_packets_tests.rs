use super::*;

const PACKETS: u32 = 8;
/// Smaller readouts have 2, 4 or 6 packets.
const DISTINCTIVE: u32 = 6;

fn opening_of(packets: u32, is_strict: bool, distinctive_number: u32) -> Opening {
    Opening::new(OpeningSpec {
        packets,
        is_strict,
        distinctive_number,
        distinctive_packets: packets - distinctive_number,
        is_single: false,
    })
}

fn opening(is_strict: bool) -> Opening {
    opening_of(PACKETS, is_strict, DISTINCTIVE)
}

fn held(frame: u64, number: u32) -> FirstPacket {
    FirstPacket { frame, number, is_in_tile: number < PACKETS, origin: Origin::default() }
}

fn begin(frame: u64) -> FirstVerdict {
    FirstVerdict::Begin { frame, origin: Some(Origin::default()) }
}

/// Frames of `packets` packets each.
fn frames(frames: std::ops::Range<u64>, packets: u32) -> impl Iterator<Item = FirstPacket> {
    frames.flat_map(move |frame| (0..packets).map(move |number| held(frame, number)))
}

/// Pushes until something is decided; `Wait` if nothing is.
fn push_all(opening: &mut Opening, packets: impl IntoIterator<Item = FirstPacket>, is_known: bool) -> FirstVerdict {
    packets
        .into_iter()
        .map(|packet| opening.push(packet, 0, is_known))
        .find(|verdict| *verdict != FirstVerdict::Wait)
        .unwrap_or(FirstVerdict::Wait)
}

/// Pushes all packets, and refuses when that is the verdict. Returns the number of packets before the run begins, or of
/// all.
fn refused(opening: &mut Opening, packets: impl IntoIterator<Item = FirstPacket>) -> usize {
    let mut count = 0;
    for packet in packets {
        match opening.push(packet, 0, true) {
            FirstVerdict::Refuse => {
                count += opening.held().len();
                opening.refuse();
            }
            FirstVerdict::Begin { .. } => return count,
            _ => {}
        }
    }
    count + opening.held().len()
}

#[test]
fn a_whole_frame_begins_with_the_next_one_or_after_a_pause() {
    let mut o = opening(true);
    assert_eq!(push_all(&mut o, frames(5..6, PACKETS), false), FirstVerdict::Wait);
    assert_eq!((o.push(held(6, 0), 1000, false), o.push(held(6, 1), 1000, false)), (FirstVerdict::Wait, begin(5)));
    let mut o = opening(true);
    push_all(&mut o, frames(5..6, PACKETS), false);
    assert_eq!((o.tick(PAUSE_NS - 1, false, false), o.tick(PAUSE_NS, false, false)), (FirstVerdict::Wait, begin(5)));
}

#[test]
fn one_stray_packet_decides_nothing() {
    for stray in [1, 4, 6, 500] {
        for is_known in [false, true] {
            let mut o = opening(true);
            assert_eq!(o.push(held(stray, 3), 0, is_known), FirstVerdict::Wait);
            assert_eq!(o.tick(u64::MAX, is_known, false), FirstVerdict::Wait, "a lone packet waits for the detector");
            assert!(!o.is_settling(0), "nobody waits for it");
            assert_eq!(push_all(&mut o, frames(5..7, PACKETS), is_known), begin(5), "stray of frame {stray}");
        }
    }
}

/// Damaged numbers of one frame, and packets of many ports, agree on nothing.
#[test]
fn only_packets_of_the_tile_and_of_one_port_agree() {
    let mut o = opening(true);
    assert_eq!(push_all(&mut o, [100, 200, 300, 400].map(|n| held(7, n)), false), FirstVerdict::Wait);
    assert_eq!(o.tick(u64::MAX, false, false), FirstVerdict::Wait);
    let mut o = opening(true);
    let module = |module_id| Origin { port: Port { module_id, ..Port::default() }, ..Origin::default() };
    assert_eq!(
        push_all(&mut o, (0..8).map(|n| FirstPacket { origin: module(n as u16), ..held(7, n) }), false),
        FirstVerdict::Wait
    );
    assert_eq!(o.tick(u64::MAX, false, false), FirstVerdict::Wait);
    let mut o = opening(true);
    let from = |port: u32| Origin { sender: sender(port as u16), ..Origin::default() };
    assert_eq!(push_all(&mut o, (0..8).map(|n| FirstPacket { origin: from(n), ..held(7, n) }), false), FirstVerdict::Wait);
    assert_eq!(o.tick(u64::MAX, false, false), FirstVerdict::Wait);
}

#[test]
fn packets_that_never_agree_go_oldest_first() {
    let mut o = opening(true);
    let most = Opening::packets_max(PACKETS) as u64;
    for n in 0..3 * most {
        let verdict = o.push(held(10 * n, 0), 0, false);
        assert_eq!(verdict == FirstVerdict::DropOldest, n + 1 >= most, "packet {n}");
        if verdict == FirstVerdict::DropOldest {
            o.drop_oldest();
        }
    }
    assert_eq!(o.held().len() as u64, most - 1);
}

/// The fuzz target found this: when the oldest packet of the only frame on which packets agree was dropped, the frame
/// counted as agreed but no longer as shown, and two packets began the run.
#[test]
fn a_frame_of_which_packets_were_dropped_decides_nothing() {
    for (is_strict, distinctive, copies) in [(false, 0, 3), (true, 0, 3), (false, 0, 7), (true, DISTINCTIVE, 3)] {
        let mut o = opening_of(16, is_strict, distinctive);
        let few = (0..copies).map(|number| held(0, number.max(distinctive)));
        assert_eq!(push_all(&mut o, few, false), FirstVerdict::Wait);
        assert!(o.is_settling(0));
        for n in 0..3 * Opening::packets_max(16) as u64 {
            match o.push(held(1000 + 10 * n, 0), 0, false) {
                FirstVerdict::Wait => {}
                FirstVerdict::DropOldest => o.drop_oldest(),
                other => panic!("{other:?} after {n} strays behind {copies} packets of frame 0"),
            }
        }
        assert!(!o.is_settling(0), "nothing that is still held agrees");
    }
}

/// What is left of a frame still shows the tile when its first packet was dropped.
#[test]
fn the_packets_that_are_left_still_show_the_tile() {
    let mut o = opening_of(16, false, 0);
    let strays = |from: u64, to: u64| (from..to).map(|n| held(1000 + 10 * n, 0));
    let packets = [held(5, 0)].into_iter().chain(strays(0, 20)).chain((1..7).map(|number| held(5, number)));
    // The first packet of frame 5 goes with the last of these strays, and a stray with the first packet of frame 6.
    let packets = packets.chain(strays(20, 29)).chain((0..2).map(|number| held(6, number)));
    let mut verdicts = Vec::new();
    for packet in packets {
        let verdict = o.push(packet, 0, false);
        if verdict == FirstVerdict::DropOldest {
            o.drop_oldest();
        }
        verdicts.extend((verdict != FirstVerdict::Wait).then_some(verdict));
    }
    assert_eq!(verdicts, [FirstVerdict::DropOldest, FirstVerdict::DropOldest, begin(5)]);
}

#[test]
fn more_packets_than_the_tile_has_are_refused_before_one_is_placed() {
    for first in 0..=PACKETS + 1 {
        for copies in 1..=2 {
            let mut o = opening(true);
            let sent = frames(1..4, 2 * PACKETS).skip(first as usize).flat_map(|held| std::iter::repeat_n(held, copies));
            let sent: Vec<FirstPacket> = sent.collect();
            assert_eq!(refused(&mut o, sent.clone()), sent.len(), "from packet {first}, each {copies} times");
        }
    }
    // Packets of another frame that come twice do not make it full before a larger tile shows itself.
    let mut o = opening(true);
    let strays = [3, 3, 3, 3, 90].map(|frame| held(frame, 1));
    assert_eq!(refused(&mut o, strays.into_iter().chain(frames(1..4, 2 * PACKETS))), 5 + 6 * PACKETS as usize);
    let mut lenient = opening(false);
    assert_eq!(push_all(&mut lenient, frames(1..2, 20), false), begin(1), "at the latest when it is full");
}

/// Whichever packets of its first frames come, no packet of a smaller readout is placed.
#[test]
fn a_smaller_readout_is_refused_wherever_it_begins_and_whatever_is_lost() {
    for smaller in [2, 4, 6] {
        for lost in 0..3 * smaller {
            for first in 0..=lost {
                let sent = frames(5..5 + 64 / u64::from(smaller), smaller).enumerate();
                let sent = sent.filter(|(n, _)| *n >= first as usize && *n != lost as usize).map(|(_, held)| held);
                let mut o = opening(true);
                let sent: Vec<FirstPacket> = sent.collect();
                assert_eq!(refused(&mut o, sent.clone()), sent.len(), "{smaller} packets from {first} on without {lost}");
                let verdict = o.tick(LONG_PAUSE_NS, false, false);
                assert!(matches!(verdict, FirstVerdict::Refuse | FirstVerdict::Wait), "{verdict:?}");
            }
        }
    }
    assert_eq!(push_all(&mut opening(false), frames(1..4, 4), false), begin(1));
}

/// After a frame that was cut short, the next one shows the tile, and nothing is lost.
#[test]
fn a_frame_that_was_cut_short_is_no_smaller_readout() {
    let cut = || frames(1..2, 4).chain(frames(2..4, PACKETS));
    assert_eq!(push_all(&mut opening(true), cut(), false), begin(1));
    let mut o = opening(true);
    push_all(&mut o, frames(1..2, 4), false);
    assert_eq!(o.tick(LONG_PAUSE_NS, false, false), FirstVerdict::Refuse, "nothing says that it is one of the tile");
    o.refuse();
    assert_eq!(push_all(&mut o, frames(2..4, PACKETS), false), begin(2));
}

#[test]
fn a_known_first_frame_and_the_end_need_no_confirmation() {
    let mut o = opening_of(PACKETS, true, 0);
    assert_eq!(o.push(held(9, 0), 0, true), FirstVerdict::Wait);
    let verdicts = (o.tick(0, true, false), o.tick(0, true, true));
    assert_eq!(verdicts, (FirstVerdict::Wait, FirstVerdict::Begin { frame: 9, origin: None }), "nobody knows whose it is");
    assert_eq!(opening(true).tick(0, true, true), FirstVerdict::Wait, "nothing is held");
}

#[test]
fn the_port_is_that_of_most_packets() {
    let (own, other) = (Port { row: 1, column: 2, module_id: 3 }, Port { row: 9, column: 9, module_id: 9 });
    let (own, other) = (Origin { port: own, ..Origin::default() }, Origin { port: other, ..Origin::default() });
    let mut o = opening(false);
    let packets = (0..PACKETS).map(|n| FirstPacket { origin: if n % 3 == 0 { other } else { own }, ..held(1, n) });
    push_all(&mut o, packets, false);
    assert_eq!(o.tick(LONG_PAUSE_NS, false, false), FirstVerdict::Begin { frame: 1, origin: Some(own) });
}

fn sender(port: u16) -> Sender {
    Sender::from(std::net::SocketAddr::from(([10, 0, 0, 1], port)))
}

/// Of two detectors that send at once, the stream takes the one from which more packets come; a few packets before do
/// not matter.
#[test]
fn a_stream_is_that_of_the_sender_of_most_packets() {
    let of = |port, held: FirstPacket| FirstPacket { origin: Origin { sender: sender(port), ..Origin::default() }, ..held };
    let strays = (5..8).map(|number| of(2, held(5, number)));
    let own = || frames(5..8, PACKETS).map(|held| of(1, held));
    let begins = |frame| FirstVerdict::Begin { frame, origin: Some(Origin { sender: sender(1), ..Origin::default() }) };
    assert_eq!(push_all(&mut opening(true), strays.chain(own()), false), begins(5));
    // Every second packet of the other one.
    let other = frames(900..903, PACKETS / 2).map(|held| of(2, held)).flat_map(|held| [None, Some(held)]);
    let both = own().zip(other).flat_map(|(own, other)| [Some(own), other]).flatten();
    assert_eq!(push_all(&mut opening(true), both, false), begins(5));
}

/// Nine of ten packets are lost: the run still begins with the first frame, once some packets of a few more frames
/// came.
#[test]
fn frames_of_which_most_is_lost_begin_a_run() {
    let mut o = opening_of(40, false, 0);
    let few = (5..12).flat_map(|frame| [held(frame, 3), held(frame, 7)]);
    assert_eq!(push_all(&mut o, few, false), begin(5));
    assert!(o.held().len() < 10);
}

/// However well a few packets agree: the frame that begins the run is one of which most packets come.
#[test]
fn a_few_strays_that_agree_decide_nothing() {
    for stray in [1, 90, 110, 5000, 1 << 40] {
        for numbers in [0..3, 5..8] {
            for is_after_a_pause in [false, true] {
                let mut o = opening(true);
                let strays = numbers.clone().map(|number| held(stray, number));
                assert_eq!(push_all(&mut o, strays, false), FirstVerdict::Wait);
                if is_after_a_pause {
                    match o.tick(LONG_PAUSE_NS, false, false) {
                        FirstVerdict::Refuse => o.refuse(),
                        verdict => assert_eq!(verdict, FirstVerdict::Wait),
                    }
                }
                assert_eq!(push_all(&mut o, frames(100..103, PACKETS), false), begin(100), "{numbers:?} of frame {stray}");
            }
        }
    }
}

/// A damaged number or two at the beginning do not cost the run.
#[test]
fn wild_packet_numbers_are_no_larger_tile() {
    let mut o = opening(true);
    let wild = [held(1, PACKETS), held(1, u32::MAX), held(1, u32::MAX - 1), held(3, PACKETS + 1)];
    assert_eq!(push_all(&mut o, wild.into_iter().chain(frames(1..2, PACKETS)), false), FirstVerdict::Wait);
    assert_eq!(o.tick(PAUSE_NS, false, false), begin(1));
}

#[test]
fn a_refused_stream_begins_when_it_shows_the_tile() {
    // After a smaller readout: the run begins with the first frame that shows the tile, not with held packets of that
    // readout.
    for before in 4..12 {
        let mut o = opening(true);
        let count = refused(&mut o, frames(1..before + 1, 4).chain(frames(20..23, PACKETS)));
        assert!(count < 4 * before as usize + PACKETS as usize, "{count} of {before} frames and 3");
        assert_eq!(o.tick(0, false, false), begin(20));
    }
    // One stray number is not enough.
    let mut o = opening(true);
    let strays =
        frames(1..100, 4).flat_map(|h| [Some(h), (h.number == 3 && h.frame % 9 == 0).then(|| held(h.frame, 7))]).flatten();
    assert_eq!(refused(&mut o, strays), 396 + 11);
    // After a larger readout: the run begins when more than two tiles came without a number beyond, however often a
    // pause cuts them.
    let mut o = opening(true);
    assert_eq!(refused(&mut o, frames(1..10, 2 * PACKETS)), 9 * 2 * PACKETS as usize);
    assert_eq!(refused(&mut o, frames(10..11, PACKETS)), PACKETS as usize, "its last packets may be lost");
    assert!(o.tick(LONG_PAUSE_NS, true, false) == FirstVerdict::Refuse);
    o.refuse();
    assert_eq!(push_all(&mut o, frames(11..12, PACKETS), true), FirstVerdict::Wait);
    assert!(o.tick(LONG_PAUSE_NS, true, false) == FirstVerdict::Refuse);
    o.refuse();
    assert_eq!(push_all(&mut o, frames(12..14, PACKETS), true), begin(12));
}

/// Partial readout of 16 packets in the middle, numbers 56 to 71, of which a detector sends all 128.
#[test]
fn a_larger_tile_is_one_although_its_first_numbers_are_small() {
    let spec = OpeningSpec { packets: 16, is_strict: true, distinctive_number: 0, distinctive_packets: 16, is_single: false };
    let mut o = Opening::new(spec);
    let all = |frame| (0..128).map(move |n| FirstPacket { is_in_tile: (56..72).contains(&n), ..held(frame, n) });
    assert_eq!(refused(&mut o, (1..9).flat_map(all)), 8 * 128);
}

/// JUNGFRAU with two interfaces that reads 8 rows, or with one that reads 8: a stream has one packet of each frame, or
/// two.
#[test]
fn tiles_of_one_or_two_packets_begin_with_two_frames_in_a_row_or_after_a_pause() {
    let of = |frame, number| FirstPacket { is_in_tile: true, ..held(frame, number) };
    let one = || opening_of(1, true, 0);
    assert_eq!(push_all(&mut one(), [of(5, 0), of(6, 0)], false), begin(5));
    assert_eq!(push_all(&mut one(), [of(500, 0), of(5, 0), of(6, 0)], false), begin(5));
    assert_eq!(push_all(&mut one(), [of(5, 0), of(7, 0)], false), FirstVerdict::Wait);
    for packets in [1, 2] {
        for (is_single, is_last) in [(true, false), (false, true), (false, false)] {
            let mut o = opening_of(packets, true, 0);
            o.spec.is_single = is_single;
            assert_eq!(push_all(&mut o, (0..packets).map(|n| of(5, n)), false), FirstVerdict::Wait);
            let verdict = o.tick(if is_last { 0 } else { LONG_PAUSE_NS }, false, is_last);
            // A lone packet may be a stray where more frames are to come.
            let waits = packets == 1 && !is_single && !is_last;
            let expected = if waits { FirstVerdict::Wait } else { FirstVerdict::Begin { frame: 5, origin: None } };
            assert_eq!(verdict, expected, "{packets}, {is_single}, {is_last}");
        }
    }
}

/// Only the newest packet is evaluated, so an opening costs little even when it is full.
#[test]
fn a_full_opening_costs_little() {
    let mut o = opening_of(512, true, 256);
    let start = std::time::Instant::now();
    for n in 0..20_000u64 {
        match o.push(FirstPacket { is_in_tile: true, ..held(10 * n, 0) }, 0, false) {
            FirstVerdict::DropOldest => o.drop_oldest(),
            verdict => assert_eq!(verdict, FirstVerdict::Wait),
        }
    }
    assert!(start.elapsed().as_secs() < 5, "{:?} for 20000 packets", start.elapsed());
}
