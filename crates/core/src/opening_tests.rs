use super::*;

const PACKETS: u32 = 8;

fn opening(is_strict: bool) -> Opening {
    Opening::new(OpeningSpec { packets: PACKETS, is_strict, others: [2, 4, 6, 8, 16] })
}

fn held(frame: u64, number: u32) -> Held {
    Held { frame, number, is_in_tile: number < PACKETS, port: Port::default() }
}

fn begin(frame: u64) -> Opened {
    Opened::Begin { frame, port: Port::default() }
}

/// Pushes until something is decided; `Wait` if nothing is.
fn push_all(opening: &mut Opening, packets: impl IntoIterator<Item = Held>, is_known: bool) -> Opened {
    packets
        .into_iter()
        .map(|packet| opening.push(packet, 0, is_known))
        .find(|opened| *opened != Opened::Wait)
        .unwrap_or(Opened::Wait)
}

#[test]
fn a_whole_frame_begins_with_the_next_one_or_after_a_pause() {
    let mut o = opening(true);
    assert_eq!(push_all(&mut o, (0..PACKETS).map(|n| held(5, n)), false), Opened::Wait);
    assert_eq!((o.push(held(6, 0), 1000, false), o.push(held(6, 1), 1000, false)), (Opened::Wait, begin(5)));
    let mut o = opening(true);
    push_all(&mut o, (0..PACKETS).map(|n| held(5, n)), false);
    assert_eq!((o.tick(PAUSE_NS - 1, false, false), o.tick(PAUSE_NS, false, false)), (Opened::Wait, begin(5)));
}

#[test]
fn one_stray_packet_decides_nothing() {
    for stray in [1, 4, 6, 500] {
        let mut o = opening(true);
        assert_eq!(o.push(held(stray, 3), 0, false), Opened::Wait);
        assert_eq!(o.tick(u64::MAX, false, false), Opened::Wait, "a lone packet waits for the detector");
        let frames = (0..PACKETS).map(|n| held(5, n)).chain([held(6, 0), held(6, 1)]);
        assert_eq!(push_all(&mut o, frames, false), begin(5), "stray of frame {stray}");
    }
}

#[test]
fn packets_that_never_agree_go_oldest_first() {
    let mut o = opening(true);
    let most = Opening::packets_max(PACKETS) as u64;
    for n in 0..3 * most {
        let opened = o.push(held(10 * n, 0), 0, false);
        assert_eq!(opened == Opened::DropOldest, n + 1 >= most, "packet {n}");
        if opened == Opened::DropOldest {
            o.drop_oldest();
        }
    }
    assert_eq!(o.held().len() as u64, most - 1);
}

#[test]
fn more_packets_than_the_tile_has_are_refused_before_one_is_placed() {
    let mut o = opening(true);
    assert_eq!(push_all(&mut o, (0..=PACKETS).map(|n| held(1, n)), false), Opened::Wait, "one may be damaged");
    assert_eq!(o.push(held(1, PACKETS + 1), 0, false), Opened::Refuse { last: PACKETS + 1 });
    let mut lenient = opening(false);
    assert_eq!(push_all(&mut lenient, (0..20).map(|n| held(1, n)), false), begin(1), "at the latest when it is full");
}

#[test]
fn exactly_the_packets_of_another_readout_are_refused() {
    let frames = |count: u32| (0..count).map(|n| held(1, n)).chain([held(2, 0), held(2, 1)]);
    assert_eq!(push_all(&mut opening(true), frames(4), false), Opened::Refuse { last: 3 });
    assert_eq!(push_all(&mut opening(false), frames(4), false), begin(1));
    assert_eq!(push_all(&mut opening(true), frames(5), false), begin(1), "no readout has 5 packets: some were lost");
    let lost_one = frames(4).filter(|h| (h.frame, h.number) != (1, 2));
    assert_eq!(push_all(&mut opening(true), lost_one, false), begin(1), "not every packet of it came");
}

#[test]
fn a_known_first_frame_needs_no_confirmation_and_the_end_no_pause() {
    let mut o = opening(true);
    assert_eq!(o.push(held(9, 0), 0, true), Opened::Wait);
    assert_eq!((o.tick(0, true, false), o.tick(0, true, true)), (Opened::Wait, begin(9)));
    assert_eq!(opening(true).tick(0, true, true), Opened::Wait, "nothing is held");
}

#[test]
fn the_port_is_that_of_most_packets() {
    let (own, other) = (Port { row: 1, column: 2, module_id: 3 }, Port { row: 9, column: 9, module_id: 9 });
    let mut o = opening(true);
    let packets = (0..PACKETS).map(|n| Held { port: if n % 3 == 0 { other } else { own }, ..held(1, n) });
    push_all(&mut o, packets, false);
    assert_eq!(o.tick(PAUSE_NS, false, false), Opened::Begin { frame: 1, port: own });
}

/// A damaged number or two at the beginning do not cost the run.
#[test]
fn wild_packet_numbers_are_no_larger_tile() {
    let mut o = opening(true);
    let wild = [held(1, PACKETS), held(1, u32::MAX), held(3, PACKETS + 1)];
    assert_eq!(push_all(&mut o, wild.into_iter().chain((0..PACKETS).map(|n| held(1, n))), false), Opened::Wait);
    assert_eq!(o.tick(PAUSE_NS, false, false), begin(1));
}

#[test]
fn a_refusal_is_lifted_by_what_contradicts_it() {
    let mut smaller = Refusal::new(3);
    assert!((0..4).all(|n| !smaller.is_lifted_by(n, true, PACKETS)) && smaller.is_lifted_by(4, true, PACKETS));
    let mut larger = Refusal::new(PACKETS + 1);
    let frames = |refusal: &mut Refusal, count: u32, last: u32| {
        (0..count * last).filter(|n| refusal.is_lifted_by(n % last, n % last < PACKETS, PACKETS)).count()
    };
    assert_eq!(frames(&mut larger, 10, 2 * PACKETS), 0);
    assert_eq!(frames(&mut larger, 2, PACKETS), 0);
    assert!(frames(&mut larger, 2, PACKETS) > 0);
}

/// JUNGFRAU with two interfaces that reads 8 rows: a stream has one packet of each frame.
#[test]
fn tiles_of_one_packet_begin_with_two_frames_in_a_row() {
    let one = || Opening::new(OpeningSpec { packets: 1, is_strict: true, others: [16, 32, 64, 128, 256] });
    let of = |frame| Held { frame, number: 0, is_in_tile: true, port: Port::default() };
    assert_eq!(push_all(&mut one(), [of(5), of(6)], false), begin(5));
    assert_eq!(push_all(&mut one(), [of(500), of(5), of(6)], false), begin(5));
    assert_eq!(push_all(&mut one(), [of(5), of(7)], false), Opened::Wait);
}
