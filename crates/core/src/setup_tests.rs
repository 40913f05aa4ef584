use super::*;

fn rules(ports_per_module: u32, ports: Ports) -> SetupRules {
    SetupRules { is_strict: true, ports_per_module, ports, senders: crate::sender::Senders::Learned }
}

fn judged(rules: &SetupRules, format: TileFormat, seen: &[Seen]) -> Vec<Finding> {
    let detector_type = if format.kind == DetectorKind::Eiger { 1 } else { 3 };
    let since_first_ns = 1_000_000_000;
    judge(&Look { rules, format: &format, detector_type, version: 2, first_frame: None, seen, since_first_ns, has_ended: false })
}

fn whats(rules: &SetupRules, format: TileFormat, seen: &[Seen]) -> Vec<What> {
    judged(rules, format, seen).into_iter().map(|finding| finding.what).collect()
}

/// What a stream sees of `frames` frames with `packets` packets.
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

/// What a stream sees of `frames` frames of a readout with these numbers that is refused.
fn refused(numbers: std::ops::Range<u32>, frames: u64) -> Seen {
    let mut seen = Seen::default();
    (1..=frames).for_each(|frame| numbers.clone().for_each(|number| seen.on_refused(frame, number)));
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
            // Fewer packets may also be those of fewer rows.
            let rows = 256 * sent / configured;
            let is_rows = sent < configured && format.with_rows(rows).is_some() && rows * configured == 256 * sent;
            let means = if is_rows { Means::BitsOrRows { bits: sent, rows } } else { Means::Bits(sent) };
            let expected = What::Packets { seen: packets, expected: format.packets(), means };
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
    let part = numbered(56..72, 12);
    assert_eq!(means(rules(1, Ports::Ordered), one, &[part]), Means::Rows(64));
    let read = one.with_rows(64).unwrap();
    assert_eq!(means(rules(1, Ports::Ordered), read, &[refused(0..128, 12)]), Means::Rows(512));
    let mut right = frames(&read, 16, 3);
    (right.packet_low, right.packet_high) = (56, 71);
    assert_eq!(whats(&rules(1, Ports::Ordered), read, &[right]), []);
}

/// What a stream sees of `frames` frames with these numbers, all of which are of the tile.
fn numbered(numbers: std::ops::Range<u32>, frames: u64) -> Seen {
    let mut seen = Seen::default();
    for frame in 1..=frames {
        seen.on_frame(frame);
        numbers.clone().for_each(|number| seen.on_number(number));
    }
    seen
}

/// Of two interfaces the first sends its last packets, and the second its first ones.
#[test]
fn rows_of_two_interfaces_are_named() {
    let two = TileFormat::jungfrau(2).unwrap();
    let both = rules(2, Ports::Ordered);
    let what = |seen, expected, rows| [What::Packets { seen, expected, means: Means::Rows(rows) }];
    assert_eq!(whats(&both, two, &[numbered(32..64, 12), numbered(0..32, 12)]), what(32, 64, 256));
    assert_eq!(whats(&both, two, &[numbered(0..64, 12), numbered(0..64, 12)]), []);
    let read = two.with_rows(256).unwrap();
    assert_eq!(whats(&both, read, &[refused(0..64, 12), refused(0..64, 12)]), what(64, 32, 512));
    assert_eq!(whats(&both, read, &[numbered(32..64, 12), numbered(0..32, 12)]), []);
}

/// 16 rows of each half module at 16 bit are 4 packets, which no depth has. 128 rows have as many packets as 8 bit, so
/// the finding must not name `bits` alone.
#[test]
fn rows_of_an_eiger_are_named_beside_its_bits() {
    let (format, ports) = (TileFormat::eiger(16).unwrap(), rules(4, Ports::Ordered));
    let what = |seen, means| [What::Packets { seen, expected: 64, means }];
    assert_eq!(whats(&ports, format, &[refused(0..4, 12)]), what(4, Means::Rows(16)));
    assert_eq!(whats(&ports, format, &[numbered(0..60, 12)]), what(60, Means::Rows(240)));
    assert_eq!(whats(&ports, format, &[refused(0..32, 12)]), what(32, Means::BitsOrRows { bits: 8, rows: 128 }));
    // The ends of frames that a full buffer cut off: they are not all of the same length.
    let mut cut = Seen::default();
    for frame in 1..=20 {
        cut.on_frame(frame);
        (0..40 + frame as u32).for_each(|number| cut.on_number(number));
    }
    assert_eq!(whats(&ports, format, &[cut]), []);
}

/// Losses that happen to hit the last packets do not look like another readout, and neither do two damaged numbers.
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

