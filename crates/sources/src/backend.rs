//! Opens the streams of a run: through the backend that the configuration names, or through the best that this machine
//! allows.

use crate::frame::{Refusals, Refused};
use crate::packet::{NoRing, PacketReceiver};
use crate::rights;
use crate::shared_port::SharedPort;
use crate::udp::UdpReceiver;
use crate::verbs::{self, NoQueue, VerbsReceiver};
use crate::xdp::{self, Losses, NoSockets};
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::Source;
use konkordia_core::text;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// One open stream.
pub struct Stream {
    /// Lends its datagrams.
    pub source: Box<dyn Source>,
    /// Where they arrive, with the port that the kernel chose if 0 was asked for.
    pub address: SocketAddr,
    /// Memory in which the kernel keeps datagrams that were not taken yet.
    pub buffer_bytes: usize,
    /// Frames that the source refuses; `None` where the kernel refuses them and counts for itself.
    pub refusals: Option<Arc<Refusals>>,
    /// What the source dropped, by cause, as of its last [`Source::dropped`]; `None` where there is one cause only.
    pub losses: Option<Arc<Mutex<Losses>>>,
}

/// Through what the packets of a run are received.
#[derive(Clone, Debug)]
pub struct Receiving {
    /// The backend.
    pub backend: Backend,
    /// Why this one, in words.
    pub why: String,
    refusals: Vec<Arc<Refusals>>,
    losses: Vec<Arc<Mutex<Losses>>>,
}

impl Receiving {
    /// Backend and reason on one line.
    pub fn line(&self) -> String {
        format!("{}: {}", self.backend.name(), self.why)
    }

    /// Frames that were refused up to now, on all streams together, by reason; only reasons that occurred.
    pub fn refused(&self) -> Vec<(Refused, u64)> {
        let sum = |why: Refused| (why, self.refusals.iter().map(|refusals| refusals.of(why)).sum::<u64>());
        Refused::ALL.into_iter().map(sum).filter(|(_, frames)| *frames > 0).collect()
    }

    /// What was dropped up to now by cause, on all streams together, where the backend knows causes.
    pub fn losses(&self) -> Losses {
        let mut all = Losses::default();
        self.losses.iter().for_each(|losses| all += *losses.lock().unwrap_or_else(PoisonError::into_inner));
        all
    }
}

/// The open streams of a run.
pub struct Streams {
    /// Through what they are received.
    pub receiving: Receiving,
    /// In the order of the addresses.
    pub streams: Vec<Stream>,
    /// What a person should know of how they were opened.
    pub notes: Vec<String>,
}

/// Opens one stream: its number, where it is received, bytes of its buffer.
type OpenStream = fn(usize, SocketAddr, usize) -> Result<Stream, Failure>;

/// What one backend opened.
struct Opened {
    streams: Vec<Stream>,
    /// What it needs and does, for people.
    facts: String,
    notes: Vec<String>,
}

/// Memory that the streams of an address take when they are opened. The buffers of sockets are only limits.
pub fn memory_bytes(receive: Receive, address: IpAddr, streams: usize, buffer_bytes: usize) -> u64 {
    match receive {
        Receive::Auto | Receive::Only(Backend::Socket) => 0,
        Receive::Only(Backend::Packet | Backend::Verbs) => buffer_bytes as u64 * streams as u64,
        Receive::Only(Backend::Xdp) => xdp::memory_bytes(address, streams, buffer_bytes),
    }
}

/// Opens a stream at each address; the addresses differ in their ports only. `buffer_bytes` is asked of the kernel for
/// each.
///
/// # Errors
/// The backend that was named is not possible here, or a port cannot be bound.
pub fn open(receive: Receive, addresses: &[SocketAddr], buffer_bytes: usize) -> Result<Streams, Failure> {
    let open = |backend| open_all(backend, addresses, buffer_bytes);
    let (backend, why, opened) = match receive {
        Receive::Only(backend) => (backend, asked_for(backend), open(backend)?),
        Receive::Auto => {
            let (backend, why, opened) = first_of(&Backend::AUTO, open)?;
            (backend, format!("chosen by \"auto\"; {why}"), opened)
        }
    };
    Ok(received_by(backend, &why, opened))
}

