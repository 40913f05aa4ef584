//! The instructions on a small machine, against the address table.

use super::super::program::Program;
use super::super::shipped::SHIPPED;
use super::*;
use proptest::prelude::*;

/// Where context, frame and stack lie in the memory of the machine.
const CONTEXT: u64 = 0x1000;
const FRAME: u64 = 0x10_0000;
/// Bytes in front of the frame.
const HEADROOM: u64 = 64;
/// UDP behind Ethernet and IPv4.
const UDP_AT: i16 = 34;

/// A machine as RFC 9669 describes it, with the instructions that programs of a bridge have. It panics on everything
/// that the kernel's verifier would refuse: loads outside of the frame, stores outside of the metadata, jumps back.
struct Machine {
    registers: [u64; 11],
    context: [u32; 3],
    memory: Vec<u8>,
}

impl Machine {
    fn run(program: &[Instruction], frame: &[u8]) -> Option<Metadata> {
        let mut memory = vec![0xAA; HEADROOM as usize];
        memory.extend(frame);
        let start = (FRAME + HEADROOM) as u32;
        let mut machine = Self { registers: [0; 11], context: [start, start + frame.len() as u32, start], memory };
        machine.registers[1] = CONTEXT;
        let mut at = 0;
        while program[at].code != 0x95 {
            at = machine.step(program, at);
        }
        assert_eq!(machine.registers[0], 2, "XDP_PASS");
        assert_eq!(machine.memory[HEADROOM as usize..], *frame, "the frame is not changed");
        let bytes = (machine.context[0] - machine.context[2]) as usize;
        let meta: Option<&[u8; 16]> = machine.memory[HEADROOM as usize - bytes..].first_chunk();
        (bytes == METADATA_BYTES).then(|| Metadata::read(meta.unwrap()))
    }

    fn step(&mut self, program: &[Instruction], at: usize) -> usize {
        let Instruction { code, registers, offset, immediate } = program[at];
        let (to, from) = (usize::from(registers & 15), usize::from(registers >> 4));
        let value = if code & 8 == 0 { i64::from(immediate).cast_unsigned() } else { self.registers[from] };
        let bytes = |code: u8| [4, 2, 1, 8][usize::from(code >> 3 & 3)];
        match (code & 7, code) {
            (_, 0x18) => {
                let high = u64::from(program[at + 1].immediate.cast_unsigned());
                self.registers[to] = u64::from(immediate.cast_unsigned()) | high << 32;
                return at + 2;
            }
            (1, _) => self.registers[to] = self.load(self.registers[from].wrapping_add_signed(offset.into()), bytes(code)),
            (3, _) => self.store(self.registers[to].wrapping_add_signed(offset.into()), bytes(code), self.registers[from]),
            (4, 0xdc | 0xd4) => self.registers[to] = swapped(self.registers[to], immediate, code == 0xdc),
            (7, _) => self.registers[to] = calculated(code & 0xf0, self.registers[to], value),
            (5, 0x85) => self.adjust_meta(immediate),
            (5, _) => {
                let left = self.registers[to];
                let is_taken = match code & 0xf0 {
                    0x00 => true,
                    0x10 => left == value,
                    0x20 => left > value,
                    0x50 => left != value,
                    other => panic!("jump {other:x}"),
                };
                assert!(offset >= 0);
                return at + 1 + if is_taken { offset as usize } else { 0 };
            }
            _ => panic!("instruction {code:x}"),
        }
        at + 1
    }

    fn adjust_meta(&mut self, helper: i32) {
        assert_eq!((helper, self.registers[1]), (54, CONTEXT));
        self.context[2] = (self.context[0]).wrapping_add_signed(self.registers[2] as u32 as i32);
        // A call destroys these.
        self.registers[..6].copy_from_slice(&[0, 0xDEAD, 0xDEAD, 0xDEAD, 0xDEAD, 0xDEAD]);
    }

    fn load(&self, address: u64, bytes: usize) -> u64 {
        if (CONTEXT..CONTEXT + 12).contains(&address) {
            assert_eq!((bytes, address % 4), (4, 0));
            return self.context[(address - CONTEXT) as usize / 4].into();
        }
        assert!(
            address >= u64::from(self.context[0]) && address + bytes as u64 <= u64::from(self.context[1]),
            "load at {address:x}"
        );
        let at = (address - FRAME) as usize;
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(&self.memory[at..at + bytes]);
        u64::from_le_bytes(number)
    }

