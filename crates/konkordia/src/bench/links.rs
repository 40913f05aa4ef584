//! The transports of `bench net`: one way there and one way back between two ends, each whole messages.

use super::args::NetTransport;
use super::peer::{Peer, failed};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::Source;
use konkordia_links::kind::{Kind, Listener};
use konkordia_links::verbs::Service;
use konkordia_links::{Arrival, LinkError, Region, RemoteAddress};
use konkordia_sources::udp::{UdpReceiver, UdpSender};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Nothing takes longer than this where nothing can be lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// A datagram that did not come in this time is lost.
const DATAGRAM_PATIENCE: Duration = Duration::from_secs(2);
/// Receive buffer that is asked of the kernel for datagrams.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;

/// Both ways between the two ends.
pub trait Link: Send {
    /// Sends a message.
    ///
    /// # Errors
    /// If the connection is broken.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Waits for messages of `bytes` bytes, shows each, and returns their number; 0 if none came in time.
    ///
    /// # Errors
    /// If the connection is broken.
    fn receive(&mut self, bytes: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<usize>;
}

/// Opens the near end of a connection, which is this one of several; the far end answers with [`open_far`].
///
/// # Errors
/// If sockets cannot be opened or connected.
pub fn open_near(peer: &mut Peer, transport: NetTransport, number: usize) -> Result<Box<dyn Link>, Failure> {
    let cannot = |error: io::Error| failed(&format!("no connection for {}", transport.name()), &error);
    let mut order = json!({ "open": transport.name(), "number": number });
    if transport == NetTransport::Udp {
        let receiver = UdpReceiver::bind(SocketAddr::new(peer.own, 0), RECEIVE_BUFFER_BYTES).map_err(cannot)?;
        order["port"] = json!(receiver.local_addr().map_err(cannot)?.port());
        let ready = peer.ask(&order)?;
        let sender = UdpSender::connect(address(peer, &ready)).map_err(cannot)?;
        return Ok(Box::new(Udp { receiver, sender }));
    }
    let ready = peer.ask(&order)?;
    if let Some(kind) = transport.link() {
        let link = kind.connect(address(peer, &ready), PATIENCE).map_err(link_failed)?;
        return Ok(Box::new(Writing::new(link, |key| peer.ask(&json!({ "key": key })))?));
    }
    match transport.sockets() {
        None => Ok(Box::new(TcpStream::connect(address(peer, &ready)).and_then(Tcp::new).map_err(cannot)?)),
        Some(kinds) => Ok(Box::new(Zmq::near(kinds, peer.other, &ready).map_err(cannot)?)),
    }
}

/// Opens the far end, as `order` of [`open_near`] says.
///
/// # Errors
/// If sockets cannot be opened, or the near end does not connect.
pub fn open_far(peer: &mut Peer, order: &Value) -> Result<Box<dyn Link>, Failure> {
    let Some(transport) = NetTransport::ALL.into_iter().find(|transport| order["open"] == transport.name()) else {
        return Err(Failure::new(Exit::Usage, "an unknown transport", order.to_string(), "start the same version at both ends"));
    };
    let cannot = |error: io::Error| failed(&format!("no connection for {}", transport.name()), &error);
    let own = SocketAddr::new(peer.own, 0);
    match (transport, transport.sockets()) {
        (NetTransport::Udp, _) => {
            let receiver = UdpReceiver::bind(own, RECEIVE_BUFFER_BYTES).map_err(cannot)?;
            let sender = UdpSender::connect(address(peer, order)).map_err(cannot)?;
            peer.tell(&json!({ "port": receiver.local_addr().map_err(cannot)?.port() }))?;
            Ok(Box::new(Udp { receiver, sender }))
        }
        (transport, _) if transport.link().is_some() => {
            let mut listener = Listener::bind(transport.link().unwrap_or_default(), own).map_err(link_failed)?;
            peer.tell(&json!({ "port": listener.local_addr().map_err(link_failed)?.port() }))?;
            let link = listener.accept(PATIENCE).map_err(link_failed)?;
            let link = link.ok_or_else(|| cannot(io::Error::from(io::ErrorKind::TimedOut)))?;
            let exchange = |key: u64| {
                let theirs = peer.answer()?;
                peer.tell(&json!({ "key": key }))?;
                Ok(theirs)
            };
            Ok(Box::new(Writing::new(link, exchange)?))
        }
        (_, None) => {
            let listener = TcpListener::bind(own).map_err(cannot)?;
            peer.tell(&json!({ "port": listener.local_addr().map_err(cannot)?.port() }))?;
            Ok(Box::new(accept(&listener).and_then(Tcp::new).map_err(cannot)?))
        }
        (_, Some(kinds)) => {
            let (link, ready) = Zmq::far(kinds, peer.own).map_err(cannot)?;
            peer.tell(&ready)?;
            link.greet(true).map_err(cannot)?;
            Ok(Box::new(link))
        }
    }
}

/// The port in a line of the other end, at its address.
fn address(peer: &Peer, line: &Value) -> SocketAddr {
    let port = line["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
    SocketAddr::new(peer.other, port)
}

/// Waits for a connection, but not for ever.
fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock || begin.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

struct Tcp {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Tcp {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::new() })
    }
}

