//! Packets of EXCALIBUR. The bytes are written out by hand from docs/protocols.md 9.1, not by an encoder of ours.

use konkordia_core::ledger::Malformed;
use konkordia_core::tile::TileFormat;
use konkordia_wire::formats::PacketFormat;

const FORMAT: PacketFormat = PacketFormat::Excalibur;

/// Subframe counter, packet word, data.
fn datagram(counter: [u8; 4], word: [u8; 4], data: usize) -> Vec<u8> {
    [&counter[..], &word, &vec![0x5A; data]].concat()
}

/// A tail packet whose trailer says frame 0x0102030405060708.
fn tail(counter: [u8; 4]) -> Vec<u8> {
    let mut tail = datagram(counter, [65, 0, 0, 0x40], 4288);
    tail.extend([8, 7, 6, 5, 4, 3, 2, 1]);
    tail
}

#[test]
fn two_subframes_make_a_frame() {
    let tile = TileFormat::excalibur();
    assert_eq!(PacketFormat::of(&TileFormat::excalibur()), FORMAT);
    // Counter 0x12345678 is the first subframe of frame 0x091A2B3C, the next counter its second.
    let first = datagram([0x78, 0x56, 0x34, 0x12], [0, 0, 0, 0x80], 8000);
    let packet = FORMAT.decode(&first, &tile).unwrap();
    assert_eq!((packet.frame_number(), packet.number(), packet.packet()), (0x091A_2B3C, 0, 0));
    assert_eq!((packet.payload().len(), packet.datagram().len()), (8000, 8008));
    assert!(packet.payload().iter().all(|byte| *byte == 0x5A));
    assert!(!packet.brings_header() && !packet.is_last());
    assert_eq!(FORMAT.header(&packet).fields, [0; 6]);

    let second = datagram([0x79, 0x56, 0x34, 0x12], [0, 0, 0, 0x80], 8000);
    let packet = FORMAT.decode(&second, &tile).unwrap();
    assert_eq!((packet.frame_number(), packet.number(), packet.packet()), (0x091A_2B3C, 66, 66));
    let middle = datagram([0x79, 0x56, 0x34, 0x12], [64, 0, 0, 0], 8000);
    let packet = FORMAT.decode(&middle, &tile).unwrap();
    assert_eq!((packet.packet(), packet.brings_header(), packet.is_last()), (130, false, false));
}

#[test]
fn tail_packets_bring_the_trailer_which_is_no_pixels() {
    let tile = TileFormat::excalibur();
    for (counter, number) in [([6, 0, 0, 0], 65), ([7, 0, 0, 0], 131)] {
        let datagram = tail(counter);
        assert_eq!(datagram.len(), 8 + 4296);
        let packet = FORMAT.decode(&datagram, &tile).unwrap();
        assert_eq!((packet.frame_number(), packet.packet(), packet.is_last()), (3, number, number == 131));
        assert_eq!(packet.payload(), [0x5A; 4288]);
        assert!(packet.brings_header());
        let header = FORMAT.header(&packet);
        let column = &FORMAT.description().columns[0];
        assert_eq!((&*column.name, header.value(column.value)), ("trailer_frame", 0x0102_0304_0506_0708));
        assert_eq!(header.frame_number, 3);
    }
}

#[test]
fn each_check_refuses_what_it_should() {
    let tile = TileFormat::excalibur();
    let refused = |word, data| FORMAT.decode(&datagram([4, 0, 0, 0], word, data), &tile).err();
    assert_eq!(FORMAT.decode(&[0; 7], &tile).err(), Some(Malformed::Length));
    assert_eq!(refused([1, 0, 0, 0], 8000), None);
    for data in [0, 7999, 8001, 4288, 4296] {
        assert_eq!(refused([1, 0, 0, 0], data), Some(Malformed::Length), "{data}");
    }
    assert_eq!(refused([65, 0, 0, 0x40], 4296), None);
    for data in [8, 4288, 4295, 4297, 8000] {
        assert_eq!(refused([65, 0, 0, 0x40], data), Some(Malformed::Length), "{data}");
    }
    assert_eq!(refused([66, 0, 0, 0], 8000), Some(Malformed::PacketNumber), "a subframe has 66 packets");
    assert_eq!(refused([255, 255, 255, 0x3F], 8000), Some(Malformed::PacketNumber));
    assert_eq!(refused([0, 0, 0, 0], 8000), Some(Malformed::PacketNumber), "packet 0 is marked as the start");
    assert_eq!(refused([1, 0, 0, 0x80], 8000), Some(Malformed::PacketNumber), "no other packet is");
    assert_eq!(refused([65, 0, 0, 0], 4296), Some(Malformed::PacketNumber), "the last packet is marked as the end");
    assert_eq!(refused([32, 0, 0, 0x40], 6152), Some(Malformed::PacketNumber), "a subframe of 6 bit ends here");
    assert_eq!(refused([4, 0, 0, 0x40], 768), Some(Malformed::PacketNumber), "and one of 1 bit here");
}

#[test]
fn refused_packets_say_what_they_are() {
    let claims = FORMAT.claims(&datagram([7, 0, 0, 0], [32, 0, 0, 0x40], 6152)).unwrap();
    assert_eq!((claims.frame_number, claims.fields.packet_number), (3, 66 + 32));
    let wild = FORMAT.claims(&[0xFF; 8]).unwrap();
    assert_eq!((wild.frame_number, wild.fields.packet_number), (0x7FFF_FFFF, 0x3FFF_FFFF + 66));
    assert!(FORMAT.claims(&[0; 7]).is_none());
}
