use super::*;
use bytes::Bytes;
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{MessageEncoder, Parts, Sink};
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn listening(kind: ZmqOutKind) -> (Context, ZmqOut) {
    let context = Context::new();
    let spec = ZmqOutSpec { kind, queue_messages: 8, linger: Duration::ZERO, ..ZmqOutSpec::push("tcp://127.0.0.1:*") };
    let out = ZmqOut::open(&context, &spec).unwrap();
    (context, out)
}

fn receiver(context: &Context, kind: ::zmq::SocketType, out: &mut ZmqOut) -> ::zmq::Socket {
    let socket = context.socket(kind).unwrap();
    let (peers, subscriptions) = (out.peers(), out.subscriptions());
    socket.set_linger(0).unwrap();
    socket.set_rcvhwm(2).unwrap();
    socket.set_rcvtimeo(5000).unwrap();
    if kind == ::zmq::SUB {
        socket.set_subscribe(b"").unwrap();
    }
    socket.connect(out.name()).unwrap();
    until(|| out.peers() > peers && (kind == ::zmq::PULL || out.subscriptions() > subscriptions));
    socket
}

fn until(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + 10 * SECOND;
    while !condition() {
        assert!(Instant::now() < end, "it does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn parts(sizes: &[usize]) -> Vec<Bytes> {
    sizes.iter().map(|bytes| (0..*bytes).map(|i| (i % 251) as u8).collect::<Vec<_>>().into()).collect()
}

#[test]
fn messages_of_every_size_go_whole() {
    for (kind, other) in [(ZmqOutKind::Push, ::zmq::PULL), (ZmqOutKind::Pub, ::zmq::SUB), (ZmqOutKind::PubReliable, ::zmq::SUB)] {
        let (context, mut out) = listening(kind);
        let receiver = receiver(&context, other, &mut out);
        for sizes in [&[0][..], &[1, 0, 600], &[512, 513, 3_000_000, 5]] {
            let message = parts(sizes);
            assert_eq!(out.send(&message, SECOND).unwrap(), Sent::Sent);
            assert_eq!(receiver.recv_multipart(0).unwrap(), message);
        }
        drop(receiver);
        until(|| out.peers() == 0);
        assert_eq!(out.send(&parts(&[1]), Duration::ZERO).unwrap(), Sent::NoPeer);
    }
}

#[test]
fn no_receiver_and_full_are_distinguished_and_neither_is_waited_for_beyond_the_timeout() {
    for (kind, other) in [(ZmqOutKind::Push, ::zmq::PULL), (ZmqOutKind::PubReliable, ::zmq::SUB)] {
        let (context, mut out) = listening(kind);
        let message = parts(&[4 << 20]);
        let begun = Instant::now();
        assert_eq!(out.send(&message, Duration::from_millis(20)).unwrap(), Sent::NoPeer);
        assert!(begun.elapsed() >= Duration::from_millis(19));
        let receiver = receiver(&context, other, &mut out);
        let sent = (0..100).take_while(|_| out.send(&message, Duration::from_millis(200)).unwrap() == Sent::Sent).count();
        assert!((4..50).contains(&sent), "{sent}");
        assert_eq!(out.send(&message, Duration::ZERO).unwrap(), Sent::Full);
        for _ in 0..sent {
            assert_eq!(receiver.recv_bytes(0).unwrap().len(), 4 << 20);
        }
        assert_eq!(out.send(&message, 5 * SECOND).unwrap(), Sent::Sent);
    }
}

#[test]
fn who_connects_is_found_when_it_comes() {
    let context = Context::new();
    let folder = tempfile::tempdir().unwrap();
    let address = format!("ipc://{}/s", folder.path().display());
    let spec = ZmqOutSpec { bind: false, linger: Duration::ZERO, ..ZmqOutSpec::push(&address) };
    let mut out = ZmqOut::open(&context, &spec).unwrap();
    assert_eq!((out.send(&parts(&[1]), Duration::ZERO).unwrap(), out.name()), (Sent::NoPeer, address.as_str()));
    let pull = context.socket(::zmq::PULL).unwrap();
    pull.bind(&address).unwrap();
    assert_eq!(out.send(&parts(&[2]), 10 * SECOND).unwrap(), Sent::Sent);
    assert_eq!(pull.recv_bytes(0).unwrap(), [0, 1]);
}

#[test]
fn sockets_that_cannot_be_opened_say_why() {
    let (context, out) = listening(ZmqOutKind::Push);
    let why = |address: &str| ZmqOut::open(&context, &ZmqOutSpec::push(address)).err().unwrap().to_string();
    assert!(why(out.name()).contains("another program already listens there"));
    assert!(why("localhost").contains("write tcp://HOST:PORT"));
    assert!(why("ipc:///dev/null/x").contains("cannot listen on"));
}

/// Encodes messages as readable texts.
struct Words;

impl MessageEncoder for Words {
    fn start(&mut self, _: &SeriesStart) -> Result<Vec<Parts>, String> {
        Ok(vec![vec!["start".into(), "more".into()]])
    }

    fn image(&mut self, image: &CommittedImage) -> Result<Vec<Parts>, String> {
        match image.number {
            13 => Err("13 has no form".into()),
            n => Ok(vec![vec![n.to_string().into(), Bytes::from(vec![0; 1 << 20])]]),
        }
    }

    fn end(&mut self, _: &SeriesEnd) -> Result<Vec<Parts>, String> {
        Ok(vec![vec!["end".into()]])
    }
}

fn image(number: u64) -> Arc<CommittedImage> {
    Arc::new(CommittedImage::lost(number))
}

fn end() -> Arc<SeriesEnd> {
    Arc::new(SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: SeriesLedger::default() })
}

fn first_parts(receiver: &::zmq::Socket, count: usize) -> Vec<String> {
    (0..count).map(|_| String::from_utf8(receiver.recv_multipart(0).unwrap().remove(0)).unwrap()).collect()
}

#[test]
fn a_receiver_that_comes_late_gets_the_start_of_the_series() {
    let (context, out) = listening(ZmqOutKind::Push);
    let mut sink = StreamSink::new(out, Box::new(Words), Arc::default());
    let stats = sink.stats();
    sink.start(&Arc::default()).unwrap();
    sink.image(&image(0)).unwrap();
    assert_eq!((stats.nobody.load(Ordering::Relaxed), stats.sent.load(Ordering::Relaxed)), (1, 0));
    let late = receiver(&context, ::zmq::PULL, &mut sink.out);
    sink.tick(0).unwrap();
    sink.image(&image(1)).unwrap();
    let error = sink.image(&image(13)).unwrap_err();
    assert!(error.what.contains("image 13") && error.why == "13 has no form");
    sink.end(&end()).unwrap();
    assert_eq!(first_parts(&late, 3), ["start", "1", "end"]);
    assert_eq!((stats.sent.load(Ordering::Relaxed), stats.peers.load(Ordering::Relaxed)), (3, 1));
}

#[test]
fn a_receiver_that_comes_back_gets_the_start_again() {
    let (context, out) = listening(ZmqOutKind::Push);
    let mut sink = StreamSink::new(out, Box::new(Words), Arc::default());
    let first = receiver(&context, ::zmq::PULL, &mut sink.out);
    sink.start(&Arc::default()).unwrap();
    sink.image(&image(0)).unwrap();
    assert_eq!(first_parts(&first, 2), ["start", "0"]);
    drop(first);
    until(|| sink.out.peers() == 0);
    // An image that nobody receives is not even encoded: 13 cannot be encoded.
    sink.image(&image(13)).unwrap();
    let second = receiver(&context, ::zmq::PULL, &mut sink.out);
    sink.image(&image(2)).unwrap();
    sink.end(&end()).unwrap();
    assert_eq!(first_parts(&second, 3), ["start", "2", "end"]);
    sink.tick(0).unwrap();
    let stats = sink.stats();
    assert_eq!(stats.nobody.load(Ordering::Relaxed), 1);
    assert_eq!(stats.sent.load(Ordering::Relaxed), 5, "after the end there is no start to send");
}

#[test]
fn a_full_receiver_is_waited_for_until_stopped() {
    let (context, out) = listening(ZmqOutKind::Push);
    let stop = Arc::new(AtomicBool::new(false));
    let mut sink = StreamSink::new(out, Box::new(Words), Arc::clone(&stop));
    let stats = sink.stats();
    let stalled = receiver(&context, ::zmq::PULL, &mut sink.out);
    sink.start(&Arc::default()).unwrap();
    let images = 100;
    let worker = std::thread::spawn(move || {
        (14..14 + images).for_each(|n| sink.image(&image(n)).unwrap());
    });
    // Sending comes to a stop before everything is sent.
    let mut before = 0;
    until(|| {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut before, stats.sent.load(Ordering::Relaxed)) == stats.sent.load(Ordering::Relaxed)
    });
    assert!(stats.sent.load(Ordering::Relaxed) < images && !worker.is_finished());
    assert_eq!(stats.skipped.load(Ordering::Relaxed), 0);
    stop.store(true, Ordering::Release);
    worker.join().unwrap();
    let (sent, skipped) = (stats.sent.load(Ordering::Relaxed), stats.skipped.load(Ordering::Relaxed));
    assert_eq!(sent + skipped, images + 1);
    assert!(skipped > 0);
    drop(stalled);
}

