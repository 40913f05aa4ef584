//! UDP sockets for one stream: receiving with `recvmmsg` and GRO, sending with GSO.
//!
//! With GRO the kernel hands over several datagrams of one sender as one buffer and gives their size; with GSO the
//! sender does the reverse. Both save most of the cost per packet. In a run the kernel writes payloads to the places
//! where they are expected, so that nobody copies them a second time (`expected.rs`). The kernel counts the datagrams
//! that it drops because the socket's buffer is full (`SO_RXQ_OVFL`); a joined buffer counts once.

use crate::expected::Expected;
use crate::sys;
use konkordia_core::ports::{FillingSource, NextPlaces, Source, TilePlaces};
use konkordia_core::sender::Sender;
use libc::{EINVAL, EIO, EMSGSIZE, EOPNOTSUPP};
use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Buffers of one `recvmmsg` call.
const BATCH: usize = 32;
/// Bytes of one buffer: the largest UDP datagram, and the largest that GRO builds.
const BUFFER_BYTES: usize = 65536;
/// Most payload bytes of one GSO send (the largest UDP payload over IPv4).
const GSO_BYTES_MAX: usize = 65507;
/// Most segments of one GSO send (`UDP_MAX_SEGMENTS` of older kernels).
const GSO_SEGMENTS_MAX: usize = 64;

/// The kernel's limit for receive buffers (`net.core.rmem_max`), if it can be read.
pub fn kernel_receive_buffer_bytes_max() -> Option<usize> {
    std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?.trim().parse().ok()
}

/// A bound socket that lends the datagrams of one stream. Memory: 32 buffers of 64 KiB, allocated when it is made.
pub struct UdpReceiver {
    socket: UdpSocket,
    receive_buffer_bytes: usize,
    batch: sys::Batch,
    expected: Expected,
    dropped: sys::DropCounter,
}

impl UdpReceiver {
    /// Binds `address` and asks for `receive_buffer_bytes`; the kernel may give less, see
    /// [`UdpReceiver::receive_buffer_bytes`].
    ///
    /// # Errors
    /// The address is in use, is not one of this machine, or needs a privilege.
    pub fn bind(address: SocketAddr, receive_buffer_bytes: usize) -> io::Result<Self> {
        let receiver = Self::bind_without_gro(address, receive_buffer_bytes)?;
        // Kernels before 5.0 have no GRO for UDP: datagrams then come one by one, which is slower but right.
        let _ = sys::enable_gro(&receiver.socket);
        Ok(receiver)
    }

    /// As [`UdpReceiver::bind`], but the kernel joins no datagrams: it would do so before a program of XDP in the
    /// network stack sees them.
    pub(crate) fn bind_without_gro(address: SocketAddr, receive_buffer_bytes: usize) -> io::Result<Self> {
        Self::over(UdpSocket::bind(address)?, receive_buffer_bytes)
    }

    /// Over a socket that is bound; the kernel joins no datagrams.
    pub(crate) fn over(socket: UdpSocket, receive_buffer_bytes: usize) -> io::Result<Self> {
        let receive_buffer_bytes = sys::set_receive_buffer(&socket, receive_buffer_bytes)?;
        sys::enable_drop_counter(&socket)?;
        Ok(Self {
            socket,
            receive_buffer_bytes,
            batch: sys::Batch::new(BATCH, BUFFER_BYTES),
            expected: Expected::default(),
            dropped: sys::DropCounter::default(),
        })
    }

    /// Bytes of payload that the kernel keeps for this socket. The kernel counts its own overhead against twice this
    /// number.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// The caller must learn that the socket was empty, even if datagrams come all the time: those that come now are
    /// for the next call.
    fn wait_if_empty(&self, messages: usize, timeout: Duration) -> io::Result<()> {
        if messages == 0 && !timeout.is_zero() { sys::wait_readable(&self.socket, timeout) } else { Ok(()) }
    }

