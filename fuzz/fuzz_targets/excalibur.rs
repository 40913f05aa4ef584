//! Any bytes as a packet of an EXCALIBUR: they are refused, or the packet brings its own bytes of the tile and no
//! others.
#![no_main]

use konkordia_core::tile::TileFormat;
use konkordia_wire::formats::PacketFormat;
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 8;

/// The input, cut or extended to `data_bytes` of data.
fn of_length(input: &[u8], data_bytes: usize) -> Vec<u8> {
    let mut datagram = input.to_vec();
    datagram.resize(HEADER_BYTES + data_bytes, 0x11);
    datagram
}

fuzz_target!(|data: &[u8]| {
    let (decoder, format) = (PacketFormat::Excalibur, TileFormat::excalibur());
    for datagram in [data, &of_length(data, 8000), &of_length(data, 4296), &of_length(data, 4288)] {
        assert_eq!(decoder.claims(datagram).is_some(), datagram.len() >= HEADER_BYTES);
        let Ok(packet) = decoder.decode(datagram, &format) else { continue };
        let number = u32::from(packet.packet());
        assert!(number < format.packets() && number == packet.number());
        assert_eq!(number + 1 == format.packets(), packet.is_last());
        let place = format.bytes_of(number);
        assert!(place.end <= format.tile_bytes());
        assert_eq!(packet.payload().len(), place.len());
        let trailer_bytes = datagram.len() - HEADER_BYTES - place.len();
        assert_eq!(trailer_bytes, if packet.brings_header() { 8 } else { 0 });
        assert_eq!(number % 66 == 65, packet.brings_header());
        assert_eq!(decoder.claims(datagram).map(|claims| claims.frame_number), Some(packet.frame_number()));
        let header = decoder.header(&packet);
        assert_eq!(header.frame_number, packet.frame_number());
        assert!(packet.brings_header() || header.fields == [0; 6]);
    }
});