fn asked_for(backend: Backend) -> String {
    format!("[source] receive = \"{}\" asks for it; ", backend.name())
}

/// What was opened, and why this backend.
fn received_by(backend: Backend, why: &str, Opened { streams, facts, notes }: Opened) -> Streams {
    let refusals = streams.iter().filter_map(|stream| stream.refusals.clone()).collect();
    let losses = streams.iter().filter_map(|stream| stream.losses.clone()).collect();
    let receiving = Receiving { backend, why: format!("{why}{facts}"), refusals, losses };
    Streams { receiving, streams, notes }
}

/// Opens `streams` streams at one address, which a number in their datagrams tells apart. Rings lend their whole IP
/// packets, sockets the datagrams without headers; "auto" is a socket.
///
/// # Errors
/// As [`open`].
pub fn open_shared(
    receive: Receive,
    port: SharedPort,
    address: SocketAddr,
    streams: usize,
    buffer_bytes: usize,
) -> Result<Streams, Failure> {
    match receive {
        Receive::Auto | Receive::Only(Backend::Socket) => sockets_of_a_port(port, address, streams, buffer_bytes),
        Receive::Only(Backend::Xdp) => {
            let opened = xdp::open_shared(port, address, streams, &xdp_options(buffer_bytes));
            let opened = of_express(opened.map_err(|why| no_sockets(&[address], why))?);
            let facts = format!("{}; {ICRC}", opened.facts);
            Ok(received_by(Backend::Xdp, &asked_for(Backend::Xdp), Opened { facts, ..opened }))
        }
        Receive::Only(Backend::Verbs) => {
            let why = "a rule of the card tells streams apart by their ports, and these share one";
            let what = format!("cannot receive {streams} streams through raw packets of an RDMA card on {address}");
            Err(or_sockets(Failure::new(Exit::Configuration, what, why, "write receive = \"packet\" in [source]")))
        }
        Receive::Only(Backend::Packet) => {
            let rings = PacketReceiver::open_shared(port, address, streams, buffer_bytes);
            let streams = rings.map_err(|why| no_ring(0, address, &why))?.into_iter().map(of_ring).collect();
            let facts = format!("{RINGS}; {ICRC}");
            Ok(received_by(Backend::Packet, &asked_for(Backend::Packet), Opened { streams, facts, notes: Vec::new() }))
        }
    }
}

fn sockets_of_a_port(port: SharedPort, address: SocketAddr, streams: usize, buffer_bytes: usize) -> Result<Streams, Failure> {
    let receivers = port.bind(address, streams, buffer_bytes).map_err(|error| no_port(0, address, &error))?;
    let streams = receivers.into_iter().enumerate();
    let streams = streams.map(|(stream, receiver)| of_receiver(stream, address, receiver)).collect::<Result<_, Failure>>()?;
    let why = "the kernel chooses among sockets of one port by the number of the stream; no iCRC is compared".into();
    let receiving = Receiving { backend: Backend::Socket, why, refusals: Vec::new(), losses: Vec::new() };
    Ok(Streams { receiving, streams, notes: Vec::new() })
}

/// The first of `order` that can be opened, and why none before it was taken. The error is that of the last.
fn first_of<T>(order: &[Backend], mut open: impl FnMut(Backend) -> Result<T, Failure>) -> Result<(Backend, String, T), Failure> {
    let mut why = String::new();
    let (last, others) = order.split_last().expect("there is a last resort");
    for &backend in others {
        match open(backend) {
            Ok(opened) => return Ok((backend, format!("the best that this machine allows; {why}"), opened)),
            Err(failure) => why.push_str(&format!("not {}, because {}; ", backend.name(), failure.why)),
        }
    }
    open(*last).map(|opened| (*last, why, opened))
}

