use super::*;
use crate::bridge::ShippedProgram;
use std::collections::BTreeMap;

const FRONT: Front =
    Front { address: IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3)), port: None, high_gain: false, shifts: [25, 19, 17] };

fn program(name: &str) -> Program {
    Program::from_toml(ShippedProgram::find(name).unwrap().text).unwrap()
}

fn logic(program: &Program, front: &Front) -> Result<Logic, String> {
    Logic::new(program, &program.compile().unwrap(), front)
}

/// A register by its name, of the bytes that a card reads.
fn register(logic: &Logic, name: &str) -> u64 {
    let at = REGISTERS.iter().position(|known| *known == name).unwrap();
    u64::from_le_bytes(logic.registers()[8 * at..8 * at + 8].try_into().unwrap())
}

/// The tables as the logic holds them: by table and row, of the bytes that a card reads.
fn tables(logic: &Logic) -> BTreeMap<(u32, u32), u64> {
    let bytes = logic.table();
    let rows = bytes.chunks_exact(ROW_BYTES).map(|row| {
        let word = |at: usize| u32::from_le_bytes(row[at..at + 4].try_into().unwrap());
        ((word(0), word(4)), u64::from_le_bytes(row[8..].try_into().unwrap()))
    });
    let found: BTreeMap<_, _> = rows.collect();
    assert_eq!(found.len(), logic.rows.len(), "no row is written twice");
    found
}

/// Where the logic writes a packet, as place.sv reads its tables: address and bytes of each segment, in the order of
/// the payload.
fn written(tables: &BTreeMap<(u32, u32), u64>, tile: u32, packet: u32) -> Vec<(usize, usize)> {
    let place = (tables[&(4, tile)] >> 16 & 3) as u32;
    let origin = tables[&(2, place << 9 | packet)];
    let pattern = (origin >> 32) as u32;
    let start = (tables[&(5, tile)] as u32).wrapping_add(origin as u32);
    let segments = (0..16).map_while(|n| tables.get(&(3, place << 6 | pattern << 4 | n)));
    segments.map(|segment| (start.wrapping_add(*segment as u32) as usize, (segment >> 32) as usize * 64)).collect()
}

#[test]
fn the_tables_have_the_addresses_of_the_program() {
    for name in ["jungfrau-1", "jungfrau-2", "eiger-16bit"] {
        let program = program(name);
        let table = program.compile().unwrap();
        let logic = Logic::new(&program, &table, &FRONT).unwrap();
        let (tables, mut owners) = (tables(&logic), vec![None; program.slot_bytes as usize / 64]);
        for tile in 0..table.tiles() {
            for packet in 0..table.packets(tile) {
                let found = written(&tables, tile as u32, packet.into());
                let expected: Vec<_> = table.segments(tile, packet).map(|(_, first, bytes)| (first, bytes)).collect();
                assert_eq!(found, expected, "{name}: packet {packet} of tile {tile}");
                for (first, bytes) in expected {
                    owners[first / 64..(first + bytes) / 64].fill(Some((tile as u64) << 9 | u64::from(packet)));
                }
            }
        }
        let unit = register(&logic, "unit_log2");
        let found: Vec<_> = (0..owners.len()).map(|beat| tables.get(&(6, (beat >> unit) as u32)).copied()).collect();
        assert_eq!(found, owners, "{name}: owners");
    }
}

#[test]
fn a_jungfrau_by_hand() {
    let logic = logic(&program("jungfrau-2"), &FRONT).unwrap();
    assert_eq!((logic.tiles, logic.tile_packets, logic.slot_bytes), (2, 64, 1 << 20));
    // Required: byte 46 is 3 and byte 47 is 2.
    let tables = tables(&logic);
    assert_eq!((tables[&(0, 5)], tables[&(1, 5)]), (0xFFFF << 48, 0x0203 << 48));
    assert!((0..8).filter(|n| *n != 5).all(|n| tables[&(0, n)] == 0));
    // Tiles: valid, any module, streams 0 and 1 of the same place.
    assert_eq!((tables[&(4, 0)], tables[&(4, 1)]), (1 << 24 | 1 << 22, 1 << 24 | 1 << 22 | 1 << 18));
    assert_eq!((tables[&(5, 1)], tables[&(2, 63)], tables[&(3, 0)]), (524_288, 63 * 8192, 128 << 32));
    assert_eq!(logic.rows.len(), 16 + 64 + 1 + 4 + 128);
    let expected = [
        ("frame_offset", 0),
        ("frame_mask", u64::MAX),
        ("frame_bits", u64::MAX),
        ("packet_offset", 12),
        ("packet_mask", 0xFFFF_FFFF),
        ("packet_shift", 0),
        ("module_mask", 0),
        ("first_packet", 0),
        ("packets", 64),
        ("frame_packets", 128),
        ("datagram_bytes", 8240),
        ("header_sixteenths", 3),
        ("tiles", 2),
        ("slot_bytes", 1 << 20),
        ("unit_log2", 7),
        ("ip_version", 4),
        ("address_low", 0x0A01_0203),
        ("address_high", 0),
        ("port_first", 50010),
        ("streams", 2),
        ("high_gain", 0),
        ("shifts", 25 | 19 << 6 | 17 << 12),
    ];
    for (name, value) in expected {
        assert_eq!(register(&logic, name), value, "{name}");
    }
}

