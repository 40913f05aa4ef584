//! Programs made of geometries: every byte once, and the same images as the tiles of a run give.

use super::super::frames::{Bridge, FrameState, Missing, Options, Store};
use super::super::program::Program;
use super::super::shipped::{SHIPPED, ShippedProgram};
use super::*;
use konkordia_core::geometry::{DoublePixels, Orientation, Placement, Quarter};
use konkordia_sim::eiger::pack;
use konkordia_sim::packet::{self, PacketModel, Packetiser};
use konkordia_wire::sls_udp::Packet;

#[path = "../../../../tests/skip.rs"]
mod skip;

/// One EIGER module; row 0 of the data of both halves lies at its middle.
fn eiger_module(format: TileFormat, double_pixels: DoublePixels) -> ImageGeometry {
    let (rows, columns) = double_pixels.tile_size(&format, 0);
    let at = |row, column, orientation| Placement { row, column, orientation };
    let placements = vec![
        at(0, 0, Orientation::FLIPPED),
        at(0, columns, Orientation::FLIPPED),
        at(rows, 0, Orientation::UPRIGHT),
        at(rows, columns, Orientation::UPRIGHT),
    ];
    ImageGeometry::new(format, placements, None, double_pixels).unwrap()
}

fn jungfrau(interfaces: u32, double_pixels: DoublePixels) -> ImageGeometry {
    ImageGeometry::stacked_with(TileFormat::jungfrau(interfaces).unwrap(), interfaces, double_pixels).unwrap()
}

fn eiger(bits: u32) -> ImageGeometry {
    eiger_module(TileFormat::eiger(bits).unwrap(), DoublePixels::Keep)
}

fn streams(name: &str, first_port: u16) -> Streams<'_> {
    Streams { name, first_port, slots: 64, window_frames: 8 }
}

/// Geometry of a shipped program, and the first lines of its text.
fn shipped(name: &str) -> (ImageGeometry, String) {
    let (geometry, what) = match name {
        "jungfrau-1" => (jungfrau(1, DoublePixels::Keep), "A JUNGFRAU module with one UDP interface: 128 packets of 4 rows."),
        "jungfrau-2" => (
            jungfrau(2, DoublePixels::Keep),
            "A JUNGFRAU module with two UDP interfaces: 64 packets of 4 rows each, the second one below the first.",
        ),
        "eiger-4bit" => (eiger(4), "An EIGER module at 4 bit: 16 packets of 16 lines from each of its 4 ports."),
        "eiger-8bit" => (eiger(8), "An EIGER module at 8 bit: 32 packets of 8 lines from each of its 4 ports."),
        "eiger-16bit" => (eiger(16), "An EIGER module at 16 bit: 64 packets of 4 lines from each of its 4 ports."),
        "eiger-32bit" => (eiger(32), "An EIGER module at 32 bit: 128 packets of 2 lines from each of its 4 ports."),
        other => panic!("no geometry for {other}"),
    };
    let halves = if name.starts_with("eiger") { " The upper half lies upside down." } else { "" };
    (geometry, format!("{what}{halves}\nMade by Konkordia from the shape of the detector; docs/bridge.md explains the keys."))
}

/// `KONKORDIA_WRITE_PROGRAMS=1` writes them anew.
#[test]
fn the_shipped_programs_are_those_of_the_shapes() {
    for &ShippedProgram { name, text } in SHIPPED {
        let (geometry, about) = shipped(name);
        let port = if name.starts_with("eiger") { 50_020 } else { 50_010 };
        let made = of_geometry(&geometry, &streams(name, port)).unwrap();
        let written = made.to_toml(&about);
        if std::env::var_os("KONKORDIA_WRITE_PROGRAMS").is_some() {
            std::fs::write(format!("{}/programs/{name}.toml", env!("CARGO_MANIFEST_DIR")), &written).unwrap();
            continue;
        }
        assert_eq!(text, written, "{name}: run the test with KONKORDIA_WRITE_PROGRAMS=1 and look at the difference");
        assert_eq!(Program::from_toml(text).unwrap(), made, "{name}");
        Program::compile_text(text).unwrap();
    }
}

