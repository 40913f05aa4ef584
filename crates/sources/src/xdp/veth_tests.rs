//! Real packets over a pair of virtual interfaces, each test in a network of its own. Where the process may not do
//! that, the tests say so and check nothing.

use super::made::{Layers, frame};
use super::sys::{self, Interface, PacketSocket};
use super::{Options, Ways, XdpReceiver, interface_of, open};
use crate::udp::UdpSender;
use konkordia_core::failure::Failure;
use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const INSIDE: &str = "KONKORDIA_TEST_INSIDE";
const PORT: u16 = 50_000;
/// Longest wait for what must come.
const LONG: Duration = Duration::from_secs(30);

/// Runs the calling test again in a network namespace of its own, through `prefix` (a program that changes rights, for
/// example), and then the scene in it.
fn in_own_network(prefix: &[&str], scene: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return scene();
    }
    if let Err(error) = sys::socket().and_then(|_| sys::create_map(sys::MapKind::Sockets, 4, 4, 1)) {
        println!("not tested: {error}; AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF");
        return;
    }
    if !Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|status| status.success()) {
        println!("not tested: `unshare -n` is not permitted");
        return;
    }
    let test = std::thread::current().name().unwrap().to_owned();
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.arg("-n").args(prefix).arg(me).args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Two interfaces with a cable between them: frames that are sent from `far` arrive at `near`, which has the addresses.
struct Cable(PacketSocket);

impl Cable {
    fn new(mtu: u32) -> Self {
        Self::with_queues(mtu, 1)
    }

    fn with_queues(mtu: u32, queues: u32) -> Self {
        let common = format!("mtu {mtu} numtxqueues {queues} numrxqueues {queues}");
        ip(&format!("link add far {common} type veth peer name near {common} address 02:00:00:00:00:01"));
        for name in ["far", "near"] {
            ip(&format!("link set {name} up"));
        }
        wait_for_cable();
        ip("address add 10.7.0.1/24 dev near");
        ip("address add fd07::1/64 dev near nodad");
        Self(PacketSocket::open(interface("far").index).unwrap())
    }

    fn send(&self, layers: &Layers, payload: &[u8]) {
        self.send_frame(&frame(layers, payload));
    }

