//! A ZeroMQ socket as sources and sinks need it: opened with errors in words, with a limited number of connections that
//! it knows. It neither sends nor receives, and never looks into a message. Read [`MonitoredSocket`] first.
//!
//! ```
//! use konkordia_zeromq::{MonitoredSocket, Place};
//!
//! let context = zmq::Context::new();
//! let place = Place { address: "tcp://127.0.0.1:*", bind: true, peers_max: 8 };
//! let mut pull = MonitoredSocket::open(&context, zmq::PULL, place, |_| Ok(()))?;
//! let push = context.socket(zmq::PUSH)?;
//! push.connect(pull.name())?;
//! push.send("a message", 0)?;
//! assert_eq!(pull.socket.recv_bytes(0)?, b"a message");
//! pull.note_peers(|_| ());
//! assert_eq!((pull.peers(), pull.refused()), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod sys;

pub use sys::send_shared;

use konkordia_core::endpoint::{self, PEER_EVENTS, PeerEvent, Peers, out_of_sockets, tcp_port};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use zmq::{Context, Socket, SocketType};

/// Longest time from a connection to the greeting of ZeroMQ; libzmq's own is 30 s.
const HANDSHAKE_MS: i32 = 10_000;

/// Where a socket is, and how many connections it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`; a listening socket may have port `*`.
    pub address: &'a str,
    /// Listens there; otherwise connects.
    pub bind: bool,
    /// Connections that a socket listening for TCP keeps; it closes further ones.
    pub peers_max: usize,
}

/// A socket with the connections that its monitor reports.
pub struct MonitoredSocket {
    /// The socket itself, to send or to receive.
    pub socket: Socket,
    monitor: Socket,
    peers: Peers,
    name: String,
}

impl MonitoredSocket {
    /// Opens a socket of this kind; when this returns, the other side can connect. `configure` sets what is particular
    /// to the socket, before it listens or connects.
    ///
    /// # Errors
    /// In words for users: the address is not valid, in use, not of this machine or not permitted, or the context has
    /// no more sockets. Errors of `configure` are passed on.
    pub fn open(
        context: &Context,
        kind: SocketType,
        place: Place<'_>,
        configure: impl FnOnce(&mut Socket) -> io::Result<()>,
    ) -> io::Result<Self> {
        let Place { address, bind, peers_max } = place;
        // An address within this process is never one of a user.
        if !address.starts_with("inproc://") {
            endpoint::check(address).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        }
        let mut socket = context.socket(kind).map_err(out_of_sockets)?;
        set_connection(&socket, address).map_err(|error| io::Error::other(format!("{address}: {error}")))?;
        configure(&mut socket)?;
        let monitor = monitor(context, &socket).map_err(out_of_sockets)?;
        sys::attach(&mut socket, address, bind).map_err(|error| endpoint::explain(address, bind, &error))?;
        // The port that the kernel chose stands in the last endpoint.
        let bound = socket.get_last_endpoint().ok().and_then(Result::ok).filter(|name| bind && !name.is_empty());
        let name = bound.unwrap_or_else(|| address.to_owned());
        Ok(Self { socket, monitor, peers: Peers::limited(peers_max), name })
    }

    /// Where it listens or connects, with the port that the kernel chose.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads what the monitor has reported, calls `each` with it, and ends connections beyond the limit.
    pub fn note_peers(&mut self, mut each: impl FnMut(PeerEvent)) {
        while let Ok(part) = self.monitor.recv_msg(zmq::DONTWAIT) {
            if let Some(event) = self.peers.event(&part) {
                if let (PeerEvent::TooMany(descriptor), Some(port)) = (event, tcp_port(&self.name)) {
                    sys::end_connection(descriptor, port);
                }
                each(event);
            }
            // The second part is the address.
            while self.monitor.get_rcvmore() == Ok(true) && self.monitor.recv_msg(zmq::DONTWAIT).is_ok() {}
        }
    }

    /// Connections that are open, as last noted.
    pub fn peers(&self) -> usize {
        self.peers.count()
    }

    /// Connections that exceeded the limit, as last noted.
    pub fn refused(&self) -> u64 {
        self.peers.refused()
    }

    /// Becomes readable when there is something to note.
    pub fn monitor(&self) -> &Socket {
        &self.monitor
    }
}

/// Sets how connections are made and given up, alike for all sockets.
fn set_connection(socket: &Socket, address: &str) -> zmq::Result<()> {
    // A peer that disappears without closing is noticed after 60 s of silence and 10 probes.
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_cnt(10)?;
    socket.set_tcp_keepalive_idle(60)?;
    socket.set_tcp_keepalive_intvl(1)?;
    // A peer that connects and sends no greeting is disconnected.
    socket.set_handshake_ivl(HANDSHAKE_MS)?;
    socket.set_reconnect_ivl(100)?;
    socket.set_reconnect_ivl_max(2000)?;
    if address.contains('[') {
        socket.set_ipv6(true)?;
    }
    Ok(())
}

fn monitor(context: &Context, socket: &Socket) -> zmq::Result<Socket> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let address = format!("inproc://peers-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    socket.monitor(&address, i32::from(PEER_EVENTS))?;
    let monitor = context.socket(zmq::PAIR)?;
    monitor.set_linger(0)?;
    // Without a limit, because a full queue would hold up the thread that serves all sockets; each call empties it.
    monitor.set_rcvhwm(0)?;
    monitor.connect(&address)?;
    Ok(monitor)
}
