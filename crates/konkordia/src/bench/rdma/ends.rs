//! Both ends of an attempt of `bench rdma` over sockets. Packets go from a sender as simulated detectors have it, one
//! system call each; they are received as runs receive them. So that nothing is lost, a sender is only so many packets
//! ahead of what the other end has acknowledged as its receive buffer holds. Acknowledgements are datagrams of their
//! own, beside the protocol.

use super::super::fabric_args::RdmaOperation;
use super::super::peer::{Peer, failed};
use super::protocol::{Agreed, Maker, OVERHEAD_BYTES_MAX, Taker, filling, is_message, stamp};
use clap::ValueEnum;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::Source;
use konkordia_sources::udp::{UdpReceiver, UdpSender};
use konkordia_wire::roce::outer::Outer;
use serde_json::{Value, json};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Receive buffer that is asked of the kernel.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// What the kernel keeps with a datagram beside its bytes, at most.
const DATAGRAM_BYTES: usize = 1500;
/// Packets that a sender may be ahead, at most.
const AHEAD_MAX: usize = 512;
/// A receiver that sleeps looks up again after this.
const WAIT: Duration = Duration::from_millis(10);
/// Who polls gives the processor away after so many looks.
const LOOKS: u32 = 256;
/// Packets that did not come in this time are lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// How an end waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps until the kernel tells of one.
    Events,
    /// It asks again and again, and uses a whole core.
    Polling,
}

impl Wait {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Events, Self::Polling];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Polling => "polling",
        }
    }

    /// After a look that has found nothing: who polls gives the processor away now and then, because the other end may
    /// need it.
    pub fn found_nothing(self, looks: &mut u32) {
        *looks += 1;
        if self == Self::Polling && looks.is_multiple_of(LOOKS) {
            std::thread::yield_now();
        }
    }

    /// How long a look at a socket waits.
    pub const fn time(self) -> Duration {
        match self {
            Self::Events => WAIT,
            Self::Polling => Duration::ZERO,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Messages one way.
    Bandwidth,
    /// Messages there and back, in turn.
    Latency,
}

/// One attempt.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub agreed: Agreed,
    pub test: Test,
    pub wait: Wait,
    pub messages: u64,
    /// Is every byte of every message compared when it has come? Otherwise those that lie in memory at the end are.
    pub compares_all: bool,
}

impl Attempt {
    fn to_json(self) -> Value {
        let Agreed { operation, packet_bytes, message_bytes, addresses, compares_icrc } = self.agreed;
        json!({
            "operation": operation.name(), "packet_bytes": packet_bytes, "message_bytes": message_bytes, "addresses": addresses,
            "compares_icrc": compares_icrc, "latency": self.test == Test::Latency, "polls": self.wait == Wait::Polling,
            "messages": self.messages, "compares_all": self.compares_all,
        })
    }

    fn of_json(order: &Value) -> Option<Self> {
        let count = |name: &str| order[name].as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let agreed = Agreed {
            operation: RdmaOperation::from_str(order["operation"].as_str()?, false).ok()?,
            packet_bytes: count("packet_bytes").filter(|bytes| *bytes <= 4096)?,
            message_bytes: count("message_bytes").filter(|bytes| *bytes <= 1 << 26)?,
            addresses: count("addresses")?,
            compares_icrc: order["compares_icrc"].as_bool()?,
        };
        agreed.addresses.checked_mul(agreed.message_bytes)?;
        let test = if order["latency"].as_bool()? { Test::Latency } else { Test::Bandwidth };
        let wait = if order["polls"].as_bool()? { Wait::Polling } else { Wait::Events };
        let messages = order["messages"].as_u64()?;
        Some(Self { agreed, test, wait, messages, compares_all: order["compares_all"].as_bool()? })
    }
}

/// What came of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From the first packet to the last acknowledgement.
    pub seconds: f64,
    /// Half of the time of each message and its answer.
    pub latencies_us: Vec<f64>,
    /// Packets that did not come.
    pub lost: u64,
    /// Processor time of the thread that receives, for each packet.
    pub receiver_ns_per_packet: Option<f64>,
    /// Every message that came was right.
    pub verified: bool,
}

/// The sockets of an end.
struct Sockets {
    data: UdpReceiver,
    acks: UdpReceiver,
}

impl Sockets {
    fn open(own: IpAddr) -> io::Result<Self> {
        let open = |bytes| UdpReceiver::bind(SocketAddr::new(own, 0), bytes);
        Ok(Self { data: open(RECEIVE_BUFFER_BYTES)?, acks: open(1 << 20)? })
    }

