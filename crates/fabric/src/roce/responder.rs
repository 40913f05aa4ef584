//! The responder: takes packets of several queue pairs, and says of each what is to be done.

use crate::regions::Regions;
use crate::roce::pair::{Outcome, QueuePair, QueuePairSettings, Receive};
use crate::roce::verdict::{Counters, Verdict};
use konkordia_wire::roce::opcode::{Operation, Transport};
use konkordia_wire::roce::outer::Outer;
use konkordia_wire::roce::{NoPacket, Packet, QueuePairNumber, is_same_partition};
use std::fmt;
use std::num::NonZeroU32;

/// Which packets have their iCRC compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcCheck {
    /// All.
    Always,
    /// The first of so many.
    OneIn(NonZeroU32),
    /// None: the headers around the packets are not known, as behind a UDP socket with most senders.
    Never,
}

/// Why a queue pair or a receive is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The table holds so many queue pairs.
    QueuePairsFull(usize),
    /// There is one of this number, or its number is 0 or 1, which are not for applications.
    NumberInUse(QueuePairNumber),
    /// A queue pair has no such transport.
    Transport,
    /// There is no queue pair of this number.
    UnknownQueuePair(QueuePairNumber),
    /// So many receives are prepared already.
    ReceivesFull(usize),
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueuePairsFull(most) => write!(f, "all {most} queue pairs are in use; remove one, or allow more"),
            Self::NumberInUse(number) => write!(f, "queue pair {number} is in use or reserved; choose another number"),
            Self::Transport => f.write_str("a queue pair is RC, UC or UD"),
            Self::UnknownQueuePair(number) => write!(f, "there is no queue pair {number}"),
            Self::ReceivesFull(most) => write!(f, "{most} receives are prepared, as many as the queue pair holds"),
        }
    }
}

impl std::error::Error for NotTaken {}

/// The queue pairs of a receiver. Nothing allocates per packet.
///
/// ```
/// use konkordia_fabric::regions::{ProtectionDomain, Region, Regions, Rights};
/// use konkordia_fabric::roce::pair::{QueuePairSettings, Receive};
/// use konkordia_fabric::roce::requester::{Cut, Requester, RequesterSettings, Write};
/// use konkordia_fabric::roce::responder::{IcrcCheck, Responder};
/// use konkordia_wire::roce::opcode::Transport;
/// use konkordia_wire::roce::outer::Outer;
/// use konkordia_wire::roce::{DEFAULT_PARTITION_KEY, PathMtu, Psn, QueuePairNumber};
///
/// // The receiver: a region of 8 KiB, and a queue pair with one prepared receive.
/// let domain = ProtectionDomain(1);
/// let mut regions = Regions::new(4, 0);
/// let region = Region { base: 0x10000, length_bytes: 8192, rights: Rights::Write, domain };
/// let (id, key) = regions.register(region).expect("an empty table");
/// let mut responder = Responder::new(4, IcrcCheck::Always);
/// let number = QueuePairNumber::new(0x11).expect("24 bits");
/// let settings = QueuePairSettings {
///     number,
///     transport: Transport::UnreliableConnection,
///     first_psn: Psn::new(0),
///     path_mtu: PathMtu::Bytes4096,
///     partition_key: DEFAULT_PARTITION_KEY,
///     queue_key: 0,
///     peer: None,
///     peer_number: number,
///     domain,
///     receives_max: 16,
///     not_ready_timer: 0,
/// };
/// responder.add(settings).expect("an empty table");
/// responder.prepare(number, Receive { id: 7, buffer: None }).expect("a queue pair");
///
/// // The sender: 5000 bytes as two packets, the second with immediate data.
/// let mut requester = Requester::new(RequesterSettings::unreliable(number, PathMtu::Bytes4096));
/// let frame = vec![3; 5000];
/// let (from, to) = ("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
/// let outer = Outer::of_udp_socket(from, to).expect("both IPv4");
/// let message = Write { address: 0x10000, key: key.get(), length_bytes: 5000, immediate: Some(42) };
/// let mut memory = vec![0; 8192];
/// let mut immediate = None;
/// for piece in requester.write(message, Cut::OnlyPackets).expect("a message") {
///     let mut packet = vec![0; piece.header.packet_bytes(piece.payload.len())];
///     piece.header.encode(&frame[piece.payload.clone()], &mut packet);
///     outer.seal(&mut packet);
///     let outcome = responder.receive(&packet, &outer, &regions);
///     if let Some(copy) = outcome.copy {
///         assert_eq!(copy.place.region, id);
///         memory[copy.place.offset_bytes as usize..][..copy.bytes.len()].copy_from_slice(copy.bytes);
///     }
///     immediate = outcome.completion.and_then(|completion| completion.immediate);
/// }
/// assert_eq!((immediate, &memory[..5000]), (Some(42), &frame[..]));
/// assert!(responder.counters().is_balanced());
/// ```
#[derive(Debug)]
pub struct Responder {
    /// In the order of their numbers.
    pairs: Vec<QueuePair>,
    pairs_max: usize,
    check: IcrcCheck,
    until_check: u32,
    counters: Counters,
}