/// Addresses by hand, from the packet tables of slsDetectorPackage and the places of docs/protocols.md 1.5.
#[test]
fn addresses_are_those_that_one_writes_down_by_hand() {
    let table = |name| ShippedProgram::find(name).map(|p| Program::compile_text(p.text).unwrap()).unwrap();
    let segments = |name, tile, packet| table(name).segments(tile, packet).collect::<Vec<_>>();
    // 4 rows of 1024 pixels of 2 bytes adjoin: one address, 8192 bytes from packet to packet.
    assert_eq!(segments("jungfrau-1", 0, 127), [(48, 127 * 8192, 8192)]);
    assert_eq!(segments("jungfrau-2", 1, 0), [(48, 64 * 8192, 8192)]);
    // Upper left port at 16 bit: packet 0 has the 4 lowest rows of the half, 255 to 252; a row of the module has 2048
    // bytes.
    let rows: [usize; 4] = [255, 254, 253, 252];
    let expected: Vec<_> = rows.iter().enumerate().map(|(n, row)| (48 + 1024 * n, row * 2048, 1024)).collect();
    assert_eq!(segments("eiger-16bit", 0, 0), expected);
    // Lower right port at 32 bit: packet 127 has rows 510 and 511.
    assert_eq!(segments("eiger-32bit", 3, 127), [(48, 510 * 4096 + 2048, 2048), (48 + 2048, 511 * 4096 + 2048, 2048)]);
    let lines = [("eiger-4bit", 16, 256), ("eiger-8bit", 8, 512), ("eiger-16bit", 4, 1024), ("eiger-32bit", 2, 2048)];
    for (name, lines, bytes) in lines {
        let found = segments(name, 1, 5);
        assert!(found.len() == lines && found.iter().all(|segment| segment.2 == bytes), "{name}: {found:?}");
    }
}

/// All geometries that are tried.
fn geometries() -> Vec<(String, ImageGeometry)> {
    let mut all: Vec<(String, ImageGeometry)> =
        SHIPPED.iter().map(|program| (program.name.to_string(), shipped(program.name).0)).collect();
    for interfaces in [1, 2] {
        all.push((format!("jungfrau {interfaces} gaps"), jungfrau(interfaces, DoublePixels::Gap)));
        let part = TileFormat::jungfrau(interfaces).unwrap().with_rows(64).unwrap();
        all.push((format!("jungfrau {interfaces} 64 rows"), ImageGeometry::stacked(part, 2 * interfaces).unwrap()));
    }
    for bits in [4, 8, 12, 16, 32] {
        all.push((format!("eiger {bits} 1 GbE"), eiger_module(TileFormat::eiger_1gbe(bits).unwrap(), DoublePixels::Keep)));
        if bits != 4 {
            let format = TileFormat::eiger(bits).unwrap();
            all.push((format!("eiger {bits} gaps"), eiger_module(format, DoublePixels::Gap)));
        }
    }
    all.push(("eiger 12".into(), eiger(12)));
    let half = TileFormat::eiger(16).unwrap().with_rows(128).unwrap();
    all.push(("eiger 16 half the rows".into(), eiger_module(half, DoublePixels::Keep)));
    all.push(("eiger 9M".into(), nine_m(16)));
    all
}

/// 3 x 6 modules with the gaps between them.
fn nine_m(bits: u32) -> ImageGeometry {
    let (mut placements, format) = (Vec::new(), TileFormat::eiger(bits).unwrap());
    for module in 0..18 {
        let (row, column) = (module % 6 * 550, module / 6 * 1038);
        for port in 0..4 {
            let orientation = if port < 2 { Orientation::FLIPPED } else { Orientation::UPRIGHT };
            placements.push(Placement { row: row + port / 2 * 256, column: column + port % 2 * 512, orientation });
        }
    }
    ImageGeometry::new(format, placements, None, DoublePixels::Keep).unwrap()
}

