//! Nothing allocates per packet: a counting allocator watches messages being cut, written, sealed and taken. It counts
//! this thread alone, because the thread that runs the tests allocates for itself.

#[path = "../../../tests/counting.rs"]
mod counting;

use konkordia_fabric::regions::{ProtectionDomain, Region, Regions, Rights};
use konkordia_fabric::roce::pair::{QueuePairSettings, Receive};
use konkordia_fabric::roce::requester::{Cut, Requester, RequesterSettings, Write};
use konkordia_fabric::roce::responder::{IcrcCheck, Responder};
use konkordia_wire::roce::frame::{Ethernet, packet_of};
use konkordia_wire::roce::opcode::Transport;
use konkordia_wire::roce::outer::Outer;
use konkordia_wire::roce::{DEFAULT_PARTITION_KEY, PathMtu, Psn, QueuePairNumber};

#[test]
fn nothing_allocates_per_packet() {
    let domain = ProtectionDomain(1);
    let mut regions = Regions::new(8, 0);
    let region = Region { base: 0, length_bytes: 1 << 20, rights: Rights::Write, domain };
    let (_, key) = regions.register(region).unwrap();
    let number = QueuePairNumber::new(0x11).unwrap();
    let mut responder = Responder::new(2, IcrcCheck::Always);
    let settings = QueuePairSettings {
        number,
        transport: Transport::UnreliableConnection,
        first_psn: Psn::new(0),
        path_mtu: PathMtu::Bytes1024,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_key: 0,
        peer: None,
        peer_number: number,
        domain,
        receives_max: 16,
        not_ready_timer: 0,
    };
    responder.add(settings).unwrap();
    let mut requester = Requester::new(RequesterSettings::unreliable(number, PathMtu::Bytes1024));
    let outer = Outer::of_udp_socket("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap()).unwrap();
    let ethernet = Ethernet { destination: [2; 6], source: [4; 6] };
    let pixels = vec![7; 1 << 16];
    let mut frame = vec![0; 4096];
    let mut completions = 0;

    let before = counting::of_this_thread();
    for n in 0..200_u32 {
        // More receives than the queue holds are refused, and also without an allocation.
        let _ = responder.prepare(number, Receive { id: n.into(), buffer: None });
        let _ = responder.prepare(number, Receive { id: n.into(), buffer: None });
        let (other_id, other) = regions.register(Region { base: 1 << 40, ..region }).unwrap();
        let cut = if n % 2 == 0 { Cut::OneMessage } else { Cut::OnlyPackets };
        // Every third message has a key that is revoked in its middle.
        let key = if n % 3 == 2 { other } else { key };
        let address = if n % 3 == 2 { 1 << 40 } else { 0 };
        let message = Write { address, key: key.get(), length_bytes: 1 << 16, immediate: Some(n) };
        for (i, piece) in requester.write(message, cut).unwrap().enumerate() {
            if i == 9 {
                regions.revoke(other_id).unwrap();
            }
            let bytes = piece.header.packet_bytes(piece.payload.len());
            let at = ethernet.write(&outer, bytes, 0, &mut frame);
            piece.header.encode(&pixels[piece.payload.clone()], &mut frame[at..at + bytes]);
            outer.seal(&mut frame[at..at + bytes]);
            let (found, packet) = packet_of(&frame[..at + bytes]).unwrap();
            completions += u32::from(responder.receive(packet, &found, &regions).completion.is_some());
        }
    }
    assert_eq!(counting::of_this_thread() - before, 0);
    assert_eq!(completions, 134);
    assert_eq!(responder.counters().packets, 200 * 64);
}
