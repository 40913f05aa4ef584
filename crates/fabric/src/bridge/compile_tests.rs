//! Every mistake is found, with its line; whatever compiles stays in its slot.

use super::super::problem::Problems;
use super::super::program::{Program, Segment, Term};
use super::super::shipped::SHIPPED;
use super::super::table::Refusal;
use proptest::prelude::*;

/// Two tiles at one port, told apart by the module.
const SMALL: &str = r#"name = "small"
slots = 4
slot_bytes = 64
window_frames = 2
pixel = "uint16"

[headers.h]
bytes = 12
payload_bytes = 16
packets = 2
frame = { offset = 0, bytes = 4, endian = "big" }
packet = { offset = 4, bytes = 1, mask = 0xF0, shift = 4 }
module = { offset = 5, bytes = 3, endian = "big" }
require = [
    { offset = 8, bytes = 2, value = 513 },
]

[places.p]
header = "h"
terms = [{ multiply = 16 }]
patterns = [[
    { source = 8, destination = 0, bytes = 8 },
    { source = 0, destination = 8, bytes = 8 },
]]

[[tiles]]
port = 7
module = 0x010203
places = "p"
offset = 0

[[tiles]]
port = 7
module = 5
places = "p"
offset = 32
"#;

fn datagram(frame: u32, packet: u8, module: u32) -> Vec<u8> {
    let mut bytes = frame.to_be_bytes().to_vec();
    bytes.push(packet << 4 | 9);
    bytes.extend(&module.to_be_bytes()[1..]);
    bytes.extend([1, 2, 0, 0]);
    bytes.extend(0..16);
    bytes
}