/// Opens all streams through one backend.
fn open_all(backend: Backend, addresses: &[SocketAddr], buffer_bytes: usize) -> Result<Opened, Failure> {
    let (open, facts): (OpenStream, &str) = match backend {
        Backend::Socket => (socket, "sockets need no rights, and the kernel joins datagrams for them"),
        Backend::Packet => (ring, RINGS),
        // A program on the interface serves them all.
        Backend::Xdp => return express(addresses, buffer_bytes),
        Backend::Verbs => return card(addresses, buffer_bytes),
    };
    let streams = addresses.iter().enumerate().map(|(stream, address)| open(stream, *address, buffer_bytes));
    Ok(Opened { streams: streams.collect::<Result<Vec<_>, Failure>>()?, facts: facts.into(), notes: Vec::new() })
}

fn socket(stream: usize, address: SocketAddr, buffer_bytes: usize) -> Result<Stream, Failure> {
    let receiver = UdpReceiver::bind(address, buffer_bytes).map_err(|error| no_port(stream, address, &error))?;
    of_receiver(stream, address, receiver)
}

fn of_receiver(stream: usize, address: SocketAddr, receiver: UdpReceiver) -> Result<Stream, Failure> {
    let address = receiver.local_addr().map_err(|error| no_port(stream, address, &error))?;
    let buffer_bytes = receiver.receive_buffer_bytes();
    Ok(Stream { source: Box::new(receiver), address, buffer_bytes, refusals: None, losses: None })
}

fn ring(stream: usize, address: SocketAddr, buffer_bytes: usize) -> Result<Stream, Failure> {
    PacketReceiver::open(address, buffer_bytes).map(of_ring).map_err(|why| no_ring(stream, address, &why))
}

fn of_ring(receiver: PacketReceiver) -> Stream {
    let (address, buffer_bytes, refusals) = (receiver.local_addr(), receiver.ring_bytes(), receiver.refusals());
    Stream { source: Box::new(receiver), address, buffer_bytes, refusals: Some(refusals), losses: None }
}

/// All streams past the network stack.
fn express(addresses: &[SocketAddr], buffer_bytes: usize) -> Result<Opened, Failure> {
    let receivers = xdp::open(addresses, &xdp_options(buffer_bytes)).map_err(|why| no_sockets(addresses, why))?;
    Ok(of_express(receivers))
}

fn xdp_options(buffer_bytes: usize) -> xdp::Options {
    xdp::Options { buffer_bytes, ..xdp::Options::default() }
}

fn of_express(receivers: Vec<xdp::XdpReceiver>) -> Opened {
    let (facts, notes) =
        receivers.first().map_or_else(Default::default, |first| (of_sockets(first.report()), first.report().notes.clone()));
    let stream = |receiver: xdp::XdpReceiver| {
        let (address, buffer_bytes) = (receiver.local_addr(), receiver.report().ring_bytes);
        let (refusals, losses) = (Some(receiver.refusals()), Some(receiver.losses()));
        Stream { source: Box::new(receiver), address, buffer_bytes, refusals, losses }
    };
    Opened { streams: receivers.into_iter().map(stream).collect(), facts, notes }
}

/// All streams past the kernel.
fn card(addresses: &[SocketAddr], buffer_bytes: usize) -> Result<Opened, Failure> {
    let (receivers, notes) = verbs::open(addresses, buffer_bytes).map_err(|why| no_queue(addresses, &why))?;
    let facts = receivers.first().map_or_else(String::new, |first| format!("raw packets of {}", first.card()));
    let stream = |receiver: VerbsReceiver| {
        let (address, buffer_bytes, refusals) = (receiver.local_addr(), receiver.memory_bytes(), Some(receiver.refusals()));
        Stream { source: Box::new(receiver), address, buffer_bytes, refusals, losses: None }
    };
    Ok(Opened { streams: receivers.into_iter().map(stream).collect(), facts, notes })
}