#[test]
fn a_client_that_reads_nothing_holds_up_no_other_one() {
    let context = Context::new();
    let mut reply = ZmqReply::listen(&context, "tcp://127.0.0.1:*", 8).unwrap();
    let client = || {
        let socket = context.socket(::zmq::REQ).unwrap();
        socket.set_linger(0).unwrap();
        socket.connect(reply.name()).unwrap();
        socket
    };
    let (silent, eager, gone) = (client(), client(), client());
    [&silent, &eager, &gone].iter().for_each(|socket| socket.send("next", 0).unwrap());
    let mut identities = Vec::new();
    while identities.len() < 3 {
        let asked = reply.request(Duration::from_secs(10)).unwrap();
        identities.extend(asked.map(|asked| {
            assert_eq!(asked.body, b"next");
            asked.client
        }));
    }
    drop(gone);
    let parts = [Bytes::from_static(b"head"), Bytes::from(vec![7; 1 << 20])];
    // Whether the answer to the one that is gone is refused depends on when libzmq notices; the others get theirs.
    let answered = identities.iter().filter(|client| reply.answer(client, &parts).unwrap()).count();
    assert!(answered >= 2);
    for round in 0..5 {
        assert_eq!(eager.recv_multipart(0).unwrap()[1].len(), 1 << 20, "{round}");
        eager.send("next", 0).unwrap();
        let asks = reply.request(Duration::from_secs(10)).unwrap().unwrap();
        assert!(reply.answer(&asks.client, &parts).unwrap());
    }
    // A message that is no request is not one.
    let other = context.socket(::zmq::DEALER).unwrap();
    other.set_linger(0).unwrap();
    other.connect(reply.name()).unwrap();
    other.send("next", 0).unwrap();
    assert_eq!(reply.request(Duration::from_millis(500)).unwrap(), None);
    assert!(!reply.answer(b"nobody", &parts).unwrap());
}
