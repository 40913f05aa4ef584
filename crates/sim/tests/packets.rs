//! The packetiser against docs/protocols.md and against a real capture; EIGER packing.

#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_sim::eiger::{EigerModel, SyntheticEiger, pack};
use konkordia_sim::packet::{DetectorKind, HEADER_BYTES, PacketModel, Packetiser};
use konkordia_sim::scene::{MODULE_COLUMNS, SceneModel};
use std::path::Path;

fn packetiser(kind: DetectorKind, modules: usize, modules_down: usize) -> Packetiser {
    let mut model = PacketModel::new(kind, modules);
    model.modules_down = modules_down;
    Packetiser::new(&model).expect("the model is valid")
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[test]
fn layouts_are_those_of_the_table() {
    let layout = |kind| {
        let l = packetiser(kind, 2, 2).layout();
        (l.streams, l.rows, l.columns, l.packets_per_tile, l.payload_bytes, l.tile_bytes, l.datagram_bytes())
    };
    assert_eq!(layout(DetectorKind::Jungfrau { interfaces: 1 }), (2, 512, 1024, 128, 8192, 1 << 20, 8240));
    assert_eq!(layout(DetectorKind::Jungfrau { interfaces: 2 }), (4, 256, 1024, 64, 8192, 1 << 19, 8240));
    for (bits, packets, bytes) in [(4, 16, 65_536), (8, 32, 131_072), (12, 48, 196_608), (16, 64, 262_144), (32, 128, 524_288)] {
        assert_eq!(layout(DetectorKind::Eiger { bits }), (8, 256, 512, packets, 4096, bytes, 4144));
    }
    let refused = |kind, modules| Packetiser::new(&PacketModel::new(kind, modules)).expect_err("refused").to_string();
    assert!(refused(DetectorKind::Eiger { bits: 10 }, 1).contains("no 10-bit mode"));
    assert!(refused(DetectorKind::Jungfrau { interfaces: 3 }, 1).contains("not 3"));
    assert!(refused(DetectorKind::Eiger { bits: 8 }, 0).contains("0 modules"));
}

#[test]
fn jungfrau_headers_by_offset() {
    let mut model = PacketModel::new(DetectorKind::Jungfrau { interfaces: 2 }, 8);
    (model.modules_down, model.period_ns, model.exposure_ns, model.start_ticks) = (4, 454_545, 450_000, 1000);
    let packetiser = Packetiser::new(&model).expect("valid");
    // Module 6 stands in row 2 of column 1; its second interface is stream 13.
    let header = packetiser.write_header(13, 101, 63);
    let at = |offset: usize, length: usize| number(&header[offset..offset + length]);
    assert_eq!((at(0, 8), at(8, 4), at(12, 4), at(16, 8)), (101, 4500, 63, 101));
    assert_eq!(at(24, 8), 1000 + 100 * 454_545 / 100);
    assert_eq!((at(32, 2), at(34, 2), at(36, 2), at(38, 2)), (6, 5, 1, 0));
    assert_eq!((at(40, 4) >> 5 & 7, at(40, 4) & 0x17, at(44, 2), at(46, 1), at(47, 1)), (1, 0, 0, 3, 2));
    assert_eq!((packetiser.port_position(12), packetiser.port_position(13)), ((4, 1), (5, 1)));
    assert_eq!(packetiser.frame_number(100), 101);
}

#[test]
fn packets_cut_the_tile_in_order_and_patching_equals_writing() {
    for kind in [DetectorKind::Jungfrau { interfaces: 1 }, DetectorKind::Eiger { bits: 12 }, DetectorKind::Eiger { bits: 32 }] {
        let packetiser = packetiser(kind, 2, 1);
        let layout = packetiser.layout();
        let tile: Vec<u8> = (0..layout.tile_bytes).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut joined = Vec::new();
        let mut out = vec![0; 9000];
        for packet in 0..layout.packets_per_tile {
            let length = packetiser.write_packet(1, 7, packet, &tile, &mut out);
            assert_eq!(length, layout.datagram_bytes());
            assert_eq!(out[..HEADER_BYTES], packetiser.write_header(1, 7, packet));
            joined.extend_from_slice(&out[HEADER_BYTES..length]);
            packetiser.patch_header(&mut out, 12_345);
            assert_eq!(out[..HEADER_BYTES], packetiser.write_header(1, 12_345, packet));
        }
        assert_eq!(joined, tile);
    }
}

/// The records of one file of the capture: datagrams of 4144 bytes.
fn capture(folder: &Path, port: usize) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(folder.join(format!("{}.dat", 50020 + port))).unwrap();
    bytes.chunks_exact(4152).map(|record| record[8..].to_vec()).collect()
}

