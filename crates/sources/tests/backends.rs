//! Every receive backend hands over the same datagrams with the same senders, keeps the rules of `Source`, and says
//! what it refuses. A backend that `konkordia_core::backend::Backend` lists is tested without further lines here.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/place.rs"]
mod place;
#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "common/wire.rs"]
mod wire;

use frames::{DETECTOR, ethernet, fragments, frame, ip, seal_ipv4, udp};
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::sender::Sender;
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};
use konkordia_sim::reference::{Reference, RunLayout};
use konkordia_sim::rng::Rng;
use konkordia_sources::backend::{self, Stream};
use konkordia_sources::frame::Refused;
use konkordia_sources::shared_port::SharedPort;
use konkordia_sources::udp::UdpSender;
use place::{V4, V6, addresses, play, put_up, set, wire, wire_of_all_processors};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use wire::Wire;

/// Ends the datagrams of a scene.
const END: &[u8] = b"this is the end";
/// Longer than any wait of a scene takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const BUFFER_BYTES: usize = 4 << 20;

type Received = Vec<(Vec<u8>, Sender)>;

/// The backends that this machine allows, each with an open stream per address; the others count as skipped.
fn each(to: &[SocketAddr], buffer_bytes: usize, scene: impl FnMut(Backend, Vec<Stream>)) {
    each_of(&Backend::ALL, to, buffer_bytes, scene);
}

/// As [`each`], with some of the backends.
fn each_of(backends: &[Backend], to: &[SocketAddr], buffer_bytes: usize, mut scene: impl FnMut(Backend, Vec<Stream>)) {
    for &backend in backends {
        match backend::open(Receive::Only(backend), to, buffer_bytes) {
            Ok(opened) => scene(backend, opened.streams),
            Err(failure) if backend == Backend::Socket => panic!("{failure}"),
            Err(failure) => skip::skipped(&format!("{}: {}", backend.name(), failure.why)),
        }
    }
}

/// True where fragments come through a socket, for which the kernel joins them.
fn joins_fragments(backend: Backend) -> bool {
    matches!(backend, Backend::Socket | Backend::Xdp)
}

/// Takes what is there; true if the end was among it.
fn drain(stream: &mut Stream, into: &mut Received) -> bool {
    let mut has_ended = false;
    let mut take = |bytes: &[u8], from| {
        has_ended |= bytes == END;
        into.push((bytes.to_vec(), from));
    };
    while stream.source.receive(Duration::ZERO, &mut take).unwrap() > 0 {}
    has_ended
}

/// Takes everything, and waits for the end, which is sent now. Fragments may come behind it: they have a way of their
/// own.
fn finish(wire: &Wire, (from, to): (SocketAddr, SocketAddr), stream: &mut Stream, mut into: Received) -> Received {
    wire.send(&frame(from, to, END)).unwrap();
    let begun = Instant::now();
    drain(stream, &mut into);
    loop {
        if let Some(end) = into.iter().rposition(|datagram| datagram.0 == END) {
            into.remove(end);
            return into;
        }
        assert!(begun.elapsed() < PATIENCE, "the end never came");
        let before = into.len();
        let said = stream.source.receive(Duration::from_millis(1), &mut |bytes, from| into.push((bytes.to_vec(), from)));
        assert_eq!(said.unwrap(), into.len() - before, "0 means that nothing was handed over");
        drain(stream, &mut into);
    }
}

fn refused(stream: &Stream, why: Refused) -> u64 {
    stream.refusals.as_ref().map_or(0, |refusals| refusals.of(why))
}

/// The kind of noise that has a wrong checksum.
const DAMAGED: usize = 4;

