"""Pixels by docs/formats/fixed-point.md, sums and types of the file by crates/kernels/src/finish.rs, and bitshuffle.

The conversion equals docs/formats/fixed-point-vectors.csv, which a test of crates/kernels compares with the program;
sums, narrowed pixels and bitshuffle equal rtl/vectors/, which `tests/rtl_vectors.rs` of that crate compares.
"""

from __future__ import annotations

import dataclasses
import random

KINDS = ("int16", "uint16", "int32", "uint32")
# Missing, masked, invalid, saturated, lowest and highest valid number.
SPECIAL = {
    "int16": (-32766, -32768, -32767, 32767, -32765, 32766),
    "int32": (-2147483646, -2147483648, -2147483647, 2147483647, -2147483392, 2147483392),
    "uint16": (65535, 65534, 65533, 65532, 0, 65531),
    "uint32": (4294967295, 4294967294, 4294967293, 4294967292, 0, 2147483392),
}
MISSING, MASKED, INVALID, SATURATED, LOWEST, HIGHEST = range(6)


@dataclasses.dataclass(frozen=True)
class Constants:
    """Constants of a pixel."""

    pedestal: tuple[int, int, int]
    factor: tuple[int, int, int]

    def word(self) -> int:
        """The 102 bits of the logic."""
        (p0, p1, p2), (f0, f1, f2) = self.pedestal, self.factor
        return p0 | p1 << 22 | p2 << 38 | f0 << 54 | f1 << 70 | f2 << 86


def limit(value: int, kind: str) -> int:
    """A number as a pixel."""
    special = SPECIAL[kind]
    return special[SATURATED] if value > special[HIGHEST] else max(value, special[LOWEST])


def convert(word: int, constants: Constants, shifts: tuple[int, int, int], kind: str, high_gain: bool = False) -> int:
    """The pixel of a word."""
    special, gain = SPECIAL[kind], word >> 14
    if word in (0xFFFF, 0xC000, 0x4000) or gain == 2:
        if constants.factor[0] == 0:
            return special[MASKED]
        return special[SATURATED if word == 0xC000 else INVALID]
    stage = {0: 0, 1: 1, 3: 2}[gain]
    if constants.factor[stage] == 0:
        return special[MASKED]
    if high_gain and word == 0x3FFF:
        return special[SATURATED]
    adc = word & 0x3FFF
    difference = (adc << 8) - constants.pedestal[0] if stage == 0 else constants.pedestal[stage] - (adc << 2)
    return limit((difference * constants.factor[stage] + (1 << (shifts[stage] - 1))) >> shifts[stage], kind)


def add(earlier: int, pixel: int) -> int:
    """The sum of two pixels in int32."""
    special = SPECIAL["int32"]
    for which in (MASKED, MISSING, INVALID, SATURATED):
        if special[which] in (earlier, pixel):
            return special[which]
    return limit(earlier + pixel, "int32")


def narrow(value: int, kind: str) -> int:
    """A pixel of int32 in the type of the file."""
    for which in (MISSING, MASKED, INVALID, SATURATED):
        if value == SPECIAL["int32"][which]:
            return SPECIAL[kind][which]
    return limit(value, kind)


def shuffle(block: bytes) -> bytes:
    """Bitshuffle of a block of 16-bit numbers, bit by bit."""
    count = len(block) // 2
    out = bytearray(len(block))
    for element in range(count):
        value = block[2 * element] | block[2 * element + 1] << 8
        for plane in range(16):
            if value >> plane & 1:
                out[plane * (count // 8) + element // 8] |= 1 << element % 8
    return bytes(out)


def random_constants(dice: random.Random) -> Constants:
    """Constants near to real ones, at the ends of their ranges, or masked."""
    kind = dice.randrange(8)
    if kind == 0:
        return Constants((dice.choice((0, 0x3FFFFF)), dice.choice((0, 65535)), dice.choice((0, 65535))), (65535, 65535, 1))
    factor = [dice.randrange(30000, 65536) for _ in range(3)]
    if kind == 1:
        factor[dice.randrange(3)] = 0
    return Constants((dice.randrange(2300 << 8, 3700 << 8), dice.randrange(1 << 16), dice.randrange(1 << 16)), (factor[0], factor[1], factor[2]))


def random_word(dice: random.Random) -> int:
    """A word: mostly G0 near the pedestal, sometimes any, often special."""
    kind = dice.randrange(8)
    if kind == 0:
        return dice.choice((0xFFFF, 0xC000, 0x4000, 0x8000, 0xBFFF, 0x3FFF, 0, 0x4001, 0x7FFF, 0xC001, 0xFFFE))
    return dice.randrange(2500, 6000) if kind < 4 else dice.randrange(1 << 16)


def random_sum(dice: random.Random) -> int:
    """A pixel of int32: small, near the limits, or special."""
    special = SPECIAL["int32"]
    kind = dice.randrange(4)
    if kind == 0:
        return special[dice.randrange(6)]
    if kind == 1:
        return limit(dice.choice((1, -1)) * (special[HIGHEST] - dice.randrange(100_000)), "int32")
    return dice.randrange(-70_000, 70_000)
