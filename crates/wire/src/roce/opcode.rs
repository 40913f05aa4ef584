//! The opcodes of RoCEv2 as one table: of each its transports, operation, place in the message, and headers.
//!
//! Facts relied on: docs/protocols.md 10.2; InfiniBand Architecture Specification, volume 1, table 38. RD and XRC have
//! opcodes of their own, which are not in the table.

/// Bytes of the base transport header.
pub const BTH_BYTES: usize = 12;
/// Bytes of the RDMA extended transport header.
pub const RETH_BYTES: usize = 16;
/// Bytes of the immediate data.
pub const IMMEDIATE_BYTES: usize = 4;
/// Bytes of the datagram extended transport header.
pub const DETH_BYTES: usize = 8;
/// Bytes of the ACK extended transport header.
pub const AETH_BYTES: usize = 4;
/// No opcode has more bytes of headers (those of an atomic request are the longest).
pub const HEADERS_BYTES_MAX: usize = BTH_BYTES + 28;
/// The extension headers begin behind the BTH.
const BTH: u8 = BTH_BYTES as u8;

/// The service of a queue pair: the high 3 bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection: packets are acknowledged and repeated.
    ReliableConnection = 0x00,
    /// Unreliable connection: packets have numbers, and nobody answers.
    UnreliableConnection = 0x20,
    /// Unreliable datagram: each packet is a message of its own.
    UnreliableDatagram = 0x60,
    /// No queue pair's own: the notification of congestion.
    None = 0x80,
}

/// What a packet asks for or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The payload goes to a buffer that the receiver has prepared.
    Send,
    /// The payload goes to the memory that the packet names.
    Write,
    /// Memory is to be read.
    ReadRequest,
    /// What was read.
    ReadResponse,
    /// An acknowledgement, or why there is none.
    Acknowledge,
    /// The old value for an atomic request.
    AtomicAcknowledge,
    /// Compare and swap, or fetch and add.
    Atomic,
    /// SEND that also revokes a key of the receiver.
    SendWithInvalidate,
    /// CNP: the addressee is to send more slowly.
    CongestionNotification,
}

/// Which packet of its message a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The message is this packet.
    Only,
}

