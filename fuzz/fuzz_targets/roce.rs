//! Any bytes as an Ethernet frame, as a packet of RoCEv2, and as a list of packets for a responder: nothing outside of
//! the region that may be written is written, each packet has one verdict, and packets that were read are written again
//! as they were.
#![no_main]

use konkordia_fabric::regions::{ProtectionDomain, Region, Regions, Rights};
use konkordia_fabric::roce::image::MemoryImages;
use konkordia_fabric::roce::pair::{Buffer, QueuePairSettings, Receive};
use konkordia_fabric::roce::responder::{IcrcCheck, Responder};
use konkordia_wire::hsb_metadata::FrameEnd;
use konkordia_wire::roce::frame::packet_of;
use konkordia_wire::roce::opcode::Transport;
use konkordia_wire::roce::outer::Outer;
use konkordia_wire::roce::{DEFAULT_PARTITION_KEY, ICRC_BYTES, Packet, PathMtu, Psn, QueuePairNumber};
use libfuzzer_sys::fuzz_target;

const DOMAIN: ProtectionDomain = ProtectionDomain(1);

fn view(bytes: &[u8]) {
    let Ok(packet) = Packet::new_checked(bytes) else { return };
    let sum = packet.opcode().headers_bytes() + packet.payload().len() + packet.pad_bytes() + ICRC_BYTES;
    assert_eq!(sum, bytes.len());
    assert_eq!(packet.immediate().is_some(), packet.opcode().has_immediate());
    let _ = (packet.remote_memory(), packet.datagram_source(), packet.acknowledgement(), packet.icrc());
    let _ = FrameEnd::of_payload(packet.payload()).map(|end| assert_eq!(FrameEnd::of_payload(&end.encode()), Some(end)));
}

fn respond(mut rest: &[u8], outer: &Outer) {
    let mut regions = Regions::new(2, 0x1_0000);
    let region = |base, rights| Region { base, length_bytes: 1024, rights, domain: DOMAIN };
    let (writable, _) = regions.register(region(0, Rights::Write)).expect("room for two");
    let (readable, _) = regions.register(region(0, Rights::Read)).expect("room for two");
    let mut images = MemoryImages::default();
    images.add(writable, 1024, 0);
    let mut responder = Responder::new(3, IcrcCheck::Never);
    let transports = [Transport::UnreliableConnection, Transport::ReliableConnection, Transport::UnreliableDatagram];
    for (number, transport) in (2..).zip(transports) {
        let number = QueuePairNumber::new(number).expect("24 bits");
        let settings = QueuePairSettings {
            number,
            transport,
            first_psn: Psn::new(0),
            path_mtu: PathMtu::Bytes256,
            partition_key: DEFAULT_PARTITION_KEY,
            queue_key: 0,
            peer: None,
            peer_number: number,
            domain: DOMAIN,
            receives_max: 8,
            not_ready_timer: 0,
        };
        responder.add(settings).expect("room for three");
        for id in 0..8 {
            let buffer = Buffer { region: if id == 3 { readable } else { writable }, offset_bytes: 200 * id, length_bytes: 300 };
            responder.prepare(number, Receive { id, buffer: (id != 5).then_some(buffer) }).expect("room for eight");
        }
    }
    // Each packet is behind a word with its length.
    let mut packets = 0;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)) % 600;
        let (packet, behind) = behind.split_at(length.min(behind.len()));
        let outcome = responder.receive(packet, outer, &regions);
        outcome.copy.iter().for_each(|copy| images.apply(copy));
        assert!(outcome.reply.is_none_or(|reply| Packet::new_checked(&reply).is_ok()));
        packets += 1;
        rest = behind;
    }
    assert!(responder.counters().is_balanced() && responder.counters().packets == packets);
}

fuzz_target!(|data: &[u8]| {
    view(data);
    let from = Outer::of_udp_socket("10.0.0.1:1".parse().unwrap(), "10.0.0.2:4791".parse().unwrap()).unwrap();
    let outer = packet_of(data).map_or(from, |(outer, packet)| {
        view(packet);
        let mut headers = [0; 64];
        let bytes = outer.write(packet.len(), 0, &mut headers);
        let mut again = headers[..bytes].to_vec();
        again.extend(packet);
        assert_eq!(Outer::of_ip_packet(&again), Ok((outer, packet)));
        outer
    });
    respond(data, &outer);
});
