//! The two ends of a bench of the network: both in this process over loopback, or on two machines, one of which was
//! started with `--listen`. They agree in lines of JSON over TCP on what to do next; the first line names the bench and
//! the version.

use crate::console;
use konkordia_core::failure::{Exit, Failure, reason};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An answer takes no longer than this, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the listening end does for one other end, until that ends the connection.
pub type Serve = fn(&mut Peer) -> Result<(), Failure>;

/// The other end.
pub struct Peer {
    lines: BufReader<TcpStream>,
    /// The own address of this connection.
    pub own: IpAddr,
    /// The address of the other end.
    pub other: IpAddr,
}

/// A failure of the network, or of a test over it.
pub fn failed(what: &str, error: &io::Error) -> Failure {
    let fix = "check that the other end is running, that the network is up, and that no firewall is between them";
    Failure::new(Exit::Io, what, reason(error), fix)
}

/// Text for people: where the packets go.
pub fn network(to: Option<SocketAddr>) -> String {
    to.map_or("loopback (software stand-in for a network; both ends on the same processors)".into(), |to| to.to_string())
}

/// The bytes of a message before it has a number.
pub fn filling(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 256) as u8).collect()
}

/// Calls `drive` with the peer at `to`, or with one that serves in a thread of this process, over loopback.
///
/// # Errors
/// If the peer cannot be reached or runs another bench or version, or of `drive`.
pub fn with_peer<T>(
    bench: &str,
    to: Option<SocketAddr>,
    serve: Serve,
    drive: impl FnOnce(&mut Peer) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let hello = json!({ "konkordia": env!("CARGO_PKG_VERSION"), "bench": bench });
    let connect = |to: SocketAddr| -> Result<Peer, Failure> {
        let mut peer = TcpStream::connect(to).and_then(|stream| Peer::new(stream, Some(PATIENCE))).map_err(|error| {
            let fix = format!("start `konkordia bench {bench} --listen ADDRESS:PORT` there, and check firewalls");
            Failure::new(Exit::Unreachable, format!("the other end at {to} cannot be reached"), reason(&error), fix)
        })?;
        peer.tell(&hello)?;
        Ok(peer)
    };
    if let Some(to) = to {
        return drive(&mut connect(to)?);
    }
    let no_loopback = |error: io::Error| failed("loopback cannot be used", &error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(no_loopback)?;
    let mut near = connect(listener.local_addr().map_err(no_loopback)?)?;
    let far = listener.accept().and_then(|(stream, _)| Peer::new(stream, None)).map_err(no_loopback)?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| far.serve(bench, serve));
        let result = drive(&mut near);
        // The server ends with the connection.
        drop(near);
        match server.join() {
            Ok(served) => result.and_then(|value| served.map(|()| value)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Serves one other end after the other, until the process is ended.
///
/// # Errors
/// If nobody can listen at `address`.
pub fn listen(bench: &str, address: SocketAddr, serve: Serve, is_json: bool) -> Result<Exit, Failure> {
    let cannot = |error: io::Error| {
        let fix = "choose another port, or an address of this machine (0.0.0.0 for all)";
        Failure::new(Exit::Io, format!("cannot listen at {address}"), reason(&error), fix)
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    if is_json {
        console::json(&json!({ "event": "listening", "address": bound.to_string() }), true);
    } else {
        console::to_stdout(&format!(
            "listening at {bound}; on the other machine: konkordia bench {bench} --to ADDRESS:{}",
            bound.port()
        ));
    }
    loop {
        let served = listener.accept().and_then(|(stream, _)| Peer::new(stream, None)).map_err(cannot)?.serve(bench, serve);
        if let Err(failure) = served {
            console::to_stderr(&failure.to_string());
        }
    }
}

/// Another process of this program that is the other end, until this value is dropped.
pub struct OtherProcess {
    /// Where it listens.
    pub address: SocketAddr,
    process: Child,
}

impl OtherProcess {
    /// Starts it on loopback.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(bench: &str) -> Result<Self, Failure> {
        let cannot = |error: io::Error| failed("the other end cannot be started", &error);
        let program = std::env::current_exe().map_err(cannot)?;
        let arguments = ["bench", bench, "--listen", "127.0.0.1:0", "--json"];
        let mut process =
            Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let mut line = String::new();
        let read = process.stdout.take().map_or(Ok(0), |out| BufReader::new(out).read_line(&mut line));
        // From here on it is ended with this value.
        let mut other = Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), process };
        read.map_err(cannot)?;
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let address = said["address"].as_str().and_then(|address| address.parse().ok());
        other.address = address.ok_or_else(|| cannot(io::Error::other(format!("it said '{}'", line.trim()))))?;
        Ok(other)
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Peer {
    fn new(stream: TcpStream, patience: Option<Duration>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(patience)?;
        let (own, other) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        Ok(Self { lines: BufReader::new(stream), own, other })
    }

    /// Greets the other end and serves it; what goes wrong is told to it.
    fn serve(mut self, bench: &str, serve: Serve) -> Result<(), Failure> {
        let served = self.greet(bench).and_then(|()| serve(&mut self));
        if let Err(failure) = &served {
            // If the connection is the cause, this fails too.
            let _ = self.tell(&json!({ "failed": failure.what, "why": failure.why, "fix": failure.fix }));
        }
        served
    }

    fn greet(&mut self, bench: &str) -> Result<(), Failure> {
        let own = json!({ "konkordia": env!("CARGO_PKG_VERSION"), "bench": bench });
        match self.hear()? {
            Some(hello) if hello != own => {
                let why = format!("one end is {own}, the other {hello}");
                Err(Failure::new(
                    Exit::Usage,
                    "the two ends do not fit",
                    why,
                    "start the same bench of the same version at both ends",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Sends a line.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn tell(&mut self, message: &Value) -> Result<(), Failure> {
        let sent = self.lines.get_mut().write_all(format!("{message}\n").as_bytes());
        sent.map_err(|error| failed("the other end of the bench is gone", &error))
    }

    /// Waits for a line; `None` if the other end has ended the connection.
    ///
    /// # Errors
    /// If the connection is broken, or the other end has failed.
    pub fn hear(&mut self) -> Result<Option<Value>, Failure> {
        let mut line = String::new();
        let gone = |error: io::Error| failed("the other end of the bench does not answer", &error);
        if self.lines.read_line(&mut line).map_err(gone)? == 0 {
            return Ok(None);
        }
        let message: Value = serde_json::from_str(&line).map_err(|error| gone(io::Error::other(error)))?;
        match message["failed"].as_str() {
            Some(what) => {
                let text = |name: &str| message[name].as_str().unwrap_or_default();
                Err(Failure::new(Exit::Io, format!("the other end: {what}"), text("why"), text("fix")))
            }
            None => Ok(Some(message)),
        }
    }

    /// Sends a line and waits for the answer.
    ///
    /// # Errors
    /// As [`Peer::tell`] and [`Peer::hear`], and if the other end has ended the connection.
    pub fn ask(&mut self, message: &Value) -> Result<Value, Failure> {
        self.tell(message)?;
        self.answer()
    }

    /// Waits for a line that must come.
    ///
    /// # Errors
    /// As [`Peer::hear`], and if the other end has ended the connection.
    pub fn answer(&mut self) -> Result<Value, Failure> {
        let ended = || failed("the other end of the bench is gone", &io::Error::from(io::ErrorKind::UnexpectedEof));
        self.hear()?.ok_or_else(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_talk_and_failures_are_told() {
        let echo: Serve = |peer| {
            while let Some(message) = peer.hear()? {
                if message == json!("fail") {
                    return Err(Failure::new(Exit::Bug, "an echo is broken", "why", "fix"));
                }
                peer.tell(&message)?;
            }
            Ok(())
        };
        let echoed = with_peer("echo", None, echo, |peer| peer.ask(&json!({ "n": 7 })));
        assert_eq!(echoed.unwrap()["n"], 7);
        let failure = with_peer("echo", None, echo, |peer| peer.ask(&json!("fail"))).unwrap_err();
        assert_eq!(failure.what, "the other end: an echo is broken");
    }

    #[test]
    fn ends_that_do_not_fit_say_so() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || Peer::new(listener.accept().unwrap().0, None).unwrap().serve("one", |_| Ok(())));
        let refused = with_peer("two", Some(to), |_| Ok(()), |peer| peer.answer()).unwrap_err();
        assert!(refused.what.contains("do not fit"), "{refused}");
        assert!(server.join().unwrap().is_err());
    }
}
