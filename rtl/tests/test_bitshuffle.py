"""bitshuffle: against its definition and the vectors of the program."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import cocotb
from bench import Bench, Sink, Source, Stall, at, beats_of, data, never, note, number, randomly
from model_pixels import shuffle

VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors"
BLOCK = 8192


class Shuffle:
    """The block with its streams."""

    def __init__(self, dut: Any, gaps: Stall = never, stalls: Stall = never) -> None:
        self.source, self.sink = Source(dut, "s", ("data",), gaps), Sink(dut, "m", ("data", "last"), stalls)
        self.bench = Bench(dut, self.source, self.sink)

    def send(self, pixels: bytes) -> None:
        """Pixels of whole blocks."""
        self.source.send(*((number(piece),) for piece in beats_of(pixels)))

    async def run(self, pixels: bytes) -> None:
        """Shuffles blocks and compares."""
        await self.bench.reset()
        self.bench.now = 0
        self.send(pixels)
        await self.bench.until(lambda: len(self.sink.beats) >= len(pixels) // 64)
        await self.bench.clock(10)
        found = b"".join(data(beat, 64) for beat, _ in self.sink.beats)
        assert found == b"".join(shuffle(pixels[at : at + BLOCK]) for at in range(0, len(pixels), BLOCK))
        assert [n for n, (_, last) in enumerate(self.sink.beats) if last] == list(range(127, len(pixels) // 64, 128))


@cocotb.test()
async def vectors(dut: Any) -> None:
    """Four blocks whose shuffled bytes a Rust test compares with the program."""
    pixels, shuffled = (VECTORS / "pixels.bin").read_bytes(), (VECTORS / "pixels-shuffled.bin").read_bytes()
    assert len(pixels) == 4 * BLOCK
    shuffle_ = Shuffle(dut)
    await shuffle_.run(pixels)
    assert b"".join(data(beat, 64) for beat, _ in shuffle_.sink.beats) == shuffled


@cocotb.test()
async def single_bits(dut: Any) -> None:
    """One bit in a block of zeros, at many places."""
    dice = random.Random(1)
    blocks = []
    for _ in range(24):
        block = bytearray(BLOCK)
        block[dice.randrange(BLOCK)] = 1 << dice.randrange(8)
        blocks.append(bytes(block))
    await Shuffle(dut).run(b"".join(blocks))


@cocotb.test()
async def random_stalls(dut: Any) -> None:
    """Random pixels with stalls of different density on both sides."""
    for seed, gap, stall in ((1, 0.3, 0.3), (2, 0.0, 0.6), (3, 0.6, 0.0)):
        await Shuffle(dut, randomly(gap, seed), randomly(stall, seed + 9)).run(random.Random(seed).randbytes(5 * BLOCK))


@cocotb.test()
async def a_stall_at_every_clock(dut: Any) -> None:
    """A stall at each clock of a block and around it."""
    pixels = random.Random(4).randbytes(2 * BLOCK)
    for clock in range(0, 400, 7):
        await Shuffle(dut, at(clock, 2) if clock % 2 else never, at(clock, 3)).run(pixels)


@cocotb.test()
async def a_reset_at_every_clock(dut: Any) -> None:
    """A reset in the midst of a block: the next block is whole."""
    pixels = random.Random(5).randbytes(2 * BLOCK)
    for clock in range(0, 280, 9):
        shuffle_ = Shuffle(dut)
        await shuffle_.bench.reset()
        shuffle_.send(pixels)
        await shuffle_.bench.clock(clock)
        await Shuffle(dut).run(pixels[BLOCK:])


@cocotb.test()
async def one_beat_per_clock(dut: Any) -> None:
    """Without stalls the clocks are counted."""
    shuffle_ = Shuffle(dut)
    await shuffle_.run(random.Random(6).randbytes(16 * BLOCK))
    clocks = shuffle_.source.taken_at[-1] - shuffle_.source.taken_at[0] + 1
    note("bitshuffle", case="16 blocks", bytes=16 * BLOCK, clocks=clocks, latency_clocks=shuffle_.sink.taken_at[0])