impl Part {
    /// Whether a message begins with it.
    pub const fn is_start(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends with it.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The headers behind the BTH.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extension {
    None,
    Immediate,
    Reth,
    RethImmediate,
    Aeth,
    /// Others, which have no getters; so many bytes.
    Other(u8),
}

/// A row of the table: low 5 bits, operation, part, headers without DETH, and whether UC and UD have it too.
type Row = (u8, Operation, Part, Extension, bool, bool);

#[rustfmt::skip]
const TABLE: [Row; 23] = [
    (0x00, Operation::Send, Part::First, Extension::None, true, false),
    (0x01, Operation::Send, Part::Middle, Extension::None, true, false),
    (0x02, Operation::Send, Part::Last, Extension::None, true, false),
    (0x03, Operation::Send, Part::Last, Extension::Immediate, true, false),
    (0x04, Operation::Send, Part::Only, Extension::None, true, true),
    (0x05, Operation::Send, Part::Only, Extension::Immediate, true, true),
    (0x06, Operation::Write, Part::First, Extension::Reth, true, false),
    (0x07, Operation::Write, Part::Middle, Extension::None, true, false),
    (0x08, Operation::Write, Part::Last, Extension::None, true, false),
    (0x09, Operation::Write, Part::Last, Extension::Immediate, true, false),
    (0x0A, Operation::Write, Part::Only, Extension::Reth, true, false),
    (0x0B, Operation::Write, Part::Only, Extension::RethImmediate, true, false),
    (0x0C, Operation::ReadRequest, Part::Only, Extension::Reth, false, false),
    (0x0D, Operation::ReadResponse, Part::First, Extension::Aeth, false, false),
    (0x0E, Operation::ReadResponse, Part::Middle, Extension::None, false, false),
    (0x0F, Operation::ReadResponse, Part::Last, Extension::Aeth, false, false),
    (0x10, Operation::ReadResponse, Part::Only, Extension::Aeth, false, false),
    (0x11, Operation::Acknowledge, Part::Only, Extension::Aeth, false, false),
    (0x12, Operation::AtomicAcknowledge, Part::Only, Extension::Other(4 + 8), false, false),
    (0x13, Operation::Atomic, Part::Only, Extension::Other(28), false, false),
    (0x14, Operation::Atomic, Part::Only, Extension::Other(28), false, false),
    (0x16, Operation::SendWithInvalidate, Part::Last, Extension::Other(4), false, false),
    (0x17, Operation::SendWithInvalidate, Part::Only, Extension::Other(4), false, false),
];

/// The notification of congestion; 16 zero bytes stand in place of extension headers.
const CONGESTION_NOTIFICATION: u8 = 0x81;
const CONGESTION_NOTIFICATION_ZEROS: u8 = 16;

/// What a packet is. Only opcodes of the table can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    byte: u8,
    transport: Transport,
    operation: Operation,
    part: Part,
    headers_bytes: u8,
    /// Where the headers begin; 0 = there is none.
    deth: u8,
    reth: u8,
    immediate: u8,
    aeth: u8,
}

const fn opcode(row: Row, transport: Transport) -> Opcode {
    let (low, operation, part, extension, _, _) = row;
    let (deth, at) = match transport {
        Transport::UnreliableDatagram => (BTH, BTH + DETH_BYTES as u8),
        _ => (0, BTH),
    };
    let (reth, immediate, aeth, bytes) = match extension {
        Extension::None => (0, 0, 0, 0),
        Extension::Immediate => (0, at, 0, IMMEDIATE_BYTES as u8),
        Extension::Reth => (at, 0, 0, RETH_BYTES as u8),
        Extension::RethImmediate => (at, at + RETH_BYTES as u8, 0, (RETH_BYTES + IMMEDIATE_BYTES) as u8),
        Extension::Aeth => (0, 0, at, AETH_BYTES as u8),
        Extension::Other(bytes) => (0, 0, 0, bytes),
    };
    Opcode { byte: transport as u8 | low, transport, operation, part, headers_bytes: at + bytes, deth, reth, immediate, aeth }
}

const fn by_byte() -> [Option<Opcode>; 256] {
    let mut all = [None; 256];
    let mut i = 0;
    while i < TABLE.len() {
        let row = TABLE[i];
        let (low, _, _, _, is_of_uc, is_of_ud) = row;
        all[low as usize] = Some(opcode(row, Transport::ReliableConnection));
        if is_of_uc {
            all[Transport::UnreliableConnection as usize | low as usize] = Some(opcode(row, Transport::UnreliableConnection));
        }
        if is_of_ud {
            all[Transport::UnreliableDatagram as usize | low as usize] = Some(opcode(row, Transport::UnreliableDatagram));
        }
        i += 1;
    }
    let zeros = Extension::Other(CONGESTION_NOTIFICATION_ZEROS);
    let notification = (CONGESTION_NOTIFICATION & 0x1F, Operation::CongestionNotification, Part::Only, zeros, false, false);
    all[CONGESTION_NOTIFICATION as usize] = Some(opcode(notification, Transport::None));
    all
}

static BY_BYTE: [Option<Opcode>; 256] = by_byte();

impl Opcode {
    /// `None` if the table does not have it.
    #[inline]
    pub fn of_byte(byte: u8) -> Option<Self> {
        BY_BYTE[usize::from(byte)]
    }

    /// The one of this kind; `None` if the transport does not have it. Where several are left (READ, atomics), the
    /// first.
    pub fn find(transport: Transport, operation: Operation, part: Part, has_immediate: bool) -> Option<Self> {
        if transport == Transport::None {
            return Self::of_byte(CONGESTION_NOTIFICATION).filter(|opcode| opcode.operation == operation && !has_immediate);
        }
        let row = TABLE.iter().find(|(_, of, at, extension, _, _)| {
            let brings_immediate = matches!(extension, Extension::Immediate | Extension::RethImmediate);
            (*of, *at, brings_immediate) == (operation, part, has_immediate)
        });
        Self::of_byte(transport as u8 | row?.0)
    }

    /// As it stands in the packet.
    pub const fn byte(self) -> u8 {
        self.byte
    }

    /// The service that it belongs to.
    pub const fn transport(self) -> Transport {
        self.transport
    }

    /// What is asked for or answered.
    pub const fn operation(self) -> Operation {
        self.operation
    }

    /// Which packet of the message.
    pub const fn part(self) -> Part {
        self.part
    }

    /// Whether immediate data are in the packet.
    pub const fn has_immediate(self) -> bool {
        self.immediate != 0
    }

    /// Whether it answers a request, so that it is for the requester of a queue pair.
    pub const fn is_response(self) -> bool {
        matches!(self.operation, Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge)
    }

    /// Bytes before the payload.
    pub const fn headers_bytes(self) -> usize {
        self.headers_bytes as usize
    }

    const fn there(at: u8) -> Option<usize> {
        if at == 0 { None } else { Some(at as usize) }
    }

    pub(super) const fn deth_at(self) -> Option<usize> {
        Self::there(self.deth)
    }

    pub(super) const fn reth_at(self) -> Option<usize> {
        Self::there(self.reth)
    }

    pub(super) const fn immediate_at(self) -> Option<usize> {
        Self::there(self.immediate)
    }

    pub(super) const fn aeth_at(self) -> Option<usize> {
        Self::there(self.aeth)
    }
}
