//! RoCEv2 (RDMA over Converged Ethernet, version 2): the packet that lies in a UDP datagram for port 4791, from the
//! base transport header (BTH) to the invariant CRC (iCRC). All integers are big-endian, except the iCRC. Sources and
//! layout: docs/protocols.md 10.
//!
//! Facts relied on (10.1; InfiniBand Architecture Specification, volume 1, chapter 9 and annex A17): a packet is the
//! BTH of 12 bytes, the extension headers that its opcode has, in the order DETH, RETH, immediate data, AETH, then the
//! payload, 0 to 3 bytes of padding to a multiple of 4, and the iCRC of 4 bytes. So the number of bytes is a multiple
//! of 4, and the padding follows from the payload. Of the opcodes, the high 3 bits are the transport and the low 5 bits
//! the operation; [`Opcode`] has them in one table.
//!
//! The iCRC covers headers before the UDP payload too, so [`outer`] makes it. What becomes of a packet is decided in
//! `konkordia_fabric::roce`.

pub mod frame;
pub mod opcode;
pub mod outer;

use crate::packet::array;
pub use opcode::{AETH_BYTES, BTH_BYTES, DETH_BYTES, HEADERS_BYTES_MAX, IMMEDIATE_BYTES, RETH_BYTES};
use opcode::{Opcode, Operation, Part};
use std::fmt;
use std::ops::Range;

/// Byte ranges of the BTH.
mod bth {
    use std::ops::Range;
    pub const OPCODE: usize = 0;
    pub const FLAGS: usize = 1;
    pub const PARTITION_KEY: Range<usize> = 2..4;
    /// Congestion marks and 6 reserved bits; the iCRC does not cover it.
    pub const CONGESTION: usize = 4;
    pub const DESTINATION: Range<usize> = 5..8;
    pub const ACKNOWLEDGE: usize = 8;
    pub const PSN: Range<usize> = 9..12;

    pub const IS_SOLICITED: u8 = 0x80;
    pub const IS_MIGRATED: u8 = 0x40;
    pub const PAD_SHIFT: u8 = 4;
    pub const PAD: u8 = 0x03;
    pub const VERSION: u8 = 0x0F;
    pub const HAS_FORWARD_CONGESTION: u8 = 0x80;
    pub const HAS_BACKWARD_CONGESTION: u8 = 0x40;
    pub const ASKS_ACKNOWLEDGE: u8 = 0x80;
}

/// Byte ranges of the RETH.
mod reth {
    use std::ops::Range;
    pub const ADDRESS: Range<usize> = 0..8;
    pub const KEY: Range<usize> = 8..12;
    pub const LENGTH_BYTES: Range<usize> = 12..16;
}

/// Byte ranges of the DETH.
mod deth {
    use std::ops::Range;
    pub const QUEUE_KEY: Range<usize> = 0..4;
    pub const SOURCE: Range<usize> = 5..8;
}

/// Byte ranges of the AETH.
mod aeth {
    use std::ops::Range;
    pub const SYNDROME: usize = 0;
    pub const MESSAGES: Range<usize> = 1..4;
}

/// The UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Bytes of the iCRC.
pub const ICRC_BYTES: usize = 4;
/// More payload than this is in no packet: the largest path MTU.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// The longest message, in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;
/// The partition of hosts that were given no other.
pub const DEFAULT_PARTITION_KEY: u16 = 0xFFFF;
/// Numbers of packets and of queue pairs have 24 bits.
const NUMBER_MASK: u32 = 0x00FF_FFFF;

/// A packet sequence number: 24 bits that wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `number`.
    pub const fn new(number: u32) -> Self {
        Self(number & NUMBER_MASK)
    }

    /// As a number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// `packets` later.
    pub const fn plus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// Packets from `earlier` to this one: negative if this one is before it. -2^23 to 2^23 - 1.
    pub const fn since(self, earlier: Self) -> i32 {
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }
}

/// The number of a queue pair: 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePairNumber(u32);