#[test]
fn every_byte_is_written_exactly_once_except_in_gaps() {
    for (name, geometry) in geometries() {
        let table = of_geometry(&geometry, &streams(&name, 50_020)).unwrap().compile().unwrap();
        let bits = geometry.format().bits as usize;
        let mut expected = vec![0u8; table.slot_bytes() as usize];
        geometry.for_each_run(|run| {
            expected[run.output * bits / 8..(run.output + run.length as usize) * bits / 8].iter_mut().for_each(|n| *n += 1);
        });
        let mut written = vec![0u8; expected.len()];
        let mut read = 0;
        for tile in 0..table.tiles() {
            for packet in 0..table.packets(tile) {
                let mut sources = vec![0u8; geometry.format().payload_bytes as usize];
                for (source, destination, bytes) in table.segments(tile, packet) {
                    written[destination..destination + bytes].iter_mut().for_each(|n| *n += 1);
                    sources[source - HEADER_BYTES..][..bytes].iter_mut().for_each(|n| *n += 1);
                }
                assert!(sources.iter().all(|n| *n == 1), "{name}: each byte of the payload has one place");
                read += sources.len();
            }
        }
        assert!(written == expected && written.iter().all(|n| *n <= 1), "{name}");
        let (coverage, gaps) = (table.coverage(), written.iter().filter(|n| **n == 0).count());
        assert_eq!((coverage.written_bytes, coverage.gap_bytes, coverage.unused_bytes), (read as u64, gaps as u64, 0), "{name}");
        assert_eq!(gaps > 0, name.contains("gaps") || name.contains("9M"), "{name}");
    }
}

#[test]
fn what_no_copy_can_do_is_refused() {
    let of = |geometry: &ImageGeometry| of_geometry(geometry, &streams("x", 50_020)).unwrap_err();
    let why = of(&eiger_module(TileFormat::eiger(4).unwrap(), DoublePixels::Gap));
    assert!(why.contains("32 places") && why.contains("keep double pixels"), "{why}");
    let turned = Placement { row: 0, column: 0, orientation: Orientation { flip_rows: false, rotate: Quarter::Deg90 } };
    let format = TileFormat::eiger(16).unwrap();
    let why = of(&ImageGeometry::new(format, vec![turned], None, DoublePixels::Keep).unwrap());
    assert!(why.contains("turned"), "{why}");
    let why = of(&ImageGeometry::stacked(TileFormat::excalibur(), 1).unwrap());
    assert!(why.contains("excalibur"), "{why}");
    let why = of_geometry(&eiger(16), &streams("x", 65_533)).unwrap_err();
    assert!(why.contains("lower port"), "{why}");
}

/// Pixels of a payload, unpacked one by one.
fn unpacked(bytes: &[u8], bits: u32) -> Vec<u32> {
    let bit = |n: usize| u32::from(bytes[n / 8] >> (n % 8) & 1);
    let pixels = bytes.len() * 8 / bits as usize;
    let value = |pixel: usize| match bits {
        4 if pixel.is_multiple_of(2) => u32::from(bytes[pixel / 2] >> 4),
        4 => u32::from(bytes[pixel / 2] & 15),
        _ => (0..bits as usize).map(|n| bit(pixel * bits as usize + n) << n).sum(),
    };
    (0..pixels).map(value).collect()
}

/// What the wire decoder and the geometry of a run make of datagrams: packed pixels of the image, gaps 0.
fn assembled(geometry: &ImageGeometry, datagrams: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let format = *geometry.format();
    let mut tiles = vec![vec![0u8; format.tile_bytes() as usize]; geometry.placements().len()];
    for (tile, datagram) in datagrams {
        let packet = Packet::new_checked(datagram, &format.of_tile(*tile)).unwrap();
        let bytes = format.bytes_of(packet.packet().into());
        tiles[*tile][bytes.start as usize..bytes.end as usize].copy_from_slice(packet.payload());
    }
    let planes: Vec<Vec<u32>> = tiles.iter().map(|tile| unpacked(tile, format.bits)).collect();
    let planes: Vec<&[u32]> = planes.iter().map(Vec::as_slice).collect();
    pack(&geometry.arrange(&planes, 0), format.bits as u8)
}

