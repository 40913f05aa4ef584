//! Addresses of message sockets, and who is connected to one, without a socket: what is checked and counted the same way on both sides.
//!
//! Facts relied on: libzmq announces on the monitor of a socket a part of 6 bytes, event (u16) and value (u32) in the order of the machine; the value
//! of "accepted", "connected" and "disconnected" is the file descriptor of the connection, which is not used again before its "disconnected".

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, ErrorKind};

/// Events of the monitor that [`Peers`] wants: connected, accepted, disconnected.
pub const PEER_EVENTS: u16 = CONNECTED | ACCEPTED | DISCONNECTED;
const CONNECTED: u16 = 0x0001;
const ACCEPTED: u16 = 0x0020;
const DISCONNECTED: u16 = 0x0200;

/// Connections that a listening socket keeps, unless it is told otherwise: detectors have up to some 70.
pub const PEERS_MAX: usize = 256;

/// Longest path of a socket of the file system (`sun_path` without its closing zero).
const IPC_PATH_BYTES_MAX: usize = 107;

/// Refuses what is no address of a message socket, in words for people.
///
/// # Errors
/// Neither `tcp://HOST:PORT` nor `ipc://PATH`.
pub fn check(address: &str) -> Result<(), String> {
    let form =
        "write tcp://HOST:PORT, for example tcp://192.168.1.10:9999, or ipc:///PATH; tcp://*:PORT listens on all interfaces";
    let wrong = |why: &str| Err(format!("'{}' is no address: {why}; {form}", address.escape_debug()));
    if address.contains(['\0', ' ', '\n']) {
        return wrong("it has a character that no address has");
    }
    if let Some(path) = address.strip_prefix("ipc://") {
        return match path.len() {
            0 => wrong("there is no path"),
            1..=IPC_PATH_BYTES_MAX => Ok(()),
            _ => wrong(&format!("the path has more than the {IPC_PATH_BYTES_MAX} bytes that the system takes")),
        };
    }
    let Some(rest) = address.strip_prefix("tcp://") else { return wrong("it begins with neither tcp:// nor ipc://") };
    match rest.rsplit_once(':') {
        None => wrong("the port is missing"),
        Some(("", _)) => wrong("the host is missing"),
        Some((_, port)) if port != "*" && port.parse::<u16>().is_err() => wrong("the port is no number up to 65535"),
        Some(_) => Ok(()),
    }
}

/// Why a socket could not be opened at `address`, with what to do, in words for people.
pub fn explain(address: &str, listens: bool, error: &io::Error) -> io::Error {
    let fix = match error.kind() {
        ErrorKind::AddrInUse => "somebody listens there already: end the other program, or take another port",
        ErrorKind::AddrNotAvailable | ErrorKind::NotFound if listens => {
            "no network interface of this machine has this address, or the folder does not exist; tcp://*:PORT listens on all"
        }
        ErrorKind::PermissionDenied => "ports below 1024 and some folders belong to the administrator: take another",
        _ if error.raw_os_error() == Some(19) => {
            "no network interface of this machine has this address or name; tcp://*:PORT listens on all"
        }
        _ => "check the address; for a name, whether the machine can be found by it",
    };
    let what = if listens { "cannot listen on" } else { "cannot connect to" };
    let text = error.to_string();
    let why = text.split(" (os error").next().unwrap_or(&text);
    io::Error::new(error.kind(), format!("{what} {address}: {why}; {fix}"))
}

/// A socket does not work any more, for this reason.
pub fn failed(why: impl Display) -> io::Error {
    io::Error::other(format!("a ZeroMQ socket failed: {why}"))
}

/// No further socket can be had, for this reason.
pub fn out_of_sockets(why: impl Display) -> io::Error {
    let fix = "a program may have 1023 ZeroMQ sockets in one context, and some files (ulimit -n)";
    io::Error::other(format!("no more ZeroMQ sockets can be opened: {why}; {fix}"))
}

/// The port at which a socket listens for TCP; `None` for others.
pub fn tcp_port(bound: &str) -> Option<u16> {
    bound.strip_prefix("tcp://")?.rsplit_once(':')?.1.parse().ok()
}