#[test]
fn keys_and_terms_give_addresses() {
    let table = Program::compile_text(SMALL).unwrap();
    let address = table.address(7, &datagram(0x0102_0304, 1, 5)).unwrap();
    assert_eq!((address.tile, address.packet, address.frame), (1, 1, 0x0102_0304));
    assert_eq!((table.slot_of(address.frame), table.slot_start(3)), (0, 192));
    assert_eq!(table.segments(1, 1).collect::<Vec<_>>(), [(20, 48, 8), (12, 56, 8)]);
    let mut slot = [0xEE; 64];
    table.copy(&address, &datagram(0, 1, 5), &mut slot);
    assert_eq!(slot[48..], [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(slot[..48].iter().all(|byte| *byte == 0xEE));
    assert_eq!(table.segments(1, 2).count() + table.segments(2, 0).count(), 0);

    let refused = |port, datagram: &[u8]| table.address(port, datagram).unwrap_err();
    assert_eq!(refused(8, &datagram(0, 0, 5)), Refusal::Unknown);
    assert_eq!(refused(7, &datagram(0, 0, 6)), Refusal::Unknown);
    assert_eq!(refused(7, &[]), Refusal::Length);
    assert_eq!(refused(7, &datagram(0, 0, 5)[..27]), Refusal::Length);
    assert_eq!(refused(7, &datagram(0, 2, 5)), Refusal::PacketNumber);
    let mut wrong = datagram(0, 0, 5);
    wrong[8] = 2;
    assert_eq!(refused(7, &wrong), Refusal::Required);
}

#[test]
fn a_tile_without_a_port_takes_every_other_port() {
    let text = SMALL.replacen("port = 7\n", "", 1);
    let table = Program::compile_text(&text).unwrap();
    assert_eq!(table.address(9, &datagram(1, 0, 0x01_0203)).unwrap().tile, 0);
    assert_eq!(table.address(7, &datagram(1, 0, 5)).unwrap().tile, 1);
    assert_eq!(table.address(7, &datagram(1, 0, 0x01_0203)).unwrap_err(), Refusal::Unknown);
    assert_eq!(table.ports().collect::<Vec<_>>(), [7]);
}

#[test]
fn text_is_read_back_as_it_was_written() {
    let programs = SHIPPED.iter().map(|p| p.text).chain([SMALL]);
    for text in programs {
        let program = Program::from_toml(text).unwrap();
        assert_eq!(Program::from_toml(&program.to_toml("about\nit")).unwrap(), program);
    }
    let mut odd = Program::from_toml(SMALL).unwrap();
    odd.name = "quo\"ted\n".into();
    odd.base_bytes = 6;
    let header = odd.headers.remove("h").unwrap();
    odd.headers.insert("a b".into(), header);
    odd.places.get_mut("p").unwrap().header = "a b".into();
    odd.places.get_mut("p").unwrap().terms.push(Term { divide: 2, modulo: Some(3), multiply: -4 });
    assert_eq!(Program::from_toml(&odd.to_toml("")).unwrap(), odd);
}

/// The problem that a change of the small program makes.
fn problem(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    let Problems(found) = Program::compile_text(&SMALL.replacen(from, to, 1)).unwrap_err();
    found[0].to_string()
}

#[test]
fn every_mistake_has_its_line_and_what_to_write() {
    let cases = [
        ("slots = 4", "slots = 5", "line 2: slots: slots = 5 is not a power of two up to 4096; write slots = 8"),
        ("slots = 4", "slots = 0", "line 2: slots: slots = 0 is"),
        ("slot_bytes = 64", "slot_bytes = 0", "line 3: slot_bytes: a slot of 0 bytes"),
        ("slot_bytes = 64", "slot_bytes = 65", "line 3: slot_bytes: slots of 65 bytes do not hold whole pixels of 2"),
        ("window_frames = 2", "window_frames = 5", "line 4: window_frames: window_frames = 5 with 4 slots; write 1 to 4"),
        ("window_frames = 2", "window_frames = 2\nbase_bytes = 1099511627776", "are too many"),
        ("\"uint16\"", "\"int5\"", "line 5: pixel: there is no pixel type \"int5\"; write one of int16"),
        ("name = \"small\"", "name = \"\"", "line 1: name: a program has a name"),
        ("bytes = 12", "bytes = 0", "line 8: [headers.h] bytes: a header of 0 bytes; write 1 to 256"),
        ("payload_bytes = 16", "payload_bytes = 65500", "line 9: [headers.h] payload_bytes"),
        ("packets = 2", "packets = 513", "line 10: [headers.h] packets: 513 packets of a tile; write 1 to 512"),
        ("packets = 2", "packets = 2\nfirst_packet = 15", "packets up to 16 do not fit into their key"),
        (
            "offset = 0, bytes = 4",
            "offset = 9, bytes = 4",
            "line 11: [headers.h] frame: bytes 9..13 lie outside of the header of 12 bytes; write an offset of at most 8",
        ),
        ("offset = 0, bytes = 4", "offset = 4294967295, bytes = 4", "lie outside of the header"),
        ("offset = 0, bytes = 4", "offset = 0, bytes = 9", "a key of 9 bytes; write bytes = 1 to 8"),
        ("offset = 0, bytes = 4", "offset = 0, mask = 3, bytes = 4", "numbers of frames end at 3, and there are 4 slots"),
        (
            "mask = 0xF0",
            "mask = 0x1F0",
            "line 12: [headers.h] packet: mask = 0x1F0 is wider than 1 bytes; write a mask up to 0xFF",
        ),
        ("mask = 0xF0", "mask = 0xB0", "are not one run of bits"),
        ("shift = 4", "shift = 8", "shift = 8 leaves nothing"),
        (
            "value = 513",
            "value = 65536",
            "line 15: [headers.h] require number 1: value = 65536 has bits that the key does not have",
        ),
        ("header = \"h\"", "header = \"g\"", "line 19: [places.p] header: there is no [headers.g]"),
        ("multiply = 16", "multiply = 16, divide = 0", "line 20: [places.p] terms number 1: a division by 0"),
        ("multiply = 16", "multiply = 9223372036854775807", "overflows"),
        ("multiply = 16", "multiply = 8", "line 26: [[tiles]] number 1: byte 8 of the slot would be written by packet 1"),
        (
            "multiply = 16",
            "multiply = -16",
            "line 30: [[tiles]] number 1 offset: packet 1 would be written to bytes -16..-8 of a slot of 64",
        ),
        (
            "source = 8, destination = 0",
            "source = 9, destination = 0",
            "line 22: [places.p] patterns number 1 number 1: bytes 9..17 of a payload of 16 bytes",
        ),
        ("source = 8, destination = 0", "source = 6, destination = 0", "byte 6 of the payload is in two segments"),
        (
            "destination = 8, bytes = 8",
            "destination = 9, bytes = 8",
            "line 23: [places.p] patterns number 1 number 2: pixels of 2 bytes would be divided",
        ),
        ("destination = 8, bytes = 8", "destination = 8, bytes = 0", "bytes 0..0 of a payload"),
        ("offset = 32", "offset = 34", "line 36: [[tiles]] number 2 offset: packet 1 would be written to bytes 58..66"),
        ("offset = 32", "offset = 30", "line 32: [[tiles]] number 2: byte 30 of the slot"),
        ("offset = 32", "offset = 65", "offset = 65 lies behind the slot"),
        ("module = 5", "module = 66051", "port 7 and module 66051 are those of tile number 1 too"),
        ("module = 5\n", "", "several tiles have port 7, and this one no module"),
        ("module = 5", "module = 16777216", "module = 16777216 does not fit into its key, whose highest value is 16777215"),
        ("module = { offset = 5, bytes = 3, endian = \"big\" }\n", "", "the header has no key for the module"),
        ("places = \"p\"", "places = \"q\"", "line 29: [[tiles]] number 1 places: there is no [places.q]; write one of: p"),
        ("slots = 4", "slots = four", "line 2: "),
        ("slots = 4", "slots = 4\nslot = 5", "line 3: unknown field `slot`"),
        ("slots = 4\n", "", "missing field `slots`"),
    ];
    for (from, to, expected) in cases {
        let found = problem(from, to);
        assert!(found.contains(expected), "{from} -> {to}\n  expected: {expected}\n  found:    {found}");
    }
}

#[test]
fn several_mistakes_are_reported_together_and_lists_have_bounds() {
    let text = SMALL.replace("slots = 4", "slots = 3").replace("bytes = 12", "bytes = 3");
    let Problems(found) = Program::compile_text(&text).unwrap_err();
    assert!(found.len() >= 4 && found.iter().all(|problem| problem.line.is_some()), "{found:#?}");
    let program = Program::from_toml(SMALL).unwrap();
    let changed = |change: &dyn Fn(&mut Program)| {
        let mut program = program.clone();
        change(&mut program);
        program.compile().unwrap_err().to_string()
    };
    let many = changed(&|p| p.tiles = vec![p.tiles[0].clone(); 1025]);
    assert!(many.contains("1025 tiles; write 1 to 1024"), "{many}");
    let segment = Segment { source: 0, destination: 0, bytes: 2 };
    let many = changed(&|p| p.places.get_mut("p").unwrap().patterns = vec![vec![segment; 17]]);
    assert!(many.contains("17 segments of one packet; write 1 to 16"), "{many}");
    let many = changed(&|p| p.places.get_mut("p").unwrap().patterns = vec![vec![segment]; 3]);
    assert!(many.contains("3 patterns for 2 packets"), "{many}");
    let many = changed(&|p| p.places.get_mut("p").unwrap().terms = vec![Term { divide: 1, modulo: None, multiply: 0 }; 9]);
    assert!(many.contains("9 terms"), "{many}");
    let many = changed(&|p| p.headers.get_mut("h").unwrap().require = vec![p.headers["h"].require[0]; 9]);
    assert!(many.contains("9 required values"), "{many}");
    let none = changed(&|p| p.tiles.clear());
    assert!(none.contains("0 tiles"), "{none}");
}

/// Programs with small random numbers: most are wrong, some are right.
fn any_program() -> impl Strategy<Value = Program> {
    let segment =
        (0u32..20, -40i64..40, 0u32..20).prop_map(|(source, destination, bytes)| Segment { source, destination, bytes });
    let term =
        (0u32..4, prop::option::of(0u32..4), -33i64..33).prop_map(|(divide, modulo, multiply)| Term { divide, modulo, multiply });
    let places = (prop::collection::vec(term, 0..3), prop::collection::vec(prop::collection::vec(segment, 1..3), 1..3));
    (places, 1u32..5, prop::collection::vec(0u64..80, 1..3), 0u64..9).prop_map(|(places, packets, offsets, base)| {
        let mut program = Program::from_toml(SMALL).unwrap();
        program.pixel = None;
        program.base_bytes = base;
        program.headers.get_mut("h").unwrap().packets = packets;
        (program.places.get_mut("p").unwrap().terms, program.places.get_mut("p").unwrap().patterns) = places;
        program.tiles.truncate(offsets.len());
        program.tiles.iter_mut().zip(offsets).for_each(|(tile, offset)| tile.offset = offset);
        program
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// The compiler against a count of every byte with 128-bit numbers.
    #[test]
    fn exactly_the_programs_that_stay_in_the_slot_and_write_bytes_once_compile(program in any_program()) {
        let header = &program.headers["h"];
        let places = &program.places["p"];
        let mut counts = vec![0u32; 64];
        let mut is_right = places.terms.iter().all(|t| t.divide > 0 && t.modulo != Some(0))
            && places.patterns.len() <= header.packets as usize
            && program.tiles.iter().all(|tile| tile.offset <= 64);
        for segments in &places.patterns {
            let mut sources = [0; 40];
            for s in segments {
                is_right &= s.bytes > 0 && s.source + s.bytes <= 16;
                (s.source..s.source + s.bytes).for_each(|n| sources[n as usize] += 1);
            }
            is_right &= sources.iter().all(|n| *n <= 1);
        }
        if is_right {
            for tile in &program.tiles {
                for packet in 0..header.packets {
                    let terms: i128 = places.terms.iter().map(|t| {
                        let turns = packet / t.divide;
                        i128::from(t.modulo.map_or(turns, |m| turns % m)) * i128::from(t.multiply)
                    }).sum();
                    for s in &places.patterns[packet as usize % places.patterns.len()] {
                        for n in 0..s.bytes {
                            let at = i128::from(tile.offset) + terms + i128::from(s.destination) + i128::from(n);
                            match usize::try_from(at).ok().and_then(|at| counts.get_mut(at)) {
                                Some(count) => *count += 1,
                                None => is_right = false,
                            }
                        }
                    }
                }
            }
            is_right &= counts.iter().all(|n| *n <= 1);
        }
        prop_assert_eq!(program.compile().is_ok(), is_right, "{:?}", program.compile().err());
    }

    /// Any text, and texts that were damaged: never a panic, and whatever compiles has all its segments in the slot.
    #[test]
    fn damaged_texts_do_no_harm(at in 0usize..SMALL.len(), byte in any::<u8>(), cut in 0usize..SMALL.len()) {
        let mut bytes = SMALL.as_bytes().to_vec();
        bytes[at] = byte;
        for text in [String::from_utf8_lossy(&bytes).into_owned(), SMALL[cut..].to_string(), SMALL[..cut].to_string()] {
            let Ok(table) = Program::compile_text(&text) else { continue };
            for tile in 0..table.tiles() {
                for packet in 0..table.packets(tile) {
                    for (source, destination, bytes) in table.segments(tile, packet) {
                        prop_assert!((destination + bytes) as u64 <= table.slot_bytes());
                        prop_assert!(source + bytes <= table.datagram_bytes_max());
                    }
                }
            }
        }
    }
}
