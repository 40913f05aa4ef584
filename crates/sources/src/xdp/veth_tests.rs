//! Real packets over a pair of virtual interfaces, each test in a network of its own. Where the process may not do
//! that, the tests count as skipped.

use super::sys;
use super::{Losses, NoSockets, Options, Ways, XdpReceiver, open};
use crate::frame::Refused;
use crate::frames::{ethernet, fragments, frame, ip, udp};
use crate::place::{V4, V6, addresses, is_inside, play, put_up, set, wait_for, wire_with};
use crate::skip;
use crate::sys::interfaces;
use crate::udp::UdpSender;
use crate::wire::Wire;
use konkordia_core::failure::Failure;
use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PORT: u16 = 50_000;
/// Longest wait for what must come.
const LONG: Duration = Duration::from_secs(30);

/// As [`play`], where this process has the rights that AF_XDP needs.
fn in_own_network<S: FnOnce()>(before: &[&str], scene: S) {
    if !is_inside()
        && let Err(error) = sys::socket().and_then(|_| sys::create_map(sys::MapKind::Sockets, 4, 4, 1))
    {
        return skip::skipped(&format!("{error}; AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"));
    }
    play(before, scene);
}

/// The addresses of streams on the card.
fn to(ports: &[u16]) -> Vec<SocketAddr> {
    ports.iter().map(|port| SocketAddr::new(addresses(V4).1.ip(), *port)).collect()
}

/// Sends a datagram to a port of the card.
fn send(wire: &Wire, port: u16, payload: &[u8]) {
    wire.send(&frame(addresses(V4).0, to(&[port])[0], payload)).unwrap();
}

fn options(ways: Ways) -> Options {
    Options { ways, buffer_bytes: 4 << 20, ..Options::default() }
}

fn open_one(options: &Options) -> XdpReceiver {
    open(&to(&[PORT]), options).unwrap().remove(0)
}

/// What was lost up to now.
fn losses(receiver: &mut XdpReceiver) -> Losses {
    receiver.dropped();
    *receiver.losses().lock().unwrap()
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
        let cable = wire_with(9000, 1);
        let (from, to) = (addresses(V4).0, to(&[PORT])[0]);
        for ways in [Ways::Native, Ways::Generic, Ways::Any] {
            let mut receiver = open_one(&options(ways));
            assert_eq!(receiver.report().is_native, ways != Ways::Generic, "{:?}", receiver.report());
            assert!(!receiver.report().is_zero_copy);
            let lengths = [0, 1, 64, 1472, 3400, 3498, 3520, 3798, 3799, 3840, 4096, 7638, 7639, 8192, 8240, 8958];
            for round in 0..200 {
                let sent: Vec<_> = lengths.iter().map(|bytes| payload(*bytes, round)).collect();
                for (number, content) in sent.iter().enumerate() {
                    // A tag that gives a priority.
                    let tags: &[u16] = if number % 2 == 0 { &[] } else { &[0xe000] };
                    cable.send(&ethernet(tags, &ip(from.ip(), to.ip(), 17, &udp(from, to, content)))).unwrap();
                }
                assert_eq!(take(&mut receiver, sent.len()), sent, "{ways:?} round {round}");
            }
            assert_eq!(receiver.dropped(), 0, "{:?}", receiver.losses());
            let traffic = receiver.traffic().unwrap();
            assert_eq!((traffic.redirected, traffic.without_socket), (3200, 0));
            assert!(is_empty(&mut receiver));
        }
    });
}

