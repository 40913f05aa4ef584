//! A ZeroMQ socket that answers requests. Clients of REQ ask for one message after the other; each gets its answer when
//! there is one, and none waits for another one.
//!
//! Facts relied on (libzmq 4.3): a request reaches ROUTER as the identity of its client, an empty part and the request,
//! and an answer goes back in the same form. With ROUTER_MANDATORY a message to a client that is gone is refused.

use crate::sys;
use bytes::Bytes;
use konkordia_core::endpoint::failed;
use konkordia_zeromq::{MonitoredSocket, Place};
use std::io::{self, ErrorKind};
use std::time::Duration;

use ::zmq::Context;

/// Requests that may wait in libzmq for each client; a client of REQ never has more than one.
const REQUESTS_MAX: i32 = 4;

/// Longest request; a client that sends a longer one is disconnected by libzmq.
const REQUEST_BYTES_MAX: i64 = 1 << 16;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZmqRequest {
    /// Its identity, which the answer needs.
    pub client: Vec<u8>,
    /// The first part of the request.
    pub body: Vec<u8>,
}

/// Answers requests of clients of REQ.
pub struct ZmqReply {
    inner: MonitoredSocket,
}

impl ZmqReply {
    /// Listens; when this returns, clients can connect.
    ///
    /// # Errors
    /// In words for users: the address is not valid, in use, not of this machine or not permitted.
    pub fn listen(context: &Context, address: &str, peers_max: usize) -> io::Result<Self> {
        let place = Place { address, bind: true, peers_max };
        let inner = MonitoredSocket::open(context, ::zmq::ROUTER, place, |socket| {
            let set = || -> ::zmq::Result<()> {
                socket.set_linger(0)?;
                socket.set_sndhwm(REQUESTS_MAX)?;
                socket.set_rcvhwm(REQUESTS_MAX)?;
                socket.set_maxmsgsize(REQUEST_BYTES_MAX)?;
                socket.set_router_mandatory(true)
            };
            set().map_err(|error| io::Error::other(format!("{address}: {error}")))
        })?;
        Ok(Self { inner })
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The next request; `None` if nobody asks within `timeout`.
    ///
    /// # Errors
    /// If the socket failed for good.
    pub fn request(&mut self, timeout: Duration) -> io::Result<Option<ZmqRequest>> {
        self.inner.note_peers(|_| ());
        match self.inner.socket.poll(::zmq::POLLIN, i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX)) {
            Ok(0) | Err(::zmq::Error::EINTR) => return Ok(None),
            Ok(_) => (),
            Err(error) => return Err(failed(error)),
        }
        let mut parts = match self.inner.socket.recv_multipart(::zmq::DONTWAIT) {
            Ok(parts) => parts,
            Err(::zmq::Error::EAGAIN | ::zmq::Error::EINTR) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        // What is not of the form of REQ is no request.
        let is_request = parts.len() >= 3 && parts[1].is_empty();
        Ok(is_request.then(|| ZmqRequest { body: std::mem::take(&mut parts[2]), client: parts.swap_remove(0) }))
    }

    /// Sends the answer to a client without waiting; false if it is gone or takes nothing.
    ///
    /// # Errors
    /// If the socket failed for good.
    pub fn answer(&mut self, client: &[u8], parts: &[Bytes]) -> io::Result<bool> {
        let head = [Bytes::copy_from_slice(client), Bytes::new()];
        let count = head.len() + parts.len();
        for (n, part) in head.iter().chain(parts).enumerate() {
            match sys::zmq::send(&mut self.inner.socket, part, n + 1 < count) {
                Ok(true) => (),
                Ok(false) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::HostUnreachable => return Ok(false),
                Err(error) => return Err(io::Error::other(format!("a ZeroMQ socket failed: {error}"))),
            }
        }
        Ok(true)
    }
}