    fn send_frame(&self, frame: &[u8]) {
        // The queue between the two interfaces may be full.
        for _ in 0..1000 {
            match self.0.send(frame) {
                Ok(()) => return,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the cable is full");
    }
}

/// The kernel notices a cable a little later than it is there, and drops what is sent before.
fn wait_for_cable() {
    let start = Instant::now();
    while ["far", "near"].iter().any(|name| !ip(&format!("link show {name}")).contains("state UP")) {
        assert!(start.elapsed() < LONG, "{}", ip("link show"));
        std::thread::sleep(Duration::from_millis(10));
    }
    // Waits for the lock under which the kernel notices it.
    ip("link set far txqueuelen 1000");
}

fn interface(name: &str) -> Interface {
    Interface::read(name, UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")).unwrap().as_fd()).unwrap()
}

fn options(ways: Ways) -> Options {
    Options { ways, buffer_bytes: 4 << 20, ..Options::default() }
}

/// Receives until `count` datagrams have come, at most for some seconds.
fn take(receiver: &mut XdpReceiver, count: usize) -> Vec<Vec<u8>> {
    let (start, mut got) = (Instant::now(), Vec::new());
    while got.len() < count && start.elapsed() < LONG {
        receiver.receive(Duration::from_millis(20), &mut |datagram, _| got.push(datagram.to_vec())).unwrap();
    }
    got
}

/// True if the receiver says twice that it is empty.
fn is_empty(receiver: &mut XdpReceiver) -> bool {
    (0..2).all(|_| receiver.receive(Duration::from_millis(50), &mut |_, _| {}).unwrap() == 0)
}

fn payload(bytes: usize, number: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 31 + n / 256 + number) as u8).collect()
}

#[test]
fn datagrams_of_every_length_come_whole_in_the_driver_and_in_the_stack() {
    in_own_network(&[], || {
        let cable = Cable::new(9000);
        for ways in [Ways::Native, Ways::Generic, Ways::Any] {
            let mut receiver = open("near", &[PORT], &options(ways)).unwrap().remove(0);
            assert_eq!(receiver.report().is_native, ways != Ways::Generic, "{:?}", receiver.report());
            assert!(!receiver.report().is_zero_copy);
            let lengths = [0, 1, 64, 1472, 3400, 3498, 3520, 3798, 3799, 3840, 4096, 7638, 7639, 8192, 8240, 8958];
            for round in 0..200 {
                let sent: Vec<_> = lengths.iter().map(|bytes| payload(*bytes, round)).collect();
                for (number, content) in sent.iter().enumerate() {
                    let tags = [vec![], vec![0x8100]][number % 2].clone();
                    cable.send(&Layers { tags, port: PORT, ..Layers::default() }, content);
                }
                assert_eq!(take(&mut receiver, sent.len()), sent, "{ways:?} round {round}");
            }
            assert_eq!(receiver.dropped(), 0, "{:?}", receiver.losses());
            let traffic = receiver.traffic().unwrap();
            assert_eq!((traffic.redirected, traffic.malformed, traffic.without_socket), (3200, 0, 0));
            assert!(is_empty(&mut receiver));
        }
    });
}

#[test]
fn other_traffic_reaches_the_kernel_and_bad_packets_are_counted() {
    in_own_network(&[], || {
        let cable = Cable::new(9000);
        for ways in [Ways::Native, Ways::Generic] {
            let mut options = options(ways);
            options.address = "::".parse().unwrap();
            let mut receiver = open("near", &[PORT], &options).unwrap().remove(0);
            let other = UdpSocket::bind("[::]:50001").unwrap();
            other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 9000];
            for ipv6 in [false, true] {
                let own = Layers { ipv6, port: PORT, ..Layers::default() };
                for bytes in [10, 8240] {
                    // To another port: the kernel gets it unchanged.
                    let content = payload(bytes, 3);
                    cable.send(&Layers { port: 50_001, ..own.clone() }, &content);
                    let (length, from) = other.recv_from(&mut buffer).unwrap();
                    assert_eq!((&buffer[..length], from.port()), (&content[..], 40_000));
                    // A wrong checksum: one datagram lost, and counted.
                    let before = receiver.dropped();
                    let mut wrong = frame(&own, &content);
                    *wrong.last_mut().unwrap() ^= 1;
                    cable.send_frame(&wrong);
                    cable.send(&own, &content);
                    assert_eq!(take(&mut receiver, 1), [content], "{ways:?} {ipv6}");
                    assert!(is_empty(&mut receiver));
                    assert_eq!(receiver.dropped(), before + 1, "{:?}", receiver.losses());
                }
            }
            assert_eq!(receiver.losses().wrong_checksum, 4);
            // A wrong checksum of the IPv4 header: the kernel drops it.
            let mut wrong = frame(&Layers { port: PORT, ..Layers::default() }, &[1; 500]);
            wrong[24] ^= 1;
            cable.send_frame(&wrong);
            assert!(is_empty(&mut receiver));
            assert_eq!(receiver.traffic().unwrap().malformed, 1);
            // Two fragments: the kernel joins them, and they come through the ordinary socket.
            let whole = payload(992, 5);
            for part in fragments(&frame(&Layers { port: PORT, ..Layers::default() }, &whole), 504) {
                cable.send_frame(&part);
            }
            assert_eq!(take(&mut receiver, 1), [whole]);
        }
    });
}