/// Packets of the simulated detector with random pixels, in a random order.
fn sent(geometry: &ImageGeometry, image: u64, seed: u64) -> Vec<(usize, Vec<u8>)> {
    let format = geometry.format();
    let tiles = geometry.placements().len();
    let kind = match format.kind {
        DetectorKind::Jungfrau => packet::DetectorKind::Jungfrau { interfaces: format.tiles_per_module as u8 },
        _ => packet::DetectorKind::Eiger { bits: format.bits as u8 },
    };
    let mut model = PacketModel::new(kind, tiles / format.tiles_per_module as usize);
    model.ten_giga = !format.is_one_gigabit();
    let rows = if format.kind == DetectorKind::Eiger { format.rows } else { format.module_rows() };
    model.rows_read = format.is_partial().then_some(rows as u16);
    let packetiser = Packetiser::new(&model).unwrap();
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut all = Vec::new();
    for tile in 0..tiles {
        let bytes: Vec<u8> = (0..packetiser.layout().tile_bytes).map(|_| random() as u8).collect();
        for packet in 0..format.packets() {
            let mut datagram = vec![0; packetiser.layout().datagram_bytes()];
            packetiser.write_packet(tile, 1 + image, packet, &bytes, &mut datagram);
            all.push((tile, datagram));
        }
    }
    for at in (1..all.len()).rev() {
        all.swap(at, random() as usize % (at + 1));
    }
    all
}

#[test]
fn images_placed_by_program_are_those_of_decoder_and_geometry() {
    for (name, geometry) in geometries() {
        let mut streams = streams(&name, 50_020);
        streams.slots = 2;
        streams.window_frames = 2;
        let table = of_geometry(&geometry, &streams).unwrap().compile().unwrap();
        let mut bytes = vec![0; table.store_bytes() as usize];
        let mut store = Store::new(&table, &mut bytes).unwrap();
        let mut bridge = Bridge::new(table, Options { first_frame: Some(1), ..Options::default() });
        for image in 0..3 {
            let datagrams = sent(&geometry, image, 7 + image);
            for (tile, datagram) in &datagrams {
                bridge.on_packet(50_020 + *tile as u16, datagram, &mut store);
            }
            let closed = bridge.take().unwrap();
            assert_eq!((closed.image, closed.frame, closed.state), (image, image + 1, FrameState::Complete), "{name}");
            let placed = store.slot(bridge.table(), closed.slot);
            assert!(placed == assembled(&geometry, &datagrams), "{name}, image {image}");
            bridge.release(image);
        }
        assert_eq!((bridge.account().complete, bridge.account().frames()), (3, 3), "{name}");
    }
}

/// The capture of an EIGER of PSI (docs/protocols.md 1.6): one module, 32 bit, 5 frames.
#[test]
fn the_capture_of_an_eiger_is_placed_as_the_assembler_places_it() {
    let Some(folder) = skip::data("eiger-udp") else { return };
    let geometry = eiger(32);
    let table = ShippedProgram::find("eiger-32bit").map(|p| Program::compile_text(p.text).unwrap()).unwrap();
    let mut bytes = vec![0; table.store_bytes() as usize];
    let mut store = Store::new(&table, &mut bytes).unwrap();
    let options = Options { missing: Missing::Discard, interrupt_frames: 5, first_frame: None };
    let mut bridge = Bridge::new(table, options);
    let files: Vec<Vec<u8>> = (0..4).map(|n| std::fs::read(folder.join(format!("{}.dat", 50_020 + n))).unwrap()).collect();
    let records: Vec<Vec<&[u8]>> = files.iter().map(|file| file.chunks(4152).map(|record| &record[8..]).collect()).collect();
    let mut interrupts = Vec::new();
    for n in 0..640 {
        for (tile, of_tile) in records.iter().enumerate() {
            interrupts.extend(bridge.on_packet(50_020 + tile as u16, of_tile[n], &mut store).interrupt);
        }
    }
    assert_eq!(interrupts.iter().map(|i| i.frames).collect::<Vec<_>>(), [5]);
    for image in 0..5 {
        let closed = bridge.take().unwrap();
        assert_eq!((closed.frame, closed.state), (29_512 + image, FrameState::Complete));
        let of_image = 128 * image as usize..128 * (image as usize + 1);
        let datagrams: Vec<(usize, Vec<u8>)> =
            (0..4).flat_map(|tile| records[tile][of_image.clone()].iter().map(move |d| (tile, d.to_vec()))).collect();
        let placed = store.slot(bridge.table(), closed.slot);
        assert!(placed == assembled(&geometry, &datagrams), "image {image}");
        assert!(placed.iter().any(|byte| *byte != 0));
        assert_eq!(bridge.mask_bytes(&closed, 3)[..17], [[0xFF; 16].as_slice(), &[0]].concat()[..]);
    }
    assert_eq!((bridge.account().received(), bridge.account().complete), (2560, 5));
}