/// Frames that are not for the streams, or must not be used. None of them may come out.
fn noise(n: usize, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let packet = ip(from.ip(), to.ip(), 17, &udp(from, to, payload));
    let mut damaged = packet.clone();
    match n % 8 {
        0 => frame(from, SocketAddr::new(to.ip(), 1 + to.port() % 1000), payload),
        1 => frame(from, SocketAddr::new(if to.is_ipv4() { "10.7.0.9" } else { "fd07::9" }.parse().unwrap(), to.port()), payload),
        2 => ethernet(&[], &ip(from.ip(), to.ip(), 6, &udp(from, to, payload))),
        3 => ethernet(&[5], &packet),
        DAMAGED => {
            *damaged.last_mut().unwrap() ^= 0x10;
            ethernet(&[], &damaged)
        }
        5 => {
            // More bytes than there are.
            let at = if to.is_ipv4() { 24 } else { 44 };
            damaged[at..at + 2].copy_from_slice(&u16::MAX.to_be_bytes());
            ethernet(&[], &damaged)
        }
        6 => {
            // To another machine: this one has no such hardware address.
            let mut frame = ethernet(&[], &packet);
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
            frame
        }
        _ => {
            // ARP, which asks for nobody.
            let mut frame = [&[0xFF; 6][..], &DETECTOR, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
            frame.resize(60, 0);
            frame
        }
    }
}

/// What a detector of two streams sends through a link with all faults, in order: stream, sender, bytes.
fn detector(seed: u64) -> (RunLayout, Vec<(usize, bool, Vec<u8>)>) {
    let images = 3;
    let packetiser = Packetiser::new(&PacketModel::new(DetectorKind::Jungfrau { interfaces: 2 }, 1)).unwrap();
    let layout = packetiser.layout();
    let mut link = FaultLink::new(&FaultModel {
        seed,
        loss: 0.02,
        burst: 0.002,
        duplicate: 0.03,
        reorder: 0.05,
        corrupt_header: 0.01,
        corrupt_payload: 0.01,
        truncate: 0.02,
        foreign: 0.03,
        other_sender: 0.02,
        ..FaultModel::default()
    });
    let (mut rng, mut sent) = (Rng::new(seed), Vec::new());
    let mut deliver = |d: Datagram<'_>| sent.push((d.stream, d.is_other_sender, d.bytes.to_vec()));
    let mut out = vec![0; layout.datagram_bytes()];
    for image in 0..images {
        let tiles: Vec<Vec<u8>> =
            (0..layout.streams).map(|_| (0..layout.tile_bytes).map(|_| rng.next_u64() as u8).collect()).collect();
        for packet in 0..layout.packets_per_tile {
            for (stream, tile) in tiles.iter().enumerate() {
                let length = packetiser.write_packet(stream, packetiser.frame_number(image), packet, tile, &mut out);
                link.push(Datagram { stream, bytes: &out[..length], is_other_sender: false }, &mut deliver);
            }
        }
    }
    link.flush(&mut deliver);
    (RunLayout::stacked(&packetiser, images), sent)
}

#[test]
fn every_backend_hands_over_the_same_datagrams_ledger_and_words() {
    play(&[], || {
        let wire = wire();
        for (round, texts) in [V4, V6].into_iter().enumerate() {
            let (from, first) = addresses(texts);
            let (layout, sent) = detector(7 + round as u64);
            let ports = |stream: usize| SocketAddr::new(first.ip(), first.port() + stream as u16);
            let senders = |stream: usize, is_other: bool| {
                SocketAddr::new(from.ip(), from.port() + stream as u16 + 100 * u16::from(is_other))
            };
            let to: Vec<SocketAddr> = (0..layout.stream.streams).map(ports).collect();
            let mut expected = vec![Received::new(); to.len()];
            let mut reference = Reference::new(layout.clone());
            for (stream, is_other, bytes) in &sent {
                expected[*stream].push((bytes.clone(), senders(*stream, *is_other).into()));
            }
            expected.iter().enumerate().for_each(|(stream, all)| all.iter().for_each(|d| _ = reference.receive(stream, &d.0)));
            assert!(reference.image_ledger().packets_missing > 0 && reference.packet_ledger().duplicate > 0);
            each(&to, BUFFER_BYTES, |backend, mut streams| {
                let mut got = vec![Received::new(); to.len()];
                for (n, (stream, is_other, bytes)) in sent.iter().enumerate() {
                    let (from, to) = (senders(*stream, *is_other), to[*stream]);
                    wire.send(&frame(from, to, bytes)).unwrap();
                    wire.send(&noise(n, from, to, bytes)).unwrap();
                    if n % 37 == 0 {
                        streams.iter_mut().zip(&mut got).for_each(|(stream, got)| _ = drain(stream, got));
                    }
                }
                let mut own = Reference::new(layout.clone());
                for (n, (stream, got)) in streams.iter_mut().zip(got).enumerate() {
                    let got = finish(&wire, (from, to[n]), stream, got);
                    assert_eq!(got.len(), expected[n].len(), "{} stream {n}", backend.name());
                    assert!(got == expected[n], "{} stream {n}: other bytes or senders", backend.name());
                    // The kernel counts datagrams with wrong checksums among those that a socket drops.
                    let damaged = sent.iter().enumerate().filter(|(at, d)| at % 8 == DAMAGED && d.0 == n).count() as u64;
                    let dropped = if backend == Backend::Socket { damaged } else { 0 };
                    assert_eq!(stream.source.dropped(), dropped, "{}", backend.name());
                    got.iter().for_each(|datagram| _ = own.receive(n, &datagram.0));
                }
                assert_eq!(own.packet_ledger(), reference.packet_ledger(), "{}", backend.name());
                assert_eq!(own.image_ledger(), reference.image_ledger(), "{}", backend.name());
                for image in 0..layout.images {
                    assert!(own.words(image) == reference.words(image), "{} image {image}", backend.name());
                }
            });
        }
    });
}

/// Each stream gets the datagrams of its number, and the first one also those of nobody and those that are too short
/// for one. Rings lend the IP packet.
#[test]
fn streams_that_share_a_port_are_told_apart_by_their_number() {
    play(&[], || {
        let wire = wire();
        let shared = SharedPort { end_byte: 8, first: 0xFF_FFFD };
        for texts in [V4, V6] {
            let (from, to) = addresses(texts);
            for backend in Backend::ALL {
                let mut opened = match backend::open_shared(Receive::Only(backend), shared, to, 3, BUFFER_BYTES) {
                    Ok(opened) => opened,
                    Err(failure) if backend == Backend::Socket => panic!("{failure}"),
                    Err(failure) => {
                        skip::skipped(&format!("{}: {}", backend.name(), failure.why));
                        continue;
                    }
                };
                assert_eq!((opened.receiving.backend, opened.streams.len()), (backend, 3));
                assert!(opened.streams.iter().all(|stream| stream.address == to));
                let mut expected = vec![Received::new(); 3];
                let lent = |datagram: &[u8]| match backend {
                    Backend::Socket => datagram.to_vec(),
                    _ => ip(from.ip(), to.ip(), 17, &udp(from, to, datagram)),
                };
                let mut send = |stream: usize, datagram: &[u8]| {
                    wire.send(&frame(from, to, datagram)).unwrap();
                    expected[stream].push((lent(datagram), from.into()));
                };
                for n in 0..60_u32 {
                    let number = shared.first + n % 3;
                    // Some in one buffer of AF_XDP, some in several; the last of each stream is the end.
                    let head = [&[0xEE; 5][..], &number.to_be_bytes()[1..]].concat();
                    send(n as usize % 3, &[head, vec![n as u8; [1, 4000, 8200][n as usize / 3 % 3]]].concat());
                    if backend != Backend::Socket && n % 20 == 0 {
                        send(0, &[&[0xEE; 4][..], &(shared.first - 1 - n).to_be_bytes(), &[3; 50]].concat());
                        send(0, &[9; 7][..n as usize % 8]);
                    }
                }
                for (n, stream) in opened.streams.iter_mut().enumerate() {
                    let (begun, mut got) = (Instant::now(), Received::new());
                    while got.len() < expected[n].len() {
                        assert!(begun.elapsed() < PATIENCE, "{} stream {n}: {} datagrams", backend.name(), got.len());
                        let mut take = |bytes: &[u8], from| got.push((bytes.to_vec(), from));
                        stream.source.receive(Duration::from_millis(5), &mut take).unwrap();
                    }
                    assert!(got == expected[n], "{} stream {n}: other bytes or senders", backend.name());
                    assert_eq!(stream.source.receive(Duration::ZERO, &mut |_, _| ()).unwrap(), 0);
                    assert_eq!(stream.source.dropped(), 0);
                }
                assert_eq!(opened.receiving.refused(), []);
                // What comes in fragments has no number in most of them; no stream gets it twice.
                let whole = [&[0xEE; 5][..], &(shared.first + 1).to_be_bytes()[1..], &[7; 3000]].concat();
                fragments(from, to, &whole, 1500, 1).iter().for_each(|part| wire.send(part).unwrap());
                let (begun, mut got) = (Instant::now(), 0);
                let why = if backend == Backend::Xdp { Refused::Headerless } else { Refused::Fragment };
                while got == 0 && opened.receiving.refused() != [(why, 1)] {
                    assert!(begun.elapsed() < PATIENCE, "{}: {:?}", backend.name(), opened.receiving.refused());
                    for stream in &mut opened.streams {
                        got += stream.source.receive(Duration::from_millis(5), &mut |_, _| ()).unwrap();
                    }
                }
                assert_eq!(got, usize::from(backend == Backend::Socket));
            }
        }
    });
}

#[test]
fn fragments_are_joined_or_counted() {
    play(&[], || {
        let wire = wire();
        for texts in [V4, V6] {
            let (from, to) = addresses(texts);
            each(&[to], BUFFER_BYTES, |backend, mut streams| {
                for n in 0..20u8 {
                    for part in fragments(from, to, &vec![n; 8240], 1500, n.into()) {
                        wire.send(&part).unwrap();
                    }
                    wire.send(&frame(from, to, &[n])).unwrap();
                }
                let got = finish(&wire, (from, to), &mut streams[0], Received::new());
                let whole: Vec<u8> = got.iter().filter(|d| d.0.len() == 1).map(|d| d.0[0]).collect();
                assert_eq!(whole, (0..20).collect::<Vec<_>>(), "{}", backend.name());
                let joined = got.iter().filter(|d| d.0.len() == 8240 && d.0.iter().all(|byte| *byte == d.0[0])).count() as u64;
                let counted = refused(&streams[0], Refused::Fragment);
                assert_eq!((joined, counted), if joins_fragments(backend) { (20, 0) } else { (0, 20) }, "{}", backend.name());
                assert_eq!((got.len() as u64, streams[0].source.dropped()), (20 + joined, 0), "{}", backend.name());
            });
        }
    });
}

/// On one machine the kernel does not divide what a program sends with GSO. AF_XDP cannot open loopback; its own tests
/// have this scene with a wire (`xdp/veth_tests.rs`).
#[test]
fn joined_datagrams_are_divided_or_counted() {
    play(&[], || {
        set("link set lo up");
        let to: SocketAddr = "127.0.0.1:50010".parse().unwrap();
        each_of(&[Backend::Socket, Backend::Packet], &[to], BUFFER_BYTES, |backend, mut streams| {
            let mut sender = UdpSender::connect(to).unwrap();
            let (datagrams, in_one) = (40usize, 65507 / 8240);
            let bytes: Vec<u8> = (0..datagrams).flat_map(|n| [n as u8; 8240]).collect();
            sender.send_segments(&bytes, 8240).unwrap();
            sender.send(END).unwrap();
            let (begun, mut got) = (Instant::now(), Received::new());
            while !drain(&mut streams[0], &mut got) {
                assert!(begun.elapsed() < PATIENCE, "{}: the end never came", backend.name());
            }
            got.pop();
            let joined = refused(&streams[0], Refused::Joined);
            match backend == Backend::Socket {
                true => assert!(got.iter().map(|d| &d.0[..]).eq(bytes.chunks(8240)) && joined == 0, "{}", backend.name()),
                false => assert_eq!((got.len(), joined), (0, datagrams.div_ceil(in_one) as u64), "{}", backend.name()),
            }
        });
    });
}

/// A datagram in a frame with the tags of these VLANs.
fn tagged(vlans: &[u16], (from, to): (SocketAddr, SocketAddr), payload: &[u8]) -> Vec<u8> {
    ethernet(vlans, &ip(from.ip(), to.ip(), 17, &udp(from, to, payload)))
}

#[test]
fn a_tag_that_gives_a_priority_is_ignored_and_vlans_that_are_not_here_too() {
    play(&[], || {
        let wire = wire();
        let (from, to) = addresses(V4);
        each(&[to], BUFFER_BYTES, |backend, mut streams| {
            for (tags, payload) in [(&[0xA000][..], b"priority"), (&[6], b"vlan six"), (&[7], b"vlan 7..")] {
                wire.send(&tagged(tags, (from, to), payload)).unwrap();
            }
            let got = finish(&wire, (from, to), &mut streams[0], Received::new());
            assert_eq!(got, [(b"priority".to_vec(), Sender::from(from))], "{}", backend.name());
        });
    });
}

#[test]
fn datagrams_of_a_vlan_come_through_its_interface() {
    play(&[], || {
        let wire = wire();
        if let Err(why) = place::ip("link add link card name card.5 type vlan id 5") {
            return skip::skipped(&format!("no interface of a VLAN: {}", why.trim()));
        }
        set("address add 10.7.5.2/24 dev card.5");
        set("link set card.5 up");
        let ends: (SocketAddr, SocketAddr) = ("10.7.5.1:32410".parse().unwrap(), "10.7.5.2:50010".parse().unwrap());
        each(&[ends.1], BUFFER_BYTES, |backend, mut streams| {
            let (begun, mut got) = (Instant::now(), Received::new());
            // The interface is not ready at once.
            while !drain(&mut streams[0], &mut got) {
                assert!(begun.elapsed() < PATIENCE, "{}: nothing comes through the VLAN", backend.name());
                wire.send(&tagged(&[5], ends, END)).unwrap();
            }
            assert!(got.iter().all(|datagram| *datagram == (END.to_vec(), Sender::from(ends.0))), "{}", backend.name());
        });
    });
}

#[test]
fn wrong_checksums_are_refused_and_counted() {
    play(&[], || {
        let wire = wire();
        let (from, to) = addresses(V4);
        each(&[to], BUFFER_BYTES, |backend, mut streams| {
            for n in 0..10u8 {
                let mut packet = ip(from.ip(), to.ip(), 17, &udp(from, to, &[n; 100]));
                packet[40 + usize::from(n)] ^= 1;
                wire.send(&ethernet(&[], &packet)).unwrap();
                packet = ip(from.ip(), to.ip(), 17, &udp(from, to, &[n; 100]));
                packet[10] ^= 1;
                wire.send(&ethernet(&[], &packet)).unwrap();
                // No checksum at all.
                packet[26..28].fill(0);
                seal_ipv4(&mut packet, 20);
                wire.send(&ethernet(&[], &packet)).unwrap();
            }
            let got = finish(&wire, (from, to), &mut streams[0], Received::new());
            let expected: Received = (0..10).map(|n| (vec![n; 100], from.into())).collect();
            assert!(got == expected, "{}: {} datagrams", backend.name(), got.len());
            assert!(streams[0].refusals.is_none() || refused(&streams[0], Refused::Checksum) == 20, "{}", backend.name());
        });
    });
}

#[test]
fn a_changed_mtu_is_survived() {
    play(&[], || {
        let wire = wire();
        let (from, to) = addresses(V4);
        each(&[to], BUFFER_BYTES, |backend, mut streams| {
            let mut got = Received::new();
            for (n, mtu) in [9000, 1500, 9000, 9200].into_iter().enumerate() {
                set(&format!("link set card mtu {mtu}"));
                for payload in [vec![n as u8; 8240], vec![n as u8; 1000]] {
                    // The wire drops frames that are too long for its other end, and may say so.
                    let _ = wire.try_send(&frame(from, to, &payload));
                }
                drain(&mut streams[0], &mut got);
            }
            let got = finish(&wire, (from, to), &mut streams[0], got);
            let lengths: Vec<(u8, usize)> = got.iter().map(|d| (d.0[0], d.0.len())).collect();
            let expected = [(0, 8240), (0, 1000), (1, 1000), (2, 8240), (2, 1000), (3, 8240), (3, 1000)];
            assert_eq!(lengths, expected, "{}", backend.name());
            set("link set card mtu 9000");
        });
    });
}

#[test]
fn an_interface_may_go_down_and_come_back_and_if_it_is_removed_that_is_said() {
    play(&[], || {
        let (from, to) = addresses(V4);
        for backend in Backend::ALL {
            let mut wire = wire();
            let Ok(mut opened) = backend::open(Receive::Only(backend), &[to], BUFFER_BYTES) else {
                set("link delete det");
                continue;
            };
            let stream = &mut opened.streams[0];
            wire.send(&frame(from, to, b"before")).unwrap();
            assert_eq!(finish(&wire, (from, to), stream, Received::new()).len(), 1);
            set("link set card down");
            for _ in 0..5 {
                assert_eq!(stream.source.receive(Duration::from_millis(2), &mut |_, _| ()).unwrap(), 0, "{}", backend.name());
            }
            set("link set card up");
            // The wire is not ready at once.
            let (begun, mut got) = (Instant::now(), Received::new());
            while !drain(stream, &mut got) {
                assert!(begun.elapsed() < PATIENCE, "{}: nothing comes after the interface was down", backend.name());
                wire = Wire::open("det").unwrap();
                let _ = wire.try_send(&frame(from, to, END));
                std::thread::sleep(Duration::from_millis(5));
            }
            set("link delete det");
            let mut said: io::Result<usize> = Ok(0);
            for _ in 0..50 {
                said = stream.source.receive(Duration::from_millis(2), &mut |_, _| ());
                if said.as_ref().is_ok_and(|count| *count == 0) {
                    continue;
                }
                break;
            }
            match said {
                // A socket waits for another card with its address.
                Ok(count) => assert!(count == 0 && backend == Backend::Socket, "{}", backend.name()),
                Err(error) => assert!(error.to_string().contains("card is gone"), "{}: {error}", backend.name()),
            }
        }
    });
}

#[test]
fn a_source_that_was_read_until_it_was_empty_says_so_although_the_next_datagram_follows() {
    play(&[], || {
        let wire = wire();
        let (from, to) = addresses(V4);
        each(&[to], BUFFER_BYTES, |backend, mut streams| {
            let source = &mut streams[0].source;
            for n in 0..200u8 {
                wire.send(&frame(from, to, &[n])).unwrap();
                let begun = Instant::now();
                let mut got = Vec::new();
                while source.receive(Duration::ZERO, &mut |bytes, _| got.push(bytes.to_vec())).unwrap() == 0 {
                    assert!(begun.elapsed() < PATIENCE, "{}: a datagram did not come", backend.name());
                }
                assert_eq!(got, [[n]], "{}", backend.name());
                // Nothing is left, and nothing is said to be left.
                let said = source.receive(Duration::ZERO, &mut |_, _| panic!("a second datagram")).unwrap();
                assert_eq!(said, 0, "{}", backend.name());
            }
        });
    });
}

#[test]
fn a_wait_ends_with_a_datagram_or_its_time() {
    play(&[], || {
        let wire = wire();
        let (from, to) = addresses(V4);
        each(&[to], BUFFER_BYTES, |backend, mut streams| {
            let source = &mut streams[0].source;
            let (begun, wait) = (Instant::now(), Duration::from_millis(30));
            assert_eq!(source.receive(wait, &mut |_, _| ()).unwrap(), 0);
            assert!(begun.elapsed() >= wait, "{}: it did not wait", backend.name());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    wire.send(&frame(from, to, b"late")).unwrap();
                });
                // Empty when the call began, so this is 0 although a datagram ends the wait.
                assert_eq!(source.receive(PATIENCE * 2, &mut |_, _| ()).unwrap(), 0, "{}", backend.name());
            });
            assert!(begun.elapsed() < PATIENCE, "{}: the datagram did not end the wait", backend.name());
            let mut got = Vec::new();
            while source.receive(wait, &mut |bytes, _| got.push(bytes.to_vec())).unwrap() == 0 {}
            assert_eq!(got, [b"late"], "{}", backend.name());
        });
    });
}

