use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn open(spec: ZmqSourceSpec) -> (Context, ZmqSource) {
    let context = context(1).unwrap();
    let source = ZmqSource::open(&context, &spec).unwrap();
    (context, source)
}

fn listening(kind: ZmqKind) -> ZmqSourceSpec {
    ZmqSourceSpec { bind: true, kind, ..ZmqSourceSpec::pull("tcp://127.0.0.1:*") }
}

fn sender(context: &Context, kind: ::zmq::SocketType, source: &ZmqSource) -> ::zmq::Socket {
    let socket = context.socket(kind).unwrap();
    socket.set_linger(0).unwrap();
    socket.set_sndtimeo(5000).unwrap();
    socket.connect(&source.name()).unwrap();
    socket
}

/// Receives until `count` messages are there, 10 s at most.
fn take(source: &mut ZmqSource, count: usize) -> Vec<Message> {
    let (mut all, end) = (Vec::new(), Instant::now() + 10 * SECOND);
    while all.len() < count && Instant::now() < end {
        source.receive(Duration::from_millis(50), count - all.len(), &mut all).unwrap();
    }
    all
}

fn take_now(source: &mut ZmqSource) -> usize {
    let mut all = Vec::new();
    source.receive(Duration::from_millis(5), 100, &mut all).unwrap();
    all.len()
}

/// The library is that of `patches/zeromq-src`, not the one that the bindings ask for.
#[test]
fn the_library_is_the_patched_one() {
    assert!(::zmq::version() >= (4, 3, 5), "{:?}", ::zmq::version());
}

#[test]
fn messages_of_every_size_come_whole_and_in_order() {
    let (context, mut source) = open(listening(ZmqKind::Pull));
    assert!(source.name().starts_with("tcp://127.0.0.1:") && !source.name().ends_with('*'));
    let push = sender(&context, ::zmq::PUSH, &source);
    let sizes = [0, 1, 29, 33, 34, 1024, 1025, 8192, 20_000, 3_000_000];
    let sent: Vec<Vec<Vec<u8>>> = (0..sizes.len())
        .map(|n| sizes[..=n].iter().map(|bytes| (0..*bytes).map(|i| (i * 7 + n) as u8).collect()).collect())
        .collect();
    for message in &sent {
        push.send_multipart(message, 0).unwrap();
    }
    let got = take(&mut source, sent.len());
    let parts: Vec<Vec<Vec<u8>>> = got.iter().map(|m| m.parts.iter().map(|p| p.to_vec()).collect()).collect();
    assert!(parts == sent);
    assert_eq!(source.peers(), 1);
    drop(push);
    let end = Instant::now() + 10 * SECOND;
    while source.peers() > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(source.peers(), 0);
}

#[test]
fn large_parts_are_not_copied_and_outlive_the_socket() {
    let (context, mut source) = open(listening(ZmqKind::Pull));
    let push = sender(&context, ::zmq::PUSH, &source);
    push.send(vec![7u8; 1 << 20], 0).unwrap();
    let message = take(&mut source, 1).remove(0);
    let part = message.parts[0].clone();
    assert_eq!(part.as_ptr(), message.parts[0].as_ptr());
    drop((push, source, message));
    drop(context);
    assert!(part.len() == 1 << 20 && part.iter().all(|byte| *byte == 7));
}

