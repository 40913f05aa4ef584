//! A small assembler for the kernel's eBPF machine: just the instructions that the filter of AF_XDP (crate `sources`)
//! and the programs of a bridge (crate `fabric`) need, and labels for jumps. It knows no packets and calls nothing.
//! Encoding: "BPF Instruction Set Architecture", RFC 9669.

use std::collections::HashMap;

/// Instructions that a jump reaches.
pub const JUMP_MAX: usize = i16::MAX as usize;

/// One instruction as the kernel takes it (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register in the low four bits, source register in the high ones (the other way round on a
    /// big-endian machine).
    pub registers: u8,
    /// Offset in memory in bytes, or length of a jump in instructions.
    pub offset: i16,
    /// Constant.
    pub immediate: i32,
}

/// A register. R0 has results, R1 to R5 are arguments that a call destroys, R6 to R9 survive calls, R10 is the end of
/// the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Size of what is loaded or stored.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Size {
    Bits32 = 0x00,
    Bits16 = 0x08,
    Bits8 = 0x10,
    Bits64 = 0x18,
}

/// When a jump is taken. Comparisons are of unsigned numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum If {
    Equal = 0x10,
    Greater = 0x20,
    AnyBit = 0x40,
    Unequal = 0x50,
}

const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
const LOAD: u8 = 0x61;
const STORE_VALUE: u8 = 0x62;
const STORE: u8 = 0x63;
/// The second operand is a register and not the constant.
const FROM_REGISTER: u8 = 0x08;
const ADD: u8 = 0x00;
const MULTIPLY: u8 = 0x20;
const DIVIDE: u8 = 0x30;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const SHIFT_LEFT: u8 = 0x60;
const SHIFT_RIGHT: u8 = 0x70;
const REMAINDER: u8 = 0x90;
const MOVE: u8 = 0xb0;
/// Bytes from network order to the order of the machine (class ALU, `BPF_END | BPF_TO_BE`).
const FROM_NETWORK_ORDER: u8 = 0xdc;
/// Bytes from little-endian order to the order of the machine (class ALU, `BPF_END | BPF_TO_LE`).
const FROM_LITTLE_ENDIAN: u8 = 0xd4;
const LOAD_CONSTANT_64: u8 = 0x18;
/// As source register of [`LOAD_CONSTANT_64`]: the constant is the descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// A program in the making.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    labels: HashMap<String, usize>,
    /// Jumps whose length is not known yet, with the labels to which they go.
    jumps: Vec<(usize, String)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, immediate: i32) {
        let (to, from) = if cfg!(target_endian = "little") { (to as u8, from) } else { (from, to as u8) };
        self.instructions.push(Instruction { code, registers: to | from << 4, offset, immediate });
    }

    /// Names the next instruction.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn label(&mut self, name: impl Into<String>) {
        let name = name.into();
        let before = self.labels.insert(name.clone(), self.instructions.len());
        assert!(before.is_none(), "two places with the label {name}");
    }

    /// `to = value`.
    pub fn set(&mut self, to: Register, value: i32) {
        self.push(ALU64 | MOVE, to, 0, 0, value);
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) {
        self.push(ALU64 | MOVE | FROM_REGISTER, to, from as u8, 0, 0);
    }

    /// `to += value`.
    pub fn add(&mut self, to: Register, value: i32) {
        self.push(ALU64 | ADD, to, 0, 0, value);
    }

    /// `to += from`.
    pub fn add_register(&mut self, to: Register, from: Register) {
        self.push(ALU64 | ADD | FROM_REGISTER, to, from as u8, 0, 0);
    }

    /// `to *= value`.
    pub fn multiply(&mut self, to: Register, value: i32) {
        self.push(ALU64 | MULTIPLY, to, 0, 0, value);
    }

    /// `to *= from`.
    pub fn multiply_register(&mut self, to: Register, from: Register) {
        self.push(ALU64 | MULTIPLY | FROM_REGISTER, to, from as u8, 0, 0);
    }

    /// `to /= value`, unsigned; `value` is from 1 to 2^31 - 1.
    pub fn divide(&mut self, to: Register, value: i32) {
        self.push(ALU64 | DIVIDE, to, 0, 0, value);
    }

    /// `to %= value`, unsigned; `value` is from 1 to 2^31 - 1.
    pub fn remainder(&mut self, to: Register, value: i32) {
        self.push(ALU64 | REMAINDER, to, 0, 0, value);
    }

    /// `to &= from`.
    pub fn and_register(&mut self, to: Register, from: Register) {
        self.push(ALU64 | AND | FROM_REGISTER, to, from as u8, 0, 0);
    }

    /// `to |= from`.
    pub fn or_register(&mut self, to: Register, from: Register) {
        self.push(ALU64 | OR | FROM_REGISTER, to, from as u8, 0, 0);
    }

    /// `to <<= bits`.
    pub fn shift_left(&mut self, to: Register, bits: i32) {
        self.push(ALU64 | SHIFT_LEFT, to, 0, 0, bits);
    }

    /// `to >>= bits`, with zeros from above.
    pub fn shift_right(&mut self, to: Register, bits: i32) {
        self.push(ALU64 | SHIFT_RIGHT, to, 0, 0, bits);
    }

    /// The low 16 bits of `to` from network order to the order of the machine; the other bits become 0.
    pub fn u16_from_network(&mut self, to: Register) {
        self.push(FROM_NETWORK_ORDER, to, 0, 0, 16);
    }

    /// The low 16, 32 or 64 bits (`bits`) of `to` from network order to the order of the machine; the others become 0.
    pub fn from_network(&mut self, to: Register, bits: i32) {
        self.push(FROM_NETWORK_ORDER, to, 0, 0, bits);
    }

    /// As [`Assembler::from_network`], from little-endian order.
    pub fn from_little_endian(&mut self, to: Register, bits: i32) {
        self.push(FROM_LITTLE_ENDIAN, to, 0, 0, bits);
    }

    /// `to = value`, all 64 bits. Takes the place of two instructions.
    pub fn set_u64(&mut self, to: Register, value: u64) {
        self.push(LOAD_CONSTANT_64, to, 0, 0, (value as u32).cast_signed());
        self.instructions.push(Instruction { immediate: ((value >> 32) as u32).cast_signed(), ..Instruction::default() });
    }

    /// Instructions so far.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// True if there is none yet.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// `to = memory[base + offset]`, with zeros above.
    pub fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        self.push(LOAD | size as u8, to, base as u8, offset, 0);
    }

    /// `memory[base + offset] = from`.
    pub fn store(&mut self, size: Size, base: Register, offset: i16, from: Register) {
        self.push(STORE | size as u8, base, from as u8, offset, 0);
    }

    /// `memory[base + offset] = value`.
    pub fn store_value(&mut self, size: Size, base: Register, offset: i16, value: i32) {
        self.push(STORE_VALUE | size as u8, base, 0, offset, value);
    }

    /// `to` = the map of this descriptor. Takes the place of two instructions.
    pub fn load_map(&mut self, to: Register, descriptor: i32) {
        self.push(LOAD_CONSTANT_64, to, PSEUDO_MAP_FD, 0, descriptor);
        self.instructions.push(Instruction::default());
    }

    /// Calls a helper function of the kernel.
    pub fn call(&mut self, helper: i32) {
        self.push(CALL, Register::R0, 0, 0, helper);
    }

    /// Ends the program with R0 as the result.
    pub fn exit(&mut self) {
        self.push(EXIT, Register::R0, 0, 0, 0);
    }

    /// Jumps to `label`.
    pub fn jump(&mut self, label: impl Into<String>) {
        self.jumps.push((self.instructions.len(), label.into()));
        self.push(JUMP, Register::R0, 0, 0, 0);
    }

    /// Jumps to `label` if the comparison of all 64 bits of `left` with `right` is true; `right` is below 2^31.
    pub fn jump_if(&mut self, condition: If, left: Register, right: i32, label: impl Into<String>) {
        self.jumps.push((self.instructions.len(), label.into()));
        self.push(JUMP | condition as u8, left, 0, 0, right);
    }

    /// As [`Assembler::jump_if`], with the low 32 bits of `left` and any `right`.
    pub fn jump_if_u32(&mut self, condition: If, left: Register, right: u32, label: impl Into<String>) {
        self.jumps.push((self.instructions.len(), label.into()));
        self.push(JUMP32 | condition as u8, left, 0, 0, right.cast_signed());
    }

    /// As [`Assembler::jump_if`], with two registers.
    pub fn jump_if_register(&mut self, condition: If, left: Register, right: Register, label: impl Into<String>) {
        self.jumps.push((self.instructions.len(), label.into()));
        self.push(JUMP | condition as u8 | FROM_REGISTER, left, right as u8, 0, 0);
    }

    /// The program with the lengths of all jumps.
    ///
    /// # Panics
    /// If a label is missing, or a jump goes back: the kernel could refuse a program with loops, and the filter needs
    /// none.
    pub fn finish(self) -> Vec<Instruction> {
        let mut instructions = self.instructions;
        assert!(instructions.len() < JUMP_MAX, "{} instructions are too many", instructions.len());
        for (at, label) in self.jumps {
            let to = *self.labels.get(&label).unwrap_or_else(|| panic!("no place with the label {label}"));
            assert!(to > at, "a jump back to {label}");
            instructions[at].offset = (to - at - 1) as i16;
        }
        instructions
    }
}

