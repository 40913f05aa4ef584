"""pixel_pipeline: conversion, sums and types against model_pixels.py and the vectors of the program."""

from __future__ import annotations

import csv
import pathlib
import random
from typing import Any

import cocotb
from bench import Bench, Sink, Source, Stall, at, never, note, randomly
from model_pixels import (
    KINDS,
    SPECIAL,
    Constants,
    add,
    convert,
    limit,
    narrow,
    random_constants,
    random_sum,
    random_word,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANES = 32


def packed(values: list[int], bits: int) -> int:
    """Numbers side by side."""
    return sum((value & (1 << bits) - 1) << bits * n for n, value in enumerate(values))


def unpacked(word: int, bits: int, count: int) -> list[int]:
    """The other way round, without signs."""
    return [word >> bits * n & (1 << bits) - 1 for n in range(count)]


class Pixels:
    """The block with its streams."""

    def __init__(self, dut: Any, kind: str, shifts: tuple[int, int, int], high_gain: bool = False, stalls: tuple[Stall, ...] = (never,) * 5) -> None:
        self.dut, self.kind, self.shifts, self.high_gain = dut, kind, shifts, high_gain
        self.words = Source(dut, "s", ("data", "first", "last"), stalls[0])
        self.constants = Source(dut, "c", ("data",), stalls[1])
        self.earlier = Source(dut, "b", ("data",), stalls[2])
        self.back = Sink(dut, "t", ("data",), stalls[3])
        self.out = Sink(dut, "m", ("data",), stalls[4])
        self.bench = Bench(dut, self.words, self.constants, self.earlier, self.back, self.out)

    async def start(self) -> None:
        """Configures and resets."""
        self.configure(self.kind, self.shifts, self.high_gain)
        await self.bench.reset()
        self.bench.now = 0

    def configure(self, kind: str, shifts: tuple[int, int, int], high_gain: bool) -> None:
        """The registers; not while words are inside."""
        self.dut.cfg_kind.value = KINDS.index(kind)
        self.dut.cfg_shifts.value = packed(list(shifts), 6)
        self.dut.cfg_high_gain.value = int(high_gain)
        self.kind, self.shifts, self.high_gain = kind, shifts, high_gain

    def frame(self, words: list[list[int]], constants: list[list[Constants]], first: bool, last: bool) -> None:
        """Sends a frame and its constants."""
        for row, these in zip(words, constants, strict=True):
            self.words.send((packed(row, 16), first, last))
            self.constants.send((packed([c.word() for c in these], 102),))

    def pixels(self) -> list[int]:
        """All pixels that came out."""
        bits = 32 if self.kind.endswith("32") else 16
        return [value for (beat,) in self.out.beats for value in unpacked(beat, bits, 512 // bits)]

    async def finish(self, pixels: int) -> None:
        """Waits for so many pixels, and that nothing more comes."""
        await self.bench.until(lambda: len(self.pixels()) >= pixels and self.words.is_done())
        await self.bench.clock(20)
        assert len(self.pixels()) == pixels


def expected(words: list[list[int]], constants: list[list[Constants]], pixels: Pixels, kind: str) -> list[int]:
    """Pixels of a frame by the model."""
    return [
        convert(word, c, pixels.shifts, kind, pixels.high_gain)
        for row, these in zip(words, constants, strict=True)
        for word, c in zip(row, these, strict=True)
    ]


def bits_of(values: list[int], kind: str) -> list[int]:
    """Pixels as they stand in memory."""
    return [value & (0xFFFFFFFF if kind.endswith("32") else 0xFFFF) for value in values]


@cocotb.test()
async def published_vectors(dut: Any) -> None:
    """docs/formats/fixed-point-vectors.csv in every lane and every type; a test in Rust compares it with the program."""
    with (ROOT / "docs/formats/fixed-point-vectors.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) > 250
    pixels = Pixels(dut, "int16", (1, 1, 1))
    await pixels.start()
    for n, row in enumerate(rows):
        number = {name: int(value, 16 if name == "word" else 10) for name, value in row.items()}
        pedestal, factor = ((number[f"{name}_g0"], number[f"{name}_g1"], number[f"{name}_g2"]) for name in ("pedestal", "factor"))
        constants = Constants(pedestal, factor)
        shifts = (number["shift_g0"], number["shift_g1"], number["shift_g2"])
        for kind in KINDS:
            assert convert(number["word"], constants, shifts, kind) == number[kind]
        kind = KINDS[n % 4]
        pixels.configure(kind, shifts, False)
        pixels.out.beats.clear()
        pixels.frame([[number["word"]] * LANES], [[constants] * LANES], True, True)
        await pixels.finish(LANES)
        assert pixels.pixels() == bits_of([number[kind]], kind) * LANES, row


def giving(number: int) -> tuple[int, Constants]:
    """A word of G0 and constants that give this number with a shift of 4."""
    for factor in range(1, 1 << 16):
        difference = (16 * number + 7) // factor
        if difference * factor >= 16 * number - 8 and -(1 << 22) < difference <= 0x3FFF << 8:
            adc = max(0, -(-difference >> 8))
            return adc, Constants(((adc << 8) - difference, 0, 0), (factor, 0, 0))
    raise ValueError(f"no word gives {number}")


@cocotb.test()
async def numbers_at_the_limits(dut: Any) -> None:
    """The special values and limits of every type, and the numbers next to them, as results of a conversion."""
    numbers = sorted({value + step for special in SPECIAL.values() for value in special for step in range(-2, 3)})
    numbers += numbers[: -len(numbers) % LANES]
    made = [giving(number) for number in numbers]
    assert [convert(word, c, (4, 4, 4), "int32") for word, c in made] == [limit(number, "int32") for number in numbers]
    rows = [made[n : n + LANES] for n in range(0, len(made), LANES)]
    words, constants = [[word for word, _ in row] for row in rows], [[c for _, c in row] for row in rows]
    for kind in KINDS:
        pixels = Pixels(dut, kind, (4, 4, 4))
        await pixels.start()
        pixels.frame(words, constants, True, True)
        await pixels.finish(len(made))
        assert pixels.pixels() == bits_of(expected(words, constants, pixels, kind), kind)


@cocotb.test()
async def random_words_and_stalls(dut: Any) -> None:
    """Every type, with and without high gain, random constants, random stalls on every stream."""
    for seed in range(8):
        dice = random.Random(seed)
        stalls = tuple(randomly(0.35 if seed >= 2 else 0.0, 10 * seed + n) for n in range(5))
        ends = (1, 16, 17, 24, 30, 32, 33, 47)
        shifts = (dice.choice(ends), dice.choice(ends), dice.choice(ends)) if seed % 2 else (26, 20, 18)
        pixels = Pixels(dut, KINDS[seed % 4], shifts, seed >= 4, stalls)
        await pixels.start()
        words = [[random_word(dice) for _ in range(LANES)] for _ in range(64)]
        constants = [[random_constants(dice) for _ in range(LANES)] for _ in range(64)]
        pixels.frame(words, constants, True, True)
        await pixels.finish(64 * LANES)
        assert pixels.pixels() == bits_of(expected(words, constants, pixels, pixels.kind), pixels.kind)
        assert pixels.back.beats == []


@cocotb.test()
async def sums_of_frames(dut: Any) -> None:
    """Sums of several frames: unfinished sums go to memory and come back; the last frame gives the pixels."""
    for seed, frames in ((1, 2), (2, 5), (3, 1), (4, 3)):
        dice = random.Random(seed)
        stalls = tuple(randomly(0.3, 20 * seed + n) for n in range(5))
        pixels = Pixels(dut, KINDS[seed % 4], (26, 12, 10), False, stalls)
        await pixels.start()
        constants = [[random_constants(dice) for _ in range(LANES)] for _ in range(24)]
        sums: list[int] = []
        for frame in range(frames):
            words = [[random_word(dice) for _ in range(LANES)] for _ in range(24)]
            pixels.frame(words, constants, frame == 0, frame + 1 == frames)
            single = expected(words, constants, pixels, "int32")
            sums = [add(a, b) for a, b in zip(sums, single, strict=True)] if sums else single
            if frame + 1 < frames:
                while len(pixels.back.beats) < 24 * (frame + 1):
                    await pixels.bench.clock()
                back = pixels.back.beats[-24:]
                assert [v for (beat,) in back for v in unpacked(beat, 32, LANES)] == bits_of(sums, "int32")
                pixels.earlier.send(*back)
        await pixels.finish(24 * LANES)
        assert pixels.pixels() == bits_of([narrow(v, pixels.kind) for v in sums], pixels.kind)
        assert pixels.earlier.is_done() and pixels.constants.is_done()


@cocotb.test()
async def sums_at_the_limits(dut: Any) -> None:
    """Sums near the ends of int32 and of special values, whatever memory holds; rtl/vectors/sums.csv among them."""
    with (ROOT / "rtl/vectors/sums.csv").open() as lines:
        rows = [tuple(int(row[name]) for name in ("earlier", "pixel", "sum", *KINDS)) for row in csv.DictReader(lines)]
    dice = random.Random(5)
    for kind in KINDS:
        pixels = Pixels(dut, kind, (8, 2, 2))
        await pixels.start()
        # A G0 word with this pedestal and factor 1 gives any small pixel; the special ones come as words.
        earlier, words, wanted = [], [], []
        for before, pixel, total, *narrowed in rows:
            if -16000 < pixel < 0x3FFF or pixel == -2147483648:
                assert add(before, pixel) == total and [narrow(total, k) for k in KINDS] == narrowed
                earlier.append(before)
                words.append(pixel)
                wanted.append(narrowed[KINDS.index(kind)])
        while len(words) % LANES or len(words) < 900:
            before, pixel = random_sum(dice), dice.choice((-2147483648, *range(-9, 9)))
            earlier.append(before)
            words.append(pixel)
            wanted.append(narrow(add(before, pixel), kind))
        assert len(set(wanted)) > 100

        def constants(pixel: int) -> Constants:
            masked = pixel == -2147483648
            return Constants(((16000 if pixel < 0 else 0) << 8, 0, 0), (0 if masked else 1, 0, 0))

        for n in range(0, len(words), LANES):
            row = words[n : n + LANES]
            pixels.frame([[0 if p == -2147483648 else p + (16000 if p < 0 else 0) for p in row]], [[constants(p) for p in row]], False, True)
            pixels.earlier.send((packed(earlier[n : n + LANES], 32),))
        await pixels.finish(len(words))
        assert pixels.pixels() == bits_of(wanted, kind)


@cocotb.test()
async def a_stall_at_every_clock(dut: Any) -> None:
    """A stall at each clock of each stream."""
    dice = random.Random(6)
    words = [[random_word(dice) for _ in range(LANES)] for _ in range(20)]
    constants = [[random_constants(dice) for _ in range(LANES)] for _ in range(20)]
    for clock in range(0, 40):
        for which in (0, 1, 4):
            stalls = tuple(at(clock, 2 if which < 4 else 30) if n == which else never for n in range(5))
            pixels = Pixels(dut, "int16", (26, 20, 18), False, stalls)
            await pixels.start()
            pixels.frame(words, constants, True, True)
            await pixels.finish(20 * LANES)
            assert pixels.pixels() == bits_of(expected(words, constants, pixels, "int16"), "int16")


@cocotb.test()
async def a_reset_at_every_clock(dut: Any) -> None:
    """A reset in the midst of a frame: nothing of it comes out afterwards."""
    dice = random.Random(7)
    words = [[random_word(dice) for _ in range(LANES)] for _ in range(12)]
    constants = [[random_constants(dice) for _ in range(LANES)] for _ in range(12)]
    for clock in range(30):
        pixels = Pixels(dut, "int32", (26, 20, 18), False)
        await pixels.start()
        pixels.frame(words, constants, True, True)
        await pixels.bench.clock(clock)
        pixels = Pixels(dut, "int32", (26, 20, 18), False)
        await pixels.start()
        pixels.frame(words[:3], constants[:3], True, True)
        await pixels.finish(3 * LANES)
        assert pixels.pixels() == bits_of(expected(words[:3], constants[:3], pixels, "int32"), "int32")


@cocotb.test()
async def one_beat_per_clock(dut: Any) -> None:
    """Without stalls the clocks are counted."""
    dice = random.Random(8)
    words = [[random_word(dice) for _ in range(LANES)] for _ in range(1024)]
    constants = [[random_constants(dice) for _ in range(LANES)]] * 1024
    for kind in ("int16", "int32"):
        pixels = Pixels(dut, kind, (26, 20, 18))
        await pixels.start()
        pixels.frame(words, constants, True, True)
        await pixels.finish(1024 * LANES)
        assert pixels.pixels() == bits_of(expected(words, constants, pixels, kind), kind)
        clocks = pixels.words.taken_at[-1] - pixels.words.taken_at[0] + 1
        note("pixel_pipeline", case=kind, bytes=1024 * 64, clocks=clocks, latency_clocks=pixels.out.taken_at[0] - pixels.words.taken_at[0])
