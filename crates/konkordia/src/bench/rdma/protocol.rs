//! The protocols that `bench rdma` compares: how a message is put into packets, and what becomes of each at the other
//! end. They differ in their headers and rules only; what carries the packets, and the memory that they are written
//! into, are the same for all.

use super::super::fabric_args::RdmaOperation;
use konkordia_fabric::rdma_udp::{self, LatePackets};
use konkordia_fabric::regions::{ProtectionDomain, Region, RegionId, Regions, Rights};
use konkordia_fabric::roce::pair::{Buffer, QueuePairSettings, Receive};
use konkordia_fabric::roce::requester::{Cut, Requester, RequesterSettings, Write};
use konkordia_fabric::roce::responder::{IcrcCheck, Responder};
use konkordia_wire::rdma_udp::{Header, header_bytes, write_header};
use konkordia_wire::roce::opcode::Transport;
use konkordia_wire::roce::outer::Outer;
use konkordia_wire::roce::{DEFAULT_PARTITION_KEY, PathMtu, Psn, QueuePairNumber};
use std::io;

/// Address of the first byte of the memory, as senders of RoCEv2 count.
const BASE: u64 = 0x10_0000_0000;
/// The queue pair of the receiver.
const QUEUE_PAIR: u32 = 0x11;
/// Receives that are prepared at a time.
const RECEIVES_MAX: usize = 1024;
/// The buffer of RDMA over UDP.
const BUFFER: u16 = 1;
/// Header of the plain datagrams: offset, number of the packet, and the event, or [`NO_EVENT`].
const PLAIN_HEADER_BYTES: usize = 16;
const NO_EVENT: u32 = u32::MAX;
/// More than this is before the payload of no packet, and behind it.
pub const OVERHEAD_BYTES_MAX: usize = 64;

/// What both ends agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub operation: RdmaOperation,
    /// Most payload of a packet.
    pub packet_bytes: usize,
    pub message_bytes: usize,
    /// Messages go to so many addresses in turn.
    pub addresses: usize,
    /// Are iCRCs compared?
    pub compares_icrc: bool,
}

impl Agreed {
    /// Packets of a message.
    pub const fn packets(&self) -> usize {
        self.message_bytes.div_ceil(self.packet_bytes)
    }

    /// Bytes that messages are written into.
    pub const fn memory_bytes(&self) -> usize {
        self.addresses * self.message_bytes
    }

    /// Where a message goes.
    pub const fn offset(&self, message: u64) -> usize {
        (message % self.addresses as u64) as usize * self.message_bytes
    }

    /// The smallest path MTU that takes these packets.
    pub fn path_mtu(&self) -> PathMtu {
        PathMtu::ALL.into_iter().find(|mtu| mtu.bytes() >= self.packet_bytes).unwrap_or(PathMtu::Bytes4096)
    }
}

/// The sending end of a protocol.
pub struct Maker {
    agreed: Agreed,
    packets: u32,
    how: Make,
}

enum Make {
    Plain,
    RdmaUdp,
    Roce { requester: Requester, outer: Outer, key: u32 },
}

impl Maker {
    /// `outer`: what RoCEv2 has around its packets; `key`: that of [`Taker::key`].
    pub fn new(agreed: Agreed, outer: Outer, key: u32) -> Self {
        let how = match agreed.operation {
            RdmaOperation::Udp => Make::Plain,
            RdmaOperation::RdmaUdp => Make::RdmaUdp,
            RdmaOperation::Write | RdmaOperation::WriteImm | RdmaOperation::Send => {
                let number = QueuePairNumber::new(QUEUE_PAIR).expect("24 bits");
                let settings = RequesterSettings::unreliable(number, agreed.path_mtu());
                Make::Roce { requester: Requester::new(settings), outer, key }
            }
        };
        Self { agreed, packets: 0, how }
    }

