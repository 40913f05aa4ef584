"""pedestal_track: against its rule in whole numbers, and against the rule of the program in single precision."""

from __future__ import annotations

import random
import struct
from typing import Any

import cocotb
from bench import Bench, Sink, Source, Stall, at, never, note, randomly

LANES = 32
Pixel = tuple[int, int]  # pedestal in ADU x 65536, gate in ADU x 4


def moved(word: int, pedestal: int, gate: int, window: int) -> int:
    """The pedestal after a word."""
    distance = (word << 16) - pedestal
    if word >= 0x4000 or gate == 0 or abs(distance) > gate << 14:
        return pedestal
    return pedestal + ((2 * distance >> window) + 1 >> 1)


def for_conversion(pedestal: int) -> int:
    """22 bits of it."""
    return min(pedestal + 128 >> 8, (1 << 22) - 1)


def single(value: float) -> float:
    """Rounded to single precision."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def moved_by_program(word: int, pedestal: float, gate: float, weight: float) -> float:
    """crates/kernels/src/convert/tracking.rs: one rounding to single precision for each operation."""
    distance = single((word & 0x3FFF) - pedestal)
    return single(pedestal + single(distance * weight)) if word < 0x4000 and abs(distance) <= gate else pedestal


class Track:
    """The block with its streams."""

    def __init__(self, dut: Any, window: int, *stalls: Stall) -> None:
        stalls = stalls or (never,) * 4
        self.dut, self.window = dut, window
        self.words, self.pixels = Source(dut, "s", ("data",), stalls[0]), Source(dut, "p", ("data",), stalls[1])
        self.out, self.new = Sink(dut, "m", ("data", "pedestals"), stalls[2]), Sink(dut, "n", ("data",), stalls[3])
        self.bench = Bench(dut, self.words, self.pixels, self.out, self.new)
        self.expected: list[tuple[list[int], list[Pixel]]] = []

    async def start(self) -> None:
        """Configures and resets."""
        self.dut.cfg_window.value = self.window
        await self.bench.reset()
        self.bench.now = 0

    def send(self, words: list[int], pixels: list[Pixel]) -> list[int]:
        """Sends a beat; returns the pedestals after it."""
        self.words.send((sum(word << 16 * n for n, word in enumerate(words)),))
        self.pixels.send((sum((gate << 30 | pedestal) << 46 * n for n, (pedestal, gate) in enumerate(pixels)),))
        self.expected.append((words, pixels))
        return [moved(word, pedestal, gate, self.window) for word, (pedestal, gate) in zip(words, pixels, strict=True)]

    async def finish(self) -> None:
        """Waits for all beats and compares them."""
        count = len(self.expected)
        await self.bench.until(lambda: len(self.out.beats) >= count and len(self.new.beats) >= count)
        await self.bench.clock(8)
        assert len(self.out.beats) == len(self.new.beats) == count
        for (words, pixels), (out, pedestals), (new,) in zip(self.expected, self.out.beats, self.new.beats, strict=True):
            assert [out >> 16 * n & 0xFFFF for n in range(LANES)] == words
            assert [pedestals >> 22 * n & 0x3FFFFF for n in range(LANES)] == [for_conversion(p) for p, _ in pixels]
            assert [new >> 30 * n & 0x3FFFFFFF for n in range(LANES)] == [
                moved(word, pedestal, gate, self.window) for word, (pedestal, gate) in zip(words, pixels, strict=True)
            ]


def random_beat(dice: random.Random) -> tuple[list[int], list[Pixel]]:
    """Words near the pedestal, at the gate, or anywhere."""
    words, pixels = [], []
    for _ in range(LANES):
        pedestal = dice.choice((0, (1 << 30) - 1, dice.randrange(1 << 30), dice.randrange(2500 << 16, 3500 << 16)))
        gate = dice.choice((0, 1, 65535, dice.randrange(400)))
        near = (pedestal >> 16) + dice.choice((0, gate >> 2, -(gate >> 2), (gate >> 2) + 1, dice.randrange(-90, 90)))
        words.append(dice.choice((min(max(near, 0), 0x3FFF), dice.randrange(1 << 16))))
        pixels.append((pedestal, gate))
    return words, pixels


@cocotb.test()
async def random_words_and_stalls(dut: Any) -> None:
    """Every window, words at the gate and far from it, random stalls on every stream."""
    for window in range(13):
        stall = 0.0 if window == 7 else 0.3
        track = Track(dut, window, *(randomly(stall, 10 * window + n) for n in range(4)))
        await track.start()
        dice = random.Random(window)
        for _ in range(60):
            track.send(*random_beat(dice))
        await track.finish()


@cocotb.test()
async def as_near_as_single_precision(dut: Any) -> None:
    """A drift of 40 ADU in 1500 frames with noise and photons: the pedestals stay within 0.03 ADU of the program's."""
    dice = random.Random(3)
    track = Track(dut, 7)
    await track.start()
    true = [dice.uniform(2500, 3500) for _ in range(LANES)]
    fixed = [round(adu) << 16 for adu in true]
    floats = [float(round(adu)) for adu in true]
    for frame in range(1500):
        drift = 40 * frame / 1500
        words = [round(adu + drift + dice.gauss(0, 5) + (500 if dice.random() < 0.1 else 0)) for adu in true]
        fixed = track.send(words, [(pedestal, 80) for pedestal in fixed])
        floats = [moved_by_program(word, pedestal, 20.0, 1 / 128) for word, pedestal in zip(words, floats, strict=True)]
    await track.finish()
    worst = max(abs(a / 65536 - b) for a, b in zip(fixed, floats, strict=True))
    assert worst < 0.03, worst
    assert all(abs(b - (adu + 40)) < 8 for b, adu in zip(floats, true, strict=True))


@cocotb.test()
async def a_stall_at_every_clock(dut: Any) -> None:
    """A stall at each clock of each stream."""
    dice = random.Random(4)
    beats = [random_beat(dice) for _ in range(8)]
    for clock in range(16):
        for which in range(4):
            track = Track(dut, 5, *(at(clock, 3) if n == which else never for n in range(4)))
            await track.start()
            for beat in beats:
                track.send(*beat)
            await track.finish()


@cocotb.test()
async def a_reset_at_every_clock(dut: Any) -> None:
    """A reset among beats: none of them comes out later."""
    dice = random.Random(5)
    for clock in range(16):
        track = Track(dut, 5)
        await track.start()
        for _ in range(9):
            track.send(*random_beat(dice))
        await track.bench.clock(clock)
        track = Track(dut, 5)
        await track.start()
        track.send(*random_beat(dice))
        await track.finish()


@cocotb.test()
async def one_beat_per_clock(dut: Any) -> None:
    """Without stalls the clocks are counted."""
    track = Track(dut, 7)
    await track.start()
    beat = random_beat(random.Random(6))
    for _ in range(1000):
        track.send(*beat)
    await track.finish()
    clocks = track.words.taken_at[-1] - track.words.taken_at[0] + 1
    note("pedestal_track", case="1000 beats", bytes=64_000, clocks=clocks, latency_clocks=track.out.taken_at[0] - track.words.taken_at[0])
