//! Any bytes against every packet format: a view is refused, or all its getters stay inside the datagram and the tile.
#![no_main]

use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_udp::{HEADER_BYTES, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let format = match choice % 7 {
        0 => TileFormat::jungfrau(1),
        1 => TileFormat::jungfrau(2),
        n => TileFormat::eiger([4, 8, 12, 16, 32][usize::from(n) - 2]),
    }
    .expect("all of these exist");
    // Bytes as they are, and also stretched to the one length that the format takes, so that the later checks are reached.
    let mut whole = rest.to_vec();
    whole.resize(HEADER_BYTES + format.payload_bytes as usize, 0);
    for datagram in [rest, &whole] {
        if let Ok(packet) = Packet::new_checked(datagram, &format) {
            assert!(u32::from(packet.packet()) < format.packets());
            assert_eq!(packet.payload().len(), format.payload_bytes as usize);
            assert_eq!(packet.frame_number(), packet.frame_header().frame_number);
            let end = (usize::from(packet.packet()) + 1) * packet.payload().len();
            assert!(end <= format.tile_bytes() as usize);
        }
    }
});
