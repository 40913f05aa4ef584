use crate::side::*;
use konkordia_fabric::roce::pair::{Buffer, Receive};
use konkordia_fabric::roce::responder::IcrcCheck;
use konkordia_fabric::roce::verdict::Verdict;
use konkordia_wire::roce::opcode::{Opcode, Transport};
use konkordia_wire::roce::{Header, Packet, Psn, RemoteMemory};

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A packet that may be in order in every single respect, and is often not.
fn packet(random: &mut Random, side: &Side, next: &[u32; 3]) -> Vec<u8> {
    let bytes = [
        0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x11, 0x14, 0x17, 0x20, 0x21, 0x22, 0x26, 0x27, 0x28, 0x29, 0x2A,
        0x2B, 0x64, 0x65, 0x81,
    ];
    let opcode = Opcode::of_byte(random.one_of(&bytes)).unwrap();
    let pair = match opcode.transport() {
        Transport::ReliableConnection => 1,
        Transport::UnreliableDatagram => 2,
        _ => 0,
    };
    let number = if random.below(8) == 0 { random.below(1 << 24) as u32 } else { 0x11 + pair as u32 };
    let psn = match random.below(10) {
        0 => random.next() as u32,
        1 => next[pair].wrapping_sub(1),
        _ => next[pair],
    };
    let length = [0, 1, 4, 63, MTU - 1, MTU, MTU, MTU, MTU + 1, 1000][random.below(10) as usize];
    let mut header = Header::new(opcode, qpn(number), Psn::new(psn));
    let edge = BASE + REGION_BYTES as u64;
    let address =
        [BASE, BASE - 1, edge - length as u64, edge - length as u64 + 1, edge, u64::MAX, u64::MAX - length as u64, random.next()];
    let announced = [length as u32, 2 * MTU as u32, 3 * MTU as u32, length as u32 + 1, 0, u32::MAX, 1 << 31];
    header.remote_memory = RemoteMemory {
        address: random.one_of(&address),
        key: random.one_of(&[side.writable.1.get(), side.writable.1.get(), side.readable.1.get(), 0, random.0 as u32]),
        length_bytes: random.one_of(&announced),
    };
    header.datagram_source.queue_key = random.one_of(&[QUEUE_KEY, QUEUE_KEY, 0]);
    header.asks_acknowledge = random.below(2) == 0;
    let payload = pixels(length, psn);
    let mut made = vec![0; header.packet_bytes(length)];
    header.encode(&payload, &mut made);
    match random.below(12) {
        0 => made.truncate(random.below(made.len() as u64 + 1) as usize),
        1 => {
            let at = random.below(made.len().min(40) as u64) as usize;
            made[at] = random.next() as u8;
        }
        2 => made.extend([0; 4]),
        _ => {}
    }
    made
}

/// Whatever comes: only registered bytes that may be written are written, each packet has one verdict, and the counters
/// sum up. (Each copy is checked against its region by the image, which panics at a byte outside.)
#[test]
fn a_million_hostile_packets() {
    let pairs = [
        settings(0x11, Transport::UnreliableConnection),
        settings(0x12, Transport::ReliableConnection),
        settings(0x13, Transport::UnreliableDatagram),
    ];
    let mut side = Side::with(&pairs, IcrcCheck::Never);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    // What the next packet of each queue pair is, so that many are in order.
    let mut next = [0; 3];
    let mut seen = [0_u64; Verdict::ALL.len()];
    for n in 0..1_000_000_u64 {
        let packet = packet(&mut random, &side, &next);
        let verdict = side.take(&packet);
        if verdict == Verdict::Placed {
            let view = Packet::new_checked(&packet).unwrap();
            next[view.destination().get() as usize - 0x11] = view.psn().plus(1).get();
        }
        seen[verdict as usize] += 1;
        side.completions.clear();
        side.replies.clear();
        if n % 16 == 0 {
            let number = random.one_of(&[0x11, 0x12, 0x13]);
            let offset_bytes = random.below(REGION_BYTES as u64 + 500);
            // Also buffers that end outside of the region.
            let buffer = Buffer { region: side.writable.0, offset_bytes, length_bytes: 2 * MTU as u32 };
            let _ = side.responder.prepare(qpn(number), Receive { id: n, buffer: (n % 64 != 0).then_some(buffer) });
        }
        if side.responder.queue_pair(qpn(0x12)).unwrap().has_failed() {
            side.responder.remove(qpn(0x12));
            side.responder
                .add(konkordia_fabric::roce::pair::QueuePairSettings { first_psn: Psn::new(next[1]), ..pairs[1] })
                .unwrap();
        }
    }
    let counters = side.responder.counters();
    assert_eq!(counters.packets, 1_000_000);
    for verdict in Verdict::ALL {
        assert_eq!(counters.of(verdict), seen[verdict as usize]);
        // Only what this test never does is never seen, so the packets reached everything else.
        let cannot_come =
            [Verdict::WrongIcrc, Verdict::ForeignSender, Verdict::OtherDomain, Verdict::QueuePairFailed, Verdict::RevokedKey];
        assert_eq!(seen[verdict as usize] == 0, cannot_come.contains(&verdict), "{}: {}", verdict.name(), seen[verdict as usize]);
    }
    assert!(side.images.of(side.readable.0).iter().all(|byte| *byte == FILL));
    assert!(side.image().iter().any(|byte| *byte != FILL));
}