#[test]
fn what_finds_no_room_is_counted_exactly_and_reception_goes_on() {
    play(&[], || {
        let wire = wire();
        let (from, to) = addresses(V4);
        each(&[to], 1 << 20, |backend, mut streams| {
            let (mut dropped, sent) = (0, 1000);
            for _ in 0..2 {
                for n in 0..sent {
                    wire.send(&frame(from, to, &vec![n as u8; 8240])).unwrap();
                }
                let (begun, mut got) = (Instant::now(), Received::new());
                // The last ones may still be on their way.
                while got.len() as u64 + streams[0].source.dropped() < dropped + sent {
                    drain(&mut streams[0], &mut got);
                    assert!(begun.elapsed() < PATIENCE, "{}: {} came", backend.name(), got.len());
                }
                dropped = streams[0].source.dropped();
                assert!((50..sent as usize).contains(&got.len()), "{}: {}", backend.name(), got.len());
                assert!(got.iter().all(|d| d.0.len() == 8240 && d.0.iter().all(|byte| *byte == d.0[0])));
                assert!(finish(&wire, (from, to), &mut streams[0], Received::new()).is_empty());
            }
        });
    });
}

#[test]
fn what_several_processors_send_at_once_comes_or_is_counted() {
    play(&[], || {
        let _wire = wire_of_all_processors();
        let (from, to) = addresses(V4);
        each(&[to], BUFFER_BYTES, |backend, mut streams| {
            const OF_EACH: u64 = 5000;
            let source = &mut streams[0].source;
            let mut got = Vec::new();
            std::thread::scope(|scope| {
                for first in [0, OF_EACH] {
                    scope.spawn(move || {
                        let wire = Wire::open("det").unwrap();
                        for number in first..first + OF_EACH {
                            wire.send(&frame(from, to, &number.to_le_bytes())).unwrap();
                        }
                    });
                }
                let begun = Instant::now();
                while got.len() as u64 + source.dropped() < 2 * OF_EACH {
                    let mut take = |bytes: &[u8], _| got.push(u64::from_le_bytes(bytes.try_into().unwrap()));
                    source.receive(Duration::from_millis(2), &mut take).unwrap();
                    assert!(begun.elapsed() < PATIENCE, "{}: {} came", backend.name(), got.len());
                }
            });
            let (all, dropped) = (got.len() as u64, source.dropped());
            got.sort_unstable();
            got.dedup();
            assert_eq!((got.len() as u64, all + dropped), (all, 2 * OF_EACH), "{}", backend.name());
            assert!(got.last().is_some_and(|last| *last < 2 * OF_EACH));
        });
    });
}

