//! Whole messages from ZeroMQ sockets, handed over with the memory that libzmq received them into.
//!
//! Facts relied on (libzmq 4.3, `pipe.cpp`): a message comes with all its parts or not at all. The high water mark
//! counts whole messages per connection and holds back the sender through TCP. libzmq restores a connection that
//! breaks. A part beyond the size limit ends its connection; the module `connections` limits messages of many parts.
//!
//! A change of the high water mark takes effect on existing connections. But the reader reports to the writer how many
//! messages it has read only every mark / 2 messages, so that a change at the wrong moment leaves a full writer waiting
//! for a report that never comes. A change is safe right after a report, to any lower mark or to at most twice the
//! mark: then the next report comes before the writer has filled the queue. `Queue` finds these moments by counting,
//! which requires a single connection. A listening socket may have several and keeps the lowest mark, because neither
//! the size of the messages nor the number of senders is known.
//!
//! libzmq 4.3.5 tells a changed mark to both ends of every queue of the socket. Between the moment in which this side
//! has agreed to end the queue of a closed connection and the moment in which it learns that the other end is gone, it
//! tells a freed object, and the program dies (seen with gdb in `object_t::process_command`; libzmq issue 3446 is the
//! same for statistics). So the mark is not changed while a connection may be ending; `Ending` knows when.

use crate::connections::Connections;
use crate::sys;
use bytes::Bytes;
use konkordia_core::endpoint::{PEERS_MAX, PeerEvent, failed};
use konkordia_core::ports::{Message, MessageSource};
use konkordia_zeromq::{MonitoredSocket, Place};
use std::io;
use std::time::{Duration, Instant};

pub use ::zmq::Context;

/// Parts of a message that are kept. No format has as many, so the reader of a message with more refuses it.
const PARTS_MAX: usize = 1024;
/// Parts up to this size are copied: they are texts, and libzmq would keep a buffer of 8 KiB for each.
const COPIED_BYTES_MAX: usize = 1024;
/// libzmq's name for the descriptor of the connection from which a message came.
const DESCRIPTOR: &str = "__fd";
/// Shortest queue, however large the messages are: one message is received while the other is taken.
const QUEUE_MESSAGES_MIN: u64 = 2;
/// Longest queue; more messages do not make it faster.
const QUEUE_MESSAGES_MAX: u64 = 1024;

/// How messages are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZmqKind {
    /// PULL: the senders divide the messages among their receivers.
    Pull,
    /// SUB, to everything: every receiver gets every message, and the sender drops what a slow one does not take.
    Sub,
}

/// A socket to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZmqSourceSpec {
    /// `tcp://HOST:PORT` or `ipc://PATH`; a listening socket may have port `*`.
    pub address: String,
    /// Listens there; otherwise connects.
    pub bind: bool,
    /// How messages are received.
    pub kind: ZmqKind,
    /// Connecting socket: messages that may wait in each connection until their size is known, at least 2. Afterwards
    /// the number follows [`MessageSource::bound`]. In each connection of a listening socket 2 messages may wait, and a
    /// third may be on the way.
    pub queue_messages: i32,
    /// Bytes that a message may have, all parts together; a sender of more is disconnected.
    pub message_bytes_max: u64,
    /// Connections that a socket listening for TCP keeps; further ones are closed.
    pub peers_max: usize,
}

impl ZmqSourceSpec {
    /// A connecting PULL socket for messages of up to 1 GiB, 16 of which may wait until their size is known.
    pub fn pull(address: impl Into<String>) -> Self {
        let (address, kind, peers_max) = (address.into(), ZmqKind::Pull, PEERS_MAX);
        Self { address, bind: false, kind, queue_messages: 16, message_bytes_max: 1 << 30, peers_max }
    }
}

/// A context with this many threads that read and write the sockets made from it; one thread is enough for about 3
/// GB/s.
///
/// # Errors
/// A number of threads that libzmq does not accept.
pub fn context(io_threads: usize) -> io::Result<Context> {
    let context = Context::new();
    let threads = i32::try_from(io_threads).map_err(io::Error::other)?;
    context.set_io_threads(threads).map_err(|e| io::Error::other(format!("ZeroMQ cannot use {io_threads} threads: {e}")))?;
    Ok(context)
}

/// Lets the allocator keep the memory of large messages for the next ones instead of giving it back to the kernel each
/// time. To be called once, at the start of the program and before its threads; the memory of the program then stays at
/// its peak.
pub fn keep_memory_of_messages() {
    sys::allocator::keep_large();
}

