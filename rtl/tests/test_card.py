"""card: Ethernet frames of a JUNGFRAU to shuffled pixels, masks and entries in the memory of a host, against the models
of the parts; memory, DMA, constants and line with random stalls."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import model_udp
from bench import Bench, Sink, Source, Stall, at, beats_of, data, never, note, number, randomly, write_tables
from model_place import CODES, Datagram, Model
from model_pixels import MISSING, SPECIAL, convert, random_constants, shuffle
from model_udp import ADDRESS_V4, Frame, judge
from program import Program
from test_pixel_pipeline import packed

# Two tiles of two packets; a packet of 8192 bytes lies in two pieces, so that units are half a block.
PROGRAM = """
name = "small"
slots = 64
slot_bytes = 32768
window_frames = 8
[headers.sls]
bytes = 48
payload_bytes = 8192
packets = 2
frame = { offset = 0, bytes = 8, endian = "little" }
packet = { offset = 12, bytes = 4, endian = "little" }
require = [{ offset = 46, bytes = 1, value = 3 }, { offset = 47, bytes = 1, value = 2 }]
[places.both]
header = "sls"
terms = [{ divide = 1, multiply = 4096 }]
patterns = [[{ source = 0, destination = 0, bytes = 4096 }, { source = 4096, destination = 8192, bytes = 4096 }]]
[[tiles]]
port = 50010
places = "both"
offset = 0
[[tiles]]
port = 50011
places = "both"
offset = 16384
"""
SLOTS, RING, PIXELS, SLOT_BYTES, PIXELS_BYTES = 3, 4224, 8192, 36864, 32768


class Card:
    """The block, the memories around it, and the models of its parts."""

    def __init__(self, dut: Any, kind: str = "int16", stalls: tuple[Stall, ...] = (never,) * 6, first: int = 70) -> None:
        self.dut, self.kind, self.program = dut, kind, Program(PROGRAM)
        self.model = Model(self.program, first)
        dice = random.Random(4)
        self.constants = [random_constants(dice) for _ in range(PIXELS_BYTES // 2)]
        words = [packed([c.word() for c in self.constants[n : n + 32]], 102) for n in range(0, len(self.constants), 32)]
        self.line = Source(dut, "s", ("data", "keep", "last", "error"), stalls[0], has_ready=False)
        self.writes = Sink(dut, "m", ("data", "address"), stalls[1])
        self.requests = Sink(dut, "r", ("address",), stalls[2])
        self.answers = Source(dut, "d", ("data",), stalls[3])
        self.table = Source(dut, "c", ("data",), stalls[4])
        self.host = Sink(dut, "h", ("address", "data", "record"), stalls[5])
        self.bench = Bench(dut, self.line, self.writes, self.requests, self.answers, self.table, self.host)
        self.words = words
        self.memory: dict[int, int] = {}
        self.expected: dict[int, bytes] = {}
        self.seen = [0, 0]
        self.verdicts: list[str] = []

    async def start(self) -> None:
        """Registers and tables."""
        unit_log2, owners = self.program.owners()
        assert unit_log2 == 6
        registers = self.program.registers() | {
            "v4": 1, "v6": 0, "address_v4": int(ADDRESS_V4), "address_v6": 0, "port_first": 50010, "streams": 2,
            "first_frame": self.model.first, "high_gain": 0, "shifts": 26 | 20 << 6 | 18 << 12,
            "unsigned": int(self.kind == "uint16"), "unit_log2": unit_log2, "beats": PIXELS_BYTES // 64,
            "host_pixels": PIXELS, "host_ring": RING, "host_slot_bytes": SLOT_BYTES, "host_slots": SLOTS,
        }
        self.dut.host_released.value = 0
        await write_tables(self.bench, registers, self.program.tables() + owners)

    def send(self, datagram: Datagram, **changes: Any) -> None:
        """A packet, with changes of its Ethernet frame; the models say what becomes of it."""
        frame = Frame(datagram.bytes(self.program), stream=datagram.port - 50010, **changes).bytes()
        pieces = beats_of(frame)
        for n, piece in enumerate(pieces):
            self.line.send((number(piece), (1 << len(piece)) - 1, n + 1 == len(pieces), 0))
        verdict = judge(frame)
        if verdict.name != "taken":
            self.verdicts.append(verdict.name)
            return
        packet, segments = self.model.packet(50010 + verdict.stream, verdict.payload)
        self.verdicts.append(packet)
        for source, address, count in segments:
            for offset in range(0, count, 64):
                self.expected[address + offset] = verdict.payload[source + offset : source + offset + 64]

    def send_frames(self, frames: range) -> None:
        """All packets of these frames."""
        for frame in frames:
            for datagram in packets(frame):
                self.send(datagram)

    async def clock(self) -> None:
        """One clock of the card and of its memory."""
        await self.bench.clock()
        for beat, address in self.writes.beats[self.seen[0] :]:
            self.memory[address] = beat
        self.seen[0] = len(self.writes.beats)
        for (address,) in self.requests.beats[self.seen[1] :]:
            self.answers.send((self.memory.get(address, 0xDEAD << 160),))
            self.table.send((self.words[self.seen[1] % len(self.words)],))
            self.seen[1] += 1

    async def until(self, frames: int, clocks_max: int = 40_000) -> None:
        """Clocks until so many frames are in the memory of the host."""
        for _ in range(clocks_max):
            if self.line.is_done() and sum(record for _, _, record in self.host.beats) >= frames:
                break
            await self.clock()
        for _ in range(60):
            await self.clock()
        assert sum(record for _, _, record in self.host.beats) == frames

    def image(self, nth: int, released: int = 0) -> bytes:
        """The shuffled pixels of the nth finished frame, by the models."""
        closed = self.model.closed[nth]
        start = closed.slot * 32768
        owners = {n: row for _, n, row in self.program.owners()[1]}
        pixels = bytearray()
        for n in range(PIXELS_BYTES // 2):
            owner = owners[n // 2048]
            if closed.masks[owner >> 9] >> (owner & 511) & 1:
                beat = self.expected[start + 2 * n // 64 * 64]
                value = convert(int.from_bytes(beat[2 * n % 64 : 2 * n % 64 + 2], "little"), self.constants[n], (26, 20, 18), self.kind)
            else:
                value = SPECIAL[self.kind][MISSING]
            pixels += (value & 0xFFFF).to_bytes(2, "little")
        return b"".join(shuffle(bytes(pixels[at : at + 8192])) for at in range(0, len(pixels), 8192))

    def check(self, begin: int = 0) -> None:
        """What was written to the host, write by write: pixels, masks, entry of each frame."""
        writes = [(address, data(beat, 32 if record else 64), bool(record)) for address, beat, record in self.host.beats]
        frames: list[list[tuple[int, bytes, bool]]] = [[]]
        for write in writes:
            frames[-1].append(write)
            if write[2]:
                frames.append([])
        assert frames.pop() == [] and len(frames) <= len(self.model.closed)
        for nth, of_frame in enumerate(frames):
            if nth < begin:
                continue
            closed, slot = self.model.closed[nth], PIXELS + nth % SLOTS * SLOT_BYTES
            assert [address for address, _, _ in of_frame] == [*range(slot, slot + PIXELS_BYTES + 128, 64), RING + nth % SLOTS * 32]
            assert b"".join(beat for _, beat, _ in of_frame[:-3]) == self.image(nth), f"pixels of frame {nth}"
            assert [number(beat) for _, beat, _ in of_frame[-3:-1]] == list(closed.masks)
            head = (nth + 1).to_bytes(8, "little") + closed.image.to_bytes(8, "little") + slot.to_bytes(8, "little")
            assert of_frame[-1][1] == head + PIXELS_BYTES.to_bytes(4, "little") + closed.missing.to_bytes(2, "little") + b"\2\1"


def packets(frame: int, but: tuple[tuple[int, int], ...] = ()) -> list[Datagram]:
    """The packets of a frame, without some."""
    return [Datagram(50010 + tile, frame, packet, 3) for packet in range(2) for tile in range(2) if (tile, packet) not in but]


def reset_model() -> None:
    """The line of these tests."""
    model_udp.PORT_FIRST, model_udp.STREAMS = 50010, 2


@cocotb.test()
async def frames_with_losses_and_stalls(dut: Any) -> None:
    """Lost packets become missing pixels, wrong frames of the line change nothing; every stream stalls at random."""
    reset_model()
    for seed, kind, share in ((1, "int16", 0.0), (2, "uint16", 0.3)):
        card = Card(dut, kind, tuple(randomly(share, 10 * seed + n) for n in range(6)))
        await card.start()
        for datagram in packets(70) + packets(71, ((1, 0),)):
            card.send(datagram)
        card.send(Datagram(50010, 71, 0, 3), udp_bytes_off=-9)
        card.send(Datagram(50011, 71, 2, 3))
        card.send(Datagram(50010, 71, 0, 3))
        for datagram in packets(72, ((0, 0), (0, 1), (1, 1))):
            card.send(datagram)
        await card.until(1)
        card.model.flush()
        dut.flush.value = 1
        await card.until(3)
        dut.flush.value = 0
        card.check()
        assert [frame.missing for frame in card.model.closed] == [0, 1, 3]
        assert {"malformed_packet_number", "duplicate"} <= set(card.verdicts) and card.verdicts.count("placed") == 8
        counters = int(dut.packet_counters.value)
        assert counters & 0xFFFFFFFF == 8 and int(dut.frames.value) == 3


@cocotb.test()
async def a_host_that_gives_nothing_back(dut: Any) -> None:
    """With all slots of the host in its hands nothing is written; each that comes back is used for the next frame."""
    reset_model()
    card = Card(dut)
    await card.start()
    card.send_frames(range(70, 75))
    await card.until(3)
    for _ in range(1500):
        await card.clock()
    assert sum(record for _, _, record in card.host.beats) == 3
    writes = len(card.host.beats)
    dut.host_released.value = 1
    await card.until(4)
    assert len(card.host.beats) == writes + PIXELS_BYTES // 64 + 3
    dut.host_released.value = 4
    await card.until(5)
    card.check()


@cocotb.test()
async def a_slot_of_the_card_comes_back(dut: Any) -> None:
    """The slot of a frame is taken as long as its entry is not written, and is free for another one behind it."""
    reset_model()
    card = Card(dut, stalls=(never,) * 5 + (at(0, 4000),))
    await card.start()
    # Frame 134 is 64 frames behind frame 70: it needs the same slot.
    for frame in (70, 110, 134):
        card.send_frames(range(frame, frame + 1))
    await card.until(2)
    card.check()
    assert card.verdicts.count("no_slot") == 4
    card.model.release()
    card.model.release()
    # Frame 174 needs the slot of frame 110.
    card.send_frames(range(174, 175))
    await card.until(2)
    card.model.flush()
    dut.flush.value = 1
    await card.until(3, 8000)
    dut.flush.value = 0
    card.check(2)
    assert [frame.image for frame in card.model.closed] == [0, 40, 104]
    counters = int(dut.packet_counters.value)
    counts = [counters >> 32 * code & 0xFFFFFFFF for code in range(len(CODES))]
    assert counts == [card.verdicts.count(name) for name in CODES]


@cocotb.test()
async def a_reset_in_mid_frame(dut: Any) -> None:
    """A reset while words, pixels, masks or the entry of a frame are on their way: the next run is whole."""
    reset_model()
    for clock in (700, 1110, 1244):
        card = Card(dut)
        await card.start()
        for datagram in packets(70):
            card.send(datagram)
        for _ in range(clock):
            await card.clock()
        again = Card(dut, first=90)
        await again.start()
        for datagram in packets(90, ((0, 1),)) + packets(91):
            again.send(datagram)
        again.model.flush()
        # The end is asked for when all packets have been placed, not before.
        while not again.line.is_done():
            await again.clock()
        for _ in range(400):
            await again.clock()
        dut.flush.value = 1
        await again.until(2)
        dut.flush.value = 0
        again.check()
        assert [frame.image for frame in again.model.closed] == [0, 1]


@cocotb.test()
async def a_stall_at_many_clocks(dut: Any) -> None:
    """A stall of each stream at clocks of the whole way of a frame."""
    reset_model()
    for clock in range(540, 1260, 90):
        which = clock // 90 % 5 + 1
        card = Card(dut, "int16", tuple(at(clock, 9) if n == which else never for n in range(6)))
        await card.start()
        for datagram in packets(70, ((1, 1),)) + packets(71):
            card.send(datagram)
        await card.until(0)
        card.model.flush()
        dut.flush.value = 1
        await card.until(2)
        dut.flush.value = 0
        card.check()


@cocotb.test()
async def as_fast_as_the_wire(dut: Any) -> None:
    """Frames without gaps: the clocks of one frame behind the other are counted."""
    reset_model()
    card = Card(dut)
    await card.start()
    card.send_frames(range(70, 73))
    await card.until(3)
    card.check()
    ends = [clock for clock, (_, _, record) in zip(card.host.taken_at, card.host.beats, strict=True) if record]
    note("card", case="a frame of 32 KiB behind another", bytes=PIXELS_BYTES, clocks=ends[2] - ends[1], latency_clocks=ends[0] - card.line.taken_at[0])