impl QueuePairNumber {
    /// `None` if it has more than 24 bits.
    pub const fn new(number: u32) -> Option<Self> {
        if number <= NUMBER_MASK { Some(Self(number)) } else { None }
    }

    /// As a number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for QueuePairNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// The most payload that a packet of a connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMtu {
    /// 256 bytes.
    Bytes256,
    /// 512 bytes.
    Bytes512,
    /// 1024 bytes: what fits into Ethernet frames of 1500 bytes.
    Bytes1024,
    /// 2048 bytes.
    Bytes2048,
    /// 4096 bytes: needs frames longer than 1500 bytes.
    Bytes4096,
}

impl PathMtu {
    /// All, from the smallest to the largest.
    pub const ALL: [Self; 5] = [Self::Bytes256, Self::Bytes512, Self::Bytes1024, Self::Bytes2048, Self::Bytes4096];

    /// The one of so many bytes; there are no others.
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        256 << self as usize
    }
}

/// Whether two partition keys let a packet pass: the same partition, and one of both is a full member (high bit).
pub const fn is_same_partition(one: u16, other: u16) -> bool {
    let partition = one & 0x7FFF;
    partition != 0 && partition == other & 0x7FFF && (one | other) & 0x8000 != 0
}

/// RETH: where a message is written to or read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address as the owner of the memory counts.
    pub address: u64,
    /// Key of the memory (R_Key).
    pub key: u32,
    /// Bytes of the whole message.
    pub length_bytes: u32,
}

/// DETH: who sends a datagram, and the key by which it may be received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramSource {
    /// Queue key (Q_Key).
    pub queue_key: u32,
    /// Queue pair of the sender.
    pub queue_pair: QueuePairNumber,
}

/// What an acknowledgement says (the first byte of the AETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Everything up to this PSN arrived; a code of the receives that are prepared, 31 = says nothing of them.
    Acknowledged(u8),
    /// No receive is prepared; a code of the time to wait (5 bits).
    ReceiverNotReady(u8),
    /// A packet is missing: go on from this PSN.
    SequenceError,
    /// The request is against the rules.
    InvalidRequest,
    /// The memory may not be accessed like that.
    RemoteAccessError,
    /// The responder itself failed.
    RemoteOperationError,
    /// Any other.
    Reserved(u8),
}

impl Syndrome {
    /// An acknowledgement that says nothing of prepared receives.
    pub const ACKNOWLEDGED: Self = Self::Acknowledged(0x1F);

    /// As the byte of the AETH.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Acknowledged(credits) => credits & 0x1F,
            Self::ReceiverNotReady(timer) => 0x20 | (timer & 0x1F),
            Self::SequenceError => 0x60,
            Self::InvalidRequest => 0x61,
            Self::RemoteAccessError => 0x62,
            Self::RemoteOperationError => 0x63,
            Self::Reserved(byte) => byte,
        }
    }

    /// Of the byte of the AETH.
    pub const fn of_byte(byte: u8) -> Self {
        match byte {
            0..=0x1F => Self::Acknowledged(byte),
            0x20..=0x3F => Self::ReceiverNotReady(byte & 0x1F),
            0x60 => Self::SequenceError,
            0x61 => Self::InvalidRequest,
            0x62 => Self::RemoteAccessError,
            0x63 => Self::RemoteOperationError,
            _ => Self::Reserved(byte),
        }
    }
}

/// AETH: an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// What it says.
    pub syndrome: Syndrome,
    /// Messages that the responder has finished (MSN), 24 bits.
    pub messages: u32,
}

/// Why a datagram is no packet of RoCEv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPacket {
    /// Shorter than its headers, or no multiple of 4 bytes, or longer than any packet.
    Length,
    /// An opcode that this program does not know.
    Opcode(u8),
    /// Another version of the transport header than 0.
    Version(u8),
}