impl Responder {
    /// Room for so many queue pairs.
    pub fn new(queue_pairs_max: usize, check: IcrcCheck) -> Self {
        let pairs = Vec::with_capacity(queue_pairs_max);
        Self { pairs, pairs_max: queue_pairs_max, check, until_check: 0, counters: Counters::default() }
    }

    fn index(&self, number: QueuePairNumber) -> Result<usize, usize> {
        self.pairs.binary_search_by_key(&number, |pair| pair.settings().number)
    }

    /// Adds a queue pair; this allocates its receive queue.
    ///
    /// # Errors
    /// The table is full, the number is not free, or the transport is none of a queue pair.
    pub fn add(&mut self, settings: QueuePairSettings) -> Result<(), NotTaken> {
        if settings.transport == Transport::None {
            return Err(NotTaken::Transport);
        }
        if self.pairs.len() == self.pairs_max {
            return Err(NotTaken::QueuePairsFull(self.pairs_max));
        }
        match self.index(settings.number) {
            Err(at) if settings.number.get() > 1 => {
                self.pairs.insert(at, QueuePair::new(settings));
                Ok(())
            }
            _ => Err(NotTaken::NumberInUse(settings.number)),
        }
    }

    /// Removes a queue pair, with the receives that are prepared. `None` if there is none.
    pub fn remove(&mut self, number: QueuePairNumber) -> Option<QueuePair> {
        self.index(number).ok().map(|at| self.pairs.remove(at))
    }

    /// The queue pair of this number.
    pub fn queue_pair(&self, number: QueuePairNumber) -> Option<&QueuePair> {
        self.index(number).ok().map(|at| &self.pairs[at])
    }

    /// Prepares a receive, behind those that are prepared.
    ///
    /// # Errors
    /// There is no such queue pair, or its queue is full.
    pub fn prepare(&mut self, number: QueuePairNumber, receive: Receive) -> Result<(), NotTaken> {
        let at = self.index(number).map_err(|_| NotTaken::UnknownQueuePair(number))?;
        let pair = &mut self.pairs[at];
        if pair.prepare(receive) { Ok(()) } else { Err(NotTaken::ReceivesFull(pair.settings().receives_max)) }
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a packet, the payload of a UDP datagram that came in these headers.
    #[inline]
    pub fn receive<'a>(&mut self, datagram: &'a [u8], outer: &Outer, regions: &Regions) -> Outcome<'a> {
        let outcome = match self.admit(datagram, outer) {
            Ok((packet, at)) => self.pairs[at].take(&packet, regions),
            Err(verdict) => Outcome::only(verdict),
        };
        self.counters.packets += 1;
        self.counters.count(outcome.verdict);
        self.counters.placed_bytes += outcome.copy.map_or(0, |copy| copy.bytes.len() as u64);
        self.counters.completions += u64::from(outcome.completion.is_some());
        self.counters.replies += u64::from(outcome.reply.is_some());
        outcome
    }

    fn compares(&mut self) -> bool {
        match self.check {
            IcrcCheck::Always => true,
            IcrcCheck::Never => false,
            IcrcCheck::OneIn(packets) => {
                let is_due = self.until_check == 0;
                self.until_check = if is_due { packets.get() - 1 } else { self.until_check - 1 };
                is_due
            }
        }
    }

    /// The packet and the index of its queue pair.
    fn admit<'a>(&mut self, datagram: &'a [u8], outer: &Outer) -> Result<(Packet<'a>, usize), Verdict> {
        let packet = Packet::new_checked(datagram).map_err(|why| match why {
            NoPacket::Length => Verdict::Length,
            NoPacket::Opcode(_) => Verdict::Opcode,
            NoPacket::Version(_) => Verdict::Version,
        })?;
        if self.compares() {
            self.counters.icrc_compared += 1;
            if !outer.is_right(&packet) {
                return Err(Verdict::WrongIcrc);
            }
        }
        let opcode = packet.opcode();
        if opcode.operation() == Operation::CongestionNotification {
            return Err(Verdict::CongestionNotification);
        }
        let at = self.index(packet.destination()).map_err(|_| Verdict::UnknownQueuePair)?;
        let settings = self.pairs[at].settings();
        if opcode.transport() != settings.transport {
            return Err(Verdict::WrongTransport);
        }
        if !is_same_partition(packet.partition_key(), settings.partition_key) {
            return Err(Verdict::WrongPartition);
        }
        match packet.datagram_source() {
            Some(source) if source.queue_key != settings.queue_key => return Err(Verdict::WrongQueueKey),
            None if settings.peer.is_some_and(|peer| peer.to_canonical() != outer.source().ip()) => {
                return Err(Verdict::ForeignSender);
            }
            _ => {}
        }
        if opcode.is_response() { Err(Verdict::ForRequester) } else { Ok((packet, at)) }
    }
}