/// Divides the IPv4 packet of a frame without tags; the first part has `first_bytes` (a multiple of 8) of its payload.
fn fragments(frame: &[u8], first_bytes: usize) -> [Vec<u8>; 2] {
    let (head, content) = frame.split_at(34);
    [(0, &content[..first_bytes], 0x2000), (first_bytes, &content[first_bytes..], 0)].map(|(offset, part, more)| {
        let mut head = head.to_vec();
        head[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
        head[20..22].copy_from_slice(&((offset / 8) as u16 | more).to_be_bytes());
        head[24..26].fill(0);
        let sum: u32 = head[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        head[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        [&head, part].concat()
    })
}

#[test]
fn a_stream_that_nobody_reads_loses_only_its_own_datagrams_and_each_is_counted() {
    in_own_network(&[], || {
        let cable = Cable::new(9000);
        // Datagrams in one chunk and in three.
        for (ways, bytes, waiting) in
            [(Ways::Native, 8240, 85), (Ways::Native, 100, 256), (Ways::Generic, 8240, 85), (Ways::Generic, 100, 256)]
        {
            let ports = [PORT, PORT + 1, PORT + 7];
            let mut options = options(ways);
            options.buffer_bytes = 256 * 4096;
            let mut receivers = open("near", &ports, &options).unwrap();
            let sent = 6000;
            for number in 0..sent {
                for port in ports {
                    cable.send(&Layers { port, ..Layers::default() }, &payload(bytes, number + usize::from(port)));
                }
                for (receiver, port) in receivers.iter_mut().zip(ports).take(2) {
                    let expected = payload(bytes, number + usize::from(port));
                    assert_eq!(take(receiver, 1), [expected], "{ways:?} {port}, number {number}");
                }
            }
            let late = receivers[2].dropped();
            let rest = take(&mut receivers[2], sent - late as usize).len();
            assert_eq!((rest, late), (waiting, (sent - waiting) as u64), "{ways:?} {:?}", receivers[2].losses());
            assert_eq!(receivers[2].losses().ring_full, late);
            assert_eq!(receivers[0].dropped() + receivers[1].dropped(), 0);
            // It takes part again when it is read, and a stream that goes leaves the others alone.
            receivers.remove(0);
            for (receiver, port) in receivers.iter_mut().zip(&ports[1..]) {
                cable.send(&Layers { port: *port, ..Layers::default() }, &[9; 8240]);
                assert_eq!(take(receiver, 1), [[9; 8240]]);
            }
            cable.send(&Layers { port: PORT, ..Layers::default() }, &[9; 100]);
            assert!(receivers.iter_mut().all(is_empty));
            assert_eq!(receivers[0].traffic().unwrap().without_socket, 1);
        }
    });
}

/// The streams share the free chunks of the queue. The sender is never further ahead than the rings are long.
#[test]
fn streams_are_read_by_threads_of_their_own() {
    in_own_network(&[], || {
        const SENT: usize = 20_000;
        const AHEAD: usize = 100;
        let cable = Cable::new(9000);
        let ports: Vec<u16> = (0..4).map(|stream| PORT + stream).collect();
        let receivers = open("near", &ports, &options(Ways::Any)).unwrap();
        let length = |number: usize| [8240, 100, 3900, 4096][number % 4];
        let taken: Vec<AtomicUsize> = ports.iter().map(|_| AtomicUsize::new(0)).collect();
        let start = Instant::now();
        let is_late = || start.elapsed() > Duration::from_secs(120);
        std::thread::scope(|scope| {
            let read = |mut receiver: XdpReceiver, taken: &AtomicUsize| {
                let mut next = 0;
                while next < SENT && !is_late() {
                    let mut take = |datagram: &[u8], _: Sender| {
                        let (first, bytes) = (datagram[0], datagram.len());
                        assert_eq!((first, bytes), (next as u8, length(next)), "number {next}");
                        assert!(datagram.iter().all(|byte| *byte == first), "number {next} is of two datagrams");
                        next += 1;
                    };
                    receiver.receive(Duration::from_millis(2), &mut take).unwrap();
                    taken.store(next, Ordering::Relaxed);
                }
                (next, receiver.dropped())
            };
            let threads: Vec<_> =
                receivers.into_iter().zip(&taken).map(|(receiver, taken)| scope.spawn(move || read(receiver, taken))).collect();
            for number in 0..SENT {
                while taken.iter().any(|taken| taken.load(Ordering::Relaxed) + AHEAD < number) && !is_late() {
                    std::thread::sleep(Duration::from_micros(100));
                }
                for port in &ports {
                    cable.send(&Layers { port: *port, ..Layers::default() }, &vec![number as u8; length(number)]);
                }
            }
            for thread in threads {
                assert_eq!(thread.join().unwrap(), (SENT, 0));
            }
        });
    });
}

/// A sender on the same machine may send several datagrams as one frame; the kernel divides it.
#[test]
fn datagrams_that_the_kernel_has_joined_are_divided() {
    const SEND: &str = "KONKORDIA_TEST_SEND";
    in_own_network(&[], || {
        if std::env::var_os(SEND).is_some() {
            // In a further network, with the other end of the cable, when it has been put there.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            ip("address add 10.7.0.2/24 dev far");
            ip("link set far up");
            let start = Instant::now();
            while !ip("link show far").contains("state UP") && start.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(10));
            }
            let mut sender = UdpSender::connect(([10, 7, 0, 1], PORT).into()).unwrap();
            let all: Vec<u8> = (0..70).flat_map(|number| payload(8240, number)).collect();
            sender.send_segments(&all, 8240).unwrap();
            // The cable must stay until everything has arrived.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            return;
        }
        for (ways, is_joined) in [(Ways::Native, false), (Ways::Generic, true)] {
            let _cable = Cable::new(9000);
            let mut receiver = open("near", &[PORT], &options(ways)).unwrap().remove(0);
            let mut child = Command::new("unshare")
                .arg("-n")
                .arg(std::env::current_exe().unwrap())
                .args(std::env::args().skip(1))
                .env(SEND, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            // `unshare` makes the network before it becomes the test, which says nothing until it is told.
            let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
            let (start, pid) = (Instant::now(), child.id().to_string());
            while namespace(&pid) == namespace("self") && start.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(5));
            }
            ip(&format!("link set far netns {pid}"));
            let mut input = child.stdin.take().unwrap();
            input.write_all(b"\n").unwrap();
            let got = take(&mut receiver, 70);
            drop(input);
            assert!(child.wait().unwrap().success());
            // The network of the sender goes with it, and both ends of the cable, a little later.
            let start = Instant::now();
            while std::fs::read_to_string("/proc/self/net/dev").unwrap().contains("near:") && start.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(got, (0..70).map(|number| payload(8240, number)).collect::<Vec<_>>(), "{ways:?}");
            assert_eq!(receiver.traffic().unwrap().joined > 0, is_joined, "{:?}", receiver.traffic());
            assert_eq!(receiver.dropped(), 0);
        }
    });
}

