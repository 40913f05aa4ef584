use super::*;

fn rules(ports_per_module: u32, ports: Ports) -> SetupRules {
    SetupRules { is_strict: true, ports_per_module, ports }
}

fn judged(rules: &SetupRules, format: TileFormat, seen: &[Seen]) -> Vec<Finding> {
    let detector_type = if format.kind == DetectorKind::Eiger { 1 } else { 3 };
    judge(&Look { rules, format: &format, header_bytes: 48, detector_type, version: 2, seen, has_ended: false })
}

fn whats(rules: &SetupRules, format: TileFormat, seen: &[Seen]) -> Vec<What> {
    judged(rules, format, seen).into_iter().map(|finding| finding.what).collect()
}

/// What a stream sees of `frames` frames with so many packets.
fn frames(format: &TileFormat, packets: u32, frames: u64) -> Seen {
    let mut seen = Seen::default();
    for frame in 1..=frames {
        for number in 0..packets {
            if number >= format.packets() {
                let fields = HeaderFields { detector_type: 1, version: 2, packet_number: number };
                seen.on_malformed(4144, Some(fields), Malformed::PacketNumber);
            } else {
                if number == 0 {
                    seen.on_frame(frame);
                }
                seen.on_number(number);
            }
        }
    }
    seen
}

fn at(row: u16, column: u16) -> Seen {
    let mut seen = frames(&TileFormat::jungfrau(1).unwrap(), 128, 3);
    seen.port = Some(Port { row, column, module_id: 7 });
    seen
}

#[test]
fn every_wrong_depth_is_named() {
    for configured in [4, 8, 12, 16, 32] {
        let format = TileFormat::eiger(configured).unwrap();
        for sent in [4, 8, 12, 16, 32] {
            let packets = TileFormat::eiger(sent).unwrap().packets();
            let found = whats(&rules(4, Ports::Ordered), format, &[frames(&format, packets, 3)]);
            let expected = What::Packets { seen: packets, expected: format.packets(), means: Means::Bits(sent) };
            assert_eq!(
                found,
                if sent == configured { vec![] } else { vec![expected] },
                "{sent} bit sent, {configured} configured"
            );
        }
    }
}

