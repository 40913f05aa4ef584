//! Any bytes as packets of RDMA over UDP, one after the other: each gets one verdict, none is to be written outside of
//! its buffer, and no position is reported as lost twice.
#![no_main]

use konkordia_fabric::rdma_udp::{Buffer, LatePackets, Receiver};
use konkordia_wire::rdma_udp::{Packet, write_header};
use libfuzzer_sys::fuzz_target;

const BUFFERS: [Buffer; 2] = [
    Buffer { id: 1, bytes: 100, unit_bytes: 3, local_offset: 50 },
    Buffer { id: 0x0102, bytes: 7, unit_bytes: 1, local_offset: 150 },
];

fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    let (has_extension, late) = (choice & 1 == 1, if choice & 2 == 2 { LatePackets::Write } else { LatePackets::Refuse });
    let mut receiver = Receiver::new(2, 2, has_extension, late);
    BUFFERS.iter().for_each(|buffer| receiver.register(*buffer).expect("a buffer"));
    let mut lost_before = [0; 2];
    for (n, segment) in data.chunks(usize::from(choice >> 2) + 9).enumerate() {
        if let Ok(packet) = Packet::new_checked(segment, has_extension) {
            let (header, payload) = (packet.header(), packet.payload());
            let mut again = vec![0; header.bytes()];
            write_header(&header, payload.len(), &mut again).expect("it was read");
            again.extend(payload);
            // All but the checksum and the padding.
            assert_eq!((&again[..6], &again[8..]), (&segment[..6], &segment[8..again.len()]));
        }
        let sender = n % 3;
        let written = receiver.receive(sender, segment, &mut |run| {
            assert!(run.start >= lost_before[sender] && run.end > run.start);
            lost_before[sender] = run.end;
        });
        if let Ok(write) = written {
            let end = write.local_offset + write.payload.len() as u64;
            let holds = |buffer: &Buffer| buffer.local_offset <= write.local_offset && end <= buffer.local_offset + buffer.bytes;
            assert!(BUFFERS.iter().any(|buffer| buffer.id == write.buffer && holds(buffer)));
        }
        assert_eq!(receiver.verdicts().packets(), n as u64 + 1);
    }
});
