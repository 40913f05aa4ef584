"""udp_front: frames against crates/sources/src/frame.rs (model_udp.py)."""

from __future__ import annotations

import csv
import pathlib
import random
from typing import Any

import cocotb
from bench import Bench, Sink, Source, Stall, at, beats_of, data, never, note, number, randomly
from model_udp import ADDRESS_V4, ADDRESS_V6, CODES, PORT_FIRST, STREAMS, Frame, Verdict, judge, named_frames, random_frame

VECTORS = pathlib.Path(__file__).resolve().parents[1] / "vectors/frames.csv"
BUFFER_BEATS = 512


class Front:
    """The block with its streams."""

    def __init__(self, dut: Any, gaps: Stall = never, stalls: Stall = never) -> None:
        self.dut = dut
        self.source = Source(dut, "s", ("data", "keep", "last", "error"), gaps, has_ready=False)
        self.sink = Sink(dut, "m", ("data", "bytes", "last", "stream", "payload_bytes"), stalls)
        self.verdicts = Sink(dut, "v", ("code",), has_ready=False)
        self.bench = Bench(dut, self.source, self.sink, self.verdicts)

    async def start(self) -> None:
        """Writes the configuration and waits until the block takes frames."""
        for name, value in (
            ("v4", 1),
            ("v6", 1),
            ("address_v4", int(ADDRESS_V4)),
            ("address_v6", int(ADDRESS_V6)),
            ("port_first", PORT_FIRST),
            ("streams", STREAMS),
        ):
            getattr(self.dut, f"cfg_{name}").value = value
        await self.bench.reset()
        await self.bench.clock(70)
        self.bench.now = 0

    def send(self, *frames: bytes, damaged: bool = False) -> None:
        """Frames to send."""
        for frame in frames:
            pieces = beats_of(frame)
            for piece in pieces:
                is_last = piece is pieces[-1]
                # Bytes without keep are noise.
                noise = number(b"\xa5" * (64 - len(piece))) << 8 * len(piece)
                self.source.send((number(piece) | noise, (1 << len(piece)) - 1, is_last, is_last and damaged))

    async def finish(self, frames: int) -> None:
        """Waits for so many verdicts, and until all payloads have left the buffer."""
        await self.bench.until(lambda: len(self.verdicts.beats) >= frames)
        await self.bench.clock(8)
        taken = sum(self.codes().count(name) for name in ("taken",))
        await self.bench.until(lambda: sum(beat[2] for beat in self.sink.beats) >= taken)
        await self.bench.clock(4)

    def codes(self) -> list[str]:
        """Names of the verdicts."""
        return [CODES[code] for (code,) in self.verdicts.beats]

    def payloads(self) -> list[tuple[int, bytes]]:
        """Stream and payload of each packet that left."""
        packets, payload = [], b""
        for beat, count, last, stream, payload_bytes in self.sink.beats:
            assert beat >> 8 * count == 0, "bytes behind the payload are zero"
            assert last or count == 64, "only the last beat is partial"
            payload += data(beat, count)
            if last:
                assert len(payload) == payload_bytes
                packets.append((stream, payload))
                payload = b""
        assert payload == b"", "a packet has no end"
        return packets

    def check(self, expected: list[Verdict]) -> None:
        """Everything that came out is what the model says, and the counters add up."""
        assert self.codes() == [verdict.name for verdict in expected]
        assert self.payloads() == [(v.stream, v.payload) for v in expected if v.name == "taken"]
        counters = int(self.dut.counters.value)
        counts = [counters >> 32 * code & 0xFFFFFFFF for code in range(len(CODES))]
        assert counts == [self.codes().count(name) for name in CODES]
        assert sum(counts) == len(expected)


@cocotb.test()
async def every_kind_of_frame(dut: Any) -> None:
    """Frames written by hand, with the verdict written by hand."""
    front = Front(dut)
    await front.start()
    frames = named_frames()
    for name, (frame, verdict) in frames.items():
        assert judge(frame).name == verdict, name
        front.send(frame)
    await front.finish(len(frames))
    front.check([judge(frame) for frame, _ in frames.values()])


@cocotb.test()
async def vectors(dut: Any) -> None:
    """The frames of rtl/vectors, whose verdicts a Rust test compares with the program."""
    front = Front(dut, randomly(0.2, 1), randomly(0.3, 2))
    await front.start()
    expected = []
    with VECTORS.open() as rows:
        for row in csv.DictReader(rows):
            frame = bytes.fromhex(row["frame"])
            expected.append(Verdict(row["verdict"], int(row["stream"]), bytes.fromhex(row["payload"])))
            assert judge(frame) == expected[-1]
            front.send(frame)
    assert len(expected) > 300
    await front.finish(len(expected))
    front.check(expected)


