//! The link over TCP, which every host has. A header of 32 bytes stands before each write and each message:
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0 | magic | `KLNK` |
//! | 4 | kind | 1 write, 2 write with event, 3 message |
//! | 5 | zero | three bytes |
//! | 8 | key | u64, little endian, as all numbers; 0 in messages |
//! | 16 | offset | u64, bytes from the beginning of the region; 0 in messages |
//! | 24 | length | u32, bytes that follow the header |
//! | 28 | event | u32; 0 where there is none |
//!
//! Bytes of a write go from the socket straight into the region. A header that is not right, or that names a place
//! outside a region, ends the link; no byte of its write is placed.

use crate::{Arrival, Link, LinkError, MESSAGE_BYTES_MAX, Region, RemoteAddress};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A link whose other side takes nothing for so long is given up.
pub(crate) const STUCK: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 32;
const MAGIC: &[u8; 4] = b"KLNK";
/// Longest write, so that a length is known to be right before its bytes are there.
const WRITE_BYTES_MAX: usize = 1 << 30;

/// Waits for other hosts to connect.
pub struct Listener {
    socket: TcpListener,
    name: String,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> Result<Self, LinkError> {
        let name = format!("tcp {address}");
        let socket = TcpListener::bind(address).map_err(|source| LinkError::Io { link: name.clone(), source })?;
        let listener = Self { socket, name };
        listener.said(listener.socket.set_nonblocking(true))?;
        Ok(listener)
    }

    /// The address at which it listens.
    pub fn local_addr(&self) -> Result<SocketAddr, LinkError> {
        self.said(self.socket.local_addr())
    }

    /// The next host that connects, if one does in time.
    pub fn accept(&self, timeout: Duration) -> Result<Option<TcpLink>, LinkError> {
        let end = Instant::now() + timeout;
        loop {
            match self.socket.accept() {
                Ok((socket, address)) => return TcpLink::new(socket, address).map(Some),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return self.said(Err(source)),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
    }

    fn said<T>(&self, result: std::io::Result<T>) -> Result<T, LinkError> {
        result.map_err(|source| LinkError::Io { link: self.name.clone(), source })
    }
}

/// Connects to a [`Listener`].
pub fn connect(address: SocketAddr, timeout: Duration) -> Result<TcpLink, LinkError> {
    let socket = TcpStream::connect_timeout(&address, timeout)
        .map_err(|source| LinkError::Io { link: format!("tcp {address}"), source })?;
    TcpLink::new(socket, address)
}

/// One side of a connection.
pub struct TcpLink {
    socket: TcpStream,
    other: SocketAddr,
    name: String,
    message_bytes_max: usize,
    regions: Vec<(u64, Vec<u8>)>,
    /// The header that is being received.
    header: [u8; HEADER_BYTES],
    have: usize,
    /// What follows the header that was received last.
    body: Body,
}

/// The bytes behind a header, as far as they have come.
enum Body {
    None,
    Write { region: usize, next: usize, end: usize, event: Option<u32> },
    Message { bytes: Vec<u8>, have: usize },
}

impl TcpLink {
    fn new(socket: TcpStream, address: SocketAddr) -> Result<Self, LinkError> {
        let name = format!("tcp {address}");
        let io = |source| LinkError::Io { link: name.clone(), source };
        socket.set_nonblocking(false).map_err(io)?;
        socket.set_nodelay(true).map_err(io)?;
        socket.set_write_timeout(Some(STUCK)).map_err(io)?;
        let options = socket2::SockRef::from(&socket);
        options.set_tcp_user_timeout(Some(STUCK)).map_err(io)?;
        options.set_keepalive(true).map_err(io)?;
        let probes = socket2::TcpKeepalive::new().with_time(STUCK / 2).with_interval(STUCK / 8).with_retries(4);
        options.set_tcp_keepalive(&probes).map_err(io)?;
        Ok(Self {
            socket,
            other: address,
            name,
            message_bytes_max: MESSAGE_BYTES_MAX,
            regions: Vec::new(),
            header: [0; HEADER_BYTES],
            have: 0,
            body: Body::None,
        })
    }

    /// The same, for messages that carry those of users with `more_bytes` before them.
    pub(crate) fn with_longer_messages(self, more_bytes: usize) -> Self {
        Self { message_bytes_max: MESSAGE_BYTES_MAX + more_bytes, ..self }
    }

    /// Address of this side.
    pub(crate) fn local_addr(&self) -> Result<SocketAddr, LinkError> {
        self.socket.local_addr().map_err(|error| self.io(error))
    }

    /// Address of the other side.
    pub(crate) fn other(&self) -> SocketAddr {
        self.other
    }

    fn io(&self, source: std::io::Error) -> LinkError {
        match source.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                LinkError::Closed { link: self.name.clone() }
            }
            _ => LinkError::Io { link: self.name.clone(), source },
        }
    }

