//! One queue pair of a responder: the order of its packets, the message that is open, and the receives that are
//! prepared.
//!
//! Rules by number, as docs/protocols.md 10.5 has them. UC: a packet that does not follow its predecessor is discarded,
//! and so is the rest of its message, until a packet begins a message. RC: what follows a missing packet is discarded
//! until the missing one is repeated; what came before is acknowledged again. UD: each packet stands alone.

use crate::regions::{Access, Key, Place, ProtectionDomain, RegionId, Regions};
use crate::roce::verdict::Verdict;
use konkordia_wire::roce::opcode::{Opcode, Operation, Part, Transport};
use konkordia_wire::roce::{
    AETH_BYTES, Acknowledgement, BTH_BYTES, Header, ICRC_BYTES, MESSAGE_BYTES_MAX, Packet, PathMtu, Psn, QueuePairNumber,
    RemoteMemory, Syndrome,
};
use std::collections::VecDeque;
use std::net::IpAddr;

/// A packet this far behind the newest one is no late one: the sender has begun to count anew.
const LATE_PACKETS_MAX: i32 = 1 << 16;
/// Numbers of finished messages have 24 bits.
const MESSAGES_MASK: u32 = 0x00FF_FFFF;
/// Bytes of an acknowledgement.
pub const REPLY_BYTES: usize = BTH_BYTES + AETH_BYTES + ICRC_BYTES;

/// What a queue pair is made of. Both sides agree on it by other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairSettings {
    /// Its number.
    pub number: QueuePairNumber,
    /// RC, UC or UD.
    pub transport: Transport,
    /// Number of the first packet that the peer sends (RC, UC).
    pub first_psn: Psn,
    /// The most payload of a packet.
    pub path_mtu: PathMtu,
    /// P_Key.
    pub partition_key: u16,
    /// Q_Key, which datagrams must have (UD).
    pub queue_key: u32,
    /// The only address that packets may come from (RC, UC); `None` = any.
    pub peer: Option<IpAddr>,
    /// Queue pair of the peer, to which acknowledgements go (RC).
    pub peer_number: QueuePairNumber,
    /// Whose regions may be written.
    pub domain: ProtectionDomain,
    /// Most receives that may be prepared.
    pub receives_max: usize,
    /// Code of the time that a sender is to wait if none is prepared (RC; 5 bits).
    pub not_ready_timer: u8,
}

/// Memory of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The region that it is in.
    pub region: RegionId,
    /// Offset in the region, in bytes.
    pub offset_bytes: u64,
    /// Its bytes.
    pub length_bytes: u32,
}

/// A receive that is prepared: SEND fills its buffer; WRITE with immediate data only uses it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// What its owner calls it.
    pub id: u64,
    /// `None` if only immediate data are expected.
    pub buffer: Option<Buffer>,
}

/// Bytes of a packet that are to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy<'a> {
    /// Where they go; all of them are inside of the region.
    pub place: Place,
    /// The bytes; at least 1.
    pub bytes: &'a [u8],
}

/// A message that used up a receive. It is complete once the copy of the same packet is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The queue pair.
    pub queue_pair: QueuePairNumber,
    /// Of the receive.
    pub receive_id: u64,
    /// [`Operation::Write`] or [`Operation::Send`].
    pub operation: Operation,
    /// Immediate data, read big-endian. A SEND may have none.
    pub immediate: Option<u32>,
    /// Bytes of the message.
    pub length_bytes: u32,
    /// Queue pair of the sender (UD).
    pub source: Option<QueuePairNumber>,
}

/// What is to be done with a packet, in this order: copy, completion, reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// What became of the packet.
    pub verdict: Verdict,
    /// Bytes to copy.
    pub copy: Option<Copy<'a>>,
    /// A message that is complete.
    pub completion: Option<Completion>,
    /// A packet for the sender, without its iCRC: the transport seals it in the headers that it sends it with.
    pub reply: Option<[u8; REPLY_BYTES]>,
}

impl<'a> Outcome<'a> {
    pub(crate) const fn only(verdict: Verdict) -> Self {
        Self { verdict, copy: None, completion: None, reply: None }
    }