/// One damaged number neither hides a wrong set-up nor overflows.
#[test]
fn a_damaged_number_in_a_wrong_setup_changes_nothing() {
    let (one, two) = (TileFormat::jungfrau(1).unwrap(), TileFormat::jungfrau(2).unwrap());
    for number in [512, 9999, u32::MAX] {
        let fields = HeaderFields { detector_type: 3, version: 2, packet_number: number };
        for is_first in [false, true] {
            let mut seen = if is_first { Seen::default() } else { frames(&one, 64, 3) };
            seen.on_malformed(8240, Some(fields), Malformed::PacketNumber);
            if is_first {
                (1..4).for_each(|frame| (0..64).for_each(|n| (seen.on_number(n), seen.frames = frame).0));
            }
            let found = whats(&rules(1, Ports::Ordered), one, &[seen]);
            assert_eq!(found, [What::Packets { seen: 64, expected: 128, means: Means::Interfaces(2) }], "{number}, {is_first}");
        }
        let mut seen = refused(0..128, 3);
        seen.on_refused(3, number);
        let found = whats(&rules(2, Ports::Ordered), two, &[seen]);
        assert_eq!(found, [What::Packets { seen: 128, expected: 64, means: Means::Interfaces(1) }], "{number}");
    }
}

/// Packets that were refused before are no finding once the stream has begun. Nothing is reported about a frame that is
/// still arriving.
#[test]
fn refused_packets_are_a_finding_while_they_are_refused_and_their_count_is_known() {
    let format = TileFormat::eiger(16).unwrap();
    let ports = rules(4, Ports::Ordered);
    for packets in 66..128 {
        assert_eq!(whats(&ports, format, &[refused(0..packets, 1)]), [], "{packets}");
    }
    let mut seen = refused(0..128, 3);
    assert_eq!(whats(&ports, format, &[seen]).len(), 1);
    seen.on_begin(None);
    for frame in 4..20 {
        seen.on_frame(frame);
        (0..64).for_each(|number| seen.on_number(number));
    }
    assert_eq!((whats(&ports, format, &[seen]), seen.refused), (vec![], 384));
}

#[test]
fn another_detector_header_or_size_is_named_once_for_all_streams() {
    let format = TileFormat::jungfrau(1).unwrap();
    let odd = |bytes: usize, detector_type: u8, version: u8, why| {
        let mut seen = Seen::default();
        let fields = HeaderFields { detector_type, version, packet_number: 0 };
        (0..128).for_each(|_| seen.on_malformed(bytes, Some(fields), why));
        let found = judged(&rules(1, Ports::Ordered), format, &[seen, seen]);
        assert_eq!((found.len(), found[0].streams, found[0].stream), (1, 2, 0), "{found:?}");
        found[0].what
    };
    assert_eq!(odd(4144, 1, 2, Malformed::Length), What::Type(1));
    assert_eq!(odd(8240, 5, 2, Malformed::DetectorType), What::Type(5));
    assert_eq!(odd(8240, 3, 1, Malformed::Version), What::Version(1));
    assert_eq!(odd(1500, 3, 2, Malformed::Length), What::Size { bytes: 1500, expected: 8240 });
    assert_eq!(odd(512, 200, 9, Malformed::Length), What::Noise { odd: 128, of: 128 });
}

/// Another sender on the port of a detector that is right.
#[test]
fn the_datagrams_of_somebody_else_are_noise() {
    let format = TileFormat::jungfrau(1).unwrap();
    let mut seen = frames(&format, 128, 10);
    let eiger = HeaderFields { detector_type: 1, version: 2, packet_number: 0 };
    (0..140).for_each(|_| seen.on_malformed(4144, Some(eiger), Malformed::Length));
    assert_eq!(whats(&rules(1, Ports::Ordered), format, &[seen]), [What::Noise { odd: 140, of: 1420 }]);
}

/// Before the detector starts, a few datagrams of any kind may come.
#[test]
fn a_few_stray_datagrams_are_no_finding_before_the_end() {
    let format = TileFormat::jungfrau(1).unwrap();
    let ordered = rules(1, Ports::Ordered);
    let mut seen = Seen::default();
    let eiger = HeaderFields { detector_type: 1, version: 2, packet_number: 0 };
    (0..3).for_each(|_| seen.on_malformed(4144, Some(eiger), Malformed::Length));
    let mut early = Seen::default();
    (0..3).for_each(|n| early.on_foreign(5 + n));
    let look = Look {
        rules: &ordered,
        format: &format,
        detector_type: 3,
        version: 2,
        first_frame: Some(1000),
        seen: &[seen],
        since_first_ns: 0,
        has_ended: false,
    };
    assert_eq!(judge(&look), []);
    assert_eq!(judge(&Look { has_ended: true, ..look })[0].what, What::Type(1));
    (0..1000).for_each(|_| early.on_foreign(8));
    let what = |seen, has_ended| judge(&Look { seen: &[seen], has_ended, ..look }).first().map(|finding| finding.what);
    assert_eq!(what(early, false), None, "it may still count on to 1000");
    assert_eq!(what(early, true), Some(What::FirstFrame { low: 5, high: 8 }));
    (0..1000).for_each(|_| early.on_foreign(2000));
    assert_eq!(what(early, false), Some(What::FirstFrame { low: 5, high: 2000 }));
}