    fn broken(&self, why: String) -> LinkError {
        LinkError::Broken { link: self.name.clone(), why }
    }

    fn refused(&self, why: String) -> LinkError {
        LinkError::Refused { link: self.name.clone(), why }
    }

    fn put(&mut self, header: &[u8; HEADER_BYTES], bytes: &[u8]) -> Result<(), LinkError> {
        let mut slices = [IoSlice::new(header), IoSlice::new(bytes)];
        let mut left = &mut slices[..];
        while left.iter().any(|slice| !slice.is_empty()) {
            match self.socket.write_vectored(left) {
                Ok(0) => return Err(LinkError::Closed { link: self.name.clone() }),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    /// Understands a whole header.
    fn begin(&mut self) -> Result<(), LinkError> {
        let number = |at: usize| u64::from_le_bytes(self.header[at..at + 8].try_into().expect("eight bytes"));
        let word = |at: usize| u32::from_le_bytes(self.header[at..at + 4].try_into().expect("four bytes"));
        let (kind, key, offset) = (self.header[4], number(8), number(16));
        let (length, event) = (word(24) as usize, word(28));
        if &self.header[..4] != MAGIC || self.header[5..8] != [0; 3] {
            return Err(self.broken("what should be a header is none".into()));
        }
        self.body = match kind {
            1 | 2 => {
                let Some(region) = self.regions.iter().position(|(known, _)| *known == key) else {
                    return Err(self.broken(format!("it names a region that is not registered (key {key:#x})")));
                };
                let bytes = self.regions[region].1.len();
                let place = usize::try_from(offset).ok().and_then(|next| Some((next, next.checked_add(length)?)));
                let Some((next, end)) = place.filter(|(_, end)| *end <= bytes) else {
                    return Err(self.broken(format!("{length} bytes at {offset} do not lie in a region of {bytes} bytes")));
                };
                Body::Write { region, next, end, event: (kind == 2).then_some(event) }
            }
            3 if length <= self.message_bytes_max => Body::Message { bytes: vec![0; length], have: 0 },
            3 => {
                let allowed = self.message_bytes_max;
                return Err(self.broken(format!("a message of {length} bytes; {allowed} are allowed")));
            }
            _ => return Err(self.broken(format!("a header of unknown kind {kind}"))),
        };
        Ok(())
    }

    /// What has been received as a whole, if it is something that is reported.
    fn end(&mut self) -> Option<Arrival> {
        self.have = 0;
        match std::mem::replace(&mut self.body, Body::None) {
            Body::None => None,
            Body::Write { event, .. } => event.map(Arrival::Event),
            Body::Message { bytes, .. } => Some(Arrival::Message(bytes)),
        }
    }

    /// Is everything there that was wanted of the socket: the header, or what follows it?
    fn is_whole(&self) -> bool {
        match &self.body {
            Body::None => self.have == HEADER_BYTES,
            Body::Write { next, end, .. } => next == end,
            Body::Message { bytes, have } => *have == bytes.len(),
        }
    }

    /// Receives what is there to the place where it belongs.
    fn receive(&mut self) -> std::io::Result<usize> {
        let (place, have) = match &mut self.body {
            Body::None => (&mut self.header[self.have..], &mut self.have),
            Body::Write { region, next, end, .. } => (&mut self.regions[*region].1[*next..*end], next),
            Body::Message { bytes, have } => (&mut bytes[*have..], have),
        };
        let count = self.socket.read(place)?;
        *have += count;
        Ok(count)
    }

    /// The same, without waiting.
    fn receive_now(&mut self) -> std::io::Result<usize> {
        self.socket.set_nonblocking(true)?;
        let received = self.receive();
        self.socket.set_nonblocking(false)?;
        received
    }
}

impl Link for TcpLink {
    fn name(&self) -> &str {
        &self.name
    }

    fn register(&mut self, length_bytes: usize) -> Result<Region, LinkError> {
        // Two numbers of the standard library's random state: not to be guessed, and different for each region.
        let key = RandomState::new().build_hasher().finish() | 1;
        self.regions.push((key, vec![0; length_bytes]));
        Ok(Region { key, length_bytes })
    }

    fn read(&self, region: Region, offset_bytes: usize, into: &mut [u8]) -> Result<(), LinkError> {
        let bytes = self.regions.iter().find(|(key, _)| *key == region.key).map(|(_, bytes)| bytes);
        let end = offset_bytes.saturating_add(into.len());
        match bytes.and_then(|bytes| bytes.get(offset_bytes..end)) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => return Err(self.refused(format!("{} bytes at {offset_bytes} are not in a region", into.len()))),
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], to: RemoteAddress, event: Option<u32>) -> Result<(), LinkError> {
        if bytes.len() > WRITE_BYTES_MAX {
            return Err(self.refused(format!("a write of {} bytes; {WRITE_BYTES_MAX} are allowed", bytes.len())));
        }
        let kind = if event.is_some() { 2 } else { 1 };
        self.put(&header(kind, to, bytes.len(), event.unwrap_or(0)), bytes)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), LinkError> {
        if message.len() > self.message_bytes_max {
            let allowed = self.message_bytes_max;
            return Err(self.refused(format!("a message of {} bytes; {allowed} are allowed", message.len())));
        }
        self.put(&header(3, RemoteAddress { key: 0, offset_bytes: 0 }, message.len(), 0), message)
    }

    fn poll(&mut self, timeout: Duration) -> Result<Option<Arrival>, LinkError> {
        let end = Instant::now() + timeout;
        loop {
            while self.is_whole() {
                match self.body {
                    Body::None => self.begin()?,
                    _ => {
                        if let Some(arrival) = self.end() {
                            return Ok(Some(arrival));
                        }
                    }
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            let received = match left.is_zero() {
                // The kernel would wait for one of its ticks, some milliseconds.
                true => self.receive_now(),
                false => self.socket.set_read_timeout(Some(left)).and_then(|()| self.receive()),
            };
            match received {
                Ok(0) => return Err(LinkError::Closed { link: self.name.clone() }),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(error) => return Err(self.io(error)),
            }
        }
    }
}

fn header(kind: u8, to: RemoteAddress, length: usize, event: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(MAGIC);
    header[4] = kind;
    header[8..16].copy_from_slice(&to.key.to_le_bytes());
    header[16..24].copy_from_slice(&to.offset_bytes.to_le_bytes());
    header[24..28].copy_from_slice(&u32::try_from(length).expect("lengths were checked").to_le_bytes());
    header[28..].copy_from_slice(&event.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(20);

    fn pair() -> (TcpLink, TcpLink) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let far = connect(listener.local_addr().unwrap(), WAIT).unwrap();
        (listener.accept(WAIT).unwrap().unwrap(), far)
    }

    /// The other side as plain bytes.
    fn bare() -> (TcpLink, TcpStream) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept(WAIT).unwrap().unwrap(), far)
    }

    #[test]
    fn bytes_are_where_they_were_written_before_the_event_is_seen() {
        let (mut near, mut far) = pair();
        let region = near.register(3 << 20).unwrap();
        let image: Vec<u8> = (0..2 << 20).map(|i: u32| ((i * 31) >> 3) as u8).collect();
        let sent = image.clone();
        let other = std::thread::spawn(move || {
            let at = |offset_bytes| RemoteAddress { key: region.key, offset_bytes };
            far.write(&sent, at(1 << 20), None).unwrap();
            far.write(&[9; 5], at(0), Some(77)).unwrap();
            far.write(&[], at(3 << 20), Some(78)).unwrap();
            far.send(b"done").unwrap();
            far
        });
        assert_eq!(near.poll(WAIT).unwrap(), Some(Arrival::Event(77)));
        let mut memory = vec![0; 3 << 20];
        near.read(region, 0, &mut memory).unwrap();
        assert_eq!(memory[..6], [9, 9, 9, 9, 9, 0]);
        assert!(memory[1 << 20..] == image);
        assert_eq!(near.poll(WAIT).unwrap(), Some(Arrival::Event(78)));
        assert_eq!(near.poll(WAIT).unwrap(), Some(Arrival::Message(b"done".to_vec())));
        assert_eq!(near.poll(Duration::ZERO).unwrap(), None);
        drop(other.join().unwrap());
        assert!(matches!(near.poll(WAIT), Err(LinkError::Closed { .. })));
    }

    #[test]
    fn what_breaks_the_rules_ends_the_link_and_is_not_placed() {
        type Break = fn(u64, &mut [u8; HEADER_BYTES]);
        let breaks: [(&str, Break); 7] = [
            ("is none", |_, header| header[0] = b'X'),
            ("is none", |_, header| header[6] = 1),
            ("unknown kind 9", |_, header| header[4] = 9),
            ("not registered", |key, header| header[8..16].copy_from_slice(&(key ^ 2).to_le_bytes())),
            ("do not lie", |_, header| header[16] = 97),
            ("do not lie", |_, header| header[16..24].copy_from_slice(&u64::MAX.to_le_bytes())),
            ("a message of 65537 bytes", |_, header| {
                header[4] = 3;
                header[24..28].copy_from_slice(&65537_u32.to_le_bytes());
            }),
        ];
        for (why, change) in breaks {
            let (mut near, mut far) = bare();
            let region = near.register(100).unwrap();
            let mut bytes = header(2, RemoteAddress { key: region.key, offset_bytes: 0 }, 4, 1);
            change(region.key, &mut bytes);
            far.write_all(&bytes).unwrap();
            far.write_all(&[1; 4]).unwrap();
            let error = near.poll(WAIT).unwrap_err();
            assert!(matches!(&error, LinkError::Broken { .. }) && error.to_string().contains(why), "{error}");
            let mut memory = [0; 100];
            near.read(region, 0, &mut memory).unwrap();
            assert_eq!(memory, [0; 100]);
        }
    }

    #[test]
    fn a_header_may_come_in_pieces() {
        let (mut near, mut far) = bare();
        let region = near.register(100).unwrap();
        let mut all = header(2, RemoteAddress { key: region.key, offset_bytes: 96 }, 4, 5).to_vec();
        all.extend([1, 2, 3, 4]);
        for byte in &all[..35] {
            far.write_all(&[*byte]).unwrap();
            assert_eq!(near.poll(Duration::from_millis(1)).unwrap(), None);
        }
        far.write_all(&all[35..]).unwrap();
        assert_eq!(near.poll(WAIT).unwrap(), Some(Arrival::Event(5)));
        let mut memory = [0; 4];
        near.read(region, 96, &mut memory).unwrap();
        assert_eq!(memory, [1, 2, 3, 4]);
        assert!(near.read(region, 97, &mut memory).is_err());
    }

    #[test]
    fn too_much_is_refused_before_it_is_sent() {
        let (mut near, mut far) = pair();
        let error = far.send(&vec![0; MESSAGE_BYTES_MAX + 1]).unwrap_err();
        assert!(matches!(error, LinkError::Refused { .. }));
        far.send(b"still there").unwrap();
        assert_eq!(near.poll(WAIT).unwrap(), Some(Arrival::Message(b"still there".to_vec())));
    }
}
