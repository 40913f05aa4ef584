//! Addresses of message sockets, and the connections of a socket, without the socket itself. The receiving and the
//! sending side check and count them in the same way.
//!
//! Facts relied on: the monitor of a libzmq socket announces each event in a part of 6 bytes, event (u16) and value
//! (u32) in the byte order of the machine. The value of "accepted", "connected" and "disconnected" is the file
//! descriptor of the connection, which is not used again before its "disconnected".

use crate::failure::reason;
use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, ErrorKind};

/// Events of the monitor that [`Peers`] needs: connected, accepted, disconnected.
pub const PEER_EVENTS: u16 = CONNECTED | ACCEPTED | DISCONNECTED;
const CONNECTED: u16 = 0x0001;
const ACCEPTED: u16 = 0x0020;
const DISCONNECTED: u16 = 0x0200;

/// Default limit of the connections that a listening socket keeps: detectors have up to about 70.
pub const PEERS_MAX: usize = 256;

/// Longest path of a Unix socket (`sun_path` without its closing zero).
const IPC_PATH_BYTES_MAX: usize = 107;

/// Checks the address of a message socket. The error is a text for the user.
///
/// # Errors
/// Neither `tcp://HOST:PORT` nor `ipc://PATH`.
pub fn check(address: &str) -> Result<(), String> {
    let form =
        "write tcp://HOST:PORT, for example tcp://192.168.1.10:9999, or ipc:///PATH; tcp://*:PORT listens on all interfaces";
    let wrong = |why: &str| Err(format!("'{}' is not a valid address: {why}; {form}", address.escape_debug()));
    if address.contains(['\0', ' ', '\n']) {
        return wrong("it contains a blank, a line break or a zero byte");
    }
    if let Some(path) = address.strip_prefix("ipc://") {
        return match path.len() {
            0 => wrong("there is no path"),
            1..=IPC_PATH_BYTES_MAX => Ok(()),
            _ => wrong(&format!("the path has more than the {IPC_PATH_BYTES_MAX} bytes that the system allows")),
        };
    }
    let Some(rest) = address.strip_prefix("tcp://") else { return wrong("it begins with neither tcp:// nor ipc://") };
    match rest.rsplit_once(':') {
        None => wrong("the port is missing"),
        Some(("", _)) => wrong("the host is missing"),
        Some((_, port)) if port != "*" && port.parse::<u16>().is_err() => wrong("the port must be a number up to 65535, or *"),
        Some(_) => Ok(()),
    }
}

/// The error for a socket that could not be opened at `address`: why, and what to do, as a text for the user.
pub fn explain(address: &str, listens: bool, error: &io::Error) -> io::Error {
    let fix = match error.kind() {
        ErrorKind::AddrInUse => "another program already listens there: stop it, or use another port",
        ErrorKind::AddrNotAvailable | ErrorKind::NotFound if listens => {
            "no network interface of this machine has this address, or the folder does not exist; tcp://*:PORT listens on all"
        }
        ErrorKind::PermissionDenied => "ports below 1024 and some folders need root rights: use another port or folder",
        _ if error.raw_os_error() == Some(19) => {
            "no network interface of this machine has this address or name; tcp://*:PORT listens on all"
        }
        _ => "check the address; if it has a host name, check that the name resolves",
    };
    let what = if listens { "cannot listen on" } else { "cannot connect to" };
    let why = reason(error);
    io::Error::new(error.kind(), format!("{what} {address}: {why}; {fix}"))
}

/// The error for a socket that has stopped working.
pub fn failed(why: impl Display) -> io::Error {
    io::Error::other(format!("a ZeroMQ socket failed: {why}"))
}

/// The error when no further socket can be opened.
pub fn out_of_sockets(why: impl Display) -> io::Error {
    let fix = "one program can open 1023 ZeroMQ sockets, and fewer if its limit of open files is low (see ulimit -n)";
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

/// What happened to a connection, by its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// It was made.
    Opened(u32),
    /// It was made, and exceeds the limit.
    TooMany(u32),
    /// It has ended.
    Closed(u32),
}

impl Peers {
    /// No connections yet; at most `most` of them are kept.
    pub fn limited(most: usize) -> Self {
        Self { open: HashSet::new(), most, refused: 0 }
    }

    /// Enters one announcement of the monitor, of which `part` is the first part.
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

    /// Connections that exceeded the limit since the socket was opened.
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
            ("tcp://a:65536", "port must be a number"),
            ("tcp://a:-1", "port must be a number"),
            ("ipc://", "no path"),
            (&long, "more than the 107 bytes"),
            ("tcp://a\0:1", "a zero byte"),
        ] {
            let error = check(bad).unwrap_err();
            assert!(error.contains(why) && error.contains("tcp://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let explained = |code, listens| explain("tcp://a:1", listens, &io::Error::from_raw_os_error(code)).to_string();
        assert!(explained(98, true).contains("cannot listen on tcp://a:1: Address already in use; another program"));
        assert!(explained(19, true).contains("no network interface"));
        assert!(explained(13, true).contains("root rights"));
        assert_eq!(["tcp://127.0.0.1:9", "tcp://[::1]:65535", "ipc:///a:7"].map(tcp_port), [Some(9), Some(65535), None]);
        assert!(explained(22, false).starts_with("cannot connect to tcp://a:1: Invalid argument; check the address"));
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