#[test]
fn every_queue_is_read() {
    in_own_network(&[], || {
        let cable = Cable::with_queues(9000, 2);
        let ports: Vec<u16> = (0..8).map(|stream| PORT + stream).collect();
        for ways in [Ways::Native, Ways::Generic] {
            // Of how many streams the datagrams came by an ordinary socket, because their queue had no other.
            let mut ordinary = Vec::new();
            for queues in [None, Some(vec![0]), Some(vec![1])] {
                let mut receivers = open("near", &ports, &Options { queues, ..options(ways) }).unwrap();
                for (receiver, port) in receivers.iter_mut().zip(&ports) {
                    cable.send(&Layers { port: *port, ..Layers::default() }, &payload(8240, 1));
                    assert_eq!(take(receiver, 1), [payload(8240, 1)], "{ways:?} {port}");
                }
                let traffic = receivers[0].traffic().unwrap();
                assert_eq!(traffic.redirected + traffic.without_socket, 8, "{traffic:?}");
                ordinary.push(traffic.without_socket);
            }
            // The kernel spreads the ports over the queues.
            assert_eq!((ordinary[0], ordinary[1] + ordinary[2]), (0, 8), "{ways:?} {ordinary:?}");
            assert!(ways == Ways::Generic || ordinary[1] > 0 && ordinary[2] > 0, "{ordinary:?}");
        }
    });
}

#[test]
fn queues_without_a_socket_and_the_time_before_the_program_lose_nothing() {
    in_own_network(&[], || {
        let cable = Cable::new(9000);
        let mut options = options(Ways::Any);
        options.queues = Some(vec![]);
        let mut receiver = open("near", &[0], &options).unwrap().remove(0);
        let port = receiver.local_addr().unwrap().port();
        assert_ne!(port, 0);
        let content = payload(8240, 1);
        cable.send(&Layers { port, ..Layers::default() }, &content);
        assert_eq!(take(&mut receiver, 1), [content]);
        assert_eq!(receiver.traffic().unwrap().without_socket, 1);
    });
}

/// A thread of the stream that receives by itself gets the same.
#[test]
fn busy_polling_receives_the_same() {
    in_own_network(&[], || {
        let cable = Cable::new(9000);
        let options = Options { busy_poll_us: Some(20), ..options(Ways::Any) };
        let mut receiver = open("near", &[PORT], &options).unwrap().remove(0);
        for number in 0..100 {
            cable.send(&Layers { port: PORT, ..Layers::default() }, &payload(8240, number));
            assert_eq!(take(&mut receiver, 1), [payload(8240, number)]);
        }
        assert!(is_empty(&mut receiver));
        ip("link delete far");
        assert!(receiver.receive(Duration::from_millis(5), &mut |_, _| {}).is_err());
    });
}

#[test]
fn an_mtu_that_changes_and_an_interface_that_goes_are_survived() {
    in_own_network(&[], || {
        for ways in [Ways::Native, Ways::Generic] {
            let cable = Cable::new(1500);
            let mut receiver = open("near", &[PORT], &options(ways)).unwrap().remove(0);
            let exchange = |receiver: &mut XdpReceiver, bytes| {
                cable.send(&Layers { port: PORT, ..Layers::default() }, &payload(bytes, 2));
                assert_eq!(take(receiver, 1), [payload(bytes, 2)], "{ways:?} {bytes}");
            };
            exchange(&mut receiver, 1400);
            for name in ["far", "near"] {
                ip(&format!("link set {name} mtu 9000"));
            }
            // The ring has chunks for the MTU as it was; longer datagrams come through the ordinary socket.
            exchange(&mut receiver, 8240);
            assert_eq!(receiver.traffic().unwrap().joined, 1);
            ip("link set near down");
            assert!(is_empty(&mut receiver));
            ip("link set near up");
            wait_for_cable();
            exchange(&mut receiver, 8240);
            ip("link delete far");
            for _ in 0..2 {
                let error = receiver.receive(Duration::from_millis(50), &mut |_, _| {}).unwrap_err().to_string();
                assert!(error.contains("interface near is gone"), "{error}");
            }
            assert_eq!(receiver.dropped(), 0);
        }
    });
}

