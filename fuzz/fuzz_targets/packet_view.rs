//! Any bytes against every packet format: a view is refused, or all its getters stay inside the datagram and the tile.
#![no_main]

use konkordia_core::tile::TileFormat;
use konkordia_wire::sls_udp::{HEADER_BYTES, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [choice, rows, tile, rest @ ..] = data else { return };
    let bits = |n: u8| [4, 8, 12, 16, 32][usize::from(n)];
    let whole = match choice % 12 {
        0 => TileFormat::jungfrau(1),
        1 => TileFormat::jungfrau(2),
        n if n < 7 => TileFormat::eiger(bits(n - 2)),
        n => TileFormat::eiger_1gbe(bits(n - 7)),
    }
    .expect("all of these exist");
    // Partial readout where there is one of so many rows.
    let format = whole.with_rows(8 * u32::from(*rows)).unwrap_or(whole).of_tile(usize::from(*tile));
    // The bytes as they are, and cut or extended to the length of the format, so that the later checks are reached.
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