/// Receives messages from one ZeroMQ socket.
pub struct ZmqSource {
    inner: MonitoredSocket,
    connections: Connections,
    cut: usize,
    bind: bool,
    /// Messages read so far.
    read: u64,
    peers_max: usize,
    /// Messages of a connection came before it was known to be open, so that their number is not known.
    has_lost_count: bool,
    queue: Queue,
    ending: Ending,
}

/// The high water mark of a socket, and when it may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queue {
    /// The mark that is set.
    mark: i32,
    /// The mark that is wanted.
    wanted: i32,
}

impl Queue {
    fn new(mark: i32) -> Self {
        Self { mark, wanted: mark }
    }

    /// The new mark, if it can be set when so many messages were read from the only connection: one that is set while
    /// reads are not reported may leave the writer waiting for ever.
    fn after(&self, messages: u64) -> Option<i32> {
        // libzmq's low water mark: the reader reports to the writer after this many messages.
        let reports_every = (self.mark as u64).div_ceil(2);
        let is_due = self.wanted != self.mark && messages.is_multiple_of(reports_every);
        is_due.then(|| self.wanted.min(self.mark.saturating_mul(2)))
    }
}

/// Whether a connection of a listening socket may be ending, inside libzmq. Its end is agreed on when all its messages
/// are read, and done when the thread that serves all sockets has answered, which takes it microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    None,
    /// A connection has closed; its messages may wait.
    Closed(Instant),
    /// Nothing waited any more.
    Read(Instant),
}

impl Ending {
    /// Far longer than libzmq takes for a step.
    const STEP: Duration = Duration::from_secs(1);

    /// A connection has closed.
    fn closed(&mut self) {
        *self = Self::Closed(Instant::now());
    }

    /// No message waits.
    fn nothing_waits(&mut self) {
        if matches!(self, Self::Closed(at) if at.elapsed() > Self::STEP) {
            *self = Self::Read(Instant::now());
        }
    }

    /// No connection is ending.
    fn is_over(&mut self) -> bool {
        if matches!(self, Self::Read(at) if at.elapsed() > Self::STEP) {
            *self = Self::None;
        }
        *self == Self::None
    }
}

/// A part in the memory of libzmq.
struct Part(::zmq::Message);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl ZmqSource {
    /// Opens the socket; when this returns, senders can connect.
    ///
    /// # Errors
    /// A text for the user: no address, in use, not of this machine, not permitted, or the context has no more sockets.
    pub fn open(context: &Context, spec: &ZmqSourceSpec) -> io::Result<Self> {
        let kind = match spec.kind {
            ZmqKind::Pull => ::zmq::PULL,
            ZmqKind::Sub => ::zmq::SUB,
        };
        let lowest = QUEUE_MESSAGES_MIN as i32;
        let queue = Queue::new(if spec.bind { lowest } else { spec.queue_messages.max(lowest) });
        let connections = Connections::new(spec.message_bytes_max);
        let place = Place { address: &spec.address, bind: spec.bind, peers_max: spec.peers_max };
        let inner = MonitoredSocket::open(context, kind, place, |socket| {
            configure(socket, spec, queue.mark).map_err(|e| io::Error::other(format!("{}: {e}", spec.address)))
        })?;
        Ok(Self {
            inner,
            connections,
            cut: 0,
            bind: spec.bind,
            read: 0,
            peers_max: spec.peers_max,
            has_lost_count: false,
            queue,
            ending: Ending::None,
        })
    }

    /// Senders that are connected now.
    pub fn peers(&mut self) -> usize {
        self.note_peers();
        self.inner.peers()
    }

    /// Reads the announcements of the monitor.
    fn note_peers(&mut self) {
        let Self { inner, connections, ending, .. } = self;
        inner.note_peers(|event| match event {
            PeerEvent::Opened(descriptor) => connections.opened(descriptor as i32),
            PeerEvent::Closed(descriptor) => {
                connections.closed(descriptor as i32);
                ending.closed();
            }
            PeerEvent::TooMany(_) => {}
        });
    }

    /// Reads the rest of a message whose first part has come; libzmq already has the other parts.
    fn message(&mut self, mut first: ::zmq::Message) -> io::Result<Message> {
        let mut more = first.get_more();
        let descriptor = first.gets(DESCRIPTOR).and_then(|text| text.parse().ok());
        let mut parts = Vec::with_capacity(if more { 4 } else { 1 });
        parts.push(bytes(first));
        while more {
            let next = self.inner.socket.recv_msg(0).map_err(failed)?;
            more = next.get_more();
            if parts.len() < PARTS_MAX {
                parts.push(bytes(next));
            }
        }
        let message = Message { parts };
        let read = self.count(descriptor, message.bytes());
        if let Some(mark) = read.and_then(|messages| self.queue.after(messages))
            && self.may_change_mark()
        {
            self.inner.socket.set_rcvhwm(mark).map_err(failed)?;
            self.queue.mark = mark;
        }
        Ok(message)
    }