impl Link for Tcp {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(message)
    }

    fn receive(&mut self, bytes: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        self.buffer.resize(bytes, 0);
        self.stream.read_exact(&mut self.buffer)?;
        look(&self.buffer);
        Ok(1)
    }
}

struct Udp {
    receiver: UdpReceiver,
    sender: UdpSender,
}

impl Link for Udp {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.sender.send(message)
    }

    fn receive(&mut self, _bytes: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let begin = Instant::now();
        loop {
            // It returns 0 after a wait, also if something came.
            let left = DATAGRAM_PATIENCE.saturating_sub(begin.elapsed());
            let count = self.receiver.receive(left, &mut |message, _| look(message))?;
            if count > 0 || left.is_zero() {
                return Ok(count);
            }
        }
    }
}

/// Room for the messages of the largest window.
pub const REGION_BYTES: usize = 256 << 20;
/// No window has more messages.
const WINDOW_MAX: usize = 512;

/// A link that writes into memory. A message is a write with an event into a region of the other end; the messages of a
/// window go to places of their own, one behind the other. Both ends count, so both know the place of the next one.
struct Writing {
    link: Box<dyn konkordia_links::Link>,
    own: Region,
    other_key: u64,
    sent: usize,
    received: usize,
    buffer: Vec<u8>,
}

fn link_failed(error: LinkError) -> Failure {
    failed("no link", &io::Error::other(error))
}

impl Writing {
    /// Any kind of link that is connected. `exchange` tells the other end the key of the own region, and returns its
    /// answer.
    fn new(
        mut link: Box<dyn konkordia_links::Link>,
        exchange: impl FnOnce(u64) -> Result<Value, Failure>,
    ) -> Result<Self, Failure> {
        let own = link.register(REGION_BYTES).map_err(link_failed)?;
        let other_key = exchange(own.key)?["key"].as_u64();
        let other_key = other_key.ok_or_else(|| failed("no link", &io::Error::other("the other end told no key")))?;
        Ok(Self { link, own, other_key, sent: 0, received: 0, buffer: Vec::new() })
    }

    const fn place(number: usize, bytes: usize) -> usize {
        let room = REGION_BYTES / bytes;
        number % (if room < WINDOW_MAX { room } else { WINDOW_MAX }) * bytes
    }
}

impl Link for Writing {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let offset_bytes = Self::place(self.sent, message.len()) as u64;
        let to = RemoteAddress { key: self.other_key, offset_bytes };
        self.link.write(message, to, Some(self.sent as u32)).map_err(io::Error::other)?;
        self.sent += 1;
        Ok(())
    }

    fn receive(&mut self, bytes: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        match self.link.poll(PATIENCE).map_err(io::Error::other)? {
            Some(Arrival::Event(number)) if number == self.received as u32 => {}
            Some(other) => return Err(io::Error::other(format!("{other:?} where event {} was due", self.received))),
            None => return Ok(0),
        }
        self.buffer.resize(bytes, 0);
        self.link.read(self.own, Self::place(self.received, bytes), &mut self.buffer).map_err(io::Error::other)?;
        self.received += 1;
        look(&self.buffer);
        Ok(1)
    }
}

/// Sockets of one direction, and of the other if that needs a socket of its own.
struct Zmq {
    out: zmq::Socket,
    into: Option<zmq::Socket>,
}

/// What sends and what receives; REQ and REP do both.
type Kinds = (zmq::SocketType, zmq::SocketType);