    /// What both ends agreed on.
    pub const fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Puts a message into packets, each in `room`, and hands them to `put`.
    ///
    /// # Errors
    /// Of `put`, and if the message cannot be sent in this protocol.
    pub fn make(
        &mut self,
        message: &[u8],
        number: u64,
        room: &mut [u8],
        put: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let offset = self.agreed.offset(number) as u64;
        let (packet_bytes, event) = (self.agreed.packet_bytes, number as u32 & !(1 << 31));
        match &mut self.how {
            Make::Plain => {
                for (n, payload) in message.chunks(packet_bytes).enumerate() {
                    let is_last = (n + 1) * packet_bytes >= message.len();
                    room[..8].copy_from_slice(&(offset + (n * packet_bytes) as u64).to_le_bytes());
                    room[8..12].copy_from_slice(&self.packets.to_le_bytes());
                    room[12..16].copy_from_slice(&(if is_last { event } else { NO_EVENT }).to_le_bytes());
                    room[PLAIN_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
                    self.packets = self.packets.wrapping_add(1);
                    put(&room[..PLAIN_HEADER_BYTES + payload.len()])?;
                }
            }
            Make::RdmaUdp => {
                for (n, payload) in message.chunks(packet_bytes).enumerate() {
                    let offset_units = offset + (n * packet_bytes) as u64;
                    let header = Header { buffer: BUFFER, offset_units, sequence: Some(self.packets) };
                    write_header(&header, payload.len(), room)
                        .map_err(|why| io::Error::other(format!("RDMA over UDP: {why:?}")))?;
                    let start = header_bytes(true);
                    room[start..start + payload.len()].copy_from_slice(payload);
                    self.packets = self.packets.wrapping_add(1);
                    put(&room[..start + payload.len()])?;
                }
            }
            Make::Roce { requester, outer, key } => {
                let length_bytes = message.len() as u64;
                let pieces = if self.agreed.operation == RdmaOperation::Send {
                    requester.send(length_bytes, None)
                } else {
                    let immediate = (self.agreed.operation == RdmaOperation::WriteImm).then_some(event);
                    let write = Write { address: BASE + offset, key: *key, length_bytes, immediate };
                    requester.write(write, Cut::OnlyPackets)
                };
                for piece in pieces.map_err(io::Error::other)? {
                    let bytes = piece.header.encode(&message[piece.payload], room);
                    outer.seal(&mut room[..bytes]);
                    put(&room[..bytes])?;
                }
            }
        }
        Ok(())
    }
}

/// What is to be done with a packet: its payload, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged<'a> {
    pub offset: usize,
    pub payload: &'a [u8],
    /// The packet ends a message, and the protocol says so.
    pub is_end: bool,
}

/// The receiving end of a protocol. It touches no memory.
pub struct Taker {
    agreed: Agreed,
    how: Take,
}

enum Take {
    Plain,
    RdmaUdp(Box<rdma_udp::Receiver>),
    Roce { responder: Box<Responder>, regions: Regions, region: RegionId, key: u32, outer: Outer, prepared: u64 },
}

impl Taker {
    /// `outer`: what RoCEv2 has around the packets that come.
    pub fn new(agreed: Agreed, outer: Outer) -> Self {
        let length_bytes = agreed.memory_bytes() as u64;
        let how = match agreed.operation {
            RdmaOperation::Udp => Take::Plain,
            RdmaOperation::RdmaUdp => {
                let mut receiver = rdma_udp::Receiver::new(1, 1, true, LatePackets::Refuse);
                let buffer = rdma_udp::Buffer { id: BUFFER, bytes: length_bytes, unit_bytes: 1, local_offset: 0 };
                receiver.register(buffer).expect("an empty table takes a buffer");
                Take::RdmaUdp(Box::new(receiver))
            }
            RdmaOperation::Write | RdmaOperation::WriteImm | RdmaOperation::Send => roce(&agreed, outer, length_bytes),
        };
        let mut taker = Self { agreed, how };
        if matches!(agreed.operation, RdmaOperation::WriteImm | RdmaOperation::Send) {
            (0..RECEIVES_MAX).for_each(|_| taker.prepare());
        }
        taker
    }

    /// What senders of RoCEv2 must name.
    pub fn key(&self) -> u32 {
        if let Take::Roce { key, .. } = &self.how { *key } else { 0 }
    }

    /// Prepares the receive of the next message for which there is none.
    fn prepare(&mut self) {
        let Take::Roce { responder, region, prepared, .. } = &mut self.how else { return };
        let (offset_bytes, length_bytes) = (self.agreed.offset(*prepared) as u64, self.agreed.message_bytes as u32);
        let is_send = self.agreed.operation == RdmaOperation::Send;
        let buffer = is_send.then_some(Buffer { region: *region, offset_bytes, length_bytes });
        let number = QueuePairNumber::new(QUEUE_PAIR).expect("24 bits");
        responder.prepare(number, Receive { id: *prepared, buffer }).expect("one was used up");
        *prepared += 1;
    }

    /// Where the payload of a packet belongs; `None` if it is refused.
    #[inline]
    pub fn judge<'a>(&mut self, datagram: &'a [u8]) -> Option<Judged<'a>> {
        let judged = match &mut self.how {
            Take::Plain => {
                let (header, payload) = datagram.split_first_chunk::<PLAIN_HEADER_BYTES>()?;
                let offset = usize::try_from(u64::from_le_bytes(*header.first_chunk()?)).ok()?;
                let end = offset.checked_add(payload.len())?;
                let is_end = header[12..16] != NO_EVENT.to_le_bytes();
                (end <= self.agreed.memory_bytes()).then_some(Judged { offset, payload, is_end })
            }
            Take::RdmaUdp(receiver) => {
                let write = receiver.receive(0, datagram, &mut |_| {}).ok()?;
                // The protocol has no events: the receiver counts.
                let is_end = write.position.is_some_and(|at| (at + 1) % self.agreed.packets() as u64 == 0);
                Some(Judged { offset: write.local_offset as usize, payload: write.payload, is_end })
            }
            Take::Roce { responder, regions, outer, .. } => {
                let outcome = responder.receive(datagram, outer, regions);
                let copy = outcome.copy?;
                let is_end = outcome.completion.is_some();
                Some(Judged { offset: copy.place.offset_bytes as usize, payload: copy.bytes, is_end })
            }
        };
        if judged.is_some_and(|judged| judged.is_end) {
            self.prepare();
        }
        judged
    }
}