/// How AF_XDP receives, for people.
fn of_sockets(report: &xdp::Report) -> String {
    let queues = match report.queues.len() {
        1 => "1 queue".to_owned(),
        count => format!("{count} queues"),
    };
    let pages = if report.has_huge_pages { " in huge pages" } else { "" };
    let bytes = text::bytes(report.memory_bytes as u64);
    let mode = match (report.is_native, report.is_zero_copy) {
        (_, true) => "zero-copy",
        (true, false) => "native",
        (false, false) => "generic",
    };
    format!("AF_XDP on {}, {mode} ({}); {queues}, {bytes} of locked memory{pages}", report.interface, report.way)
}

/// What rings show beside the datagrams.
const ICRC: &str = "streams are told apart by their number, and the iCRC of each packet is compared";
/// What rings need.
const RINGS: &str = "rings need CAP_NET_RAW, and take no fragments";

/// A port that cannot be bound.
fn no_port(stream: usize, address: SocketAddr, error: &io::Error) -> Failure {
    use io::ErrorKind as K;
    let port = address.port();
    let fix = match error.kind() {
        K::AddrInUse => {
            format!("`ss -ulpn 'sport = :{port}'` shows the program that uses it; stop it, or change [source] first_port")
        }
        K::AddrNotAvailable => "give an address of this machine (`ip address` lists them), or 0.0.0.0 for any".into(),
        K::PermissionDenied => "ports below 1024 need root rights; change [source] first_port".into(),
        _ => "look at the system log (dmesg)".into(),
    };
    Failure::new(Exit::Io, format!("cannot listen on {address} (stream {stream})"), reason(error), fix)
}

/// A ring that cannot be opened.
fn no_ring(stream: usize, address: SocketAddr, why: &NoRing) -> Failure {
    if let NoRing::Port(error) = why {
        return no_port(stream, address, error);
    }
    let what = format!("cannot receive through a packet ring on {address} (stream {stream})");
    let fix = match why {
        NoRing::NoInterface(_) => THE_CARD.into(),
        NoRing::NoRight => rights::fix(&["net_raw", "net_admin"], "AF_PACKET"),
        NoRing::NotEthernet(_) | NoRing::System(..) | NoRing::Port(_) => {
            "see docs/configuration.md, Receive backends".to_string()
        }
    };
    or_sockets(Failure::new(Exit::Io, what, why.to_string(), fix))
}

/// AF_XDP that cannot be opened at these addresses, for people.
pub fn no_sockets(addresses: &[SocketAddr], why: NoSockets) -> Failure {
    match why {
        NoSockets::Port(stream, error) => no_port(stream, addresses[stream], &error),
        NoSockets::NoInterface(why) => {
            let what = format!("cannot receive through AF_XDP on {}", addresses[0]);
            or_sockets(Failure::new(Exit::Io, what, why, THE_CARD))
        }
        NoSockets::Refused(failure) => or_sockets(failure),
    }
}

/// A queue of a card that cannot be opened.
fn no_queue(addresses: &[SocketAddr], why: &NoQueue) -> Failure {
    let fix = match why {
        NoQueue::Port(stream, error) => return no_port(*stream, addresses[*stream], error),
        NoQueue::NoInterface(_) => THE_CARD,
        NoQueue::Refused(_) => {
            "see docs/configuration.md, Receive backends; `konkordia links` shows the RDMA devices of this host"
        }
    };
    let what = format!("cannot receive through raw packets of an RDMA card on {}", addresses[0]);
    or_sockets(Failure::new(Exit::Io, what, why.to_string(), fix))
}

const THE_CARD: &str = "set [source] address to that of the network card to which the detector sends (`ip address` lists them)";