    /// The address that was bound, with the port that the kernel chose if 0 was asked for.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl AsFd for UdpReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Source for UdpReceiver {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        let messages = sys::receive_batch(&self.socket, &mut self.batch)?;
        self.wait_if_empty(messages, timeout)?;
        let mut count = 0;
        for message in self.batch.messages(messages) {
            count += hand_out(&message, sender_of(&message, &mut self.dropped), take);
        }
        Ok(count)
    }

    fn dropped(&mut self) -> u64 {
        // The counter in the messages stands still when nothing more is received; the socket's own is always up to
        // date.
        if let Ok(drops) = sys::socket_drops(&self.socket) {
            self.dropped.observe(drops);
        }
        self.dropped.total()
    }

    fn filling(&mut self) -> Option<&mut dyn FillingSource> {
        Some(self)
    }
}

impl FillingSource for UdpReceiver {
    fn receive_into(&mut self, timeout: Duration, places: &mut dyn TilePlaces) -> io::Result<usize> {
        let next = if self.expected.pays() { places.lend_next() } else { None };
        let Some(mut next) = next.filter(|next| next.head_bytes <= sys::HEAD_BYTES_MAX) else {
            return self.receive(timeout, &mut |datagram, sender| places.take(datagram, sender));
        };
        let segments = self.expected.segments();
        let messages = sys::receive_into_places(&self.socket, &mut self.batch, &mut next, segments)?;
        let mut shape = Shape::new(&next, segments);
        for i in 0..messages {
            shape.is_apart[i] = shape.is_divided_so(&self.batch.message(i));
            if !shape.is_apart[i] {
                self.batch.gather(i, i * segments, &next, segments);
            }
        }
        self.wait_if_empty(messages, timeout)?;
        let mut count = 0;
        for i in 0..messages {
            let message = self.batch.message(i);
            let from = sender_of(&message, &mut self.dropped);
            if !shape.is_apart[i] {
                self.expected.came_otherwise();
                count += hand_out(&message, from, &mut |datagram, from| places.take(datagram, from));
                continue;
            }
            let datagrams = message.bytes.len().div_ceil(shape.datagram_bytes);
            self.expected.came(datagrams, shape.places_of(i));
            for n in 0..datagrams {
                let bytes = (message.bytes.len() - n * shape.datagram_bytes).min(shape.datagram_bytes);
                match n.checked_sub(shape.places_of(i)) {
                    None => {
                        let head = &self.batch.head(i, n)[..shape.head_bytes];
                        places.filled(shape.first + (i * segments + n) as u16, head, bytes - shape.head_bytes, from);
                    }
                    Some(behind) => places.take(&message.bytes[behind * shape.datagram_bytes..][..bytes], from),
                }
            }
            count += datagrams;
        }
        Ok(count)
    }
}

/// How the messages of one call were to be divided into heads and places.
struct Shape {
    /// The first packet of the loan, and how many there are.
    first: u16,
    packets: usize,
    segments: usize,
    head_bytes: usize,
    datagram_bytes: usize,
    /// The messages that are divided in this way.
    is_apart: [bool; BATCH],
}

impl Shape {
    fn new(next: &NextPlaces<'_>, segments: usize) -> Self {
        let (first, packets, head_bytes) = (next.packets.start, next.packets.len(), next.head_bytes);
        Self { first, packets, segments, head_bytes, datagram_bytes: head_bytes + next.payload_bytes, is_apart: [false; BATCH] }
    }

    /// Places that message `i` had.
    fn places_of(&self, i: usize) -> usize {
        (self.packets - i * self.segments).min(self.segments)
    }

    /// True if each datagram of the message has a head, and a payload in the place behind it or in none.
    fn is_divided_so(&self, message: &sys::Message<'_>) -> bool {
        let bytes = message.bytes.len();
        let last_bytes = bytes % self.datagram_bytes;
        let is_of_size = match message.segment_bytes.filter(|bytes| *bytes > 0) {
            Some(segment_bytes) => segment_bytes == self.datagram_bytes,
            None => bytes <= self.datagram_bytes,
        };
        is_of_size && bytes > 0 && (last_bytes == 0 || last_bytes >= self.head_bytes)
    }
}

