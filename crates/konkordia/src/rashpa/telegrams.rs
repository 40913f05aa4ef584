//! Telegrams over TCP: 4 bytes of length before each, a bound on what is taken, and time limits for peers that are
//! silent in the middle of one.

use crate::console;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_fabric::rashpa::control::ModuleControl;
use konkordia_fabric::rashpa::receiver_control::ReceiverControl;
use konkordia_fabric::rashpa::telegram::{BadTelegram, Body, Code, Nack, Name, Sentence, Telegram, length_of};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A telegram has come as a whole so long after its first byte, and the first one so long after its connection.
const WHOLE: Duration = Duration::from_secs(5);
/// A connection on which nothing was said for so long is closed: nobody may be there any more.
const IDLE: Duration = Duration::from_secs(60);
/// Connections at a time.
const CONNECTIONS_MAX: usize = 600;

/// Why there is no telegram.
#[derive(Debug)]
pub enum Broken {
    /// The peer has closed the connection.
    Closed,
    /// Nothing, or not all of it, came in time.
    Silent,
    /// The connection failed.
    Failed(std::io::Error),
    /// What came is none.
    Bad(BadTelegram),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection was closed"),
            Self::Silent => f.write_str("no answer in time"),
            Self::Failed(error) => f.write_str(&reason(error)),
            Self::Bad(why) => why.fmt(f),
        }
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Locks; a thread that panicked has left nothing half done here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fill(mut stream: &TcpStream, bytes: &mut [u8], until: Instant) -> Result<(), Broken> {
    let mut at = 0;
    while at < bytes.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Broken::Silent);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes[at..]) {
            Ok(0) => return Err(Broken::Closed),
            Ok(count) => at += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads a telegram that begins within `patience`.
fn read(stream: &TcpStream, patience: Duration) -> Result<Telegram, Broken> {
    let mut prefix = [0; 4];
    fill(stream, &mut prefix[..1], Instant::now() + patience)?;
    let until = Instant::now() + WHOLE;
    fill(stream, &mut prefix[1..], until)?;
    let mut bytes = vec![0; length_of(prefix).map_err(Broken::Bad)?];
    fill(stream, &mut bytes, until)?;
    Telegram::from_xml(&bytes).map_err(Broken::Bad)
}

/// Writes a telegram.
pub fn write(mut stream: &TcpStream, telegram: &Telegram) -> Result<(), Broken> {
    let frame = telegram.to_frame().map_err(Broken::Bad)?;
    stream.set_write_timeout(Some(WHOLE))?;
    Ok(stream.write_all(&frame)?)
}

/// Waits for the answer to a telegram.
pub fn answer(stream: &TcpStream, patience: Duration) -> Result<Telegram, Broken> {
    read(stream, patience)
}

/// Connects to a member.
pub fn connect(address: &str, patience: Duration) -> Result<TcpStream, Broken> {
    let mut last = Broken::Silent;
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// What answers telegrams.
pub trait Answers: Send + 'static {
    /// Does what a telegram says.
    fn handle(&mut self, telegram: &Telegram) -> Telegram;
    /// The connection of a sender of telegrams has ended; true if it was the master.
    fn left(&mut self, name: &Name) -> bool;
    /// The connection of somebody who gave credits has ended; true if that is in the midst of a run.
    fn creditor_left(&mut self, name: &Name) -> bool;
}

impl Answers for ModuleControl {
    fn handle(&mut self, telegram: &Telegram) -> Telegram {
        Self::handle(self, telegram)
    }
    fn left(&mut self, name: &Name) -> bool {
        Self::left(self, name)
    }
    fn creditor_left(&mut self, name: &Name) -> bool {
        Self::creditor_left(self, name)
    }
}

impl Answers for ReceiverControl {
    fn handle(&mut self, telegram: &Telegram) -> Telegram {
        Self::handle(self, telegram)
    }
    fn left(&mut self, name: &Name) -> bool {
        Self::left(self, name)
    }
    /// Nobody gives credits to a receiver.
    fn creditor_left(&mut self, _: &Name) -> bool {
        false
    }
}

/// Takes telegrams at an address, from threads that end with the process; returns the address that was bound.
pub fn serve<T: Answers>(listen: SocketAddr, name: &Name, member: &Arc<Mutex<T>>) -> Result<SocketAddr, Failure> {
    let failed = |error: std::io::Error| {
        let fix = "give an address of this machine, or end the program that has the port";
        Failure::new(Exit::Io, format!("cannot take telegrams at {listen}"), reason(&error), fix)
    };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (name, member) = (name.clone(), Arc::clone(member));
    let open = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        for stream in listener.incoming().flatten() {
            // Whoever comes when there are too many is closed at once.
            if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (name, member, of_thread) = (name.clone(), Arc::clone(&member), Arc::clone(&open));
            let work = move || {
                converse(&stream, &name, &member);
                of_thread.fetch_sub(1, Ordering::AcqRel);
            };
            if std::thread::Builder::new().name("telegrams".into()).spawn(work).is_err() {
                open.fetch_sub(1, Ordering::AcqRel);
            }
        }
    };
    std::thread::Builder::new().name("accept".into()).spawn(accept).map_err(failed)?;
    Ok(address)
}