    fn ports(&self) -> io::Result<Value> {
        Ok(json!({ "data": self.data.local_addr()?.port(), "acks": self.acks.local_addr()?.port() }))
    }
}

/// One end, connected with the other.
struct End {
    attempt: Attempt,
    sockets: Sockets,
    sender: UdpSender,
    acknowledge: UdpSender,
    maker: Maker,
    taker: Taker,
    room: Vec<u8>,
    message: Vec<u8>,
    filling: Vec<u8>,
    ahead_max: u64,
    sent: u64,
    acknowledged: u64,
    received: u64,
    received_bytes: u64,
    told: u64,
    refused: u64,
    right: bool,
}

/// What an end needs to know of the other.
struct Other {
    data: SocketAddrV4,
    acks: SocketAddr,
}

impl Other {
    fn of(peer: &Peer, line: &Value) -> io::Result<Self> {
        let port = |name: &str| line[name].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
        let IpAddr::V4(ip) = peer.other.to_canonical() else {
            return Err(io::Error::other("RoCEv2 by a socket needs an address of IPv4 at both ends"));
        };
        Ok(Self { data: SocketAddrV4::new(ip, port("data")), acks: SocketAddr::new(peer.other, port("acks")) })
    }
}

fn outer(from: SocketAddr, to: SocketAddr) -> io::Result<Outer> {
    Outer::of_udp_socket(from, to).ok_or_else(|| io::Error::other(format!("{from} and {to} are not of the same family")))
}

impl End {
    fn new(attempt: Attempt, sockets: Sockets, sender: UdpSender, other: &Other, from: SocketAddr, key: u32) -> io::Result<Self> {
        let agreed = attempt.agreed;
        let taker = Taker::new(agreed, outer(from, sockets.data.local_addr()?)?);
        let maker = Maker::new(agreed, outer(sender.local_addr()?, other.data.into())?, key);
        let filling = filling(agreed.message_bytes);
        let ahead = sockets.data.receive_buffer_bytes() / 4 / (agreed.packet_bytes + DATAGRAM_BYTES);
        Ok(Self {
            attempt,
            sender,
            acknowledge: UdpSender::connect(other.acks)?,
            maker,
            taker,
            room: vec![0; agreed.packet_bytes + OVERHEAD_BYTES_MAX],
            message: filling.clone(),
            filling,
            ahead_max: ahead.clamp(4, AHEAD_MAX) as u64,
            sockets,
            sent: 0,
            acknowledged: 0,
            received: 0,
            received_bytes: 0,
            told: 0,
            refused: 0,
            right: true,
        })
    }

    /// Takes the acknowledgements that came; waits until the sender is less than `ahead` ahead. False if they do not
    /// come.
    fn await_acknowledgement(
        acks: &mut UdpReceiver,
        wait: Wait,
        sent: u64,
        acknowledged: &mut u64,
        ahead: u64,
    ) -> io::Result<bool> {
        let (begin, mut looks) = (Instant::now(), 0);
        loop {
            let is_behind = sent - *acknowledged >= ahead;
            let time = if is_behind { wait.time() } else { Duration::ZERO };
            acks.receive(time, &mut |datagram, _| {
                let number = datagram.first_chunk::<8>().map_or(0, |count| u64::from_le_bytes(*count));
                *acknowledged = number.clamp(*acknowledged, sent);
            })?;
            if sent - *acknowledged < ahead {
                return Ok(true);
            }
            if begin.elapsed() > PATIENCE {
                return Ok(false);
            }
            wait.found_nothing(&mut looks);
        }
    }

    /// Sends a message. False if the other end does not take it.
    fn send(&mut self, number: u64) -> io::Result<bool> {
        stamp(&mut self.message, number);
        let Self { maker, sender, sockets, sent, acknowledged, ahead_max, .. } = self;
        let (wait, every) = (self.attempt.wait, (*ahead_max / 4).max(1));
        let mut is_taken = true;
        let put = &mut |packet: &[u8]| {
            if is_taken {
                sender.send(packet)?;
                *sent += 1;
                if *sent - *acknowledged >= *ahead_max || sent.is_multiple_of(every) {
                    is_taken = Self::await_acknowledgement(&mut sockets.acks, wait, *sent, acknowledged, *ahead_max)?;
                }
            }
            Ok(())
        };
        maker.make(&self.message, number, &mut self.room, put)?;
        Ok(is_taken)
    }

