use super::super::sys::{self, MapKind};
use super::*;
use crate::frames::{RECEIVER, ethernet, frame, ip, seal_ipv4, udp};
use crate::skip;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Sender and receiver, without their ports.
const V4: [&str; 2] = ["10.7.0.1", "10.7.0.2"];
const V6: [&str; 2] = ["fd07::1", "fd07::2"];

fn ends(texts: [&str; 2], port: u16) -> (SocketAddr, SocketAddr) {
    (SocketAddr::new(texts[0].parse().unwrap(), 40_000), SocketAddr::new(texts[1].parse().unwrap(), port))
}

fn filter(address: &str, ports: &[u16]) -> Filter {
    Filter { mac: RECEIVER, address: address.parse().unwrap(), streams: Streams::Ports(ports.to_vec()), frame_bytes_max: 1522 }
}

/// The program in the kernel, with its counters.
struct Loaded {
    program: OwnedFd,
    counters: OwnedFd,
    _sockets: OwnedFd,
}

impl Loaded {
    /// `None` if this process may not load programs.
    fn load(filter: &Filter) -> Option<Self> {
        let sockets = match sys::create_map(MapKind::Sockets, 4, 4, filter.streams.count() as u32) {
            Ok(map) => map,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                skip::skipped("this process has no right to load XDP programs (CAP_BPF, CAP_NET_ADMIN)");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let counters = sys::create_map(MapKind::PerCpuArray, 4, 8, COUNTERS as u32).unwrap();
        let maps = MapFds { sockets: sockets.as_raw_fd(), counters: counters.as_raw_fd() };
        let program = sys::load_program(&program(filter, maps, None)).unwrap_or_else(|(error, log)| panic!("{error}\n{log}"));
        Some(Self { program, counters, _sockets: sockets })
    }

    /// Runs it on a frame; every frame goes to the kernel, because no socket is in the map. Returns the counter that
    /// went up.
    fn run(&self, frame: &[u8]) -> usize {
        let read = || (0..COUNTERS).map(|n| sys::sum_over_cpus(self.counters.as_fd(), n as u32).unwrap()).collect::<Vec<_>>();
        let before = read();
        assert_eq!(sys::test_run(self.program.as_fd(), frame).unwrap(), XDP_PASS as u32);
        let after = read();
        let changed: Vec<usize> = (0..COUNTERS).filter(|n| after[*n] != before[*n]).collect();
        assert_eq!(changed.len(), 1, "one frame, one counter");
        assert_eq!(after[changed[0]], before[changed[0]] + 1);
        changed[0]
    }
}

/// What the filter takes for a stream: here there is no socket.
const TAKEN: usize = WITHOUT_SOCKET;

#[test]
fn programs_are_short_and_end() {
    for address in ["10.7.0.1", "fd07::1"] {
        let made = program(&filter(address, &[50_000, 50_001, 60_000]), MapFds { sockets: 3, counters: 4 }, None);
        println!("{address}: {} instructions", made.len());
        assert!((80..200).contains(&made.len()), "{address}: {} instructions", made.len());
        assert_eq!(made.last().unwrap().code, 0x95);
    }
}

#[test]
fn consecutive_ports_are_one_comparison() {
    assert_eq!(sequences(&[50_000, 50_001, 50_002]), [(50_000, 0, 3)]);
    assert_eq!(sequences(&[7, 9, 10, 8]), [(7, 0, 1), (9, 1, 2), (8, 3, 1)]);
    assert_eq!(sequences(&[65_535, 0]), [(65_535, 0, 1), (0, 1, 1)]);
}

#[test]
fn the_kernel_takes_the_program_and_it_finds_the_detectors_datagrams() {
    for (address, of) in [("10.7.0.2", Some(V4)), ("10.7.0.9", None), ("fd07::2", Some(V6)), ("fd07::9", None)] {
        let Some(loaded) = Loaded::load(&filter(address, &[50_000, 50_001, 60_000])) else { return };
        let untagged: &[u16] = &[];
        for tags in [untagged, &[0x8100], &[0x88a8], &[0x88a8, 0x8100]] {
            for (port, is_own) in [(49_999, false), (50_000, true), (50_001, true), (50_002, false), (60_000, true)] {
                for texts in [V4, V6] {
                    let (from, to) = ends(texts, port);
                    let expected = if is_own && of == Some(texts) { TAKEN } else { PASSED };
                    for bytes in [0, 1, 100, 1400] {
                        let packet = ip(from.ip(), to.ip(), 17, &udp(from, to, &vec![7; bytes]));
                        assert_eq!(loaded.run(&tagged(tags, 0xe000, &packet)), expected, "{address} {to} {tags:x?} {bytes}");
                    }
                }
            }
        }
    }
}

/// A frame with tags of these EtherTypes, all with the same number and priority.
fn tagged(types: &[u16], tag: u16, packet: &[u8]) -> Vec<u8> {
    let mut made = ethernet(&vec![tag; types.len()], packet);
    for (n, kind) in types.iter().enumerate() {
        made[12 + 4 * n..14 + 4 * n].copy_from_slice(&kind.to_be_bytes());
    }
    made
}

#[test]
fn frames_to_others_and_of_vlans_pass_and_groups_are_taken() {
    let Some(loaded) = Loaded::load(&filter("10.7.0.2", &[50_000])) else { return };
    let (from, own) = ends(V4, 50_000);
    let to = |to: [u8; 6]| [&to[..], &frame(from, own, &[1; 64])[6..]].concat();
    assert_eq!(loaded.run(&to(RECEIVER)), TAKEN);
    assert_eq!(loaded.run(&to([2, 0, 0, 0, 0, 7])), PASSED);
    assert_eq!(loaded.run(&to([2, 0, 0, 9, 0, 2])), PASSED);
    assert_eq!(loaded.run(&to([0xff; 6])), TAKEN);
    assert_eq!(loaded.run(&to([1, 0, 0x5e, 7, 0, 1])), TAKEN);
    let packet = ip(from.ip(), own.ip(), 17, &udp(from, own, &[1; 64]));
    for (tags, expected) in [(&[0xe000][..], TAKEN), (&[5], PASSED), (&[0, 0x0100], PASSED), (&[0, 0], TAKEN)] {
        assert_eq!(loaded.run(&ethernet(tags, &packet)), expected, "{tags:x?}");
    }
}

/// The kernel takes the program, which takes what is for any of the streams. Which one, the suite of all backends
/// shows.
#[test]
fn among_streams_that_share_a_port_the_number_decides() {
    let shared = SharedPort { end_byte: 8, first: 0xFF_FFFD };
    for (texts, address) in [(V4, "10.7.0.2"), (V6, "fd07::2")] {
        let streams = Streams::Numbers(4791, shared, 3);
        let Some(loaded) = Loaded::load(&Filter { streams, ..filter(address, &[]) }) else { return };
        let (from, to) = ends(texts, 4791);
        let numbered = |number: u32| [&[0xEE; 5][..], &number.to_be_bytes()[1..], &[1; 20]].concat();
        let datagrams = [0xFF_FFFD, 0xFF_FFFE, 0xFF_FFFF, 0xFF_FFFC, 0, 700].map(numbered);
        for datagram in datagrams.iter().map(Vec::as_slice).chain((0..9).map(|bytes| &datagrams[0][..bytes])) {
            assert_eq!(loaded.run(&frame(from, to, datagram)), TAKEN, "{to} {datagram:?}");
        }
        let elsewhere = SocketAddr::new(to.ip(), 4792);
        assert_eq!(loaded.run(&frame(from, elsewhere, &datagrams[0])), PASSED);
    }
}

#[test]
fn what_is_no_single_datagram_goes_to_the_kernel_and_what_is_wrong_to_the_reader() {
    let Some(loaded) = Loaded::load(&filter("10.7.0.2", &[50_000])) else { return };
    let (from, to) = ends(V4, 50_000);
    let good = frame(from, to, &[1; 200]);
    /// Sets bytes, and makes the checksum of the IPv4 header right again.
    fn changed(good: &[u8], at: usize, values: &[u8]) -> Vec<u8> {
        let mut made = good.to_vec();
        made[at..at + values.len()].copy_from_slice(values);
        seal_ipv4(&mut made[14..], 20);
        made
    }
    assert_eq!(loaded.run(&changed(&good, 0, &[])), TAKEN);
    assert_eq!(loaded.run(&changed(&good, 14 + 6, &[0x40, 0])), TAKEN, "don't fragment");
    assert_eq!(loaded.run(&changed(&good, 14 + 6, &[0x20, 0])), PASSED, "first fragment");
    assert_eq!(loaded.run(&changed(&good, 14 + 6, &[0, 1])), PASSED, "last fragment");
    assert_eq!(loaded.run(&changed(&good, 14, &[0x46])), PASSED, "IP options");
    assert_eq!(loaded.run(&changed(&good, 14 + 9, &[6])), PASSED, "TCP");
    assert_eq!(loaded.run(&changed(&good, 12, &[0x08, 0x06])), PASSED, "ARP");
    let mut wrong = good.clone();
    wrong[24] ^= 1;
    assert_eq!(loaded.run(&wrong), TAKEN, "checksum of the header");
    assert_eq!(loaded.run(&changed(&good, 34 + 4, &[0, 209])), TAKEN, "UDP longer than IP");
    assert_eq!(loaded.run(&good[..41]), PASSED, "no UDP header");
    assert_eq!(loaded.run(&good[..14]), PASSED, "Ethernet only");
    assert_eq!(loaded.run(&good[..200]), TAKEN, "cut");
    assert_eq!(loaded.run(&frame(from, to, &[1; 1480])), TAKEN, "the longest frame");
    assert_eq!(loaded.run(&frame(from, to, &[1; 1481])), JOINED, "longer than a frame can be");
    assert_eq!(loaded.run(&frame(from, to, &[1])), TAKEN, "padding");
}