/// Answers the telegrams of one connection until it ends.
fn converse<T: Answers>(stream: &TcpStream, name: &Name, member: &Mutex<T>) {
    let (mut master, mut creditor) = (None, None);
    let mut patience = WHOLE;
    let _ = stream.set_nodelay(true);
    loop {
        let telegram = match read(stream, patience) {
            Ok(telegram) => telegram,
            Err(Broken::Bad(why)) => {
                let nack = Nack { number: 0, code: Code::Invalid, reason: Sentence::lossy(&why.to_string()) };
                let answer = Telegram { number: 0, sender: name.clone(), body: Body::Nack(nack) };
                // Behind a wrong length nobody knows where the next telegram begins.
                if write(stream, &answer).is_err() || matches!(why, BadTelegram::Length(_)) {
                    break;
                }
                continue;
            }
            Err(Broken::Silent) => {
                // Who gives no credits for a while is still there.
                creditor = None;
                break;
            }
            Err(_) => break,
        };
        patience = IDLE;
        let answer = lock(member).handle(&telegram);
        if matches!((&telegram.body, &answer.body), (Body::CommConfig(_), Body::Ack(_))) {
            master = Some(telegram.sender.clone());
        }
        if matches!((&telegram.body, &answer.body), (Body::Credit(_), Body::Ack(_))) {
            creditor = Some(telegram.sender.clone());
        }
        if matches!((&telegram.body, &answer.body), (Body::Release, Body::Ack(_))) {
            master = None;
        }
        if write(stream, &answer).is_err() {
            break;
        }
    }
    if let Some(creditor) = creditor.filter(|creditor| lock(member).creditor_left(creditor)) {
        let (creditor, name) = (creditor.as_str(), name.as_str());
        console::note(&format!("{creditor} has left {name}: its connection for credits has ended in the midst of the run"));
    }
    if master.is_some_and(|master| lock(member).left(&master)) {
        console::note(&format!("the manager of {} has left without a word; its run is ended", name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_fabric::rashpa::telegram::ModuleCapabilities;

    fn module() -> SocketAddr {
        let name = Name::new("module-0").unwrap();
        let control = ModuleControl::new(name.clone(), ModuleCapabilities::default());
        serve("127.0.0.1:0".parse().unwrap(), &name, &Arc::new(Mutex::new(control))).unwrap()
    }

    #[test]
    fn a_length_of_1_gb_is_refused_before_anything_of_it_comes() {
        let stream = connect(&module().to_string(), WHOLE).unwrap();
        (&stream).write_all(&[0x40, 0, 0, 0]).unwrap();
        let Body::Nack(nack) = answer(&stream, WHOLE * 4).unwrap().body else { panic!("refused") };
        assert!(nack.reason.as_str().contains("1 to 1048576 bytes, not 1073741824"));
        assert!(matches!(answer(&stream, WHOLE * 4), Err(Broken::Closed)));
    }

    #[test]
    fn what_is_no_telegram_is_answered_and_the_next_one_is_taken() {
        let stream = connect(&module().to_string(), WHOLE).unwrap();
        let laughs = b"<!DOCTYPE x [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\">]><rashpa>&b;</rashpa>";
        (&stream).write_all(&(laughs.len() as u32).to_be_bytes()).unwrap();
        (&stream).write_all(laughs).unwrap();
        let Body::Nack(nack) = answer(&stream, WHOLE * 4).unwrap().body else { panic!("refused") };
        assert!(nack.reason.as_str().contains("document type"));
        let request = Telegram { body: Body::StatusRequest, ..Telegram::default() };
        write(&stream, &request).unwrap();
        assert!(matches!(answer(&stream, WHOLE * 4).unwrap().body, Body::Status(_)));
    }

    #[test]
    fn a_peer_that_stops_in_the_middle_of_a_telegram_is_left() {
        let stream = connect(&module().to_string(), WHOLE).unwrap();
        (&stream).write_all(&[0, 0, 1, 0, b'<']).unwrap();
        assert!(matches!(answer(&stream, WHOLE * 6), Err(Broken::Closed)), "after 5 s");
    }
}
