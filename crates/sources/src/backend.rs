//! Opens the streams of a run: through the backend that the configuration names, or through the best that this machine
//! allows.

use crate::packet::frame::Refused;
use crate::packet::{NoRing, PacketReceiver, Refusals};
use crate::udp::UdpReceiver;
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::Source;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

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
}

/// Through what the packets of a run are received.
#[derive(Clone, Debug)]
pub struct Receiving {
    /// The backend.
    pub backend: Backend,
    /// Why this one, in words.
    pub why: String,
    refusals: Vec<Arc<Refusals>>,
}

impl Receiving {
    /// Backend and reason on one line.
    pub fn line(&self) -> String {
        format!("{}: {}", self.backend.name(), self.why)
    }

    /// Frames that were refused up to now, on all streams together, by reason; only reasons that occurred.
    pub fn refused(&self) -> Vec<(Refused, u64)> {
        let sum = |why: Refused| (why, self.refusals.iter().map(|refusals| refusals.of(why)).sum());
        Refused::ALL.into_iter().map(sum).filter(|(_, frames)| *frames > 0).collect()
    }
}

/// The open streams of a run.
pub struct Streams {
    /// Through what they are received.
    pub receiving: Receiving,
    /// In the order of the addresses.
    pub streams: Vec<Stream>,
}

/// Opens a stream at each address; `buffer_bytes` is asked of the kernel for each.
///
/// # Errors
/// The backend that was named is not possible here, or a port cannot be bound.
pub fn open(receive: Receive, addresses: &[SocketAddr], buffer_bytes: usize) -> Result<Streams, Failure> {
    let open = |backend| open_all(backend, addresses, buffer_bytes);
    let (backend, why, streams) = match receive {
        Receive::Only(backend) => {
            (backend, format!("[source] receive = \"{}\" asks for it; {}", backend.name(), facts(backend)), open(backend)?)
        }
        Receive::Auto => {
            let (backend, why, streams) = first_of(&Backend::AUTO, open)?;
            (backend, format!("chosen by \"auto\"; {why}"), streams)
        }
    };
    let refusals = streams.iter().filter_map(|stream: &Stream| stream.refusals.clone()).collect();
    Ok(Streams { receiving: Receiving { backend, why, refusals }, streams })
}

/// The first of `order` that can be opened, and why none before it was taken. The error is that of the last.
fn first_of<T>(order: &[Backend], mut open: impl FnMut(Backend) -> Result<T, Failure>) -> Result<(Backend, String, T), Failure> {
    let mut why = String::new();
    let (last, others) = order.split_last().expect("there is a last resort");
    for &backend in others {
        match open(backend) {
            Ok(opened) => return Ok((backend, format!("the best that this machine allows; {why}{}", facts(backend)), opened)),
            Err(failure) => why.push_str(&format!("not {}, because {}; ", backend.name(), failure.why)),
        }
    }
    open(*last).map(|opened| (*last, format!("{why}{}", facts(*last)), opened))
}

/// What a backend needs and does, for people.
fn facts(backend: Backend) -> &'static str {
    match backend {
        Backend::Socket => "sockets need no rights, and the kernel joins datagrams for them",
        Backend::Packet => "rings need CAP_NET_RAW, and take no fragments",
    }
}

/// Opens all streams through one backend.
fn open_all(backend: Backend, addresses: &[SocketAddr], buffer_bytes: usize) -> Result<Vec<Stream>, Failure> {
    let each = |open: fn(usize, SocketAddr, usize) -> Result<Stream, Failure>| {
        addresses.iter().enumerate().map(|(stream, address)| open(stream, *address, buffer_bytes)).collect()
    };
    match backend {
        Backend::Socket => each(socket),
        Backend::Packet => each(ring),
    }
}

fn socket(stream: usize, address: SocketAddr, buffer_bytes: usize) -> Result<Stream, Failure> {
    let bound = UdpReceiver::bind(address, buffer_bytes).and_then(|receiver| Ok((receiver.local_addr()?, receiver)));
    let (address, receiver) = bound.map_err(|error| no_port(stream, address, &error))?;
    let buffer_bytes = receiver.receive_buffer_bytes();
    Ok(Stream { source: Box::new(receiver), address, buffer_bytes, refusals: None })
}

fn ring(stream: usize, address: SocketAddr, buffer_bytes: usize) -> Result<Stream, Failure> {
    let receiver = PacketReceiver::open(address, buffer_bytes).map_err(|why| no_ring(stream, address, &why))?;
    let (address, buffer_bytes, refusals) = (receiver.local_addr(), receiver.ring_bytes(), receiver.refusals());
    Ok(Stream { source: Box::new(receiver), address, buffer_bytes, refusals: Some(refusals) })
}

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
        NoRing::NoInterface(_) => {
            "set [source] address to that of the network card to which the detector sends (`ip address` lists them)".into()
        }
        NoRing::NoRight => {
            let program = std::env::current_exe().map_or("konkordia".into(), |path| path.display().to_string());
            format!(
                "sudo setcap cap_net_raw,cap_net_admin+ep {program}\n\
                 (in a service: see the lines for AF_PACKET in konkordia.service; in a container: --cap-add NET_RAW)"
            )
        }
        NoRing::NotEthernet(_) | NoRing::System(..) | NoRing::Port(_) => {
            "see docs/configuration.md, Receive backends".to_string()
        }
    };
    Failure::new(Exit::Io, what, why.to_string(), format!("{fix}\nor write receive = \"socket\" in [source]"))
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
        let without_rights = |backend| if backend == Backend::Packet { Err(refuses("there is no right")) } else { Ok(()) };
        let (backend, why, ()) = first_of(&both, without_rights).unwrap();
        assert_eq!(backend, Backend::Socket);
        assert!(why.starts_with("not packet, because there is no right; sockets"), "{why}");
        let failure = first_of(&both, |backend| Err::<(), _>(refuses(backend.name()))).unwrap_err();
        assert_eq!(failure.why, "socket");
    }

    #[test]
    fn a_named_backend_is_taken_or_refused_but_never_replaced() {
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let failure = open(Receive::Only(Backend::Packet), &[any], 1 << 20).err().unwrap();
        assert!(failure.what.contains("packet ring on 0.0.0.0:0 (stream 0)"), "{failure}");
        assert!(failure.why.contains("stands for all of them") && failure.fix.contains("[source] address"), "{failure}");
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let opened = open(Receive::Only(Backend::Socket), &[local, local], 1 << 20).unwrap();
        assert!(opened.streams.len() == 2 && opened.streams[0].address != opened.streams[1].address);
        assert!(
            opened.receiving.line().starts_with("socket: [source] receive = \"socket\" asks for it"),
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
    fn without_rights_a_ring_is_refused_with_the_line_that_gives_them() {
        let failure = no_ring(3, "10.0.0.1:50010".parse().unwrap(), &NoRing::NoRight);
        assert!(failure.why.contains("CAP_NET_RAW") && failure.fix.contains("sudo setcap cap_net_raw"), "{failure}");
        assert!(failure.fix.contains("receive = \"socket\""), "{failure}");
    }
}
