"""four_receivers: four lines into one memory, each with its own model; turns, stalls, a line that overflows."""

from __future__ import annotations

import itertools
import random
from typing import Any

import cocotb
import model_place
import model_udp
from bench import Bench, Sink, Source, Stall, beats_of, data, never, note, number, randomly, write_tables
from model_place import Closed, Datagram, Model, traffic
from model_udp import ADDRESS_V4, ADDRESS_V6, Frame, judge, random_frame
from program import Program, shipped

PROGRAMS = shipped()
LINES = 4


class Four:
    """The block, its memory, and a model of each line."""

    def __init__(self, dut: Any, name: str, first: int, gaps: tuple[Stall, ...] = (never,) * LINES, stalls: Stall = never, waits: Stall = never) -> None:
        self.dut, self.name, self.program = dut, name, PROGRAMS[name]
        self.models = [Model(self.program, first) for _ in range(LINES)]
        self.lines = [Source(dut, f"s{n}", ("data", "keep", "last", "error"), gaps[n], has_ready=False) for n in range(LINES)]
        self.writes = Sink(dut, "m", ("data", "address", "first", "last", "pipeline"), stalls)
        self.events = Sink(dut, "e", ("mask", "image", "slot", "missing", "last", "pipeline"), waits)
        self.bench = Bench(dut, *self.lines, self.writes, self.events)
        self.memory: dict[int, bytes] = {}
        self.frames: list[list[str]] = [[] for _ in range(LINES)]
        self.packets: list[list[str]] = [[] for _ in range(LINES)]
        self.bytes = 0

    def base(self, line: int) -> int:
        """Where the slots of a line begin."""
        return line << 36

    async def start(self) -> None:
        """Registers, and the same tables for all lines."""
        registers = self.program.registers() | {
            "v4": 1, "v6": 1, "address_v4": int(ADDRESS_V4), "address_v6": int(ADDRESS_V6), "port_first": self.program.port_first, "streams": 4,
            "first_frame": self.models[0].first, "bases": sum(self.base(n) << 48 * n for n in range(LINES)),
        }
        del registers["base"]
        await write_tables(self.bench, registers, self.program.tables(), 15)

    def send(self, line: int, frame: bytes, damaged: bool = False) -> None:
        """Sends a frame on a line, and asks the models what it writes."""
        self.bytes += len(frame)
        pieces = beats_of(frame)
        for n, piece in enumerate(pieces):
            self.lines[line].send((number(piece), (1 << len(piece)) - 1, n + 1 == len(pieces), n + 1 == len(pieces) and damaged))
        verdict = judge(frame, damaged)
        self.frames[line].append(verdict.name)
        if verdict.name == "taken":
            packet, segments = self.models[line].packet(model_udp.PORT_FIRST + verdict.stream, verdict.payload)
            self.packets[line].append(packet)
            for source, address, count in segments:
                for offset in range(0, count, 64):
                    self.memory[self.base(line) + address + offset] = verdict.payload[source + offset : source + offset + 64]

    def frame_of(self, datagram: Datagram) -> Frame:
        """The frame of a datagram."""
        return Frame(datagram.bytes(self.program), stream=datagram.port - self.program.port_first)

    def send_frames(self, line: int, first: int, frames: int) -> None:
        """Whole frames of the detector on a line."""
        for frame in range(first, first + frames):
            for packet in range(self.program.packets):
                for tile in self.program.tiles:
                    self.send(line, self.frame_of(Datagram(tile["port"], frame, packet, 3 if self.name.startswith("j") else 1)).bytes())

    async def finish(self) -> None:
        """Until nothing moves any more."""
        await self.bench.until(lambda: all(line.is_done() for line in self.lines), 400_000)
        quiet = (-1, -1)
        while quiet != (len(self.writes.beats), len(self.events.beats)):
            quiet = (len(self.writes.beats), len(self.events.beats))
            await self.bench.clock(500)

    def counters(self, line: int) -> tuple[list[int], list[int]]:
        """Verdicts of the frames and of the packets of a line."""
        frames, packets = int(self.dut.frame_counters.value) >> 288 * line, int(self.dut.packet_counters.value) >> 320 * line
        return [frames >> 32 * n & 0xFFFFFFFF for n in range(9)], [packets >> 32 * n & 0xFFFFFFFF for n in range(10)]

    def check_turns(self) -> list[int]:
        """Packets and events are not mixed; a pipeline that waits gets its turn behind one packet of each other at most.
        Returns the pipelines of the packets in order."""
        turns = []
        for beats in (self.writes.beats, self.events.beats):
            inside: int | None = None
            for *_, last, pipeline in beats:
                assert inside in (None, pipeline), "a packet or frame is cut by another"
                inside = None if last else pipeline
                if last and beats is self.writes.beats:
                    turns.append(pipeline)
            assert inside is None
        return turns

    def check(self) -> None:
        """Memory, frames and counters of every line are those of its model."""
        self.check_turns()
        assert {address: data(beat, 64) for beat, address, *_ in self.writes.beats} == self.memory
        for line, model in enumerate(self.models):
            assert self.closed(line) == model.closed, f"line {line}"
            frames, packets = self.counters(line)
            assert frames == [self.frames[line].count(name) for name in model_udp.CODES]
            assert packets == [self.packets[line].count(name) for name in model_place.CODES]

    def closed(self, line: int) -> list[Closed]:
        """Finished frames of a line, of their events."""
        found, masks = [], []
        for mask, image, slot, missing, last, pipeline in self.events.beats:
            if pipeline == line:
                masks.append(mask)
                if last:
                    found.append(Closed(image, slot, missing, tuple(masks)))
                    masks = []
        return found


