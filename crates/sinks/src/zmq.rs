//! Whole messages to ZeroMQ sockets: pixels are shared with libzmq and not copied, and nobody who does not read holds up more than one thread.
//!
//! Facts relied on (libzmq 4.3): a message goes with all its parts or not at all; the high water mark counts whole messages per connection. PUSH
//! divides the messages among its receivers; PUB gives each subscriber every message, and drops for one that is full, unless it is told to refuse. A
//! subscriber's wish comes to XPUB as a message of which the first byte is 1 (0 when it ends).

mod stream;
pub use stream::{MessageEncoder, OnFull, StreamSink, StreamStats};

use crate::sys;
use bytes::Bytes;
use konkordia_core::endpoint::{self, PEER_EVENTS, PEERS_MAX, PeerEvent, Peers, failed, out_of_sockets, tcp_port};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use ::zmq::Context;

/// Longest time from a connection to the greeting of ZeroMQ; libzmq's own is 30 s.
const HANDSHAKE_MS: i32 = 10_000;

/// How messages are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZmqOutKind {
    /// PUSH: every message to one of the receivers.
    Push,
    /// PUB: every message to every subscriber; one that is slow loses messages, unseen by the sender.
    Pub,
    /// PUB that refuses a message for all while one subscriber is full, so that nothing is lost unseen.
    PubReliable,
}

/// A socket to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZmqOutSpec {
    /// `tcp://HOST:PORT` or `ipc://PATH`; a listening socket may have port `*`.
    pub address: String,
    /// Listens there; otherwise connects.
    pub bind: bool,
    /// How messages are given.
    pub kind: ZmqOutKind,
    /// Messages that may wait for each receiver inside of libzmq, at least 1.
    pub queue_messages: i32,
    /// How long messages that wait may hold up the end of the context after the socket was closed.
    pub linger: Duration,
    /// Connections that a socket listening for TCP keeps; further ones are closed.
    pub peers_max: usize,
}

impl ZmqOutSpec {
    /// A listening PUSH socket with 16 messages that may wait, for 1 s after the end.
    pub fn push(address: impl Into<String>) -> Self {
        let (kind, linger, peers_max) = (ZmqOutKind::Push, Duration::from_secs(1), PEERS_MAX);
        Self { address: address.into(), bind: true, kind, queue_messages: 16, linger, peers_max }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It is on its way.
    Sent,
    /// Receivers are there, but take nothing; it was not sent.
    Full,
    /// Nobody is there; it was not sent.
    NoPeer,
}

/// Sends messages to one ZeroMQ socket.
pub struct ZmqOut {
    socket: ::zmq::Socket,
    monitor: ::zmq::Socket,
    peers: Peers,
    kind: ZmqOutKind,
    name: String,
    subscriptions: u64,
}

impl ZmqOut {
    /// Opens the socket; when this returns, receivers can connect.
    ///
    /// # Errors
    /// In words for people: no address, in use, not of this machine, not permitted, or the context has no more sockets.
    pub fn open(context: &Context, spec: &ZmqOutSpec) -> io::Result<Self> {
        endpoint::check(&spec.address).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let kind = if spec.kind == ZmqOutKind::Push { ::zmq::PUSH } else { ::zmq::XPUB };
        let mut socket = context.socket(kind).map_err(out_of_sockets)?;
        configure(&socket, spec).map_err(|e| io::Error::other(format!("{}: {e}", spec.address)))?;
        if spec.kind == ZmqOutKind::PubReliable {
            sys::zmq::refuse_when_full(&mut socket)?;
        }
        let monitor = monitor(context, &socket).map_err(out_of_sockets)?;
        sys::zmq::attach(&mut socket, &spec.address, spec.bind).map_err(|e| endpoint::explain(&spec.address, spec.bind, &e))?;
        let bound = socket.get_last_endpoint().ok().and_then(Result::ok).filter(|name| spec.bind && !name.is_empty());
        let name = bound.unwrap_or_else(|| spec.address.clone());
        Ok(Self { socket, monitor, peers: Peers::limited(spec.peers_max), kind: spec.kind, name, subscriptions: 0 })
    }

    /// Where it listens or connects, with the port that the kernel chose.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Receivers that are connected now.
    pub fn peers(&mut self) -> usize {
        self.note_peers();
        self.peers.count()
    }

    /// Subscriptions that ever came to a publisher; it grows with each subscriber that joins.
    pub fn subscriptions(&mut self) -> u64 {
        self.note_peers();
        self.subscriptions
    }

    /// True if somebody is there who gets what is sent from now on: a receiver, or for publishers one whose subscription has come.
    pub fn is_heard(&mut self) -> bool {
        self.peers() > 0 && (self.kind == ZmqOutKind::Push || self.subscriptions > 0)
    }