#[test]
fn interfaces_and_rows_are_named() {
    let (one, two) = (TileFormat::jungfrau(1).unwrap(), TileFormat::jungfrau(2).unwrap());
    let means = |rules: SetupRules, format: TileFormat, seen: &[Seen]| match whats(&rules, format, seen)[..] {
        [What::Packets { means, .. }] => means,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(means(rules(1, Ports::Ordered), one, &[frames(&one, 64, 3)]), Means::Interfaces(2));
    assert_eq!(means(rules(2, Ports::Ordered), two, &[frames(&two, 128, 3)]), Means::Interfaces(1));
    let mut part = frames(&one, 128, 3);
    (part.packet_low, part.packet_high) = (56, 71);
    assert_eq!(means(rules(1, Ports::Ordered), one, &[part]), Means::Rows(64));
    let (read, mut all) = (one.with_rows(64).unwrap(), frames(&one, 128, 3));
    (all.packet_low, all.packet_high, all.beyond) = (0, 127, 3 * 112);
    assert_eq!(means(rules(1, Ports::Ordered), read, &[all]), Means::Rows(512));
    let mut right = frames(&read, 16, 3);
    (right.packet_low, right.packet_high) = (56, 71);
    assert_eq!(whats(&rules(1, Ports::Ordered), read, &[right]), []);
}

/// Losses that happen to hit the last packets are no other readout, and two damaged numbers are none either.
#[test]
fn losses_and_damage_are_no_finding() {
    let format = TileFormat::jungfrau(1).unwrap();
    assert_eq!(whats(&rules(1, Ports::Ordered), format, &[frames(&format, 127, 20)]), []);
    let mut seen = frames(&format, 128, 20);
    seen.on_malformed(8240, Some(HeaderFields { detector_type: 3, version: 2, packet_number: 9999 }), Malformed::PacketNumber);
    seen.on_malformed(8240, Some(HeaderFields { detector_type: 77, version: 2, packet_number: 1 }), Malformed::DetectorType);
    seen.on_malformed(100, None, Malformed::Length);
    assert_eq!(whats(&rules(1, Ports::Ordered), format, &[seen]), []);
    assert_eq!(whats(&rules(1, Ports::Ordered), format, &[frames(&format, 64, 2)]), [], "two frames may have lost it");
}

#[test]
fn another_detector_header_or_size_is_named_once_for_all_streams() {
    let format = TileFormat::jungfrau(1).unwrap();
    let odd = |bytes: usize, detector_type: u8, version: u8, why| {
        let mut seen = Seen::default();
        let fields = HeaderFields { detector_type, version, packet_number: 0 };
        (0..10).for_each(|_| seen.on_malformed(bytes, Some(fields), why));
        let found = judged(&rules(1, Ports::Ordered), format, &[seen, seen]);
        assert_eq!((found.len(), found[0].streams, found[0].stream), (1, 2, 0), "{found:?}");
        found[0].what
    };
    assert_eq!(odd(4144, 1, 2, Malformed::Length), What::Type(1));
    assert_eq!(odd(8240, 5, 2, Malformed::DetectorType), What::Type(5));
    assert_eq!(odd(8240, 3, 1, Malformed::Version), What::Version(1));
    assert_eq!(odd(1500, 3, 2, Malformed::Length), What::Size { bytes: 1500, expected: 8240 });
    assert_eq!(odd(512, 200, 9, Malformed::Length), What::Noise { odd: 10, of: 10 });
}

#[test]
fn swapped_doubled_and_foreign_ports_are_named() {
    let format = TileFormat::jungfrau(1).unwrap();
    let port = |row, column| Port { row, column, module_id: 7 };
    let ordered = rules(1, Ports::Ordered);
    assert_eq!(whats(&ordered, format, &[at(0, 0), at(1, 0), at(0, 1), at(1, 1)]), []);
    assert_eq!(whats(&ordered, format, &[at(1, 0), at(0, 0)]), [What::Order { seen: port(0, 0), before: port(1, 0) }]);
    assert_eq!(whats(&ordered, format, &[at(1, 0), at(1, 0)]), [What::Twice { port: port(1, 0), other: 0 }]);
    let grid = rules(1, Ports::Grid { down: 2 });
    assert_eq!(whats(&grid, format, &[at(3, 1), at(4, 1), at(3, 2), at(4, 2)]), [], "part of a larger detector");
    let swapped = whats(&grid, format, &[at(0, 0), at(0, 1), at(1, 0), at(1, 1)]);
    let place = |row, column, to: (u16, u16)| What::Place { seen: port(row, column), expected: [Some(to.0), Some(to.1), None] };
    assert_eq!(swapped, [place(0, 1, (1, 0)), place(1, 0, (0, 1))]);
    let given = rules(1, Ports::Given(vec![[None, None, Some(7)], [Some(1), None, Some(8)]]));
    let expected = [Some(1), None, Some(8)];
    assert_eq!(whats(&given, format, &[at(0, 0), at(1, 0)]), [What::Place { seen: port(1, 0), expected }]);
    let mut mixed = at(0, 0);
    (0..100).for_each(|_| assert!(!mixed.is_own(port(5, 5))));
    assert_eq!(whats(&ordered, format, &[mixed]), [What::TwoPorts { own: port(0, 0), other: port(5, 5) }]);
    let allowed = SetupRules { is_strict: false, ..grid };
    assert!(judged(&allowed, format, &[at(1, 0), at(0, 0)]).iter().all(|finding| !finding.is_wrong));
}

/// Both ports of the real 9M capture and of our own count: boards down a column, left before right.
#[test]
fn ports_of_an_eiger_count_as_in_the_capture_of_a_9m() {
    let format = TileFormat::eiger(32).unwrap();
    let seen: Vec<Seen> = (0..72u16).map(|i| (i / 2, i % 2)).map(|(b, side)| at(b % 12, 2 * (b / 12) + side)).collect();
    assert_eq!(whats(&rules(4, Ports::Ordered), format, &seen), []);
    assert_eq!(whats(&rules(4, Ports::Grid { down: 6 }), format, &seen), []);
}

#[test]
fn frame_numbers_tell_of_the_first_frame_a_restart_and_a_round_of_receivers() {
    let format = TileFormat::jungfrau(1).unwrap();
    let ordered = rules(1, Ports::Ordered);
    let mut seen = Seen::default();
    (0..5).for_each(|n| seen.on_foreign(5000 + n));
    assert_eq!(whats(&ordered, format, &[seen]), [What::FirstFrame { low: 5000, high: 5004 }]);
    let mut seen = at(0, 0);
    (0..64).for_each(|_| seen.on_late(1));
    assert_eq!(whats(&ordered, format, &[seen]), [What::Restart { from: 3, to: 1 }]);
    let mut seen = Seen { port: Some(Port::default()), packets: 1280, packet_high: 127, ..Seen::default() };
    (0..10).for_each(|n| seen.on_frame(2 + 4 * n));
    assert_eq!(whats(&ordered, format, &[seen]), [What::EveryNth(4)]);
    seen.on_frame(39);
    assert_eq!(whats(&ordered, format, &[seen]), []);
}

#[test]
fn a_silent_stream_is_named_when_others_have_many_frames_or_the_run_is_over() {
    let format = TileFormat::jungfrau(1).unwrap();
    let (few, many) = (at(0, 0), frames(&format, 128, 20));
    let ordered = rules(1, Ports::Ordered);
    assert_eq!(whats(&ordered, format, &[few, Seen::default()]), []);
    assert_eq!(whats(&ordered, format, &[many, Seen::default()]), [What::Silent]);
    let seen = [few, Seen::default()];
    let look =
        Look { rules: &ordered, format: &format, header_bytes: 48, detector_type: 3, version: 2, seen: &seen, has_ended: true };
    assert_eq!(judge(&look).iter().map(|f| (f.stream, f.what)).collect::<Vec<_>>(), [(1, What::Silent)]);
    let none = [Seen::default(); 2];
    assert_eq!(judge(&Look { seen: &none, ..look }), [], "nothing came at all");
}
