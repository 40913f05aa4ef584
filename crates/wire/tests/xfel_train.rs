//! Trains of European XFEL. The bytes are written out by hand from docs/protocols.md 7, not by an encoder of ours.

use konkordia_core::ledger::Malformed;
use konkordia_core::tile::{TileFormat, XfelDetector};
use konkordia_wire::formats::PacketFormat;
use konkordia_wire::xfel_train::{NoTrain, Train, TrainHeader};

/// The header of a train of two images, as it stands on the wire.
const HEADER: [u8; 64] = [
    0xCE, 0xFA, 0xEF, 0xBE, 0x46, 0x44, 0x54, 0x58, // begin
    0x02, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // version 2.1
    0x15, 0xCD, 0x5B, 0x07, 0x00, 0x00, 0x00, 0x00, // train 123456789
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, // data id
    0x0F, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xFF, 0xFF, // link id
    0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // two images
    0x10, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, // 16 and 8 bytes of specific data
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// A train of two images of 4 bytes: 64 + 8 + 4 x 32 + 16 + 8 + 32 bytes.
fn train() -> Vec<u8> {
    let mut t = HEADER.to_vec();
    t.extend([0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24]);
    let list = |t: &mut Vec<u8>, values: &[u8]| {
        t.extend(values);
        t.resize(t.len() + 32 - values.len(), 0xEE);
    };
    list(&mut t, &[0x05, 0x00, 0x01, 0x02]); // cells 5 and 513
    list(&mut t, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]); // pulses 1 and 2^63
    list(&mut t, &[0, 0, 7, 0]); // states 0 and 7
    list(&mut t, &[4, 0, 0, 0, 3, 0, 0, 1]); // lengths 4 and 16777219
    t.extend([0xDD; 16]);
    t.extend([0xBB; 8]);
    t.extend([0xCC; 16]);
    t.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    t.extend([0xCD, 0xAB, 0xAD, 0xDE, 0x46, 0x44, 0x54, 0x58]);
    t
}

#[test]
fn every_field_of_a_train_is_read_from_its_place() {
    let bytes = train();
    assert_eq!(bytes.len(), 256);
    let train = Train::new_checked(&bytes, 4).unwrap();
    let head = train.header();
    assert_eq!((head.version(), head.train_id(), head.data_id()), ((2, 1), 123_456_789, 0x0102_0304_0506_0708));
    assert_eq!((head.link_id(), head.image_count()), (0xFFFF_FFFF_0000_000F, 2));
    assert_eq!((head.detector_specific_bytes(), head.builder_specific_bytes()), (16, 8));
    assert_eq!((train.image(0), train.image(1)), (Some(&[0x11, 0x12, 0x13, 0x14][..]), Some(&[0x21, 0x22, 0x23, 0x24][..])));
    assert_eq!((train.cell_id(0), train.cell_id(1)), (Some(5), Some(513)));
    assert_eq!((train.pulse_id(0), train.pulse_id(1)), (Some(1), Some(1 << 63)));
    assert_eq!((train.status(0), train.status(1)), (Some(0), Some(7)));
    assert_eq!((train.length(0), train.length(1)), (Some(4), Some(0x0100_0003)));
    assert_eq!((train.detector_specific(), train.builder_specific()), (&[0xDD; 16][..], &[0xBB; 8][..]));
    assert_eq!((train.checksum(), train.train_status()), ([0xCC; 16], 9));
    assert_eq!((train.image(2), train.cell_id(2), train.pulse_id(2)), (None, None, None));
    assert_eq!((train.status(2), train.length(2)), (None, None));
}

#[test]
fn what_is_no_train_is_refused() {
    let good = train();
    let refused = |bytes: &[u8]| Train::new_checked(bytes, 4).err();
    assert_eq!(refused(&[]), Some(NoTrain::Begin));
    assert_eq!(refused(&good[..63]), Some(NoTrain::Begin));
    assert_eq!(refused(&good[..255]), Some(NoTrain::Length { bytes: 255, announced: 256 }));
    assert_eq!(refused(&[&good[..], &[0]].concat()), Some(NoTrain::Length { bytes: 257, announced: 256 }));
    assert_eq!(Train::new_checked(&good, 5).err(), Some(NoTrain::Length { bytes: 256, announced: 258 }));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(refused(&with(0, 0)), Some(NoTrain::Begin));
    assert_eq!(refused(&with(255, 0)), Some(NoTrain::End));
    // 2^63 images and more: the sums must not overflow.
    assert_eq!(refused(&with(47, 0x80)), Some(NoTrain::Length { bytes: 256, announced: usize::MAX }));
    assert_eq!(TrainHeader::new_checked(&HEADER[..63]).err(), Some(NoTrain::Begin));
}

/// LPD, one image: 64 + 131072 + 4 x 32 + 416 + 32 = 131712 bytes, which are 16 packets of 8184 and one of 768.
fn format() -> TileFormat {
    TileFormat::xfel_train(XfelDetector::Lpd, 1).unwrap()
}

fn datagram(data: usize, frame: [u8; 4], word: [u8; 4]) -> Vec<u8> {
    [&vec![0x5A; data][..], &frame, &word].concat()
}

