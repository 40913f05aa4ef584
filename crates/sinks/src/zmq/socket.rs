//! A ZeroMQ socket that sends: its settings, its receivers, and what became of each message.

use crate::sys;
use bytes::Bytes;
use konkordia_core::endpoint::{self, PEER_EVENTS, PEERS_MAX, PeerEvent, Peers, failed, out_of_sockets, tcp_port};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::zmq::Context;

/// Longest time from a connection to the greeting of ZeroMQ; libzmq's own is 30 s.
const HANDSHAKE_MS: i32 = 10_000;

/// How messages are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZmqOutKind {
    /// PUSH: every message to one of the receivers.
    Push,
    /// PUB: every message to every subscriber; a slow subscriber loses messages, and the sender does not notice.
    Pub,
    /// PUB that refuses a message for all subscribers while one of them is full, so that no loss goes unnoticed.
    PubReliable,
}

/// The settings of a socket to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZmqOutSpec {
    /// `tcp://HOST:PORT` or `ipc://PATH`; a listening socket may have port `*`.
    pub address: String,
    /// Listens there; otherwise connects.
    pub bind: bool,
    /// How messages are distributed.
    pub kind: ZmqOutKind,
    /// Messages that may wait inside libzmq for each receiver, at least 1.
    pub queue_messages: i32,
    /// How long waiting messages may hold up the end of the context after the socket was closed.
    pub linger: Duration,
    /// Connections that a socket listening for TCP keeps; it closes further ones.
    pub peers_max: usize,
}

impl ZmqOutSpec {
    /// A listening PUSH socket with a queue of 16 messages, which waits for them up to 1 s after the end.
    pub fn push(address: impl Into<String>) -> Self {
        let (kind, linger, peers_max) = (ZmqOutKind::Push, Duration::from_secs(1), PEERS_MAX);
        Self { address: address.into(), bind: true, kind, queue_messages: 16, linger, peers_max }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// libzmq has taken it.
    Sent,
    /// Receivers are connected, but take nothing; it was not sent.
    Full,
    /// No receiver is connected; it was not sent.
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
    /// In words for users: the address is not valid, in use, not of this machine or not permitted, or the context has
    /// no more sockets.
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

    /// Subscriptions that a publisher ever received; the number grows with each subscriber that joins.
    pub fn subscriptions(&mut self) -> u64 {
        self.note_peers();
        self.subscriptions
    }

    /// True if somebody receives what is sent from now on: a connected receiver, or for publishers a subscriber whose
    /// subscription has arrived.
    pub fn has_receiver(&mut self) -> bool {
        self.peers() > 0 && (self.kind == ZmqOutKind::Push || self.subscriptions > 0)
    }

    /// Sends one message, waiting at most `timeout` for room.
    ///
    /// # Errors
    /// If the socket failed for good.
    pub fn send(&mut self, parts: &[Bytes], timeout: Duration) -> io::Result<Sent> {
        self.note_peers();
        let end = Instant::now() + timeout;
        let publishes = self.kind != ZmqOutKind::Push;
        loop {
            // A publisher without subscribers accepts every message and discards it, also while the first subscription
            // is still on its way.
            let is_unsubscribed = publishes && (self.peers.count() == 0 || self.subscriptions == 0);
            if !is_unsubscribed && self.try_send(parts)? {
                return Ok(Sent::Sent);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.note_peers();
                return Ok(if is_unsubscribed || self.peers.count() == 0 { Sent::NoPeer } else { Sent::Full });
            }
            self.wait(left)?;
            self.note_peers();
        }
    }

    /// False if there is no room.
    fn try_send(&mut self, parts: &[Bytes]) -> io::Result<bool> {
        for (n, part) in parts.iter().enumerate() {
            // After the first part there is no room only if the connection broke; the parts sent before are then
            // withdrawn.
            let sent = sys::zmq::send(&mut self.socket, part, n + 1 < parts.len());
            if !sent.map_err(|e| io::Error::other(format!("a ZeroMQ socket failed: {e}")))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wait(&self, left: Duration) -> io::Result<()> {
        let publishes = self.kind != ZmqOutKind::Push;
        // A publisher always reports that it can be written to.
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
            while let Ok(subscription) = self.socket.recv_msg(::zmq::DONTWAIT) {
                self.subscriptions += u64::from(subscription.first() == Some(&1));
            }
        }
    }
}

fn configure(socket: &::zmq::Socket, spec: &ZmqOutSpec) -> ::zmq::Result<()> {
    socket.set_linger(i32::try_from(spec.linger.as_millis()).unwrap_or(i32::MAX))?;
    socket.set_sndhwm(spec.queue_messages.max(1))?;
    // A peer that disappears without closing is noticed after 60 s of silence and 10 probes.
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_cnt(10)?;
    socket.set_tcp_keepalive_idle(60)?;
    socket.set_tcp_keepalive_intvl(1)?;
    // A peer that connects and sends no greeting is not a receiver.
    socket.set_handshake_ivl(HANDSHAKE_MS)?;
    socket.set_reconnect_ivl(100)?;
    socket.set_reconnect_ivl_max(2000)?;
    if spec.address.contains('[') {
        socket.set_ipv6(true)?;
    }
    if spec.kind != ZmqOutKind::Push {
        // Passes on every subscription, not only the first.
        socket.set_xpub_verbose(true)?;
    } else if !spec.bind {
        // Messages wait here, and not in the queue of a receiver that may never come.
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
    // Without a limit, because a full queue would hold up the thread that serves all sockets; each call empties it.
    monitor.set_rcvhwm(0)?;
    monitor.connect(&address)?;
    Ok(monitor)
}
