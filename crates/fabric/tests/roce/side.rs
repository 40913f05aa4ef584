//! A receiving side with two regions, and packets as a sender makes them.

use konkordia_fabric::regions::{Key, ProtectionDomain, Region, RegionId, Regions, Rights};
use konkordia_fabric::roce::image::MemoryImages;
use konkordia_fabric::roce::pair::{Completion, QueuePairSettings, Receive};
use konkordia_fabric::roce::requester::{Cut, Requester, RequesterSettings, Write};
use konkordia_fabric::roce::responder::{IcrcCheck, Responder};
use konkordia_fabric::roce::verdict::Verdict;
use konkordia_wire::roce::opcode::{Operation, Part, Transport};
use konkordia_wire::roce::outer::Outer;
use konkordia_wire::roce::{DEFAULT_PARTITION_KEY, Header, Packet, PathMtu, Psn, QueuePairNumber, RemoteMemory};

pub const MTU: usize = 256;
pub const BASE: u64 = 0x7F00_0000_1000;
pub const REGION_BYTES: usize = 16 * MTU;
pub const FILL: u8 = 0xC5;
pub const DOMAIN: ProtectionDomain = ProtectionDomain(3);
pub const QUEUE_KEY: u32 = 0x1111_2222;

pub fn qpn(number: u32) -> QueuePairNumber {
    QueuePairNumber::new(number).unwrap()
}

pub fn outer() -> Outer {
    Outer::of_udp_socket("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap()).unwrap()
}

pub fn settings(number: u32, transport: Transport) -> QueuePairSettings {
    QueuePairSettings {
        number: qpn(number),
        transport,
        first_psn: Psn::new(0),
        path_mtu: PathMtu::Bytes256,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_key: QUEUE_KEY,
        peer: None,
        peer_number: qpn(0xBEEF),
        domain: DOMAIN,
        receives_max: 64,
        not_ready_timer: 14,
    }
}

/// Pixels that differ from packet to packet.
pub fn pixels(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

/// A sealed packet.
pub fn sealed(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; header.packet_bytes(payload.len())];
    header.encode(payload, &mut packet);
    outer().seal(&mut packet);
    packet
}

pub struct Side {
    pub responder: Responder,
    pub regions: Regions,
    pub images: MemoryImages,
    /// May be written.
    pub writable: (RegionId, Key),
    /// May only be read.
    pub readable: (RegionId, Key),
    pub completions: Vec<Completion>,
    pub replies: Vec<Vec<u8>>,
}

impl Side {
    /// With a queue pair 0x11 of this transport.
    pub fn new(transport: Transport) -> Self {
        Self::with(&[settings(0x11, transport)], IcrcCheck::Always)
    }

    pub fn with(pairs: &[QueuePairSettings], check: IcrcCheck) -> Self {
        let mut regions = Regions::new(4, 0xA5A5_0000);
        let region = |base, rights| Region { base, length_bytes: REGION_BYTES as u64, rights, domain: DOMAIN };
        let writable = regions.register(region(BASE, Rights::Write)).unwrap();
        let readable = regions.register(region(BASE + 0x10_0000, Rights::Read)).unwrap();
        let mut images = MemoryImages::default();
        images.add(writable.0, REGION_BYTES, FILL);
        images.add(readable.0, REGION_BYTES, FILL);
        let mut responder = Responder::new(pairs.len(), check);
        for pair in pairs {
            responder.add(*pair).unwrap();
        }
        Self { responder, regions, images, writable, readable, completions: Vec::new(), replies: Vec::new() }
    }

    pub fn prepare(&mut self, number: u32, receives: u64) {
        for id in 0..receives {
            self.responder.prepare(qpn(number), Receive { id, buffer: None }).unwrap();
        }
    }

    /// Gives a packet to the responder and does what it says.
    pub fn take(&mut self, packet: &[u8]) -> Verdict {
        let outcome = self.responder.receive(packet, &outer(), &self.regions);
        if let Some(copy) = &outcome.copy {
            assert!(!copy.bytes.is_empty());
            self.images.apply(copy);
        }
        self.completions.extend(outcome.completion);
        if let Some(mut reply) = outcome.reply {
            outer().seal(&mut reply);
            Packet::new_checked(&reply).expect("replies are packets");
            self.replies.push(reply.to_vec());
        }
        assert!(outcome.verdict == Verdict::Placed || (outcome.copy.is_none() && outcome.completion.is_none()));
        assert!(self.responder.counters().is_balanced());
        outcome.verdict
    }

    pub fn image(&self) -> &[u8] {
        self.images.of(self.writable.0)
    }

    /// A packet to queue pair 0x11 that is in order but for what `change` does to it.
    pub fn packet(
        &self,
        kind: (Transport, Operation, Part, bool),
        psn: u32,
        payload: &[u8],
        change: impl Fn(&mut Header),
    ) -> Vec<u8> {
        let (transport, operation, part, has_immediate) = kind;
        let opcode = konkordia_wire::roce::opcode::Opcode::find(transport, operation, part, has_immediate).unwrap();
        let mut header = Header::new(opcode, qpn(0x11), Psn::new(psn));
        header.remote_memory = RemoteMemory { address: BASE, key: self.writable.1.get(), length_bytes: payload.len() as u32 };
        header.datagram_source.queue_key = QUEUE_KEY;
        header.datagram_source.queue_pair = qpn(0xABC);
        header.immediate = 0xFEED_0000 | psn & 0xFFFF;
        change(&mut header);
        sealed(&header, payload)
    }

    /// The packets of a WRITE of UC.
    pub fn write(
        &self,
        requester: &mut Requester,
        offset: usize,
        bytes: &[u8],
        immediate: Option<u32>,
        cut: Cut,
    ) -> Vec<Vec<u8>> {
        let message =
            Write { address: BASE + offset as u64, key: self.writable.1.get(), length_bytes: bytes.len() as u64, immediate };
        let pieces = requester.write(message, cut).unwrap();
        pieces.map(|piece| sealed(&piece.header, &bytes[piece.payload.clone()])).collect()
    }
}

pub fn requester(first_psn: u32) -> Requester {
    let settings = RequesterSettings::unreliable(qpn(0x11), PathMtu::Bytes256);
    Requester::new(RequesterSettings { first_psn: Psn::new(first_psn), ..settings })
}
