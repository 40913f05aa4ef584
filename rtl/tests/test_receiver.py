"""receiver: udp_front and place together, frames of an EIGER on a bad line into memory."""

from __future__ import annotations

import dataclasses
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


class Receiver:
    """The block, its memory, and the models of both halves."""

    def __init__(self, dut: Any, name: str, first: int, gaps: Stall = never, stalls: Stall = never) -> None:
        self.dut, self.name, self.program = dut, name, PROGRAMS[name]
        self.model = Model(self.program, first)
        self.source = Source(dut, "s", ("data", "keep", "last", "error"), gaps, has_ready=False)
        self.writes = Sink(dut, "m", ("data", "address"), stalls)
        self.events = Sink(dut, "e", ("mask", "image", "slot", "missing", "last"))
        self.bench = Bench(dut, self.source, self.writes, self.events)
        self.memory: dict[int, bytes] = {}
        self.frames: list[str] = []
        self.packets: list[str] = []
        self.bytes = 0

    async def start(self) -> None:
        """Tables and registers."""
        own = {"v4": 1, "v6": 1, "address_v4": int(ADDRESS_V4), "address_v6": int(ADDRESS_V6), "port_first": self.program.port_first, "streams": 4}
        await write_tables(self.bench, self.program.registers() | own | {"first_frame": self.model.first}, self.program.tables())

    def send(self, frame: bytes, damaged: bool = False) -> None:
        """Sends a frame, and asks the models what it writes."""
        self.bytes += len(frame)
        pieces = beats_of(frame)
        for n, piece in enumerate(pieces):
            last = n + 1 == len(pieces)
            self.source.send((number(piece), (1 << len(piece)) - 1, last, last and damaged))
        verdict = judge(frame, damaged)
        self.frames.append(verdict.name)
        if verdict.name == "taken":
            packet, segments = self.model.packet(model_udp.PORT_FIRST + verdict.stream, verdict.payload)
            self.packets.append(packet)
            for source, address, count in segments:
                for offset in range(0, count, 64):
                    self.memory[address + offset] = verdict.payload[source + offset : source + offset + 64]

    def frame_of(self, datagram: Datagram) -> Frame:
        """The frame of a datagram."""
        return Frame(datagram.bytes(self.program), stream=datagram.port - self.program.port_first)

    async def check(self) -> None:
        """Waits until nothing moves; compares memory, frames and counters."""
        await self.bench.until(self.source.is_done, 400_000)
        await self.bench.clock(100)
        quiet = -1
        while quiet != len(self.writes.beats):
            quiet = len(self.writes.beats)
            await self.bench.clock(400)
        assert {address: data(beat, 64) for beat, address in self.writes.beats} == self.memory
        found, masks = [], []
        for mask, image, slot, missing, last in self.events.beats:
            masks.append(mask)
            if last:
                found.append(Closed(image, slot, missing, tuple(masks)))
                masks = []
        assert found == self.model.closed
        counters = int(self.dut.frame_counters.value)
        assert [counters >> 32 * n & 0xFFFFFFFF for n in range(9)] == [self.frames.count(name) for name in model_udp.CODES]
        counters = int(self.dut.packet_counters.value)
        assert [counters >> 32 * n & 0xFFFFFFFF for n in range(10)] == [self.packets.count(name) for name in model_place.CODES]


@cocotb.test()
async def a_bad_line(dut: Any) -> None:
    """Losses and disorder of packets, damaged and foreign frames in between, in half of all cases a damaged copy of a
    packet before the right one: nothing of it may reach the memory."""
    model_udp.PORT_FIRST = PROGRAMS["eiger-4bit"].port_first
    for seed, stall in ((1, 0.0), (2, 0.25)):
        receiver = Receiver(dut, "eiger-4bit", 500, randomly(0.35, seed), randomly(stall, seed + 5))
        await receiver.start()
        dice = random.Random(seed)
        for datagram in traffic("eiger-4bit", receiver.program, seed, 18, 500):
            frame = receiver.frame_of(datagram)
            if dice.random() < 0.1:
                wrong = bytearray(dataclasses.replace(frame, payload=bytes(len(frame.payload))).bytes())
                wrong[60:100] = frame.bytes()[60:100]
                receiver.send(bytes(wrong))
            if dice.random() < 0.1:
                receiver.send(random_frame(dice), damaged=dice.random() < 0.2)
            receiver.send(frame.bytes(), damaged=dice.random() < 0.02)
        await receiver.check()
        assert receiver.frames.count("checksum") > 20 and receiver.frames.count("no_room") == 0
        assert {"placed", "duplicate", "late"} <= set(receiver.packets)


@cocotb.test()
async def as_fast_as_the_wire(dut: Any) -> None:
    """Frames of a JUNGFRAU and of an EIGER without gaps: none is dropped, and the clocks are counted."""
    for name, kind in (("jungfrau-1", 3), ("eiger-8bit", 1)):
        program: Program = PROGRAMS[name]
        model_udp.PORT_FIRST = program.port_first
        receiver = Receiver(dut, name, 1)
        await receiver.start()
        for frame in (1, 2):
            for packet in range(program.packets):
                for tile in program.tiles:
                    receiver.send(receiver.frame_of(Datagram(tile["port"], frame, packet, kind)).bytes())
        await receiver.check()
        assert receiver.model.closed[1].missing == 0 and len(receiver.model.closed) == 2
        clocks = max(receiver.source.taken_at[-1], receiver.writes.taken_at[-1]) - receiver.source.taken_at[0] + 1
        note("receiver", case=name, bytes=receiver.bytes, clocks=clocks, latency_clocks=receiver.writes.taken_at[0])
