//! What may become of a packet: each packet gets one verdict, and each verdict has one counter.

use crate::regions::Refusal;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Verdict {
    /// Its bytes have a place, or it has none and is in order.
    Placed,
    /// It was executed before (RC); it is acknowledged again and not executed.
    Duplicate,
    /// It answers a request, so it is for the requester.
    ForRequester,
    /// A notification of congestion.
    CongestionNotification,
    /// No packet of RoCEv2: its length contradicts its headers.
    Length,
    /// No packet of RoCEv2: its opcode is unknown.
    Opcode,
    /// No packet of RoCEv2: another version of the transport header.
    Version,
    /// Its iCRC is wrong.
    WrongIcrc,
    /// There is no queue pair of this number.
    UnknownQueuePair,
    /// The queue pair has another transport.
    WrongTransport,
    /// It is of another partition.
    WrongPartition,
    /// It comes from another address than the queue pair's peer.
    ForeignSender,
    /// A datagram with another queue key.
    WrongQueueKey,
    /// An operation that is not executed here (READ, atomics).
    Unsupported,
    /// UC: it continues a message of which a packet is missing, or is not the next of its message. RC: a packet before
    /// it is missing.
    OutOfSequence,
    /// It continues no message, or one of another operation, or (RC) it begins one inside of another.
    OutsideMessage,
    /// UC: it continues a message that was refused.
    RestOfRefused,
    /// Its payload does not suit the path MTU or the announced length of the message.
    WrongLength,
    /// The key of the memory was never given.
    UnknownKey,
    /// The key of the memory was revoked.
    RevokedKey,
    /// The memory is of another protection domain.
    OtherDomain,
    /// The memory may not be written.
    NoRight,
    /// The message does not fit into the memory.
    OutOfBounds,
    /// No receive was prepared. UC loses the message without a word to its sender.
    NoReceive,
    /// The message is longer than the receive that was prepared.
    ReceiveTooShort,
    /// The buffer of the receive is no longer registered.
    ReceiveRevoked,
    /// RC: the queue pair has failed before.
    QueuePairFailed,
}

impl Verdict {
    /// All, in the order of the counters.
    pub const ALL: [Self; 27] = [
        Self::Placed,
        Self::Duplicate,
        Self::ForRequester,
        Self::CongestionNotification,
        Self::Length,
        Self::Opcode,
        Self::Version,
        Self::WrongIcrc,
        Self::UnknownQueuePair,
        Self::WrongTransport,
        Self::WrongPartition,
        Self::ForeignSender,
        Self::WrongQueueKey,
        Self::Unsupported,
        Self::OutOfSequence,
        Self::OutsideMessage,
        Self::RestOfRefused,
        Self::WrongLength,
        Self::UnknownKey,
        Self::RevokedKey,
        Self::OtherDomain,
        Self::NoRight,
        Self::OutOfBounds,
        Self::NoReceive,
        Self::ReceiveTooShort,
        Self::ReceiveRevoked,
        Self::QueuePairFailed,
    ];

    /// Name of the counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Duplicate => "duplicate",
            Self::ForRequester => "for_requester",
            Self::CongestionNotification => "congestion_notification",
            Self::Length => "length",
            Self::Opcode => "opcode",
            Self::Version => "version",
            Self::WrongIcrc => "wrong_icrc",
            Self::UnknownQueuePair => "unknown_queue_pair",
            Self::WrongTransport => "wrong_transport",
            Self::WrongPartition => "wrong_partition",
            Self::ForeignSender => "foreign_sender",
            Self::WrongQueueKey => "wrong_queue_key",
            Self::Unsupported => "unsupported",
            Self::OutOfSequence => "out_of_sequence",
            Self::OutsideMessage => "outside_message",
            Self::RestOfRefused => "rest_of_refused",
            Self::WrongLength => "wrong_length",
            Self::UnknownKey => "unknown_key",
            Self::RevokedKey => "revoked_key",
            Self::OtherDomain => "other_domain",
            Self::NoRight => "no_right",
            Self::OutOfBounds => "out_of_bounds",
            Self::NoReceive => "no_receive",
            Self::ReceiveTooShort => "receive_too_short",
            Self::ReceiveRevoked => "receive_revoked",
            Self::QueuePairFailed => "queue_pair_failed",
        }
    }
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownKey => Self::UnknownKey,
            Refusal::RevokedKey => Self::RevokedKey,
            Refusal::OtherDomain => Self::OtherDomain,
            Refusal::NoRight => Self::NoRight,
            Refusal::OutOfBounds => Self::OutOfBounds,
        }
    }
}

/// What a responder has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    verdicts: [u64; Verdict::ALL.len()],
    /// Packets that it was given; the verdicts sum up to it.
    pub packets: u64,
    /// Bytes of payload that have a place.
    pub placed_bytes: u64,
    /// Messages that completed a receive.
    pub completions: u64,
    /// Acknowledgements of both kinds.
    pub replies: u64,
    /// Packets whose iCRC was compared; the others are of unknown truth.
    pub icrc_compared: u64,
}

impl Counters {
    /// Packets with this verdict.
    pub const fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict as usize]
    }

    pub(crate) fn count(&mut self, verdict: Verdict) {
        self.verdicts[verdict as usize] += 1;
    }

    /// Whether each packet has exactly one verdict.
    pub fn is_balanced(&self) -> bool {
        self.verdicts.iter().sum::<u64>() == self.packets
    }
}