impl fmt::Display for NoPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("its length is not that of a RoCEv2 packet"),
            Self::Opcode(byte) => write!(f, "its opcode {byte:#04x} is none of RoCEv2 with RC, UC or UD"),
            Self::Version(version) => write!(f, "its transport header has version {version} instead of 0"),
        }
    }
}

impl std::error::Error for NoPacket {}

/// A checked view of a packet: it has the headers of its opcode, its padding and room for its iCRC. Whether the iCRC is
/// right, and whether the length suits the path MTU and the message, is not checked.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    opcode: Opcode,
}

impl<'a> Packet<'a> {
    /// Checks the payload of a UDP datagram.
    ///
    /// # Errors
    /// The first check that fails, in the order length of the BTH, opcode, version, length.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, NoPacket> {
        if bytes.len() < BTH_BYTES + ICRC_BYTES {
            return Err(NoPacket::Length);
        }
        let opcode = Opcode::of_byte(bytes[bth::OPCODE]).ok_or(NoPacket::Opcode(bytes[bth::OPCODE]))?;
        let flags = bytes[bth::FLAGS];
        if flags & bth::VERSION != 0 {
            return Err(NoPacket::Version(flags & bth::VERSION));
        }
        let fixed = opcode.headers_bytes() + usize::from(flags >> bth::PAD_SHIFT & bth::PAD) + ICRC_BYTES;
        if bytes.len() < fixed || !bytes.len().is_multiple_of(4) || bytes.len() - fixed > PAYLOAD_BYTES_MAX {
            return Err(NoPacket::Length);
        }
        Ok(Self { bytes, opcode })
    }

    /// The whole packet, to the end of the iCRC.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What it is.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Whether the receiver is to be woken by the message.
    pub fn is_solicited(&self) -> bool {
        self.bytes[bth::FLAGS] & bth::IS_SOLICITED != 0
    }

    /// MigReq: whether the connection is in its ordinary state of path migration. Network cards set it.
    pub fn is_migrated(&self) -> bool {
        self.bytes[bth::FLAGS] & bth::IS_MIGRATED != 0
    }

    /// Bytes of padding behind the payload.
    pub fn pad_bytes(&self) -> usize {
        usize::from(self.bytes[bth::FLAGS] >> bth::PAD_SHIFT & bth::PAD)
    }

    /// P_Key; [`is_same_partition`] compares it.
    pub fn partition_key(&self) -> u16 {
        u16::from_be_bytes(array(self.bytes, bth::PARTITION_KEY))
    }

    /// FECN: whether the packet has met a full queue on its way.
    pub fn has_forward_congestion(&self) -> bool {
        self.bytes[bth::CONGESTION] & bth::HAS_FORWARD_CONGESTION != 0
    }

    /// BECN: whether it reports that packets of the addressee have met one.
    pub fn has_backward_congestion(&self) -> bool {
        self.bytes[bth::CONGESTION] & bth::HAS_BACKWARD_CONGESTION != 0
    }

    /// The queue pair that it is for.
    pub fn destination(&self) -> QueuePairNumber {
        QueuePairNumber(number_of_24_bits(self.bytes, bth::DESTINATION))
    }

    /// Whether an acknowledgement is asked for.
    pub fn asks_acknowledge(&self) -> bool {
        self.bytes[bth::ACKNOWLEDGE] & bth::ASKS_ACKNOWLEDGE != 0
    }

    /// Its number in the queue pair's order.
    pub fn psn(&self) -> Psn {
        Psn(number_of_24_bits(self.bytes, bth::PSN))
    }

    fn extension(&self, at: Option<usize>, bytes: usize) -> Option<&'a [u8]> {
        at.map(|at| &self.bytes[at..at + bytes])
    }

    /// Where the message goes; `None` if the opcode has no RETH.
    pub fn remote_memory(&self) -> Option<RemoteMemory> {
        let header = self.extension(self.opcode.reth_at(), RETH_BYTES)?;
        Some(RemoteMemory {
            address: u64::from_be_bytes(array(header, reth::ADDRESS)),
            key: u32::from_be_bytes(array(header, reth::KEY)),
            length_bytes: u32::from_be_bytes(array(header, reth::LENGTH_BYTES)),
        })
    }

    /// The immediate data as a number, read big-endian; `None` if the opcode has none.
    pub fn immediate(&self) -> Option<u32> {
        self.extension(self.opcode.immediate_at(), IMMEDIATE_BYTES).map(|header| u32::from_be_bytes(array(header, 0..4)))
    }

    /// The sender of a datagram; `None` if the opcode has no DETH.
    pub fn datagram_source(&self) -> Option<DatagramSource> {
        let header = self.extension(self.opcode.deth_at(), DETH_BYTES)?;
        Some(DatagramSource {
            queue_key: u32::from_be_bytes(array(header, deth::QUEUE_KEY)),
            queue_pair: QueuePairNumber(number_of_24_bits(header, deth::SOURCE)),
        })
    }

    /// What it acknowledges; `None` if the opcode has no AETH.
    pub fn acknowledgement(&self) -> Option<Acknowledgement> {
        let header = self.extension(self.opcode.aeth_at(), AETH_BYTES)?;
        let syndrome = Syndrome::of_byte(header[aeth::SYNDROME]);
        Some(Acknowledgement { syndrome, messages: number_of_24_bits(header, aeth::MESSAGES) })
    }

    /// The payload without its padding.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.opcode.headers_bytes()..self.bytes.len() - ICRC_BYTES - self.pad_bytes()]
    }

    /// The iCRC that it brings.
    pub fn icrc(&self) -> u32 {
        u32::from_le_bytes(array(self.bytes, self.bytes.len() - ICRC_BYTES..self.bytes.len()))
    }

    /// Whether the payload is as long as it must be with this path MTU: exactly that in first and middle packets, 1
    /// byte to that in last ones, 0 to that in messages of one packet.
    pub fn suits(&self, mtu: PathMtu) -> bool {
        let bytes = self.payload().len();
        match self.opcode.part() {
            Part::First | Part::Middle => bytes == mtu.bytes(),
            Part::Last => (1..=mtu.bytes()).contains(&bytes),
            Part::Only => bytes <= mtu.bytes(),
        }
    }
}