    fn with(done: Done<'a>, reply: Option<[u8; REPLY_BYTES]>) -> Self {
        Self { verdict: Verdict::Placed, copy: done.copy, completion: done.completion, reply }
    }
}

/// What a packet does if it is executed.
struct Done<'a> {
    copy: Option<Copy<'a>>,
    completion: Option<Completion>,
}

/// How packets followed each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Numbers that were passed over when a later packet came.
    pub missing: u64,
    /// Packets that came behind a later one: reordered ones, of which each takes one off `missing`, and duplicates,
    /// which do not. So `missing` less `late` to `missing` packets were lost.
    pub late: u64,
    /// How often the sender began to count anew.
    pub restarts: u64,
    /// Messages that were begun and not finished.
    pub aborted: u64,
}

/// The message of which more packets are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Nothing,
    Write(Written),
    Send { done_bytes: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    key: Key,
    address: u64,
    left_bytes: u32,
    length_bytes: u32,
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    settings: QueuePairSettings,
    expected: Psn,
    /// Next number after the newest packet; `None` before the first.
    newest: Option<Psn>,
    open: Open,
    /// UC: why packets are discarded until one begins a message.
    discards: Option<Verdict>,
    /// RC: the sender was told to repeat.
    is_told: bool,
    has_failed: bool,
    messages: u32,
    receives: VecDeque<Receive>,
    sequence: Sequence,
}

impl QueuePair {
    pub(crate) fn new(settings: QueuePairSettings) -> Self {
        Self {
            settings,
            expected: settings.first_psn,
            newest: None,
            open: Open::Nothing,
            discards: None,
            is_told: false,
            has_failed: false,
            messages: 0,
            receives: VecDeque::with_capacity(settings.receives_max),
            sequence: Sequence::default(),
        }
    }

    /// What it was made of.
    pub fn settings(&self) -> &QueuePairSettings {
        &self.settings
    }

    /// How its packets followed each other.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Receives that are prepared. Fewer than a quarter of [`QueuePairSettings::receives_max`] should alarm: with none,
    /// UC loses whole messages.
    pub fn receives(&self) -> usize {
        self.receives.len()
    }

