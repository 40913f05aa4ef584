//! Any bytes as a train of European XFEL and as one of its packets: they are refused, or all getters stay inside of the
//! bytes and inside of the tile.
#![no_main]

use konkordia_core::tile::{TileFormat, XfelDetector};
use konkordia_wire::formats::PacketFormat;
use konkordia_wire::xfel_train::{HEADER_BYTES, Train};
use libfuzzer_sys::fuzz_target;

fn check_train(bytes: &[u8], image_bytes: usize) {
    let Ok(train) = Train::new_checked(bytes, image_bytes) else { return };
    let images = train.images();
    assert!(images.saturating_mul(image_bytes + 16) <= bytes.len());
    for n in [0, images / 2, images.saturating_sub(1), images] {
        let is_one = n < images;
        assert_eq!(train.image(n).map(<[u8]>::len), is_one.then_some(image_bytes));
        let lists = (train.cell_id(n).is_some(), train.pulse_id(n).is_some(), train.status(n).is_some(), train.length(n).is_some());
        assert_eq!(lists, (is_one, is_one, is_one, is_one));
    }
    let head = train.header();
    assert_eq!(train.detector_specific().len(), head.detector_specific_bytes() as usize);
    assert_eq!(train.builder_specific().len(), head.builder_specific_bytes() as usize);
    let _ = (head.version(), head.train_id(), head.data_id(), head.link_id(), train.checksum(), train.train_status());
}

/// The data, and the end of the datagram, cut or extended to the length of packet `of`.
fn of_length(data: &[u8], format: &TileFormat, of: u32) -> Vec<u8> {
    let (data, end) = data.split_at(data.len().saturating_sub(8));
    let mut datagram = data.to_vec();
    datagram.resize(format.payload_bytes_of(of) as usize, 0);
    datagram.extend(end);
    datagram
}

fuzz_target!(|data: &[u8]| {
    let [choice, images, rest @ ..] = data else { return };
    check_train(rest, usize::from(*images));
    let detector = XfelDetector::ALL[usize::from(*choice) % XfelDetector::ALL.len()];
    let Some(format) = TileFormat::xfel_train(detector, 1 + u32::from(*images) % 31) else { return };
    let decoder = PacketFormat::of(&format);
    let last = format.packets() - 1;
    for datagram in [rest, &of_length(rest, &format, 0), &of_length(rest, &format, last)] {
        assert_eq!(decoder.claims(datagram).is_some(), datagram.len() >= 8);
        let Ok(packet) = decoder.decode(datagram, &format) else { continue };
        assert!(u32::from(packet.packet()) <= last);
        assert_eq!(u32::from(packet.packet()) == last, packet.is_last());
        assert_eq!(packet.payload().len(), format.payload_bytes_of(packet.packet().into()) as usize);
        let end = u32::from(packet.packet()) as usize * format.payload_bytes as usize + packet.payload().len();
        assert!(end <= format.tile_bytes() as usize);
        let header = decoder.header(&packet);
        assert_eq!(header.frame_number, packet.frame_number());
        assert!(packet.brings_header() || header.fields == [0; 6]);
        assert!(!packet.brings_header() || packet.payload().len() >= HEADER_BYTES);
    }
});