fn refused(interface: &str, ports: &[u16], options: &Options) -> Failure {
    open(interface, ports, options).map(|_| ()).unwrap_err()
}

#[test]
fn what_cannot_be_opened_says_why() {
    in_own_network(&[], || {
        let any = options(Ways::Any);
        assert!(open("nothing", &[], &any).unwrap().is_empty());
        assert!(refused("nothing", &[PORT], &any).fix.contains("ip link"));
        assert!(refused("a name that is far too long", &[PORT], &any).fix.contains("ip link"));
        ip("link set lo up");
        assert!(refused("lo", &[PORT], &any).fix.contains("Ethernet"));
        let _cable = Cable::new(9000);
        for (address, name) in
            [("10.7.0.1", Some("near")), ("fd07::1", Some("near")), ("127.0.0.1", Some("lo")), ("0.0.0.0", None)]
        {
            assert_eq!(interface_of(address.parse().unwrap()).unwrap().as_deref(), name, "{address}");
        }
        let queue = Options { queues: Some(vec![5]), ..any.clone() };
        assert!(refused("near", &[PORT], &queue).what.contains("no queue 5"));
        ip("link set near down");
        let down = refused("near", &[PORT], &any);
        assert!(down.fix.contains("ip link set near up"), "{down:?}");
        ip("link set near up");
        let first = open("near", &[PORT], &any).unwrap();
        let port = refused("near", &[PORT], &any);
        assert!(port.what.contains("50000") && port.fix.contains("ss -ulpn"), "{port:?}");
        let busy = refused("near", &[PORT + 1], &any);
        assert!(busy.fix.contains("another program"), "{busy:?}");
        let attached = refused("near", &[PORT + 1], &Options { queues: Some(vec![]), ..any.clone() });
        assert!(attached.fix.contains("detach it first"), "{attached:?}");
        drop(first);
        drop(open("near", &[PORT], &any).unwrap());
    });
}

#[test]
fn the_program_is_detached_when_receivers_go_and_when_the_process_is_killed() {
    const HOLD: &str = "KONKORDIA_TEST_HOLD";
    in_own_network(&[], || {
        if std::env::var_os(HOLD).is_some() {
            let _receivers = open("near", &[PORT], &options(Ways::Any)).unwrap();
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        let _cable = Cable::new(9000);
        let has_program = || ip("link show near").contains("xdp");
        assert!(!has_program());
        let receivers = open("near", &[PORT, PORT + 1], &options(Ways::Any)).unwrap();
        assert!(has_program());
        drop(receivers);
        assert!(!has_program());
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(std::env::args().skip(1))
            .env(HOLD, "1")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let until = |wanted: bool| {
            let start = Instant::now();
            while has_program() != wanted && start.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(10));
            }
            has_program() == wanted
        };
        let attached = until(true);
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(attached && until(false));
    });
}

/// The rights that the documentation names are enough.
#[test]
fn four_rights_are_enough() {
    const RIGHTS: &str = "-all,+net_raw,+net_admin,+bpf,+ipc_lock";
    in_own_network(&["setpriv", "--bounding-set", RIGHTS, "--inh-caps", "-all"], || {
        let cable = Cable::new(9000);
        let mut receiver = open("near", &[PORT], &options(Ways::Any)).unwrap().remove(0);
        cable.send(&Layers { port: PORT, ..Layers::default() }, &[5; 8240]);
        assert_eq!(take(&mut receiver, 1), [[5; 8240]]);
    });
}

#[test]
fn without_rights_the_error_names_them() {
    in_own_network(&["setpriv", "--bounding-set", "-all,+net_raw,+net_admin"], || {
        let _cable = Cable::new(9000);
        let failure = refused("near", &[PORT], &options(Ways::Any));
        assert!(failure.fix.contains("setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock=ep"), "{failure:?}");
    });
}

#[test]
fn a_limit_of_locked_memory_is_named() {
    let prefix = ["prlimit", "--memlock=1048576", "setpriv", "--bounding-set", "-ipc_lock"];
    in_own_network(&prefix, || {
        let _cable = Cable::new(9000);
        let failure = refused("near", &[PORT], &options(Ways::Any));
        assert!(failure.fix.contains("ulimit -l") && failure.fix.contains("cap_ipc_lock"), "{failure:?}");
    });
}