#[test]
fn a_subscriber_gets_everything() {
    let (context, mut source) = open(listening(ZmqKind::Sub));
    let publisher = sender(&context, ::zmq::XPUB, &source);
    // A socket accepts a connection in its own calls only.
    let end = Instant::now() + 10 * SECOND;
    while publisher.poll(::zmq::POLLIN, 0) == Ok(0) && Instant::now() < end {
        assert_eq!(take_now(&mut source), 0);
    }
    assert_eq!(publisher.recv_bytes(::zmq::DONTWAIT).unwrap(), [1]);
    for n in 0..10u8 {
        publisher.send([n].as_slice(), 0).unwrap();
    }
    let got: Vec<u8> = take(&mut source, 10).iter().map(|m| m.parts[0][0]).collect();
    assert_eq!(got, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_call_takes_no_more_than_asked_for_and_waits_no_longer() {
    let (context, mut source) = open(listening(ZmqKind::Pull));
    let push = sender(&context, ::zmq::PUSH, &source);
    let mut got = Vec::new();
    let begun = Instant::now();
    source.receive(Duration::from_millis(30), 5, &mut got).unwrap();
    assert!(got.is_empty() && begun.elapsed() >= Duration::from_millis(29));
    source.receive(Duration::from_micros(1), 5, &mut got).unwrap();
    for n in 0..5u8 {
        push.send([n].as_slice(), 0).unwrap();
    }
    while got.len() < 3 {
        source.receive(SECOND, 3 - got.len(), &mut got).unwrap();
    }
    assert_eq!(got.len(), 3);
    assert_eq!(take(&mut source, 2).len(), 2);
}

#[test]
fn the_mark_changes_only_with_a_report_to_the_writer_and_at_most_doubles() {
    for (from, wanted) in [(16, 2), (2, 1024), (3, 1000), (1024, 7), (5, 5), (16, 8)] {
        let mut queue = Queue { wanted, ..Queue::new(from) };
        for read in 1..4000 {
            let before = queue;
            if let Some(mark) = queue.after(read) {
                queue.mark = mark;
                assert_eq!(read % ((before.mark as u64).div_ceil(2)), 0);
                assert!(mark <= 2 * before.mark && mark != before.mark, "{before:?} {mark}");
            }
        }
        assert_eq!(queue.mark, wanted);
    }
}

/// Sends as many messages as possible while nobody takes any. They fill the queue of the source, what libzmq and the
/// kernel hold on the way, and the sender's own queue of one.
fn sendable(push: &::zmq::Socket, bytes: usize, most: usize) -> usize {
    push.set_sndtimeo(300).unwrap();
    let sent = (0..most).take_while(|_| push.send(vec![0u8; bytes], 0).is_ok()).count();
    push.set_sndtimeo(5000).unwrap();
    sent
}

/// For a queue of 3: besides these, one in the sender's own queue, one each that libzmq is writing and reading, and
/// those in the kernel, whose number varies. A queue without limit takes all 20.
const ON_THE_WAY: std::ops::RangeInclusive<usize> = 3..=12;

#[test]
fn the_queue_follows_the_size_of_the_messages() {
    const LARGE: usize = 8 << 20;
    let context = context(1).unwrap();
    let push = context.socket(::zmq::PUSH).unwrap();
    push.set_linger(0).unwrap();
    push.set_sndhwm(1).unwrap();
    push.bind("tcp://127.0.0.1:*").unwrap();
    let address = push.get_last_endpoint().unwrap().unwrap();
    let mut source = ZmqSource::open(&context, &ZmqSourceSpec::pull(address)).unwrap();
    // A writer that is full again and again, through changes at every count.
    let push = Mutex::new(push);
    let exchange = |source: &mut ZmqSource, bytes: usize, messages: usize| {
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let push = push.lock().unwrap();
                push.set_sndtimeo(5000).unwrap();
                (0..messages).take_while(|_| push.send(vec![0u8; bytes], 0).is_ok()).count()
            });
            assert_eq!(take(source, messages).len(), messages);
            assert_eq!(sender.join().unwrap(), messages);
        });
    };
    let sendable = || sendable(&push.lock().unwrap(), LARGE, 20);
    exchange(&mut source, 100_000, 40);
    source.bound(LARGE as u64, 3 * LARGE as u64);
    exchange(&mut source, 100_000, 37);
    assert_eq!(source.queue.mark, 3);
    let sent = sendable();
    assert!(ON_THE_WAY.contains(&sent), "{sent}");
    assert_eq!(take(&mut source, sent).len(), sent);
    for queue in [900, 5, 64, 2, 1024, 3] {
        source.bound(1, queue);
        exchange(&mut source, 50_000, 2500);
        assert_eq!(source.queue.mark, queue as i32);
    }
    let sent = sendable();
    assert!(ON_THE_WAY.contains(&sent), "{sent}");
}