/// A queue pair of UC that may write into all of the memory.
fn roce(agreed: &Agreed, outer: Outer, length_bytes: u64) -> Take {
    let domain = ProtectionDomain(1);
    let mut regions = Regions::new(1, 0x5A5A_0000);
    let region = Region { base: BASE, length_bytes, rights: Rights::Write, domain };
    let (region, key) = regions.register(region).expect("an empty table takes a region");
    let check = if agreed.compares_icrc { IcrcCheck::Always } else { IcrcCheck::Never };
    let mut responder = Responder::new(1, check);
    let number = QueuePairNumber::new(QUEUE_PAIR).expect("24 bits");
    let settings = QueuePairSettings {
        number,
        transport: Transport::UnreliableConnection,
        first_psn: Psn::new(0),
        path_mtu: agreed.path_mtu(),
        partition_key: DEFAULT_PARTITION_KEY,
        queue_key: 0,
        peer: Some(outer.source().ip()),
        peer_number: number,
        domain,
        receives_max: RECEIVES_MAX,
        not_ready_timer: 0,
    };
    responder.add(settings).expect("an empty table takes a queue pair");
    Take::Roce { responder: Box::new(responder), regions, region, key: key.get(), outer, prepared: 0 }
}

/// The bytes of a message before it has a number: [`stamp`] writes it.
pub fn filling(bytes: usize) -> Vec<u8> {
    super::super::peer::filling(bytes)
}

/// Gives a message its number, as far as it has room for it.
pub fn stamp(message: &mut [u8], number: u64) {
    let bytes = message.len().min(8);
    message[..bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
}

/// Is it the message with this number, in every byte?
pub fn is_message(bytes: &[u8], number: u64, filling: &[u8]) -> bool {
    let head = bytes.len().min(8);
    bytes.len() == filling.len() && bytes[..head] == number.to_le_bytes()[..head] && bytes[head..] == filling[head..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every message arrives in its place, whatever the protocol, and what is cut short is refused.
    #[test]
    fn messages_lie_where_they_belong() {
        let outer = Outer::of_udp_socket("127.0.0.1:4000".parse().unwrap(), "127.0.0.1:4791".parse().unwrap()).unwrap();
        for operation in RdmaOperation::ALL {
            for (packet_bytes, message_bytes, addresses) in [(598, 598, 3), (1024, 5000, 2), (4096, 1, 1)] {
                let agreed = Agreed { operation, packet_bytes, message_bytes, addresses, compares_icrc: true };
                let mut taker = Taker::new(agreed, outer);
                let mut maker = Maker::new(agreed, outer, taker.key());
                let mut memory = vec![0; agreed.memory_bytes()];
                let (mut room, filling) = (vec![0; packet_bytes + OVERHEAD_BYTES_MAX], filling(message_bytes));
                let (mut message, mut ends, mut packets) = (filling.clone(), 0, 0);
                for number in 0..2000 {
                    stamp(&mut message, number);
                    let put = &mut |packet: &[u8]| {
                        let judged = taker.judge(packet).expect("a good packet");
                        memory[judged.offset..judged.offset + judged.payload.len()].copy_from_slice(judged.payload);
                        ends += u64::from(judged.is_end);
                        packets += 1;
                        Ok(())
                    };
                    maker.make(&message, number, &mut room, put).unwrap();
                    let at = agreed.offset(number);
                    assert!(is_message(&memory[at..at + message_bytes], number, &filling), "{agreed:?} {number}");
                }
                assert_eq!(packets, 2000 * agreed.packets());
                // A WRITE without immediate data says nothing to its receiver.
                assert_eq!(ends, if operation == RdmaOperation::Write { 0 } else { 2000 }, "{agreed:?}");
                let mut refused = 0;
                let put = &mut |packet: &[u8]| {
                    refused += usize::from(taker.judge(&packet[..5]).is_none());
                    Ok(())
                };
                maker.make(&message, 2000, &mut room, put).unwrap();
                assert_eq!(refused, agreed.packets());
            }
        }
    }

    #[test]
    fn a_place_outside_of_the_memory_is_refused() {
        let outer = Outer::of_udp_socket("127.0.0.1:4000".parse().unwrap(), "127.0.0.1:4791".parse().unwrap()).unwrap();
        for operation in [RdmaOperation::Udp, RdmaOperation::RdmaUdp, RdmaOperation::Write] {
            let few = Agreed { operation, packet_bytes: 64, message_bytes: 64, addresses: 2, compares_icrc: true };
            let mut taker = Taker::new(few, outer);
            let mut maker = Maker::new(Agreed { addresses: 3, ..few }, outer, taker.key());
            let mut room = vec![0; 64 + OVERHEAD_BYTES_MAX];
            let mut placed = Vec::new();
            for number in 0..3 {
                let put = &mut |packet: &[u8]| {
                    placed.push(taker.judge(packet).is_some());
                    Ok(())
                };
                maker.make(&[7; 64], number, &mut room, put).unwrap();
            }
            assert_eq!(placed, [true, true, false], "{operation:?}");
        }
    }
}
