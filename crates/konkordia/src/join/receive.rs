//! A thread for each socket: takes messages, reads them, and hands on what they mean. It waits when the thread that
//! joins is behind, which holds back the senders.

use super::arrived::{Arrived, Part, Received};
use super::images::Images;
use crossbeam_channel::Sender;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::{Message, MessageSource};
use konkordia_join::file::{JoinFile, Socket, shifted};
use konkordia_sources::zmq::{Context, ZmqKind, ZmqSource, ZmqSourceSpec, context};
use konkordia_wire::scalar::{MESSAGE_BYTES_MAX, Scalars};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait before a look at the stop flag.
const WAIT: Duration = Duration::from_millis(50);
/// Messages that are taken from a socket at once.
const BATCH_MESSAGES: usize = 16;
/// Memory of the messages that wait in libzmq, for each socket.
const QUEUE_BYTES: u64 = 64 << 20;

/// A device that sends numbers: name, place among all sources, offset.
type Device = (String, usize, i64);

/// What reads the messages of a socket.
enum Reader {
    Images(Images),
    /// The devices that send to it.
    Scalars(Vec<Device>),
}

/// A socket that is open.
pub struct Receive {
    socket: ZmqSource,
    reader: Reader,
    counts: Received,
}

/// Opens the sockets of all sources.
pub fn open(join: &JoinFile) -> Result<Vec<Receive>, Failure> {
    let context = context(1).map_err(|error| unopened("ZeroMQ", &error))?;
    let mut found = Vec::new();
    for (n, stream) in join.streams.iter().enumerate() {
        let images = Images::new(n, stream)
            .ok_or_else(|| Failure::new(Exit::Bug, "a stream has no protocol", "", "please report this"))?;
        let bytes_max = stream.message_mib << 20;
        let socket = socket(&context, &stream.address, stream.socket, stream.bind, bytes_max)?;
        found.push(Receive { socket, reader: Reader::Images(images), counts: Received::default() });
    }
    let mut devices: Vec<(&str, Vec<Device>, Socket, bool)> = Vec::new();
    for (n, scalar) in join.scalars.iter().enumerate() {
        let one = (scalar.name.clone(), join.streams.len() + n, scalar.offset);
        match devices.iter_mut().find(|(address, ..)| *address == scalar.address) {
            Some((_, list, ..)) => list.push(one),
            None => devices.push((&scalar.address, vec![one], scalar.socket, scalar.bind)),
        }
    }
    for (address, list, kind, bind) in devices {
        let socket = socket(&context, address, kind, bind, MESSAGE_BYTES_MAX as u64)?;
        found.push(Receive { socket, reader: Reader::Scalars(list), counts: Received::default() });
    }
    found.iter_mut().for_each(|receive| receive.counts.address = receive.socket.name());
    Ok(found)
}

fn socket(context: &Context, address: &str, socket: Socket, bind: bool, message_bytes_max: u64) -> Result<ZmqSource, Failure> {
    let kind = if socket == Socket::Sub { ZmqKind::Sub } else { ZmqKind::Pull };
    let peers_max = machine::connections_per_port();
    let spec = ZmqSourceSpec { bind, kind, message_bytes_max, peers_max, ..ZmqSourceSpec::pull(address) };
    ZmqSource::open(context, &spec).map_err(|error| unopened(address, &error))
}

fn unopened(address: &str, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Io,
        format!("the source {address} cannot be opened"),
        reason(error),
        "correct its address in the join file",
    )
}

impl Receive {
    /// Where it receives.
    pub fn address(&self) -> &str {
        &self.counts.address
    }

    /// Runs until the stop flag is set, or nobody takes what comes.
    pub fn run(mut self, to: &Sender<Arrived>, stop: &Arc<AtomicBool>) -> Received {
        let (mut batch, mut out) = (Vec::new(), Vec::new());
        let mut largest = 0;
        while !stop.load(Ordering::Acquire) {
            if let Err(error) = self.socket.receive(WAIT, BATCH_MESSAGES, &mut batch) {
                self.counts.failed = Some(error.to_string());
                break;
            }
            let most = batch.iter().map(Message::bytes).max().unwrap_or(0);
            if most > largest {
                largest = most;
                self.socket.bound(largest, QUEUE_BYTES);
            }
            for message in batch.drain(..) {
                self.read(message, &mut out);
            }
            self.watch();
            for arrived in out.drain(..) {
                if to.send(arrived).is_err() {
                    return self.counts;
                }
            }
        }
        self.watch();
        self.counts
    }

    fn watch(&mut self) {
        self.counts.refused = self.socket.connections_refused();
        if let Some(why) = self.socket.disconnected() {
            self.counts.disconnected += 1;
            self.counts.problem(|| why);
        }
    }

    fn read(&mut self, message: Message, out: &mut Vec<Arrived>) {
        self.counts.messages += 1;
        match &mut self.reader {
            Reader::Images(images) => images.read(message, &mut self.counts, out),
            Reader::Scalars(devices) => out.extend(numbers(devices, &message, &mut self.counts)),
        }
    }
}

/// What a message of a device means; `None` if it is counted only.
fn numbers(devices: &[(String, usize, i64)], message: &Message, counts: &mut Received) -> Option<Arrived> {
    let parsed = match &message.parts[..] {
        [one] => Scalars::parse(one),
        parts => Err(format!("it has {} parts, and one is possible", parts.len())),
    };
    let read = match parsed {
        Ok(read) => read,
        Err(why) => {
            counts.malformed += 1;
            counts.problem(|| why);
            return None;
        }
    };
    let Some((_, source, offset)) = devices.iter().find(|(name, ..)| *name == read.source) else {
        counts.unknown += 1;
        counts.problem(|| format!("no [[scalar]] of this address has the name '{}'", read.source.escape_debug()));
        return None;
    };
    let Some(trigger) = shifted(read.trigger, *offset) else {
        counts.unnumbered += 1;
        counts.problem(|| format!("number {} with offset {offset} is below 0 or beyond 64 bits", read.trigger));
        return None;
    };
    counts.parts += 1;
    Some(Arrived::Part { source: *source, trigger, part: Part::Scalars(read.values), bytes: message.bytes() })
}