/// The mark of a listening socket changes only with the messages of its only connection; whatever the others do, no
/// writer is left waiting.
#[test]
fn the_queue_of_a_listening_socket_grows_with_its_only_connection() {
    // Room for all eight: who comes while `peers_max` others are not yet gone is refused, and loses a message.
    const PEERS: u64 = 8;
    let (context, mut source) = open(ZmqSourceSpec { peers_max: PEERS as usize, ..listening(ZmqKind::Pull) });
    let exchange = |source: &mut ZmqSource, all: &[&Mutex<::zmq::Socket>], messages: usize| {
        std::thread::scope(|scope| {
            let send = |n: usize| all[n % all.len()].lock().unwrap().send(vec![7u8; 40_000], 0).unwrap();
            let sender = scope.spawn(move || (0..messages).for_each(send));
            assert_eq!(take(source, messages).len(), messages);
            sender.join().unwrap();
        });
    };
    let connect = |source: &ZmqSource| {
        let push = sender(&context, ::zmq::PUSH, source);
        push.set_sndhwm(1).unwrap();
        Mutex::new(push)
    };
    let first = connect(&source);
    exchange(&mut source, &[&first], 41);
    assert_eq!(source.queue.mark, 2, "nothing is known of the size of a message");
    source.bound(40_000, PEERS * 64 * 40_000);
    exchange(&mut source, &[&first], 151);
    assert_eq!((source.peers(), source.queue.mark), (1, 64));
    // A second one gets a queue of this length, and while there are two, nothing changes.
    let second = connect(&source);
    source.bound(80_000, PEERS * 8 * 80_000);
    exchange(&mut source, &[&second], 1);
    exchange(&mut source, &[&first, &second], 333);
    assert_eq!((source.peers(), source.queue.mark), (2, 64));
    for count in [1, 31, 33, 64, 65, 200] {
        exchange(&mut source, &[&second], count);
        exchange(&mut source, &[&first], count);
    }
    drop(first);
    let end = Instant::now() + 10 * SECOND;
    while source.peers() > 1 && Instant::now() < end {
        take_now(&mut source);
    }
    exchange(&mut source, &[&second], 150);
    if !source.ending.is_over() {
        assert_eq!((source.peers(), source.queue.mark), (1, 64), "libzmq may still be ending the first");
    }
    while !source.ending.is_over() && Instant::now() < end {
        take_now(&mut source);
    }
    exchange(&mut source, &[&second], 150);
    assert_eq!((source.peers(), source.queue.mark), (1, 8));
    drop(second);
    while source.peers() > 0 && Instant::now() < end {
        take_now(&mut source);
    }
    // The next one has a descriptor that was used before, so nothing changes.
    source.bound(40_000, PEERS * 64 * 40_000);
    let third = connect(&source);
    exchange(&mut source, &[&third], 400);
    assert_eq!((source.peers(), source.queue.mark), (1, 8));
    drop(third);
    // Short series of senders that come and go.
    for count in [3, 1, 7, 12, 30] {
        let next = connect(&source);
        exchange(&mut source, &[&next], count);
    }
}

#[test]
fn who_sends_too_much_is_disconnected_and_others_go_on() {
    let (context, mut source) = open(ZmqSourceSpec { message_bytes_max: 1000, ..listening(ZmqKind::Pull) });
    let bad = sender(&context, ::zmq::PUSH, &source);
    bad.send(vec![0u8; 1001], 0).unwrap();
    let good = sender(&context, ::zmq::PUSH, &source);
    good.send(vec![1u8; 1000], 0).unwrap();
    let got = take(&mut source, 1);
    assert_eq!(got[0].parts[0], [1u8; 1000].as_slice());
    let mut more = Vec::new();
    source.receive(Duration::from_millis(50), 9, &mut more).unwrap();
    assert!(more.is_empty());
}

/// A connection as a PUSH socket makes it (ZMTP 3.0, mechanism NULL), without libzmq, which would keep a message until
/// it is whole.
fn bare_push(name: &str) -> TcpStream {
    let mut stream = TcpStream::connect(name.trim_start_matches("tcp://")).unwrap();
    let mut greeting = [0u8; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xFF, 0x7F, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting).unwrap();
    stream.read_exact(&mut greeting).unwrap();
    let ready = b"\x05READY\x0bSocket-Type\0\0\0\x04PUSH";
    stream.write_all(&[&[4, ready.len() as u8], &ready[..]].concat()).unwrap();
    stream
}

/// Parts without end, of any size: the connection is cut, and the memory of libzmq does not grow with what was sent.
#[test]
fn a_message_that_never_ends_is_cut_off_and_others_go_on() {
    for part_bytes in [200, 60_000] {
        let (context, mut source) = open(ZmqSourceSpec { message_bytes_max: 4 << 20, ..listening(ZmqKind::Pull) });
        let mut stream = bare_push(&source.name());
        let part: Vec<u8> = match part_bytes {
            200 => [&[1, 200], &[7u8; 200][..]].concat(),
            _ => [&[3][..], &60_000u64.to_be_bytes(), &[7; 60_000]].concat(),
        };
        let parts = part.repeat(1_000_000 / part.len());
        let end_of_sender = stream.try_clone().unwrap();
        let sent = std::thread::spawn(move || (0..20_000).take_while(|_| stream.write_all(&parts).is_ok()).count());
        let good = sender(&context, ::zmq::PUSH, &source);
        let (mut got, mut why) = (Vec::new(), None);
        let end = Instant::now() + 60 * SECOND;
        while (why.is_none() || source.peers() > 1) && Instant::now() < end {
            good.send("good", ::zmq::DONTWAIT).ok();
            source.receive(Duration::from_millis(300), 10, &mut got).unwrap();
            why = why.or(source.disconnected());
        }
        // If the TCP window was closed, the sender's kernel tries for a minute before it gives up.
        end_of_sender.shutdown(std::net::Shutdown::Both).ok();
        assert!(sent.join().unwrap() < 20_000, "20 GB were taken");
        assert!(why.unwrap().contains("exceeded 4 MiB"));
        assert!(!got.is_empty() && got.iter().all(|message| message.parts[0] == b"good"[..]));
    }
}

