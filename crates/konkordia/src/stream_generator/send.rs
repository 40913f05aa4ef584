//! The sockets that send messages.

use super::args::{SendKind, ToArgs};
use super::socket_failure;
use bytes::Bytes;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::Message;
use konkordia_sinks::zmq::{Sent, ZmqOut, ZmqOutKind, ZmqOutSpec};
use konkordia_sources::zmq::context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long messages that libzmq has queued may take to reach their receiver, after the last one was sent.
const LINGER: Duration = Duration::from_secs(10);
/// Memory of messages that wait in libzmq, for each socket.
const QUEUE_BYTES: u64 = 64 << 20;
/// Longest wait before a check for Ctrl-C.
const ATTEMPT: Duration = Duration::from_millis(100);
/// Below this a sleep would last longer than asked for.
const SLEEP_MIN: Duration = Duration::from_micros(60);

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    /// Messages.
    pub messages: u64,
    /// Bytes of their parts.
    pub bytes: u64,
}

/// The sockets, one per upstream.
pub struct OutputQueues {
    outs: Vec<ZmqOut>,
    wait: Duration,
    interrupted: Arc<AtomicBool>,
    /// What was sent so far.
    pub total: Total,
}

impl OutputQueues {
    /// Opens `upstreams` sockets for messages of `message_bytes`.
    pub fn open(
        to: &ToArgs,
        default: SendKind,
        upstreams: usize,
        message_bytes: u64,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let kind = match to.kind.unwrap_or(default) {
            SendKind::Push => ZmqOutKind::Push,
            SendKind::Pub => ZmqOutKind::PubReliable,
        };
        let context = context(1).map_err(|e| socket_failure(&e))?;
        let queue_messages = (QUEUE_BYTES / message_bytes.max(1)).clamp(3, 1000) as i32;
        let open = |address: String| {
            let spec = ZmqOutSpec { bind: !to.connect, kind, queue_messages, linger: LINGER, ..ZmqOutSpec::push(address) };
            ZmqOut::open(&context, &spec).map_err(|e| socket_failure(&e))
        };
        let outs = addresses(&to.to, upstreams)?.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { outs, wait: Duration::from_secs_f64(to.wait), interrupted, total: Total::default() })
    }

    /// The addresses, with the ports that the kernel chose.
    pub fn names(&self) -> Vec<String> {
        self.outs.iter().map(|out| out.name().to_owned()).collect()
    }

    /// Number of sockets.
    pub fn count(&self) -> usize {
        self.outs.len()
    }

    /// Waits until a receiver is connected to every socket; false if interrupted.
    pub fn wait_for_receivers(&mut self) -> Result<bool, Failure> {
        for out in &mut self.outs {
            let end = Instant::now() + self.wait;
            while !out.has_receiver() {
                if self.interrupted.load(Ordering::Acquire) {
                    return Ok(false);
                }
                if Instant::now() >= end {
                    return Err(nobody(out.name(), self.wait));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(true)
    }

    /// Sends one message by socket `upstream`; false if interrupted. Waits without limit while a receiver is connected,
    /// and for `--wait` without one.
    pub fn send(&mut self, upstream: usize, parts: &[Bytes]) -> Result<bool, Failure> {
        let out = &mut self.outs[upstream];
        let mut alone_since: Option<Instant> = None;
        loop {
            match out.send(parts, ATTEMPT).map_err(|e| socket_failure(&e))? {
                Sent::Sent => break,
                Sent::Full => alone_since = None,
                Sent::NoPeer if alone_since.get_or_insert_with(Instant::now).elapsed() < self.wait => {}
                Sent::NoPeer => return Err(nobody(out.name(), self.wait)),
            }
            if self.interrupted.load(Ordering::Acquire) {
                return Ok(false);
            }
        }
        self.total.messages += 1;
        self.total.bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(true)
    }

    /// As [`Self::send`].
    pub fn send_message(&mut self, upstream: usize, message: &Message) -> Result<bool, Failure> {
        self.send(upstream, &message.parts)
    }

    /// Sleeps until `due`; false if interrupted.
    pub fn sleep_until(&self, due: Instant) -> bool {
        loop {
            if self.interrupted.load(Ordering::Acquire) {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left < SLEEP_MIN {
                return true;
            }
            std::thread::sleep(left.min(ATTEMPT));
        }
    }
}

fn nobody(name: &str, wait: Duration) -> Failure {
    let why = format!("no receiver took messages from {name} for {} s", wait.as_secs_f64());
    Failure::new(
        Exit::Timeout,
        "there is no receiver",
        why,
        "start the receiver, check the address, or give --wait a longer time",
    )
}

/// The address of each of `upstreams` sockets: those given, and then the ports that follow the last one.
fn addresses(given: &[String], upstreams: usize) -> Result<Vec<String>, Failure> {
    let wrong = |why: String| {
        let fix = "give --to tcp://HOST:PORT, or one URL per upstream";
        Failure::new(Exit::Usage, "the numbers of addresses and of upstreams differ", why, fix)
    };
    let Some(last) = given.last() else { return Err(wrong("there is no --to".into())) };
    if given.len() > upstreams {
        return Err(wrong(format!("{} addresses, but {upstreams} upstreams", given.len())));
    }
    let mut all = given.to_vec();
    for n in 1..=upstreams - given.len() {
        let (host, port) = last.rsplit_once(':').unwrap_or((last, ""));
        let next = match port.parse::<u16>() {
            _ if port == "*" => last.clone(),
            Ok(port) if last.starts_with("tcp://") => {
                let next = usize::from(port) + n;
                let next = u16::try_from(next).map_err(|_| wrong(format!("port {next} is beyond 65535")))?;
                format!("{host}:{next}")
            }
            _ => return Err(wrong(format!("no address follows {last}"))),
        };
        all.push(next);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_upstreams_take_the_next_ports() {
        let all = |given: &[&str], upstreams| addresses(&given.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(), upstreams);
        assert_eq!(all(&["tcp://*:5000"], 3).unwrap(), ["tcp://*:5000", "tcp://*:5001", "tcp://*:5002"]);
        assert_eq!(all(&["ipc:///a", "tcp://h:*"], 3).unwrap(), ["ipc:///a", "tcp://h:*", "tcp://h:*"]);
        assert!(all(&["tcp://h:65535"], 2).unwrap_err().why.contains("65536"));
        assert!(all(&["ipc:///a"], 2).unwrap_err().why.contains("no address follows"));
        assert!(all(&[], 1).unwrap_err().why.contains("no --to"));
        assert!(all(&["tcp://h:1", "tcp://h:2"], 1).is_err());
    }
}
