"""place: the bridge programs of the repository and their frames, against crates/fabric/src/bridge (model_place.py)."""

from __future__ import annotations

import csv
import pathlib
from typing import Any

import cocotb
from bench import Bench, Sink, Source, Stall, at, beats_of, data, never, note, number, randomly, write_tables
from model_place import CODES, Closed, Datagram, Model, traffic
from program import Program, shipped

VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors"
PROGRAMS = shipped()


class Place:
    """The block with its streams, beside the model."""

    def __init__(self, dut: Any, name: str, first: int = 1, gaps: Stall = never, stalls: Stall = never, waits: Stall = never) -> None:
        self.dut, self.program = dut, PROGRAMS[name]
        self.model = Model(self.program, first)
        self.source = Source(dut, "s", ("data", "last", "stream", "payload_bytes"), gaps)
        self.writes = Sink(dut, "m", ("data", "address", "first", "last"), stalls)
        self.events = Sink(dut, "e", ("mask", "image", "slot", "missing", "last"), waits)
        self.verdicts = Sink(dut, "v", ("code",), has_ready=False)
        self.bench = Bench(dut, self.source, self.writes, self.events, self.verdicts)
        self.expected: list[str] = []
        self.expected_writes: list[tuple[int, bytes, bool]] = []

    async def start(self) -> None:
        """Writes tables and registers."""
        await write_tables(self.bench, self.program.registers() | {"first_frame": self.model.first}, self.program.tables())

    def send(self, datagram: Datagram) -> None:
        """Sends a datagram, and asks the model what becomes of it."""
        whole = datagram.bytes(self.program)
        stream = (datagram.port - self.program.port_first) % 16
        pieces = beats_of(whole)
        for n, piece in enumerate(pieces):
            self.source.send((number(piece), n + 1 == len(pieces), stream, len(whole)))
        verdict, segments = self.model.packet(datagram.port, whole)
        self.expected.append(verdict)
        for n, (source, address, count) in enumerate(segments):
            for offset in range(0, count, 64):
                last = n + 1 == len(segments) and offset + 64 == count
                self.expected_writes.append((address + offset, whole[source + offset : source + offset + 64], last))

    async def finish(self) -> None:
        """Waits for all verdicts, writes and events."""
        await self.bench.until(lambda: self.source.is_done() and len(self.verdicts.beats) >= len(self.expected))
        await self.bench.until(lambda: len(self.writes.beats) >= len(self.expected_writes))
        masks = len(self.model.closed) * len(self.program.tiles)
        await self.bench.until(lambda: len(self.events.beats) >= masks)
        await self.bench.clock(60)

    async def release(self) -> None:
        """Gives back one frame, in logic and model."""
        self.dut.release_valid.value = 1
        await self.bench.clock()
        self.dut.release_valid.value = 0
        self.model.release()

    async def flush(self) -> None:
        """The run ends, in logic and model."""
        self.model.flush()
        self.dut.flush.value = 1
        await self.finish()
        self.dut.flush.value = 0

    def closed(self) -> list[Closed]:
        """Finished frames, of their events."""
        frames, masks = [], []
        for mask, image, slot, missing, last in self.events.beats:
            masks.append(mask)
            if last:
                frames.append(Closed(image, slot, missing, tuple(masks)))
                masks = []
        assert not masks
        return frames

    def check(self) -> None:
        """Verdicts, addresses, bytes, frames and counters are those of the model."""
        assert [CODES[code] for (code,) in self.verdicts.beats] == self.expected
        found = [(address, data(beat, 64), bool(last)) for beat, address, _, last in self.writes.beats]
        assert found == self.expected_writes
        addresses = [address for _, address, _, _ in self.writes.beats]
        assert all(
            first or address == before + 64 for before, (_, address, first, _) in zip(addresses, self.writes.beats[1:], strict=False)
        )
        assert self.closed() == self.model.closed
        counters = int(self.dut.counters.value)
        counts = [counters >> 32 * code & 0xFFFFFFFF for code in range(len(CODES))]
        assert counts == [self.expected.count(name) for name in CODES]

    def check_order(self) -> None:
        """The event of a frame comes behind the last byte that its packets write."""
        beats_before = {}
        for n, (_, address, _, _) in enumerate(self.writes.beats):
            beats_before[address // self.program.toml["slot_bytes"]] = self.writes.taken_at[n]
        for (_, _, slot, _, last), clock in zip(self.events.beats, self.events.taken_at, strict=True):
            if last and len(self.closed()) <= 64:
                assert clock > beats_before[slot]


def whole_frame(name: str, frame: int) -> list[Datagram]:
    """All packets of a frame, in order."""
    program = PROGRAMS[name]
    kind = 3 if name.startswith("jungfrau") else 1
    return [Datagram(tile["port"], frame, packet, kind) for packet in range(program.packets) for tile in program.tiles]


@cocotb.test()
async def every_program_places_every_byte_once(dut: Any) -> None:
    """A whole frame of each program: every byte of the slot is written once, and the frame is complete."""
    for name, program in PROGRAMS.items():
        place = Place(dut, name, 77, randomly(0.1, 1), randomly(0.1, 2))
        await place.start()
        for datagram in whole_frame(name, 77):
            place.send(datagram)
        await place.finish()
        place.check()
        slot = 77 % 64 * program.toml["slot_bytes"]
        addresses = sorted(address for _, address, _, _ in place.writes.beats)
        assert addresses == list(range(slot, slot + program.toml["slot_bytes"], 64)), name
        assert [(f.image, f.missing) for f in place.closed()] == [(0, 0)]
        place.check_order()


@cocotb.test()
async def bad_links_and_wrong_packets(dut: Any) -> None:
    """Losses, repeats, disorder, every kind of wrong packet, and random stalls on all sides."""
    for name, seed, stall, frames in (("eiger-4bit", 1, 0.0, 20), ("eiger-4bit", 2, 0.3, 12), ("eiger-8bit", 3, 0.2, 6), ("jungfrau-2", 4, 0.15, 3)):
        first = (1 << 48) - 5 if seed == 3 else 1000 * seed
        place = Place(dut, name, first, randomly(stall, seed), randomly(stall, seed + 10), randomly(stall, seed + 20))
        await place.start()
        for datagram in traffic(name, place.program, seed, frames, first):
            place.send(datagram)
        await place.finish()
        place.check()
        place.check_order()
        assert len(set(place.expected)) >= 8, set(place.expected)


@cocotb.test()
async def vectors(dut: Any) -> None:
    """The packets of rtl/vectors/bridge.csv, whose verdicts and frames a Rust test compares with the program."""
    with (VECTORS / "bridge.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    place = Place(dut, "eiger-4bit", int(rows[0]["first_frame"]))
    await place.start()
    for row in rows:
        place.send(Datagram(*(int(row[name]) for name in ("port", "frame", "packet", "kind", "version", "cut"))))
        assert place.expected[-1] == row["verdict"]
    await place.finish()
    place.check()
    assert len(rows) > 1000 and len(set(place.expected)) >= 8


@cocotb.test()
async def slots_that_are_not_released(dut: Any) -> None:
    """Frames behind the last free slot are refused whole, and taken again when slots come back."""
    place = Place(dut, "eiger-4bit", 5)
    await place.start()
    for frame in range(5, 5 + 66):
        for datagram in whole_frame("eiger-4bit", frame)[:: 16 if frame < 60 else 1]:
            place.send(datagram)
    await place.finish()
    place.check()
    assert place.expected.count("no_slot") > 0
    for _ in range(3):
        await place.release()
    for frame in (5 + 65, 5 + 66, 5 + 67):
        for datagram in whole_frame("eiger-4bit", frame):
            place.send(datagram)
    await place.finish()
    place.check()
    assert place.expected[-1] == "no_slot" or place.expected[-1] == "placed"
    assert place.expected[-64:].count("placed") == 64 or place.expected[-128:].count("placed") >= 64


@cocotb.test()
async def packets_of_frames_that_are_past(dut: Any) -> None:
    """Packets from behind the window: of a tile that found no slot, of another tile of the same frame, and of a frame
    that never came."""
    place = Place(dut, "eiger-4bit", 5)
    await place.start()
    for datagram in whole_frame("eiger-4bit", 5):
        place.send(datagram)
    # Frame 5 keeps its slot, so 69 and 79 find none; with 79 the window has left 69.
    port, other = (tile["port"] for tile in place.program.tiles[:2])
    for frame in (45, 69, 79):
        place.send(Datagram(port, frame, 0, 1))
    await place.finish()
    assert place.expected[-3:] == ["placed", "no_slot", "no_slot"]
    for of_port, frame, packet in ((port, 69, 0), (port, 69, 1), (other, 69, 0), (port, 68, 0)):
        place.send(Datagram(of_port, frame, packet, 1))
    await place.finish()
    place.check()
    assert place.expected[-4:] == ["no_slot", "no_slot", "late", "late"]


@cocotb.test()
async def the_end_of_a_run(dut: Any) -> None:
    """Frames that wait for packets are finished in order when the run ends, also behind a packet that was refused, and
    with an output that waits; whole ones were finished before."""
    for seed, wrong in ((1, None), (2, Datagram(50020, 5, 99, 1)), (3, Datagram(50020, 900, 0, 1))):
        place = Place(dut, "eiger-4bit", 5, randomly(0.2, seed), randomly(0.3, seed + 5), randomly(0.5, seed + 9))
        await place.start()
        for frame, step in ((5, 3), (6, 1), (8, 7), (9, 1)):
            for datagram in whole_frame("eiger-4bit", frame)[::step]:
                place.send(datagram)
        if wrong:
            place.send(wrong)
        await place.finish()
        assert place.closed() == [], "frame 5 waits"
        await place.flush()
        place.check()
        assert [frame.image for frame in place.closed()] == [0, 1, 3, 4] and place.closed()[1].missing == 0
        for datagram in whole_frame("eiger-4bit", 10):
            place.send(datagram)
        await place.finish()
        place.check()
        assert place.closed()[-1].image == 5 and place.closed()[-1].missing == 0


@cocotb.test()
async def a_stall_at_every_clock(dut: Any) -> None:
    """A stall at many clocks of input and output, among packets that are placed, wrong and repeated."""
    packets = whole_frame("eiger-4bit", 9)[:2] + [Datagram(50020, 9, 16, 1), Datagram(50020, 9, 0, 1)]
    for clock in range(0, 300, 5):
        stalls = (at(clock, 4), never, never) if clock % 2 else (never, at(clock, 4), at(clock))
        place = Place(dut, "eiger-4bit", 9, *stalls)
        await place.start()
        for datagram in packets:
            place.send(datagram)
        await place.finish()
        place.check()
        assert place.expected == ["placed", "placed", "malformed_packet_number", "duplicate"]


@cocotb.test()
async def a_reset_at_every_clock(dut: Any) -> None:
    """A reset inside of a packet: nothing of the run before is left."""
    for clock in range(0, 100, 7):
        place = Place(dut, "eiger-4bit", 3)
        await place.start()
        for datagram in whole_frame("eiger-4bit", 3)[:2]:
            place.send(datagram)
        await place.bench.clock(clock)
        place = Place(dut, "eiger-4bit", 3)
        await place.start()
        for datagram in whole_frame("eiger-4bit", 3):
            place.send(datagram)
        await place.finish()
        place.check()
        assert place.closed() == [Closed(0, 3, 0, (0xFFFF,) * 4)]


@cocotb.test()
async def as_fast_as_the_wire(dut: Any) -> None:
    """Whole frames without gaps: the clocks are counted."""
    for name, frames in (("jungfrau-1", 2), ("eiger-16bit", 2)):
        place = Place(dut, name, 1)
        await place.start()
        for frame in range(1, 1 + frames):
            for datagram in whole_frame(name, frame):
                place.send(datagram)
        await place.finish()
        place.check()
        clocks = max(place.source.taken_at[-1], place.writes.taken_at[-1]) - place.source.taken_at[0] + 1
        note("place", case=name, bytes=len(place.expected) * place.program.datagram_bytes, clocks=clocks, latency_clocks=place.writes.taken_at[0])
