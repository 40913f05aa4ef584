//! Connections: accepted within the limits, and closed when their place is needed or when the peer takes nothing of
//! what is sent to it.

use super::connection_slots::{ConnectionSlot, ConnectionSlots, Seat};
use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tower::Layer;

/// The answer to a connection beyond the limits. It is sent only without TLS.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 5\r\nConnection: close\r\n\
Content-Length: 198\r\n\r\n{\"type\":\"urn:konkordia:problem:busy\",\"title\":\"Busy\",\"status\":503,\"code\":\"busy\",\
\"detail\":\"too many connections\",\"hint\":\"close some; the number of connections is limited, for each address and in all\"}";

/// Accepts connections within the limits, then hands them to `inner`.
#[derive(Clone)]
pub struct LimitedAcceptor<A> {
    inner: A,
    connection_slots: ConnectionSlots,
    stall: Duration,
    is_plain: bool,
}

impl<A> LimitedAcceptor<A> {
    /// `stall` = longest time in which a peer may take nothing of what waits for it; `is_plain` = without TLS.
    pub fn new(inner: A, connection_slots: ConnectionSlots, stall: Duration, is_plain: bool) -> Self {
        Self { inner, connection_slots, stall, is_plain }
    }
}

impl<A, S> Accept<TcpStream, S> for LimitedAcceptor<A>
where
    A: Accept<Guarded, AddExtension<S, Arc<Seat>>> + Clone + Send + 'static,
    A::Future: Send,
    S: Send + 'static,
{
    type Stream = A::Stream;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(A::Stream, A::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let acceptor = self.clone();
        Box::pin(async move {
            stream.set_nodelay(true)?;
            let Some(room) = acceptor.connection_slots.enter(stream.peer_addr()?.ip()) else {
                if acceptor.is_plain {
                    let _ = stream.try_write(FULL);
                }
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "too many connections"));
            };
            let service = Extension(Arc::clone(&room.0)).layer(service);
            let guarded = Guarded { stream, stall: acceptor.stall, timer: Box::pin(sleep(acceptor.stall)), stalled: false, room };
            acceptor.inner.accept(guarded, service).await
        })
    }
}

/// A connection that ends when its peer takes nothing for too long, or when its place is needed.
pub struct Guarded {
    stream: TcpStream,
    stall: Duration,
    timer: Pin<Box<Sleep>>,
    stalled: bool,
    room: ConnectionSlot,
}

impl Guarded {
    fn watch<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            if std::mem::take(&mut self.stalled) {
                self.room.0.is_sending.store(false, Ordering::Relaxed);
            }
            return result;
        }
        if !self.stalled {
            self.stalled = true;
            self.room.0.is_sending.store(true, Ordering::Relaxed);
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
        if self.room.0.was_sent_away(cx.waker()) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "its place was needed")));
        }
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
}