fn number_of_24_bits(bytes: &[u8], range: Range<usize>) -> u32 {
    let [high, middle, low] = array(bytes, range);
    u32::from_be_bytes([0, high, middle, low])
}

fn put_24_bits(bytes: &mut [u8], range: Range<usize>, number: u32) {
    bytes[range].copy_from_slice(&number.to_be_bytes()[1..]);
}

/// All fields of the headers of a packet to be sent. Those that the opcode does not have are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub opcode: Opcode,
    /// Whether the receiver is to be woken by the message.
    pub is_solicited: bool,
    /// MigReq; see [`Packet::is_migrated`].
    pub is_migrated: bool,
    /// P_Key.
    pub partition_key: u16,
    /// BECN; see [`Packet::has_backward_congestion`].
    pub has_backward_congestion: bool,
    /// The queue pair that it is for.
    pub destination: QueuePairNumber,
    /// Whether an acknowledgement is asked for.
    pub asks_acknowledge: bool,
    /// Its number in the queue pair's order.
    pub psn: Psn,
    /// DETH.
    pub datagram_source: DatagramSource,
    /// RETH.
    pub remote_memory: RemoteMemory,
    /// Immediate data.
    pub immediate: u32,
    /// AETH.
    pub acknowledgement: Acknowledgement,
}

impl Header {
    /// Of a packet in the default partition, MigReq set as network cards do, all else 0.
    pub fn new(opcode: Opcode, destination: QueuePairNumber, psn: Psn) -> Self {
        Self {
            opcode,
            is_solicited: false,
            is_migrated: true,
            partition_key: DEFAULT_PARTITION_KEY,
            has_backward_congestion: opcode.operation() == Operation::CongestionNotification,
            destination,
            asks_acknowledge: false,
            psn,
            datagram_source: DatagramSource::default(),
            remote_memory: RemoteMemory::default(),
            immediate: 0,
            acknowledgement: Acknowledgement { syndrome: Syndrome::ACKNOWLEDGED, messages: 0 },
        }
    }