    /// Takes packets until so many messages are whole; false if they do not come. The bytes say how many messages are
    /// whole, whether the protocol has events or not.
    fn receive(&mut self, messages: u64, memory: &mut [u8]) -> io::Result<bool> {
        let agreed = self.attempt.agreed;
        let whole = messages * agreed.message_bytes as u64;
        let (every, all) = ((self.ahead_max / 4).max(1), self.attempt.messages * agreed.packets() as u64);
        let (mut begin, mut looks) = (Instant::now(), 0);
        while self.received_bytes < whole {
            let Self { taker, filling, received, received_bytes, refused, right, .. } = self;
            let compares_all = self.attempt.compares_all;
            let count = self.sockets.data.receive(self.attempt.wait.time(), &mut |datagram, _| {
                let Some(judged) = taker.judge(datagram) else {
                    *refused += 1;
                    return;
                };
                memory[judged.offset..judged.offset + judged.payload.len()].copy_from_slice(judged.payload);
                *received += 1;
                *received_bytes += judged.payload.len() as u64;
                if compares_all && received_bytes.is_multiple_of(agreed.message_bytes as u64) {
                    let number = *received_bytes / agreed.message_bytes as u64 - 1;
                    *right &= is_message(&memory[agreed.offset(number)..][..agreed.message_bytes], number, filling);
                }
            })?;
            if self.received - self.told >= every || (self.received == all && self.told < all) {
                self.acknowledge.send(&self.received.to_le_bytes())?;
                self.told = self.received;
            }
            if count > 0 {
                begin = Instant::now();
            } else if begin.elapsed() > PATIENCE {
                return Ok(false);
            } else {
                self.attempt.wait.found_nothing(&mut looks);
            }
        }
        Ok(true)
    }

    /// Whether the messages that lie in memory are right, in every byte.
    fn is_right(&self, memory: &[u8]) -> bool {
        let agreed = self.attempt.agreed;
        let last = self.received_bytes / agreed.message_bytes as u64;
        let first = last.saturating_sub(agreed.addresses as u64);
        let right = (first..last).all(|n| is_message(&memory[agreed.offset(n)..][..agreed.message_bytes], n, &self.filling));
        self.right && right && self.refused == 0
    }

    fn lost(&self) -> u64 {
        self.attempt.messages * self.attempt.agreed.packets() as u64 - self.received
    }
}