    /// RC: whether a request was against the rules, so that nothing is executed any more.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(crate) fn prepare(&mut self, receive: Receive) -> bool {
        let has_room = self.receives.len() < self.settings.receives_max;
        if has_room {
            self.receives.push_back(receive);
        }
        has_room
    }

    /// `packet` was admitted: it is of this queue pair's transport, partition and peer, and asks for something.
    #[inline]
    pub(crate) fn take<'a>(&mut self, packet: &Packet<'a>, regions: &Regions) -> Outcome<'a> {
        match self.settings.transport {
            Transport::UnreliableConnection => self.take_unreliable(packet, regions),
            Transport::ReliableConnection => self.take_reliable(packet, regions),
            Transport::UnreliableDatagram | Transport::None => match self.execute(packet, regions) {
                Ok(done) => Outcome::with(done, None),
                Err(verdict) => Outcome::only(verdict),
            },
        }
    }

    /// Keeps the account of [`Sequence`].
    fn follow(&mut self, psn: Psn) {
        let next = *self.newest.get_or_insert(self.settings.first_psn);
        let ahead = psn.since(next);
        if ahead >= 0 {
            self.sequence.missing += ahead.unsigned_abs() as u64;
            self.newest = Some(psn.plus(1));
        } else if ahead >= -LATE_PACKETS_MAX {
            self.sequence.late += 1;
        } else {
            self.sequence.restarts += 1;
            self.newest = Some(psn.plus(1));
        }
    }

    fn abort(&mut self) {
        if self.open != Open::Nothing {
            self.open = Open::Nothing;
            self.sequence.aborted += 1;
        }
    }

    fn take_unreliable<'a>(&mut self, packet: &Packet<'a>, regions: &Regions) -> Outcome<'a> {
        let psn = packet.psn();
        self.follow(psn);
        if packet.opcode().part().is_start() {
            self.abort();
            self.discards = None;
        } else if let Some(verdict) = self.discards {
            return Outcome::only(verdict);
        } else if psn != self.expected {
            self.abort();
            self.discards = Some(Verdict::OutOfSequence);
            return Outcome::only(Verdict::OutOfSequence);
        }
        match self.execute(packet, regions) {
            Ok(done) => {
                self.expected = psn.plus(1);
                Outcome::with(done, None)
            }
            Err(verdict) => {
                // A message of one packet that was refused was never begun.
                if packet.opcode().part() == Part::First {
                    self.sequence.aborted += 1;
                }
                self.abort();
                self.discards = Some(Verdict::RestOfRefused);
                Outcome::only(verdict)
            }
        }
    }

    fn take_reliable<'a>(&mut self, packet: &Packet<'a>, regions: &Regions) -> Outcome<'a> {
        if self.has_failed {
            return Outcome::only(Verdict::QueuePairFailed);
        }
        let psn = packet.psn();
        self.follow(psn);
        let ahead = psn.since(self.expected);
        if ahead < 0 {
            let is_executed_here = matches!(packet.opcode().operation(), Operation::Write | Operation::Send);
            let again = is_executed_here.then(|| self.reply(Syndrome::ACKNOWLEDGED, self.expected.plus(u32::MAX)));
            return Outcome { reply: again, ..Outcome::only(Verdict::Duplicate) };
        }
        if ahead > 0 {
            let is_new = !std::mem::replace(&mut self.is_told, true);
            let reply = is_new.then(|| self.reply(Syndrome::SequenceError, self.expected));
            return Outcome { reply, ..Outcome::only(Verdict::OutOfSequence) };
        }
        match self.execute(packet, regions) {
            Ok(done) => {
                self.expected = psn.plus(1);
                self.is_told = false;
                if packet.opcode().part().is_end() {
                    self.messages = (self.messages + 1) & MESSAGES_MASK;
                }
                let reply = packet.asks_acknowledge().then(|| self.reply(Syndrome::ACKNOWLEDGED, psn));
                Outcome::with(done, reply)
            }
            Err(Verdict::NoReceive) => {
                self.is_told = true;
                let reply = self.reply(Syndrome::ReceiverNotReady(self.settings.not_ready_timer), psn);
                Outcome { reply: Some(reply), ..Outcome::only(Verdict::NoReceive) }
            }
            Err(verdict) => {
                self.abort();
                self.has_failed = true;
                Outcome { reply: Some(self.reply(syndrome(verdict), psn)), ..Outcome::only(verdict) }
            }
        }
    }

    fn reply(&self, syndrome: Syndrome, psn: Psn) -> [u8; REPLY_BYTES] {
        let opcode = Opcode::find(Transport::ReliableConnection, Operation::Acknowledge, Part::Only, false)
            .expect("the table of opcodes has the acknowledgement");
        let header = Header {
            partition_key: self.settings.partition_key,
            acknowledgement: Acknowledgement { syndrome, messages: self.messages },
            ..Header::new(opcode, self.settings.peer_number, psn)
        };
        let mut bytes = [0; REPLY_BYTES];
        header.encode(&[], &mut bytes);
        bytes
    }

    /// What the packet does. If it does nothing, the queue pair is as before.
    fn execute<'a>(&mut self, packet: &Packet<'a>, regions: &Regions) -> Result<Done<'a>, Verdict> {
        let opcode = packet.opcode();
        if opcode.part().is_start() && self.open != Open::Nothing {
            return Err(Verdict::OutsideMessage);
        }
        match opcode.operation() {
            Operation::Write => self.write(packet, regions),
            Operation::Send => self.send(packet, regions),
            _ => Err(Verdict::Unsupported),
        }
    }

    fn write<'a>(&mut self, packet: &Packet<'a>, regions: &Regions) -> Result<Done<'a>, Verdict> {
        let part = packet.opcode().part();
        let find = |key: Key, address: u64, bytes: u32| {
            regions.find(key, address, bytes.into(), Access::Write, self.settings.domain).map_err(Verdict::from)
        };
        let mut place = None;
        let message = match (packet.remote_memory(), self.open) {
            (Some(memory), _) => {
                let key = Key::new(memory.key);
                let RemoteMemory { address, length_bytes, .. } = memory;
                // The message as a whole must fit; one without bytes needs no memory.
                if length_bytes > MESSAGE_BYTES_MAX {
                    return Err(Verdict::WrongLength);
                } else if length_bytes > 0 {
                    place = Some(find(key, address, length_bytes)?);
                }
                Written { key, address, left_bytes: length_bytes, length_bytes }
            }
            (None, Open::Write(message)) => message,
            _ => return Err(Verdict::OutsideMessage),
        };
        let bytes = packet.payload();
        let byte_count = bytes.len() as u32;
        let is_rest = byte_count == message.left_bytes;
        let suits = if part.is_end() { is_rest } else { byte_count < message.left_bytes };
        if !suits || !packet.suits(self.settings.path_mtu) {
            return Err(Verdict::WrongLength);
        }
        if place.is_none() && !bytes.is_empty() {
            // The region may have been revoked since the message began.
            place = Some(find(message.key, message.address, byte_count)?);
        }
        let completion = match packet.immediate() {
            None => None,
            Some(immediate) => {
                let receive = self.receives.front().ok_or(Verdict::NoReceive)?;
                Some(self.completion(receive, packet, Some(immediate), message.length_bytes))
            }
        };
        if completion.is_some() {
            self.receives.pop_front();
        }
        self.open = if part.is_end() {
            Open::Nothing
        } else {
            let address = message.address.wrapping_add(byte_count.into());
            Open::Write(Written { address, left_bytes: message.left_bytes - byte_count, ..message })
        };
        Ok(Done { copy: place.map(|place| Copy { place, bytes }), completion })
    }

    fn send<'a>(&mut self, packet: &Packet<'a>, regions: &Regions) -> Result<Done<'a>, Verdict> {
        let part = packet.opcode().part();
        let done_bytes = match self.open {
            Open::Nothing if part.is_start() => 0,
            Open::Send { done_bytes } => done_bytes,
            _ => return Err(Verdict::OutsideMessage),
        };
        let bytes = packet.payload();
        if !packet.suits(self.settings.path_mtu) {
            return Err(Verdict::WrongLength);
        }
        let receive = self.receives.front().copied().ok_or(Verdict::NoReceive)?;
        let after = done_bytes.checked_add(bytes.len() as u32).filter(|bytes| *bytes <= MESSAGE_BYTES_MAX);
        let after = after.ok_or(Verdict::WrongLength)?;
        if after > receive.buffer.map_or(0, |buffer| buffer.length_bytes) {
            return Err(Verdict::ReceiveTooShort);
        }
        let copy = match receive.buffer {
            Some(buffer) if !bytes.is_empty() => {
                let offset = buffer.offset_bytes.checked_add(done_bytes.into()).ok_or(Verdict::ReceiveRevoked)?;
                let place = regions.find_by_id(buffer.region, offset, bytes.len() as u64, Access::Write);
                Some(Copy { place: place.map_err(|_| Verdict::ReceiveRevoked)?, bytes })
            }
            _ => None,
        };
        let completion = part.is_end().then(|| self.completion(&receive, packet, packet.immediate(), after));
        if part.is_end() {
            self.receives.pop_front();
            self.open = Open::Nothing;
        } else {
            self.open = Open::Send { done_bytes: after };
        }
        Ok(Done { copy, completion })
    }

    fn completion(&self, receive: &Receive, packet: &Packet<'_>, immediate: Option<u32>, length_bytes: u32) -> Completion {
        Completion {
            queue_pair: self.settings.number,
            receive_id: receive.id,
            operation: packet.opcode().operation(),
            immediate,
            length_bytes,
            source: packet.datagram_source().map(|source| source.queue_pair),
        }
    }
}

/// What an RC sender is told of a refused request.
fn syndrome(verdict: Verdict) -> Syndrome {
    match verdict {
        Verdict::UnknownKey | Verdict::RevokedKey | Verdict::OtherDomain | Verdict::NoRight | Verdict::OutOfBounds => {
            Syndrome::RemoteAccessError
        }
        Verdict::ReceiveRevoked => Syndrome::RemoteOperationError,
        _ => Syndrome::InvalidRequest,
    }
}
