//! The system calls of the UDP sources; the files beside this one, and `xdp/sys.rs` and `xdp/rings.rs`, hold those of
//! the other sources. Nothing else in this crate is `unsafe`.

pub(crate) mod allocator;
pub(crate) mod inotify;
pub(crate) mod interfaces;
pub(crate) mod limits;
pub(crate) mod options;
pub(crate) mod packet;
pub(crate) mod zmq;

use konkordia_core::ports::NextPlaces;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Bytes of control data per message: room for the GRO size and the drop counter.
const CONTROL_BYTES: usize = 128;
/// Most datagrams of one message whose payloads get places (`UDP_GRO_CNT_MAX`).
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Longest head of a datagram that is kept apart from its payload.
pub(crate) const HEAD_BYTES_MAX: usize = 64;

/// Buffers for one `recvmmsg` call, allocated once.
pub(crate) struct Batch {
    buffers: Vec<u8>,
    buffer_bytes: usize,
    /// Heads of the datagrams whose payloads are received into places.
    heads: Vec<[u8; HEAD_BYTES_MAX]>,
    controls: Vec<[u64; CONTROL_BYTES / 8]>,
    names: Vec<libc::sockaddr_storage>,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the raw pointers in `headers` and `vectors` are rebuilt before each system call and point only into the other
// fields.
unsafe impl Send for Batch {}

/// One received message.
pub(crate) struct Message<'a> {
    pub bytes: &'a [u8],
    /// Who sent it; GRO joins datagrams of one sender only.
    pub from: Option<SocketAddr>,
    /// Size of the datagrams that GRO joined.
    pub segment_bytes: Option<usize>,
    /// The socket's drop counter when this message was queued.
    pub drops: Option<u32>,
}

