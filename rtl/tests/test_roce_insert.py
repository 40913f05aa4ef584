"""roce_insert: headers and iCRC against model_roce.py, whose iCRC is that of captured packets."""

from __future__ import annotations

import csv
import pathlib
import random
from typing import Any

import cocotb
import model_roce
from bench import Bench, Sink, Source, Stall, at, beats_of, data, never, note, number, randomly
from model_roce import OPCODES, Write, icrc, random_write

VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors"


class Insert:
    """The block with its streams."""

    def __init__(self, dut: Any, *stalls: Stall) -> None:
        self.dut = dut
        stalls = stalls or (never, never, never)
        fields = ("opcode", "number", "address", "key", "message_bytes", "immediate", "payload_bytes")
        self.commands, self.payloads = Source(dut, "d", fields, stalls[0]), Source(dut, "s", ("data",), stalls[1])
        self.sink = Sink(dut, "m", ("data", "bytes", "last"), stalls[2])
        self.bench = Bench(dut, self.commands, self.payloads, self.sink)
        self.expected: list[bytes] = []
        self.addresses = (model_roce.IP_SOURCE, model_roce.IP_DESTINATION)

    async def start(self) -> None:
        """The connection."""
        for name, value in (
            ("mac_destination", model_roce.MAC_DESTINATION),
            ("mac_source", model_roce.MAC_SOURCE),
            ("ip_source", self.addresses[0]),
            ("ip_destination", self.addresses[1]),
        ):
            getattr(self.dut, f"cfg_{name}").value = int.from_bytes(value, "big")
        self.dut.cfg_port_source.value = model_roce.PORT_SOURCE
        self.dut.cfg_type_of_service.value = model_roce.SERVICE
        self.dut.cfg_partition.value = model_roce.PARTITION
        self.dut.cfg_migrated.value = 1
        self.dut.cfg_queue_pair.value = model_roce.QUEUE_PAIR
        await self.bench.reset()
        self.bench.now = 0

    def send(self, write: Write) -> None:
        """Sends a packet."""
        head = (write.opcode, write.number, write.address, write.key, write.message_bytes, write.immediate, len(write.payload))
        self.commands.send(head)
        # Bytes behind the payload are noise.
        for piece in beats_of(write.payload):
            self.payloads.send((number(piece.ljust(64, b"\x5a")),))
        self.expected.append(write.frame(addresses=self.addresses))

    def frames(self) -> list[bytes]:
        """Whole frames that came out."""
        frames, frame = [], b""
        for beat, count, last in self.sink.beats:
            assert last or count == 64
            assert beat >> 8 * count == 0
            frame += data(beat, count)
            if last:
                frames.append(frame)
                frame = b""
        return frames

    async def finish(self) -> None:
        """Waits for all frames and compares them."""
        await self.bench.until(lambda: sum(beat[2] for beat in self.sink.beats) >= len(self.expected))
        await self.bench.clock(40)
        found = self.frames()
        assert len(found) == len(self.expected)
        for n, (one, other) in enumerate(zip(found, self.expected, strict=True)):
            assert one == other, f"frame {n}:\n{one.hex()}\n{other.hex()}"


@cocotb.test()
async def the_model_agrees_with_captured_packets(dut: Any) -> None:
    """The iCRC of a captured packet of a ConnectX-4 Lx; a damaged one has another."""
    frame = bytes.fromhex(
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b700280000"
        "8100ffff4000011800000000" + "00" * 16
    )
    assert icrc(frame[14:]).hex() == "82fd002a"
    damaged = bytearray(frame)
    damaged[-1] ^= 1
    assert icrc(bytes(damaged[14:])).hex() != "82fd002a"
    insert = Insert(dut)
    await insert.start()


@cocotb.test()
async def every_length_and_opcode(dut: Any) -> None:
    """Each opcode with each payload of 0 to 140 bytes, so the iCRC stands at every place."""
    insert = Insert(dut)
    await insert.start()
    for opcode in OPCODES:
        for count in range(141):
            insert.send(Write(opcode, count, 0x7F00_1122_3344_5566 + count, 0xABCD0123, count, 0xDEADBEEF, bytes(range(count))))
    await insert.finish()