    /// True if no connection is ending. The one queue of a socket that connects outlives its connections.
    fn may_change_mark(&mut self) -> bool {
        // libzmq announces the end of a connection before it begins to end its queue.
        self.note_peers();
        !self.bind || self.ending.is_over()
    }

    /// Counts a message that was read from a connection. Returns how many messages were read from it if there is no
    /// other one.
    fn count(&mut self, descriptor: Option<i32>, bytes: u64) -> Option<u64> {
        self.read += 1;
        if let Some(descriptor) = descriptor {
            if !self.connections.knows(descriptor) {
                // It has opened since the last look.
                self.note_peers();
                self.has_lost_count |= !self.connections.knows(descriptor);
            }
            self.connections.took(descriptor, bytes);
        }
        // A socket that connects has one queue, which outlives its connections.
        if !self.bind {
            return Some(self.read);
        }
        descriptor.filter(|_| !self.has_lost_count).and_then(|descriptor| self.connections.taken_of_only(descriptor))
    }
}

impl MessageSource for ZmqSource {
    fn receive(&mut self, timeout: Duration, messages_max: usize, into: &mut Vec<Message>) -> io::Result<()> {
        self.watch();
        // While a sender is connected, its connection is checked more often than once per call.
        let end = Instant::now() + timeout;
        let mut taken = 0;
        while taken < messages_max {
            match self.inner.socket.recv_msg(::zmq::DONTWAIT) {
                Ok(first) => {
                    let message = self.message(first)?;
                    into.push(message);
                    taken += 1;
                }
                Err(::zmq::Error::EAGAIN) if taken == 0 => {
                    self.ending.nothing_waits();
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let wait = self.connections.pause().map_or(left, |pause| pause.min(left));
                    let milliseconds = wait.as_millis() + u128::from(!wait.subsec_nanos().is_multiple_of(1_000_000));
                    let wait_ms = i64::try_from(milliseconds).unwrap_or(i64::MAX);
                    // A new connection ends the wait too, because from then on `look` has something to look at.
                    let mut items = [&self.inner.socket, self.inner.monitor()].map(|socket| socket.as_poll_item(::zmq::POLLIN));
                    match ::zmq::poll(&mut items, wait_ms) {
                        Ok(_) => {
                            let has_message = items[0].is_readable();
                            self.note_peers();
                            if !has_message {
                                // No whole message waits.
                                self.cut += self.connections.look(0);
                            }
                        }
                        Err(::zmq::Error::EINTR) => return Ok(()),
                        Err(error) => return Err(failed(error)),
                    }
                }
                Err(::zmq::Error::EAGAIN | ::zmq::Error::EINTR) => break,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    fn watch(&mut self) {
        self.note_peers();
        self.cut += self.connections.look(self.queue.mark as u64);
    }

    fn disconnected(&mut self) -> Option<String> {
        let cut = std::mem::take(&mut self.cut);
        (cut > 0).then(|| {
            let limit = self.connections.message_bytes_max() >> 20;
            format!("a sender was disconnected: its message exceeded {limit} MiB before it ended ([source] message_mib)")
        })
    }

    fn bound(&mut self, message_bytes: u64, queue_bytes: u64) {
        // Of a socket that listens, each connection has a queue of its own.
        let connections = if self.bind { self.peers_max.max(1) as u64 } else { 1 };
        let messages = queue_bytes / connections / message_bytes.max(1);
        self.queue.wanted = messages.clamp(QUEUE_MESSAGES_MIN, QUEUE_MESSAGES_MAX) as i32;
    }

    fn connections_refused(&mut self) -> u64 {
        self.note_peers();
        self.inner.refused()
    }

    fn name(&self) -> String {
        self.inner.name().to_owned()
    }
}

fn configure(socket: &::zmq::Socket, spec: &ZmqSourceSpec, queue_messages: i32) -> ::zmq::Result<()> {
    socket.set_linger(0)?;
    socket.set_rcvhwm(queue_messages)?;
    socket.set_maxmsgsize(i64::try_from(spec.message_bytes_max).unwrap_or(i64::MAX))?;
    if spec.kind == ZmqKind::Sub {
        socket.set_subscribe(b"")?;
    }
    Ok(())
}

fn bytes(part: ::zmq::Message) -> Bytes {
    if part.len() <= COPIED_BYTES_MAX { Bytes::copy_from_slice(&part) } else { Bytes::from_owner(Part(part)) }
}

#[cfg(test)]
#[path = "zmq_tests.rs"]
mod tests;