impl NetTransport {
    /// The kind of link that writes into memory, if it is one.
    pub fn link(self) -> Option<Kind> {
        let libfabric = |provider: &str| Some(Kind::Libfabric { provider: provider.into() });
        match self {
            Self::LinkTcp => Some(Kind::Tcp),
            Self::LinkShm => Some(Kind::Shm),
            Self::LinkLibfabricTcp => libfabric("tcp"),
            Self::LinkLibfabricShm => libfabric("shm"),
            Self::LinkVerbs => Some(Kind::Verbs { device: None, service: Service::Reliable }),
            Self::Tcp | Self::Udp | Self::ZmqReq | Self::ZmqPush | Self::ZmqPub => None,
        }
    }

    /// True if both ends must be on one host.
    pub fn is_of_one_host(self) -> bool {
        matches!(self, Self::LinkShm | Self::LinkLibfabricShm)
    }

    fn sockets(self) -> Option<Kinds> {
        match self {
            Self::ZmqReq => Some((zmq::REQ, zmq::REP)),
            Self::ZmqPush => Some((zmq::PUSH, zmq::PULL)),
            // A publisher that sees its subscribers.
            Self::ZmqPub => Some((zmq::XPUB, zmq::SUB)),
            _ => None,
        }
    }
}

impl Zmq {
    fn socket(context: &zmq::Context, kind: zmq::SocketType, ip: IpAddr) -> io::Result<zmq::Socket> {
        let patience_ms = PATIENCE.as_millis() as i32;
        let socket = context.socket(kind)?;
        socket.set_ipv6(ip.is_ipv6())?;
        socket.set_linger(0)?;
        // Windows bound what is on its way. The bound of libzmq hears late of what was read, and a publisher throws
        // away what is beyond it.
        socket.set_sndhwm(0)?;
        socket.set_rcvhwm(0)?;
        socket.set_rcvtimeo(patience_ms)?;
        socket.set_sndtimeo(patience_ms)?;
        if kind == zmq::SUB {
            socket.set_subscribe(b"")?;
        }
        Ok(socket)
    }

    fn far((sends, receives): Kinds, ip: IpAddr) -> io::Result<(Self, Value)> {
        let context = zmq::Context::new();
        let bound = |kind: zmq::SocketType| -> io::Result<(zmq::Socket, String)> {
            let socket = Self::socket(&context, kind, ip)?;
            socket.bind(&format!("tcp://{}:*", if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }))?;
            let endpoint = socket.get_last_endpoint()?.map_err(|_| io::Error::other("an address that is no text"))?;
            Ok((socket, endpoint))
        };
        let (into, endpoint) = bound(receives)?;
        if sends == zmq::REQ {
            return Ok((Self { out: into, into: None }, json!({ "takes": endpoint })));
        }
        let (out, gives) = bound(sends)?;
        Ok((Self { out, into: Some(into) }, json!({ "takes": endpoint, "gives": gives })))
    }

    fn near((sends, receives): Kinds, ip: IpAddr, ready: &Value) -> io::Result<Self> {
        let context = zmq::Context::new();
        let connected = |kind: zmq::SocketType, endpoint: &str| -> io::Result<zmq::Socket> {
            let socket = Self::socket(&context, kind, ip)?;
            socket.connect(endpoint)?;
            Ok(socket)
        };
        let endpoint = |name: &str| ready[name].as_str().unwrap_or_default();
        let out = connected(sends, endpoint("takes"))?;
        let into = if sends == zmq::REQ { None } else { Some(connected(receives, endpoint("gives"))?) };
        let link = Self { out, into };
        link.greet(false)?;
        Ok(link)
    }

    /// What is published before somebody has subscribed reaches nobody, so each end waits for the subscription of the
    /// other, and greets it. The far end, which listens, takes the greeting first: a socket that listens sends its
    /// subscription in its own calls only.
    fn greet(&self, is_far: bool) -> io::Result<()> {
        let Some(into) = self.into.as_ref().filter(|_| self.out.get_socket_type() == Ok(zmq::XPUB)) else { return Ok(()) };
        if is_far {
            into.recv_msg(0)?;
        }
        self.out.recv_msg(0)?;
        self.out.send("", 0)?;
        if !is_far {
            into.recv_msg(0)?;
        }
        Ok(())
    }
}

impl Link for Zmq {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        Ok(self.out.send(message, 0)?)
    }

    fn receive(&mut self, _bytes: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let message = self.into.as_ref().unwrap_or(&self.out).recv_msg(0)?;
        look(&message);
        Ok(1)
    }
}