@cocotb.test()
async def random_frames_and_stalls(dut: Any) -> None:
    """Random frames; gaps and stalls of different density; some frames that the MAC found damaged."""
    for seed, gap, stall in ((1, 0.0, 0.0), (2, 0.3, 0.3), (3, 0.0, 0.45), (4, 0.6, 0.1)):
        front = Front(dut, randomly(gap, seed), randomly(stall, seed + 50))
        await front.start()
        dice, expected = random.Random(seed), []
        for _ in range(300):
            frame, damaged = random_frame(dice), dice.random() < 0.05
            front.send(frame, damaged=damaged)
            expected.append(judge(frame, damaged))
        await front.finish(len(expected))
        front.check(expected)
        assert len(set(front.codes())) >= 7


@cocotb.test()
async def a_stall_at_every_clock(dut: Any) -> None:
    """A gap in front of each beat, and a stall at each clock of the output, alone and together."""
    frames = [Frame(bytes(range(150)), 1).bytes(), Frame(b"", 2).bytes(), b"\0" * 61, Frame(bytes(130), 3, options=9).bytes()]
    expected = [judge(frame) for frame in frames]
    for clock in range(32):
        for gap, stall in ((at(clock), never), (never, at(clock, 3)), (at(clock, 2), at(clock + 9))):
            front = Front(dut, gap, stall)
            await front.start()
            front.send(*frames)
            await front.finish(len(frames))
            front.check(expected)


@cocotb.test()
async def a_reset_at_every_clock(dut: Any) -> None:
    """A reset inside of a frame: its rest is no frame, and later frames are taken as ever."""
    inner = Frame(bytes(range(90)), 3).bytes()
    # The rest of the frame would itself be a good frame.
    first = Frame(bytes(22) + inner + bytes(64), 1).bytes()
    beats = len(beats_of(first))
    for clock in range(beats + 24):
        front = Front(dut)
        await front.start()
        front.send(first)
        front.bench.resets = {clock}
        await front.bench.clock(clock + 1)
        verdicts, left = len(front.verdicts.beats), len(front.sink.beats)
        # Beats up to the reset are gone; the rest of the frame comes and is skipped, or there is silence.
        await front.bench.clock(70)
        assert (len(front.verdicts.beats), len(front.sink.beats)) == (verdicts, left), clock
        front.verdicts.beats.clear()
        front.sink.beats.clear()
        front.send(inner)
        await front.finish(1)
        front.check([judge(inner)])


@cocotb.test()
async def a_full_buffer_drops_whole_frames(dut: Any) -> None:
    """The output stands still: frames that find no room are counted, and no part of them comes out. Several times,
    so that the pointers of the buffer wrap."""
    front = Front(dut)
    await front.start()
    beats = len(beats_of(bytes(4144)))
    expected: list[str] = []
    wanted: list[tuple[int, bytes]] = []
    for again in range(5):
        front.sink.stall = at(front.bench.now, 1200)
        frames = [Frame(bytes([16 * again + n]) * 4144, n % STREAMS).bytes() for n in range(14)]
        front.send(*frames)
        await front.finish(len(expected) + len(frames))
        # Two more beats may stand in the registers behind the memory.
        fitting = BUFFER_BEATS // beats
        expected += ["taken"] * fitting + ["no_room"] * (len(frames) - fitting)
        wanted += [(n % STREAMS, bytes([16 * again + n]) * 4144) for n in range(fitting)]
        assert front.codes() == expected, again
        assert front.payloads() == wanted


@cocotb.test()
async def as_fast_as_the_wire(dut: Any) -> None:
    """Frames without gaps: no frame is dropped, and the clocks are counted."""
    for name, frame, count in (("JUNGFRAU, 8240 bytes", Frame(bytes(8240)).bytes(), 24), ("64 bytes", Frame(bytes(22)).bytes(), 400)):
        front = Front(dut)
        await front.start()
        front.send(*[frame] * count)
        await front.finish(count)
        assert front.codes() == ["taken"] * count
        clocks = front.source.taken_at[-1] - front.source.taken_at[0] + 1
        out_clocks = front.sink.taken_at[-1] - front.sink.taken_at[0] + 1
        note(
            "udp_front",
            case=name,
            bytes=count * len(frame),
            clocks=max(clocks, out_clocks),
            latency_clocks=front.verdicts.taken_at[0] - front.source.taken_at[len(beats_of(frame)) - 1],
        )