#[test]
fn eiger_headers_equal_a_real_capture() {
    let Some(folder) = skip::data("eiger-udp") else { return };
    for port in 0..4 {
        let records = capture(&folder, port);
        assert_eq!(records.len(), 640);
        let mut model = PacketModel::new(DetectorKind::Eiger { bits: 32 }, 1);
        model.first_frame_number = number(&records[0][0..8]);
        model.subframes = number(&records[0][8..12]) as u32;
        let packetiser = Packetiser::new(&model).expect("valid");
        assert_eq!(packetiser.layout().datagram_bytes(), records[0].len());
        for (index, record) in records.iter().enumerate() {
            let (image, packet) = (index as u64 / 128, index as u32 % 128);
            let mut header = packetiser.write_header(port, packetiser.frame_number(image), packet);
            // The boards' clocks are free-running; everything else must agree byte for byte.
            header[24..32].copy_from_slice(&record[24..32]);
            assert_eq!(header, record[..HEADER_BYTES], "port {port}, record {index}");
            if packet == 127 {
                let tile: Vec<u8> = records[index - 127..=index].iter().flat_map(|r| r[HEADER_BYTES..].to_vec()).collect();
                let mut out = vec![0; 4144];
                packetiser.write_packet(port, packetiser.frame_number(image), 77, &tile, &mut out);
                assert_eq!(out[HEADER_BYTES..], records[index - 127 + 77][HEADER_BYTES..]);
            }
        }
    }
}

#[test]
fn eiger_packing_by_hand() {
    assert_eq!(pack(&[0xA, 0xB, 1, 2], 4), [0xAB, 0x12]);
    assert_eq!(pack(&[0xABC, 0x123], 12), [0xBC, 0x3A, 0x12]);
    assert_eq!(pack(&[0x1FF], 8), [0xFF]);
    assert_eq!(pack(&[0x1234], 16), [0x34, 0x12]);
    assert_eq!(pack(&[0x1234_5678], 32), [0x78, 0x56, 0x34, 0x12]);
}

#[test]
fn eiger_ports_hold_their_quarter_and_clip_at_the_depth() {
    for bits in [4u8, 8, 12, 16, 32] {
        let mut scene = SceneModel::for_modules(2);
        scene.background = 6.0;
        let detector = SyntheticEiger::new(&EigerModel { scene, bits }).expect("valid");
        let image = detector.image(1);
        assert_eq!(detector.count_max(), (2u64.pow(bits.into()) - 1) as u32);
        assert_eq!(image.ports.len(), 8);
        let clipped = image.photons.iter().filter(|n| **n > detector.count_max()).count();
        assert!(bits > 8 || clipped > 0, "{bits} bits clip nothing");
        let photons = |module: usize, row: usize, column: usize| {
            image.photons[(module * 512 + row) * MODULE_COLUMNS + column].min(detector.count_max())
        };
        for (port, counts) in image.ports.iter().enumerate() {
            let (module, upper, right) = (port / 4, port % 4 < 2, port % 2);
            for (i, &count) in counts.iter().enumerate() {
                let (row, column) = (i / 512, i % 512 + 512 * right);
                // Data row 0 lies at the middle of the module.
                let module_row = if upper { 255 - row } else { 256 + row };
                assert_eq!(count, photons(module, module_row, column));
            }
            let layout = packetiser(DetectorKind::Eiger { bits }, 2, 2).layout();
            assert_eq!(detector.port_bytes(counts).len(), layout.tile_bytes);
        }
        assert_eq!(image, detector.image(1));
    }
}