    fn store(&mut self, address: u64, bytes: usize, value: u64) {
        assert!(
            address >= self.context[2].into() && address + bytes as u64 <= u64::from(self.context[0]),
            "store at {address:x}"
        );
        let at = (address - FRAME) as usize;
        self.memory[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }
}

/// On a little-endian machine.
fn swapped(value: u64, bits: i32, is_network: bool) -> u64 {
    match (bits, is_network) {
        (16, true) => (value as u16).swap_bytes().into(),
        (32, true) => (value as u32).swap_bytes().into(),
        (64, true) => value.swap_bytes(),
        (16, false) => (value as u16).into(),
        (32, false) => (value as u32).into(),
        (64, false) => value,
        _ => panic!("{bits} bits"),
    }
}

fn calculated(operation: u8, left: u64, right: u64) -> u64 {
    match operation {
        0x00 => left.wrapping_add(right),
        0x20 => left.wrapping_mul(right),
        0x30 => left / right,
        0x40 => left | right,
        0x50 => left & right,
        0x60 => left << right,
        0x70 => left >> right,
        0x90 => left % right,
        0xb0 => right,
        other => panic!("operation {other:x}"),
    }
}

/// A frame of Ethernet, IPv4 and UDP.
fn frame(port: u16, datagram: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x55; UDP_AT as usize];
    bytes.extend(40_000u16.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.extend((8 + datagram.len() as u16).to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend(datagram);
    bytes
}

/// What the address table says.
fn expected(table: &AddressTable, port: u16, datagram: &[u8]) -> Option<Metadata> {
    let address = table.address(port, datagram).ok()?;
    let slot = table.slot_of(address.frame);
    let origin = table.origin(address.tile.into(), address.packet).unwrap();
    let destination = table.slot_start(slot).wrapping_add_signed(origin);
    Some(Metadata { packet: address.packet, tile: address.tile, slot, destination })
}

/// Two ports, one with two modules, keys of odd widths, three terms.
const ODD: &str = r#"name = "odd"
slots = 8
slot_bytes = 4000
base_bytes = 4294967296
window_frames = 8
[headers.a]
bytes = 16
payload_bytes = 8
packets = 6
first_packet = 3
frame = { offset = 1, bytes = 6, endian = "big", mask = 0xFFFF00, shift = 8 }
packet = { offset = 7, bytes = 3 }
module = { offset = 10, bytes = 5, endian = "big" }
require = [{ offset = 15, bytes = 1, mask = 0x0F, value = 4 }]
[headers.b]
bytes = 10
payload_bytes = 9
packets = 2
frame = { offset = 0, bytes = 8 }
packet = { offset = 8, bytes = 2, endian = "big" }
[places.a]
header = "a"
terms = [{ multiply = -100 }, { divide = 2, multiply = 10 }, { divide = 2, modulo = 2, multiply = 1000 }]
patterns = [[{ source = 0, destination = 0, bytes = 8 }]]
[places.b]
header = "b"
terms = [{ multiply = 9 }]
patterns = [[{ source = 0, destination = 0, bytes = 9 }]]
[[tiles]]
port = 7
module = 1
places = "a"
offset = 600
[[tiles]]
port = 7
module = 0x0102030405
places = "a"
offset = 2600
[[tiles]]
places = "b"
offset = 3900
"#;

fn odd_datagram(frame: u64, packet: u32, module: u64, version: u8) -> Vec<u8> {
    let mut d = vec![9];
    d.extend(&frame.to_be_bytes()[2..]);
    d.extend(&packet.to_le_bytes()[..3]);
    d.extend(&module.to_be_bytes()[3..]);
    d.push(version);
    d.extend([1; 8]);
    d
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn instructions_find_the_address_of_the_table(
        which in 0usize..SHIPPED.len(), tile in 0u16..5, number in 0u64..1 << 50, packet in 0u32..140,
        damage in prop::option::weighted(0.3, (0usize..48, any::<u8>())), cut in prop::option::weighted(0.1, 0usize..60),
    ) {
        let table = Program::compile_text(SHIPPED[which].text).unwrap();
        let is_eiger = SHIPPED[which].name.starts_with("eiger");
        let port = if is_eiger { 50_020 } else { 50_010 } + tile;
        let mut datagram = vec![0; table.datagram_bytes_max()];
        datagram[..8].copy_from_slice(&number.to_le_bytes());
        datagram[12..16].copy_from_slice(&packet.to_le_bytes());
        datagram[46..48].copy_from_slice(&[if is_eiger { 1 } else { 3 }, 2]);
        if let Some((at, byte)) = damage {
            datagram[at] = byte;
        }
        datagram.truncate(cut.unwrap_or(usize::MAX));
        let program = instructions(&table, UDP_AT).unwrap();
        prop_assert_eq!(Machine::run(&program, &frame(port, &datagram)), expected(&table, port, &datagram));
    }

    #[test]
    fn keys_of_all_widths_modules_and_terms_agree(
        port in 5u16..9, frame_number in any::<u64>(), packet in 0u32..12, module in prop_oneof![Just(1u64), Just(0x01_0203_0405), any::<u64>()],
        version in prop_oneof![Just(4u8), Just(0xF4), any::<u8>()], b in any::<[u8; 19]>(), is_b in any::<bool>(),
    ) {
        let table = Program::compile_text(ODD).unwrap();
        let program = instructions(&table, UDP_AT).unwrap();
        let mut datagram = if is_b { b.to_vec() } else { odd_datagram(frame_number, packet, module, version) };
        if is_b {
            datagram[8..10].copy_from_slice(&(packet as u16 % 4).to_be_bytes());
        }
        prop_assert_eq!(Machine::run(&program, &frame(port, &datagram)), expected(&table, port, &datagram));
    }
}

/// The generators above do give packets that have an address.
#[test]
fn instructions_find_addresses_that_were_written_down() {
    let table = Program::compile_text(ODD).unwrap();
    let program = instructions(&table, UDP_AT).unwrap();
    let found = Machine::run(&program, &frame(7, &odd_datagram(0x0B0A_0900, 8, 0x01_0203_0405, 0x24))).unwrap();
    // Frame 0x0A09 is in slot 1; packet 5: -500 + 2 x 10 + 0 x 1000.
    assert_eq!(found, Metadata { packet: 5, tile: 1, slot: 1, destination: (1 << 32) + 4000 + 2600 - 500 + 20 });
    assert_eq!(Machine::run(&program, &frame(7, &odd_datagram(0, 9, 1, 4))), None);
    assert_eq!(Machine::run(&program, &frame(7, &odd_datagram(0, 2, 1, 4))), None);
    assert_eq!(Machine::run(&program, &[0; 20]), None);
    let text = SHIPPED.iter().find(|p| p.name == "eiger-16bit").unwrap().text;
    let table = Program::compile_text(text).unwrap();
    let program = instructions(&table, UDP_AT).unwrap();
    assert!(program.len() < 400, "{} instructions", program.len());
    let mut datagram = vec![0; 4144];
    datagram[0] = 65;
    datagram[12] = 3;
    datagram[46..48].copy_from_slice(&[1, 2]);
    let found = Machine::run(&program, &frame(50_021, &datagram)).unwrap();
    assert_eq!(found, Metadata { packet: 3, tile: 1, slot: 1, destination: (1 << 20) + 255 * 2048 + 1024 - 3 * 8192 });
}

#[test]
fn a_program_that_is_too_long_for_jumps_is_refused() {
    let mut program = Program::from_toml(SHIPPED[5].text).unwrap();
    let tile = program.tiles[2].clone();
    let header = program.headers.get_mut("sls").unwrap();
    (header.packets, header.payload_bytes) = (1, 4);
    program
        .places
        .values_mut()
        .for_each(|p| p.patterns = vec![vec![super::super::Segment { source: 0, destination: 0, bytes: 4 }]]);
    program.tiles =
        (0..1024u16).map(|n| super::super::Tile { port: Some(n), offset: u64::from(n) * 4, ..tile.clone() }).collect();
    let why = instructions(&program.compile().unwrap(), UDP_AT).unwrap_err();
    assert!(why.contains("divide the program"), "{why}");
}