impl Batch {
    pub(crate) fn new(messages: usize, buffer_bytes: usize) -> Self {
        let iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            buffers: vec![0; messages * buffer_bytes],
            buffer_bytes,
            heads: vec![[0; HEAD_BYTES_MAX]; messages * SEGMENTS_MAX],
            controls: vec![[0; CONTROL_BYTES / 8]; messages],
            // SAFETY: `sockaddr_storage` is a plain C struct for which all zero bytes are valid.
            names: vec![unsafe { zeroed() }; messages],
            // SAFETY: `mmsghdr` is a plain C struct for which all zero bytes are valid.
            headers: vec![unsafe { zeroed() }; messages],
            vectors: vec![iovec; messages * (2 * SEGMENTS_MAX + 1)],
        }
    }

    /// Points every header at its buffer. Cheap next to the system call, and keeps the struct free to move.
    fn prepare(&mut self) -> usize {
        for i in 0..self.headers.len() {
            self.vectors[i] = vector(&mut self.buffers[i * self.buffer_bytes..][..self.buffer_bytes]);
            self.point(i, i..i + 1);
        }
        self.headers.len()
    }

    /// As [`Self::prepare`], for messages that each join `segments` datagrams of the next packets: head, place, head,
    /// place, and so on. What does not fit goes to the buffer of the message. Returns how many messages the places are
    /// for.
    fn prepare_places(&mut self, next: &mut NextPlaces<'_>, segments: usize) -> usize {
        let messages = next.packets.len().div_ceil(segments).min(self.headers.len());
        let mut places = next.places.chunks_exact_mut(next.payload_bytes);
        let mut used = 0;
        for i in 0..messages {
            let first = used;
            let heads = self.heads[i * SEGMENTS_MAX..][..segments].iter_mut();
            for (head, place) in heads.zip(places.by_ref().take(segments)) {
                self.vectors[used] = vector(&mut head[..next.head_bytes]);
                self.vectors[used + 1] = vector(place);
                used += 2;
            }
            self.vectors[used] = vector(&mut self.buffers[i * self.buffer_bytes..][..self.buffer_bytes]);
            used += 1;
            self.point(i, first..used);
        }
        messages
    }

    /// Points header `i` at these vectors, and at its own memory for the rest.
    fn point(&mut self, i: usize, vectors: Range<usize>) {
        let header = &mut self.headers[i].msg_hdr;
        header.msg_name = (&raw mut self.names[i]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iovlen = vectors.len();
        header.msg_iov = self.vectors[vectors].as_mut_ptr();
        header.msg_control = self.controls[i].as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
        header.msg_flags = 0;
    }

    /// What is known of message `i` of the last call.
    pub(crate) fn message(&self, i: usize) -> Message<'_> {
        let length = (self.headers[i].msg_len as usize).min(self.buffer_bytes);
        let bytes = &self.buffers[i * self.buffer_bytes..][..length];
        let (segment_bytes, drops) = read_control(&self.headers[i].msg_hdr);
        Message { bytes, from: read_name(&self.names[i]), segment_bytes, drops }
    }

    /// The head of datagram `segment` of message `i` of the last call.
    pub(crate) fn head(&self, i: usize, segment: usize) -> &[u8; HEAD_BYTES_MAX] {
        &self.heads[i * SEGMENTS_MAX + segment]
    }

    /// Brings message `i` of the last call, of which the first bytes went to the heads and `places` of the packets
    /// from `first` of the loan on, into its buffer as one piece.
    pub(crate) fn gather(&mut self, i: usize, first: usize, next: &NextPlaces<'_>, segments: usize) {
        let length = (self.headers[i].msg_len as usize).min(self.buffer_bytes);
        let places = next.places.chunks_exact(next.payload_bytes).skip(first).take(segments);
        let apart = places.len() * (next.head_bytes + next.payload_bytes);
        let buffer = &mut self.buffers[i * self.buffer_bytes..][..self.buffer_bytes];
        if length > apart {
            buffer.copy_within(..length - apart, apart);
        }
        let heads = &self.heads[i * SEGMENTS_MAX..];
        let pieces = heads.iter().zip(places).flat_map(|(head, place)| [&head[..next.head_bytes], place]);
        let mut at = 0;
        for piece in pieces {
            let bytes = piece.len().min(length - at);
            buffer[at..at + bytes].copy_from_slice(&piece[..bytes]);
            at += bytes;
        }
    }

    /// The first `count` messages of the last call.
    pub(crate) fn messages(&self, count: usize) -> impl Iterator<Item = Message<'_>> {
        (0..count).map(|i| self.message(i))
    }
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// The address that the kernel wrote for one message.
fn read_name(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that these bytes are a `sockaddr_in`, which is smaller than the storage and not
            // stricter aligned.
            let v4 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above for a `sockaddr_in6`.
            let v6 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::from((Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port))))
        }
        _ => None,
    }
}

/// Reads the GRO size and the drop counter from the control data of one message.
fn read_control(header: &libc::msghdr) -> (Option<usize>, Option<u32>) {
    let (mut segment, mut drops) = (None, None);
    // SAFETY: `header` was filled by `recvmmsg` with control data in a live buffer of `msg_controllen` bytes; the CMSG
    // functions stay inside.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let data = libc::CMSG_DATA(control);
            match ((*control).cmsg_level, (*control).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => segment = usize::try_from(data.cast::<libc::c_int>().read_unaligned()).ok(),
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => drops = Some(data.cast::<u32>().read_unaligned()),
                _ => {}
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    (segment, drops)
}

/// Takes what is in the socket without waiting; 0 = nothing.
pub(crate) fn receive_batch(socket: &UdpSocket, batch: &mut Batch) -> io::Result<usize> {
    let count = batch.prepare();
    receive_prepared(socket, batch, count)
}

/// As [`receive_batch`], with the payloads of the next packets in their places ([`Batch::prepare_places`]).
pub(crate) fn receive_into_places(
    socket: &UdpSocket,
    batch: &mut Batch,
    next: &mut NextPlaces<'_>,
    segments: usize,
) -> io::Result<usize> {
    let count = batch.prepare_places(next, segments);
    receive_prepared(socket, batch, count)
}

/// Takes at most `count` messages into memory at which one of the two functions above has just pointed their headers.
fn receive_prepared(socket: &UdpSocket, batch: &mut Batch, count: usize) -> io::Result<usize> {
    assert!(count <= batch.headers.len(), "there is a header for each message");
    let (headers, count) = (batch.headers.as_mut_ptr(), count as libc::c_uint);
    // SAFETY: the caller has just pointed `count` headers at buffers of the stated lengths, parts of `batch` and of
    // places that it borrows mutably until this call returns, so they live and nothing else uses them.
    let n = unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, count, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
    if n >= 0 {
        return Ok(n as usize);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => Ok(0),
        _ => Err(error),
    }
}

/// Waits until the descriptor can be read, `timeout` is over or a signal came.
pub(crate) fn wait_readable(from: &impl AsRawFd, timeout: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos().into() };
    // SAFETY: one valid `pollfd` and a valid time-out; no signal mask.
    let n = unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) };
    if n < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