#[test]
fn other_traffic_reaches_the_kernel_and_bad_packets_are_counted() {
    in_own_network(&[], || {
        let cable = wire_with(9000, 1);
        for (ways, texts) in [(Ways::Native, V4), (Ways::Native, V6), (Ways::Generic, V4), (Ways::Generic, V6)] {
            let (from, to) = addresses(texts);
            let mut receiver = open(&[to], &options(ways)).unwrap().remove(0);
            let other_to = SocketAddr::new(to.ip(), to.port() + 1);
            let other = UdpSocket::bind(other_to).unwrap();
            other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 9000];
            for (n, bytes) in (1..).zip([100, 8240]) {
                // To another port: the kernel gets it unchanged.
                let content = payload(bytes, 3);
                cable.send(&frame(from, other_to, &content)).unwrap();
                let (length, sender) = other.recv_from(&mut buffer).unwrap();
                assert_eq!((&buffer[..length], sender), (&content[..], from));
                // A wrong checksum: one datagram refused, and counted.
                let mut wrong = frame(from, to, &content);
                *wrong.last_mut().unwrap() ^= 1;
                cable.send(&wrong).unwrap();
                cable.send(&frame(from, to, &content)).unwrap();
                assert_eq!(take(&mut receiver, 1), [content], "{ways:?} {to}");
                assert!(is_empty(&mut receiver));
                assert_eq!((receiver.refusals().of(Refused::Checksum), receiver.dropped()), (n, 0));
            }
            // A wrong length.
            let mut wrong = frame(from, to, &[1; 500]);
            let length_at = wrong.len() - 504;
            wrong[length_at] = 0xff;
            cable.send(&wrong).unwrap();
            assert!(is_empty(&mut receiver));
            assert_eq!(receiver.refusals().of(Refused::Length), 1);
            // Fragments: the kernel joins them, and they come through the ordinary socket.
            let whole = payload(992, 5);
            for part in fragments(from, to, &whole, 600, 1) {
                cable.send(&part).unwrap();
            }
            assert_eq!(take(&mut receiver, 1), [whole]);
            assert_eq!(receiver.dropped(), 0, "{:?}", receiver.losses());
        }
    });
}

#[test]
fn a_stream_that_nobody_reads_loses_only_its_own_datagrams_and_each_is_counted() {
    in_own_network(&[], || {
        let cable = wire_with(9000, 1);
        // Datagrams in one chunk and in three.
        for (ways, bytes, waiting) in
            [(Ways::Native, 8240, 85), (Ways::Native, 100, 256), (Ways::Generic, 8240, 85), (Ways::Generic, 100, 256)]
        {
            let ports = [PORT, PORT + 1, PORT + 7];
            let mut options = options(ways);
            options.buffer_bytes = 256 * 4096;
            let mut receivers = open(&to(&ports), &options).unwrap();
            let sent = 6000;
            for number in 0..sent {
                for port in ports {
                    send(&cable, port, &payload(bytes, number + usize::from(port)));
                }
                for (receiver, port) in receivers.iter_mut().zip(ports).take(2) {
                    let expected = payload(bytes, number + usize::from(port));
                    assert_eq!(take(receiver, 1), [expected], "{ways:?} {port}, number {number}");
                }
            }
            let late = receivers[2].dropped();
            let rest = take(&mut receivers[2], sent - late as usize).len();
            let lost = losses(&mut receivers[2]);
            assert_eq!((rest, late), (waiting, (sent - waiting) as u64), "{ways:?} {lost:?}");
            assert_eq!(lost.ring_full, late);
            assert_eq!(receivers[0].dropped() + receivers[1].dropped(), 0);
            // It takes part again when it is read, and a stream that goes leaves the others alone.
            receivers.remove(0);
            for (receiver, port) in receivers.iter_mut().zip(&ports[1..]) {
                send(&cable, *port, &[9; 8240]);
                assert_eq!(take(receiver, 1), [[9; 8240]]);
            }
            send(&cable, PORT, &[9; 100]);
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
        let cable = wire_with(9000, 1);
        let ports: Vec<u16> = (0..4).map(|stream| PORT + stream).collect();
        let receivers = open(&to(&ports), &options(Ways::Any)).unwrap();
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
                    send(&cable, *port, &vec![number as u8; length(number)]);
                }
            }
            for thread in threads {
                assert_eq!(thread.join().unwrap(), (SENT, 0));
            }
        });
    });
}

/// Waits until the other end of the cable refuses datagrams to a port of nobody. Until the link is up and the address
/// of that end is known, the kernel keeps a few datagrams and drops the others.
fn wait_for_answer(nobody: SocketAddr) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket.connect(nobody).unwrap();
    let refused = |result: io::Result<usize>| result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    let start = Instant::now();
    while !refused(socket.send(b"ready?")) && !refused(socket.recv(&mut [0; 8])) {
        assert!(start.elapsed() < LONG, "the cable does not get ready");
    }
}

