"""loss_detector: against sets of numbers (model_loss.py) and the vectors of the program."""

from __future__ import annotations

import csv
import pathlib
from typing import Any

import cocotb
from bench import Bench, Sink, Source, Stall, at, never, note, randomly
from model_loss import CODES, Event, Model, traffic

VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors"


class Detector:
    """The block with its streams, beside the model."""

    def __init__(self, dut: Any, bits: int, first: int | None, gaps: Stall = never, stalls: Stall = never) -> None:
        self.dut, self.model = dut, Model(bits, first)
        self.source = Source(dut, "s", ("number", "drain", "has_last"), gaps)
        self.verdicts = Sink(dut, "v", ("code",), has_ready=False)
        self.runs = Sink(dut, "l", ("from", "to"), stalls)
        self.bench = Bench(dut, self.source, self.verdicts, self.runs)
        self.expected: list[str] = []
        self.lost: list[tuple[int, int]] = []

    async def start(self) -> None:
        """Configures and waits until the register is clear."""
        self.dut.cfg_bits24.value = int(self.model.bits == 24)
        self.dut.cfg_has_first.value = int(self.model.first is not None)
        self.dut.cfg_first.value = self.model.first or 0
        await self.bench.reset()
        await self.bench.clock(1030)
        self.bench.now = 0

    def send(self, event: Event) -> None:
        """Sends a packet or a drain."""
        self.source.send((event.number, event.drain, event.last))
        verdict, runs = self.model.event(event)
        if not event.drain:
            self.expected.append(verdict)
        self.lost += runs

    async def finish(self) -> None:
        """Waits for everything and compares."""
        await self.bench.until(self.source.is_done, 400_000)
        await self.bench.clock(4)
        await self.bench.until(lambda: bool(int(self.dut.is_idle.value)), 10_000)
        await self.bench.clock(4)
        assert [CODES[code] for (code,) in self.verdicts.beats] == self.expected
        assert self.runs.beats == self.lost
        counts = {name: int(getattr(self.dut, f"count_{name}").value) for name in ("new", "gap", "duplicate", "late", "lost")}
        assert counts["new"] == self.expected.count("new") + self.expected.count("gap")
        assert all(counts[name] == self.expected.count(name) for name in ("gap", "duplicate", "late"))
        assert counts["lost"] == self.model.lost == sum(end - start for start, end in self.lost)
        # New and lost are all positions up to the newest that was tested.
        assert counts["new"] + counts["duplicate"] + counts["late"] == len(self.expected)


@cocotb.test()
async def single_losses_by_hand(dut: Any) -> None:
    """Number 3 and 5 of 0..600 are missing: they are found with 514 and 516, and the end with a drain."""
    detector = Detector(dut, 32, 0)
    await detector.start()
    for number in (n for n in range(601) if n not in (3, 5, 599)):
        detector.send(Event(number))
    assert detector.lost == [(3, 4), (5, 6)]
    detector.send(Event(5))
    detector.send(Event(602, True, True))
    await detector.finish()
    assert detector.runs.beats == [(3, 4), (5, 6), (599, 600), (601, 603)]
    assert detector.expected[-1] == "late"


@cocotb.test()
async def vectors(dut: Any) -> None:
    """The packets of rtl/vectors/loss.csv, whose verdicts and losses a Rust test compares with the program."""
    with (VECTORS / "loss.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    detector = Detector(dut, int(rows[0]["bits"]), int(rows[0]["first"]))
    await detector.start()
    for row in rows:
        detector.send(Event(int(row["number"]), row["drain"] == "1", row["last"] == "1"))
        assert row["verdict"] in ("drain", detector.expected[-1])
    assert len(rows) > 1500 and {"new", "gap", "duplicate", "late"} <= set(detector.expected)
    await detector.finish()


@cocotb.test()
async def random_links_and_stalls(dut: Any) -> None:
    """Both widths, over their wrap, with and without a first number, random stalls on both sides."""
    cases = ((1, 24, (1 << 24) - 900, True, 0.0), (2, 32, (1 << 32) - 900, True, 0.3), (3, 24, 5, False, 0.5), (4, 32, 7, False, 0.2))
    for seed, bits, first, known, stall in cases:
        detector = Detector(dut, bits, first if known else None, randomly(stall, seed), randomly(stall, seed + 9))
        await detector.start()
        for event in traffic(seed, 2000, bits, first):
            detector.send(event)
        await detector.finish()
        assert {"new", "gap", "duplicate", "late"} <= set(detector.expected)


@cocotb.test()
async def losses_that_nobody_takes(dut: Any) -> None:
    """The output stands still: packets wait, and no run is lost."""
    detector = Detector(dut, 32, 0, never, at(0, 4000))
    await detector.start()
    for number in range(0, 1400, 2):
        detector.send(Event(number))
    detector.send(Event(0, True))
    await detector.finish()
    assert len(detector.lost) == 699


@cocotb.test()
async def a_stall_at_every_clock(dut: Any) -> None:
    """A stall at each clock of each side, around losses, a gap and a drain."""
    for clock in range(0, 60):
        detector = Detector(dut, 32, 0, at(clock, 2) if clock % 2 else never, at(clock, 60))
        await detector.start()
        for number in (0, 1, 3, 3, 2, 8, 530, 523):
            detector.send(Event(number))
        detector.send(Event(0, True))
        await detector.finish()


@cocotb.test()
async def a_reset_at_every_clock(dut: Any) -> None:
    """A reset inside of a jump: nothing is left of the flow before."""
    for clock in range(0, 80, 2):
        detector = Detector(dut, 32, 0)
        await detector.start()
        for number in (0, 4, 30, 560):
            detector.send(Event(number))
        await detector.bench.clock(clock)
        detector = Detector(dut, 32, 0)
        await detector.start()
        for number in (0, 2, 4, 600):
            detector.send(Event(number))
        await detector.finish()


@cocotb.test()
async def clocks_of_a_packet(dut: Any) -> None:
    """Packets in order: the clocks are counted, as if each had 4096 bytes."""
    detector = Detector(dut, 24, 0)
    await detector.start()
    for number in range(1500):
        detector.send(Event(number))
    await detector.finish()
    clocks = detector.source.taken_at[-1] - detector.source.taken_at[0] + 1
    note("loss_detector", case="packets of 4096 bytes in order", bytes=1500 * 4096, clocks=clocks, clocks_per_packet=round(clocks / 1500, 2))
