//! A ZeroMQ socket that sends: its settings, its receivers, and what became of each message.

use crate::sys;
use bytes::Bytes;
use konkordia_core::endpoint::{PEERS_MAX, failed};
use konkordia_zeromq::{MonitoredSocket, Place};
use std::io;
use std::time::{Duration, Instant};

use ::zmq::Context;

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
    inner: MonitoredSocket,
    kind: ZmqOutKind,
    subscriptions: u64,
}

impl ZmqOut {
    /// Opens the socket; when this returns, receivers can connect.
    ///
    /// # Errors
    /// In words for users: the address is not valid, in use, not of this machine or not permitted, or the context has
    /// no more sockets.
    pub fn open(context: &Context, spec: &ZmqOutSpec) -> io::Result<Self> {
        let kind = if spec.kind == ZmqOutKind::Push { ::zmq::PUSH } else { ::zmq::XPUB };
        let place = Place { address: &spec.address, bind: spec.bind, peers_max: spec.peers_max };
        let inner = MonitoredSocket::open(context, kind, place, |socket| {
            configure(socket, spec).map_err(|e| io::Error::other(format!("{}: {e}", spec.address)))?;
            if spec.kind == ZmqOutKind::PubReliable {
                sys::zmq::refuse_when_full(socket)?;
            }
            Ok(())
        })?;
        Ok(Self { inner, kind: spec.kind, subscriptions: 0 })
    }

    /// Where it listens or connects, with the port that the kernel chose.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Receivers that are connected now.
    pub fn peers(&mut self) -> usize {
        self.note_peers();
        self.inner.peers()
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
            let is_unsubscribed = publishes && (self.inner.peers() == 0 || self.subscriptions == 0);
            if !is_unsubscribed && self.try_send(parts)? {
                return Ok(Sent::Sent);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.note_peers();
                return Ok(if is_unsubscribed || self.inner.peers() == 0 { Sent::NoPeer } else { Sent::Full });
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
            let sent = sys::zmq::send(&mut self.inner.socket, part, n + 1 < parts.len());
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
        match self.inner.socket.poll(::zmq::POLLOUT, i64::try_from(milliseconds).unwrap_or(i64::MAX)) {
            Ok(_) | Err(::zmq::Error::EINTR) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn note_peers(&mut self) {
        self.inner.note_peers(|_| ());
        if self.kind != ZmqOutKind::Push {
            while let Ok(subscription) = self.inner.socket.recv_msg(::zmq::DONTWAIT) {
                self.subscriptions += u64::from(subscription.first() == Some(&1));
            }
        }
    }
}

fn configure(socket: &::zmq::Socket, spec: &ZmqOutSpec) -> ::zmq::Result<()> {
    socket.set_linger(i32::try_from(spec.linger.as_millis()).unwrap_or(i32::MAX))?;
    socket.set_sndhwm(spec.queue_messages.max(1))?;
    if spec.kind != ZmqOutKind::Push {
        // Passes on every subscription, not only the first.
        socket.set_xpub_verbose(true)?;
    } else if !spec.bind {
        // Messages wait here, and not in the queue of a receiver that may never come.
        socket.set_immediate(true)?;
    }
    Ok(())
}