@cocotb.test()
async def vectors(dut: Any) -> None:
    """The packets of rtl/vectors/roce.csv, which a Rust test reads with the program."""
    insert = Insert(dut, randomly(0.2, 1), randomly(0.2, 2), randomly(0.2, 3))
    await insert.start()
    with (VECTORS / "roce.csv").open() as lines:
        for row in csv.DictReader(lines):
            opcode, sequence, address, key, count, immediate = (
                int(row[name]) for name in ("opcode", "number", "address", "key", "message_bytes", "immediate")
            )
            insert.send(Write(opcode, sequence, address, key, count, immediate, bytes.fromhex(row["payload"])))
            assert insert.expected[-1].hex() == row["frame"]
    assert len(insert.expected) > 100
    await insert.finish()


@cocotb.test()
async def random_packets_and_stalls(dut: Any) -> None:
    """Random packets of all lengths, random stalls on all sides."""
    for seed, stall in ((1, 0.0), (2, 0.3), (3, 0.6)):
        insert = Insert(dut, *(randomly(stall, 10 * seed + n) for n in range(3)))
        await insert.start()
        dice = random.Random(seed)
        for _ in range(150):
            insert.send(random_write(dice))
        for count in (4096, 4095, 4093, 2048, 1):
            insert.send(Write(0x2A, 7, 1 << 40, 5, count, 0, dice.randbytes(count)))
        await insert.finish()


@cocotb.test()
async def the_checksum_of_ip_carries_twice(dut: Any) -> None:
    """Addresses for which the sum of the words, folded once, is at both sides of 2^16."""
    write = Write(0x27, 1, 0, 0, 0, 0, b"")
    for beyond in range(-3, 3):
        insert = Insert(dut)
        # The words of the header without addresses are 0xC53F together; 0xFFFF twice and this make 0x2FFFD + beyond.
        word = 0x1_0001 - 0xC53F - 2 + beyond
        insert.addresses = (b"\xff" * 4, word.to_bytes(2, "big") + bytes(2))
        total = sum(int.from_bytes(write.frame(addresses=insert.addresses)[at : at + 2], "big") for at in range(14, 34, 2) if at != 24)
        assert total == 0x2_FFFD + beyond and ((total & 0xFFFF) + (total >> 16) >= 0x1_0000) == (beyond >= 1)
        await insert.start()
        insert.send(write)
        await insert.finish()


@cocotb.test()
async def a_stall_at_every_clock(dut: Any) -> None:
    """A stall at each clock of each stream."""
    dice = random.Random(4)
    writes = [random_write(dice, 150) for _ in range(6)]
    for clock in range(70):
        for which in range(3):
            insert = Insert(dut, *(at(clock, 3 if which < 2 else 40) if n == which else never for n in range(3)))
            await insert.start()
            for write in writes:
                insert.send(write)
            await insert.finish()


@cocotb.test()
async def a_reset_at_every_clock(dut: Any) -> None:
    """A reset inside of a frame: nothing of it comes out later."""
    dice = random.Random(5)
    for clock in range(60):
        insert = Insert(dut)
        await insert.start()
        insert.send(Write(0x2B, 1, 2, 3, 4, 5, dice.randbytes(900)))
        await insert.bench.clock(clock)
        insert = Insert(dut)
        await insert.start()
        insert.send(random_write(dice))
        await insert.finish()


@cocotb.test()
async def as_fast_as_the_wire(dut: Any) -> None:
    """Packets of 4096 bytes without gaps: the clocks are counted."""
    insert = Insert(dut)
    await insert.start()
    for n in range(40):
        insert.send(Write(0x2A, n, n << 12, 5, 4096, 0, bytes(4096)))
    await insert.finish()
    clocks = insert.sink.taken_at[-1] - insert.commands.taken_at[0] + 1
    note("roce_insert", case="40 writes of 4096 bytes", bytes=sum(map(len, insert.expected)), clocks=clocks, latency_clocks=insert.sink.taken_at[0] - insert.payloads.taken_at[0])
