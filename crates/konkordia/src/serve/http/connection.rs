//! Connections: how many there may be, altogether and from one address, and an end for those that take nothing of what is sent to them.

use crate::serve::security::rate::network;
use axum_server::accept::Accept;
use std::collections::HashMap;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// To whom there is no room for, where that can be said without TLS.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 5\r\nConnection: close\r\n\
Content-Length: 193\r\n\r\n{\"type\":\"urn:konkordia:problem:busy\",\"title\":\"Busy\",\"status\":503,\"code\":\"busy\",\
\"detail\":\"too many connections\",\"hint\":\"close some; all connections of an address and of the service are limited\"}";

/// Lets connections in as far as there is room, then hands them to `inner`.
#[derive(Clone)]
pub struct Gate<A> {
    inner: A,
    rooms: Rooms,
    stall: Duration,
    speaks_plainly: bool,
}

/// Connections that are open.
#[derive(Clone)]
pub struct Rooms {
    open: Arc<Mutex<Open>>,
    max: usize,
    max_per_address: usize,
}

#[derive(Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Rooms {
    /// For so many altogether, and from one address.
    pub fn new(max: usize, max_per_address: usize) -> Self {
        Self { open: Arc::default(), max, max_per_address }
    }

    fn enter(&self, address: IpAddr) -> Option<Room> {
        let address = network(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = open.by_address.get(&address).copied().unwrap_or(0);
        if open.all >= self.max || of_address >= self.max_per_address {
            return None;
        }
        open.all += 1;
        open.by_address.insert(address, of_address + 1);
        Some(Room { rooms: self.clone(), address })
    }
}

/// The place of one connection, given back when it is dropped.
struct Room {
    rooms: Rooms,
    address: IpAddr,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut open = self.rooms.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        if let Some(count) = open.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}

impl<A> Gate<A> {
    /// `stall` = longest time in which a peer may take nothing of what waits for it; `speaks_plainly` = without TLS.
    pub fn new(inner: A, rooms: Rooms, stall: Duration, speaks_plainly: bool) -> Self {
        Self { inner, rooms, stall, speaks_plainly }
    }
}

impl<A, S> Accept<TcpStream, S> for Gate<A>
where
    A: Accept<Guarded, S> + Clone + Send + 'static,
    A::Future: Send,
    S: Send + 'static,
{
    type Stream = A::Stream;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(A::Stream, A::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let gate = self.clone();
        Box::pin(async move {
            stream.set_nodelay(true)?;
            let Some(room) = gate.rooms.enter(stream.peer_addr()?.ip()) else {
                if gate.speaks_plainly {
                    let _ = stream.try_write(FULL);
                }
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "too many connections"));
            };
            let guarded = Guarded { stream, stall: gate.stall, timer: Box::pin(sleep(gate.stall)), stalled: false, _room: room };
            gate.inner.accept(guarded, service).await
        })
    }
}

/// A connection that ends when its peer takes nothing for too long.
pub struct Guarded {
    stream: TcpStream,
    stall: Duration,
    timer: Pin<Box<Sleep>>,
    stalled: bool,
    _room: Room,
}

impl Guarded {
    fn watch<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = false;
            return result;
        }
        if !self.stalled {
            self.stalled = true;
            let end = Instant::now() + self.stall;
            self.timer.as_mut().reset(end);
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(result, cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_those_without_room_has_the_length_that_it_says() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len()))
                || head.ends_with(&format!("Content-Length: {}", body.len())),
            "{}",
            body.len()
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["code"], "busy");
    }

    #[test]
    fn rooms_are_given_back() {
        let rooms = Rooms::new(3, 2);
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let first = rooms.enter(a);
        let second = rooms.enter(a);
        assert!(first.is_some() && second.is_some() && rooms.enter(a).is_none(), "two of one address");
        let third = rooms.enter(b);
        assert!(third.is_some() && rooms.enter(b).is_none(), "three altogether");
        drop(first);
        assert!(rooms.enter(b).is_some());
        drop((second, third));
        assert!(rooms.open.lock().unwrap().by_address.is_empty());
    }
}