/// The near end of an attempt.
///
/// # Errors
/// If sockets fail, or the other end does.
pub fn measure(peer: &mut Peer, attempt: &Attempt, memory: &mut Vec<u8>) -> Result<Measured, Failure> {
    let broken = |error: io::Error| failed(&format!("{}", attempt.to_json()), &error);
    let sockets = Sockets::open(peer.own).map_err(broken)?;
    let own = sockets.ports().map_err(broken)?;
    let there = peer.ask(&json!({ "attempt": attempt.to_json(), "ports": own }))?;
    let other = Other::of(peer, &there["ports"]).map_err(broken)?;
    let sender = UdpSender::for_roce(other.data).map_err(broken)?;
    let from = from_of(&there).map_err(broken)?;
    let local = sender.local_addr().map_err(broken)?;
    let key = there["key"].as_u64().unwrap_or_default() as u32;
    let mut end = End::new(*attempt, sockets, sender, &other, from, key).map_err(broken)?;
    if attempt.test == Test::Latency {
        super::super::udp::make_room(memory, attempt.agreed.memory_bytes())?;
    }
    peer.ask(&json!({ "from": local.to_string(), "key": end.taker.key() }))?;
    let (begin, mut latencies_us, mut is_whole) = (Instant::now(), Vec::new(), true);
    for number in 0..attempt.messages {
        let sent = Instant::now();
        is_whole = end.send(number).map_err(broken)?;
        if is_whole && attempt.test == Test::Latency {
            is_whole = end.receive(number + 1, memory).map_err(broken)?;
            latencies_us.push(sent.elapsed().as_secs_f64() / 2.0 * 1e6);
        }
        if !is_whole {
            break;
        }
    }
    if is_whole && attempt.test == Test::Bandwidth {
        let End { sockets, sent, acknowledged, .. } = &mut end;
        End::await_acknowledgement(&mut sockets.acks, attempt.wait, *sent, acknowledged, 1).map_err(broken)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let result = peer.ask(&json!({ "sent": end.sent }))?;
    let is_right = attempt.test == Test::Bandwidth || end.is_right(memory);
    Ok(Measured {
        seconds,
        latencies_us,
        lost: result["lost"].as_u64().unwrap_or(u64::MAX),
        receiver_ns_per_packet: result["receiver_ns_per_packet"].as_f64(),
        verified: is_right && result["right"] == true,
    })
}

fn from_of(line: &Value) -> io::Result<SocketAddr> {
    line["from"].as_str().and_then(|text| text.parse().ok()).ok_or_else(|| io::Error::other("an address is missing"))
}

/// The far end: one attempt after the other.
///
/// # Errors
/// If sockets fail, or the near end says what cannot be done.
pub fn serve(peer: &mut Peer) -> Result<(), Failure> {
    // Kept from attempt to attempt, so that its pages are there.
    let mut memory = Vec::new();
    let cannot = |error: io::Error| failed("an attempt has failed", &error);
    while let Some(order) = peer.hear()? {
        let Some(attempt) = Attempt::of_json(&order["attempt"]) else {
            let fix = "start the same version at both ends";
            return Err(Failure::new(Exit::Usage, "an attempt cannot be made", order.to_string(), fix));
        };
        super::super::udp::make_room(&mut memory, attempt.agreed.memory_bytes())?;
        let sockets = Sockets::open(peer.own).map_err(cannot)?;
        let other = Other::of(peer, &order["ports"]).map_err(cannot)?;
        let sender = UdpSender::for_roce(other.data).map_err(cannot)?;
        let ports = sockets.ports().map_err(cannot)?;
        let local = sender.local_addr().map_err(cannot)?;
        // The keys of both ends are those of a table with one region.
        let key = Taker::new(attempt.agreed, outer(local, local).map_err(cannot)?).key();
        let begin = peer.ask(&json!({ "ports": ports, "from": local.to_string(), "key": key }))?;
        let from = from_of(&begin).map_err(cannot)?;
        let key = begin["key"].as_u64().unwrap_or_default() as u32;
        let mut end = End::new(attempt, sockets, sender, &other, from, key).map_err(cannot)?;
        peer.tell(&json!({ "ready": true }))?;
        let (before, mut is_whole) = (super::super::udp::processor_ns(), true);
        if attempt.test == Test::Latency {
            for number in 0..attempt.messages {
                is_whole =
                    is_whole && end.receive(number + 1, &mut memory).map_err(cannot)? && end.send(number).map_err(cannot)?;
            }
        } else {
            is_whole = end.receive(attempt.messages, &mut memory).map_err(cannot)?;
        }
        let used = before.zip(super::super::udp::processor_ns()).map(|(before, after)| (after - before) as f64);
        peer.answer()?;
        let per_packet = used.filter(|_| is_whole).map(|ns| ns / end.received.max(1) as f64);
        peer.tell(&json!({ "right": end.is_right(&memory), "lost": end.lost(), "receiver_ns_per_packet": per_packet }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::peer::with_peer;
    use super::*;

    fn attempt(operation: RdmaOperation, message_bytes: usize, test: Test, wait: Wait) -> Attempt {
        let agreed = Agreed { operation, packet_bytes: 1024, message_bytes, addresses: 5, compares_icrc: true };
        Attempt { agreed, test, wait, messages: 40, compares_all: true }
    }

    #[test]
    fn all_messages_come_whole_over_sockets() {
        let measured = with_peer("rdma", None, serve, |peer| {
            let (mut memory, mut all) = (Vec::new(), Vec::new());
            for operation in RdmaOperation::ALL {
                for wait in Wait::ALL {
                    all.push(measure(peer, &attempt(operation, 3000, Test::Bandwidth, wait), &mut memory)?);
                    let there_and_back = measure(peer, &attempt(operation, 1, Test::Latency, wait), &mut memory)?;
                    assert_eq!(there_and_back.latencies_us.len(), 40);
                    all.push(there_and_back);
                }
            }
            Ok(all)
        });
        for one in measured.unwrap() {
            assert!(one.verified && one.lost == 0 && one.seconds > 0.0, "{one:?}");
        }
    }

    #[test]
    fn an_attempt_is_the_same_at_the_other_end() {
        let one = attempt(RdmaOperation::WriteImm, 3000, Test::Latency, Wait::Polling);
        let other = Attempt::of_json(&one.to_json()).unwrap();
        assert_eq!((other.agreed, other.to_json()), (one.agreed, one.to_json()));
        let mut wrong = one.to_json();
        wrong["packet_bytes"] = json!(4097);
        assert!(Attempt::of_json(&wrong).is_none());
        assert!(Attempt::of_json(&json!({})).is_none());
    }
}
