//! The requester of UC and UD: cuts messages into packets. It keeps nothing of what it has sent, because nothing is
//! repeated.

use konkordia_wire::roce::opcode::{Opcode, Operation, Part, Transport};
use konkordia_wire::roce::{
    DEFAULT_PARTITION_KEY, DatagramSource, Header, MESSAGE_BYTES_MAX, PathMtu, Psn, QueuePairNumber, RemoteMemory,
};
use std::fmt;
use std::ops::Range;

/// What a requester is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterSettings {
    /// UC or UD.
    pub transport: Transport,
    /// The queue pair that receives.
    pub destination: QueuePairNumber,
    /// Number of the first packet.
    pub first_psn: Psn,
    /// The most payload of a packet.
    pub path_mtu: PathMtu,
    /// P_Key.
    pub partition_key: u16,
    /// Q_Key and own queue pair (UD).
    pub source: DatagramSource,
    /// MigReq, which network cards set.
    pub is_migrated: bool,
}

impl RequesterSettings {
    /// UC in the default partition, from PSN 0.
    pub fn unreliable(destination: QueuePairNumber, path_mtu: PathMtu) -> Self {
        Self {
            transport: Transport::UnreliableConnection,
            destination,
            first_psn: Psn::new(0),
            path_mtu,
            partition_key: DEFAULT_PARTITION_KEY,
            source: DatagramSource::default(),
            is_migrated: true,
        }
    }
}

/// How a WRITE is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Into the first, middle and last packets of one message: one lost packet costs the rest of the message.
    OneMessage,
    /// Into messages of one packet with addresses of their own, immediate data only with the last one: one lost packet
    /// costs its bytes only. Detectors send like this.
    OnlyPackets,
}

/// A WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where it begins, as the receiver counts.
    pub address: u64,
    /// Key of the receiver's memory.
    pub key: u32,
    /// Its bytes; with [`Cut::OneMessage`] at most 2^31.
    pub length_bytes: u64,
    /// Tells the receiver that it is complete.
    pub immediate: Option<u32>,
}

/// A packet to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its headers.
    pub header: Header,
    /// Its payload: these bytes of the message.
    pub payload: Range<usize>,
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// It is longer than a message can be, or than one packet (UD), or needs more packets than PSNs tell apart.
    TooLong,
    /// It would end beyond the last address.
    Address,
    /// The transport has no such operation: UD only sends.
    Transport,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the message is too long; cut it into several, or use a larger path MTU",
            Self::Address => "the message would end beyond the last address",
            Self::Transport => "this transport has no such operation: UC writes and sends, UD only sends",
        })
    }
}

impl std::error::Error for NotSent {}

/// The sending side of a queue pair.
#[derive(Clone, Debug)]
pub struct Requester {
    settings: RequesterSettings,
    next: Psn,
}

impl Requester {
    /// A requester that has sent nothing.
    pub fn new(settings: RequesterSettings) -> Self {
        Self { settings, next: settings.first_psn }
    }

    /// Number of the next packet.
    pub fn next_psn(&self) -> Psn {
        self.next
    }

    /// The packets of a WRITE. A WRITE without bytes is one packet.
    ///
    /// # Errors
    /// Nothing was sent: the message is too long, or the transport does not write.
    pub fn write(&mut self, message: Write, cut: Cut) -> Result<Pieces, NotSent> {
        if self.settings.transport != Transport::UnreliableConnection {
            return Err(NotSent::Transport);
        }
        let end = message.length_bytes.saturating_sub(1);
        message.address.checked_add(end).ok_or(NotSent::Address)?;
        if cut == Cut::OneMessage && message.length_bytes > MESSAGE_BYTES_MAX.into() {
            return Err(NotSent::TooLong);
        }
        self.pieces(Operation::Write, message, cut)
    }

    /// The packets of a SEND of so many bytes.
    ///
    /// # Errors
    /// Nothing was sent: the message is too long.
    pub fn send(&mut self, length_bytes: u64, immediate: Option<u32>) -> Result<Pieces, NotSent> {
        let is_datagram = self.settings.transport == Transport::UnreliableDatagram;
        let most = if is_datagram { self.settings.path_mtu.bytes() as u64 } else { MESSAGE_BYTES_MAX.into() };
        if length_bytes > most {
            return Err(NotSent::TooLong);
        }
        self.pieces(Operation::Send, Write { address: 0, key: 0, length_bytes, immediate }, Cut::OneMessage)
    }

    fn pieces(&mut self, operation: Operation, message: Write, cut: Cut) -> Result<Pieces, NotSent> {
        let packets = message.length_bytes.div_ceil(self.settings.path_mtu.bytes() as u64).max(1);
        let is_possible = packets <= 1 << 23 && usize::try_from(message.length_bytes).is_ok();
        // Every transport that gets here has all opcodes that are needed, so no packet is left out later.
        if !is_possible || Opcode::find(self.settings.transport, operation, Part::Only, true).is_none() {
            return Err(if is_possible { NotSent::Transport } else { NotSent::TooLong });
        }
        let first = self.next;
        self.next = first.plus(packets as u32);
        Ok(Pieces { settings: self.settings, operation, message, cut, first, packets: packets as u32, done: 0 })
    }
}

/// The packets of a message, in their order.
#[derive(Clone, Debug)]
pub struct Pieces {
    settings: RequesterSettings,
    operation: Operation,
    message: Write,
    cut: Cut,
    first: Psn,
    packets: u32,
    done: u32,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let n = self.done;
        if n == self.packets {
            return None;
        }
        self.done += 1;
        let mtu = self.settings.path_mtu.bytes();
        let length_bytes = self.message.length_bytes as usize;
        let payload = n as usize * mtu..length_bytes.min((n as usize + 1) * mtu);
        let is_last = n + 1 == self.packets;
        let part = match (n, is_last) {
            _ if self.cut == Cut::OnlyPackets || self.packets == 1 => Part::Only,
            (0, _) => Part::First,
            (_, false) => Part::Middle,
            (_, true) => Part::Last,
        };
        let immediate = self.message.immediate.filter(|_| is_last);
        let opcode = Opcode::find(self.settings.transport, self.operation, part, immediate.is_some())?;
        let (offset, announced) = match self.cut {
            Cut::OneMessage => (0, length_bytes),
            Cut::OnlyPackets => (payload.start, payload.len()),
        };
        let header = Header {
            partition_key: self.settings.partition_key,
            is_migrated: self.settings.is_migrated,
            datagram_source: self.settings.source,
            remote_memory: RemoteMemory {
                address: self.message.address + offset as u64,
                key: self.message.key,
                length_bytes: announced as u32,
            },
            immediate: immediate.unwrap_or(0),
            ..Header::new(opcode, self.settings.destination, self.first.plus(n))
        };
        Some(Piece { header, payload })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.packets - self.done) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Pieces {}