#[test]
fn a_port_stays_taken_while_its_stream_is_open_and_nobody_is_told_that_it_is_closed() {
    play(&[], || {
        let wire = wire();
        let (from, to) = addresses(V4);
        for round in 0..2 {
            // The second round binds what the first has closed.
            each(&[to], BUFFER_BYTES, |backend, mut streams| {
                let before = no_ports();
                wire.send(&frame(from, to, b"data")).unwrap();
                assert_eq!(finish(&wire, (from, to), &mut streams[0], Received::new()).len(), 1, "{} {round}", backend.name());
                assert_eq!(no_ports(), before, "{}", backend.name());
                assert_eq!(waiting_bytes(to.port()), 0, "{}: its datagrams are kept a second time", backend.name());
                let error = UdpSocket::bind(to).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{}", backend.name());
            });
        }
    });
}

/// Datagrams to ports of this namespace on which nobody listens.
fn no_ports() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names.split_whitespace().zip(values.split_whitespace()).find(|(name, _)| *name == "NoPorts");
    found.unwrap().1.parse().unwrap()
}

/// Bytes that wait in the UDP socket of a port.
fn waiting_bytes(port: u16) -> u64 {
    let text = std::fs::read_to_string("/proc/net/udp").unwrap();
    let local = format!(":{port:04X}");
    let of_port = |line: &&str| line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&local));
    let line = text.lines().skip(1).find(of_port).unwrap();
    let queues = line.split_whitespace().nth(4).unwrap();
    u64::from_str_radix(queues.split(':').nth(1).unwrap(), 16).unwrap()
}