/// The connections of a socket, as its monitor announces them.
#[derive(Clone, Debug)]
pub struct Peers {
    open: HashSet<u32>,
    most: usize,
    refused: u64,
}

/// What became of a connection, by its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// It was made.
    Opened(u32),
    /// It was made, and is one too many.
    TooMany(u32),
    /// It has ended.
    Closed(u32),
}

impl Peers {
    /// None yet, of which so many are kept.
    pub fn limited(most: usize) -> Self {
        Self { open: HashSet::new(), most, refused: 0 }
    }

    /// Enters one announcement (the first part of it).
    pub fn event(&mut self, part: &[u8]) -> Option<PeerEvent> {
        let (event, value) = (part.first_chunk()?, part.get(2..)?.first_chunk()?);
        let value = u32::from_ne_bytes(*value);
        match u16::from_ne_bytes(*event) {
            event @ (CONNECTED | ACCEPTED) => {
                self.open.insert(value);
                if event == ACCEPTED && self.open.len() > self.most {
                    self.refused += 1;
                    return Some(PeerEvent::TooMany(value));
                }
                Some(PeerEvent::Opened(value))
            }
            DISCONNECTED => {
                self.open.remove(&value);
                Some(PeerEvent::Closed(value))
            }
            _ => None,
        }
    }

    /// Connections that were one too many, since it was made.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Connections that are open now.
    pub fn count(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused_with_its_reason() {
        for good in ["tcp://*:*", "tcp://10.0.0.1:9999", "tcp://[::1]:0", "tcp://eth0:31001", "ipc:///run/a", "ipc://@abstract"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let long = format!("ipc:///{}", "a".repeat(200));
        for (bad, why) in [
            ("", "neither tcp://"),
            ("127.0.0.1:9999", "neither tcp://"),
            ("http://a:1", "neither tcp://"),
            ("tcp://a", "port is missing"),
            ("tcp://:1", "host is missing"),
            ("tcp://a:65536", "port is no number"),
            ("tcp://a:-1", "port is no number"),
            ("ipc://", "no path"),
            (&long, "more than the 107 bytes"),
            ("tcp://a\0:1", "a character"),
        ] {
            let said = check(bad).unwrap_err();
            assert!(said.contains(why) && said.contains("tcp://HOST:PORT"), "{said}");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let said = |code, listens| explain("tcp://a:1", listens, &io::Error::from_raw_os_error(code)).to_string();
        assert!(said(98, true).contains("cannot listen on tcp://a:1: Address already in use; somebody listens there already"));
        assert!(said(19, true).contains("no network interface"));
        assert!(said(13, true).contains("administrator"));
        assert_eq!(["tcp://127.0.0.1:9", "tcp://[::1]:65535", "ipc:///a:7"].map(tcp_port), [Some(9), Some(65535), None]);
        assert!(said(22, false).starts_with("cannot connect to tcp://a:1: Invalid argument; check the address"));
    }

    #[test]
    fn connections_are_counted_by_descriptor() {
        let mut peers = Peers::limited(2);
        let part = |event: u16, value: u32| [&event.to_ne_bytes()[..], &value.to_ne_bytes()].concat();
        let mut event = |event: u16, value: u32| {
            let seen = peers.event(&part(event, value));
            assert!(!matches!(seen, Some(PeerEvent::TooMany(_))), "{seen:?}");
            peers.count()
        };
        assert_eq!(event(ACCEPTED, 7), 1);
        assert_eq!(event(CONNECTED, 9), 2);
        assert_eq!(event(0x1000, 0), 2);
        assert_eq!(event(DISCONNECTED, 8), 2);
        assert_eq!(event(DISCONNECTED, 7), 1);
        assert_eq!(event(ACCEPTED, 7), 2);
        assert_eq!((peers.event(&[1]), peers.count()), (None, 2));
        assert_eq!(peers.event(&part(ACCEPTED, 8)), Some(PeerEvent::TooMany(8)), "a third one");
        assert_eq!(peers.event(&part(CONNECTED, 11)), Some(PeerEvent::Opened(11)), "this side wanted it");
        assert_eq!((peers.refused(), peers.count()), (1, 4));
    }
}