/// A sender on the same machine may send several datagrams as one frame; the kernel divides it.
#[test]
fn datagrams_that_the_kernel_has_joined_are_divided() {
    const SEND: &str = "KONKORDIA_TEST_SEND";
    in_own_network(&[], || {
        if std::env::var_os(SEND).is_some() {
            // In a further network, with the other end of the cable, when it has been put there.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            set("address add 10.7.0.1/24 dev det");
            set("link set det up");
            wait_for_answer(SocketAddr::new(addresses(V4).1.ip(), 9009));
            let mut sender = UdpSender::connect(to(&[PORT])[0]).unwrap();
            let all: Vec<u8> = (0..70).flat_map(|number| payload(8240, number)).collect();
            sender.send_segments(&all, 8240).unwrap();
            // The cable must stay until everything has arrived.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            return;
        }
        for (ways, is_joined) in [(Ways::Native, false), (Ways::Generic, true)] {
            let _cable = wire_with(9000, 1);
            let mut receiver = open_one(&options(ways));
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
            set(&format!("link set det netns {pid}"));
            let mut input = child.stdin.take().unwrap();
            input.write_all(b"\n").unwrap();
            let got = take(&mut receiver, 70);
            drop(input);
            assert!(child.wait().unwrap().success());
            // The network of the sender goes with it, and both ends of the cable, a little later.
            let start = Instant::now();
            while std::fs::read_to_string("/proc/self/net/dev").unwrap().contains("card:") && start.elapsed() < LONG {
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
        let cable = wire_with(9000, 2);
        let ports: Vec<u16> = (0..8).map(|stream| PORT + stream).collect();
        for ways in [Ways::Native, Ways::Generic] {
            // Of how many streams the datagrams came by an ordinary socket, because their queue had no other.
            let mut ordinary = Vec::new();
            for queues in [None, Some(vec![0]), Some(vec![1])] {
                let mut receivers = open(&to(&ports), &Options { queues, ..options(ways) }).unwrap();
                for (receiver, port) in receivers.iter_mut().zip(&ports) {
                    send(&cable, *port, &payload(8240, 1));
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
        let cable = wire_with(9000, 1);
        let mut options = options(Ways::Any);
        options.queues = Some(vec![]);
        let mut receiver = open(&to(&[0]), &options).unwrap().remove(0);
        let port = receiver.local_addr().port();
        assert_ne!(port, 0);
        let content = payload(8240, 1);
        send(&cable, port, &content);
        assert_eq!(take(&mut receiver, 1), [content]);
        assert_eq!(receiver.traffic().unwrap().without_socket, 1);
    });
}

/// A thread of the stream that receives by itself gets the same.
#[test]
fn busy_polling_receives_the_same() {
    in_own_network(&[], || {
        let cable = wire_with(9000, 1);
        let mut receiver = open_one(&Options { busy_poll_us: Some(20), ..options(Ways::Any) });
        for number in 0..100 {
            send(&cable, PORT, &payload(8240, number));
            assert_eq!(take(&mut receiver, 1), [payload(8240, number)]);
        }
        assert!(is_empty(&mut receiver));
        set("link delete det");
        assert!(receiver.receive(Duration::from_millis(5), &mut |_, _| {}).is_err());
    });
}

#[test]
fn an_mtu_that_changes_and_an_interface_that_goes_are_survived() {
    in_own_network(&[], || {
        for ways in [Ways::Native, Ways::Generic] {
            let cable = wire_with(1500, 1);
            let mut receiver = open_one(&options(ways));
            let exchange = |receiver: &mut XdpReceiver, bytes| {
                send(&cable, PORT, &payload(bytes, 2));
                assert_eq!(take(receiver, 1), [payload(bytes, 2)], "{ways:?} {bytes}");
            };
            exchange(&mut receiver, 1400);
            for name in ["det", "card"] {
                set(&format!("link set {name} mtu 9000"));
            }
            // The ring has chunks for the MTU as it was; longer datagrams come through the ordinary socket.
            exchange(&mut receiver, 8240);
            assert_eq!(receiver.traffic().unwrap().joined, 1);
            set("link set card down");
            assert!(is_empty(&mut receiver));
            set("link set card up");
            wait_for(&cable, V4);
            exchange(&mut receiver, 8240);
            set("link delete det");
            for _ in 0..2 {
                let error = receiver.receive(Duration::from_millis(50), &mut |_, _| {}).unwrap_err().to_string();
                assert!(error.contains("interface card is gone"), "{error}");
            }
            assert_eq!(receiver.dropped(), 0);
        }
    });
}

fn refused(ports: &[u16], options: &Options) -> Failure {
    match open(&to(ports), options) {
        Err(NoSockets::Refused(failure)) => failure,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    in_own_network(&[], || {
        let any = options(Ways::Any);
        assert!(open(&[], &any).is_ok_and(|receivers| receivers.is_empty()));
        let _cable = wire_with(9000, 1);
        for (address, name) in [("10.7.0.2", "card"), ("fd07::2", "card"), ("127.0.0.1", "lo")] {
            assert_eq!(interfaces::with_address(address.parse().unwrap()).unwrap().name, name);
        }
        for (address, why) in [("0.0.0.0:0", "stands for all of them"), ("10.9.9.9:0", "no network card")] {
            let error = open(&[address.parse().unwrap()], &any).err();
            assert!(matches!(&error, Some(NoSockets::NoInterface(said)) if said.contains(why)), "{error:?}");
        }
        let loopback = open(&["127.0.0.1:0".parse().unwrap()], &any).err();
        assert!(matches!(&loopback, Some(NoSockets::Refused(failure)) if failure.fix.contains("Ethernet")), "{loopback:?}");
        let queue = Options { queues: Some(vec![5]), ..any.clone() };
        assert!(refused(&[PORT], &queue).what.contains("no queue 5"));
        set("link set card down");
        let down = refused(&[PORT], &any);
        assert!(down.fix.contains("ip link set card up"), "{down:?}");
        set("link set card up");
        let first = open(&to(&[PORT]), &any).unwrap();
        let port = open(&to(&[PORT + 1, PORT]), &any).err();
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        assert!(matches!(&port, Some(NoSockets::Port(1, error)) if is_taken(error)), "{port:?}");
        let busy = refused(&[PORT + 1], &any);
        assert!(busy.fix.contains("another program"), "{busy:?}");
        let attached = refused(&[PORT + 1], &Options { queues: Some(vec![]), ..any.clone() });
        assert!(attached.fix.contains("detach it first"), "{attached:?}");
        drop(first);
        drop(open_one(&any));
    });
}

#[test]
fn the_program_is_detached_when_receivers_go_and_when_the_process_is_killed() {
    const HOLD: &str = "KONKORDIA_TEST_HOLD";
    in_own_network(&[], || {
        if std::env::var_os(HOLD).is_some() {
            let _receiver = open_one(&options(Ways::Any));
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        let _cable = wire_with(9000, 1);
        let has_program = || set("link show card").contains("xdp");
        assert!(!has_program());
        let receivers = open(&to(&[PORT, PORT + 1]), &options(Ways::Any)).unwrap();
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
        let cable = wire_with(9000, 1);
        let mut receiver = open_one(&options(Ways::Any));
        send(&cable, PORT, &[5; 8240]);
        assert_eq!(take(&mut receiver, 1), [[5; 8240]]);
    });
}

#[test]
fn without_rights_the_error_names_them() {
    in_own_network(&["setpriv", "--bounding-set", "-all,+net_raw,+net_admin"], || {
        put_up(9000, 1);
        let failure = refused(&[PORT], &options(Ways::Any));
        assert!(failure.why.contains("CAP_BPF"), "{failure:?}");
        assert!(failure.fix.contains("setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep"), "{failure:?}");
    });
}

#[test]
fn a_limit_of_locked_memory_is_named() {
    let prefix = ["prlimit", "--memlock=1048576", "setpriv", "--bounding-set", "-ipc_lock"];
    in_own_network(&prefix, || {
        put_up(9000, 1);
        let failure = refused(&[PORT], &options(Ways::Any));
        assert!(failure.fix.contains("ulimit -l") && failure.fix.contains("cap_ipc_lock"), "{failure:?}");
    });
}