    /// Bytes of a whole packet with so much payload, iCRC included.
    pub fn packet_bytes(&self, payload_bytes: usize) -> usize {
        self.opcode.headers_bytes() + payload_bytes.next_multiple_of(4) + ICRC_BYTES
    }

    /// Writes the headers of a packet with so much payload to the beginning of `into`, and returns their bytes: the
    /// payload comes behind them, then [`pad_bytes`] zeros and the iCRC.
    ///
    /// # Panics
    /// `into` is shorter than the headers; [`HEADERS_BYTES_MAX`] always suffices.
    pub fn write(&self, payload_bytes: usize, into: &mut [u8]) -> usize {
        let opcode = self.opcode;
        let into = &mut into[..opcode.headers_bytes()];
        into.fill(0);
        let mark = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        into[bth::OPCODE] = opcode.byte();
        into[bth::FLAGS] = mark(self.is_solicited, bth::IS_SOLICITED)
            | mark(self.is_migrated, bth::IS_MIGRATED)
            | (pad_bytes(payload_bytes) as u8) << bth::PAD_SHIFT;
        into[bth::PARTITION_KEY].copy_from_slice(&self.partition_key.to_be_bytes());
        into[bth::CONGESTION] = mark(self.has_backward_congestion, bth::HAS_BACKWARD_CONGESTION);
        put_24_bits(into, bth::DESTINATION, self.destination.get());
        into[bth::ACKNOWLEDGE] = mark(self.asks_acknowledge, bth::ASKS_ACKNOWLEDGE);
        put_24_bits(into, bth::PSN, self.psn.get());
        if let Some(at) = opcode.deth_at() {
            let header = &mut into[at..at + DETH_BYTES];
            header[deth::QUEUE_KEY].copy_from_slice(&self.datagram_source.queue_key.to_be_bytes());
            put_24_bits(header, deth::SOURCE, self.datagram_source.queue_pair.get());
        }
        if let Some(at) = opcode.reth_at() {
            let header = &mut into[at..at + RETH_BYTES];
            header[reth::ADDRESS].copy_from_slice(&self.remote_memory.address.to_be_bytes());
            header[reth::KEY].copy_from_slice(&self.remote_memory.key.to_be_bytes());
            header[reth::LENGTH_BYTES].copy_from_slice(&self.remote_memory.length_bytes.to_be_bytes());
        }
        if let Some(at) = opcode.immediate_at() {
            into[at..at + IMMEDIATE_BYTES].copy_from_slice(&self.immediate.to_be_bytes());
        }
        if let Some(at) = opcode.aeth_at() {
            let header = &mut into[at..at + AETH_BYTES];
            header[aeth::SYNDROME] = self.acknowledgement.syndrome.byte();
            put_24_bits(header, aeth::MESSAGES, self.acknowledgement.messages);
        }
        into.len()
    }

    /// Writes a whole packet but its iCRC, which [`outer::Outer::seal`] puts at its end; returns its bytes.
    ///
    /// # Panics
    /// `into` is shorter than [`Header::packet_bytes`].
    pub fn encode(&self, payload: &[u8], into: &mut [u8]) -> usize {
        let start = self.write(payload.len(), into);
        let bytes = self.packet_bytes(payload.len());
        into[start..start + payload.len()].copy_from_slice(payload);
        into[start + payload.len()..bytes].fill(0);
        bytes
    }
}

/// Bytes of padding behind a payload.
pub const fn pad_bytes(payload_bytes: usize) -> usize {
    payload_bytes.wrapping_neg() & 3
}

#[cfg(test)]
#[path = "roce/tests.rs"]
mod tests;