/// The sender of a message; notes the drops that the kernel had counted before it.
fn sender_of(message: &sys::Message<'_>, dropped: &mut sys::DropCounter) -> Sender {
    if let Some(drops) = message.drops {
        dropped.observe(drops);
    }
    message.from.map_or(Sender::NONE, Sender::from)
}

/// Hands out the datagrams of a message that lies in one piece; returns how many there are.
fn hand_out(message: &sys::Message<'_>, from: Sender, take: &mut dyn FnMut(&[u8], Sender)) -> usize {
    if message.bytes.is_empty() {
        take(message.bytes, from);
        return 1;
    }
    // Every segment but the last has this size; without GRO there is one segment.
    let segment = message.segment_bytes.filter(|bytes| *bytes > 0).unwrap_or(message.bytes.len());
    let datagrams = message.bytes.chunks(segment);
    let count = datagrams.len();
    datagrams.for_each(|datagram| take(datagram, from));
    count
}

/// A socket that sends datagrams of one stream.
pub struct UdpSender {
    socket: UdpSocket,
    gso: bool,
    /// Where to, if it is not connected.
    to: Option<SocketAddr>,
}

impl UdpSender {
    /// Connects to `to` from any local port.
    ///
    /// # Errors
    /// The address cannot be reached, or there is no port left.
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(Self { socket, gso: true, to: None })
    }

    /// Sends to `to` as senders of RoCEv2 do over IPv4: each datagram in one packet with identification 0, never cut,
    /// without a checksum of UDP. The kernel gives identifications to the packets of connected sockets.
    ///
    /// # Errors
    /// As [`UdpSender::connect`]; also if `to` is not of IPv4.
    pub fn for_roce(to: SocketAddrV4) -> io::Result<Self> {
        let way = UdpSocket::bind("0.0.0.0:0")?;
        way.connect(to)?;
        let socket = UdpSocket::bind((way.local_addr()?.ip(), 0))?;
        sys::leave_whole_and_unchecked(&socket)?;
        Ok(Self { socket, gso: false, to: Some(to.into()) })
    }

    /// From where it sends.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends one datagram. It is not an error if nobody listens at the other end: UDP does not know.
    ///
    /// # Errors
    /// The datagram is too long, or the network is down.
    pub fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let socket = &self.socket;
        retry(|| self.to.map_or_else(|| socket.send(datagram), |to| socket.send_to(datagram, to)).map(|_| ()))
    }

    /// Sends `buffer` as datagrams of `segment_bytes` (the last may be shorter), several per system call where the
    /// kernel can (GSO).
    ///
    /// # Errors
    /// As [`UdpSender::send`].
    pub fn send_segments(&mut self, buffer: &[u8], segment_bytes: usize) -> io::Result<()> {
        assert!(segment_bytes > 0);
        let segments = (GSO_BYTES_MAX / segment_bytes).clamp(1, GSO_SEGMENTS_MAX);
        for group in buffer.chunks(segments * segment_bytes) {
            if self.gso && group.len() > segment_bytes {
                match retry(|| sys::send_gso(&self.socket, group, segment_bytes as u16)) {
                    Ok(()) => continue,
                    // Not supported by this kernel or device, or the MTU is below the segment (EINVAL, since Linux 6.14
                    // EMSGSIZE): go on without, the kernel then sends fragments.
                    Err(e) if matches!(e.raw_os_error(), Some(EINVAL | EIO | EOPNOTSUPP | EMSGSIZE)) => self.gso = false,
                    Err(e) => return Err(e),
                }
            }
            for datagram in group.chunks(segment_bytes) {
                self.send(datagram)?;
            }
        }
        Ok(())
    }
}

/// Repeats a send that was interrupted, found no buffer space, or got the error of an earlier datagram to which nobody
/// listened.
fn retry(mut send: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const TRIES: usize = 1000;
    for _ in 0..TRIES {
        match send() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted || e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => std::thread::sleep(Duration::from_micros(50)),
            other => return other,
        }
    }
    send()
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
