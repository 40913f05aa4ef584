//! Any bytes as the header of a raw file, as a master and as file names: they are refused, or every number is within
//! its bounds.
#![no_main]

use konkordia_core::tile::DetectorKind;
use konkordia_wire::sls_file::{DataFileName, FRAME_NUMBER_END, PORTS_MAX, RECORD_HEADER_BYTES, RecordHeader, parse_master_name, plain_header};
use konkordia_wire::sls_master::Master;
use konkordia_wire::sls_udp::HEADER_BYTES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for kind in [DetectorKind::Jungfrau, DetectorKind::Eiger] {
        // As they are, and stretched to the lengths that headers have, so that the later checks are reached.
        for length in [data.len(), HEADER_BYTES, RECORD_HEADER_BYTES] {
            let mut header = data.to_vec();
            header.resize(length, 0);
            let Ok(record) = RecordHeader::new_checked(&header, kind) else { continue };
            assert!(record.frame_header().frame_number < FRAME_NUMBER_END);
            for packets in [0, 1, 64, 128, 512, u32::MAX] {
                let bitmap = record.bitmap(packets);
                assert_eq!(bitmap.is_some(), length == RECORD_HEADER_BYTES);
                assert!(bitmap.unwrap_or_default().count() <= packets.min(512));
            }
        }
    }
    if let Some(header) = data.first_chunk().and_then(plain_header) {
        assert!(header.frame_number < FRAME_NUMBER_END);
    }
    if let Ok(master) = Master::parse(data) {
        let ports = master.ports.0.checked_mul(master.ports.1).expect("both are small");
        assert!((1..=PORTS_MAX).contains(&ports) && ports % master.interfaces == 0);
        assert!(master.format.tile_bytes() > 0 && master.sub_files() != Some(0));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Some(name) = DataFileName::parse(text, "raw") {
            assert!(name.port < PORTS_MAX && text.starts_with(&name.stem) && text.ends_with(".raw"));
        }
        parse_master_name(text, "json");
    }
});
