"""The clock of a simulation, streams with stalls, and what a test notes for the summary.

A test drives inputs while the clock is low, looks at all signals after they have settled, and then lets the clock
rise. So valid and ready are seen exactly as the block sees them at the edge.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
from collections.abc import Callable, Iterable
from typing import Any

from cocotb.triggers import Timer

CLOCK_MHZ = 250.0
Stall = Callable[[int], bool]


def never(_: int) -> bool:
    """No stall at any clock."""
    return False


def at(clock: int, clocks: int = 1) -> Stall:
    """A stall at one clock, or at several from there on."""
    return lambda now: clock <= now < clock + clocks


def randomly(share: float, seed: int) -> Stall:
    """A stall at this share of the clocks, in runs of very different length."""
    dice = random.Random(seed)
    until, stalled = 0, False

    def stall(now: int) -> bool:
        nonlocal until, stalled
        while now >= until:
            stalled = dice.random() < share
            until += dice.choice((1, 1, 1, 2, 3, 7))
        return stalled

    return stall


class Source:
    """Drives a stream with beats, each a value for every field."""

    def __init__(self, dut: Any, prefix: str, fields: Iterable[str], stall: Stall = never, has_ready: bool = True) -> None:
        self.dut, self.prefix, self.fields, self.stall = dut, prefix, tuple(fields), stall
        self.valid = getattr(dut, f"{prefix}_valid")
        self.ready = getattr(dut, f"{prefix}_ready") if has_ready else None
        self.signals = [getattr(dut, f"{prefix}_{field}") for field in self.fields]
        self.beats: list[tuple[int, ...]] = []
        self.next = 0
        self.offered = False
        # What the block sees, so that only changes are written: a write takes as long as many a clock of the block.
        self.shown: tuple[bool, int] | None = None
        self.taken_at: list[int] = []

    def send(self, *beats: tuple[int, ...]) -> None:
        """Beats to send after those that wait."""
        self.beats.extend(beats)

    def drive(self, now: int) -> None:
        # A beat that was offered stays until it is taken.
        self.offered = self.next < len(self.beats) and (self.offered or not self.stall(now))
        show = (self.offered, self.next)
        if show == self.shown:
            return
        self.shown = show
        self.valid.value = int(self.offered)
        if self.offered:
            for signal, value in zip(self.signals, self.beats[self.next], strict=True):
                signal.value = value

    def sample(self, now: int) -> None:
        if self.offered and (self.ready is None or int(self.ready.value)):
            self.next += 1
            self.offered = False
            self.taken_at.append(now)

    def is_done(self) -> bool:
        return self.next == len(self.beats)


class Sink:
    """Takes a stream, and checks that a beat that waits does not change."""

    def __init__(self, dut: Any, prefix: str, fields: Iterable[str], stall: Stall = never, has_ready: bool = True) -> None:
        self.valid = getattr(dut, f"{prefix}_valid")
        self.ready = getattr(dut, f"{prefix}_ready") if has_ready else None
        self.signals = [getattr(dut, f"{prefix}_{field}") for field in fields]
        self.stall, self.is_ready = stall, True
        self.shown: bool | None = None
        self.beats: list[tuple[int, ...]] = []
        self.taken_at: list[int] = []
        self.waiting: tuple[int, ...] | None = None

    def drive(self, now: int) -> None:
        self.is_ready = self.ready is None or not self.stall(now)
        if self.ready is not None and self.is_ready != self.shown:
            self.ready.value = int(self.is_ready)
            self.shown = self.is_ready

    def sample(self, now: int) -> None:
        if not int(self.valid.value):
            assert self.waiting is None, f"clock {now}: a beat that waited was taken back"
            return
        beat = tuple(int(signal.value) for signal in self.signals)
        assert self.waiting in (None, beat), f"clock {now}: a beat that waited has changed"
        self.waiting = None if self.is_ready else beat
        if self.is_ready:
            self.beats.append(beat)
            self.taken_at.append(now)


class Bench:
    """One block with its streams."""

    def __init__(self, dut: Any, *parts: Source | Sink) -> None:
        self.dut, self.parts, self.now = dut, parts, 0
        self.resets: set[int] = set()
        self.resetting: bool | None = None

    async def reset(self) -> None:
        """Two clocks of reset before the first beat."""
        self.resetting = False
        for part in self.parts:
            part.shown = None
            if part.ready is not None and isinstance(part, Sink):
                part.ready.value = 0
            if isinstance(part, Source):
                part.valid.value = 0
        self.dut.rst.value = 1
        for _ in range(2):
            await self._edge()
        self.dut.rst.value = 0

    async def _edge(self) -> None:
        self.dut.clk.value = 0
        await Timer(2, "ns")
        self.dut.clk.value = 1
        await Timer(2, "ns")

    async def clock(self, count: int = 1) -> None:
        """So many clocks."""
        for _ in range(count):
            self.dut.clk.value = 0
            resetting = self.now in self.resets
            if resetting != self.resetting:
                self.dut.rst.value = int(resetting)
                self.resetting = resetting
            for part in self.parts:
                part.drive(self.now)
            await Timer(2, "ns")
            for part in self.parts:
                if resetting and isinstance(part, Sink):
                    part.waiting = None
                    continue
                part.sample(self.now)
            self.now += 1
            self.dut.clk.value = 1
            await Timer(2, "ns")

    async def until(self, is_done: Callable[[], bool], clocks_max: int = 200_000) -> None:
        """Clocks until something is so."""
        for _ in range(clocks_max):
            if is_done():
                return
            await self.clock()
        if mark := os.environ.get("RTL_FAULT"):
            # A source with a fault (faults.py): it is found, and the other tests need not wait for it too.
            pathlib.Path(mark).write_text("something has no end")
            os._exit(0)
        raise AssertionError(f"not done after {clocks_max} clocks")


async def write_tables(bench: Bench, registers: dict[str, int], tables: Iterable[tuple[int, int, int]], write: int = 1) -> None:
    """Registers, a reset, tables through the port cfg_write, and the clocks in which the block clears its memories: the
    next clock is number 0."""
    dut = bench.dut
    for name in ("cfg_write", "release_valid", "flush"):
        if hasattr(dut, name):
            getattr(dut, name).value = 0
    for name, value in registers.items():
        getattr(dut, f"cfg_{name}").value = value
    await bench.reset()
    dut.cfg_write.value = write
    for select, row, value in tables:
        dut.cfg_select.value, dut.cfg_address.value, dut.cfg_data.value = select, row, value
        await bench.clock()
    dut.cfg_write.value = 0
    await bench.clock(260)
    bench.now = 0


def note(block: str, **facts: Any) -> None:
    """Notes measured facts of a block for the summary of scripts/rtl."""
    path = pathlib.Path(os.environ.get("RTL_NOTES", "notes.jsonl"))
    with path.open("a") as out:
        out.write(json.dumps({"block": block, **facts}) + "\n")


def beats_of(data: bytes, beat_bytes: int = 64) -> list[bytes]:
    """The pieces of a packet, the last one maybe shorter."""
    return [data[at : at + beat_bytes] for at in range(0, len(data), beat_bytes)]


def number(data: bytes) -> int:
    """Bytes as the number whose lowest byte is the first one."""
    return int.from_bytes(data, "little")


def data(value: int, count: int) -> bytes:
    """The other way round."""
    return value.to_bytes(max(count, (value.bit_length() + 7) // 8), "little")[:count]