fn set_option(socket: &UdpSocket, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    options::set(socket, level, option, &value)
}

/// Asks for a receive buffer (beyond `rmem_max` if the process may) and returns what the kernel gave, without its
/// doubling.
pub(crate) fn set_receive_buffer(socket: &UdpSocket, bytes: usize) -> io::Result<usize> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX / 2).min(libc::c_int::MAX / 2);
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    }
    let mut given: libc::c_int = 0;
    options::get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &mut given)?;
    Ok(given as usize / 2)
}

pub(crate) fn enable_drop_counter(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Datagrams are sent in one packet each, with identification 0, and without a checksum of UDP.
pub(crate) fn leave_whole_and_unchecked(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
}

pub(crate) fn enable_gro(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// The socket's drop counter, from `SO_MEMINFO`.
pub(crate) fn socket_drops(socket: &UdpSocket) -> io::Result<u32> {
    const SO_MEMINFO: libc::c_int = 55;
    const SK_MEMINFO_DROPS: usize = 8;
    let mut info = [0u32; 9];
    if options::get(socket, libc::SOL_SOCKET, SO_MEMINFO, &mut info)? < size_of::<[u32; 9]>() {
        return Err(io::Error::other("the kernel does not report drops in SO_MEMINFO"));
    }
    Ok(info[SK_MEMINFO_DROPS])
}

/// Sends one buffer as several datagrams of `segment_bytes`.
pub(crate) fn send_gso(socket: &UdpSocket, buffer: &[u8], segment_bytes: u16) -> io::Result<()> {
    let mut vector = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
    let mut control = [0u64; 4];
    // SAFETY: `msghdr` is a plain C struct for which zero is valid; the control buffer has room for one header and a
    // u16 (24 of 32 bytes), is aligned for `cmsghdr`, and all pointers live until `sendmsg` returns, which only reads
    // them.
    let sent = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment_bytes);
        libc::sendmsg(socket.as_raw_fd(), &raw const header, 0)
    };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A 32-bit counter of the kernel that wraps, widened.
#[derive(Debug, Default)]
pub(crate) struct DropCounter {
    last: u32,
    total: u64,
}

impl DropCounter {
    /// Takes a newer reading. An older one (a message that waited in the socket while the counter was read directly)
    /// changes nothing.
    pub(crate) fn observe(&mut self, counter: u32) {
        let step = counter.wrapping_sub(self.last);
        if step < u32::MAX / 2 {
            self.total += u64::from(step);
            self.last = counter;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::DropCounter;

    #[test]
    fn the_drop_counter_wraps_and_ignores_older_readings() {
        let mut c = DropCounter::default();
        for reading in [5, 3, u32::MAX / 3, u32::MAX / 3 * 2, u32::MAX - 1, 4] {
            c.observe(reading);
        }
        assert_eq!(c.total(), u64::from(u32::MAX) + 5);
    }
}