#[cfg(test)]
mod tests {
    use super::{Assembler, If, Instruction, Register::*, Size};

    fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
        Instruction { code, registers, offset, immediate }
    }

    /// Put together by hand from RFC 9669, sections 3 to 5.
    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        a.load(Size::Bits32, R2, R6, 4);
        a.load(Size::Bits8, R3, R2, 9);
        a.load(Size::Bits16, R3, R2, -2);
        a.store(Size::Bits64, R10, -8, R0);
        a.store_value(Size::Bits32, R10, -12, 3);
        a.set(R0, -1);
        a.add(R2, 14);
        a.add_register(R2, R3);
        a.multiply(R2, 5);
        a.shift_right(R2, 16);
        a.u16_from_network(R2);
        a.multiply_register(R2, R4);
        a.divide(R2, 3);
        a.remainder(R2, 3);
        a.and_register(R2, R4);
        a.or_register(R2, R4);
        a.shift_left(R2, 8);
        a.from_network(R2, 64);
        a.from_little_endian(R2, 32);
        a.set_u64(R2, 0x1_8000_0002);
        a.load_map(R1, 7);
        a.call(51);
        a.exit();
        let expected = [
            instruction(0xbf, 0x16, 0, 0),
            instruction(0x61, 0x62, 4, 0),
            instruction(0x71, 0x23, 9, 0),
            instruction(0x69, 0x23, -2, 0),
            instruction(0x7b, 0x0a, -8, 0),
            instruction(0x62, 0x0a, -12, 3),
            instruction(0xb7, 0x00, 0, -1),
            instruction(0x07, 0x02, 0, 14),
            instruction(0x0f, 0x32, 0, 0),
            instruction(0x27, 0x02, 0, 5),
            instruction(0x77, 0x02, 0, 16),
            instruction(0xdc, 0x02, 0, 16),
            instruction(0x2f, 0x42, 0, 0),
            instruction(0x37, 0x02, 0, 3),
            instruction(0x97, 0x02, 0, 3),
            instruction(0x5f, 0x42, 0, 0),
            instruction(0x4f, 0x42, 0, 0),
            instruction(0x67, 0x02, 0, 8),
            instruction(0xdc, 0x02, 0, 64),
            instruction(0xd4, 0x02, 0, 32),
            instruction(0x18, 0x02, 0, -0x7fff_fffe),
            instruction(0, 0, 0, 1),
            instruction(0x18, 0x11, 0, 7),
            instruction(0, 0, 0, 0),
            instruction(0x85, 0x00, 0, 51),
            instruction(0x95, 0x00, 0, 0),
        ];
        assert_eq!(a.finish(), expected);
    }

    #[test]
    fn jumps_skip_what_lies_between_them_and_their_label() {
        let mut a = Assembler::default();
        a.jump_if(If::Equal, R1, 17, "out");
        a.jump_if_register(If::Greater, R2, R3, "out");
        a.jump_if_u32(If::Unequal, R0, 0xffff_fffe, "next");
        a.load_map(R1, 7);
        a.label("next");
        a.jump("out");
        a.label("out");
        a.exit();
        let expected = [
            instruction(0x15, 0x01, 5, 17),
            instruction(0x2d, 0x32, 4, 0),
            instruction(0x56, 0x00, 2, -2),
            instruction(0x18, 0x11, 0, 7),
            instruction(0, 0, 0, 0),
            instruction(0x05, 0x00, 0, 0),
            instruction(0x95, 0x00, 0, 0),
        ];
        assert_eq!(a.finish(), expected);
    }

    #[test]
    #[should_panic(expected = "no place with the label nowhere")]
    fn a_jump_to_nowhere_is_a_bug() {
        let mut a = Assembler::default();
        a.jump("nowhere");
        a.finish();
    }

    #[test]
    #[should_panic(expected = "a jump back")]
    fn a_loop_is_a_bug() {
        let mut a = Assembler::default();
        a.label("again");
        a.jump("again");
        a.finish();
    }
}