/// A message of the largest permitted size that comes slowly is complete in the end; so is one that waits behind others
/// for which there is no room for a long time.
#[test]
fn who_sends_no_more_than_is_allowed_is_not_cut_off() {
    let (_context, mut source) = open(ZmqSourceSpec { message_bytes_max: 4 << 20, ..listening(ZmqKind::Pull) });
    let mut stream = bare_push(&source.name());
    let part = |flags: u8, bytes: usize| [&[flags][..], &(bytes as u64).to_be_bytes(), &vec![7; bytes]].concat();
    let whole = [part(3, 2 << 20), part(2, 2 << 20)].concat();
    let sent = std::thread::spawn(move || {
        for message in 0..12 {
            for piece in whole.chunks(1 << 20) {
                stream.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(if message == 0 { 200 } else { 0 }));
            }
        }
        stream
    });
    let mut got = take(&mut source, 1);
    for _ in 0..10 {
        source.watch();
        std::thread::sleep(Duration::from_millis(110));
    }
    got.extend(take(&mut source, 11));
    assert!(got.len() == 12 && got.iter().all(|message| message.bytes() == 4 << 20));
    assert_eq!((source.disconnected(), source.peers()), (None, 1));
    drop(sent.join().unwrap());
}

#[test]
fn a_message_of_very_many_parts_is_cut() {
    let (context, mut source) = open(listening(ZmqKind::Pull));
    let push = sender(&context, ::zmq::PUSH, &source);
    push.send_multipart(vec![b"x".as_slice(); 3000], 0).unwrap();
    push.send("after", 0).unwrap();
    let got = take(&mut source, 2);
    assert_eq!((got[0].parts.len(), &got[1].parts[0][..]), (PARTS_MAX, &b"after"[..]));
}

#[test]
fn a_sender_that_comes_later_or_comes_back_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("ipc://{}/socket", folder.path().display());
    let (context, mut source) = open(ZmqSourceSpec::pull(&address));
    assert_eq!((source.name(), source.peers()), (address.clone(), 0));
    for n in 0..2u8 {
        let push = context.socket(::zmq::PUSH).unwrap();
        push.set_linger(1000).unwrap();
        push.bind(&address).unwrap();
        push.send([n].as_slice(), 0).unwrap();
        assert_eq!(take(&mut source, 1)[0].parts[0][0], n);
    }
}

#[test]
fn sockets_that_cannot_be_opened_say_why() {
    let (context, source) = open(listening(ZmqKind::Pull));
    let why = |spec: &ZmqSourceSpec| ZmqSource::open(&context, spec).err().unwrap().to_string();
    let at = |address: &str| ZmqSourceSpec { address: address.into(), ..listening(ZmqKind::Pull) };
    assert!(why(&at(&source.name())).contains("another program already listens there"));
    assert!(why(&at("9999")).contains("write tcp://HOST:PORT"));
    assert!(why(&at("tcp://192.0.2.1:9999")).contains("no network interface"));
    assert!(why(&at("ipc:///no/such/folder/socket")).contains("cannot listen on ipc:///no/such"));
    // An error number that the crate of ZeroMQ does not know.
    assert!(why(&at("ipc:///dev/null/socket")).contains("cannot listen on ipc:///dev/null"));
}

/// Nothing more comes from the other end.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes) {
            // libzmq sends its greeting first.
            Ok(1..) => {}
            Ok(0) => return true,
            Err(error) => return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }
}

#[test]
fn further_connections_are_closed_and_senders_have_their_place_again() {
    let context = context(1).unwrap();
    let spec = ZmqSourceSpec { bind: true, peers_max: 3, ..ZmqSourceSpec::pull("tcp://127.0.0.1:*") };
    let mut source = ZmqSource::open(&context, &spec).unwrap();
    let address = source.name();
    let end = Instant::now() + Duration::from_secs(60);
    let mut idle: Vec<TcpStream> = (0..9).map(|_| TcpStream::connect(address.strip_prefix("tcp://").unwrap()).unwrap()).collect();
    while (source.connections_refused(), source.peers()) != (6, 3) {
        assert!(Instant::now() < end, "{} refused, {} there", source.connections_refused(), source.peers());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Connections beyond the limit are closed without waiting for their greeting.
    idle.iter().for_each(|stream| stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap());
    let closed: Vec<bool> = idle.iter_mut().map(is_closed).collect();
    assert_eq!(closed.iter().filter(|closed| **closed).count(), 6, "{closed:?}");
    drop(idle);
    let push = context.socket(::zmq::PUSH).unwrap();
    push.connect(&address).unwrap();
    push.send("hello", 0).unwrap();
    let mut messages = Vec::new();
    while messages.is_empty() {
        assert!(Instant::now() < end, "a sender is let in again");
        source.receive(Duration::from_millis(50), 1, &mut messages).unwrap();
    }
}