@cocotb.test()
async def four_bad_lines(dut: Any) -> None:
    """Losses, disorder, wrong and foreign frames on each line, with random gaps and stalls: no line changes another."""
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAMS["eiger-4bit"].port_first, 4
    for seed, stall in ((1, 0.0), (2, 0.2)):
        four = Four(dut, "eiger-4bit", 500, tuple(randomly(0.86, seed + n) for n in range(LINES)), randomly(stall, seed + 5), randomly(stall, 9))
        await four.start()
        dice = random.Random(seed)
        for line in range(LINES):
            for datagram in traffic("eiger-4bit", four.program, 10 * seed + line, 3, 500):
                if dice.random() < 0.1:
                    four.send(line, random_frame(dice), damaged=dice.random() < 0.2)
                four.send(line, four.frame_of(datagram).bytes(), damaged=dice.random() < 0.02)
        await four.finish()
        four.check()
        assert len({tuple(packets) for packets in four.packets}) == LINES
        for model in four.models:
            model.flush()
        dut.flush.value = 1
        await four.finish()
        dut.flush.value = 0
        four.check()


@cocotb.test()
async def every_line_gets_its_turn(dut: Any) -> None:
    """Four lines without gaps send four times what the memory takes: each gets a quarter, in turns, and what finds its
    buffer full is counted on its own line."""
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAMS["eiger-4bit"].port_first, 4
    four = Four(dut, "eiger-4bit", 1)
    await four.start()
    for line in range(LINES):
        four.send_frames(line, 1, 4)
    await four.finish()
    turns = four.check_turns()
    counts = [four.counters(line) for line in range(LINES)]
    for frames, packets in counts:
        assert sum(frames) == 4 * 64 and frames[0] + frames[7] == 4 * 64 and sum(packets) == frames[0]
        assert frames[7] > 50, "most find no room"
    taken = [frames[0] for frames, _ in counts]
    assert max(taken) - min(taken) <= 2, taken
    busy = turns[: 4 * (min(taken) - 2)]
    assert all(sorted(busy[n : n + 4]) == [0, 1, 2, 3] for n in range(8, len(busy) - 8, 4)), "turns"
    clocks = four.writes.taken_at[-1] - four.writes.taken_at[0] + 1
    note("four_receivers", case="four lines without gaps", bytes=64 * len(four.writes.beats), clocks=clocks, packets_of_each_line=min(taken))


@cocotb.test()
async def one_line_is_not_slowed_by_the_idle_ones(dut: Any) -> None:
    """One line alone has the whole port; beside it a line of another time."""
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAMS["eiger-4bit"].port_first, 4
    four = Four(dut, "eiger-4bit", 1)
    await four.start()
    four.send_frames(2, 1, 3)
    await four.finish()
    four.check()
    clocks = max(four.lines[2].taken_at[-1], four.writes.taken_at[-1]) - four.lines[2].taken_at[0] + 1
    note("four_receivers", case="one line", bytes=four.bytes, clocks=clocks)


@cocotb.test()
async def as_fast_as_the_memory(dut: Any) -> None:
    """Four lines at a quarter of the rate each: nothing is dropped, and the clocks are counted."""
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAMS["jungfrau-1"].port_first, 4
    # 130 beats of a frame of 8282 bytes, and 4 x 130 clocks for four of them, on each line at another time.
    gaps = tuple((lambda now, n=n: (now - 130 * n) % 532 >= 130) for n in range(LINES))
    four = Four(dut, "jungfrau-1", 1, gaps)
    await four.start()
    for line in range(LINES):
        for packet in range(40):
            four.send(line, four.frame_of(Datagram(50010, 1, packet, 3)).bytes())
    await four.finish()
    four.check()
    clocks = four.writes.taken_at[-1] - min(line.taken_at[0] for line in four.lines) + 1
    note("four_receivers", case="four lines at a quarter", bytes=four.bytes, clocks=clocks)


@cocotb.test()
async def a_memory_that_stalls_for_long(dut: Any) -> None:
    """While the memory takes nothing, each line fills its own buffer; what is lost then is no_room, and all counters of
    each line add up with its frames."""
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAMS["eiger-4bit"].port_first, 4
    four = Four(dut, "eiger-4bit", 1, tuple(randomly(0.8, n) for n in range(LINES)), lambda now: 600 < now < 6000)
    await four.start()
    for line in range(LINES):
        four.send_frames(line, 1, 2)
    await four.finish()
    dut.flush.value = 1
    await four.finish()
    dut.flush.value = 0
    four.check_turns()
    for line in range(LINES):
        frames, packets = four.counters(line)
        assert frames[7] > 0 and frames[0] == packets[0] and frames[0] + frames[7] == 2 * 64
        assert sum(64 - closed.missing for closed in four.closed(line)) == packets[0]


@cocotb.test()
async def a_reset_at_many_clocks(dut: Any) -> None:
    """A reset while packets of all lines are on their way: nothing of them is left."""
    model_udp.PORT_FIRST, model_udp.STREAMS = PROGRAMS["eiger-4bit"].port_first, 4
    for clock in itertools.chain(range(60, 130, 17), (300,)):
        four = Four(dut, "eiger-4bit", 1)
        await four.start()
        for line in range(LINES):
            four.send_frames(line, 1, 1)
        await four.bench.clock(clock)
        gaps = tuple(randomly(0.8, n) for n in range(LINES))
        four = Four(dut, "eiger-4bit", 7, gaps)
        await four.start()
        for line in range(LINES):
            for datagram in [Datagram(50020 + tile, 7, packet, 1) for packet in range(3) for tile in range(4)]:
                four.send(line, four.frame_of(datagram).bytes())
        await four.finish()
        four.check()