#[test]
fn a_stray_packet_owns_a_stream_until_a_tile_came_from_another_port() {
    let port = |module_id| Port { module_id, ..Port::default() };
    let mut seen = Seen::default();
    assert!(seen.is_own(port(9), 128));
    assert_eq!((0..1000).filter(|_| !seen.is_own(port(7), 128)).count(), 127);
    assert_eq!((seen.port, seen.other_port, seen.other_packets), (Some(port(7)), Some(port(9)), 1));
    // A port that has sent a tile keeps its stream, whatever other ports send.
    assert_eq!((0..100_000).filter(|_| seen.is_own(port(5), 128)).count(), 0);
    // Two ports that send equally: the first keeps the stream.
    let mut seen = Seen::default();
    assert_eq!((0..1000).filter(|n| seen.is_own(port(n % 2), 128)).count(), 500);
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
    // Nothing is expected of these tiles: detectors of one module all send the same header.
    let free = rules(1, Ports::Given(vec![[None; 3], [None; 3], [None, None, Some(7)]]));
    assert_eq!(whats(&free, format, &[at(0, 0), at(0, 0), at(0, 0)]), []);
    let twice = rules(1, Ports::Given(vec![[None, None, Some(7)]; 2]));
    assert_eq!(whats(&twice, format, &[at(0, 0), at(0, 0)]), [What::Twice { port: port(0, 0), other: 0 }]);
    let mut mixed = Seen { own_packets: 384, ..at(0, 0) };
    (0..200).for_each(|_| assert!(!mixed.is_own(port(5, 5), 128)));
    assert_eq!(whats(&ordered, format, &[mixed]), [What::TwoPorts { own: port(0, 0), other: port(5, 5) }]);
    let allowed = SetupRules { is_strict: false, ..grid };
    assert!(judged(&allowed, format, &[at(1, 0), at(0, 0)]).iter().all(|finding| !finding.is_wrong));
}

/// The ports of the real 9M capture and those of the simulator are in the same order: boards down a column, left before
/// right.
#[test]
fn ports_of_an_eiger_count_as_in_the_capture_of_a_9m() {
    let format = TileFormat::eiger(32).unwrap();
    let seen: Vec<Seen> = (0..72u16).map(|i| (i / 2, i % 2)).map(|(b, side)| at(b % 12, 2 * (b / 12) + side)).collect();
    assert_eq!(whats(&rules(4, Ports::Ordered), format, &seen), []);
    assert_eq!(whats(&rules(4, Ports::Grid { down: 6 }), format, &seen), []);
}

#[test]
fn frame_numbers_show_the_first_frame_a_restart_and_a_round_of_receivers() {
    let format = TileFormat::jungfrau(1).unwrap();
    let ordered = rules(1, Ports::Ordered);
    let mut seen = Seen::default();
    (0..640).for_each(|n| seen.on_foreign(5000 + n / 128));
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
    assert_eq!(whats(&ordered, format, &[many, Seen { received: 1, ..Seen::default() }]), [], "its copy is old");
    let seen = [few, Seen::default()];
    let look = Look {
        rules: &ordered,
        format: &format,
        detector_type: 3,
        version: 2,
        first_frame: None,
        seen: &seen,
        since_first_ns: 1_000_000,
        has_ended: true,
    };
    assert_eq!(judge(&Look { seen: &[many, Seen::default()], has_ended: false, ..look }), [], "it may begin a little later");
    assert_eq!(judge(&look).iter().map(|f| (f.stream, f.what)).collect::<Vec<_>>(), [(1, What::Silent)]);
    let none = [Seen::default(); 2];
    assert_eq!(judge(&Look { seen: &none, ..look }), [], "nothing came at all");
}

/// The finding appears from the third packet on. The run is wrong only if images may hold packets of both detectors.
#[test]
fn a_second_sender_is_named_and_wrong_only_where_images_may_hold_its_pixels() {
    let format = &TileFormat::jungfrau(1).unwrap();
    let sender = |port: u16| crate::sender::Sender::from(std::net::SocketAddr::from(([10, 0, 0, 1], port)));
    let mut seen = Seen { sender: Some(sender(1)), ..Seen::default() };
    let rules = rules(1, Ports::Unknown);
    let found = |seen: Seen| {
        let look = Look {
            rules: &rules,
            format,
            detector_type: 3,
            version: 2,
            first_frame: Some(1),
            seen: &[seen, seen],
            since_first_ns: 0,
            has_ended: false,
        };
        judge(&look)
    };
    for packets in 1..=4 {
        seen.other_senders.count(sender(2));
        let found = found(seen);
        assert_eq!(found.len(), usize::from(packets >= 3), "{packets}");
        if let Some(finding) = found.first() {
            let what = What::OtherSenders { own: Some(sender(1)), other: sender(2), packets, is_contested: false };
            assert_eq!(*finding, Finding { stream: 0, streams: 2, what, is_wrong: false });
        }
    }
    seen.is_contested = true;
    assert!(found(seen)[0].is_wrong);
}
