use super::super::made::{Layers, frame};
use super::super::sys::{self, MapKind};
use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn filter(address: IpAddr, ports: &[u16]) -> Filter {
    Filter { mac: MAC, address, ports: ports.to_vec(), frame_bytes_max: 1522 }
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
        let sockets = match sys::create_map(MapKind::Sockets, 4, 4, filter.ports.len() as u32) {
            Ok(map) => map,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                println!("not tested: this process has no right to load XDP programs (CAP_BPF, CAP_NET_ADMIN)");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let counters = sys::create_map(MapKind::PerCpuArray, 4, 8, COUNTERS as u32).unwrap();
        let maps = MapFds { sockets: sockets.as_raw_fd(), counters: counters.as_raw_fd() };
        let program = sys::load_program(&program(filter, maps)).unwrap_or_else(|(error, log)| panic!("{error}\n{log}"));
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
    for address in ["0.0.0.0", "10.7.0.1", "::", "fd07::1"] {
        let made = program(&filter(address.parse().unwrap(), &[50_000, 50_001, 60_000]), MapFds { sockets: 3, counters: 4 });
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
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, last));
    let addresses = [
        (IpAddr::V4(Ipv4Addr::UNSPECIFIED), true, false),
        (IpAddr::V4(Ipv4Addr::new(10, 7, 0, 1)), true, false),
        (IpAddr::V4(Ipv4Addr::new(10, 7, 0, 9)), false, false),
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), true, true),
        (v6(1), false, true),
        (v6(9), false, false),
    ];
    for (address, takes_ipv4, takes_ipv6) in addresses {
        let Some(loaded) = Loaded::load(&filter(address, &[50_000, 50_001, 60_000])) else { return };
        for tags in [vec![], vec![0x8100], vec![0x88a8], vec![0x88a8, 0x8100]] {
            for (port, is_own) in [(49_999, false), (50_000, true), (50_001, true), (50_002, false), (60_000, true)] {
                for (ipv6, is_taken) in [(false, takes_ipv4), (true, takes_ipv6)] {
                    let layers = Layers { tags: tags.clone(), ipv6, port, ..Layers::default() };
                    let expected = if is_own && is_taken { TAKEN } else { PASSED };
                    for bytes in [0, 1, 100, 1400] {
                        assert_eq!(loaded.run(&frame(&layers, &vec![7; bytes])), expected, "{address} {layers:?} {bytes}");
                    }
                }
            }
        }
    }
}

#[test]
fn frames_to_others_pass_and_groups_are_taken() {
    let Some(loaded) = Loaded::load(&filter(IpAddr::V4(Ipv4Addr::UNSPECIFIED), &[50_000])) else { return };
    let to = |to| frame(&Layers { to, ..Layers::default() }, &[1; 64]);
    assert_eq!(loaded.run(&to(MAC)), TAKEN);
    assert_eq!(loaded.run(&to([2, 0, 0, 0, 0, 7])), PASSED);
    assert_eq!(loaded.run(&to([2, 0, 0, 9, 0, 1])), PASSED);
    assert_eq!(loaded.run(&to([0xff; 6])), TAKEN);
    assert_eq!(loaded.run(&to([1, 0, 0x5e, 7, 0, 1])), TAKEN);
}

#[test]
fn what_is_not_a_whole_datagram_goes_to_the_kernel() {
    let Some(loaded) = Loaded::load(&filter(IpAddr::V4(Ipv4Addr::UNSPECIFIED), &[50_000])) else { return };
    let good = frame(&Layers::default(), &[1; 200]);
    /// Sets bytes, and makes the checksum of the IPv4 header right again.
    fn changed(good: &[u8], at: usize, values: &[u8]) -> Vec<u8> {
        let mut made = good.to_vec();
        made[at..at + values.len()].copy_from_slice(values);
        made[24..26].fill(0);
        let sum: u32 = made[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        made[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
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
    assert_eq!(loaded.run(&wrong), MALFORMED, "checksum of the header");
    assert_eq!(loaded.run(&changed(&good, 34 + 4, &[0, 7])), MALFORMED, "UDP length below its header");
    assert_eq!(loaded.run(&changed(&good, 34 + 4, &[0, 209])), MALFORMED, "UDP longer than IP");
    assert_eq!(loaded.run(&changed(&good, 34 + 4, &[0, 100])), TAKEN, "UDP shorter than IP");
    assert_eq!(loaded.run(&changed(&good, 14 + 2, &[0, 229])), MALFORMED, "IP longer than the frame");
    assert_eq!(loaded.run(&changed(&good, 14 + 2, &[0, 19])), MALFORMED, "IP shorter than its header");
    assert_eq!(loaded.run(&good[..41]), PASSED, "no UDP header");
    assert_eq!(loaded.run(&good[..14]), PASSED, "Ethernet only");
    assert_eq!(loaded.run(&good[..200]), MALFORMED, "cut");
    assert_eq!(loaded.run(&frame(&Layers::default(), &[1; 1480])), TAKEN, "the longest frame");
    assert_eq!(loaded.run(&frame(&Layers::default(), &[1; 1481])), JOINED, "longer than a frame can be");
    let mut padded = frame(&Layers::default(), &[1]);
    padded.resize(60, 0);
    assert_eq!(loaded.run(&padded), TAKEN, "padding");
}