/// Numbers of fewer than 8 bytes, highest byte first, lie in the upper bytes of the 8 that the logic reads.
#[test]
fn keys_of_either_order() {
    let mut program = program("jungfrau-1");
    let header = program.headers.get_mut("sls").unwrap();
    header.packet = Key { offset: 12, bytes: 2, endian: Endian::Big, mask: Some(0xFFF0), shift: 4 };
    header.require[0] = crate::bridge::Require { offset: 20, bytes: 2, endian: Endian::Big, mask: Some(0x0FFF), value: 0x0123 };
    let logic = logic(&program, &FRONT).unwrap();
    let found = ["packet_offset", "packet_big", "packet_mask", "packet_shift"].map(|name| register(&logic, name));
    assert_eq!(found, [12, 1, 0xFFF0 << 48, 52]);
    let tables = tables(&logic);
    assert_eq!((tables[&(0, 2)], tables[&(1, 2)]), (0xFF0F << 32, 0x2301 << 32));
}

#[test]
fn the_front_end() {
    let front = Front { address: "fd00::1:2".parse().unwrap(), port: Some(4000), high_gain: true, ..FRONT };
    let v6 = logic(&program("jungfrau-2"), &front).unwrap();
    let found =
        ["ip_version", "address_low", "address_high", "port_first", "streams", "high_gain"].map(|name| register(&v6, name));
    assert_eq!(found, [6, 0x0001_0002, 0xFD00 << 48, 4000, 2, 1]);
    // Streams count from the first port, whatever it is.
    assert_eq!(tables(&v6)[&(4, 1)] >> 18 & 15, 1);
    let why = logic(&program("jungfrau-2"), &Front { port: Some(65535), ..FRONT }).unwrap_err();
    assert!(why.contains("above 65535"), "{why}");
}

#[test]
fn what_the_logic_has_no_room_for() {
    let says = |part: &str, change: &dyn Fn(&mut Program)| {
        let mut program = program("jungfrau-2");
        change(&mut program);
        let why = logic(&program, &FRONT).expect_err(part);
        assert!(why.contains(part), "{why}");
    };
    let header = |program: &mut Program, change: &dyn Fn(&mut Header)| change(program.headers.get_mut("sls").unwrap());
    says("128 slots", &|program| program.slots = 128);
    says("a window of 4", &|program| program.window_frames = 4);
    says("headers of 56 bytes", &|program| header(program, &|header| header.bytes = 56));
    says("more than 9176", &|program| header(program, &|header| header.payload_bytes = 9216));
    says("16-bit words", &|program| program.pixel = Some("uint32".into()));
    says("16-bit words", &|program| program.pixel = None);
    says("ports from the first to the last are 17", &|program| program.tiles[1].port = Some(50026));
    says("names no port", &|program| {
        program.tiles.truncate(1);
        program.tiles[0].port = None;
        program.slot_bytes /= 2;
    });
    says("whole blocks of 8192", &|program| program.slot_bytes += 8192);
    says("whole blocks of 8192", &|program| (program.slot_bytes, program.tiles[1].offset) = ((1 << 20) + 64, (1 << 19) + 64));
    says("module 70000", &|program| {
        let module = Key { offset: 18, bytes: 4, endian: Endian::Little, mask: None, shift: 0 };
        header(program, &|header| header.module = Some(module));
        program.tiles[0].module = Some(70_000);
    });
    says("in order", &|program| {
        let place = program.places.get_mut("upright").unwrap();
        let [whole] = place.patterns[0][..] else { panic!("one segment") };
        let half = |source| crate::bridge::Segment { source, bytes: 4096, destination: source.into() };
        assert_eq!(whole.bytes, 8192);
        place.patterns[0] = vec![half(4096), half(0)];
    });
}