    /// The message of one part that a publisher gives to everybody who joins from now on; empty for none. PUSH has no such thing.
    ///
    /// # Errors
    /// libzmq refuses it.
    pub fn welcome(&mut self, part: &[u8]) -> io::Result<()> {
        if self.kind == ZmqOutKind::Push { Ok(()) } else { sys::zmq::welcome(&mut self.socket, part) }
    }

    /// Sends one message, and waits at most `timeout` until there is room for it.
    ///
    /// # Errors
    /// The socket failed for good.
    pub fn send(&mut self, parts: &[Bytes], timeout: Duration) -> io::Result<Sent> {
        self.note_peers();
        let end = Instant::now() + timeout;
        let publishes = self.kind != ZmqOutKind::Push;
        loop {
            // A publisher without subscribers takes everything and throws it away, also while the wish of the first one is on its way.
            let is_deaf = publishes && (self.peers.count() == 0 || self.subscriptions == 0);
            if !is_deaf && self.try_send(parts)? {
                return Ok(Sent::Sent);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.note_peers();
                return Ok(if is_deaf || self.peers.count() == 0 { Sent::NoPeer } else { Sent::Full });
            }
            self.wait(left)?;
            self.note_peers();
        }
    }

    /// False if there is no room.
    fn try_send(&mut self, parts: &[Bytes]) -> io::Result<bool> {
        for (n, part) in parts.iter().enumerate() {
            // After the first part there is no room only when the connection broke, and then the parts before are withdrawn.
            let sent = sys::zmq::send(&mut self.socket, part, n + 1 < parts.len());
            if !sent.map_err(|e| io::Error::other(format!("a ZeroMQ socket failed: {e}")))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wait(&self, left: Duration) -> io::Result<()> {
        let publishes = self.kind != ZmqOutKind::Push;
        // A publisher always says that it can be written.
        if publishes {
            std::thread::sleep(left.min(Duration::from_millis(1)));
            return Ok(());
        }
        let milliseconds = left.as_millis() + u128::from(!left.subsec_nanos().is_multiple_of(1_000_000));
        match self.socket.poll(::zmq::POLLOUT, i64::try_from(milliseconds).unwrap_or(i64::MAX)) {
            Ok(_) | Err(::zmq::Error::EINTR) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn note_peers(&mut self) {
        while let Ok(part) = self.monitor.recv_msg(::zmq::DONTWAIT) {
            if let (Some(PeerEvent::TooMany(descriptor)), Some(port)) = (self.peers.event(&part), tcp_port(&self.name)) {
                sys::zmq::end_connection(descriptor, port);
            }
            // The second part is the address.
            while self.monitor.get_rcvmore() == Ok(true) && self.monitor.recv_msg(::zmq::DONTWAIT).is_ok() {}
        }
        if self.kind != ZmqOutKind::Push {
            while let Ok(wish) = self.socket.recv_msg(::zmq::DONTWAIT) {
                self.subscriptions += u64::from(wish.first() == Some(&1));
            }
        }
    }
}

fn configure(socket: &::zmq::Socket, spec: &ZmqOutSpec) -> ::zmq::Result<()> {
    socket.set_linger(i32::try_from(spec.linger.as_millis()).unwrap_or(i32::MAX))?;
    socket.set_sndhwm(spec.queue_messages.max(1))?;
    // A peer that is gone without a word is noticed after 60 s of silence and 10 questions.
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_cnt(10)?;
    socket.set_tcp_keepalive_idle(60)?;
    socket.set_tcp_keepalive_intvl(1)?;
    // Who connects and says nothing is no receiver.
    socket.set_handshake_ivl(HANDSHAKE_MS)?;
    socket.set_reconnect_ivl(100)?;
    socket.set_reconnect_ivl_max(2000)?;
    if spec.address.contains('[') {
        socket.set_ipv6(true)?;
    }
    if spec.kind != ZmqOutKind::Push {
        // Every subscriber's wish is passed on, not only the first.
        socket.set_xpub_verbose(true)?;
    } else if !spec.bind {
        // Messages wait here, and not for a receiver that may never come.
        socket.set_immediate(true)?;
    }
    Ok(())
}

fn monitor(context: &Context, socket: &::zmq::Socket) -> ::zmq::Result<::zmq::Socket> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let address = format!("inproc://sink-peers-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    socket.monitor(&address, i32::from(PEER_EVENTS))?;
    let monitor = context.socket(::zmq::PAIR)?;
    monitor.set_linger(0)?;
    // Without a bound, for a full queue would hold up the thread that serves all sockets; it is emptied at each call.
    monitor.set_rcvhwm(0)?;
    monitor.connect(&address)?;
    Ok(monitor)
}

#[cfg(test)]
mod tests;