#[test]
fn without_the_right_a_named_backend_is_refused_and_auto_goes_on() {
    play(&["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"], || {
        put_up(9000, 1);
        let (_, to) = addresses(V4);
        for backend in [Backend::Packet, Backend::Xdp] {
            let failure = backend::open(Receive::Only(backend), &[to], BUFFER_BYTES).err().unwrap();
            assert!(failure.why.contains("CAP_NET_RAW") && failure.fix.contains("sudo setcap"), "{failure}");
            assert!(failure.fix.contains("receive = \"socket\""), "{failure}");
        }
        let opened = backend::open(Receive::Auto, &[to], BUFFER_BYTES).unwrap();
        assert_eq!(opened.streams[0].address, to);
    });
}

/// What remains when a run fails to open or ends must not stand in the way of the next one, nor of other programs.
#[test]
fn nothing_stays_behind_when_streams_cannot_be_opened_or_are_closed() {
    play(&[], || {
        let _wire = wire();
        let (_, to) = addresses(V4);
        let second = SocketAddr::new(to.ip(), to.port() + 1);
        let programs = || set("-details link show card").matches("xdp").count();
        let before = programs();
        each(&[to, second], BUFFER_BYTES, |backend, streams| {
            // The second port is taken, so the first one must be free again.
            let third = SocketAddr::new(to.ip(), to.port() + 2);
            let failure = backend::open(Receive::Only(backend), &[third, second], BUFFER_BYTES).err().unwrap();
            assert!(failure.what.contains("(stream 1)") && failure.fix.contains("ss -ulpn"), "{failure}");
            drop(UdpSocket::bind(third).unwrap());
            drop(streams);
            assert_eq!(programs(), before, "{}", backend.name());
            drop([to, second].map(|address| UdpSocket::bind(address).unwrap()));
        });
    });
}