#[test]
fn packets_are_read_from_the_end_of_the_datagram() {
    let (decoder, format) = (PacketFormat::of(&format()), format());
    let mut first = datagram(8184, [0x78, 0x56, 0x34, 0x12], [0, 0, 0, 0x80]);
    first[..64].copy_from_slice(&HEADER);
    let packet = decoder.decode(&first, &format).unwrap();
    assert_eq!((packet.frame_number(), packet.number(), packet.packet()), (0x1234_5678, 0, 0));
    assert_eq!((packet.payload().len(), packet.payload()[8183], packet.datagram().len()), (8184, 0x5A, 8192));
    assert!(packet.brings_header() && !packet.is_last());
    let header = decoder.header(&packet);
    let columns = decoder.description().columns;
    let named = |name: &str| header.value(columns.iter().find(|column| column.name == name).unwrap().value);
    assert_eq!((header.frame_number, named("train_id"), named("data_id")), (0x1234_5678, 123_456_789, 0x0102_0304_0506_0708));
    assert_eq!((named("link_id"), named("image_count")), (0xFFFF_FFFF_0000_000F, 2));

    let middle = datagram(8184, [1, 0, 0, 0], [15, 0, 0, 0]);
    let packet = decoder.decode(&middle, &format).unwrap();
    assert_eq!((packet.packet(), packet.brings_header(), packet.is_last()), (15, false, false));
    assert_eq!((decoder.header(&packet).frame_number, decoder.header(&packet).fields), (1, [0; 6]));

    let last = datagram(768, [1, 0, 0, 0], [16, 0, 0, 0x40]);
    let packet = decoder.decode(&last, &format).unwrap();
    assert_eq!((packet.packet(), packet.payload().len(), packet.is_last()), (16, 768, true));
}

#[test]
fn each_check_refuses_what_it_should() {
    let (decoder, format) = (PacketFormat::of(&format()), format());
    let refused = |data, word| decoder.decode(&datagram(data, [1, 0, 0, 0], word), &format).err();
    assert_eq!(decoder.decode(&[], &format).err(), Some(Malformed::Length));
    assert_eq!(refused(0, [0, 0, 0, 0x80]), Some(Malformed::Length));
    assert_eq!(refused(8183, [1, 0, 0, 0]), Some(Malformed::Length));
    assert_eq!(refused(8185, [1, 0, 0, 0]), Some(Malformed::Length));
    assert_eq!(refused(768, [15, 0, 0, 0]), Some(Malformed::Length), "only the last packet is short");
    assert_eq!(refused(8184, [16, 0, 0, 0x40]), Some(Malformed::Length), "the last packet is short");
    assert_eq!(refused(8184, [17, 0, 0, 0]), Some(Malformed::PacketNumber));
    assert_eq!(refused(8184, [0, 0, 0, 0x20]), Some(Malformed::PacketNumber), "bit 29 is part of the number");
    assert_eq!(refused(8184, [0, 0, 0, 0]), Some(Malformed::PacketNumber), "packet 0 is marked as the first");
    assert_eq!(refused(8184, [1, 0, 0, 0x80]), Some(Malformed::PacketNumber), "no other packet is");
    assert_eq!(refused(768, [16, 0, 0, 0]), Some(Malformed::Length), "a short packet is marked as the last");
    assert_eq!(refused(8184, [3, 0, 0, 0x40]), Some(Malformed::PacketNumber), "a shorter train ends here");
    assert_eq!(refused(100, [3, 0, 0, 0x40]), Some(Malformed::PacketNumber), "also one that ends with a short packet");
    let claims = decoder.claims(&datagram(8184, [9, 0, 0, 0], [17, 0, 0, 0x40])).unwrap();
    assert_eq!((claims.frame_number, claims.fields.packet_number), (9, 17));
    assert!(decoder.claims(&[0; 7]).is_none());
}

/// The shape that receivers are configured with is the one that the header of a train announces.
#[test]
fn the_configured_length_is_that_of_the_train() {
    for detector in XfelDetector::ALL {
        for images in 1..=31 {
            let Some(format) = TileFormat::xfel_train(detector, images) else { continue };
            let image_bytes = format.pixels() as usize * 2 / images as usize;
            let mut bytes = HEADER.to_vec();
            bytes[40..48].copy_from_slice(&u64::from(images).to_le_bytes());
            bytes[48..52].copy_from_slice(&detector.specific_bytes().to_le_bytes());
            bytes[52..56].fill(0);
            bytes.resize(format.tile_bytes() as usize, 0);
            let end = bytes.len() - 8;
            bytes[end..].copy_from_slice(&[0xCD, 0xAB, 0xAD, 0xDE, 0x46, 0x44, 0x54, 0x58]);
            let train = Train::new_checked(&bytes, image_bytes).unwrap();
            let first = train.image(0).unwrap().as_ptr() as usize - bytes.as_ptr() as usize;
            assert_eq!((train.images(), first), (images as usize, format.leading_bytes as usize), "{detector:?} {images}");
        }
    }
}