/// Sockets are always possible.
fn or_sockets(failure: Failure) -> Failure {
    let fix = format!("{}\nor write receive = \"socket\" in [source]", failure.fix);
    Failure { fix, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(what: &str) -> Failure {
        Failure::new(Exit::Io, "cannot", what, "do")
    }

    #[test]
    fn the_first_that_opens_is_taken_and_the_others_are_named_with_their_reasons() {
        let both = [Backend::Packet, Backend::Socket];
        let (backend, why, opened) = first_of(&both, |backend| Ok(backend.name())).unwrap();
        assert_eq!((backend, opened), (Backend::Packet, "packet"));
        assert!(why.starts_with("the best that this machine allows"), "{why}");
        let without_rights =
            |backend: Backend| if backend == Backend::Packet { Err(refuses("there is no right")) } else { Ok(()) };
        let (backend, why, ()) = first_of(&both, without_rights).unwrap();
        assert_eq!((backend, &why[..]), (Backend::Socket, "not packet, because there is no right; "));
        let failure = first_of(&both, |backend| Err::<(), _>(refuses(backend.name()))).unwrap_err();
        assert_eq!(failure.why, "socket");
    }

    #[test]
    fn a_named_backend_is_taken_or_refused_but_never_replaced() {
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let failure = open(Receive::Only(Backend::Packet), &[any], 1 << 20).err().unwrap();
        assert!(failure.what.contains("packet ring on 0.0.0.0:0 (stream 0)"), "{failure}");
        for failure in [failure, open(Receive::Only(Backend::Xdp), &[any], 1 << 20).err().unwrap()] {
            assert!(failure.why.contains("stands for all of them") && failure.fix.contains("[source] address"), "{failure}");
            assert!(failure.fix.contains("receive = \"socket\""), "{failure}");
        }
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let opened = open(Receive::Only(Backend::Socket), &[local, local], 1 << 20).unwrap();
        assert!(opened.streams.len() == 2 && opened.streams[0].address != opened.streams[1].address);
        assert!(
            opened.receiving.line().starts_with("socket: [source] receive = \"socket\" asks for it; sockets need no rights"),
            "{}",
            opened.receiving.line()
        );
        let chosen = open(Receive::Auto, &[local], 1 << 20).unwrap().receiving;
        assert!(chosen.line().contains(": chosen by \"auto\"; "), "{}", chosen.line());
        assert_eq!(chosen.refused(), []);
        let failure = open(Receive::Auto, &[opened.streams[0].address], 1 << 20).err().unwrap();
        assert!(failure.what.starts_with("cannot listen on 127.0.0.1") && failure.fix.contains("ss -ulpn"), "{failure}");
    }

    #[test]
    fn af_xdp_says_how_it_receives_and_where_it_cannot_which_port_is_taken() {
        let report = xdp::Report {
            interface: "eth7".into(),
            way: "in the driver, with a copy",
            is_native: true,
            is_zero_copy: false,
            has_huge_pages: false,
            queues: vec![0, 1],
            memory_bytes: 160 << 20,
            ring_bytes: 64 << 20,
            notes: Vec::new(),
        };
        let said = of_sockets(&report);
        assert!(said.starts_with("AF_XDP on eth7, native (in the driver, with a copy); 2 queues, 160"), "{said}");
        let ports: [SocketAddr; 2] = ["10.0.0.1:50010", "10.0.0.1:50011"].map(|text| text.parse().unwrap());
        let failure = no_sockets(&ports, NoSockets::Port(1, io::ErrorKind::AddrInUse.into()));
        assert!(failure.what.ends_with("10.0.0.1:50011 (stream 1)") && failure.fix.contains("ss -ulpn"), "{failure}");
        let refused = no_sockets(&ports, NoSockets::Refused(refuses("there is no right")));
        assert_eq!(refused.fix, "do\nor write receive = \"socket\" in [source]");
    }

    #[test]
    fn without_rights_a_ring_is_refused_with_the_line_that_gives_them() {
        let failure = no_ring(3, "10.0.0.1:50010".parse().unwrap(), &NoRing::NoRight);
        assert!(failure.why.contains("CAP_NET_RAW") && failure.fix.contains("sudo setcap cap_net_raw"), "{failure}");
        assert!(failure.fix.contains("receive = \"socket\""), "{failure}");
    }
}
